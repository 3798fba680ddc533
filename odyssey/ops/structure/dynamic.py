"""Dynamic slices: slices of a static size at start indices that are operands, as in JAX.

A graph is traced once for all start indices. A negative start index counts from the end; one for
which the slice would exceed the array is clamped. ``update_rows`` clamps nothing: it refuses rows
that do not fit, or wraps them around.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from odyssey.checks import check_flag, check_int, format_value
from odyssey.devices.half_dtypes import can_cast
from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, maximum, minimum, mul, subtract
from odyssey.ops.elementwise.choice import greater_equal, less, less_equal, where
from odyssey.ops.elementwise.rounding import mod
from odyssey.ops.structure.batching import example_specs, flatten_examples, spread
from odyssey.ops.structure.gathering import check_indices, take, take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.placing import check_castable, put_along_axis
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.ops.structure.scatter import zeros_of_spec
from odyssey.ops.structure.shape import astype, broadcast_to, reshape
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS


def _sizes_option(slice_sizes: Any) -> tuple[Shape]:
    try:
        sizes = tuple(operator.index(n) for n in slice_sizes)
    except TypeError:
        raise DTypeError(
            f"dynamic_slice: slice_sizes is {format_value(slice_sizes)}; pass ints, one for each "
            "axis"
        ) from None
    return (sizes,)


def _check_starts(who: str, starts: Any, ndim: int) -> None:
    check_indices(who, starts)
    if getattr(starts, "shape", ()) != (ndim,):
        raise ShapeError(
            f"{who}: start_indices has shape {getattr(starts, 'shape', ())}; x has {ndim} axes, "
            "and each needs one"
        )


def _check_sizes(who: str, sizes: Shape, shape: Shape) -> None:
    fits = len(sizes) == len(shape)
    if not fits or not all(0 <= size <= n for size, n in zip(sizes, shape, strict=True)):
        raise ShapeError(f"{who}: a slice of {sizes} does not fit into x {shape}")


def _slice_spec(x: Spec, start_indices: Spec, slice_sizes: Shape) -> Spec:
    _check_starts("dynamic_slice", start_indices, x.ndim)
    _check_sizes("dynamic_slice", slice_sizes, x.shape)
    return Spec(slice_sizes, x.dtype)


def _update_spec(x: Spec, update: Any, start_indices: Spec) -> Spec:
    _check_starts("dynamic_update_slice", start_indices, x.ndim)
    _check_sizes("dynamic_update_slice", getattr(update, "shape", ()), x.shape)
    return x


def _clamped_window(shape: Shape, starts: Any, sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return the key of the slice that is read or written, clamped to the array."""
    parts = []
    for n, start, size in zip(shape, starts.tolist(), sizes, strict=True):
        first = min(max(int(start) + n * (start < 0), 0), n - size)
        parts.append(slice(first, first + size))
    return tuple(parts)


def _dynamic_slice(x: Any, start_indices: Any, slice_sizes: Shape) -> Any:
    x, starts = np.asarray(x), np.asarray(start_indices)
    _slice_spec(spec_of(x), spec_of(starts), slice_sizes)
    return x[_clamped_window(x.shape, starts, slice_sizes)].copy()


def _dynamic_update(x: Any, update: Any, start_indices: Any) -> Any:
    x, starts = np.asarray(x), np.asarray(start_indices)
    check_castable("dynamic_update_slice", "update", update, x.dtype)
    _update_spec(spec_of(x), spec_of(np.asarray(update)), spec_of(starts))
    out = np.array(x, order="C")
    out[_clamped_window(x.shape, starts, np.shape(update))] = update
    return out


def _lower_slice_indices(build: Any, shape: Shape, starts: Any, sizes: Shape) -> list[Any]:
    """Lower the indices that a slice reads or writes, along each axis."""
    if starts.dtype == np.uint64:  # uint64 indices may exceed int64
        starts = minimum(starts, max(shape, default=0))
    places = []
    for k, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        start = build.cast(build.slice(starts, k), np.int64)
        first = where(less(start, 0), add(start, n), start)
        first = minimum(maximum(first, 0), n - size)
        places.append(add(build.index(sizes, k), first))
    return places


