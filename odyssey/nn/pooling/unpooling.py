"""Max unpooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.nn.pooling.average_pooling import MEAN_DTYPE
from odyssey.nn.pooling.window_plan import spatial_shape, window_options
from odyssey.nn.shared import as_operand
from odyssey.nn.sliding_windows import int_per_axis
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.ops.elementwise.arithmetic import div, maximum
from odyssey.ops.structure.creation import ones_like
from odyssey.ops.structure.gathering import add_along_axis
from odyssey.ops.structure.shape import astype, reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.declare import composite, publish
from odyssey.table.real_operands import real_dtype
from odyssey.table.samples import Sample, reject, sample


def _max_unpool(
    who: str, x: Any, indices: Any, options: tuple[Any, ...], size: Any, dims: int
) -> Any:
    x, indices = as_operand(who, "x", x), as_operand(who, "indices", indices)
    window, stride, padding, *_ = window_options(who, dims, *options)
    if shape_of(x) != shape_of(indices):
        raise ShapeError(
            f"{who}: x has shape {shape_of(x)} and indices {shape_of(indices)}; max pooling gives "
            "both in one"
        )
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"{who}: the indices have dtype {indices.dtype}; pass integers")
    given = spatial_shape(who, shape_of(x), dims)
    if size is None:
        numbers = zip(given, window, stride, padding, strict=True)
        size = tuple([(n - 1) * s - 2 * p + k for n, k, s, p in numbers])
    wanted = int_per_axis(who, "output_size", size, dims)
    head = shape_of(x)[: len(shape_of(x)) - dims]
    if x.dtype.kind in "biu":  # sums of which could wrap round
        x = astype(x, MEAN_DTYPE(np.dtype(x.dtype)))
    spec = Spec((*head, math.prod(wanted)), np.dtype(x.dtype))
    x, indices = (reshape(v, (*head, math.prod(given))) for v in (x, indices))
    # Overlapping windows may repeat an index, whose elements are then equal: take their mean.
    found = add_along_axis(x, indices, axis=-1, spec=spec)
    ones = ones_like(x, real_dtype(np.dtype(x.dtype)))
    count = add_along_axis(ones, indices, axis=-1, spec=spec)
    out = div(found, maximum(count, 1))
    return reshape(out, (*head, *wanted))


def _declare_max_unpool(n: int, samples: list[Sample], shape: Shape, example: str) -> Any:
    """Declare max unpooling over ``n`` spatial axes, with rejects of operands of ``shape``."""
    who = f"max_unpool{n}d"

    @composite(
        samples=[
            *samples,
            sample((0, *shape[1:]), np.zeros((0, *shape[1:]), int), window=2),
        ],
        rejects=[
            reject(shape, np.zeros((3, 1), int), window=2, match="max pooling gives both"),
            reject(shape, shape, window=2, error=DTypeError, match="pass integers"),
            reject(shape, np.full(shape, 99), window=2, error=OdysseyError, match="out of bounds"),
        ],
    )
    @with_spatial_terms(who, n, example)
    def max_unpool_nd(
        x: Any,
        indices: Any,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Any = None,
    ) -> Any:
        """Max unpooling of {images}: ``x`` at ``indices``, else 0; the inverse of ``max_pool{n}d``.

        If windows overlapped, an index may come several times: the result is the mean of its
        elements, which are equal.

        Args:
            x: {Images}, (..., {sizes}).
            indices: For each element its index in the result, flattened in row-major order, as
                ``max_pool{n}d(..., return_indices=True)`` gives it.
            window: The window of the pooling.
            stride: The stride of the pooling; the window by default.
            padding: The padding of the pooling, on each side.
            output_size: The {sizes} of the result, if pooling dropped a remainder.

        Raises:
            ShapeError: If ``x`` and ``indices`` differ in shape.
            DTypeError: If the indices are not integers.
        """
        return _max_unpool(who, x, indices, (window, stride, padding), output_size, n)

    return max_unpool_nd


max_unpool1d = _declare_max_unpool(
    1,
    samples=[
        sample((2, 2), np.array([[0, 3], [4, 1]]), window=2, stride=3),
        sample((2, 2), np.array([[0, 3], [4, 1]]), window=3, stride=2, padding=1, output_size=6),
    ],
    shape=(2, 2),
    example="""
    >>> max_unpool1d(np.array([5.0, 7.0]), np.array([1, 2]), window=2)
    array([0., 5., 7., 0.])
    """,
)
max_unpool2d = _declare_max_unpool(
    2,
    samples=[
        sample((1, 2, 2), np.array([[[0, 3], [9, 15]]]), window=2),
        sample((1, 2, 2), np.array([[[5, 5], [5, 0]]]), window=2, stride=1, output_size=(3, 3)),
    ],
    shape=(1, 2, 2),
    example="""
    >>> max_unpool2d(np.array([[5.0]]), np.array([[2]]), window=2)
    array([[0., 0.],
           [5., 0.]])
    """,
)
max_unpool3d = _declare_max_unpool(
    3,
    samples=[
        sample((1, 2, 1, 1), np.array([[[[7]], [[9]]]]), window=(1, 4, 2)),
        sample((1, 2, 1, 1), np.array([[[[7]], [[9]]]]), window=1, output_size=(2, 3, 4)),
    ],
    shape=(1, 2, 1, 1),
    example="""
    >>> max_unpool3d(np.array([[[5.0]]]), np.array([[[3]]]), window=(1, 2, 2))
    array([[[0., 0.],
            [0., 5.]]])
    """,
)


publish(globals())
