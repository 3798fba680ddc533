"""Dynamic slices: slices of a static size at start indices that are operands, as in JAX.

A graph is traced once for all start indices. A negative start index counts from the end; one for
which the slice would exceed the array is clamped.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import can_cast
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, maximum, minimum, mul
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.structure.batching import example_specs, flatten_examples, spread
from odyssey.ops.structure.gathering import check_indices, take, take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.placing import check_castable, put_along_axis
from odyssey.ops.structure.scatter import zeros_of_spec
from odyssey.ops.structure.shape import astype, broadcast_to, reshape
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
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


publish(globals())
