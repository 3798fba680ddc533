"""One lock for what leaves hold: whoever writes to data or gradients has it meanwhile.

A fork waits for it, so that the child finds no parameter half written, and no lock held by a thread
that it does not have.
"""

from __future__ import annotations

import os
import threading

__all__ = ["FORK_WAITS", "GUARD"]

# Reentrant: the collector may run anything in the middle of a delivery or a step. One for all
# leaves: several would have to be taken in an order, and a step writes to what others may share.
GUARD = threading.RLock()

# Seconds that a fork waits for other threads. An update of a parameter takes a few milliseconds,
# unless it is a user's, which could wait for the thread that forks.
FORK_WAITS = 1.0

# Of the threads that fork now: whether they got the lock.
_forking: dict[int, bool] = {}


def _before_fork() -> None:
    _forking[threading.get_ident()] = GUARD.acquire(timeout=FORK_WAITS)


def _in_the_parent() -> None:
    if _forking.pop(threading.get_ident(), False):
        GUARD.release()


def _in_the_child() -> None:
    if _forking.pop(threading.get_ident(), False):
        GUARD.release()
    else:  # it is held by a thread that is not here
        GUARD._at_fork_reinit()  # type: ignore[attr-defined]
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_in_the_parent, after_in_child=_in_the_child
    )
