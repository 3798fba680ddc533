"""Buffer leases: exclusive ownership of the arrays that programs write in place.

Called by ``executable``. An array is exclusive if only its Variable, and its lease, which all
programs share, refer to it.
"""

from __future__ import annotations

import sys
from weakref import WeakValueDictionary

import numpy as np
from numpy import ndarray

from odyssey.compiler.state_layout import BindingError
from odyssey.graph.graph import State
from odyssey.spec import Array
from odyssey.variable import Variable

__all__ = [
    "EXCLUSIVE_COUNT",
    "BufferLease",
    "assert_exclusive",
    "ensure_exclusive",
    "is_exclusive",
    "lease_of",
]

EXCLUSIVE_COUNT = 2
"""References to an exclusively owned array: from its Variable, and from its lease."""


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


def ensure_exclusive(state: State) -> None:
    """Give a state that a run rebinds an exclusively owned buffer (copy on write).

    A run may then write to it in place, and later runs keep the buffer.

    Raises:
        BindingError: another owner holds the array and must see its old elements.
    """
    variable = state.variable
    if type(variable._array) is not ndarray:
        return
    lease = lease_of(variable._array)
    if lease.array.flags.owndata and is_exclusive(lease):
        return
    if state.updates_old_array:
        raise BindingError(f"another owner holds the array of {state.label}")
    variable._array = np.array(lease.array)


def assert_exclusive(variable: Variable, lease: BufferLease) -> None:
    """Raise BindingError if a Variable has another array, or the array another owner."""
    # Without a call or a loop, no other thread runs between reading the count and the commit.
    if variable._array is not lease.array or not is_exclusive(lease):
        raise BindingError("another owner holds an array that is written to")


def is_exclusive(lease: BufferLease) -> bool:
    """Return whether only a Variable and the lease refer to an array."""
    return sys.getrefcount(lease.array) - 1 == EXCLUSIVE_COUNT  # the argument counts as well
