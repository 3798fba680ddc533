"""Whose an array is: copies, views that cannot be written to, and how a write is noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.spec import Array

__all__ = [
    "LARGE",
    "SMALL",
    "copy_if_shared",
    "copy_with_layout",
    "digest",
    "has_overlapping_elements",
    "is_referenced_elsewhere",
    "is_shared",
    "is_uniform",
    "is_writable",
    "owner_of",
    "owns_memory",
    "read_only_view",
    "same_bits",
    "sample_bytes",
    "view_key",
]

# Copying an array of this size costs less than locking and unlocking it.
SMALL = 2048

# Reading an array of this size twice costs less than copying it, and takes no memory.
LARGE = 1 << 20

# Arrays are compared in pieces of about so many elements, so that little memory is needed.
_PIECE = 65536


def _pseudo_random_weights(count: int) -> Array:
    """Odd numbers without a pattern: the generator of G. Steele and others, SplitMix64 (2014).

    Weights in a row, 1, 3, 5, would not tell when two rows that have one 1 each change places.
    """
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


_WEIGHTS = _pseudo_random_weights(1024)

_INTEGERS: dict[int, np.dtype[Any]] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}


def copy_with_layout(array: Array) -> Array:
    """Copy an array, laid out in memory as it is: matrix products and sums round by the layout.

    >>> duplicate(np.arange(3.0)[::-1]).strides
    (-8,)
    """
    if array.flags.c_contiguous:
        return array.copy()
    same = tuple(slice(None, None, -1 if stride < 0 else None) for stride in array.strides)
    return array[same].copy("K")[same]


def is_shared(out: Any, others: Sequence[Any] = ()) -> bool:
    """Whether ``out`` is an array that is one of ``others``, or a part of some other array."""
    if not isinstance(out, ARRAYS):
        return False
    return out.base is not None or any(out is other for other in others)


def copy_if_shared(out: Any, others: Sequence[Any] = ()) -> Any:
    """Return ``out``, or a copy of it where it ``is_shared``."""
    return out.copy() if is_shared(out, others) else out


# Where nobody counts references, all seems to be kept.
_references: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def is_referenced_elsewhere(box: list[Any], k: int = 0, places: int = 0) -> bool:
    """Whether somebody else has an array, or what it is a view of, and may write to it.

    Asked of what functions of users return: a workspace is written to by the next call.

    Args:
        box: A list that holds it, in no name but in ``places``.
        k: At which place of the list.
        places: How many others the caller knows of.
    """
    if not isinstance(box[k], ARRAYS):
        return False
    if _references(box[k]) > _FRESH + places:
        return True
    return box[k].base is not None and _references(box[k].base) > _FRESH


def _count_own_references() -> int:
    """The count of references that is seen of what one list holds, and nobody else."""
    box = [object()]
    return _references(box[0])


_FRESH = _count_own_references() if hasattr(sys, "getrefcount") else 0


def is_writable(array: Array) -> bool:
    """Whether an array can be written to, as far as it knows; its base may be all the same."""
    return bool(array.flags.writeable)


def owns_memory(array: Array) -> bool:
    """Whether an array has memory of its own, which may be written to: no view, nor locked.

    >>> x = np.zeros((2, 2))
    >>> owns_memory(x), owns_memory(x[0]), owns_memory(frozen(x))
    (True, False, False)
    """
    return array.base is None and bool(array.flags.writeable)


def owner_of(value: Any) -> Any:
    """The array that owns the memory of ``value``; None for what is not an array."""
    if not isinstance(value, ARRAY_LIKE):
        return None
    while isinstance(value.base, ARRAYS):
        value = value.base
    return value


def read_only_view(array: Array) -> Array:
    """A view of ``array`` that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def has_overlapping_elements(array: Array) -> bool:
    """Whether elements of an array lie on one another, so that not all can be written to.

    >>> x = np.zeros(3)
    >>> folded(np.broadcast_to(x, (2, 3))), folded(x[::2])
    (True, False)
    """
    if array.flags.forc:
        return False
    reach = array.itemsize
    for step, n in sorted((abs(s), n) for n, s in zip(array.shape, array.strides, strict=True)):
        if n > 1 and step < reach:
            break
        reach += step * max(n - 1, 0)
    else:
        return False
    # They may lie between one another: what each place is tells.
    places = np.zeros(1, np.int64)
    for n, s in zip(array.shape, array.strides, strict=True):
        places = (places[:, None] + np.arange(n) * s).reshape(-1)
    return bool((np.diff(np.sort(places)) < array.itemsize).any())


def sample_bytes(array: Array) -> bytes:
    """A few dozen elements of an array, by which it is known whether it was written to as a whole.

    It takes less than half a microsecond, whatever the size.
    """
    # An odd stride: a factorisation in place leaves the first row of a matrix as it is.
    return array.ravel("K")[:: array.size // 32 | 1].tobytes()


def view_key(array: Array) -> tuple[Any, ...]:
    """What two views have in common that show the same elements in the same way."""
    # (``__array_interface__`` makes Python's table of strings grow by and by.)
    return array.ctypes.data, array.shape, array.strides, array.dtype


def same_bits(x: Array, y: Array) -> bool:
    """Whether two arrays of one shape and dtype hold the same bits; NaN equals itself here.

    False as well for numbers that no integer is as long as.
    """
    if x.dtype.kind == "c":
        return same_bits(x.real, y.real) and same_bits(x.imag, y.imag)
    integer = _INTEGERS.get(x.dtype.itemsize)
    if integer is None:
        return False
    x, y = x.view(integer), y.view(integer)
    rows = max(1, _PIECE * len(x) // x.size) if x.ndim and x.size else 0
    if not rows:
        return bool((x == y).all())
    pieces = range(0, len(x), rows)
    return all(bool((x[k : k + rows] == y[k : k + rows]).all()) for k in pieces)


def is_uniform(array: Array) -> bool:
    """Whether an array is one number over and over, in rows or broadcast.

    >>> is_uniform(np.ones((2, 3))), is_uniform(np.array([0.0, -0.0]))
    (True, False)
    """
    if not array.flags.c_contiguous:
        longer = zip(array.shape, array.strides, strict=True)
        return not any(stride for length, stride in longer if length > 1)
    flat = array.reshape(-1)
    return not flat.size or same_bits(flat, np.broadcast_to(flat[:1], flat.shape))


def digest(array: Array) -> bytes:
    """Sums over all bits of an array, by which a write to any part of it is noticed.

    The words of each four kilobytes are summed modulo 2**64, each with an odd weight of its own: a
    change of one word, and an exchange of two, always shows; any other but by chance, of one to
    billions. It takes about the time that a copy takes, and no memory.
    """
    if array.flags.c_contiguous:
        return _digest_contiguous(array)
    if array.flags.f_contiguous:
        return _digest_contiguous(array.T)
    rows = max(1, _PIECE * len(array) // (array.size or 1))
    pieces = range(0, len(array), rows)
    return b"".join(_digest_contiguous(np.ascontiguousarray(array[k : k + rows])) for k in pieces)


def _digest_contiguous(contiguous: Array) -> bytes:
    data = contiguous.reshape(-1).view(np.uint8)
    whole = data.size - data.size % (4 * len(_WEIGHTS))
    words = data[:whole].view(np.uint32).reshape(-1, len(_WEIGHTS))
    sums = np.einsum("ij,j->i", words, _WEIGHTS, dtype=np.uint64, casting="unsafe")
    return bytes(sums.tobytes() + data[whole:].tobytes())
