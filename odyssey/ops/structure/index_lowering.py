"""How rows that read, add or write at indices do so natively: at a place along each axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.ops.structure.shape import reshape
from odyssey.spec import Shape

__all__ = ["added", "along", "flat", "taken"]


def taken(build: Any, shape: Shape, indices: Any, axis: int | None, mode: str) -> tuple[Any, ...]:
    """Where ``take`` reads in an array of a shape.

    Returns:
        The shape that the array is to have, the places along its axes, and the shape of the result.
    """
    mode = {"raise": "wrap", "wrap": "remainder", "clip": "clip"}[mode]
    if axis is None:
        shape, axis = (math.prod(shape),), 0
    k, own = axis % len(shape), np.shape(indices)
    full = (*shape[:k], *own, *shape[k + 1 :])
    numbers = build.place(indices, shape[k], mode)
    behind = len(shape) - k - 1
    places = [build.index(full, a) for a in range(k)]
    places.append(reshape(numbers, (*own, *(1,) * behind)))
    places += [build.index(full, len(full) - behind + a) for a in range(behind)]
    return shape, places, full


def along(build: Any, shape: Shape, indices: Any, axis: int | None) -> tuple[Any, ...]:
    """Where ``take_along_axis`` reads in an array of a shape; as ``taken``."""
    if axis is None:
        shape, axis = (math.prod(shape),), 0
    k = axis % len(shape)
    others = (*shape[:k], 1, *shape[k + 1 :])
    full = np.broadcast_shapes(others, indices.shape)
    # Indices may repeat an axis of one element, whose place is then 0 all along.
    nowhere = build.zeros((1,) * len(full), np.dtype(np.intp))
    places = [build.index(full, a) if n == full[a] else nowhere for a, n in enumerate(shape)]
    places[k] = build.place(indices, shape[k])
    return shape, places, full


def flat(shape: Shape, key: Any) -> Any:
    """The numbers of the elements that a key picks, in row-major order."""
    return np.arange(math.prod(shape)).reshape(shape)[key]


def added(build: Any, x: Any, shape: Shape, places: Any, rows: bool = False) -> Any:
    """Zeros of a shape with ``x`` added at places, in the order of its elements.

    Single numbers are added in double precision, as in the kernels; whole rows in their own.
    """
    wide = x.dtype == np.float32 and not rows
    dtype = np.dtype(np.float64) if wide else x.dtype
    out = build.scatter("sum", build.zeros(shape, dtype), build.cast(x, dtype), places)
    return build.cast(out, x.dtype)
