"""Nodes for calls of Python functions, with rules that are Python functions.

A call with any number of inputs and results becomes one node, and one more for each result. In a
sweep these nodes exchange a ``MultiOutput``, which gathers the cotangents of all results (backward)
or the tangents of all inputs (forward), so that the rule runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odyssey.spec import spec_of
from odyssey.table.multi_output import MultiOutput, MultiOutputSpec
from odyssey.table.row import Row
from odyssey.table.scope import AutocastBlock, autocast_now, find_recording, recordings_of
from odyssey.table.signature import Layout
from odyssey.table.store import store
from odyssey.table.value import Mark, make_value
from odyssey.tape import GradientTape
from odyssey.tape.recording import RawNode, Recording
from odyssey.variable import Variable

__all__ = [
    "Rule",
    "possible_dependencies",
    "record_call",
    "recording_for",
    "split_saved",
    "stored_array",
]

Rule = Callable[[dict[int, Any], tuple[Any, ...], dict[int, Any]], list[Any]]
"""``rule(parts, kept, masks)``: derivatives of all inputs from those of results, or vice versa.

``masks`` are the masks of ``parts`` by number, see ``tape.gradient_mask``. The rule replaces them
by the masks of its results, or removes them.
"""


class CallResultRow(Row):
    """Row of one result of a call.

    Attributes:
        definite_inputs: The ids of the inputs that a sweep reaches from it, whichever branch ran;
            unset if these are all.
        depends: The positions of the inputs that it depends on; None for all.
    """

    __slots__ = ("definite_inputs", "depends")

    definite_inputs: frozenset[int | None]
    depends: Sequence[int] | None


class CallMultiOutput(MultiOutput):
    """MultiOutput that gathers all derivatives of a call, and computes all answers once."""

    # ``chosen`` holds the masks of the parts; once there are answers, the masks of the answers.
    __slots__ = ("_answers", "_compute")

    def __init__(self, parts: dict[int, Any], compute: Callable[..., Any] | None = None) -> None:
        super().__init__(parts)
        self._compute = compute
        self._answers: list[Any] | None = None

    def with_parts(self, parts: dict[int, Any]) -> CallMultiOutput:
        """Return a CallMultiOutput with other parts."""
        return CallMultiOutput(parts, self._compute)

    def answer(self, k: int, compute: Callable[..., Any] | None = None) -> Any:
        """Return answer number ``k``; the first call computes all answers from all parts."""
        if self._answers is None:
            compute = compute or self._compute
            assert compute is not None
            self._answers = compute(self.parts, self.chosen)
        return self._answers[k]


_CALL_SPEC = MultiOutputSpec()


def _rule_row(
    layout: Layout,
    pullbacks: Iterable[Any],
    pushforwards: Iterable[Any],
    number: int = -1,
    selects: bool = False,
    has_poles: bool = False,
    kind: type[Row] = Row,
) -> Row:
    def propagate_selection(k: int, g: Any, r: Any, chosen: Any) -> Any:
        """See ``propagate_mask``: a MultiOutput gathers masks, and its answers have masks."""
        if not isinstance(r, MultiOutput):
            return g.chosen.get(k if number < 0 else number)
        if chosen is not None:
            r.chosen = dict.fromkeys(r.parts, chosen)
        return None

    nothing = [None] * len(layout.arrays)
    return kind(
        layout,
        pullbacks=list(pullbacks),
        pushforwards=list(pushforwards),
        selection_pullbacks=nothing,
        selection_pushforwards=nothing,
        selects=selects,
        has_poles=has_poles,
        propagate_selection=propagate_selection,
        foreign=True,  # its rules may fail in the middle of a sweep, which must then lose nothing
    )


def _call_row(
    name: str, count: int, others: int, vjp: Rule, jvp: Rule, selects: bool, has_poles: bool
) -> Row:
    """Return the row of the call's node, whose result is a MultiOutput."""

    def pulling(k: int) -> Any:
        return lambda g, kept, specs: g.answer(k, lambda *given: vjp(given[0], kept, given[1]))

    def pushing(k: int) -> Any:
        return lambda t, kept, specs: CallMultiOutput(
            {k: t}, lambda *given: jvp(given[0], kept, given[1])
        )

    numbers = range(count)
    arrays, options = [f"x{k}" for k in numbers], [f"kept{k}" for k in range(others)]
    layout = Layout(f"{name}.call", arrays, options)
    return _rule_row(layout, map(pulling, numbers), map(pushing, numbers), -1, selects, has_poles)


