"""Softmax of the rows of a matrix on the CPU, its pullback, and cross entropy.

A row stays in the processor's nearest memory while it is read three times: for its largest element,
which is subtracted so that nothing overflows, for the sum of the exponentials, and for the result.
A row with a NaN, with +inf, or of -inf alone, becomes NaN, as the formula says.

Sums are taken in several parts, in an order that depends on the number of columns alone.
"""

from __future__ import annotations

import math
from typing import Any

from odyssey.kernels.elementary import exp, log
from odyssey.kernels.loops import loop
from odyssey.kernels.scalars import select

__all__ = [
    "cross_entropy_rows",
    "log_softmax_pullback_rows",
    "log_softmax_rows",
    "softmax_pullback_rows",
    "softmax_rows",
]


@loop
def _largest(x: Any, row: Any) -> Any:
    """The largest element of a row, NaN left out; eight at a time, as LLVM alone does not."""
    low = x.dtype.type(-math.inf)
    a, b, c, d, e, f, g, h = low, low, low, low, low, low, low, low
    for k in range(x.shape[1] // 8):
        j = 8 * k
        a = select(x[row, j] > a, x[row, j], a)
        b = select(x[row, j + 1] > b, x[row, j + 1], b)
        c = select(x[row, j + 2] > c, x[row, j + 2], c)
        d = select(x[row, j + 3] > d, x[row, j + 3], d)
        e = select(x[row, j + 4] > e, x[row, j + 4], e)
        f = select(x[row, j + 5] > f, x[row, j + 5], f)
        g = select(x[row, j + 6] > g, x[row, j + 6], g)
        h = select(x[row, j + 7] > h, x[row, j + 7], h)
    for j in range(x.shape[1] // 8 * 8, x.shape[1]):
        a = select(x[row, j] > a, x[row, j], a)
    a, c, e, g = select(b > a, b, a), select(d > c, d, c), select(f > e, f, e), select(h > g, h, g)
    a, e = select(c > a, c, a), select(g > e, g, e)
    return select(e > a, e, a)


# Only sums may go in another order, and so are functions of their own: of ``(x - largest) - shift``
# it would make ``x - (largest + shift)``, which loses the digits that far logits have in common.
@loop(reassociate=True)
def _total_of_powers(x: Any, row: Any, largest: Any) -> Any:
    total = x.dtype.type(0)
    for j in range(x.shape[1]):
        total += exp(x[row, j] - largest)
    return total


@loop(reassociate=True)
def _powers(x: Any, row: Any, largest: Any, out: Any) -> Any:
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
        total = _powers(x, row, _largest(x, row), out)
        for j in range(x.shape[1]):
            out[row, j] /= total


@loop
def log_softmax_rows(x: Any, out: Any) -> None:
    """Write the logarithm of the softmax of each row."""
    for row in range(x.shape[0]):
        largest = _largest(x, row)
        shift = log(_total_of_powers(x, row, largest))
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
    """Write the exponentials of each row, their sums, and the loss for the class that is meant."""
    for row in range(x.shape[0]):
        largest = _largest(x, row)
        total = _powers(x, row, largest, out)
        out_sums[row] = total
        out_losses[row] = log(total) - (x[row, targets[row]] - largest)
