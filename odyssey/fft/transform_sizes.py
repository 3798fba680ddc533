"""Numbers of points and axes of Fourier transforms: option checks, cropping and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.fft.primitives import axis_index
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.table.value import Symbol, Value

__all__ = ["Sizes", "transform_operand", "point_count", "crop_or_pad", "transform_axes"]

Sizes = Sequence[int] | None


def transform_operand(who: str, a: Any) -> Any:
    """Convert an array-like to an array; Variables and Symbols pass through."""
    return a if isinstance(a, (Value, Symbol)) else as_array(who, "a", a)


def point_count(who: str, n: Any, default: int) -> int:
    """Return the number of points; raise ShapeError if it is less than 1."""
    points = default if n is None else check_int(who, "n", n)
    if points < 1:
        raise ShapeError(f"{who}: {points} points came to transform; pass 1 or more")
    return points


def crop_or_pad(a: Any, n: int, axis: int) -> Any:
    """Crop to ``n`` elements along an axis, or pad with zeros at the end."""
    length = a.shape[axis]
    if length > n:
        return getitem(a, (slice(None),) * axis + (slice(0, n),))
    if length == n:
        return a
    zeros = np.zeros((*a.shape[:axis], n - length, *a.shape[axis + 1 :]), a.dtype)
    return concatenate([a, zeros], axis=axis)


def transform_axes(
    who: str, a: Any, s: Any, axes: Any, half: bool = False
) -> list[tuple[int, int]]:
    """Return pairs of axis and number of points, in order.

    Args:
        who: Name of the op, for messages.
        a: The array.
        s: Number of points along each axis, -1 for its length; None for all lengths.
        axes: Axes to transform, possibly repeated; None for all, or for the last ``len(s)``.
        half: Whether the last axis of ``a`` holds half a spectrum, ``n // 2 + 1`` numbers.
    """
    sizes = None if s is None else _int_list(who, "s", s)
    ndim = len(a.shape)
    if axes is None:
        first = 0 if sizes is None else ndim - len(sizes)
        if first < 0:
            raise ShapeError(f"{who}: s={format_value(s)} for an array of {ndim} axes")
        axis_indices = list(range(first, ndim))
    else:
        axis_indices = [axis_index(who, k, ndim) for k in _int_list(who, "axes", axes)]
    if sizes is None:
        sizes = [a.shape[k] for k in axis_indices]
        if half and axis_indices:
            sizes[-1] = 2 * (a.shape[axis_indices[-1]] - 1)
    elif len(sizes) != len(axis_indices):
        raise ShapeError(
            f"{who}: s={format_value(s)} for {len(axis_indices)} axes; pass a size for each"
        )
    sizes = [a.shape[k] if n == -1 else n for n, k in zip(sizes, axis_indices, strict=True)]
    for n in sizes:
        point_count(who, n, n)
    return list(zip(axis_indices, sizes, strict=True))


def _int_list(who: str, name: str, values: Any) -> list[int]:
    """Return a sequence of ints as a list; raise DTypeError for anything else."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, (tuple, list, range)):
        raise DTypeError(f"{who}: {name}={format_value(values)}; pass a tuple of ints")
    return [check_int(who, name, v) for v in values]
