"""Softmax of rows on the CPU, its pullback, and cross entropy.

A row stays in the L1 cache while it is read three times: for its maximum, which is subtracted so
that nothing overflows, for the sum of exponentials, and for the result. A row with NaN, with +inf,
or of -inf only becomes NaN, as by the formula. The order of sums depends on the number of columns
only.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels.elementary import exp, log
from odyssey.kernels.loops import ByDtype, Loop, loop

__all__ = [
    "cross_entropy_rows",
    "log_softmax_pullback_rows",
    "log_softmax_rows",
    "softmax_pullback_rows",
    "softmax_rows",
]


@lru_cache(maxsize=2)
def _ordered_keys(dtype: np.dtype[Any]) -> tuple[Loop, Loop]:
    """Return loops that map numbers to integers of the same order, and back.

    A positive NaN is the largest, a negative one the smallest. LLVM vectorizes the maximum of
    integers, but not that of floats, because of NaN.
    """
    number: Any
    whole: Any
    number, whole = (np.float32, np.int32) if dtype.char == "f" else (np.float64, np.int64)
    sign, others = whole(8 * dtype.itemsize - 1), whole(np.iinfo(whole).max)

    def key(x: Any) -> Any:
        bits = number(x).view(whole)
        return whole(bits ^ (whole(bits >> sign) & others))

    def of_key(k: Any) -> Any:
        return whole(k ^ (whole(k >> sign) & others)).view(number)

    return Loop(key), Loop(of_key)  # type: ignore[arg-type]


_key = ByDtype("key", lambda dtype: _ordered_keys(dtype)[0])
_of_key = ByDtype("of_key", lambda dtype: _ordered_keys(dtype)[1])


@loop
def _row_max(x: Any, row: Any) -> Any:
    """Return the largest element of a row; in a row with NaN, that or another element."""
    best = _key(x.dtype.type(-math.inf))
    for j in range(x.shape[1]):
        k = _key(x[row, j])
        best = max(best, k)
    return _of_key(best)


# Only sums may be reordered, so they are functions of their own: ``(x - largest) - shift`` would
# become ``x - (largest + shift)``, which loses the digits that distant logits share.
@loop(reassociate=True)
def _sum_of_exponentials(x: Any, row: Any, largest: Any) -> Any:
    total = x.dtype.type(0)
    for j in range(x.shape[1]):
        total += exp(x[row, j] - largest)
    return total


@loop(reassociate=True)
def _write_exponentials(x: Any, row: Any, largest: Any, out: Any) -> Any:
    """Write the exponentials of a row, and return their sum."""
    total = x.dtype.type(0)
    for j in range(x.shape[1]):
        e = exp(x[row, j] - largest)
        out[row, j] = e
        total += e
    return total


@loop
def softmax_rows(x: Any, out: Any) -> None:
    """Write the softmax of each row."""
    for row in range(x.shape[0]):
        total = _write_exponentials(x, row, _row_max(x, row), out)
        for j in range(x.shape[1]):
            out[row, j] /= total


@loop
def log_softmax_rows(x: Any, out: Any) -> None:
    """Write the logarithm of the softmax of each row."""
    for row in range(x.shape[0]):
        largest = _row_max(x, row)
        shift = log(_sum_of_exponentials(x, row, largest))
        for j in range(x.shape[1]):
            out[row, j] = (x[row, j] - largest) - shift


@loop(reassociate=True)
def softmax_pullback_rows(g: Any, s: Any, out: Any) -> None:
    """Write ``s (g - sum(g s))`` for each row."""
    for row in range(s.shape[0]):
        total = s.dtype.type(0)
        for j in range(s.shape[1]):
            total += g[row, j] * s[row, j]
        for j in range(s.shape[1]):
            out[row, j] = s[row, j] * (g[row, j] - total)


@loop(reassociate=True)
def log_softmax_pullback_rows(g: Any, z: Any, out: Any) -> None:
    """Write ``g - e**z sum(g)`` for each row, where z is the logarithm of the softmax."""
    for row in range(z.shape[0]):
        total = z.dtype.type(0)
        for j in range(z.shape[1]):
            total += g[row, j]
        for j in range(z.shape[1]):
            out[row, j] = g[row, j] - exp(z[row, j]) * total


@loop
def cross_entropy_rows(x: Any, targets: Any, out: Any, out_sums: Any, out_losses: Any) -> None:
    """Write the exponentials of each row, their sums, and the loss of the target class."""
    for row in range(x.shape[0]):
        largest = _row_max(x, row)
        total = _write_exponentials(x, row, largest, out)
        out_sums[row] = total
        out_losses[row] = log(total) - (x[row, targets[row]] - largest)
