"""Tracing of loop bodies and branches: emitted instructions, outputs, captured values, poles.

A body is a function of a flat list of values. If a tape records, the body runs on an isolated tape,
which tells the values that it depends on besides its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.half_dtypes import is_number_dtype
from odyssey.errors import DTypeError, ShapeError
from odyssey.graph.batch_trace import (
    BatchedArray,
    BatchTrace,
    batches_of,
    data_in_graph,
    new_symbol,
)
from odyssey.graph.graph import Graph
from odyssey.graph.subgraphs import subgraph_signature
from odyssey.graph.weak_types import is_weak
from odyssey.ops.elementwise.arithmetic import multiply
from odyssey.ops.structure.shape import astype
from odyssey.spec import Spec, spec_of
from odyssey.table.store import store
from odyssey.table.value import (
    CONSTANT,
    NUMBERS,
    UNTRACKED,
    Symbol,
    Value,
    free_id,
    is_tracked,
    is_trainable,
    make_value,
    recording_attribute,
)
from odyssey.tape.gradient_mask import any_poles
from odyssey.tape.sweep import definite_dependencies, dependents
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.call_nodes import possible_dependencies, stored_array
from odyssey.transforms.isolated_tapes import covered_nodes, external_sources, isolated_tape
from odyssey.variable import Variable

__all__ = [
    "ARRAY",
    "FIXED",
    "LIVE",
    "LOST",
    "NONE",
    "Batches",
    "Body",
    "Flat",
    "Reach",
    "TracedBody",
    "body_outside",
    "body_signature",
    "concrete_symbol",
    "dtype_of",
    "fill_like",
    "freeze_closure",
    "graph_value",
    "is_number",
    "join_batches",
    "kinds_of",
    "present_arrays",
    "run_body",
    "scalar_condition",
    "spec_or_number",
    "trace_body",
    "trace_until_stable",
    "tracked_positions",
    "wrap_variable",
]

Flat = list[Any]
Body = Callable[[Flat], Flat]

NONE, ARRAY, FIXED, LOST, LIVE = range(5)
"""Kinds of values: None, an array, a constant Variable, an untracked Variable (its gradient is
lost), a Variable that a tape tracks. A carry that has one kind before a step and another after it
gets the later of the two in this order."""

_MARKS = {FIXED: CONSTANT, LOST: UNTRACKED}


def kind_of(value: Any, live: bool) -> int:
    """Return the kind of a value."""
    if value is None:
        return NONE
    if not isinstance(value, Variable):
        return ARRAY
    if live:
        return LIVE
    return FIXED if recording_attribute(value) is CONSTANT else LOST


def kinds_of(recording: Any, values: Flat) -> list[int]:
    """Return the kinds of operands; ``recording`` is the one that tracks them, or None."""
    return [
        kind_of(v, recording is not None and isinstance(v, Variable) and is_tracked(v))
        for v in values
    ]


def is_number(value: Any) -> bool:
    """True for a Python number, and for a scalar input that represents one."""
    return type(value) in NUMBERS or is_weak(value)


def dtype_of(number: Any) -> np.dtype[Any]:
    """Return the dtype that NumPy gives a Python number."""
    if not is_weak(number):
        return np.asarray(number).dtype
    found = np.asarray(type(number).expression_and_number(number)[1]).dtype
    if found.kind not in "if":  # an integer beyond int64
        type(number).fix_value(number, "its dtype")
    return found


def scalar_of(number: Any, dtype: Any) -> Any:
    """Return a Python number as a 0-d array or Symbol: times one, which is exact."""
    if not is_weak(number):
        return np.asarray(number, dtype)
    # Multiplication of infinity by a complex 1 gives NaN.
    real = np.empty(0, dtype).real.dtype
    found = multiply(number, np.ones((), real))
    return found if real == dtype else astype(found, dtype)


def concrete_symbol(value: Any) -> Any:
    """Return an output of a body; a scalar input becomes a Symbol with a dtype."""
    return scalar_of(value, dtype_of(value)) if is_weak(value) else value


def spec_or_number(value: Any) -> Any:
    """Return the spec of a value or spec; None and Python numbers are returned as they are."""
    if value is None or isinstance(value, Spec) or is_number(value):
        return value
    if isinstance(value, Value):
        return value._spec
    return value.spec if isinstance(value, Symbol) else spec_of(_as_array(value))


def graph_value(value: Any) -> Any:
    """Return what a graph holds of a value: a Symbol or an array."""
    data = stored_array(value) if isinstance(value, Variable) else value
    return data if isinstance(data, Symbol) else _as_array(data)


def _as_array(value: Any) -> Any:
    return value if type(value) in ARRAYS else np.asarray(value)


def wrap_variable(value: Any, kind: int) -> Any:
    """Return an array or Symbol as the Variable that Python code expects for this kind."""
    if kind not in _MARKS or isinstance(value, Variable):
        return value
    return make_value(Variable, value, _MARKS[kind], free_id(), spec_or_number(value))


# ------------------------------------------------------------------ traced bodies


Reach = tuple[set[int], set[int]]
"""Positions of operands, and ids of captured values."""


Batches = tuple[bool, ...]


class TracedBody(NamedTuple):
    """A body that was run on Symbols.

    Attributes:
        symbols: Its operands; None and numbers are kept as they are.
        instructions: The emitted instructions.
        outputs: The values that it returned.
        kinds: The kinds of the outputs.
        sources: The values that it depends on besides the operands, by id.
        selects: Whether it selects elements, so that masks are needed.
        has_poles: Whether its slopes may be infinite.
        batches: For each operand and each output, the batches that it has; see ``batches_of``.
        reached: For each output, what a sweep from it reaches for certain: positions of operands,
            and ids of ``sources``.
        depends: The same for what it may reach.
    """

    symbols: Flat
    instructions: list[Any]
    outputs: Flat
    kinds: list[int]
    sources: dict[int, Any]
    selects: bool
    has_poles: bool
    batches: tuple[list[Batches], list[Batches]]
    reached: Sequence[Reach] = ()
    depends: Sequence[Reach] = ()

    def is_conditional(self) -> bool:
        """Return whether some output reaches a value only where a certain branch runs."""
        return any(
            not (one[0] <= other[0] and one[1] <= other[1])
            for one, other in zip(self.depends, self.reached, strict=True)
        )

    def ops_signature(self) -> tuple[Any, ...]:
        """Return a signature of the computation, to be compared with that of another run."""
        return body_signature(self.instructions, self.symbols, self.outputs)

    def graph(self, more: Sequence[Any] = ()) -> Graph:
        """Return the body as a graph, whose outputs are those that are not None, then ``more``."""
        trace: Any = store()
        given = [s for s in self.symbols if isinstance(s, Symbol)]
        outputs = [graph_value(o) for o in self.outputs if o is not None]
        return trace.subgraph(given, self.instructions, [*outputs, *more])  # type: ignore[no-any-return]


def trace_body(
    body: Body,
    operands: Sequence[Any],
    kinds: Sequence[int],
    recording: Any,
    record: list[Any] | None = None,
    batches: Sequence[Batches] | None = None,
) -> TracedBody:
    """Run a body on Symbols.

    Args:
        body: The body.
        operands: For each, a spec, or a value that has one; None and Python numbers stay.
        kinds: The kinds of the operands.
        recording: The recording that tracks the operands of kind LIVE, or None.
        record: Gets the nodes of the body, and then, by position, its operands of kind LIVE.
        batches: The batches of the operands; those that the values have by default.
    """
    trace: Any = store()
    start = free_id()
    batches = list(map(batches_of, operands)) if batches is None else list(batches)

    def run() -> tuple[Flat, Flat, Any]:
        specs = map(spec_or_number, operands)
        symbols = [
            new_symbol(trace, s, b) if isinstance(s, Spec) else s
            for s, b in zip(specs, batches, strict=True)
        ]
        outputs, given, tape = run_body(body, symbols, kinds, recording)
        if tape is None:
            return symbols, outputs, None
        if record is not None:
            operands_of_tape = {k: v for k, v in enumerate(given) if kinds[k] == LIVE}
            record.extend([list(covered_nodes(tape)), operands_of_tape])
        live = {
            v._id: k for k, (v, kind) in enumerate(zip(given, kinds, strict=True)) if kind == LIVE
        }
        return symbols, outputs, (tape, live)

    instructions, (symbols, outputs, followed) = trace.trace_subgraph(run)
    if followed is None:
        found = [kind_of(o, False) for o in outputs]
        both = batches, list(map(batches_of, outputs))
        return TracedBody(symbols, instructions, outputs, found, {}, False, False, both)
    tape, live = followed
    segment, nodes = recording_of(tape), covered_nodes(tape)
    results = [o for o in outputs if isinstance(o, Variable)]
    known = external_sources(segment, nodes, [o._id for o in results])
    for o in results:  # results that are captured Variables themselves
        if is_tracked(o) and recording_attribute(o) is not segment:
            known.setdefault(o._id, o)
    own = {i for i, v in known.items() if is_trainable(v) and i > start}
    sources = {i: v for i, v in known.items() if i not in own and i not in live}
    reached = dependents(nodes, [*live, *sources])
    lost = dependents(nodes, list(own)) if own else ()
    found = [kind_of(o, isinstance(o, Variable) and o._id in reached) for o in outputs]
    # An inner tape records ops on its constants, but no gradient is lost with them.
    for k, o in enumerate(outputs):
        if found[k] == LOST and recording_attribute(o) is segment and o._id not in lost:
            found[k] = FIXED
    selects = any(node[0].selects for node in nodes)

    def reach(follow: Callable[[list[Any], Sequence[int]], set[int]]) -> list[Reach]:
        ids = [
            follow(nodes, [o._id]) if kind == LIVE else set()
            for o, kind in zip(outputs, found, strict=True)
        ]
        return [({live[i] for i in some & live.keys()}, some & sources.keys()) for some in ids]

    poles = any_poles(nodes)
    reaches = reach(definite_dependencies), reach(possible_dependencies)
    both = batches, list(map(batches_of, outputs))
    return TracedBody(
        symbols, instructions, outputs, found, sources, selects, poles, both, *reaches
    )


def run_body(
    body: Body, values: Flat, kinds: Sequence[int], recording: Any
) -> tuple[Flat, Flat, Any]:
    """Run a body on values of some kinds, on an isolated tape if ``recording`` is not None.

    Returns:
        The outputs, the operands as they were passed, and the tape or None.
    """
    if recording is None:
        given = list(map(wrap_variable, values, kinds))
        return body(given), given, None
    tape = isolated_tape()
    segment = recording_of(tape)
    given = [
        make_value(Variable, value, segment, segment.new_id(), spec_or_number(value))
        if k == LIVE
        else wrap_variable(value, k)
        for value, k in zip(values, kinds, strict=True)
    ]
    with tape:
        outputs = body(given)
    return outputs, given, tape


def body_outside(
    trace: BatchTrace,
    body: Body,
    kinds: Sequence[int],
    recording: Any,
    batches: tuple[Sequence[Batches], Sequence[Batches]],
    with_operands: int = 0,
) -> Body:
    """Return a body as a function of payloads, which runs in the store outside of ``vmap``.

    Args:
        trace: The present store.
        body: The body.
        kinds: The kinds of its operands.
        recording: The recording that tracks them, or None.
        batches: The batches of its operands, and those that its outputs shall have.
        with_operands: The number of first operands that become further outputs.
    """
    inputs, outputs = [[own[:1] == (True,) for own in some] for some in batches]

    def run(values: Flat) -> Flat:
        made, _, _ = run_body(body, values, kinds, recording)
        return [*made, *values[:with_operands]]

    return trace.body_outside(run, inputs, [*outputs, *inputs[:with_operands]])


def body_signature(
    instructions: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the signature of instructions that were emitted in this store."""
    trace: Any = store()
    while type(trace) is BatchTrace:
        trace = trace.outer
    ends = [None if o is None else graph_value(data_in_graph(o)) for o in outputs]
    begins = [i if i is None or is_number(i) else data_in_graph(i) for i in inputs]
    return subgraph_signature(instructions, begins, ends, trace)


