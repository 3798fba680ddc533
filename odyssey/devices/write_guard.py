"""Locks on the data of leaves: exclude writers in Python, and compiled programs on other threads.

A writer in Python holds ``GUARD``, and waits for running programs. A program holds the locks of its
states, and begins if nobody holds ``GUARD``; so two programs with different states run at once. A
fork waits for all of these locks, so that the child finds no parameter half written, and no lock
held by a thread that it does not have.
"""

from __future__ import annotations

import os

# Also in ``threading``, whose import takes longer than that of this package.
from _thread import LockType, RLock, _local
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress, repeat
from operator import call, is_
from typing import Any
from weakref import ref

__all__ = [
    "BINDINGS",
    "FORK_WAITS",
    "GUARD",
    "STATES",
    "STATE_LOCKS_LOCK",
    "WAIT",
    "LockRegistry",
    "hold_during_forks",
    "is_inside_program",
    "run_with_locks",
    "wait_for_programs",
    "wait_for_writers",
    "write_lock",
]

# Reentrant: the collector may run any code in the middle of a delivery or a step. One lock for all
# writers in Python: several would need an order, and a step writes to arrays that others may share.
GUARD = RLock()

# Result of a program that did not begin because of a writer.
WAIT = object()

# Return whether this thread holds a lock.
_is_held_here: Callable[[RLock], bool] = RLock._is_owned  # type: ignore[attr-defined]

# Locks of the states of running programs; True if code that a signal or the collector called
# within the program is writing. An interrupt may leave a lock here that nobody holds.
_RUNNING: dict[RLock, bool] = {}

# Acquires and releases the guard, if no other thread holds it.
_TRY_GUARD: Any = partial(GUARD.acquire, False), GUARD.release

# Timeout in seconds of a fork that waits for other threads. An update of a parameter takes a few
# milliseconds, but a user's update could wait for the forking thread.
FORK_WAITS = 1.0


class _Token:
    """Token for the locks that a fork holds: its deallocation releases them."""

    __slots__ = ("__weakref__",)


def hold_during_forks(
    locks: Callable[[], Sequence[RLock | LockType]],
    seconds: float,
    lost: Callable[[], object] = lambda: None,
) -> None:
    """Make forks wait for locks, and leave them open in the child.

    A Ctrl-C during the system call is handled before the first line of the next Python function,
    which is then left. So the locks are released by C alone.

    Args:
        locks: Returns the current locks, in the order in which code acquires several of them.
        seconds: Timeout of a fork that waits for another thread; -1 for none.
        lost: Called in a child if a thread that it does not have held a lock.
    """
    refer: Any = ref  # arguments: a token, and the callback for its deallocation
    # For each forking thread: references to a token, whose callbacks release the acquired locks.
    here = _local()
    # The token dies before its references, as a tuple drops its last item first.
    release = partial(setattr, here, "held", None)

    def before() -> None:
        here.held = ([], _Token())  # no local variable: a traceback would keep it alive
        for lock in locks():
            # One call of C acquires the lock and records it.
            here.held[0].extend(
                map(
                    refer,
                    compress([here.held[1]], map(lock.acquire, [True], [seconds])),
                    [lock.__exit__],
                )
            )

    def reset_locks_in_child() -> None:
        for lock in locks():
            if lock.acquire(blocking=False):  # free, or held by this thread
                lock.release()
            else:  # held by a thread that does not exist here
                lock._at_fork_reinit()  # type: ignore[union-attr]
                lost()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=release, after_in_child=release)
        os.register_at_fork(after_in_child=reset_locks_in_child)


class LockRegistry:
    """Locks created on demand; the registry holds weak references only."""

    def __init__(self) -> None:
        self._known: list[ref[RLock]] = []

    def new(self) -> RLock:
        """Return a new lock."""
        lock = RLock()
        self._known[:] = [one for one in self._known if one() is not None]
        self._known.append(ref(lock))
        return lock

    def living(self) -> list[RLock]:
        """Return all live locks."""
        return [lock for one in list(self._known) if (lock := one()) is not None]


# Locks of states that programs use.
STATES = LockRegistry()

# Locks of the tables by which a program finds its states, which are filled in with these held.
BINDINGS = LockRegistry()

# Lock of the table in which a binding looks up the locks of states.
STATE_LOCKS_LOCK = RLock()


def _all_locks() -> list[RLock]:
    """Return all locks in the order in which a run acquires them."""
    states = sorted(STATES.living(), key=id)  # the order of ``state_locks``
    return [GUARD, *states, *BINDINGS.living(), STATE_LOCKS_LOCK]


hold_during_forks(_all_locks, FORK_WAITS)


# ------------------------------------------------------------------ writers and programs


def is_inside_program() -> bool:
    """Return whether this thread runs a program, and a signal or the collector called this."""
    return any(map(_is_held_here, list(_RUNNING)))


def write_lock() -> RLock:
    """Return the lock to hold while writing, before ``wait_for_programs``.

    Within a program that is a new lock: the thread with ``GUARD`` may be waiting for that program.
    """
    return RLock() if _RUNNING and is_inside_program() else GUARD


def wait_for_programs() -> None:
    """Wait for the programs of other threads; none begins while this thread holds the guard.

    Within a program two threads could wait for each other; so programs that are interrupted in this
    way are not waited for: they do not run meanwhile.
    """
    if not _RUNNING:
        return
    running = list(_RUNNING)
    own = [lock for lock in running if _is_held_here(lock)]
    _RUNNING.update(dict.fromkeys(own, True))
    for lock in running:
        if not (own and _RUNNING.get(lock)):
            with lock:
                _RUNNING.pop(lock, None)  # left there by an interrupt


def wait_for_writers() -> None:
    """Wait for writers, while this thread holds no lock that somebody may wait for."""
    with GUARD:
        pass


def run_with_locks(locks: Sequence[RLock], run: Callable[[], Any]) -> Any:
    """Run a program that holds the locks of its states; return ``WAIT`` if there is a writer.

    Args:
        locks: In the order of ``locks_of``; none for a program without leaves.
        run: Runs the program.
    """
    if not locks:
        return run()
    lock, *others = locks
    with lock:
        try:
            # First announce the program, then test the guard; a writer does that in reverse order.
            _RUNNING[lock] = False
            if others:
                return run_with_locks(others, run)
            return WAIT if any(map(is_, map(call, _TRY_GUARD), repeat(False))) else run()
        finally:
            _RUNNING.pop(lock, None)
