"""Recording the call of a Python function as nodes whose rules call Python functions.

A call with any number of inputs and results becomes one node, and one more for each result. What
passes between them in a sweep is a ``Wire``, which gathers the parts of all results (backward) or
of all inputs (forward), so that the function behind the rules runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odyssey.spec import spec_of
from odyssey.table.multi_output import MultiOutput, MultiOutputSpec
from odyssey.table.row import Row
from odyssey.table.scope import find_recording, recordings_of
from odyssey.table.signature import Layout
from odyssey.table.store import store
from odyssey.table.value import Mark, make_value
from odyssey.tape import GradientTape
from odyssey.tape.recording import Recording
from odyssey.variable import Variable

__all__ = ["Rule", "data_of", "home_of", "kept_inputs", "record_call"]

Rule = Callable[[dict[int, Any], tuple[Any, ...], dict[int, Any]], list[Any]]
"""``rule(parts, kept, chosen)``: from the parts of some results to all inputs, or the other way.

``chosen`` are the masks of the parts, by number, see ``tape.gradient_mask``; the rule leaves in it
those
of its answers, or nothing.
"""


class Answers(MultiOutput):
    """A Wire that gathers the parts of all results, or inputs, and answers for all at once."""

    # ``chosen``: the masks of the parts; once there are answers, of these.
    __slots__ = ("_answers", "_compute")

    def __init__(self, parts: dict[int, Any], compute: Callable[..., Any] | None = None) -> None:
        super().__init__(parts)
        self._compute = compute
        self._answers: list[Any] | None = None

    def of(self, parts: dict[int, Any]) -> Answers:
        """A wire like this one, with other parts."""
        return Answers(parts, self._compute)

    def answer(self, k: int, compute: Callable[..., Any] | None = None) -> Any:
        """Answer number ``k`` of what is computed, once, from all parts."""
        if self._answers is None:
            compute = compute or self._compute
            assert compute is not None
            self._answers = compute(self.parts, self.chosen)
        return self._answers[k]


_WIRE = MultiOutputSpec()


def _row(
    layout: Layout,
    pulls: Iterable[Any],
    pushes: Iterable[Any],
    number: int = -1,
    chooses: bool = False,
    poles: bool = False,
) -> Row:
    def hand_on(k: int, g: Any, r: Any, chosen: Any) -> Any:
        """See ``step`` of the tape's choices: a Wire takes masks up, and answers with masks."""
        if not isinstance(r, MultiOutput):
            return g.chosen.get(k if number < 0 else number)
        if chosen is not None:
            r.chosen = dict.fromkeys(r.parts, chosen)
        return None

    nothing = [None] * len(layout.arrays)
    return Row(
        layout,
        pullbacks=list(pulls),
        pushforwards=list(pushes),
        selection_pullbacks=nothing,
        selection_pushforwards=nothing,
        selects=chooses,
        has_poles=poles,
        propagate_selection=hand_on,
        foreign=True,  # its rules may fail in the middle of a sweep, which must then lose nothing
    )


def _call_row(
    name: str, count: int, others: int, pull: Rule, push: Rule, chooses: bool, poles: bool
) -> Row:
    """The row of the node that stands for the call, with a Wire as its result."""

    def pulling(k: int) -> Any:
        return lambda g, kept, specs: g.answer(k, lambda *given: pull(given[0], kept, given[1]))

    def pushing(k: int) -> Any:
        return lambda t, kept, specs: Answers({k: t}, lambda *given: push(given[0], kept, given[1]))

    numbers = range(count)
    arrays, options = [f"x{k}" for k in numbers], [f"kept{k}" for k in range(others)]
    layout = Layout(f"{name}.call", arrays, options)
    return _row(layout, map(pulling, numbers), map(pushing, numbers), -1, chooses, poles)


def _result_row(name: str, j: int, chooses: bool) -> Row:
    """The row of the node of result number ``j``."""
    return _row(
        Layout(name, ["call"]),
        [lambda g, kept, specs: Answers({j: g})],
        [lambda t, kept, specs: t.answer(j)],
        j,
        chooses,
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
    row = _call_row(name, len(ids), len(kept), pull, push, chooses, poles)
    call = recording.new_id()
    saved = (*[data_of(value) for value in inputs], None, *kept)
    specs = (*[value._spec for value in inputs], _WIRE)
    recording.add((row, call, ids, saved, specs), None)
    made = []
    for j, data in enumerate(results):
        id, spec = recording.new_id(), spec_of(data)
        result = _result_row(name, j, chooses)
        recording.add((result, id, (call,), (), (_WIRE, spec)), data)
        made.append(make_value(Variable, data, recording, id, spec))
    return made


def kept_inputs(kept: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What a rule is given: the inputs, as Variables where the sweep is recorded, and the rest."""
    return kept[:count], kept[count + 1 :]


def home_of(who: str, values: Sequence[Any]) -> Recording | None:
    """The recording that an op on ``values`` would be recorded on; None where none records."""
    tape = next((v for v in values if isinstance(v, GradientTape)), None)
    found: Any = find_recording(who, values, recordings_of(values), tape)
    return None if isinstance(found, Mark) else found


def data_of(value: Variable) -> Any:
    """The array of a Variable; while a graph is traced, what stands for it there."""
    return store().operand(value)
