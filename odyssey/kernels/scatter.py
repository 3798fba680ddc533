"""Gather and scatter-add at integer indices, in one pass over the elements.

Repeated indices accumulate in order: float32 elements in double precision, as in NumPy's
``bincount``, whole rows in their own dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = [
    "scatter_add_lines",
    "scatter_add_elements",
    "scatter_add_slices",
    "has_float_dtype",
    "gather_lines",
]


def has_float_dtype(x: Spec, *rest: Any) -> bool:
    """Return whether a gather or scatter has a compiled loop: for float32 and float64."""
    return x.dtype.char in "fd" and x.ndim > 0


# ------------------------------------------------------------------ loops


@loop
def _add_elements_loop(x: Any, places: Any, out: Any) -> Any:
    """Add elements at indices; return 0, or 1 + the position of an index out of range."""
    length = out.size
    for k in range(x.size):
        place = places[k]
        if place < 0:
            place += length
        if place < 0 or place >= length:
            return k + 1
        out[place] += x[k]
    return 0


@loop
def _add_slices_loop(x: Any, places: Any, out: Any) -> Any:
    heads, length, tail = out.shape
    for h in range(heads):
        for k in range(places.size):
            place = places[k]
            if place < 0:
                place += length
            if place < 0 or place >= length:
                return k + 1
            for t in range(tail):
                out[h, place, t] += x[h, k, t]
    return 0


@loop
def _add_lines_loop(x: Any, places: Any, out: Any) -> Any:
    lines, length = out.shape
    for i in range(lines):
        for k in range(places.shape[1]):
            place = places[i, k]
            if place < 0:
                place += length
            if place < 0 or place >= length:
                return i * places.shape[1] + k + 1
            out[i, place] += x[i, k]
    return 0


@loop
def _gather_lines_loop(x: Any, places: Any, out: Any) -> Any:
    lines, length = x.shape
    for i in range(lines):
        for k in range(places.shape[1]):
            place = places[i, k]
            if place < 0:
                place += length
            if place < 0 or place >= length:
                return i * places.shape[1] + k + 1
            out[i, k] = x[i, place]
    return 0


# ------------------------------------------------------------------ entry points


def _raise_out_of_range(bad: int, places: Array, length: int) -> None:
    if bad:
        raise IndexError(f"index {places.reshape(-1)[bad - 1]} is out of bounds for {length}")


def _as_indices(places: Array) -> Array:
    return places if places.dtype == np.intp else places.astype(np.intp)


def scatter_add_elements(x: Array, places: Array, length: int) -> Array:
    """Return ``length`` zeros with the elements of ``x`` added at indices of any shape."""
    places = _as_indices(places)
    out = np.zeros(length)
    _raise_out_of_range(_add_elements_loop(x.reshape(-1), places.reshape(-1), out), places, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def scatter_add_slices(x: Array, places: Array, heads: int, length: int, tail: int) -> Array:
    """Return matrices with ``length`` rows of zeros, to which the rows of ``x`` are added."""
    places = _as_indices(places)
    out = np.zeros((heads, length, tail), x.dtype)
    given = x.reshape(heads, places.size, tail)
    _raise_out_of_range(_add_slices_loop(given, places.reshape(-1), out), places, length)
    return out


def scatter_add_lines(x: Array, places: Array, shape: Shape) -> Array:
    """Return zeros with the elements of ``x`` added, in each line at its own indices."""
    places = _as_indices(places)
    out, length = np.zeros(shape), shape[-1]
    lines = (math.prod(shape[:-1]), places.shape[-1])
    given = x.reshape(lines), places.reshape(lines), out.reshape(lines[0], length)
    _raise_out_of_range(_add_lines_loop(*given), places, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def gather_lines(x: Array, places: Array) -> Array:
    """Return the elements of each line at its own indices."""
    places = _as_indices(places)
    out = np.empty(places.shape, x.dtype)
    length = x.shape[-1]
    lines = (math.prod(x.shape[:-1]), places.shape[-1])
    given = x.reshape(lines[0], length), places.reshape(lines), out.reshape(lines)
    _raise_out_of_range(_gather_lines_loop(*given), places, length)
    return out
