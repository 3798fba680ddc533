"""Where the largest, or the smallest, element so far stands, along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["latest"]


@loop
def _largest(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            best, found = x[h, 0, t], 0
            out[h, 0, t] = 0
            for k in range(1, n):
                number = x[h, k, t]
                if number != number or (best == best and number >= best):
                    best, found = number, k
                out[h, k, t] = found


@loop
def _smallest(x: Any, out: Any) -> None:
    heads, n, tail = x.shape
    for h in range(heads):
        for t in range(tail):
            best, found = x[h, 0, t], 0
            out[h, 0, t] = 0
            for k in range(1, n):
                number = x[h, k, t]
                if number != number or (best == best and number <= best):
                    best, found = number, k
                out[h, k, t] = found


def latest(x: Array, axis: int, largest: bool) -> Array:
    """The place of the latest of equal extremes so far; of a NaN, from the first one on."""
    out = np.empty(x.shape, np.intp)
    if not out.size:
        return out
    k = axis % x.ndim
    n, tail = x.shape[k], out[(0,) * (k + 1)].size
    parts = (x.size // (n * tail), n, tail)
    (_largest if largest else _smallest)(x.reshape(parts), out.reshape(parts))
    return out