def _lower_dynamic_slice(build: Any, x: Any, start_indices: Any, slice_sizes: Shape) -> Any:
    if not x.ndim:
        return x
    return build.gather(x, _lower_slice_indices(build, x.shape, start_indices, slice_sizes))


def _lower_dynamic_update(build: Any, x: Any, update: Any, start_indices: Any) -> Any:
    if type(update) not in NUMBERS and not can_cast(update.dtype, x.dtype):
        return NotImplemented
    value = build.cast(update, x.dtype)
    if not x.ndim:
        return value
    places = _lower_slice_indices(build, x.shape, start_indices, value.shape)
    return build.scatter("set", x, value, places)


def _flat_slice_indices(shape: Shape, starts: Any, sizes: Shape) -> Any:
    """Return, for the starts of each example, the flat indices that its slice reads or writes."""
    if starts.dtype == np.uint64:
        starts = minimum(starts, max(shape, default=0))
    starts = astype(starts, np.intp)
    flat: Any = np.zeros((1, *(1,) * len(shape)), np.intp)
    for k, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        start = getitem(starts, (slice(None), k))
        first = where(less(start, 0), add(start, n), start)
        first = minimum(maximum(first, 0), n - size)
        first = reshape(first, (*first.shape, *(1,) * len(shape)))
        steps = np.arange(size).reshape((-1,) + (1,) * (len(shape) - 1 - k))
        flat = add(mul(flat, n), add(first, steps))
    return reshape(flat, (flat.shape[0], prod(sizes)))


def _with_start_of_batch(starts: Any) -> Any:
    return concatenate([np.zeros(1, starts.dtype), starts])


def _dynamic_slice_batch(batch: Batch, x: Any, start_indices: Any, slice_sizes: Shape) -> Any:
    spec, own = example_specs(batch, [x, start_indices])
    _slice_spec(spec, own, slice_sizes)
    if not batch.mapped[1]:
        return dynamic_slice(x, _with_start_of_batch(start_indices), (batch.size, *slice_sizes))
    places = broadcast_to(
        _flat_slice_indices(spec.shape, start_indices, slice_sizes), (batch.size, prod(slice_sizes))
    )
    if not batch.mapped[0]:
        return reshape(take(x, places), (batch.size, *slice_sizes))
    out = take_along_axis(flatten_examples(x), places, 1)
    return reshape(out, (batch.size, *slice_sizes))


def _dynamic_update_batch(batch: Batch, x: Any, update: Any, start_indices: Any) -> Any:
    specs = example_specs(batch, [x, update, start_indices])
    _update_spec(*specs)
    check_castable("dynamic_update_slice", "update", update, x.dtype)
    if type(update) in NUMBERS:
        update = np.array(update, x.dtype)
    x = spread(batch, 0, x)
    if not batch.mapped[2]:
        return dynamic_update_slice(
            x, spread(batch, 1, update), _with_start_of_batch(start_indices)
        )
    sizes = update.shape[batch.mapped[1] :]
    places = _flat_slice_indices(specs[0].shape, start_indices, sizes)
    places = broadcast_to(places, (batch.size, prod(sizes)))
    values = flatten_examples(update) if batch.mapped[1] else reshape(update, -1)
    out = put_along_axis(flatten_examples(x), places, values, 1)
    return reshape(out, x.shape)


def _zero_update(update: Spec | None, like: Any) -> Any:
    """Return zeros for an update; a Python number has no spec."""
    return np.zeros(() if update is None else update.shape, like.dtype)