def join_batches(*several: Batches) -> Batches:
    """Return the batches that any of some values has."""
    return tuple(map(any, zip(*several, strict=True)))


def trace_until_stable(
    who: str,
    body: Body,
    operands: Flat,
    kinds: Sequence[int],
    count: int,
    recording: Any,
    batches: Sequence[Batches] | None = None,
) -> tuple[TracedBody, Flat, list[int]]:
    """Trace a step until its first ``count`` outputs have the kinds and specs of its operands.

    In ``vmap`` these outputs also have the batches of the operands, or fewer.

    Returns:
        The last trace, and the final operands and kinds; numbers have become arrays.
    """
    operands, kinds = list(operands), list(kinds)
    batches = list(map(batches_of, operands)) if batches is None else list(batches)
    while True:
        traced = trace_body(body, operands, kinds, recording, batches=batches)
        weak = [k for k in range(count) if is_number(operands[k])]
        for k in weak:
            if is_weak(operands[k]):  # the first step computed with a Python number
                type(operands[k]).restrict_to_int64(operands[k])
            operands[k] = scalar_of(operands[k], _scalar_dtype(who, k, traced.outputs[k]))
        _check_carry_specs(who, operands[:count], traced.outputs[:count])
        joined = [*map(max, kinds[:count], traced.kinds[:count]), *kinds[count:]]
        after = map(join_batches, batches[:count], traced.batches[1][:count])
        spread = [*after, *batches[count:]]
        if joined == kinds and spread == batches and not weak:
            return traced, operands, kinds
        kinds, batches = joined, spread


