"""Where the extremes of lines are, as programs find it."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.elementwise.choice import equal, logical_or, not_equal, where

__all__ = ["place_natively"]

# Lines of so many elements NumPy reads once, where a program reads them twice: of 1024 it takes
# half of the time, of 10 seven times as long.
_LONG = 256


def place_natively(how: str) -> Any:
    """What ``argmax`` and its like are to a program.

    Args:
        how: ``"max"`` or ``"min"``.
    """

    def native(build: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        ndim, line = x.ndim, x
        if axis is None:
            line, axis = build.reshape(x, (x.size,)), 0
        if axis == line.ndim - 1 and line.shape[axis] >= _LONG:
            return NotImplemented
        found = equal(line, build.fold(how, line, (axis,), True))
        if x.dtype.kind == "f":  # of which NaN is the extreme, if there is one
            found = logical_or(found, not_equal(line, line))
        # Twice as many numbers of half the size are compared at a time.
        short = np.int32 if line.shape[axis] < 2**31 else np.intp
        index = build.cast(build.index(line.shape, axis), short)
        places = where(found, index, line.shape[axis])
        first = build.cast(build.fold("min", places, (axis,), keepdims), np.intp)
        return build.reshape(first, (1,) * ndim) if keepdims and line is not x else first

    return native