@op(
    primitive="gather",
    lowering=_lower_dynamic_slice,
    rearranges=True,
    kernel=_dynamic_slice,
    prepare=_sizes_option,
    canonical=lambda x, start_indices, slice_sizes: (slice_sizes,),
    infer=_slice_spec,
    vjp={
        "x": lambda g, start_indices, x_spec: dynamic_update_slice(
            zeros_of_spec(x_spec, g), g, start_indices
        )
    },
    jvp={"x": lambda t, start_indices, slice_sizes: dynamic_slice(t, start_indices, slice_sizes)},
    vmap=_dynamic_slice_batch,
    samples=[
        sample((4, 3), np.array([1, 0]), slice_sizes=(2, 2)),
        sample((4, 3), np.array([9, -1], np.int8), slice_sizes=(3, 1)),
        sample((2, 3, 2), np.array([-9, 1, 1]), slice_sizes=(1, 0, 2)),
        sample((), np.array([], int), slice_sizes=()),
    ],
    rejects=[
        reject((4, 3), np.array([0]), slice_sizes=(1, 1), match="x has 2 axes"),
        reject((4, 3), np.array([0, 0]), slice_sizes=(5, 1), match="does not fit into x"),
        reject((4, 3), np.array([0, 0]), slice_sizes=(1,), match="does not fit into x"),
        reject((4,), np.array([0.0]), slice_sizes=(1,), error=DTypeError, match="pass integers"),
        reject((4,), np.array([0]), slice_sizes=1, error=DTypeError, match="one for each axis"),
    ],
)
def dynamic_slice(x: Any, start_indices: Any, /, slice_sizes: Any) -> Any:
    """Slice of static sizes at ``start_indices``, clamped to the array.

    >>> dynamic_slice(np.arange(5), np.array([3]), (3,))
    array([2, 3, 4])
    """
    return _dynamic_slice(x, start_indices, slice_sizes)


@op(
    primitive="scatter",
    lowering=_lower_dynamic_update,
    rearranges=True,
    kernel=_dynamic_update,
    infer=_update_spec,
    vjp={
        "x": lambda g, start_indices, update_spec: dynamic_update_slice(
            g, _zero_update(update_spec, g), start_indices
        ),
        "update": lambda g, start_indices, update_spec: dynamic_slice(
            g, start_indices, update_spec.shape
        ),
    },
    jvp={
        "x": lambda t, start_indices, update_spec: dynamic_update_slice(
            t, _zero_update(update_spec, t), start_indices
        ),
        "update": lambda t, start_indices, x_spec: dynamic_update_slice(
            zeros_of_spec(x_spec, t), t, start_indices
        ),
    },
    vmap=_dynamic_update_batch,
    samples=[
        sample((4, 3), (2, 2), np.array([1, 0])),
        sample((4, 3), (3, 1), np.array([9, -1], np.int8)),
        sample((2, 3, 2), (1, 0, 2), np.array([-9, 1, 1])),
        sample((), (), np.array([], int)),
    ],
    rejects=[
        reject((4, 3), (1, 1), np.array([0]), match="x has 2 axes"),
        reject((4, 3), (5, 1), np.array([0, 0]), match="does not fit into x"),
        reject((4, 3), (3,), np.array([0, 0]), match="does not fit into x"),
        reject(np.arange(3), (1,), np.array([0]), error=DTypeError, match="without loss"),
    ],
)
def dynamic_update_slice(x: Any, update: Any, start_indices: Any, /) -> Any:
    """Copy of ``x`` with the slice at ``start_indices`` replaced by ``update``.

    >>> dynamic_update_slice(np.zeros(4, int), np.array([7, 8]), np.array([9]))
    array([0, 0, 7, 8])
    """
    return _dynamic_update(x, update, start_indices)


# ------------------------------------------------------------------ rows


def _rows_options(axis: Any, wrap: Any) -> tuple[int, bool]:
    return check_int("update_rows", "axis", axis), check_flag("update_rows", "wrap", wrap)


def _rows_spec(buffer: Spec, rows: Any, start: Any, axis: int, wrap: bool) -> Spec:
    (k,) = normalize_axes("update_rows", axis, buffer.ndim)
    check_indices("update_rows", start)
    if getattr(start, "shape", ()) != ():
        raise ShapeError(
            f"update_rows: start has shape {start.shape}; pass one integer, the position of the "
            "first row"
        )
    shape, others = getattr(rows, "shape", ()), list(buffer.shape)
    if len(shape) == buffer.ndim:
        others[k] = shape[k]
    if shape != tuple(others):
        raise ShapeError(
            f"update_rows: rows {shape} for buffer {buffer.shape}, axis={axis}; their shapes may "
            "differ along that axis alone"
        )
    if shape[k] > buffer.shape[k]:
        raise OutOfRangeError(
            f"update_rows: {shape[k]} rows came for a buffer of {buffer.shape[k]}; pass fewer at "
            "once, or a larger buffer"
        )
    return buffer


