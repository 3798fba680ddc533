"""Ownership and aliasing of arrays: copies, views, memory spans, and detection of writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.backends import Backend, backend_of
from odyssey.devices.same_device import array_copy
from odyssey.spec import Array

__all__ = [
    "LARGE",
    "SMALL",
    "address_of",
    "copy_if_shared",
    "copy_with_layout",
    "digest",
    "has_overlapping_elements",
    "has_overlapping_writes",
    "is_foreign",
    "is_referenced_elsewhere",
    "is_shared",
    "is_sole_view",
    "is_uniform",
    "is_writable",
    "may_alias",
    "memory_span",
    "note_foreign",
    "overlaps",
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

# Arrays are compared in chunks of about this many elements, to bound the memory.
_CHUNK = 65536


def _pseudo_random_weights(count: int) -> Array:
    """Odd pseudo-random weights: SplitMix64, Steele, Lea and Flood 2014.

    Weights 1, 3, 5, ... would not detect the exchange of two rows that have a single 1 each.
    """
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return (z >> np.uint64(32)).astype(np.uint32) | np.uint32(1)


_WEIGHTS = _pseudo_random_weights(1024)

_INTEGERS: dict[int, np.dtype[Any]] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}


def copy_with_layout(array: Array) -> Array:
    """Copy an array and keep its memory layout, which decides how matrix products and sums round.

    >>> copy_with_layout(np.arange(3.0)[::-1]).strides
    (-8,)
    """
    if backend_of(array) is not None:
        return array_copy(array)
    if array.flags.c_contiguous:
        return array.copy()
    same = tuple(slice(None, None, -1 if stride < 0 else None) for stride in array.strides)
    return array[same].copy("K")[same]


def is_shared(out: Any, others: Sequence[Any] = ()) -> bool:
    """Return whether ``out`` is one of ``others``, or a view."""
    if not isinstance(out, ARRAYS):
        return False
    return out.base is not None or any(out is other for other in others)


def copy_if_shared(out: Any, others: Sequence[Any] = ()) -> Any:
    """Return ``out``, or a copy of it if ``is_shared`` is true."""
    if not is_shared(out, others):
        return out
    return out.copy() if backend_of(out) is None else array_copy(out, order="C")


# Without reference counts, every array counts as referenced.
_references: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def is_referenced_elsewhere(box: list[Any], k: int = 0, places: int = 0) -> bool:
    """Return whether other code references an array, or its base, and so may write to it.

    Used on results of users' functions: a function may reuse a workspace in its next call.

    Args:
        box: A list that holds the array, which no variable holds.
        k: Position in the list.
        places: Number of further references that the caller knows of.
    """
    if not isinstance(box[k], ARRAYS):
        return False
    if _references(box[k]) > _FRESH + places:
        return True
    return box[k].base is not None and _references(box[k].base) > _FRESH


def is_sole_view(array: Any) -> bool:
    """Return whether a large array is the one view of all of the memory of another array.

    Such a view need not be copied to be independent, if nothing else refers to the view itself.
    """
    return (
        array.nbytes > SMALL
        and type(array.base) is np.ndarray
        and array.base.nbytes == array.nbytes
        and array.flags.forc
        and bool(array.flags.writeable)
        and _references(array.base) <= _FRESH
    )


def _count_own_references() -> int:
    """Return the reference count of an object that only one list holds."""
    box = [object()]
    return _references(box[0])


_FRESH = _count_own_references() if hasattr(sys, "getrefcount") else 0


def is_writable(array: Array) -> bool:
    """Return the array's writeable flag; its base may be writable even if it is not.

    True on a device, which has no read-only arrays.
    """
    if type(array) is not np.ndarray and backend_of(array) is not None:
        return True
    return bool(array.flags.writeable)


def owns_memory(array: Array) -> bool:
    """Return whether an array is neither a view nor read-only.

    >>> x = np.zeros((2, 2))
    >>> owns_memory(x), owns_memory(x[0]), owns_memory(read_only_view(x))
    (True, False, False)
    """
    return array.base is None and is_writable(array)


def owner_of(value: Any) -> Any:
    """Return the array that owns the memory of ``value``; None if that is not an array."""
    if not isinstance(value, ARRAY_LIKE):
        return None
    while isinstance(value.base, ARRAYS):
        value = value.base
    return value


def read_only_view(array: Array) -> Array:
    """Return a read-only view of ``array``; on a device, which has none, a copy."""
    if type(array) is not np.ndarray and backend_of(array) is not None:
        return array_copy(array)
    view = array.view()
    view.flags.writeable = False
    return view


def has_overlapping_elements(array: Array) -> bool:
    """Return whether elements of an array overlap in memory, so that not all can be written.

    >>> x = np.zeros(3)
    >>> has_overlapping_elements(np.broadcast_to(x, (2, 3))), has_overlapping_elements(x[::2])
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
    # They may interleave: compare the offsets of all elements.
    offsets = np.zeros(1, np.int64)
    for n, s in zip(array.shape, array.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(n) * s).reshape(-1)
    return bool((np.diff(np.sort(offsets)) < array.itemsize).any())


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    backend = backend_of(array)
    if backend is not None:
        return backend.pointer(array)
    address: int = array.__array_interface__["data"][0]
    return address


