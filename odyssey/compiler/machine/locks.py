"""Locks of programs that know no leaves: two threads must not use the memory of one at once."""

from __future__ import annotations

from threading import RLock
from weakref import ref

from odyssey.devices.guard import hold_at_forks

__all__ = ["lock_of_program"]

_locks: list[ref[RLock]] = []


def lock_of_program() -> RLock:
    """A new lock, which a child that another thread of its parent left it to finds open."""
    lock = RLock()
    _locks[:] = [one for one in _locks if one() is not None]
    _locks.append(ref(lock))
    return lock


def _known() -> list[RLock]:
    return [lock for one in list(_locks) if (lock := one()) is not None]


# What such a program was in the middle of nobody in a child sees: there is no need to wait for it.
hold_at_forks(_known, 0.0)
