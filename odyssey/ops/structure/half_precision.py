"""Half precision in single: sums of halves stop growing at 2048, and end at 65,504."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from odyssey.ops.structure.shape import astype
from odyssey.table.value import NUMBERS

__all__ = ["narrow_float16", "compute_in_float32", "widen_float16"]


def widen_float16(x: Any) -> Any:
    """``x`` in a precision that sums can be taken in: half in single, all else as it is."""
    return astype(x, np.float32) if getattr(x, "dtype", None) == np.float16 else x


def narrow_float16(out: Any, dtype: Any) -> Any:
    """What was computed of ``wide`` operands, in half precision where that is ``dtype``."""
    return astype(out, dtype) if dtype == np.float16 else out


def compute_in_float32(equals: Callable[..., Any], operands: int = 1) -> Callable[..., Any]:
    """What a row equals, computed in single precision where it is one of halves.

    Args:
        equals: What it equals, in ops.
        operands: How many of its first operands decide its dtype.
    """

    @wraps(equals)
    def run(*given: Any) -> Any:
        first = given[:operands]
        halves = [v for v in first if getattr(v, "dtype", None) == np.float16]
        if not halves or any(type(v) not in NUMBERS and v.dtype != np.float16 for v in first):
            return equals(*given)
        return astype(equals(*map(widen_float16, first), *given[operands:]), np.float16)

    return run