def memory_span(array: Array) -> tuple[int, int]:
    """Return the first address of an array's memory and the address behind its last byte.

    >>> x = np.zeros(4)
    >>> start, end = memory_span(x[::-2])
    >>> start - address_of(x), end - start
    (8, 24)
    """
    backend = backend_of(array)
    if backend is not None:
        return backend.memory_span(array)
    start = end = address_of(array)
    if not array.size:
        return start, start
    for n, s in zip(array.shape, array.strides, strict=True):
        if s > 0:
            end += (n - 1) * s
        else:
            start += (n - 1) * s
    return start, end + array.itemsize


def overlaps(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    """Return whether a memory span overlaps one of ``others``.

    >>> overlaps((0, 8), [(8, 16)]), overlaps((0, 9), [(8, 16)])
    (False, True)
    """
    start, end = span
    return any(start < high and low < end for low, high in others)


def has_overlapping_writes(spans: Iterable[tuple[int, int, bool]]) -> bool:
    """Return whether a memory span that is written to overlaps another.

    Args:
        spans: The start, the end, and whether the span is written to.

    >>> has_overlapping_writes([(0, 8, False), (4, 12, False), (16, 24, True)])
    False
    >>> has_overlapping_writes([(0, 8, False), (4, 12, True)])
    True
    """
    reach, reach_is_written = -1, False
    for start, end, written in sorted(spans):
        if start < reach and (written or reach_is_written):
            return True
        if end > reach:
            reach, reach_is_written = end, written
    return False


def may_alias(array: Any, others: Iterable[Any]) -> bool:
    """Return whether the memory span of an array overlaps that of one of ``others``.

    Arrays that interleave, as ``x[::2]`` and ``x[1::2]``, count as aliases; empty ones do not.

    >>> x = np.zeros(4)
    >>> may_alias(x[:2], [x[2:]]), may_alias(x[::2], [x[2:], x[1::2]])
    (False, True)
    """
    backend = backend_of(array)
    if backend is None:
        return any(
            backend_of(other) is None and np.may_share_memory(array, other) for other in others
        )
    own = backend.memory_span(array)
    index = backend.device_index(array)
    return any(
        backend_of(other) is backend
        and backend.device_index(other) == index
        and overlaps(own, [backend.memory_span(other)])
        for other in others
    )


def sample_bytes(array: Array) -> bytes:
    """Return the bytes of a few dozen elements, to detect that the whole array was overwritten.

    It takes less than half a microsecond for any size.
    """
    if backend_of(array) is not None:
        return digest(array)
    # An odd stride: a factorisation in place leaves the first row of a matrix as it is.
    return array.ravel("K")[:: array.size // 32 | 1].tobytes()


def view_key(array: Array) -> tuple[Any, ...]:
    """Return a key that is equal for two views of the same elements in the same layout."""
    if type(array) is not np.ndarray and backend_of(array) is not None:
        return address_of(array), array.shape, array.strides, array.dtype
    # Not ``__array_interface__``, which makes Python's table of interned strings grow.
    return array.ctypes.data, array.shape, array.strides, array.dtype


def same_bits(x: Array, y: Array) -> bool:
    """Return whether two arrays of one shape and dtype hold the same bits; NaN equals itself here.

    False for dtypes of a size that no integer has.
    """
    if x.dtype.kind == "c":
        return same_bits(x.real, y.real) and same_bits(x.imag, y.imag)
    integer = _INTEGERS.get(x.dtype.itemsize)
    if integer is None:
        return False
    x, y = x.view(integer), y.view(integer)
    rows = max(1, _CHUNK * len(x) // x.size) if x.ndim and x.size else 0
    if not rows:
        return bool((x == y).all())
    pieces = range(0, len(x), rows)
    return all(bool((x[k : k + rows] == y[k : k + rows]).all()) for k in pieces)


def is_uniform(array: Array) -> bool:
    """Return whether all elements of an array, contiguous or broadcast, are equal.

    >>> is_uniform(np.ones((2, 3))), is_uniform(np.array([0.0, -0.0]))
    (True, False)
    """
    if not array.flags.c_contiguous:
        longer = zip(array.shape, array.strides, strict=True)
        return not any(stride for length, stride in longer if length > 1)
    flat = array.reshape(-1)
    return not flat.size or same_bits(flat, np.broadcast_to(flat[:1], flat.shape))


def digest(array: Array) -> bytes:
    """Return a checksum of all bits of an array, to detect a write to any element.

    The words of each four kilobytes are summed modulo 2**64, each with its own odd weight: a change
    of one word, or an exchange of two, is always detected; any other change fails to be detected
    with a probability of one in billions. It takes about as long as a copy, and no memory.
    """
    backend = backend_of(array)
    if backend is not None:
        return _digest_on_device(array, backend)
    if array.flags.c_contiguous:
        return _digest_contiguous(array)
    if array.flags.f_contiguous:
        return _digest_contiguous(array.T)
    rows = max(1, _CHUNK * len(array) // (array.size or 1))
    pieces = range(0, len(array), rows)
    return b"".join(_digest_contiguous(np.ascontiguousarray(array[k : k + rows])) for k in pieces)


def _digest_contiguous(contiguous: Array) -> bytes:
    data = contiguous.reshape(-1).view(np.uint8)
    end = data.size - data.size % (4 * len(_WEIGHTS))
    words = data[:end].view(np.uint32).reshape(-1, len(_WEIGHTS))
    sums = np.einsum("ij,j->i", words, _WEIGHTS, dtype=np.uint64, casting="unsafe")
    return bytes(sums.tobytes() + data[end:].tobytes())


def _digest_on_device(array: Any, backend: Backend) -> bytes:
    """Return the digest of a device's array, computed there; one small copy to the host."""
    index = backend.device_index(array)
    xp = backend.namespace

    def sums() -> Any:
        data = xp.ascontiguousarray(array).reshape(-1).view(np.uint8)
        end = data.size - data.size % (4 * len(_WEIGHTS))
        words = data[:end].view(np.uint32).reshape(-1, len(_WEIGHTS))
        weights = backend.cache(index).get(
            "digest weights", lambda: backend.to_device(_WEIGHTS.astype(np.uint64), index)
        )
        rows = max(1, _CHUNK // len(_WEIGHTS))
        parts = [
            (words[k : k + rows].astype(np.uint64) * weights).sum(1)
            for k in range(0, len(words), rows)
        ]
        return [*parts, data[end:]]

    found = backend.call("digest", index, sums)
    return b"".join(backend.to_host(part).tobytes() for part in found)


# Arrays of devices that users passed to ops, by id; see ``note_foreign``.
_FOREIGN: WeakValueDictionary[int, Any] = WeakValueDictionary()


def note_foreign(array: Any) -> None:
    """Note that a device's array belongs to a user, who may write to it at any time.

    Arrays of Variables are the library's alone there: what is handed out is a copy.
    """
    _FOREIGN[id(array)] = array


def is_foreign(array: Any) -> bool:
    """Return whether a user passed this array of a device to an op."""
    return array is not None and _FOREIGN.get(id(array)) is array
