"""One lock for what leaves hold: whoever writes to data or gradients has it meanwhile.

A fork waits for it, so that the child finds no parameter half written, and no lock held by a thread
that it does not have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

__all__ = ["FORK_WAITS", "GUARD", "hold_at_forks"]

# Reentrant: the collector may run anything in the middle of a delivery or a step. One for all
# leaves: several would have to be taken in an order, and a step writes to what others may share.
GUARD = threading.RLock()

# Seconds that a fork waits for other threads. An update of a parameter takes a few milliseconds,
# unless it is a user's, which could wait for the thread that forks.
FORK_WAITS = 1.0


def hold_at_forks(
    locks: Callable[[], Sequence[threading.RLock]],
    seconds: float,
    lost: Callable[[], object] = lambda: None,
) -> None:
    """Let forks wait for locks, which the child finds open.

    Args:
        locks: Gives those that there are now, in the order in which they are taken by who takes
            several.
        seconds: How long a fork waits for another thread that has one.
        lost: Called in a child that another thread, which it does not have, left in the middle of
            what a lock guards.
    """
    # Of the threads that fork now: which locks they got, and which they did not.
    forking: dict[int, list[tuple[threading.RLock, bool]]] = {}

    def before() -> None:
        mine = forking[threading.get_ident()] = []
        for lock in locks():
            mine.append((lock, lock.acquire(timeout=seconds)))

    def in_the_parent() -> None:
        for lock, got in forking.pop(threading.get_ident(), ()):
            if got:
                lock.release()

    def in_the_child() -> None:
        for lock, got in forking.pop(threading.get_ident(), ()):
            if got:
                lock.release()
            else:  # it is held by a thread that is not here
                lock._at_fork_reinit()  # type: ignore[attr-defined]
                lost()
        forking.clear()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=in_the_parent, after_in_child=in_the_child
        )


hold_at_forks(lambda: (GUARD,), FORK_WAITS)