def _scalar_dtype(who: str, k: int, value: Any) -> Any:
    spec = None if value is None else spec_of(graph_value(value))
    if spec is None or spec.shape:
        raise ShapeError(f"{who}: number {k} of the carry becomes {value!r}; it must stay a scalar")
    return spec.dtype


def _check_carry_specs(who: str, before: Flat, after: Flat) -> None:
    """Raise if a step changes the specs of its carry."""
    for k, (one, other) in enumerate(zip(before, after, strict=True)):
        specs: list[Any] = [
            None if v is None else spec_or_number(graph_value(v)) for v in (one, other)
        ]
        if specs[0] == specs[1]:
            continue
        same = None not in specs and specs[0].shape == specs[1].shape
        raise (DTypeError if same else ShapeError)(
            f"{who}: leaf {k} of the carry goes into a step as {specs[0]}, and comes out as "
            f"{specs[1]}; it must keep its shape and dtype"
        )


def tracked_positions(values: Flat, kinds: Sequence[int]) -> list[int]:
    """Return the positions of the values that an outer tape tracks."""
    return [
        k
        for k, (v, kind) in enumerate(zip(values, kinds, strict=True))
        if kind == LIVE and isinstance(v, Variable) and is_tracked(v)
    ]


def present_arrays(values: Flat) -> list[Any]:
    """Return what the graph holds of the values that are not None."""
    return [graph_value(v) for v in values if v is not None]


