"""Locks of programs: of the memory that is a program's own, and of states that several may use."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

from numpy import ndarray

from odyssey.devices.write_guard import (
    STATE_LOCKS_LOCK,
    STATES,
    LockRegistry,
    hold_during_forks,
)

__all__ = ["PROGRAM_LOCKS", "state_locks", "memory_owner"]

# Of the memory that is a program's own. What one was in the middle of nobody in a child sees: there
# is no need to wait for it.
PROGRAM_LOCKS = LockRegistry()
hold_during_forks(PROGRAM_LOCKS.living, 0.0)


# ------------------------------------------------------------------ states

# By id of a Variable, or of an array that has memory, both of which programs keep. An id that comes
# again has the lock of others, which costs time alone.
_by_id: WeakValueDictionary[int, RLock] = WeakValueDictionary()

# Memory of others, of which two arrays may tell nothing of each other.
_UNKNOWN_OWNER: Any = object()
_unknown_owner_lock = STATES.new()


def memory_owner(array: Any) -> Any:
    """The array whose memory an array is a view of."""
    while isinstance(array, ndarray):
        if array.base is None:
            return array if array.flags.owndata else _UNKNOWN_OWNER
        array = array.base
    return _UNKNOWN_OWNER


def state_locks(things: Sequence[Any], had: Sequence[RLock] = ()) -> tuple[RLock, ...]:
    """The locks of sets of states, in the order in which they are taken.

    States that a program uses together are one set, but where they are in others already.

    Args:
        things: Variables, and ``root_of`` their arrays; who has the locks keeps these alive.
        had: What a program has had for its states, whose arrays are others now.
    """
    with STATE_LOCKS_LOCK:
        known = {
            id(thing): _by_id.get(id(thing)) for thing in things if thing is not _UNKNOWN_OWNER
        }
        found = {id(lock): lock for lock in known.values() if lock is not None}
        if any(thing is _UNKNOWN_OWNER for thing in things):
            found[id(_unknown_owner_lock)] = _unknown_owner_lock
        if None in known.values():
            own = next(
                (one for one in (*found.values(), *had) if one is not _unknown_owner_lock), None
            )
            own = own or STATES.new()
            found[id(own)] = own
            _by_id.update({place: own for place, lock in known.items() if lock is None})
        return tuple([found[place] for place in sorted(found)])
