"""Indices of the running maximum or minimum along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["running_argextreme"]


@loop
def _running_argmax_loop(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            best, best_index = x[h, 0, t], 0
            out[h, 0, t] = 0
            for k in range(1, n):
                number = x[h, k, t]
                if number != number or (best == best and number >= best):
                    best, best_index = number, k
                out[h, k, t] = best_index


@loop
def _running_argmin_loop(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            best, best_index = x[h, 0, t], 0
            out[h, 0, t] = 0
            for k in range(1, n):
                number = x[h, k, t]
                if number != number or (best == best and number <= best):
                    best, best_index = number, k
                out[h, k, t] = best_index


def running_argextreme(x: Array, axis: int, largest: bool) -> Array:
    """Return the index of the extreme so far: the last of equal ones, or the last NaN."""
    out = np.empty(x.shape, np.intp)
    if not out.size:
        return out
    k = axis % x.ndim
    n, tail = x.shape[k], out[(0,) * (k + 1)].size
    lines = (x.size // (n * tail), n, tail)
    (_running_argmax_loop if largest else _running_argmin_loop)(
        x.reshape(lines), out.reshape(lines)
    )
    return out
