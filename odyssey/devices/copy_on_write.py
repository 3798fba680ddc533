"""Copy on write: whether anybody else holds an array that the library is about to write to.

A Variable's array is written in place if only the Variable refers to it. Otherwise the Variable
gets a new array, and every other holder keeps the old numbers: a caller whose array became a
constant, a snapshot, another Variable, the result of a reshape, a thread in the middle of an op.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from odyssey.spec import Array

__all__ = [
    "EXCLUSIVE_COUNT",
    "SLOT_COUNT",
    "SNAPSHOT_SIZE",
    "BufferLease",
    "ParameterMemory",
    "StateMemory",
    "has_exclusive_array",
    "is_exclusive",
    "is_held_by_recordings_only",
    "is_pinned",
    "lease_of",
    "note_kept_recording",
    "packed_view",
    "references",
]

# Packed parameters below this number of elements share one buffer, so a snapshot of one copies it:
# a view would keep the whole buffer alive, and make the next step of an optimizer move all of them.
SNAPSHOT_SIZE = 16384


class ParameterMemory(np.ndarray):
    """Memory of packed parameters, the base of each parameter's array.

    NumPy gives a view the base of the array that it is taken from, unless the classes of array and
    base differ. So each view of a packed parameter refers to the parameter's own array, and the
    reference count of this array counts its views.
    """


class StateMemory(np.ndarray):
    """Memory of an optimizer's packed state, which users see as copies only."""


def packed_view(memory: Array) -> Array:
    """Return a packed Variable's array, whose views refer to it and not to ``memory``.

    >>> array = packed_view(np.zeros(4).view(ParameterMemory)[:2])
    >>> array[:1].base is array, type(array.base) is ParameterMemory
    (True, True)
    """
    return memory.view(np.ndarray)


class BufferLease:
    """Shared reference to a buffer: all programs bound to it count as one reference."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Array) -> None:
        self.array = array


_LEASES: WeakValueDictionary[int, BufferLease] = WeakValueDictionary()


def lease_of(array: Array) -> BufferLease:
    """Return the lease of an array, the one that every program shares."""
    lease = _LEASES.get(id(array))
    if lease is None or lease.array is not array:
        lease = _LEASES[id(array)] = BufferLease(array)
    return lease


EXCLUSIVE_COUNT = 2
"""References to an exclusively owned array: from its Variable, and from its lease."""


def is_exclusive(lease: BufferLease) -> bool:
    """Return whether only a Variable and the lease refer to an array."""
    return sys.getrefcount(lease.array) - 1 == EXCLUSIVE_COUNT  # the argument counts as well


def is_pinned(array: Array) -> bool:
    """Return whether an array is part of an optimizer's packed state, which stays where it is."""
    return type(array.base) is StateMemory


# Without exact reference counts, every array counts as held by others.
_counts_are_exact = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
references: Callable[[Any], int] = sys.getrefcount if _counts_are_exact else lambda _: sys.maxsize


def _count_slot_references() -> int:
    """Return the reference count of an object that only an attribute holds."""
    lease = BufferLease(np.zeros(1))
    return references(lease.array)


# The reference count of an array that only a Variable refers to.
SLOT_COUNT = _count_slot_references() if _counts_are_exact else 0


def has_exclusive_array(value: Any) -> bool:
    """Return whether only a Variable, and a lease, refer to its array, which owns its memory.

    No local variable of the callers may hold the array.
    """
    if references(value._array) != SLOT_COUNT + _is_leased(value._array):
        return False
    array = value._array
    return bool(array.flags.owndata) or type(array.base) in _PACKED


_PACKED = (ParameterMemory, StateMemory)


def _is_leased(array: Array) -> bool:
    lease = _LEASES.get(id(array))
    return lease is not None and lease.array is array


# Recordings that were kept after a sweep, each with a count of the arrays that its nodes saved:
# the number of nodes, the negative id of the last one, and the references by the id of an array.
_KEPT_RECORDINGS: WeakKeyDictionary[Any, tuple[int, int, dict[int, int]]] = WeakKeyDictionary()


def note_kept_recording(recording: Any) -> None:
    """Note that a recording keeps its nodes after a sweep; see ``is_held_by_recordings_only``."""
    if recording not in _KEPT_RECORDINGS:
        _KEPT_RECORDINGS[recording] = (0, 0, {})


def is_held_by_recordings_only(leaf: Any) -> bool:
    """Return whether all other holders of a trainable leaf's array are kept recordings.

    These look at the version of the leaf, and refuse to use the array once it was written to. So a
    write in place is safe, as long as the version changes.
    """
    others = 0
    for recording in list(_KEPT_RECORDINGS):
        others += _saved_references(recording).get(id(leaf._array), 0)
    return references(leaf._array) == SLOT_COUNT + _is_leased(leaf._array) + others


def _saved_references(recording: Any) -> dict[int, int]:
    """Return how often the nodes of a recording save each array, by the array's id."""
    nodes = recording.nodes
    known = _KEPT_RECORDINGS.get(recording)
    if not nodes:
        return {}
    # The negative id is another int object: references to ids tell which results are alive.
    count, last = len(nodes), -nodes[-1][1]
    if known is not None and known[:2] == (count, last):
        return known[2]
    counts: dict[int, int] = {}
    for node in list(nodes):
        for saved in node[3] or ():
            if type(saved) is np.ndarray:
                counts[id(saved)] = counts.get(id(saved), 0) + 1
    _KEPT_RECORDINGS[recording] = (count, last, counts)
    return counts
