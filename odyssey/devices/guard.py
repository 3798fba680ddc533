"""One lock for what leaves hold: whoever writes to data or gradients has it meanwhile.

A fork waits for it, so that the child finds no parameter half written, and no lock held by a thread
that it does not have.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["FORK_WAITS", "GUARD", "hold_at_forks"]

# Reentrant: the collector may run anything in the middle of a delivery or a step. One for all
# leaves: several would have to be taken in an order, and a step writes to what others may share.
GUARD = threading.RLock()

# Seconds that a fork waits for other threads. An update of a parameter takes a few milliseconds,
# unless it is a user's, which could wait for the thread that forks.
FORK_WAITS = 1.0


def hold_at_forks(
    lock: threading.RLock, seconds: float, lost: Callable[[], object] = lambda: None
) -> None:
    """Let forks wait for a lock, which the child finds open.

    Args:
        lock: Of this process.
        seconds: How long a fork waits for another thread.
        lost: Called in a child that another thread, which it does not have, left in the middle of
            what the lock guards.
    """
    # Of the threads that fork now: whether they got the lock.
    forking: dict[int, bool] = {}

    def before() -> None:
        forking[threading.get_ident()] = lock.acquire(timeout=seconds)

    def in_the_parent() -> None:
        if forking.pop(threading.get_ident(), False):
            lock.release()

    def in_the_child() -> None:
        if forking.pop(threading.get_ident(), False):
            lock.release()
        else:  # it is held by a thread that is not here
            lock._at_fork_reinit()  # type: ignore[attr-defined]
            lost()
        forking.clear()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=in_the_parent, after_in_child=in_the_child
        )


hold_at_forks(GUARD, FORK_WAITS)
