"""Read-only locks on foreign arrays that tapes need unchanged; tapes share them.

A lock lasts as long as its ``_Lock`` object. Recordings hold it in a dictionary; when the last one
drops it, a weak-reference callback makes the array writable again. All of that is done in C, so it
happens wherever Python code was interrupted, and needs no lock against other threads.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any
from weakref import ref

import numpy as np

from odyssey.spec import Array

__all__ = ["is_locked", "lock_array", "lock_holders", "locked_bytes", "unlock_all_except"]


class _Lock:
    """A lock of one array, shared by all tapes of the process that save the array."""

    __slots__ = ("__weakref__", "array", "holders", "views")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.holders: list[ref[Any]] = []
        self.views: list[_Lock] = []


# Weak references to the lock, by the array's id: their callbacks remove the entry from this table
# and make the array writable. The second one holds the array, so the id is not reused.
_HELD: dict[int, tuple[ref[_Lock], ref[_Lock]]] = {}

# A counter: no lock was made between two consecutive numbers.
_lock_count = count().__next__

# By position: with the argument's name the call would take twice as long.
_set_writable: Any = np.ndarray.setflags


def lock_array(array: Array, held: dict[int, Any], holder: Any = None) -> None:
    """Make ``array`` read-only until every dictionary ``held`` that has its lock drops it.

    Args:
        array: Unchanged if its owner made it read-only.
        held: Receives the lock, by the array's id.
        holder: Owner of ``held``, for messages.
    """
    was = array.flags.writeable
    # Not by way of a variable, which the traceback of an interrupt would keep alive.
    held[id(array)] = _find_or_make_lock(array)
    _set_writable(array, False)
    if holder is not None:
        getattr(held.get(id(array)), "holders", []).append(ref(holder))
    if was and id(array) not in held and not is_locked(array):  # dropped by a signal handler
        _set_writable(array, True)


def lock_holders(array: Array) -> list[Any]:
    """Return the live holders of the lock of ``array``."""
    entry = _HELD.get(id(array))
    known = entry[0]() if entry is not None else None
    found = [holder() for holder in known.holders] if known is not None else []
    return [h for k, h in enumerate(found) if h is not None and h.locked and h not in found[:k]]


def is_locked(array: Array) -> bool:
    """Return whether an array is read-only because of a lock."""
    return id(array) in _HELD


def _find_or_make_lock(array: Array) -> _Lock:
    """Return the lock of ``array``, a new one if it has none."""
    key, flags = id(array), array.flags
    pair = None  # assigned before ``made``, so that its callbacks are dropped first, see below
    while True:
        before = _lock_count()
        # Read before the look-up: another thread may be locking it. ``flags`` would be outdated.
        writable = array.flags.writeable
        entry = _HELD.get(key)
        known = entry[0]() if entry is not None else None
        if known is not None:
            return known
        made = _Lock(array)
        if writable:
            # Callbacks are called with the dead reference: to ``pop`` that is the default, to
            # ``setflags`` it means that the array is aligned, and to ``setattr`` it is true.
            if flags.aligned:
                reopen = partial(_set_writable, array, True)
            else:
                reopen = partial(setattr, flags, "writeable")
            pair = ref(made, partial(_HELD.pop, key)), ref(made, reopen)
            _HELD.setdefault(key, pair)
            _lock_count()
            if array.base is not None:
                _extend_view_lock(made, array.base)
            # Another thread's pair may be in the table now: this lock must not open the array.
            pair = None
        elif not array.flags.writeable and _lock_count() == before + 1:
            # Read-only by its owner: no thread can have locked it meanwhile.
            return made


def _extend_view_lock(lock: _Lock, base: Any) -> None:
    """Make the lock of a view last as long as the locks of its bases."""
    while isinstance(base, np.ndarray):
        entry = _HELD.get(id(base))
        known = entry[0]() if entry is not None else None
        if known is not None:
            known.views.append(lock)
        base = base.base


def unlock_all_except(needed: set[int]) -> None:
    """Unlock the arrays whose ids are not ``needed``, even if their locks are referenced.

    Needed in the child of a fork, where threads that no longer exist keep their references.
    """
    for key in [key for key in list(_HELD) if key not in needed]:
        forget, _ = _HELD.pop(key)
        held = forget()
        if held is not None:
            held.array.flags.writeable = True


def locked_bytes() -> int:
    """Return the bytes of all arrays that tapes hold locked now."""
    found = (forget() for forget, _ in list(_HELD.values()))
    return sum(held.array.nbytes for held in found if held is not None)
