"""Fast paths of op calls: the commonest cases of ``call.general``.

A fast path applies if the innermost scope is a recording whose ``block`` has ids, or if there is no
scope and the first Variable is on such a recording; and if operands are on it, leaves, or plain.
Any other call goes to ``general``, also if a mark stands in place of a recording, since marks have
no ids. A test runs the table both ways and compares.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable
from typing import Any

from odyssey.checks import STUMBLES, hides_frame
from odyssey.devices.arrays import NATIVE, HostNumberError
from odyssey.errors import DTypeError
from odyssey.spec import INEXACT, spec_of
from odyssey.table.call import check_tape, general, record_call, run, run_with_residual
from odyssey.table.numpy_signatures import call_with_numpy_signature
from odyssey.table.row import IMMUTABLE_TYPES, Row
from odyssey.table.scope import innermost_scope, scopes
from odyssey.table.value import CONSTANT, LEAF, NUMBERS, PLAIN, Value, free_id, make_value

__all__ = ["binary", "set_variable_class", "unary", "with_options"]

new: Any = object.__new__

VARIABLE: Any = Value

# The result of a fast path that has to be left for the general one.
_AGAIN: Any = object()

# A Python complex on the left would compute by Python's operator and return a Python number.
_LEFT_TYPES = PLAIN - {complex}


def set_variable_class(kind: type[Value]) -> None:
    """Set the class of Values for fast paths; other classes take the general path."""
    global VARIABLE
    VARIABLE = kind


def _is_foreign_context() -> bool:
    """Return whether the scopes belong to another thread whose context was copied; drop them then.

    A check at each op would cost 30 ns, so it is done when a recording first meets a leaf.
    """
    thread = scopes()[-1]  # None of no scopes
    if thread is None or thread == get_ident():
        return False
    innermost_scope()
    return True


def unary(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
    """Return the callable of an op of one operand without options."""
    closed = row.keeps_dtype
    keep_x, keep_out = row.arrays[0] in row.needs[0], "out" in row.needs[0]
    nothing = not (keep_x or keep_out)
    kernel = row.kernel  # an attribute of the row would cost 10 to 20 ns a call

    def hold(other: Any) -> None:
        nonlocal kernel
        kernel = other

    row.kernel_listeners.append(hold)

    def call(x: Any, tape: Any = None) -> Any:
        __tracebackhide__ = hides_frame
        if tape is not None:
            check_tape(row.name, row.reference, tape)
            return general(row, (x,), (), tape)
        if type(x) is not VARIABLE:
            return plainly(x)
        recording = x._recording
        scope = scopes()[0]
        if scope is not recording and scope is not None:
            if recording is not LEAF:
                return general(row, (x,), ())
            recording = scope
            scope = x
        id = next(recording.block, None)
        if id is None:
            return general(row, (x,), ())
        if scope is x and x._placed is not recording.mark:  # a leaf
            if _is_foreign_context():
                return general(row, (x,), ())
            recording.operand_id(x, row.name)
        data = x._array
        try:
            out = kernel(data)
        except STUMBLES as error:
            raise row.kernel_error(error, (data,), ()) from error
        spec = x._spec if closed else spec_of(out)
        kept = None if nothing else (data if keep_x else None, out if keep_out else None)
        append = recording.append
        append((row, id, (x._id,), kept, None if closed else (x._spec, spec)))
        value = new(VARIABLE)  # make_value, inlined: its call would take a tenth of the time
        value._array = out
        value._spec = spec
        value._recording = recording
        value._id = id
        value._info = None
        return value

    def plainly(x: Any) -> Any:
        __tracebackhide__ = hides_frame
        if type(x) not in PLAIN:
            return general(row, (x,), ())
        if type(x) in NUMBERS:
            return run(row, (x,), ())
        if x.dtype not in NATIVE:
            return general(row, (x,), ())
        try:
            return kernel(x)
        except STUMBLES as error:
            raise row.kernel_error(error, (x,), ()) from error

    return call


def binary(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
    """Return the callable of an op of two operands without options."""
    closed = row.keeps_dtype
    # A node saves values for the rules of its tracked operands only.
    (xx, xy, xo), (yx, yy, yo) = (
        [name in needs for name in (*row.arrays, "out")] for needs in row.needs
    )
    bx, by, bo = xx or yx, xy or yy, xo or yo
    nothing = not (bx or by or bo)
    kernel = row.kernel  # an attribute of the row would cost 10 to 20 ns a call

    on_arrays = _array_kernel(row, kernel)

    def hold(other: Any) -> None:
        nonlocal kernel, on_arrays
        kernel = other
        on_arrays = _array_kernel(row, other)

    row.kernel_listeners.append(hold)

    # ``tape`` is keyword-only to readers and type checkers; as such it would cost 25 ns a call.
    def call(x: Any, y: Any, tape: Any = None) -> Any:
        # One assignment a line: unpacking would cost a twentieth of the call.
        __tracebackhide__ = hides_frame
        kind_y = type(y)
        if tape is not None:
            check_tape(row.name, row.reference, tape)
            return general(row, (x, y), (), tape)
        if type(x) is VARIABLE:
            recording = scopes()[0]
            where = x._recording
            if recording is None:
                recording = where
            id = next(recording.block, None)
            if id is None:
                return general(row, (x, y), ())
            a = x._array
            i = x._id
            spec = x._spec
            if where is not recording and (where is not LEAF or x._placed is not recording.mark):
                if where is LEAF and _is_foreign_context():
                    return general(row, (x, y), ())
                i = recording.operand_id(x, row.name)
                a = x._array  # again: another thread may have assigned the leaf
                if i is None and kind_y is not VARIABLE:
                    return general(row, (x, y), ())
        elif type(x) in _LEFT_TYPES and kind_y is VARIABLE:
            recording = scopes()[0]
            if recording is None:
                recording = y._recording
            id = next(recording.block, None)
            if id is None:
                return general(row, (x, y), ())
            a = x
            i = spec = None
        else:
            return plainly(x, y)
        if kind_y is VARIABLE:
            b = y._array
            j = y._id
            spec_y = y._spec
            where = y._recording
            if where is not recording and (where is not LEAF or y._placed is not recording.mark):
                if where is LEAF and _is_foreign_context():
                    return general(row, (x, y), ())
                j = recording.operand_id(y, row.name)
                b = y._array
                if i is None and j is None:
                    return general(row, (x, y), ())
        elif kind_y in PLAIN:
            b = y
            j = spec_y = None
        else:
            return general(row, (x, y), ())
        try:
            out = (on_arrays if spec_y is not None and spec_y.shape else kernel)(a, b)
            # Both operands have the spec of the result, or one is a weakly typed number.
            if closed and (spec is spec_y or kind_y is float or kind_y is int):
                specs = None
            else:
                specs = spec, spec_y, spec_of(out)
                spec = specs[2]
                if closed and (i is None or specs[0] is spec) and (j is None or specs[1] is spec):
                    specs = None
        except STUMBLES as error:
            raise row.kernel_error(error, (a, b), ()) from error
        except HostNumberError:
            out = _AGAIN
        if out is _AGAIN:
            return general(row, (x, y), ())

        if nothing:
            kept = None
        elif j is None:
            kept = (
                a if xx else None,
                recording.keep_array(b) if xy else None,
                out if xo else None,
            )
        elif i is None:
            kept = (
                recording.keep_array(a) if yx else None,
                b if yy else None,
                out if yo else None,
            )
        else:
            kept = (a if bx else None, b if by else None, out if bo else None)
        append = recording.append  # as a method call it would take twice as long to look up
        append((row, id, (i, j), kept, specs))
        value = new(VARIABLE)
        value._array = out
        value._spec = spec
        value._recording = recording
        value._id = id
        value._info = None
        return value

    def plainly(x: Any, y: Any) -> Any:
        __tracebackhide__ = hides_frame
        if type(x) not in PLAIN or type(y) not in PLAIN:
            return general(row, (x, y), ())
        alone = type(x) in NUMBERS
        if alone and type(y) in NUMBERS:
            return run(row, (x, y), ())
        if not ((alone or x.dtype in NATIVE) and (type(y) in NUMBERS or y.dtype in NATIVE)):
            return general(row, (x, y), ())
        try:
            return kernel(x, y)
        except STUMBLES as error:
            raise row.kernel_error(error, (x, y), ()) from error
        except HostNumberError:
            pass
        return general(row, (x, y), ())

    return call


def _array_kernel(row: Row, kernel: Any) -> Any:
    """Return the ufunc in place of a kernel that is a Python operator, else the kernel.

    For operands with axes: Python's operators are faster for scalars only.
    """
    behind = getattr(kernel, "__module__", "") == "_operator" and row.ufunc
    return behind or kernel


def _unary_with_options(row: Row, general: Callable[..., Any]) -> Callable[..., Any]:
    """Return the fast path of ``with_options`` for one Variable and options that are bound."""
    keep_x, keep_out = row.arrays[0] in row.needs[0], "out" in row.needs[0]

    def call(x: Any, options: tuple[Any, ...]) -> Any:
        __tracebackhide__ = hides_frame
        recording = x._recording
        scope = scopes()[0]
        if scope is not recording and scope is not None:
            if recording is not LEAF:
                return general(row, (x,), options)
            recording = scope
            scope = x
        id = next(recording.block, None)
        if id is None:
            return general(row, (x,), options)
        if scope is x and x._placed is not recording.mark:  # a leaf
            if _is_foreign_context():
                return general(row, (x,), options)
            recording.operand_id(x, row.name)
        data = x._array
        try:
            pair = row.with_residual and row.with_residual(data, *options)
            out, residual = pair or (row.kernel(data, *options), None)
        except STUMBLES as error:
            raise row.kernel_error(error, (data,), options) from error
        if out.dtype not in INEXACT:
            return make_value(VARIABLE, out, CONSTANT, free_id())
        spec = spec_of(out)
        if row.takes_index or IMMUTABLE_TYPES.issuperset(map(type, options)):
            kept = (data if keep_x else None, out if keep_out else None, *options)
            kept = kept if residual is None else (*kept, residual)
        else:
            kept = row.save_values(recording, (id,), (data, out), options, residual)
        fits = row.keeps_dtype and x._spec is spec
        recording.append((row, id, (x._id,), kept, None if fits else (x._spec, spec)))
        value = new(VARIABLE)  # make_value, inlined
        value._array = out
        value._spec = spec
        value._recording = recording
        value._id = id
        value._info = None
        return value

    return call


def with_options(row: Row, general: Callable[..., Any] = general) -> Callable[..., Any]:
    """Return the callable of an op that is neither ``unary`` nor ``binary``."""
    count, total = len(row.arrays), len(row.arrays) + len(row.options)
    if row.prepare is not None or row.positional < len(row.options):
        total = -1  # options always go through bind_arguments
    flags = row.flags
    absent = [name in row.optional for name in row.arrays]
    # Options of a call without any: the defaults, or these as ``prepare`` returned them once.
    default_options = None if row.prepare or row.required else row.defaults
    of_one = _unary_with_options(row, general) if count == 1 and not row.nondifferentiable else None

    def call(*args: Any, tape: Any = None, **named: Any) -> Any:
        nonlocal default_options
        __tracebackhide__ = hides_frame
        if default_options is not None and len(args) == count and not named:
            operands, options = args, default_options
        elif len(args) == total and not named:
            operands, options = args[:count], args[count:]
            for k in flags:
                if options[k] is not True and options[k] is not False:
                    options = row.check_flags(options)
        else:
            try:
                operands, options = row.bind_arguments(args, named)
            except DTypeError:
                found = NotImplemented
                if not row.layout.variadic:
                    more = {} if tape is None else {"tape": tape}
                    found = call_with_numpy_signature(
                        row.name, call, row.reference, args, named | more
                    )
                if found is NotImplemented:
                    raise
                return found
            if len(args) == count and not named and IMMUTABLE_TYPES.issuperset(map(type, options)):
                default_options = options
        if tape is not None:
            check_tape(row.name, row.reference, tape)
            return general(row, operands, options, tape)
        if of_one is not None and type(operands[0]) is VARIABLE:
            return of_one(operands[0], options)
        recording = scopes()[0]
        values, inputs, specs, fresh = [], [], [], []
        for operand in operands:
            if type(operand) is VARIABLE:
                where = operand._recording
                if recording is None:
                    recording = where
                if where is not recording and (
                    where is not LEAF or operand._placed is not recording.mark
                ):
                    if where is not LEAF:
                        return general(row, operands, options)
                    fresh.append(operand)
                values.append(operand._array)
                inputs.append(operand._id)
                specs.append(operand._spec)
            elif type(operand) in NUMBERS or (operand is None and absent[len(values)]):
                values.append(operand)
                inputs.append(None)
                specs.append(None)
            elif type(operand) in PLAIN and operand.dtype in NATIVE:
                values.append(operand)
                inputs.append(None)
                specs.append(spec_of(operand))
            else:
                return general(row, operands, options)
        if inputs.count(None) == len(inputs):
            try:
                return run(row, operands, options)
            except HostNumberError:
                pass
            return general(row, operands, options)
        id = next(recording.block, None)
        if id is None:
            return general(row, operands, options)
        if fresh:  # leaves that are new to this recording
            if _is_foreign_context():
                return general(row, operands, options)
            for leaf in fresh:
                recording.operand_id(leaf, row.name)
            # Read again: another thread may have assigned a leaf before its version was noted.
            values = [
                x._array if type(x) is VARIABLE else value
                for x, value in zip(operands, values, strict=True)
            ]
        try:
            pair = run_with_residual(row, values, options) if row.with_residual else None
            data, residual = pair or (run(row, values, options), None)
        except HostNumberError:
            data = _AGAIN
        if data is _AGAIN:
            return general(row, operands, options)
        return record_call(
            row, VARIABLE, recording, id, inputs, specs, values, options, data, residual
        )

    def of_two(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = hides_frame
        if len(args) == 2 and not named:
            x, y = args
            # No Variable, as in rules beside a number: takes half the time.
            if (
                type(x) in PLAIN
                and type(y) in PLAIN
                and (type(x) in NUMBERS or x.dtype in NATIVE)
                and (type(y) in NUMBERS or y.dtype in NATIVE)
            ):
                try:
                    return run(row, args, ())
                except HostNumberError:
                    pass
                return general(row, args, ())
        return call(*args, **named)

    return of_two if count == 2 and not row.options else call