def _update_rows(buffer: Any, rows: Any, start: Any, axis: int, wrap: bool) -> Any:
    buffer, start = np.asarray(buffer), np.asarray(start)
    check_castable("update_rows", "rows", rows, buffer.dtype)
    _rows_spec(spec_of(buffer), spec_of(np.asarray(rows)), spec_of(start), axis, wrap)
    axis %= buffer.ndim
    count, capacity, first = np.shape(rows)[axis], buffer.shape[axis], int(start)
    if wrap:
        first %= capacity or 1
    elif not 0 <= first <= capacity - count:
        raise OutOfRangeError(
            f"update_rows: {count} rows from position {first} on do not fit into a buffer of "
            f"{capacity}; pass a start from 0 to {capacity - count}, or wrap=True"
        )
    out = np.array(buffer, order="C")
    ahead = (slice(None),) * axis
    inside = min(count, capacity - first)
    out[(*ahead, slice(first, first + inside))] = rows[(*ahead, slice(inside))]
    if inside < count:
        out[(*ahead, slice(count - inside))] = rows[(*ahead, slice(inside, None))]
    return out


def _row_positions(capacity: int, count: int, start: Any, wrap: bool) -> Any:
    """Return the positions of ``count`` rows along the axis of the buffer."""
    start = astype(mod(start, capacity or 1), np.intp) if wrap else astype(start, np.intp)
    places = add(start, np.arange(count))
    return mod(places, capacity or 1) if wrap else places


def _rows_fit(buffer: Any, rows: Any, start: Any, axis: int, wrap: bool) -> list[Any]:
    if wrap:
        return []
    last = buffer.shape[axis] - rows.shape[axis]
    return [greater_equal(start, 0), less_equal(start, last)]


def _lower_update_rows(
    build: Any, buffer: Any, rows: Any, start: Any, axis: int, wrap: bool
) -> Any:
    if not can_cast(rows.dtype, buffer.dtype):
        return NotImplemented
    rows, axis = build.cast(rows, buffer.dtype), axis % buffer.ndim
    capacity, count = buffer.shape[axis], rows.shape[axis]
    if wrap:
        first = build.cast(mod(start, capacity or 1), np.int64)
    else:
        first = minimum(maximum(build.cast(start, np.int64), 0), capacity - count)
    places = [build.index(rows.shape, k) for k in range(buffer.ndim)]
    place = add(places[axis], first)
    if wrap:  # one subtraction, since both terms are below the capacity
        place = where(less(place, capacity), place, subtract(place, capacity))
    places[axis] = place
    return build.scatter("set", buffer, rows, places)


def _taken_rows(g: Any, rows: Spec, start: Any, axis: int, wrap: bool) -> Any:
    """Return the rows of ``g`` at the positions that ``update_rows`` writes."""
    places = _row_positions(g.shape[axis], rows.shape[axis], start, wrap)
    return take(g, places, axis)


def _update_rows_batch(
    batch: Batch, buffer: Any, rows: Any, start: Any, axis: int, wrap: bool
) -> Any:
    specs = example_specs(batch, [buffer, rows, start])
    _rows_spec(specs[0], specs[1], specs[2], axis, wrap)
    check_castable("update_rows", "rows", rows, buffer.dtype)
    axis = axis % specs[0].ndim - specs[0].ndim
    buffer, rows = spread(batch, 0, buffer), spread(batch, 1, rows)
    if not batch.mapped[2]:
        return update_rows(buffer, rows, start, axis=axis, wrap=wrap)
    capacity, count = specs[0].shape[axis], specs[1].shape[axis]
    for holds in _rows_fit(buffer, rows, start, axis, wrap):
        message = f"update_rows: rows do not fit into a buffer of {capacity}"
        start = demanded(start, holds, message, OutOfRangeError)
    places = _row_positions(capacity, count, reshape(start, (batch.size, 1)), wrap)
    shape = [batch.size, *(1,) * specs[0].ndim]
    shape[axis] = count
    return put_along_axis(buffer, reshape(places, tuple(shape)), rows, axis)


