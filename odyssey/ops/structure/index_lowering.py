"""Lowering of gathers and scatters to an index along each axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.ops.structure.shape import reshape
from odyssey.spec import Shape

__all__ = ["flat_indices", "scatter_add", "take_along_axis_indices", "take_indices"]


def take_indices(
    build: Any, shape: Shape, indices: Any, axis: int | None, mode: str
) -> tuple[Any, ...]:
    """Lower the indices that ``take`` reads.

    Returns:
        The shape to read the array in, an index for each of its axes, and the shape of the result.
    """
    mode = {"raise": "wrap", "wrap": "remainder", "clip": "clip"}[mode]
    if axis is None:
        shape, axis = (math.prod(shape),), 0
    k, own = axis % len(shape), np.shape(indices)
    full = (*shape[:k], *own, *shape[k + 1 :])
    numbers = build.normalize_index(indices, shape[k], mode)
    behind = len(shape) - k - 1
    places = [build.index(full, a) for a in range(k)]
    places.append(reshape(numbers, (*own, *(1,) * behind)))
    places += [build.index(full, len(full) - behind + a) for a in range(behind)]
    return shape, places, full


def take_along_axis_indices(
    build: Any, shape: Shape, indices: Any, axis: int | None
) -> tuple[Any, ...]:
    """Lower the indices that ``take_along_axis`` reads; returns what ``take_indices`` returns."""
    if axis is None:
        shape, axis = (math.prod(shape),), 0
    k = axis % len(shape)
    others = (*shape[:k], 1, *shape[k + 1 :])
    full = np.broadcast_shapes(others, indices.shape)
    # Indices may broadcast an axis of length 1, whose index is then always 0.
    nowhere = build.full((1,) * len(full), np.dtype(np.intp))
    places = [build.index(full, a) if n == full[a] else nowhere for a, n in enumerate(shape)]
    places[k] = build.normalize_index(indices, shape[k])
    return shape, places, full


def flat_indices(shape: Shape, key: Any) -> Any:
    """Return the row-major indices of the elements that a key selects."""
    return np.arange(math.prod(shape)).reshape(shape)[key]


def scatter_add(build: Any, x: Any, shape: Shape, places: Any, rows: bool = False) -> Any:
    """Lower a scatter-add of ``x`` into zeros of a shape, in the order of its elements.

    Elements are added in double precision, as in the kernels; whole rows in their own dtype.
    """
    wide = x.dtype == np.float32 and not rows
    dtype = np.dtype(np.float64) if wide else x.dtype
    out = build.scatter("sum", build.full(shape, dtype), build.cast(x, dtype), places)
    return build.cast(out, x.dtype)