def _result_row(
    name: str,
    j: int,
    selects: bool,
    definite: frozenset[int | None] | None,
    depends: Sequence[int] | None,
) -> Row:
    """Return the row of the node of result number ``j``."""
    row = _rule_row(
        Layout(name, ["call"]),
        [lambda g, kept, specs: CallMultiOutput({j: g})],
        [lambda t, kept, specs: t.answer(j)],
        j,
        selects,
        kind=CallResultRow,
    )
    assert isinstance(row, CallResultRow)
    row.depends = depends
    if definite is not None:
        row.definite_inputs = definite
    return row


def possible_dependencies(nodes: Sequence[RawNode], results: Iterable[int]) -> set[int]:
    """Return the ids that ``results`` may depend on; each result of a call has its own inputs."""
    reached, calls = set(results), dict[int, set[int]]()
    for row, id, inputs, _, _ in reversed(nodes):
        if id in calls:
            reached.update(i for k in calls[id] if (i := inputs[k]) is not None)
        elif id not in reached:
            continue
        elif isinstance(row, CallResultRow) and row.depends is not None:
            calls.setdefault(int(inputs[0] or 0), set()).update(row.depends)
        else:
            reached.update(i for i in inputs if i is not None)
    return reached


def record_call(
    recording: Recording,
    name: str,
    inputs: Sequence[Variable],
    results: Sequence[Any],
    vjp: Rule,
    jvp: Rule,
    kept: Sequence[Any] = (),
    selects: bool = False,
    has_poles: bool = False,
    definite: Sequence[Sequence[int]] | None = None,
    depends: Sequence[Sequence[int]] | None = None,
) -> list[Variable]:
    """Append the nodes of a call, and return its results as Variables.

    Args:
        recording: The recording to append to.
        name: For messages and reports.
        inputs: The differentiable inputs of the call: no constants.
        results: Arrays of floating numbers.
        vjp: From cotangents of results to those of the inputs; not conjugated, as in the sweep.
        jvp: From tangents of inputs to those of the results.
        kept: Arrays that the rules need besides those of the inputs; see ``split_saved``.
        selects: Whether the call selects elements; see ``selects`` of ``od.op``.
        has_poles: Whether slopes inside of it may be infinite.
        definite: For each result, the positions of the inputs that every run reaches from it; None
            if each run reaches all.
        depends: For each result, the positions of the inputs that it may depend on; None for all.
    """
    ids = tuple([recording.operand_id(value, name) for value in inputs])
    autocast = autocast_now()
    if autocast is not None:  # rules may run the function again, which then gives the same dtypes
        vjp, jvp = [AutocastBlock(autocast.mode, autocast.cast)(rule) for rule in (vjp, jvp)]
    row = _call_row(name, len(ids), len(kept), vjp, jvp, selects, has_poles)
    call = recording.new_id()
    saved = (*[stored_array(value) for value in inputs], None, *kept)
    specs = (*[value._spec for value in inputs], _CALL_SPEC)
    recording.add_node((row, call, ids, saved, specs), None)
    made = []
    for j, data in enumerate(results):
        id, spec = recording.new_id(), spec_of(data)
        own = None if definite is None else frozenset([ids[k] for k in definite[j]])
        result = _result_row(name, j, selects, own, None if depends is None else depends[j])
        recording.add_node((result, id, (call,), (), (_CALL_SPEC, spec)), data)
        made.append(make_value(Variable, data, recording, id, spec))
    return made


def split_saved(kept: tuple[Any, ...], count: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split the saved values: the inputs, which are Variables in a recorded sweep, and the rest."""
    return kept[:count], kept[count + 1 :]


def recording_for(who: str, values: Sequence[Any]) -> Recording | None:
    """Return the recording that an op on ``values`` would be recorded on; None if none records."""
    tape = next((v for v in values if isinstance(v, GradientTape)), None)
    found: Any = find_recording(who, values, recordings_of(values), tape)
    if found is None or isinstance(found, Mark) or not store().records_on(found):
        return None
    recording: Recording = found
    return recording


def stored_array(value: Variable) -> Any:
    """Return the array of a Variable; in a trace, the Symbol that represents it."""
    return store().operand(value)
