"""Products of lines, and for each element the product of the others, without a division.

A product waits four cycles for the one before it, so a line is multiplied in eight lanes, which
processors take at once: element ``j`` belongs to lane ``j % 8``. Zeros and infinities are numbers
like others; only where a partial product leaves the range of the dtype does the order show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["others", "products"]


# ------------------------------------------------------------------ loops


@loop(reassociate=True)
def _products(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = x.dtype.type(1)
        for j in range(x.shape[1]):
            total *= x[i, j]
        out[i] = total


@loop
def _others_of_lines(x: Any, out_lanes: Any, out: Any) -> None:
    lines, n = x.shape
    blocks = n // 8
    one = x.dtype.type(1)
    for i in range(lines):
        for lane in range(8):
            out_lanes[lane] = one
        for b in range(blocks):
            for lane in range(8):
                out[i, 8 * b + lane] = out_lanes[lane]
                out_lanes[lane] *= x[i, 8 * b + lane]
        whole = one
        for lane in range(8):
            whole *= out_lanes[lane]
        rest = one
        for j in range(8 * blocks, n):
            rest *= x[i, j]
            own = whole
            for k in range(8 * blocks, n):
                if k != j:
                    own *= x[i, k]
            out[i, j] = own
        # Each lane goes back with the product of the other lanes and of the rest.
        for lane in range(8):
            out_lanes[8 + lane] = rest
            for other in range(8):
                if other != lane:
                    out_lanes[8 + lane] *= out_lanes[other]
        for step in range(blocks):
            b = blocks - 1 - step
            for lane in range(8):
                out[i, 8 * b + lane] *= out_lanes[8 + lane]
                out_lanes[8 + lane] *= x[i, 8 * b + lane]


@loop
def _others(x: Any, out_row: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            out[h, 0, t] = x.dtype.type(1)
            out_row[t] = x.dtype.type(1)
        for k in range(1, n):
            for t in range(tail):
                out[h, k, t] = out[h, k - 1, t] * x[h, k - 1, t]
        for step in range(1, n):
            k = n - 1 - step
            for t in range(tail):
                out_row[t] *= x[h, k + 1, t]
                out[h, k, t] *= out_row[t]


# ------------------------------------------------------------------ calls of them


def products(x: Array) -> Array:
    """The product of each row of a matrix."""
    out = np.empty(len(x), x.dtype)
    _products(x, out)
    return out


def others(x: Array) -> Array:
    """For each element the product of the others on the middle one of three axes."""
    out = np.empty(x.shape, x.dtype)
    heads, n, tail = x.shape
    if not out.size:
        return out
    if tail == 1:
        lines = (heads, n)
        _others_of_lines(x.reshape(lines), np.empty(16, x.dtype), out.reshape(lines))
    else:
        _others(x, np.empty(tail, x.dtype), out)
    return out
