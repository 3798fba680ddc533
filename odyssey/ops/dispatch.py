"""Calling an op: run on arrays, tape on recorded Variables, trace on Symbols.

``general`` is the whole meaning. ``unary`` and ``binary`` are shortcuts to its commonest case,
a recorded call of an elementwise op on a fast recording, and hand everything else to it; a
test runs the table both ways and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.errors import DTypeError, TapeMismatchError
from odyssey.ops.scope import TRACE, Pause, innermost, scopes
from odyssey.ops.values import (
    CONSTANT,
    LEAF,
    NUMBERS,
    PLAIN,
    UNTRACKED,
    Info,
    Mark,
    Symbol,
    Value,
    free_id,
    make_value,
)
from odyssey.spec import Spec, spec_of

if TYPE_CHECKING:
    from odyssey.ops.table import Row

__all__ = ["binary", "general", "unary", "with_options"]


# ------------------------------------------------------------------ the whole meaning of a call


def general(row: Row, operands: Sequence[Any], options: tuple[Any, ...], tape: Any = None) -> Any:
    """Call ``row``: find the tape, run or trace on the plain values, record where one records."""
    operands = [_operand(row, k, operand) for k, operand in enumerate(operands)]
    kind = next((type(o) for o in operands if isinstance(o, Value)), None)
    if kind is None:
        return run(row, operands, options)
    recording = _find(row, operands, tape)
    values = [_data(o) if isinstance(o, Value) else o for o in operands]
    if recording is None or isinstance(recording, Mark):
        data = run(row, values, options)
        return _unrecorded(row, kind, operands, data, paused=recording is not None)
    inputs = tuple(recording.place(o) if isinstance(o, Value) else None for o in operands)
    data = run(row, values, options)
    if inputs.count(None) == len(inputs) or data.dtype.kind not in "fc":
        return make_value(kind, data, CONSTANT, free_id())
    spec = spec_of(data)
    specs = _specs(operands, values, spec)
    id = recording.new_id()
    kept = row.keep(recording, inputs, [*values, data], options)
    if row.elementwise and _all_like(spec, inputs, specs):
        specs = None
    recording.add((row, id, inputs, kept, specs), values, data)
    return make_value(kind, data, recording, id, spec)


def run(row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
    """Execute ``row`` on arrays and numbers, or append it to the graph of its Symbols."""
    for value in values:
        if isinstance(value, Symbol):
            return value.graph.emit(row, values, options)
    try:
        data = row.kernel(*values, *options)
    except (TypeError, ValueError) as error:
        raise row.failure(error, values, options) from error
    # A computation on Python numbers stays one, so that it stays weak in NumPy's promotion.
    return data.item() if all(type(v) in NUMBERS for v in values) and values else data


def _operand(row: Row, k: int, operand: Any) -> Any:
    if type(operand) in PLAIN or isinstance(operand, (Value, Symbol)):
        return operand
    if operand is None and row.arrays[k] in row.optional:
        return None
    try:
        array = np.asarray(operand)
    except ValueError as error:
        raise DTypeError(f"{row.name}: {row.arrays[k]} is no array: {error}") from error
    if array.dtype.kind not in "biufc":
        raise DTypeError(
            f"{row.name}: {row.arrays[k]} is a {type(operand).__name__} of dtype {array.dtype}; "
            "pass numbers, arrays of numbers, or Variables"
        )
    return array


def _data(value: Value) -> Any:
    """The array of a Variable; while a graph is traced, its Symbol."""
    trace = TRACE.get()
    if trace is None or isinstance(value._data, Symbol):
        return value._data
    return trace.lift(value)


def _find(row: Row, operands: Sequence[Any], tape: Any) -> Any:
    """The recording of this call, a Mark when results are to be constants, None when none records."""
    top = innermost()
    if isinstance(top, Pause):
        return top
    homes: list[Any] = []
    for operand in operands:
        home = operand._recording if isinstance(operand, Value) else None
        if home is not None and not isinstance(home, Mark) and home not in homes:
            homes.append(home)
    if tape is not None:
        chosen = tape._recording
        on, paused = tape.enabled, tape.paused
    else:
        if top is not None and homes and not (top.on or top.paused):
            top = None
        chosen = top or (homes[0] if homes else _home_of_leaf(operands))
        if chosen is None:
            return None
        on, paused = chosen.on, chosen.paused
    strangers = [home for home in homes if home is not chosen]
    if strangers and (on or not all(home.dead for home in homes)):
        raise TapeMismatchError(
            f"{row.name}: operands of two recordings, {strangers[0]!r} and {chosen!r}; "
            "carry a value over with detach() or detach_into(tape)"
        )
    if on:
        return chosen
    return chosen.pause if paused else None


def _home_of_leaf(operands: Sequence[Any]) -> Any:
    """The recording of the tape that made a leaf by ``tape.variable``, while that tape lives."""
    for operand in operands:
        if isinstance(operand, Value) and operand._recording is LEAF:
            tape = operand._info.home and operand._info.home()
            if tape is not None:
                return tape._recording
    return None


def _unrecorded(row: Row, kind: Any, operands: Sequence[Any], data: Any, paused: bool) -> Value:
    """A result that no tape knows: a constant, or, where that would lose a gradient, untracked."""
    if paused:
        sources = tuple(o._id for o in operands if isinstance(o, Value))
        return make_value(kind, data, CONSTANT, free_id(), info=Info(note=(row.name, sources)))
    tracked = any(isinstance(o, Value) and o._recording is not CONSTANT for o in operands)
    mark = UNTRACKED if tracked and data.dtype.kind in "fc" else CONSTANT
    return make_value(kind, data, mark, free_id())


def _specs(operands: Sequence[Any], values: Sequence[Any], out: Spec) -> Any:
    specs: list[Spec | None] = []
    for operand, value in zip(operands, values, strict=True):
        if isinstance(operand, Value):
            specs.append(operand._spec)
        else:
            specs.append(spec_of(value) if hasattr(value, "dtype") else None)
    return (*specs, out)


def _all_like(spec: Spec, inputs: Sequence[Any], specs: Any) -> bool:
    return all(i is None or s is spec for i, s in zip(inputs, specs, strict=False))


# ------------------------------------------------------------------ shortcuts

new: Any = object.__new__


def unary(row: Row) -> Callable[..., Any]:
    """Return the callable of an op of one operand without options."""
    closed = row.closed
    keep_x, keep_out = row.arrays[0] in row.needs[0], "out" in row.needs[0]
    nothing = not (keep_x or keep_out)

    def call(x: Any, *, tape: Any = None) -> Any:
        kind = type(x)
        if kind in PLAIN:
            return row.kernel(x) if kind not in NUMBERS else run(row, (x,), ())
        try:
            recording = scopes()[-1] or x._recording
            if recording is not x._recording or tape is not None:
                return general(row, (x,), (), tape)
            id = recording.next_id()
        except (AttributeError, StopIteration):
            return general(row, (x,), (), tape)
        data = x._data
        out = row.kernel(data)
        spec = x._spec if closed else spec_of(out)
        kept = None if nothing else (data if keep_x else None, out if keep_out else None)
        recording.append((row, id, (x._id,), kept, None if closed else (x._spec, spec)))
        value = new(kind)  # make_value, spelled out: its call would be a tenth of the whole
        value._data, value._spec, value._info = out, spec, None
        value._recording, value._id = recording, id
        return value

    return call


def binary(row: Row) -> Callable[..., Any]:
    """Return the callable of an op of two operands without options."""
    closed = row.closed
    # What a node keeps depends on which of its operands have a gradient to compute.
    (xx, xy, xo), (yx, yy, yo) = (
        [name in needs for name in (*row.arrays, "out")] for needs in row.needs
    )
    bx, by, bo = xx or yx, xy or yy, xo or yo
    nothing = not (bx or by or bo)

    def call(x: Any, y: Any, *, tape: Any = None) -> Any:
        kind_x, kind_y = type(x), type(y)
        x_plain, y_plain = kind_x in PLAIN, kind_y in PLAIN
        if x_plain and y_plain:
            if kind_x in NUMBERS and kind_y in NUMBERS:
                return run(row, (x, y), ())
            try:
                return row.kernel(x, y)
            except (TypeError, ValueError) as error:
                raise row.failure(error, (x, y), ()) from error
        try:
            recording = scopes()[-1] or (y if x_plain else x)._recording
            id = recording.next_id()
            if tape is not None:
                return general(row, (x, y), (), tape)
            if x_plain:
                a, i = x, None
            else:
                a, i, where = x._data, x._id, x._recording
                if where is not recording and not (where is LEAF and i in recording.leaves):
                    i = recording.place(x)
            if y_plain:
                b, j = y, None
            else:
                b, j, where = y._data, y._id, y._recording
                if where is not recording and not (where is LEAF and j in recording.leaves):
                    j = recording.place(y)
        except (AttributeError, StopIteration):
            return general(row, (x, y), (), tape)
        if i is None and j is None:
            return general(row, (x, y), (), tape)
        try:
            out = row.kernel(a, b)
        except (TypeError, ValueError) as error:
            raise row.failure(error, (a, b), ()) from error

        if not closed:
            spec = spec_of(out)
        elif x_plain:
            spec = y._spec if kind_x is float or kind_x is int else spec_of(out)
        elif y_plain:
            spec = x._spec if kind_y is float or kind_y is int else spec_of(out)
        else:
            spec = x._spec if x._spec is y._spec else spec_of(out)
        if closed and (i is None or x._spec is spec) and (j is None or y._spec is spec):
            specs = None
        else:
            specs = (None if x_plain else x._spec, None if y_plain else y._spec, spec)

        if nothing:
            kept = None
        elif j is None:
            kept = (a if xx else None, recording.hold(b) if xy else None, out if xo else None)
        elif i is None:
            kept = (recording.hold(a) if yx else None, b if yy else None, out if yo else None)
        else:
            kept = (a if bx else None, b if by else None, out if bo else None)
        recording.append((row, id, (i, j), kept, specs))
        value = new(kind_y if x_plain else kind_x)
        value._data, value._spec, value._info = out, spec, None
        value._recording, value._id = recording, id
        return value

    return call


def with_options(row: Row) -> Callable[..., Any]:
    """Return the callable of an op with options, or with more operands than two."""

    def call(*args: Any, tape: Any = None, **named: Any) -> Any:
        operands, options = row.bind(args, named)
        for operand in operands:
            if type(operand) not in PLAIN:
                return general(row, operands, options, tape)
        return run(row, operands, options)

    return call
