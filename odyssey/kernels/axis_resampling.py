"""Resampling along one axis: weighted sums of a few elements."""

from __future__ import annotations

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array

__all__ = ["weighted_gather"]


@loop
def _gather_last_axis(x, places, weights, out):  # type: ignore[no-untyped-def]
    for n in range(x.shape[0]):
        line, into = x[n], out[n]
        for k in range(places.shape[0]):
            for i in range(places.shape[1]):
                # An element of weight 0 is not read, even if infinite.
                if weights[k, i] != 0:
                    into[i] += weights[k, i] * line[places[k, i]]


@loop
def _gather_axis(x, places, weights, out):  # type: ignore[no-untyped-def]
    for n in range(x.shape[0]):
        for i in range(places.shape[1]):
            into = out[n, i]
            for k in range(places.shape[0]):
                weight = weights[k, i]
                if weight != 0:
                    line = x[n, places[k, i]]
                    for c in range(into.size):
                        into[c] += weight * line[c]


def weighted_gather(x: Array, places: Array, weights: Array) -> Array:
    """Return, for each column of ``places``, the weighted sum of these elements along axis 1."""
    out = np.zeros((len(x), places.shape[1], x.shape[2]), x.dtype)
    if x.shape[2] == 1:
        _gather_last_axis(x.reshape(x.shape[:2]), places, weights, out.reshape(out.shape[:2]))
    else:
        _gather_axis(x, places, weights, out)
    return out
