"""Sums of a few elements along an axis, times weights."""

from __future__ import annotations

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["weighed"]


@loop
def _along_last(x, places, weights, out):  # type: ignore[no-untyped-def]
    for n in range(x.shape[0]):
        line, into = x[n], out[n]
        for k in range(places.shape[0]):
            for i in range(places.shape[1]):
                # A weight of 0 stands for nothing, also of what is infinite.
                if weights[k, i] != 0:
                    into[i] += weights[k, i] * line[places[k, i]]


@loop
def _along(x, places, weights, out):  # type: ignore[no-untyped-def]
    for n in range(x.shape[0]):
        for i in range(places.shape[1]):
            into = out[n, i]
            for k in range(places.shape[0]):
                weight = weights[k, i]
                if weight != 0:
                    line = x[n, places[k, i]]
                    for c in range(into.size):
                        into[c] += weight * line[c]


def weighed(x: Array, places: Array, weights: Array) -> Array:
    """For each column of ``places`` the sum along axis 1 of these elements, times weights."""
    out = np.zeros((len(x), places.shape[1], x.shape[2]), x.dtype)
    if x.shape[2] == 1:
        _along_last(x.reshape(x.shape[:2]), places, weights, out.reshape(out.shape[:2]))
    else:
        _along(x, places, weights, out)
    return out
