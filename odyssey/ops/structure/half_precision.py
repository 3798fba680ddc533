"""Halves computed in float32: float16 sums stop growing at 2048, and overflow at 65,504."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import has_half, is_half
from odyssey.ops.structure.shape import astype
from odyssey.table.value import NUMBERS

__all__ = ["compute_in_float32", "narrow_half", "widen_half"]


def widen_half(x: Any) -> Any:
    """Cast a half to float32, in which sums can be taken; return all else as it is."""
    return astype(x, np.float32) if has_half(x) else x


def narrow_half(out: Any, dtype: Any) -> Any:
    """Cast a result of ``widen_half`` operands back to ``dtype``, if that is a half."""
    return astype(out, dtype) if is_half(np.dtype(dtype)) else out


def compute_in_float32(decomposition: Callable[..., Any], operands: int = 1) -> Callable[..., Any]:
    """Return a decomposition that computes in float32 for operands of a half.

    Args:
        decomposition: The decomposition of a row.
        operands: How many of its first operands determine its dtype.
    """

    @wraps(decomposition)
    def run(*args: Any) -> Any:
        first = args[:operands]
        halves = [v for v in first if has_half(v)]
        if not halves:
            return decomposition(*args)
        dtype = halves[0].dtype
        if any(type(v) not in NUMBERS and v.dtype != dtype for v in first):
            return decomposition(*args)
        return astype(decomposition(*map(widen_half, first), *args[operands:]), dtype)

    return run
