"""Running sums, products and extremes, and linear recurrences, along one axis.

Each result is made of those before it, in the order and with the roundings of NumPy's
``accumulate``: the same bits. Along the last axis a line waits four cycles for each sum, so lines
are taken four at a time (of more, those of a length that is a power of 2 lie in the same places of
a cache, which is eight times as slow); along other axes what is beside each other is summed
together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.loops import Loop, loop
from odyssey.spec import Array, Spec

__all__ = [
    "fits",
    "fits_recurrence",
    "recurrence",
    "running_products",
    "running_sums",
    "running_sums_back",
]


def fits(x: Spec, *options: Any) -> bool:
    """Whether a running fold runs here: of single and double precision."""
    return x.dtype.char in "fd" and x.ndim > 0


def fits_recurrence(x: Spec, factors: Spec, *options: Any) -> bool:
    """Whether a recurrence runs here."""
    return fits(x) and x == factors


# ------------------------------------------------------------------ loops


@loop
def _sums(x: Any, out: Any, back: bool) -> None:
    heads, n, tail = x.shape
    first, step = (n - 1, -1) if back else (0, 1)
    for h in range(heads):
        for t in range(tail):
            out[h, first, t] = x[h, first, t]
        for j in range(1, n):
            k = first + step * j
            for t in range(tail):
                out[h, k, t] = out[h, k - step, t] + x[h, k, t]


@loop
def _sums_of_lines(x: Any, out: Any, back: bool) -> None:
    lines, n = x.shape
    first, step = (n - 1, -1) if back else (0, 1)
    fours = lines // 4
    for f in range(fours):
        i = 4 * f
        s0, s1, s2, s3 = x[i, first], x[i + 1, first], x[i + 2, first], x[i + 3, first]
        out[i, first], out[i + 1, first], out[i + 2, first], out[i + 3, first] = s0, s1, s2, s3
        for j in range(1, n):
            k = first + step * j
            s0 += x[i, k]
            s1 += x[i + 1, k]
            s2 += x[i + 2, k]
            s3 += x[i + 3, k]
            out[i, k], out[i + 1, k], out[i + 2, k], out[i + 3, k] = s0, s1, s2, s3
    for i in range(4 * fours, lines):
        total = x[i, first]
        out[i, first] = total
        for j in range(1, n):
            total += x[i, first + step * j]
            out[i, first + step * j] = total


@loop
def _products(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            out[h, 0, t] = x[h, 0, t]
        for k in range(1, n):
            for t in range(tail):
                out[h, k, t] = out[h, k - 1, t] * x[h, k, t]


@loop
def _products_of_lines(x: Any, out: Any) -> None:
    lines, n = x.shape
    fours = lines // 4
    for f in range(fours):
        i = 4 * f
        p0, p1, p2, p3 = x[i, 0], x[i + 1, 0], x[i + 2, 0], x[i + 3, 0]
        out[i, 0], out[i + 1, 0], out[i + 2, 0], out[i + 3, 0] = p0, p1, p2, p3
        for k in range(1, n):
            p0 *= x[i, k]
            p1 *= x[i + 1, k]
            p2 *= x[i + 2, k]
            p3 *= x[i + 3, k]
            out[i, k], out[i + 1, k], out[i + 2, k], out[i + 3, k] = p0, p1, p2, p3
    for i in range(4 * fours, lines):
        total = x[i, 0]
        out[i, 0] = total
        for k in range(1, n):
            total *= x[i, k]
            out[i, k] = total


@loop
def _recurrence(x: Any, f: Any, out: Any, back: bool) -> None:
    heads, n, tail = x.shape
    first, step, ahead = (n - 1, -1, 1) if back else (0, 1, 0)
    for h in range(heads):
        for t in range(tail):
            out[h, first, t] = x[h, first, t]
        for j in range(1, n):
            k = first + step * j
            for t in range(tail):
                out[h, k, t] = x[h, k, t] + f[h, k + ahead, t] * out[h, k - step, t]


@loop
def _recurrence_of_lines(x: Any, f: Any, out: Any, back: bool) -> None:
    lines, n = x.shape
    first, step, ahead = (n - 1, -1, 1) if back else (0, 1, 0)
    fours = lines // 4
    for four in range(fours):
        i = 4 * four
        s0, s1, s2, s3 = x[i, first], x[i + 1, first], x[i + 2, first], x[i + 3, first]
        out[i, first], out[i + 1, first], out[i + 2, first], out[i + 3, first] = s0, s1, s2, s3
        for j in range(1, n):
            k = first + step * j
            s0 = x[i, k] + f[i, k + ahead] * s0
            s1 = x[i + 1, k] + f[i + 1, k + ahead] * s1
            s2 = x[i + 2, k] + f[i + 2, k + ahead] * s2
            s3 = x[i + 3, k] + f[i + 3, k + ahead] * s3
            out[i, k], out[i + 1, k], out[i + 2, k], out[i + 3, k] = s0, s1, s2, s3
    for i in range(4 * fours, lines):
        total = x[i, first]
        out[i, first] = total
        for j in range(1, n):
            k = first + step * j
            total = x[i, k] + f[i, k + ahead] * total
            out[i, k] = total


# ------------------------------------------------------------------ calls of them


def _run(
    whole: Loop, lines: Loop, arrays: tuple[Array, ...], axis: int | None, *more: Any
) -> Array:
    """Fold arrays of one shape along an axis; None, of all elements in row-major order."""
    shape = (arrays[0].size,) if axis is None else arrays[0].shape
    out = np.empty(shape, arrays[0].dtype)
    if not out.size:
        return out
    k = 0 if axis is None else axis % len(shape)
    n, tail = shape[k], out[(0,) * (k + 1)].size
    folded = (-1, n) if tail == 1 else (out.size // (n * tail), n, tail)
    given = (*(x.reshape(folded) for x in arrays), out.reshape(folded))
    (lines if tail == 1 else whole)(*given, *more)
    return out


def running_sums(x: Array, axis: int | None) -> Array:
    """What ``np.cumsum`` gives."""
    return _run(_sums, _sums_of_lines, (x,), axis, False)


def running_sums_back(x: Array, axis: int | None) -> Array:
    """The same from the end to the begin."""
    return _run(_sums, _sums_of_lines, (x,), axis, True)


def running_products(x: Array, axis: int | None) -> Array:
    """What ``np.cumprod`` gives."""
    return _run(_products, _products_of_lines, (x,), axis)


@ignore_fp_errors("over")  # loops raise nothing
def _single(x: Array) -> Array:
    return x.astype(np.float32)


def recurrence(x: Array, factors: Array, axis: int, reverse: bool) -> Array:
    """What ``linear_recurrence`` gives: of one line in double precision."""
    if x.ndim == 1 and x.dtype == np.float32:
        wide = recurrence(x.astype(np.float64), factors.astype(np.float64), axis, reverse)
        return _single(wide)
    return _run(_recurrence, _recurrence_of_lines, (x, factors), axis, reverse)
