"""Parts of loops and branches, run on Symbols: what they emit, depend on, and their derivatives.

A part is a function of a flat list of values. Where a tape records it is run on a tape of its own,
which tells what it depends on beside its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import DTypeError, ShapeError
from odyssey.graph.graph import Graph
from odyssey.graph.subgraphs import signature
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
from odyssey.tape.gradient_mask import poles_among
from odyssey.tape.sweep import dependents
from odyssey.tape.tape_base import recording_of
from odyssey.transforms.call_nodes import data_of
from odyssey.transforms.isolated_tapes import nodes_of, sources_of, tape_apart
from odyssey.variable import Variable

__all__ = [
    "ARRAY",
    "FIXED",
    "LIVE",
    "LOST",
    "NONE",
    "Body",
    "Flat",
    "Traced",
    "array_for",
    "dressed",
    "dtype_of",
    "fill_like",
    "freeze_closure",
    "in_graph",
    "is_number",
    "kinds_of",
    "present_arrays",
    "scalar_condition",
    "spec_for",
    "steady",
    "trace_part",
    "tracked_positions",
]

Flat = list[Any]
Body = Callable[[Flat], Flat]

NONE, ARRAY, FIXED, LOST, LIVE = range(5)
"""What a value is to Python: nothing, an array, a Variable that is constant, one whose gradient is
lost, one that a tape follows. A carry that is one of them at first, and another after a step, is
the later of the two."""

_MARKS = {FIXED: CONSTANT, LOST: UNTRACKED}


def kind_of(value: Any, live: bool) -> int:
    """What a value is to Python."""
    if value is None:
        return NONE
    if not isinstance(value, Variable):
        return ARRAY
    if live:
        return LIVE
    return FIXED if recording_attribute(value) is CONSTANT else LOST


def kinds_of(recording: Any, values: Flat) -> list[int]:
    """What operands are, where ``recording`` follows them; None for no recording."""
    return [
        kind_of(v, recording is not None and isinstance(v, Variable) and is_tracked(v))
        for v in values
    ]


def is_number(value: Any) -> bool:
    """Whether this is a Python number, or stands for one that each call knows anew."""
    return type(value) in NUMBERS or is_weak(value)


def dtype_of(number: Any) -> np.dtype[Any]:
    """The dtype that NumPy gives a Python number."""
    if not is_weak(number):
        return np.asarray(number).dtype
    found = np.asarray(type(number).told(number)[1]).dtype
    if found.kind not in "if":  # a whole number beyond int64, as others are not
        type(number).settled(number, "its dtype")
    return found


def scalar_of(number: Any, dtype: Any) -> Any:
    """A Python number as an array without axes, or as a Symbol of one: once it, which is exact."""
    if not is_weak(number):
        return np.asarray(number, dtype)
    # Once what is infinite is none of complex numbers.
    real = np.empty(0, dtype).real.dtype
    found = multiply(number, np.ones((), real))
    return found if real == dtype else astype(found, dtype)


def in_graph(value: Any) -> Any:
    """What a part returns; a Symbol for a number that each call knows anew."""
    return scalar_of(value, dtype_of(value)) if is_weak(value) else value


def spec_for(value: Any) -> Any:
    """Of a value or a spec the spec; of None, and Python's numbers, themselves."""
    if value is None or isinstance(value, Spec) or is_number(value):
        return value
    if isinstance(value, Value):
        return value._spec
    return value.spec if isinstance(value, Symbol) else spec_of(np.asarray(value))


def array_for(value: Any) -> Any:
    """What a graph holds of a value: a Symbol or an array."""
    data = data_of(value) if isinstance(value, Variable) else value
    return data if isinstance(data, Symbol) else np.asarray(data)


def dressed(value: Any, kind: int) -> Any:
    """A value as Python sees it, that is an array or a Symbol to the graph."""
    if kind not in _MARKS or isinstance(value, Variable):
        return value
    return make_value(Variable, value, _MARKS[kind], free_id(), spec_for(value))


# ------------------------------------------------------------------ what a part does


class Traced(NamedTuple):
    """A part that was run on Symbols.

    Attributes:
        symbols: Its operands; None, or a number, where these came.
        instructions: What it emitted.
        outputs: What it returned.
        kinds: What that is.
        sources: What it depends on besides the operands, by id.
        chooses: Whether it leaves elements out by choice.
        poles: Whether its slopes may be infinite.
    """

    symbols: Flat
    instructions: list[Any]
    outputs: Flat
    kinds: list[int]
    sources: dict[int, Any]
    chooses: bool
    poles: bool

    def signature(self) -> tuple[Any, ...]:
        """What it computes, to be compared with that of another run."""
        outputs = [None if o is None else array_for(o) for o in self.outputs]
        return signature(self.instructions, self.symbols, outputs, store())

    def graph(self, more: Sequence[Any] = ()) -> Graph:
        """It as a graph, whose outputs are those that are not None, then ``more``."""
        trace: Any = store()
        given = [s for s in self.symbols if isinstance(s, Symbol)]
        outputs = [array_for(o) for o in self.outputs if o is not None]
        return trace.part(given, self.instructions, [*outputs, *more])  # type: ignore[no-any-return]


