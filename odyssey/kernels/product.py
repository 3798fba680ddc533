"""Row products, and for each element the product of the others, without a division.

Multiplications have a latency of four cycles, so a line is multiplied in eight lanes, which run in
parallel: element ``j`` belongs to lane ``j % 8``. Zeros and infinities need no special case; the
order matters only if a partial product overflows or underflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["products_of_others", "row_products"]

# Unsigned indices: numba tests signed ones for being negative, which prevents vectorization.
_1, _2, _8 = map(np.uint64, (1, 2, 8))


# ------------------------------------------------------------------ loops


@loop(reassociate=True)
def _row_products_loop(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = x.dtype.type(1)
        for j in range(x.shape[1]):
            total *= x[i, j]
        out[i] = total


@loop
def _products_of_others_in_lines(x: Any, n: Any, out_row: Any, out_tree: Any, out: Any) -> Any:
    """Return whether no product overflowed or underflowed: infinity, NaN and 0 persist.

    Lines of ``n`` numbers, one after the other. Each number of a lane gets the products of those
    before and after it, and each lane that of the other lanes, by a tree of pairs.
    """
    one = x.dtype.type(1)
    inside = True
    for i in range(np.uint64(x.size) // n):
        at = i * n
        if n < _8:
            for target in range(n):
                own = one
                for other in range(n):
                    if other != target:
                        own *= x[at + other]
                out[at + target] = own
                inside &= own != 0 and own - own == 0
            continue
        for lane in range(_8):
            out[at + lane] = one
        for j in range(at + _8, at + n):
            out[j] = out[j - _8] * x[j - _8]
        last = at + n - _8
        for lane in range(_8):
            out_tree[_8 + lane] = out[last + lane] * x[last + lane]
        for step in range(_8 - _1):
            pair = _8 - _1 - step
            out_tree[pair] = out_tree[_2 * pair] * out_tree[_2 * pair + _1]
        inside &= out_tree[_1] != 0 and out_tree[_1] - out_tree[_1] == 0
        out_tree[_1] = one
        for k in range(_1, _8):
            left, right = out_tree[_2 * k], out_tree[_2 * k + _1]
            out_tree[_2 * k] = out_tree[k] * right
            out_tree[_2 * k + _1] = out_tree[k] * left
        for lane in range(_8):
            out_row[n - _8 + lane] = out_tree[_8 + lane]
            out[last + lane] *= out_tree[_8 + lane]
        for step in range(n - _8):
            j = n - _8 - _1 - step
            out_row[j] = out_row[j + _8] * x[at + j + _8]
            out[at + j] *= out_row[j]
        for lane in range(_8):
            inside &= out_row[lane] != 0 and out_row[lane] - out_row[lane] == 0
    return inside


@loop
def _products_of_others_loop(x: Any, out_row: Any, out: Any) -> None:
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


# ------------------------------------------------------------------ entry points


def row_products(x: Array) -> Array:
    """Return the product of each row of a matrix."""
    out = np.empty(len(x), x.dtype)
    _row_products_loop(x, out)
    return out


def products_of_others(x: Array) -> tuple[Array, bool]:
    """Return for each element the product of the others on the middle one of three axes.

    Also return whether all partial products were finite and not 0: those from one end are if the
    last of them is, which, over several columns, is in the first and the last row.
    """
    out = np.empty(x.shape, x.dtype)
    _, n, tail = x.shape
    if not out.size:
        return out, True
    if tail == 1:
        room = np.empty(n, x.dtype), np.empty(16, x.dtype)
        return out, bool(
            _products_of_others_in_lines(x.reshape(-1), np.uint64(n), *room, out.reshape(-1))
        )
    _products_of_others_loop(x, np.empty(tail, x.dtype), out)
    ends = out[:, :: max(n - 1, 1)]
    return out, bool(np.isfinite(ends).all() and ends.all())
