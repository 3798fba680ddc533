"""Keeping the arrays of others unchanged while a tape needs them: shared read-only locks.

A lock lasts as long as the object that stands for it. Recordings hold it in a dictionary; when the
last of them lets it go, a callback opens the array. All of that is done by C: it happens wherever
Python code was interrupted, and needs no guard against other threads.
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
    """Stands for one locked array; process wide, because several tapes may save one array."""

    __slots__ = ("__weakref__", "array", "holders", "views")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.holders: list[ref[Any]] = []
        self.views: list[_Lock] = []


# By the array's id: weak references to its lock, whose callbacks take the entry out of this table
# and open the array. The second one holds the array, so an id stays whose it is.
_HELD: dict[int, tuple[ref[_Lock], ref[_Lock]]] = {}

# Numbers of moments: between two that follow each other no lock was made.
_moment = count().__next__

# By position: with the argument's name the call would take twice as long.
_set_writable: Any = np.ndarray.setflags


def lock_array(array: Array, held: dict[int, Any], holder: Any = None) -> None:
    """Make ``array`` read-only until ``held``, and all others that it was locked for, let it go.

    Args:
        array: Stays as it is where its owner made it read-only.
        held: Gets what stands for the lock, by the array's id.
        holder: Whose ``held`` that is, for messages.
    """
    was = array.flags.writeable
    # Not by way of a variable, which the traceback of an interrupt would keep alive.
    held[id(array)] = _find_or_make_lock(array)
    _set_writable(array, False)
    if holder is not None:
        getattr(held.get(id(array)), "holders", []).append(ref(holder))
    if was and id(array) not in held and not is_locked(array):  # a handler of signals let it go
        _set_writable(array, True)


def lock_holders(array: Array) -> list[Any]:
    """Who locked ``array`` and still holds it."""
    entry = _HELD.get(id(array))
    known = entry[0]() if entry is not None else None
    found = [holder() for holder in known.holders] if known is not None else []
    return [h for k, h in enumerate(found) if h is not None and h.locked and h not in found[:k]]


def is_locked(array: Array) -> bool:
    """Whether an array is read-only for a while, and will be opened again."""
    return id(array) in _HELD


def _find_or_make_lock(array: Array) -> _Lock:
    """What stands for the lock of ``array``: found, or made."""
    key, flags = id(array), array.flags
    pair = None  # named before ``made``, so that its callbacks are gone first, see below
    while True:
        before = _moment()
        # Before the look-up: another thread may be locking it. ``flags`` would say what they were.
        writable = array.flags.writeable
        entry = _HELD.get(key)
        known = entry[0]() if entry is not None else None
        if known is not None:
            return known
        made = _Lock(array)
        if writable:
            # Callbacks are called with the dead reference: to ``pop`` that is the default, to
            # ``setflags`` it says that the array is aligned, and to ``setattr`` it is a truth.
            if flags.aligned:
                reopen = partial(_set_writable, array, True)
            else:
                reopen = partial(setattr, flags, "writeable")
            pair = ref(made, partial(_HELD.pop, key)), ref(made, reopen)
            _HELD.setdefault(key, pair)
            _moment()
            if array.base is not None:
                _extend_view_lock(made, array.base)
            # Another thread's pair may be in the table now: this lock must not open the array.
            pair = None
        elif not array.flags.writeable and _moment() == before + 1:
            # Its owner made it so: nobody can have locked it meanwhile.
            return made


def _extend_view_lock(lock: _Lock, base: Any) -> None:
    """Let the lock of a view last as long as those of what it shows: it cannot be opened before."""
    while isinstance(base, np.ndarray):
        entry = _HELD.get(id(base))
        known = entry[0]() if entry is not None else None
        if known is not None:
            known.views.append(lock)
        base = base.base


def unlock_all_except(needed: set[int]) -> None:
    """Open the locked arrays whose ids are not ``needed``, whoever refers to their locks.

    For the child of a fork, where threads that are not there keep what they referred to.
    """
    for key in [key for key in list(_HELD) if key not in needed]:
        forget, _ = _HELD.pop(key)
        held = forget()
        if held is not None:
            held.array.flags.writeable = True


def locked_bytes() -> int:
    """Bytes of all arrays that tapes hold locked now."""
    found = (forget() for forget, _ in list(_HELD.values()))
    return sum(held.array.nbytes for held in found if held is not None)