def trace_part(body: Body, operands: Sequence[Any], kinds: Sequence[int], recording: Any) -> Traced:
    """Run a part on Symbols.

    Args:
        body: The part.
        operands: For each, a spec, or a value that has one; None and Python's numbers stay.
        kinds: What they are.
        recording: The one that follows those that are LIVE, or None.
    """
    trace: Any = store()
    start = free_id()

    def run() -> tuple[Flat, Flat, Any]:
        specs = map(spec_for, operands)
        symbols = [trace.symbol(s) if isinstance(s, Spec) else s for s in specs]
        if recording is None:
            return symbols, body(list(map(dressed, symbols, kinds))), None
        tape = tape_apart()
        segment = recording_of(tape)
        given = [
            make_value(Variable, s, segment, segment.new_id(), s.spec)
            if k == LIVE
            else dressed(s, k)
            for s, k in zip(symbols, kinds, strict=True)
        ]
        with tape:
            outputs = body(given)
        live = [v._id for v, kind in zip(given, kinds, strict=True) if kind == LIVE]
        return symbols, outputs, (tape, live)

    instructions, (symbols, outputs, followed) = trace.aside(run)
    if followed is None:
        found = [kind_of(o, False) for o in outputs]
        return Traced(symbols, instructions, outputs, found, {}, False, False)
    tape, live = followed
    segment, nodes = recording_of(tape), nodes_of(tape)
    results = [o for o in outputs if isinstance(o, Variable)]
    known = sources_of(segment, nodes, [o._id for o in results])
    for o in results:  # what is given away as it came from outside
        if is_tracked(o) and recording_attribute(o) is not segment:
            known.setdefault(o._id, o)
    own = {i for i, v in known.items() if is_trainable(v) and i > start}
    sources = {i: v for i, v in known.items() if i not in own and i not in live}
    reached = dependents(nodes, [*live, *sources])
    lost = dependents(nodes, list(own)) if own else ()
    found = [kind_of(o, isinstance(o, Variable) and o._id in reached) for o in outputs]
    # What a tape inside has of constants is recorded, and no gradient is lost with it.
    for k, o in enumerate(outputs):
        if found[k] == LOST and recording_attribute(o) is segment and o._id not in lost:
            found[k] = FIXED
    chooses = any(node[0].selects for node in nodes)
    return Traced(symbols, instructions, outputs, found, sources, chooses, poles_among(nodes))


def steady(
    who: str, body: Body, operands: Flat, kinds: Sequence[int], count: int, recording: Any
) -> tuple[Traced, Flat, list[int]]:
    """Run a step until its first ``count`` outputs are what its first operands are.

    Returns:
        The last run, and operands and kinds as they are from then on: numbers are arrays.
    """
    operands, kinds = list(operands), list(kinds)
    while True:
        traced = trace_part(body, operands, kinds, recording)
        weak = [k for k in range(count) if is_number(operands[k])]
        for k in weak:
            if is_weak(operands[k]):  # the first step computed as Python does
                type(operands[k]).bound(operands[k])
            operands[k] = scalar_of(operands[k], _scalar(who, k, traced.outputs[k]))
        _compare(who, operands[:count], traced.outputs[:count])
        joined = [*map(max, kinds[:count], traced.kinds[:count]), *kinds[count:]]
        if joined == kinds and not weak:
            return traced, operands, kinds
        kinds = joined


def _scalar(who: str, k: int, value: Any) -> Any:
    spec = None if value is None else spec_of(array_for(value))
    if spec is None or spec.shape:
        raise ShapeError(f"{who}: number {k} of the carry becomes {value!r}; it must stay a scalar")
    return spec.dtype


def _compare(who: str, before: Flat, after: Flat) -> None:
    """Raise where a step changes the specs of what it carries."""
    for k, (one, other) in enumerate(zip(before, after, strict=True)):
        specs: list[Any] = [None if v is None else spec_for(array_for(v)) for v in (one, other)]
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
    return [array_for(v) for v in values if v is not None]


def fill_like(values: Sequence[Any], like: Sequence[Any]) -> Flat:
    """Distribute values over the positions where ``like`` is not None; None elsewhere."""
    supply = iter(values)
    return [None if one is None else next(supply) for one in like]


def scalar_condition(who: str, what: str, value: Any) -> Any:
    """What a condition says, a bool or a Symbol; raises for what is no scalar truth or number."""
    data = store().operand(value) if isinstance(value, Value) else in_graph(value)
    if type(data) in NUMBERS and type(data) is not complex:
        return bool(data)
    if not isinstance(data, (Symbol, *ARRAY_LIKE)):
        raise DTypeError(f"{who}: {what} is {shown(value)}; it must be a truth or a number")
    if data.shape:
        raise ShapeError(
            f"{who}: {what} has shape {data.shape}; it must be a scalar, as ops.all or ops.any "
            "make one of an array"
        )
    if data.dtype.kind not in "biuf":
        raise DTypeError(f"{who}: {what} is {data.dtype}; it must be a truth or a number")
    return data if isinstance(data, Symbol) else bool(data)


def freeze_closure(fn: Any, known: dict[int, Any] | None = None) -> Any:
    """A function with what it closes over now, whatever its names are bound to later.

    So do the functions that it closes over. Derivatives run it when a loop around the call, for
    instance one over layers, has bound them anew.
    """
    if type(fn) is not FunctionType or not fn.__closure__:
        return fn
    known = {} if known is None else known
    if id(fn) in known:
        return known[id(fn)]
    cells = tuple(CellType() for _ in fn.__closure__)
    made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    made.__kwdefaults__ = fn.__kwdefaults__
    known[id(fn)] = made
    for cell, new in zip(fn.__closure__, cells, strict=True):
        with suppress(ValueError):  # a name that was not bound yet
            new.cell_contents = freeze_closure(cell.cell_contents, known)
    return made
