"""What normalization asks of shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.structure.shape import astype
from odyssey.spec import Shape
from odyssey.table.shape_rules import normalize_axes

__all__ = ["check_fit", "count_along", "wide"]


def check_fit(who: str, name: str, shape: Shape, other: Shape) -> None:
    """Raise unless what has the shape ``other`` broadcasts to ``shape``."""
    try:
        fits = np.broadcast_shapes(shape, other) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: {name} {other} for x {shape}; it must broadcast to x, by its last axes"
        )


def count_along(x: Any, axis: Any) -> int:
    """How many elements are normalized together; 1 where there are none."""
    return max(math.prod(x.shape[k] for k in normalize_axes("count", axis, x.ndim)), 1)


def wide(x: Any) -> Any:
    """``x`` in a precision that can hold squares: half in single, all else as it is."""
    return astype(x, np.float32) if getattr(x, "dtype", None) == np.float16 else x
