"""Scans along one axis: cumulative sums and products, and linear recurrences.

Results have the order and the roundings of NumPy's ``accumulate``, to the bit. Along the last axis
each sum has a latency of four cycles, so four lines are summed at a time (with more, lines whose
length is a power of 2 conflict in the cache, which is eight times as slow); along other axes
neighbouring lines are summed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.loops import Loop, loop
from odyssey.spec import Array, Spec

__all__ = [
    "is_supported",
    "is_recurrence_supported",
    "linear_recurrence",
    "running_products",
    "running_sums",
    "reverse_running_sums",
]


def is_supported(x: Spec, *options: Any) -> bool:
    """Return whether a scan has a compiled loop: for float32 and float64."""
    return x.dtype.char in "fd" and x.ndim > 0


def is_recurrence_supported(x: Spec, factors: Spec, *options: Any) -> bool:
    """Return whether a recurrence has a compiled loop."""
    return is_supported(x) and x == factors


# ------------------------------------------------------------------ loops


@loop
def _sums_across_lines(x: Any, out: Any, back: bool) -> None:
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
def _sums_in_lines(x: Any, out: Any, back: bool) -> None:
    in_lines, n = x.shape
    first, step = (n - 1, -1) if back else (0, 1)
    fours = in_lines // 4
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
    for i in range(4 * fours, in_lines):
        total = x[i, first]
        out[i, first] = total
        for j in range(1, n):
            total += x[i, first + step * j]
            out[i, first + step * j] = total


@loop
def _products_across_lines(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            out[h, 0, t] = x[h, 0, t]
        for k in range(1, n):
            for t in range(tail):
                out[h, k, t] = out[h, k - 1, t] * x[h, k, t]


@loop
def _products_in_lines(x: Any, out: Any) -> None:
    in_lines, n = x.shape
    fours = in_lines // 4
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
    for i in range(4 * fours, in_lines):
        total = x[i, 0]
        out[i, 0] = total
        for k in range(1, n):
            total *= x[i, k]
            out[i, k] = total


@loop
def _recurrence_across_lines(x: Any, f: Any, out: Any, back: bool) -> None:
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
def _recurrence_in_lines(x: Any, f: Any, out: Any, back: bool) -> None:
    in_lines, n = x.shape
    first, step, ahead = (n - 1, -1, 1) if back else (0, 1, 0)
    fours = in_lines // 4
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
    for i in range(4 * fours, in_lines):
        total = x[i, first]
        out[i, first] = total
        for j in range(1, n):
            k = first + step * j
            total = x[i, k] + f[i, k + ahead] * total
            out[i, k] = total


# ------------------------------------------------------------------ entry points


def _run_scan(
    across_lines: Loop, in_lines: Loop, arrays: tuple[Array, ...], axis: int | None, *more: Any
) -> Array:
    """Scan arrays of one shape along an axis; None for all elements in row-major order."""
    shape = (arrays[0].size,) if axis is None else arrays[0].shape
    out = np.empty(shape, arrays[0].dtype)
    if not out.size:
        return out
    k = 0 if axis is None else axis % len(shape)
    n, tail = shape[k], out[(0,) * (k + 1)].size
    line_shape = (-1, n) if tail == 1 else (out.size // (n * tail), n, tail)
    reshaped = (*(x.reshape(line_shape) for x in arrays), out.reshape(line_shape))
    (in_lines if tail == 1 else across_lines)(*reshaped, *more)
    return out


def running_sums(x: Array, axis: int | None) -> Array:
    """Return ``np.cumsum(x, axis)``."""
    return _run_scan(_sums_across_lines, _sums_in_lines, (x,), axis, False)


def reverse_running_sums(x: Array, axis: int | None) -> Array:
    """Return the cumulative sum from the end to the start."""
    return _run_scan(_sums_across_lines, _sums_in_lines, (x,), axis, True)


def running_products(x: Array, axis: int | None) -> Array:
    """Return ``np.cumprod(x, axis)``."""
    return _run_scan(_products_across_lines, _products_in_lines, (x,), axis)


@ignore_fp_errors("over")  # loops raise no warnings
def _as_float(x: Array) -> Array:
    return x.astype(np.float32)


def linear_recurrence(x: Array, factors: Array, axis: int, reverse: bool) -> Array:
    """Return ``linear_recurrence`` of arrays; a single line is computed in double precision."""
    if x.ndim == 1 and x.dtype == np.float32:
        wide = linear_recurrence(x.astype(np.float64), factors.astype(np.float64), axis, reverse)
        return _as_float(wide)
    return _run_scan(_recurrence_across_lines, _recurrence_in_lines, (x, factors), axis, reverse)
