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
    from odyssey.ops.row import Row

__all__ = ["binary", "general", "results_are", "unary", "with_options"]


# ------------------------------------------------------------------ the whole meaning of a call


def general(row: Row, operands: Sequence[Any], options: tuple[Any, ...], tape: Any = None) -> Any:
    """Call ``row``: find the tape, run or trace on the plain values, record where one records."""
    kind, tracing = None, TRACE.get() is not None
    values, homes = [], []
    for k, operand in enumerate(operands):
        if isinstance(operand, Value):
            kind = type(operand)
            values.append(_symbol(operand) if tracing else operand._data)
            home = operand._recording
            if type(home) is not Mark and home not in homes:
                homes.append(home)
        else:
            values.append(operand if type(operand) in PLAIN else _converted(row, k, operand))
    if kind is None:
        if tape is not None:
            _check_tape(row, tape)
        return run(row, values, options)
    recording = _find(row, operands, homes, tape)
    if recording is None or isinstance(recording, Mark):
        data = run(row, values, options)
        return _unrecorded(row, kind, operands, data, paused=recording is not None)
    inputs = tuple(
        [recording.place(o, row.name) if isinstance(o, Value) else None for o in operands]
    )
    data = run(row, values, options)
    if data.dtype.kind not in "fc" or all(i is None for i in inputs):
        return make_value(kind, data, CONSTANT, free_id())
    spec = spec_of(data)
    specs = _specs(operands, values, spec)
    id = recording.new_id()
    kept = row.keep(recording, inputs, (*values, data), options)
    if row.closed and all(i is None or s is spec for i, s in zip(inputs, specs, strict=False)):
        specs = None
    recording.add((row, id, inputs, kept, specs), values, data)
    return make_value(kind, data, recording, id, spec)