@op(
    primitive="scatter",
    lowering=_lower_update_rows,
    requires=_rows_fit,
    rearranges=True,
    kernel=_update_rows,
    prepare=_rows_options,
    canonical=lambda buffer, rows, start, axis, wrap: (one_axis(axis, buffer.ndim), wrap),
    infer=_rows_spec,
    vjp={
        "buffer": lambda g, start, rows_spec, axis, wrap: update_rows(
            g, zeros_of_spec(rows_spec, g), start, axis=axis, wrap=wrap
        ),
        "rows": lambda g, start, rows_spec, axis, wrap: _taken_rows(
            g, rows_spec, start, axis, wrap
        ),
    },
    jvp={
        "buffer": lambda t, start, rows_spec, axis, wrap: update_rows(
            t, zeros_of_spec(rows_spec, t), start, axis=axis, wrap=wrap
        ),
        "rows": lambda t, start, buffer_spec, axis, wrap: update_rows(
            zeros_of_spec(buffer_spec, t), t, start, axis=axis, wrap=wrap
        ),
    },
    vmap=_update_rows_batch,
    samples=[
        sample((4, 3), (2, 3), np.array(1)),
        sample((2, 4, 3), (2, 3, 3), np.array(3, np.uint8), wrap=True),
        sample((4, 3), (4, 2), np.array(-5), axis=1, wrap=True),
        sample((3,), (3,), np.array(0), axis=0),
        sample((2, 0, 3), (2, 0, 3), np.array(0)),
    ],
    rejects=[
        reject(
            *((4, 3), (2, 3), np.array(3)),
            error=OutOfRangeError,
            match="2 rows from position 3 on do not fit into a buffer of 4",
        ),
        reject((4, 3), (2, 3), np.array(-1), error=OutOfRangeError, match="a start from 0 to 2"),
        reject((4, 3), (5, 3), np.array(0), wrap=True, error=OutOfRangeError, match="pass fewer"),
        reject((4, 3), (2, 2), np.array(0), match="along that axis alone"),
        reject((4, 3), (3,), np.array(0), match="along that axis alone"),
        reject((4, 3), (2, 3), np.array([0]), match="pass one integer"),
        reject((4, 3), (2, 3), np.array(0.0), error=DTypeError, match="pass integers"),
        reject((4, 3), (2, 3), np.array(0), axis=2, match="does not fit"),
        reject(np.arange(3), (1,), np.array(0), axis=0, error=DTypeError, match="without loss"),
    ],
)
def update_rows(
    buffer: Any, rows: Any, start: Any, /, *, axis: int = -2, wrap: bool = False
) -> Any:
    """Copy of ``buffer`` with ``rows`` written from position ``start`` on along ``axis``.

    Inside a compiled function that assigns the result to the Variable that was ``buffer``, only the
    rows are written.

    Args:
        buffer: An array (..., capacity, dim).
        rows: The rows (..., n, dim), of the buffer's shape but for ``axis``, and of a dtype that
            casts to the buffer's without loss.
        start: The position of the first row, an integer or an integer array without axes.
        axis: The axis of the rows.
        wrap: Whether positions are taken modulo the capacity, as in a ring. Otherwise rows that do
            not fit are refused; ``dynamic_update_slice`` would move them.

    Raises:
        OutOfRangeError: ``start`` is negative, or ``start`` + n is above the capacity.

    >>> update_rows(np.zeros((4, 1), int), np.array([[7], [8]]), 3, wrap=True).tolist()
    [[8], [0], [0], [7]]
    """
    return _update_rows(buffer, rows, start, axis, wrap)


publish(globals())
