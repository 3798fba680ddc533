"""Slices of a fixed size whose places are operands, as JAX has them: moved until they fit.

A graph is traced once for all places. A place counts from the end where it is negative, and one at
which the slice would end outside of the array is the last at which it does not.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, maximum, minimum
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.structure.gathering import check_indices
from odyssey.ops.structure.placing import check_kind
from odyssey.ops.structure.scatter import zeros
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import NUMBERS


def _sizes(slice_sizes: Any) -> tuple[Shape]:
    try:
        sizes = tuple(operator.index(n) for n in slice_sizes)
    except TypeError:
        raise DTypeError(
            f"dynamic_slice: slice_sizes is {shown(slice_sizes)}; pass ints, one for each axis"
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


def _window(shape: Shape, starts: Any, sizes: Sequence[int]) -> tuple[slice, ...]:
    """The part of an array of ``shape`` that a slice reads or writes."""
    parts = []
    for n, start, size in zip(shape, starts.tolist(), sizes, strict=True):
        first = min(max(int(start) + n * (start < 0), 0), n - size)
        parts.append(slice(first, first + size))
    return tuple(parts)


def _slice(x: Any, start_indices: Any, slice_sizes: Shape) -> Any:
    x, starts = np.asarray(x), np.asarray(start_indices)
    _slice_spec(spec_of(x), spec_of(starts), slice_sizes)
    return x[_window(x.shape, starts, slice_sizes)].copy()


def _update(x: Any, update: Any, start_indices: Any) -> Any:
    x, starts = np.asarray(x), np.asarray(start_indices)
    check_kind("dynamic_update_slice", "update", update, x.dtype)
    _update_spec(spec_of(x), spec_of(np.asarray(update)), spec_of(starts))
    out = np.array(x, order="C")
    out[_window(x.shape, starts, np.shape(update))] = update
    return out


def _places_natively(build: Any, shape: Shape, starts: Any, sizes: Shape) -> list[Any]:
    """The places that a slice reads or writes, along each axis."""
    if starts.dtype == np.uint64:  # of which int64 lacks some
        starts = minimum(starts, max(shape, default=0))
    places = []
    for k, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        start = build.cast(build.part(starts, k), np.int64)
        first = where(less(start, 0), add(start, n), start)
        first = minimum(maximum(first, 0), n - size)
        places.append(add(build.index(sizes, k), first))
    return places


def _slice_natively(build: Any, x: Any, start_indices: Any, slice_sizes: Shape) -> Any:
    if not x.ndim:
        return x
    return build.gather(x, _places_natively(build, x.shape, start_indices, slice_sizes))


def _update_natively(build: Any, x: Any, update: Any, start_indices: Any) -> Any:
    if type(update) not in NUMBERS and not np.can_cast(update.dtype, x.dtype, "same_kind"):
        return NotImplemented
    value = build.cast(update, x.dtype)
    if not x.ndim:
        return value
    places = _places_natively(build, x.shape, start_indices, value.shape)
    return build.scatter("set", x, value, places)


def _no_update(update: Spec | None, like: Any) -> Any:
    """Zeros in the place of an update; one that was a number has no spec."""
    return np.zeros(() if update is None else update.shape, like.dtype)


@op(
    primitive="gather",
    lowering=_slice_natively,
    rearranges=True,
    kernel=_slice,
    prepare=_sizes,
    canonical=lambda x, start_indices, slice_sizes: (slice_sizes,),
    infer=_slice_spec,
    vjp={
        "x": lambda g, start_indices, x_spec: dynamic_update_slice(
            zeros(x_spec, g), g, start_indices
        )
    },
    jvp={"x": lambda t, start_indices, slice_sizes: dynamic_slice(t, start_indices, slice_sizes)},
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
    """The slice of given sizes that begins at ``start_indices``, moved so that it fits.

    >>> dynamic_slice(np.arange(5), np.array([3]), (3,))
    array([2, 3, 4])
    """
    return _slice(x, start_indices, slice_sizes)


@op(
    primitive="scatter",
    lowering=_update_natively,
    rearranges=True,
    kernel=_update,
    infer=_update_spec,
    vjp={
        "x": lambda g, start_indices, update_spec: dynamic_update_slice(
            g, _no_update(update_spec, g), start_indices
        ),
        "update": lambda g, start_indices, update_spec: dynamic_slice(
            g, start_indices, update_spec.shape
        ),
    },
    jvp={
        "x": lambda t, start_indices, update_spec: dynamic_update_slice(
            t, _no_update(update_spec, t), start_indices
        ),
        "update": lambda t, start_indices, x_spec: dynamic_update_slice(
            zeros(x_spec, t), t, start_indices
        ),
    },
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
        reject(np.arange(3), (1,), np.array([0]), error=DTypeError, match="would lose"),
    ],
)
def dynamic_update_slice(x: Any, update: Any, start_indices: Any, /) -> Any:
    """A copy of ``x`` with ``update`` where ``dynamic_slice`` reads, as JAX has it.

    >>> dynamic_update_slice(np.zeros(4, int), np.array([7, 8]), np.array([9]))
    array([0, 0, 7, 8])
    """
    return _update(x, update, start_indices)


publish(globals())