def run(row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
    """Execute ``row`` on arrays and numbers, or append it to the graph of its Symbols."""
    only_numbers = True
    for value in values:
        if type(value) not in NUMBERS:
            only_numbers = False
            if isinstance(value, Symbol):
                return value.graph.emit(row, values, options)
    try:
        if not only_numbers:
            return row.kernel(*values, *options)
        given = values if row.elementwise else [np.asarray(value) for value in values]
        out = np.asarray(row.reference(*given, *options))
        # A computation on Python numbers stays one, so that it stays weak in NumPy's promotion.
        return out if out.ndim else out.item()
    except (TypeError, ValueError, IndexError) as error:
        raise row.failure(error, values, options) from error
    except AttributeError:
        if row.foreign or not any(type(value) in NUMBERS for value in values):
            raise
        # A number where the kernel needs an array.
        given = [np.asarray(v) if type(v) in NUMBERS else v for v in values]
        return run(row, given, options)


def _converted(row: Row, k: int, operand: Any) -> Any:
    """An operand that is no Variable, array or number: a Symbol, None, or something array-like."""
    if isinstance(operand, Symbol):
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


def _symbol(value: Value) -> Any:
    """What a Variable is in the graph that is traced now."""
    return value._data if isinstance(value._data, Symbol) else TRACE.get().lift(value)


def _find(row: Row, operands: Sequence[Any], homes: list[Any], tape: Any) -> Any:
    """The recording of this call, a Mark when results are to be constants, None when none records.

    ``homes`` are the recordings that operands live on.
    """
    top = innermost()
    if isinstance(top, Pause):
        if top.refuse is not None:
            for operand in operands:
                top.refuse(row.name, operand)
        return top
    if tape is not None:
        _check_tape(row, tape)
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
    if chosen.guests is None and strangers and (on or not all(home.dead for home in homes)):
        raise TapeMismatchError(
            f"{row.name}: operands of two recordings, {strangers[0]!r} and {chosen!r}; "
            "carry a value over with detach() or detach_into(tape)"
        )
    if on:
        return chosen
    return chosen.pause if paused else None


def _check_tape(row: Row, tape: Any) -> None:
    if not hasattr(tape, "enabled"):
        import inspect

        raise DTypeError(
            f"{row.name}: tape is no GradientTape but of type {type(tape).__name__}; the signature "
            f"is {row.name}{inspect.signature(row.reference)}, and tape= by name"
        )


def _home_of_leaf(operands: Sequence[Any]) -> Any:
    """The recording of the tape that made a leaf by ``tape.variable``, while that tape lives."""
    for operand in operands:
        if isinstance(operand, Value) and operand._recording is LEAF:
            tape = operand._info.home and operand._info.home()
            if tape is not None:
                return tape._recording
    return None


def _unrecorded(
    row: Row, kind: type[Value], operands: Sequence[Any], data: Any, paused: bool
) -> Value:
    """A result that no tape knows: a constant, or, where that would lose a gradient, untracked."""
    if isinstance(data, np.ndarray) and (
        data.base is not None or any(data is o._data for o in operands if isinstance(o, Value))
    ):
        data = data.view()
        data.flags.writeable = False  # else a write to the result would reach an operand
    if paused:
        sources = tuple(o._id for o in operands if isinstance(o, Value))
        return make_value(kind, data, CONSTANT, free_id(), info=Info(note=(row.name, sources)))
    tracked = any(isinstance(o, Value) and o._recording is not CONSTANT for o in operands)
    mark = UNTRACKED if tracked and data.dtype.kind in "fc" else CONSTANT
    return make_value(kind, data, mark, free_id())


def _specs(operands: Sequence[Any], values: Sequence[Any], out: Spec) -> Any:
    """The specs of the operands, None for numbers, and of the result."""
    specs: list[Spec | None] = []
    for operand, value in zip(operands, values, strict=True):
        if isinstance(operand, Value):
            specs.append(operand._spec)
        else:
            specs.append(spec_of(value) if hasattr(value, "dtype") else None)
    return (*specs, out)


# ------------------------------------------------------------------ shortcuts

new: Any = object.__new__

VARIABLE: type = Value


def results_are(kind: type[Value]) -> None:
    """Let the shortcuts take and make Values of this class; the others go the general way."""
    global VARIABLE
    VARIABLE = kind


def unary(row: Row) -> Callable[..., Any]:
    """Return the callable of an op of one operand without options."""
    closed = row.closed
    keep_x, keep_out = row.arrays[0] in row.needs[0], "out" in row.needs[0]
    nothing = not (keep_x or keep_out)
    kernel = row.kernel

    def hold(other: Any) -> None:
        nonlocal kernel
        kernel = other

    row.holders.append(hold)

    def call(x: Any, tape: Any = None) -> Any:
        if tape is not None:
            return general(row, (x,), (), tape)
        if type(x) is not VARIABLE:
            return plainly(x)
        recording = x._recording
        scope = scopes()[0]
        if scope is not recording and scope is not None:
            return general(row, (x,), ())
        try:
            id = next(recording.block)
        except StopIteration:
            return general(row, (x,), ())
        data = x._data
        try:
            out = kernel(data)
        except (TypeError, ValueError) as error:
            raise row.failure(error, (data,), ()) from error
        spec = x._spec if closed else spec_of(out)
        kept = None if nothing else (data if keep_x else None, out if keep_out else None)
        append = recording.append
        append((row, id, (x._id,), kept, None if closed else (x._spec, spec)))
        value = new(VARIABLE)  # make_value, spelled out: its call would be a tenth of the whole
        value._data = out
        value._spec = spec
        value._recording = recording
        value._id = id
        value._info = None
        return value

    def plainly(x: Any) -> Any:
        if type(x) not in PLAIN:
            return general(row, (x,), ())
        if type(x) in NUMBERS:
            return run(row, (x,), ())
        try:
            return kernel(x)
        except (TypeError, ValueError) as error:
            raise row.failure(error, (x,), ()) from error

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
    kernel = row.kernel

    def hold(other: Any) -> None:
        nonlocal kernel
        kernel = other

    row.holders.append(hold)

    # ``tape`` is keyword-only to readers and type checkers; as such it would cost 25 ns a call.
    def call(x: Any, y: Any, tape: Any = None) -> Any:
        # One assignment a line: unpacking would cost a twentieth of the call.
        kind_y = type(y)
        if tape is not None:
            return general(row, (x, y), (), tape)
        try:
            if type(x) is VARIABLE:
                recording = scopes()[0]
                where = x._recording
                if recording is None:
                    recording = where
                id = next(recording.block)
                a = x._data
                i = x._id
                spec = x._spec
                if where is not recording and (where is not LEAF or x._placed is not recording):
                    i = recording.place(x, row.name)
                    if i is None and kind_y is not VARIABLE:
                        return general(row, (x, y), ())
            elif type(x) in PLAIN and kind_y is VARIABLE:
                recording = scopes()[0]
                if recording is None:
                    recording = y._recording
                id = next(recording.block)
                a = x
                i = spec = None
            else:
                return plainly(x, y)
            if kind_y is VARIABLE:
                b = y._data
                j = y._id
                spec_y = y._spec
                where = y._recording
                if where is not recording and (where is not LEAF or y._placed is not recording):
                    j = recording.place(y, row.name)
                    if i is None and j is None:
                        return general(row, (x, y), ())
            elif kind_y in PLAIN:
                b = y
                j = spec_y = None
            else:
                return general(row, (x, y), ())
        except StopIteration:
            return general(row, (x, y), ())
        try:
            out = kernel(a, b)
        except (TypeError, ValueError) as error:
            raise row.failure(error, (a, b), ()) from error

        # Of one spec with the result: both operands, or the one beside a weak Python number.
        if closed and (spec is spec_y or kind_y is float or kind_y is int):
            specs = None
        else:
            specs = spec, spec_y, spec_of(out)
            spec = specs[2]
            if closed and (i is None or specs[0] is spec) and (j is None or specs[1] is spec):
                specs = None
        if nothing:
            kept = None
        elif j is None:
            kept = (a if xx else None, recording.hold(b) if xy else None, out if xo else None)
        elif i is None:
            kept = (recording.hold(a) if yx else None, b if yy else None, out if yo else None)
        else:
            kept = (a if bx else None, b if by else None, out if bo else None)
        append = recording.append  # as a method call it would take twice as long to look up
        append((row, id, (i, j), kept, specs))
        value = new(VARIABLE)
        value._data = out
        value._spec = spec
        value._recording = recording
        value._id = id
        value._info = None
        return value

    def plainly(x: Any, y: Any) -> Any:
        if type(x) not in PLAIN or type(y) not in PLAIN:
            return general(row, (x, y), ())
        if type(x) in NUMBERS and type(y) in NUMBERS:
            return run(row, (x, y), ())
        try:
            return kernel(x, y)
        except (TypeError, ValueError) as error:
            raise row.failure(error, (x, y), ()) from error

    return call


def with_options(row: Row) -> Callable[..., Any]:
    """Return the callable of an op with options, or with more operands than two."""

    def call(*args: Any, tape: Any = None, **named: Any) -> Any:
        operands, options = row.bind(args, named)
        if tape is not None:
            _check_tape(row, tape)
        for operand in operands:
            if type(operand) not in PLAIN:
                return general(row, operands, options, tape)
        return run(row, operands, options)

    return call
