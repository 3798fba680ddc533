"""Op dispatch: run on arrays, record on Variables, trace on Symbols.

``general`` handles every call; ``fast_calls`` has fast paths for the commonest ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import STUMBLES, describe_type, hides_frame
from odyssey.devices.arrays import (
    ARRAYS,
    DEVICE_TYPES,
    NATIVE,
    ForeignContainerError,
    as_array,
    takes_precedence,
)
from odyssey.devices.ownership import is_shared, note_foreign, read_only_view
from odyssey.errors import DTypeError, TapeError
from odyssey.spec import INEXACT, Spec, spec_of
from odyssey.table.multi_output import MultiOutputSpec
from odyssey.table.protocols import Recording
from odyssey.table.scope import (
    TRANSPARENT,
    autocast_now,
    find_recording,
    passed_tape,
    recordings_of,
    scopes,
)
from odyssey.table.signature import format_call
from odyssey.table.store import MEMORY, store
from odyssey.table.value import (
    CONSTANT,
    NUMBERS,
    PLAIN,
    UNTRACKED,
    Info,
    Mark,
    Traced,
    Value,
    free_id,
    is_tracked,
    make_value,
)

if TYPE_CHECKING:
    from odyssey.table.row import Row

new: Any = object.__new__

__all__ = [
    "check_tape",
    "general",
    "general_caller",
    "general_operator",
    "record_call",
    "run",
    "run_with_residual",
]


# Types of operands in memory: arrays, numbers, and None for an absent operand.
_MEMORY_TYPES = PLAIN | {type(None)}

# ------------------------------------------------------------------ dispatch


def general(
    row: Row,
    operands: Sequence[Any],
    options: tuple[Any, ...],
    tape: Any = None,
    gives_way: bool = False,
) -> Any:
    """Call ``row``: find the recording, run or trace on plain values, and record a node.

    With ``gives_way`` it raises ForeignContainerError for an operand with arithmetic of its own,
    see ``general_operator``.
    """
    __tracebackhide__ = hides_frame
    kind, here = None, store()
    if here is not MEMORY:
        operands = here.localize(operands)
    values = []
    for k, operand in enumerate(operands):
        if isinstance(operand, Value):
            kind = kind or type(operand)
            values.append(operand._array if here is MEMORY else here.operand(operand))
        elif type(operand) in NUMBERS or (type(operand) in PLAIN and operand.dtype in NATIVE):
            values.append(operand)
        else:
            values.append(_convert_operand(row, k, operand, gives_way))
    if DEVICE_TYPES:
        from odyssey.table.device_rows import place_numbers

        values = place_numbers(row, operands, values)
    if kind is None:
        return run(row, values, options)
    if type(scopes()[0]) in TRANSPARENT:
        tape = passed_tape() if tape is None else tape
        autocast = autocast_now()
        if autocast is not None and autocast.cast is not None:
            cast = autocast.cast(row, operands, tape)
            if cast is not operands:
                return general(row, cast, options, tape, gives_way)
    recording = find_recording(row.name, operands, recordings_of(operands), tape)
    if recording is None or isinstance(recording, Mark):
        data = run(row, values, options)
        return _make_unrecorded(row, kind, operands, data, paused=recording is not None)
    if here is not MEMORY and not here.records_on(recording):
        if tape is not None:
            raise TapeError(
                f"{row.name}: tape= is a tape from outside of vmap, which records no single "
                "examples; enter it around the call of vmap"
            )
        return _make_unrecorded(row, kind, operands, run(row, values, options), paused=False)
    inputs: list[int | None] = []
    specs: list[Spec | None] = []
    for k, operand in enumerate(operands):
        if isinstance(operand, Value):
            inputs.append(recording.operand_id(operand, row.name))
            specs.append(operand._spec)
        else:
            inputs.append(None)
            specs.append(spec_or_none(values[k]))
    if here is MEMORY:
        # Again: another thread may have assigned a leaf before its version was noted.
        values = [
            o._array if isinstance(o, Value) else v for o, v in zip(operands, values, strict=True)
        ]
    if recording.checks is None:
        pair = run_with_residual(row, values, options)
        data, residual = pair or (run(row, values, options), None)
    else:
        data, residual = recording.checks.run_kernel(run, row, values, options), None
    id = recording.new_id()  # after the run: functions of users may record as well
    if row.pack_results is not None:
        return record_multi_output_call(
            row, kind, recording, id, inputs, specs, values, options, data, residual
        )
    return record_call(row, kind, recording, id, inputs, specs, values, options, data, residual)


def general_caller(row: Row, general: Any = general) -> Any:
    """Return the callable of an op without a fast path."""

    def call(*args: Any, tape: Any = None, **named: Any) -> Any:
        __tracebackhide__ = hides_frame
        operands, options = row.bind_arguments(args, named)
        if tape is not None:
            check_tape(row.name, row.reference, tape)
        return general(row, operands, options, tape)

    return call


def general_operator(
    row: Row, operands: Sequence[Any], options: tuple[Any, ...], tape: Any = None
) -> Any:
    """Call ``row`` as an operator: NotImplemented for containers that take precedence."""
    __tracebackhide__ = hides_frame
    try:
        return general(row, operands, options, tape, gives_way=True)
    except ForeignContainerError:
        return NotImplemented


def record_call(
    row: Row,
    kind: type[Value],
    recording: Recording,
    id: int,
    inputs: Sequence[int | None],
    specs: Sequence[Spec | None],
    values: Sequence[Any],
    options: tuple[Any, ...],
    data: Any,
    residual: Any = None,
) -> Value:
    """Wrap a result, and append a node if it is differentiable and depends on ``inputs``.

    Args:
        row: The op.
        kind: The class of the result.
        recording: The recording of the node.
        id: The id of the result.
        inputs: Ids of the operands, None for those that need no gradient.
        specs: Specs of the operands, None for numbers.
        values: Arrays and numbers of the operands.
        options: The options of the op, in order.
        data: The array of the result.
        residual: The residual of ``with_residual``, or None.
    """
    if data.dtype not in INEXACT or inputs.count(None) == len(inputs):
        return make_value(kind, data, CONSTANT, free_id())
    spec = spec_of(data)
    kept = row.save_values(recording, inputs, (*values, data), options, residual)
    fits = row.keeps_dtype and all(
        i is None or s is spec for i, s in zip(inputs, specs, strict=True)
    )
    node = (row, id, tuple(inputs), kept, None if fits else (*specs, spec))
    if row.foreign or row.nondifferentiable or recording.checks is not None:
        recording.add_node(node, data, values)
    else:
        recording.append(node)
    value = new(kind)  # make_value, inlined
    value._array = data
    value._spec = spec
    value._recording = recording
    value._id = id
    value._info = None
    return value


def record_multi_output_call(
    row: Row,
    kind: type[Value],
    recording: Any,
    id: int,
    inputs: Sequence[int | None],
    specs: Sequence[Spec | None],
    values: Sequence[Any],
    options: tuple[Any, ...],
    data: Any,
    residual: Any = None,
) -> Any:
    """Record a call with several results: a node with this id for the call, one for each result."""
    assert row.pack_results is not None
    floating = [part.dtype in INEXACT for part in data]
    if not any(floating) or inputs.count(None) == len(inputs):
        return row.pack_results([make_value(kind, part, CONSTANT, free_id()) for part in data])
    kept = row.save_values(recording, inputs, (*values, *data), options, residual)
    wire = MultiOutputSpec(tuple([spec_of(part) for part in data]))
    recording.add_node((row, id, tuple(inputs), kept, (*specs, wire)), None)
    made = []
    for part, result, follows in zip(row.result_rows, data, floating, strict=True):
        if follows:
            own, spec = recording.new_id(), spec_of(result)
            recording.add_node((part, own, (id,), (), (wire, spec)), result)
            made.append(make_value(kind, result, recording, own, spec))
        else:
            made.append(make_value(kind, result, CONSTANT, free_id()))
    return row.pack_results(made)


def run_with_residual(
    row: Row, values: Sequence[Any], options: tuple[Any, ...]
) -> tuple[Any, Any] | None:
    """Return the result and the residual of ``row.with_residual``, or None without one."""
    if row.with_residual is None:
        return None
    in_memory = _MEMORY_TYPES.issuperset(map(type, values))
    if not in_memory and not _leaves_residual_on_device(row, values, options):
        return None
    try:
        return row.with_residual(*values, *options)
    except STUMBLES as error:
        raise row.kernel_error(error, values, options) from error


def _leaves_residual_on_device(row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> bool:
    """Return whether operands are on a device, where a kernel in use leaves a residual of them."""
    if not row.device_kernels or not set(map(type, values)) - _MEMORY_TYPES <= DEVICE_TYPES:
        return False
    from odyssey.table.device_rows import overriding_kernel

    kernel = overriding_kernel(row, (*values, *options))
    return kernel is not None and kernel.with_residual is not None


def spec_or_none(value: Any) -> Spec | None:
    """Return the spec of an array; None for Python numbers."""
    return spec_of(value) if hasattr(value, "dtype") else None


def run(row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
    """Execute ``row`` on arrays and numbers, or append it to the graph of its Symbols."""
    __tracebackhide__ = hides_frame
    only_numbers = True
    for value in values:
        if type(value) not in NUMBERS:
            only_numbers = False
            if isinstance(value, Traced):
                return value.graph.emit(row, values, options)
    try:
        if not only_numbers:
            left = type(values[0]) is complex and type(values[-1]) not in DEVICE_TYPES
            if left and row.ufunc is not None:
                return row.ufunc(*values)  # Python's operator would return a Python number
            return row.kernel(*values, *options)
        given = values if row.elementwise else [np.asarray(value) for value in values]
        if row.pack_results is not None:
            return row.kernel(*given, *options)
        out = np.asarray(row.reference(*given, *options))
        # A result of Python numbers stays a Python number, weakly typed in NumPy's promotion.
        return out if out.ndim else out.item()
    except STUMBLES as error:
        numbers = not row.foreign and any(type(value) in NUMBERS for value in values)
        if not (isinstance(error, AttributeError) and numbers):
            raise row.kernel_error(error, values, options) from error
    # A number came, the kernel needs an array. Not in the except clause, for one traceback.
    return run(row, [np.asarray(v) if type(v) in NUMBERS else v for v in values], options)


def _convert_operand(row: Row, k: int, operand: Any, gives_way: bool) -> Any:
    """Convert an operand that is not a Variable to an array; Symbols and None pass through."""
    if isinstance(operand, Traced):
        return operand
    if operand is None and row.arrays[k] in row.optional:
        return None
    if gives_way and takes_precedence(operand):
        raise ForeignContainerError(row.name)
    if type(operand) in (list, tuple) and store() is not MEMORY:
        operand = store().nest_operand(operand)
        if isinstance(operand, Traced):
            return operand
    found = as_array(row.name, row.arrays[k], operand)
    if found is operand and type(found) in ARRAYS:  # NumPy's arrays did not come here
        note_foreign(found)
    return found


def check_tape(who: str, function: Callable[..., Any], tape: Any) -> None:
    """Raise DTypeError if ``tape`` is not a tape, such as NumPy's third operand, ``out``.

    Args:
        who: The op, for the message.
        function: A function with its signature.
        tape: The tape that was passed.
    """
    if not hasattr(tape, "enabled"):
        import inspect

        raise DTypeError(
            f"{who}: tape is not a GradientTape but {describe_type(tape)}; the signature "
            f"is {format_call(who, inspect.signature(function))}, and tape= by name"
        )


def _make_unrecorded(
    row: Row, kind: type[Value], operands: Sequence[Any], data: Any, paused: bool
) -> Any:
    """Wrap a result that no tape recorded: a constant, or untracked if an operand is trainable."""
    if isinstance(data, tuple):  # several results
        assert row.pack_results is not None
        return row.pack_results(
            [_make_unrecorded(row, kind, operands, part, paused) for part in data]
        )
    if is_shared(data, [o._array for o in operands if isinstance(o, Value)]):
        data = read_only_view(data)  # a write to the result would change an operand
    if paused:
        sources = tuple(o._id for o in operands if isinstance(o, Value))
        return make_value(kind, data, CONSTANT, free_id(), info=Info(note=(row.name, sources)))
    tracked = any(map(is_tracked, operands))
    mark = UNTRACKED if tracked and data.dtype in INEXACT else CONSTANT
    return make_value(kind, data, mark, free_id())
