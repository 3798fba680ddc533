"""Who may use what leaves hold: one that writes to data or gradients, or programs side by side.

Whoever writes in Python has ``GUARD`` meanwhile, and waits for programs that run. A program has the
locks of its states, and begins where nobody has ``GUARD``; so two of different states run at once.
A fork waits for all of these, so that the child finds no parameter half written, and no lock held
by a thread that it does not have.
"""

from __future__ import annotations

import os

# What ``threading`` gives by the same names; its import takes longer than that of this room.
from _thread import RLock, _local
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress, repeat
from operator import call, is_
from typing import Any
from weakref import ref

__all__ = [
    "FORK_WAITS",
    "GUARD",
    "STATES",
    "WAIT",
    "LockRegistry",
    "hold_during_forks",
    "is_inside_program",
    "run_with_locks",
    "wait_for_programs",
    "wait_for_writers",
    "write_lock",
]

# Reentrant: the collector may run anything in the middle of a delivery or a step. One for all who
# write in Python: several would have to be taken in an order, and a step writes to what others may
# share.
GUARD = RLock()

# What a program gives that did not begin, as somebody writes.
WAIT = object()

# Whether this thread has a lock.
_is_held_here: Callable[[RLock], bool] = RLock._is_owned  # type: ignore[attr-defined]

# Locks of the states of programs that run; and whether a program stands still, for what a signal
# or the collector calls in the midst of it writes. One may be left here that nobody has any more.
_RUNNING: dict[RLock, bool] = {}

# Takes the guard and lets it go, where no other thread has it.
_TRY_GUARD: Any = partial(GUARD.acquire, False), GUARD.release

# Seconds that a fork waits for other threads. An update of a parameter takes a few milliseconds,
# unless it is a user's, which could wait for the thread that forks.
FORK_WAITS = 1.0


class _Token:
    """Stands for the locks that a fork holds: as it dies they are released."""

    __slots__ = ("__weakref__",)


def hold_during_forks(
    locks: Callable[[], Sequence[RLock]],
    seconds: float,
    lost: Callable[[], object] = lambda: None,
) -> None:
    """Let forks wait for locks, which the child finds open.

    Ctrl-C during the call of the system is handled before the first line of the first function of
    Python's that runs after it, which is left then. So the locks are released by C alone.

    Args:
        locks: Gives those that there are now, in the order in which they are taken by who takes
            several.
        seconds: How long a fork waits for another thread that has one; -1 for as long as it takes.
        lost: Called in a child that another thread, which it does not have, left in the middle of
            what a lock guards.
    """
    refer: Any = ref  # of a token that is kept, and of what is called when it is dropped
    # For each thread that forks now: references to a token, whose callbacks release what it got.
    here = _local()
    # The token dies before its references, as a tuple lets go of its last item first.
    let_go = partial(setattr, here, "held", None)

    def before() -> None:
        here.held = ([], _Token())  # no variable: a traceback would keep it alive
        for lock in locks():
            # One call of C takes the lock and notes it.
            here.held[0].extend(
                map(
                    refer,
                    compress([here.held[1]], map(lock.acquire, [True], [seconds])),
                    [lock.__exit__],
                )
            )

    def in_the_child() -> None:
        for lock in locks():
            if lock.acquire(blocking=False):  # it is free, or this thread's own
                lock.release()
            else:  # it is held by a thread that is not here
                lock._at_fork_reinit()  # type: ignore[attr-defined]
                lost()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=let_go, after_in_child=let_go)
        os.register_at_fork(after_in_child=in_the_child)


class LockRegistry:
    """Locks that are made as they are needed; it keeps none of them alive."""

    def __init__(self) -> None:
        self._known: list[ref[RLock]] = []

    def new(self) -> RLock:
        """A lock of its own."""
        lock = RLock()
        self._known[:] = [one for one in self._known if one() is not None]
        self._known.append(ref(lock))
        return lock

    def living(self) -> list[RLock]:
        """All that somebody has."""
        return [lock for one in list(self._known) if (lock := one()) is not None]


# Of states that programs use.
STATES = LockRegistry()


def _all_locks() -> list[RLock]:
    """Who has the first lets no program begin; the others come in the order of ``locks_of``."""
    return [GUARD, *sorted(STATES.living(), key=id)]


hold_during_forks(_all_locks, FORK_WAITS)


# ------------------------------------------------------------------ who writes, and programs


def is_inside_program() -> bool:
    """Whether this thread is in the midst of a program: a signal or the collector called it."""
    return any(map(_is_held_here, list(_RUNNING)))


def write_lock() -> RLock:
    """The lock to have while writing, where ``wait_for_programs`` comes first.

    Within a program it is one that nobody has: who has ``GUARD`` may be waiting for that program.
    """
    return RLock() if _RUNNING and is_inside_program() else GUARD


def wait_for_programs() -> None:
    """Wait for the programs that other threads run: none begins while this thread has the guard.

    Within a program two threads could wait for each other; so those that are interrupted likewise
    are not waited for: they stand still.
    """
    if not _RUNNING:
        return
    running = list(_RUNNING)
    own = [lock for lock in running if _is_held_here(lock)]
    _RUNNING.update(dict.fromkeys(own, True))
    for lock in running:
        if not (own and _RUNNING.get(lock)):
            with lock:
                _RUNNING.pop(lock, None)  # what an interrupt left there


def wait_for_writers() -> None:
    """Wait for who writes, while this thread has no lock that somebody may wait for."""
    with GUARD:
        pass


def run_with_locks(locks: Sequence[RLock], run: Callable[[], Any]) -> Any:
    """What a program returns that has the locks of its states; ``WAIT`` where somebody writes.

    Args:
        locks: In the order of ``locks_of``; none where it knows no leaves.
        run: Runs it.
    """
    if not locks:
        return run()
    lock, *others = locks
    with lock:
        try:
            # First it is said, and then looked; who writes takes the guard first, and looks then.
            _RUNNING[lock] = False
            if others:
                return run_with_locks(others, run)
            return WAIT if any(map(is_, map(call, _TRY_GUARD), repeat(False))) else run()
        finally:
            _RUNNING.pop(lock, None)
