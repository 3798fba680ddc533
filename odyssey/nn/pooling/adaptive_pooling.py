"""Adaptive average and max pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.pooling.average_pooling import MEAN_DTYPE, avg_pool1d, avg_pool2d, avg_pool3d
from odyssey.nn.pooling.max_pooling import least_value
from odyssey.nn.pooling.window_plan import spatial_shape
from odyssey.nn.resampling.axis_resampling import sampled
from odyssey.nn.shared import as_operand
from odyssey.nn.sliding_windows import int_per_axis
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.ops.elementwise.choice import where
from odyssey.ops.reductions.reduce import argmax, max
from odyssey.ops.structure.gathering import take, take_along_axis
from odyssey.ops.structure.shape import astype, reshape, shape_of, transpose
from odyssey.spec import Array, Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_AVERAGE_POOLS = (avg_pool1d, avg_pool2d, avg_pool3d)


def _spatial_sizes(who: str, x: Any, size: Any, dims: int) -> tuple[Shape, Shape]:
    """Return the lengths of the spatial axes, and those of the result; None keeps a length."""
    given = spatial_shape(who, shape_of(x), dims)
    if 0 in given:
        raise ShapeError(f"{who}: x has shape {shape_of(x)}; a window needs an element")
    if isinstance(size, (tuple, list)) and len(size) == dims:
        size = [n if m is None else m for m, n in zip(size, given, strict=True)]
    return given, int_per_axis(who, "size", size, dims)


def _adaptive_windows(length: int, count: int) -> tuple[Array, Array]:
    """Return the indices that each of ``count`` windows reads, and which are within the window.

    From ``floor(i n / m)`` to ``ceil((i + 1) n / m)``, as in PyTorch.
    """
    place = np.arange(count)
    starts, ends = place * length // count, -((place + 1) * -length // count)
    reads = starts[:, None] + np.arange((ends - starts).max())
    return np.minimum(reads, length - 1), reads < ends[:, None]


def _adaptive_average(who: str, x: Any, size: Any, dims: int) -> Any:
    x = as_operand(who, "x", x)
    given, wanted = _spatial_sizes(who, x, size, dims)
    if all(n % m == 0 for n, m in zip(given, wanted, strict=True)):
        window = tuple([n // m for n, m in zip(given, wanted, strict=True)])
        return _AVERAGE_POOLS[dims - 1](x, window=window)
    if x.dtype.kind in "biu":
        x = astype(x, MEAN_DTYPE(np.dtype(x.dtype)))
    for k, (n, m) in enumerate(zip(given, wanted, strict=True)):
        if n != m:
            x = sampled(x, k - dims, (n, m), "area", 1.0)
    return x


def _adaptive_max(who: str, x: Any, size: Any, return_indices: bool, dims: int) -> Any:
    x = as_operand(who, "x", x)
    if x.dtype.kind == "c":
        raise DTypeError(f"{who}: x is of {x.dtype}; complex numbers have no order")
    given, wanted = _spatial_sizes(who, x, size, dims)
    numbers = np.arange(math.prod(given)).reshape(given)
    exists = np.ones(given, bool)
    for k, (n, m) in enumerate(zip(given, wanted, strict=True)):
        reads, known = _adaptive_windows(n, m)
        x = take(x, reads, k - dims)
        numbers, exists = (np.take(v, reads, k - dims) for v in (numbers, exists))
        exists &= known.reshape(*known.shape, *(1,) * (exists.ndim - 2 * k - 2))
    head = len(shape_of(x)) - 2 * dims
    order = (*range(head), *range(head, head + 2 * dims, 2), *range(head + 1, head + 2 * dims, 2))
    rows = (*wanted, numbers.size // math.prod(wanted))
    x = transpose(x, order)
    x = reshape(x, (*shape_of(x)[:head], *rows))
    turned = [k - head for k in order[head:]]
    numbers, exists = (v.transpose(turned).reshape(rows) for v in (numbers, exists))
    x = where(exists, x, least_value(x.dtype))
    out = max(x, -1)
    if not return_indices:
        return out
    places = argmax(x, -1, keepdims=True)
    every = np.broadcast_to(numbers, shape_of(x))
    return out, reshape(take_along_axis(every, places, -1), shape_of(out))


# By the number of spatial axes: the shape of operands, and two sizes.
_CASES: dict[int, tuple[Shape, Any, Any]] = {
    1: ((2, 7), 3, 7),
    2: ((2, 5, 6), (3, 2), (None, 4)),
    3: ((1, 4, 3, 2), 2, (4, 1, 3)),
}


def _adaptive_cases(n: int, spread: bool) -> dict[str, Any]:
    """Return the samples and rejects of adaptive pooling over ``n`` spatial axes."""
    shape, *sizes = _CASES[n]
    return {
        "samples": [
            *[sample(shape, size=size, spread=spread) for size in (*sizes, 1)],
            sample((0, *shape[1:]), size=1),
        ],
        "rejects": [
            reject(shape, size=(1,) * (n + 1), match="spatial axes"),
            reject((2, *(0,) * n), size=1, match="needs an element"),
            reject((), size=1, match="wanted is"),
            reject(shape, size=0, error=SettingError, match="at least 1"),
        ],
    }


def _declare_adaptive_average(n: int, example: str) -> Any:
    """Declare adaptive average pooling over ``n`` spatial axes."""
    who = f"adaptive_avg_pool{n}d"

    @composite(**_adaptive_cases(n, spread=False))
    @with_spatial_terms(who, n, example)
    def adaptive_avg_pool_nd(x: Any, *, size: Any) -> Any:
        """Adaptive average pooling over the last {axes}: the mean of each of ``size`` windows.

        Window i of m covers elements ``floor(i n / m)`` to ``ceil((i + 1) n / m)`` of an axis of n,
        as in PyTorch; windows may overlap.

        Args:
            x: {Images}, (..., {sizes}).
            size: The number of windows, by axis; one number for all axes; None keeps an axis.

        Returns:
            {Images} of that size.

        Raises:
            ShapeError: If x has no elements, or ``size`` does not fit its axes.
        """
        return _adaptive_average(who, x, size, n)

    return adaptive_avg_pool_nd


adaptive_avg_pool1d = _declare_adaptive_average(
    1,
    example="""
    >>> adaptive_avg_pool1d(np.arange(5.0), size=3)
    array([0.5, 2. , 3.5])
    """,
)
adaptive_avg_pool2d = _declare_adaptive_average(
    2,
    example="""
    >>> adaptive_avg_pool2d(np.arange(6.0).reshape(2, 3), size=(1, 3))
    array([[1.5, 2.5, 3.5]])
    """,
)
adaptive_avg_pool3d = _declare_adaptive_average(
    3,
    example="""
    >>> adaptive_avg_pool3d(np.arange(8.0).reshape(2, 2, 2), size=1)
    array([[[3.5]]])
    """,
)


def _declare_adaptive_max(n: int, example: str) -> Any:
    """Declare adaptive max pooling over ``n`` spatial axes."""
    who = f"adaptive_max_pool{n}d"

    @composite(**_adaptive_cases(n, spread=True))
    @with_spatial_terms(who, n, example)
    def adaptive_max_pool_nd(x: Any, *, size: Any, return_indices: bool = False) -> Any:
        """Adaptive max pooling over the last {axes}: the maximum of each of ``size`` windows.

        Window i of m covers elements ``floor(i n / m)`` to ``ceil((i + 1) n / m)`` of an axis of n,
        as in PyTorch; windows may overlap. Ties share the gradient evenly.

        Args:
            x: {Images}, (..., {sizes}).
            size: The number of windows, by axis; one number for all axes; None keeps an axis.
            return_indices: Return a pair: the result, and the index of the first largest element of
                each window in its {image}, flattened in row-major order.

        Returns:
            {Images} of that size, or the pair.

        Raises:
            ShapeError: If x has no elements, or ``size`` does not fit its axes.
        """
        return _adaptive_max(who, x, size, return_indices, n)

    return adaptive_max_pool_nd


adaptive_max_pool1d = _declare_adaptive_max(
    1,
    example="""
    >>> adaptive_max_pool1d(np.arange(5.0), size=3)
    array([1., 3., 4.])
    """,
)
adaptive_max_pool2d = _declare_adaptive_max(
    2,
    example="""
    >>> adaptive_max_pool2d(np.arange(6.0).reshape(2, 3), size=(1, 3))
    array([[3., 4., 5.]])
    """,
)
adaptive_max_pool3d = _declare_adaptive_max(
    3,
    example="""
    >>> adaptive_max_pool3d(np.arange(8.0).reshape(2, 2, 2), size=1)
    array([[[7.]]])
    """,
)


publish(globals())
