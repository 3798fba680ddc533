"""Adding rows of numbers to the rows of zeros that they are meant for, repeats and all.

``np.add.at`` would do it in one call, at 4 to 9 ns a number; what is here takes 1 to 2.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from odyssey.spec import Array, Shape, Spec

__all__ = ["added_rows", "in_range", "put_under", "zeros"]

# From so many numbers in a row on, whole rows are added; below, numbers are counted one by one.
_LONG = 16


# Numbers are counted in blocks of so many, whose places stay in the processor's cache.
_BLOCK = 1 << 15


def in_range(places: Array, length: int) -> Array:
    """Places along an axis of ``length``, of which negative ones count from the end, as intp.

    Raises:
        IndexError: for a place that the axis does not have.
    """
    if not places.size:
        return places.astype(np.intp, copy=False)
    # Read without a sign, negative ones are the largest of all: one search instead of two.
    if places.dtype == np.intp and places.view(np.uintp).max() < length:
        return places
    low, high = places.min(), places.max()
    if low < -length or high >= length:
        raise IndexError(f"index {low if low < 0 else high} is out of bounds for {length}")
    places = places.astype(np.intp, copy=False)  # in which the sum has room
    return np.where(places < 0, places + length, places) if low < 0 else places


def put_under(array: Array, shape: Shape) -> Array:
    """An array that nobody else has under another shape of as many elements.

    It is no view, as from ``reshape``, which would be copied before it is handed out; and to set
    ``array.shape`` is deprecated from NumPy 2.5 on.
    """
    array.resize(shape, refcheck=False)
    return array


def zeros(spec: Spec | None, like: Array) -> Array:
    """Zeros of the shape of ``spec`` and the dtype of ``like``; a plain array."""
    return np.zeros(() if spec is None else spec.shape, like.dtype)  # None is a number's


def added_rows(x: Array, places: Array, count: int) -> Array:
    """A matrix of ``count`` rows, zeros to which row ``n`` of ``x`` is added in row ``places[n]``.

    Sums go in the order of the rows, in the dtype of ``x`` or a wider one.

    Args:
        x: A matrix.
        places: For each of its rows a number from 0 to ``count`` - 1, of dtype intp.
        count: How many rows the result has.
    """
    kind, length = x.dtype.char, x.shape[1]
    if kind in "FD":
        parts = np.ascontiguousarray(x).view(kind.lower())
        return added_rows(parts, places, count).view(x.dtype)
    if kind == "e":
        return added_rows(x.astype(np.float32), places, count).astype(x.dtype)
    if kind not in "fd":
        out = np.zeros((count, length), x.dtype)
        np.add.at(out, places, x)
        return out
    return _by_row(x, places, count) if length >= _LONG else _by_number(x, places, count)


def _by_number(x: Array, places: Array, count: int) -> Array:
    rows, length = x.shape
    if length == 1:  # whose sums are made in float64
        sums = np.bincount(places, x.reshape(-1), count).astype(x.dtype, copy=False)
        return put_under(sums, (count, 1))
    out = np.zeros((count, length), x.dtype)
    flat, along = out.reshape(-1), np.arange(length)
    step = max(1, _BLOCK // max(1, length))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        # On one axis, and only there, it takes 1.3 ns a number.
        np.add.at(flat, (places[part, None] * length + along).reshape(-1), x[part].reshape(-1))
    return out


def _by_row(x: Array, places: Array, count: int) -> Array:
    """As many rows at a time as go to places of their own.

    The places that most rows go to come first: those that have an n-th row are then the first
    ones, and their sums one block of memory.
    """
    out = np.zeros((count, x.shape[1]), x.dtype)
    order = _stable_order(places, count)
    ordered = places[order]
    begins = np.empty(len(ordered), bool)
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    firsts = begins.nonzero()[0]
    if len(firsts) == len(places):
        out[places] = x
        return out
    repeats = np.diff(firsts, append=len(places))
    most = int(repeats.max())
    firsts = firsts[_stable_order(most - repeats, most)]
    # How many places have more than n rows, for each n.
    left = (len(firsts) - np.bincount(repeats).cumsum()).tolist()
    # ``take`` is the faster one, but would begin with a copy of an array that is not contiguous.
    pick = partial(x.take, axis=0) if x.flags.c_contiguous else x.__getitem__
    sums = pick(order[firsts])
    n = 1
    while n < most and left[n] > most - n:
        at = left[n]
        part = sums[:at]
        np.add(part, pick(order[firsts[:at] + n]), part)
        n += 1
    if n < most:  # fewer places than rounds are left: a place at a time
        lengths = np.sort(repeats)[::-1]
        for k in range(left[n]):
            first = firsts[k]
            rest = pick(order[first + n : first + lengths[k]])
            np.add(sums[k], np.add.reduce(rest, 0), sums[k])
    out[ordered[firsts]] = sums
    return out


def _stable_order(keys: Array, end: int) -> Array:
    """What sorts integers from 0 to ``end`` - 1, equal ones in the order in which they came."""
    if end <= 1 << 16:  # NumPy sorts 16 bits by counting, nine times as fast as 64
        return keys.astype(np.uint16).argsort(kind="stable")
    if end <= 1 << 32:
        order = (keys & 0xFFFF).astype(np.uint16).argsort(kind="stable")
        return order[(keys >> 16).astype(np.uint16)[order].argsort(kind="stable")]
    return keys.argsort(kind="stable")