def fill_like(values: Sequence[Any], like: Sequence[Any]) -> Flat:
    """Distribute values over the positions where ``like`` is not None; None elsewhere."""
    supply = iter(values)
    return [None if one is None else next(supply) for one in like]


def scalar_condition(who: str, what: str, value: Any) -> Any:
    """Return a condition as a bool or Symbol; raise unless it is a scalar truth or number."""
    data = store().operand(value) if isinstance(value, Value) else concrete_symbol(value)
    if type(data) is BatchedArray:
        known = data.graph.known_value(data)
        data = data if known is None else known
    if type(data) in NUMBERS and type(data) is not complex:
        return bool(data)
    if not isinstance(data, (Symbol, *ARRAY_LIKE)):
        raise DTypeError(f"{who}: {what} is {format_value(value)}; it must be a bool or a number")
    if data.shape:
        raise ShapeError(
            f"{who}: {what} has shape {data.shape}; it must be a scalar, as ops.all or ops.any "
            "make one of an array"
        )
    if data.dtype.kind == "c" or not is_number_dtype(data.dtype):
        raise DTypeError(f"{who}: {what} is {data.dtype}; it must be a bool or a number")
    return data if isinstance(data, Symbol) else bool(data)


def freeze_closure(fn: Any, frozen: dict[int, Any] | None = None) -> Any:
    """Return a function with the present contents of its closure, and of its functions' closures.

    Derivatives run it after the enclosing code, for instance a loop over layers, has rebound the
    names.
    """
    if type(fn) is not FunctionType or not fn.__closure__:
        return fn
    frozen = {} if frozen is None else frozen
    if id(fn) in frozen:
        return frozen[id(fn)]
    cells = tuple(CellType() for _ in fn.__closure__)
    copy = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    copy.__kwdefaults__ = fn.__kwdefaults__
    frozen[id(fn)] = copy
    for cell, new in zip(fn.__closure__, cells, strict=True):
        with suppress(ValueError):  # a name that was not bound yet
            new.cell_contents = freeze_closure(cell.cell_contents, frozen)
    return copy
