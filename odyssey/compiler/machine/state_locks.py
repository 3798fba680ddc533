"""Locks of programs: of a program's own memory, and of states that programs share.

Called by ``runtime.executable`` when it binds a program, and by ``compiled_call``.
"""

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

# Locks of a program's own memory. A child process never sees the result of an interrupted run, so a
# fork does not wait for these.
PROGRAM_LOCKS = LockRegistry()
hold_during_forks(PROGRAM_LOCKS.living, 0.0)


# ------------------------------------------------------------------ states

# By id of a Variable, or of an array that owns its memory; programs keep both alive. If an id is
# reused, two unrelated states share a lock, which costs only time.
_by_id: WeakValueDictionary[int, RLock] = WeakValueDictionary()

# Owner of memory that is not NumPy's: any two such arrays might share memory.
_UNKNOWN_OWNER: Any = object()
_unknown_owner_lock = STATES.new()


def memory_owner(array: Any) -> Any:
    """Return the array that owns the memory of an array; a marker if no array does."""
    while isinstance(array, ndarray):
        if array.base is None:
            return array if array.flags.owndata else _UNKNOWN_OWNER
        array = array.base
    return _UNKNOWN_OWNER


def state_locks(things: Sequence[Any], had: Sequence[RLock] = ()) -> tuple[RLock, ...]:
    """Return the locks of a program's states, in the order in which they are acquired.

    States that a program uses together share a lock, unless they have locks already.

    Args:
        things: Variables, and ``memory_owner`` of their arrays. The caller keeps them alive as
            long as it uses the locks.
        had: Locks of the program before its states were bound to other arrays.
    """
    with STATE_LOCKS_LOCK:
        lock_by_id = {
            id(thing): _by_id.get(id(thing)) for thing in things if thing is not _UNKNOWN_OWNER
        }
        locks = {id(lock): lock for lock in lock_by_id.values() if lock is not None}
        if any(thing is _UNKNOWN_OWNER for thing in things):
            locks[id(_unknown_owner_lock)] = _unknown_owner_lock
        if None in lock_by_id.values():
            own = next(
                (one for one in (*locks.values(), *had) if one is not _unknown_owner_lock), None
            )
            own = own or STATES.new()
            locks[id(own)] = own
            _by_id.update({key: own for key, lock in lock_by_id.items() if lock is None})
        return tuple([locks[key] for key in sorted(locks)])
