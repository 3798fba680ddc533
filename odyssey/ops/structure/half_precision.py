"""Float16 computed in float32: sums in float16 stop growing at 2048 and overflow at 65,504."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from odyssey.ops.structure.shape import astype
from odyssey.table.value import NUMBERS

__all__ = ["compute_in_float32", "narrow_float16", "widen_float16"]


def widen_float16(x: Any) -> Any:
    """Cast float16 to float32, in which sums can be taken; return all else as it is."""
    return astype(x, np.float32) if getattr(x, "dtype", None) == np.float16 else x


def narrow_float16(out: Any, dtype: Any) -> Any:
    """Cast a result of ``widen_float16`` operands back to float16, if ``dtype`` is float16."""
    return astype(out, dtype) if dtype == np.float16 else out


def compute_in_float32(decomposition: Callable[..., Any], operands: int = 1) -> Callable[..., Any]:
    """Return a decomposition that computes in float32 for float16 operands.

    Args:
        decomposition: The decomposition of a row.
        operands: How many of its first operands determine its dtype.
    """

    @wraps(decomposition)
    def run(*args: Any) -> Any:
        first = args[:operands]
        halves = [v for v in first if getattr(v, "dtype", None) == np.float16]
        if not halves or any(type(v) not in NUMBERS and v.dtype != np.float16 for v in first):
            return decomposition(*args)
        return astype(decomposition(*map(widen_float16, first), *args[operands:]), np.float16)

    return run
