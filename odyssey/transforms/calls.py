"""Recording the call of a Python function as nodes whose rules call Python functions.

A call with any number of inputs and results becomes one node, and one more for each result. What
passes between them in a sweep is a ``Wire``, which gathers the parts of all results (backward) or
of all inputs (forward), so that the function behind the rules runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from odyssey.spec import Spec, spec_of
from odyssey.table.row import Row
from odyssey.table.scope import find, homes_of
from odyssey.table.store import store
from odyssey.table.value import Mark, make_value
from odyssey.tape import GradientTape
from odyssey.tape.recording import Recording
from odyssey.variable import Variable

__all__ = ["Rule", "Wire", "data_of", "home_of", "kept_inputs", "record_call"]

Rule = Callable[[dict[int, Any], tuple[Any, ...], dict[int, Any]], list[Any]]
"""``rule(parts, kept, chosen)``: from the parts of some results to all inputs, or the other way.

``chosen`` are the masks of the parts, by number, see ``tape.choices``; the rule leaves in it those
of its answers, or nothing.
"""


class Wire:
    """What a sweep passes between the node of a call and those of its results."""

    # ``chosen``: the masks of the parts, by number; once there are answers, of these.
    __slots__ = ("_answers", "_compute", "chosen", "parts")

    # For the sweep, which compares them with the spec on the nodes.
    shape = ()
    dtype = np.dtype(np.float64)

    def __init__(self, parts: dict[int, Any], compute: Callable[..., Any] | None = None) -> None:
        self.parts = parts
        self.chosen: dict[int, Any] = {}
        self._compute = compute
        self._answers: list[Any] | None = None

    def __add__(self, other: Wire) -> Wire:
        parts = dict(self.parts)
        for k, part in other.parts.items():
            parts[k] = parts[k] + part if k in parts else part
        wire = Wire(parts, self._compute)
        wire.chosen = self.chosen | other.chosen
        return wire

    def answer(self, k: int, compute: Callable[..., Any] | None = None) -> Any:
        """Answer number ``k`` of what is computed, once, from all parts."""
        if self._answers is None:
            compute = compute or self._compute
            assert compute is not None
            self._answers = compute(self.parts, self.chosen)
        return self._answers[k]


class _WireSpec(Spec):
    """The spec of a Wire, which has the form of a number for the sweep, and for nobody else."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "results"


_WIRE = _WireSpec((), Wire.dtype)


def _row(
    name: str, arrays: Iterable[str], pulls: Iterable[Any], pushes: Iterable[Any], number: int = -1
) -> Row:
    def hand_on(k: int, g: Any, r: Any, chosen: Any) -> Any:
        """See ``step`` of the tape's choices: a Wire takes masks up, and answers with masks."""
        if not isinstance(r, Wire):
            return g.chosen.get(k if number < 0 else number)
        if chosen is not None:
            r.chosen = dict.fromkeys(r.parts, chosen)
        return None

    row = Row()
    row.name, row.arrays, row.options = name, tuple(arrays), ()
    row.pulls, row.pushes = tuple(pulls), tuple(pushes)
    row.unruled, row.short, row.spelled = (), 0, 0
    row.elementwise = row.linear = row.closed = row.masks = row.moves = row.poles = False
    row.chosen = row.chosen_forward = (None,) * len(row.arrays)
    row.hand_on = hand_on
    # Its rules may fail in the middle of a sweep, which must then lose nothing.
    row.foreign = True
    return row


def _call_row(name: str, count: int, others: int, pull: Rule, push: Rule) -> Row:
    """The row of the node that stands for the call, with a Wire as its result."""

    def pulling(k: int) -> Any:
        return lambda g, kept, specs: g.answer(k, lambda *given: pull(given[0], kept, given[1]))

    def pushing(k: int) -> Any:
        return lambda t, kept, specs: Wire({k: t}, lambda *given: push(given[0], kept, given[1]))

    numbers = range(count)
    arrays = [f"x{k}" for k in numbers]
    row = _row(f"{name}.call", arrays, map(pulling, numbers), map(pushing, numbers))
    row.options = tuple(f"kept{k}" for k in range(others))
    return row


def _result_row(name: str, j: int) -> Row:
    """The row of the node of result number ``j``."""
    return _row(
        name,
        ["call"],
        [lambda g, kept, specs: Wire({j: g})],
        [lambda t, kept, specs: t.answer(j)],
        j,
    )


def record_call(
    recording: Recording,
    name: str,
    inputs: Sequence[Variable],
    results: Sequence[Any],
    pull: Rule,
    push: Rule,
    kept: Sequence[Any] = (),
    chooses: bool = False,
    poles: bool = False,
) -> list[Variable]:
    """Append the nodes of a call, and return its results as Variables.

    Args:
        recording: Where.
        name: For messages and reports.
        inputs: What the call is differentiated with respect to: no constants.
        results: Arrays of floating numbers.
        pull: From cotangents of results to those of the inputs; not conjugated, as in the sweep.
        push: From tangents of inputs to those of the results.
        kept: Arrays that the rules need besides those of the inputs; see ``kept_inputs``.
        chooses: Whether the call leaves elements out by choice; see ``masks`` of ``od.op``.
        poles: Whether slopes inside of it may be infinite.
    """
    ids = tuple([recording.place(value, name) for value in inputs])
    row = _call_row(name, len(ids), len(kept), pull, push)
    row.masks, row.poles = chooses, poles
    call = recording.new_id()
    saved = (*[data_of(value) for value in inputs], None, *kept)
    specs = (*[value._spec for value in inputs], _WIRE)
    recording.add((row, call, ids, saved, specs), None)
    made = []
    for j, data in enumerate(results):
        id, spec = recording.new_id(), spec_of(data)
        result = _result_row(name, j)
        result.masks = chooses
        recording.add((result, id, (call,), (), (_WIRE, spec)), data)
        made.append(make_value(Variable, data, recording, id, spec))
    return made


def kept_inputs(kept: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What a rule is given: the inputs, as Variables where the sweep is recorded, and the rest."""
    return kept[:count], kept[count + 1 :]


def home_of(who: str, values: Sequence[Any]) -> Recording | None:
    """The recording that an op on ``values`` would be recorded on; None where none records."""
    tape = next((v for v in values if isinstance(v, GradientTape)), None)
    found: Any = find(who, values, homes_of(values), tape)
    return None if isinstance(found, Mark) else found


def data_of(value: Variable) -> Any:
    """The array of a Variable; while a graph is traced, what stands for it there."""
    return store().operand(value)
