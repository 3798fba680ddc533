"""Reading at integer indices, and adding there: one pass over the numbers, in their order.

What is added to one place is summed in the order of the indices; single numbers of single precision
in double precision, as NumPy's ``bincount`` does, whole rows in their own dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = ["add_lines", "add_numbers", "add_slices", "of_floats", "take_lines"]


def of_floats(x: Spec, *rest: Any) -> bool:
    """Whether numbers are read or added here: of single and double precision."""
    return x.dtype.char in "fd" and x.ndim > 0


# ------------------------------------------------------------------ loops


@loop
def _add_numbers(x: Any, places: Any, out: Any) -> Any:
    """Add numbers at places; return 1 + the number of a place that there is not, or 0."""
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
def _add_slices(x: Any, places: Any, out: Any) -> Any:
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
def _add_lines(x: Any, places: Any, out: Any) -> Any:
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
def _take_lines(x: Any, places: Any, out: Any) -> Any:
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


# ------------------------------------------------------------------ calls of them


def _check(bad: int, places: Array, length: int) -> None:
    if bad:
        raise IndexError(f"index {places.reshape(-1)[bad - 1]} is out of bounds for {length}")


def _as_places(places: Array) -> Array:
    return places if places.dtype == np.intp else places.astype(np.intp)


def add_numbers(x: Array, places: Array, length: int) -> Array:
    """A line of ``length`` zeros with the numbers of ``x`` added at places of any shape."""
    places = _as_places(places)
    out = np.zeros(length)
    _check(_add_numbers(x.reshape(-1), places.reshape(-1), out), places, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def add_slices(x: Array, places: Array, heads: int, length: int, tail: int) -> Array:
    """``heads`` matrices of ``length`` rows of zeros, to which those of ``x`` are added."""
    places = _as_places(places)
    out = np.zeros((heads, length, tail), x.dtype)
    given = x.reshape(heads, places.size, tail)
    _check(_add_slices(given, places.reshape(-1), out), places, length)
    return out


def add_lines(x: Array, places: Array, shape: Shape) -> Array:
    """Zeros of a shape with the numbers of ``x`` added, in each line at places of its own."""
    places = _as_places(places)
    out, length = np.zeros(shape), shape[-1]
    lines = (math.prod(shape[:-1]), places.shape[-1])
    given = x.reshape(lines), places.reshape(lines), out.reshape(lines[0], length)
    _check(_add_lines(*given), places, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def take_lines(x: Array, places: Array) -> Array:
    """The numbers at places of their own in each line."""
    places = _as_places(places)
    out = np.empty(places.shape, x.dtype)
    length = x.shape[-1]
    lines = (math.prod(x.shape[:-1]), places.shape[-1])
    given = x.reshape(lines[0], length), places.reshape(lines), out.reshape(lines)
    _check(_take_lines(*given), places, length)
    return out
