"""One lock for what leaves hold: whoever writes to data or gradients has it meanwhile.

A fork waits for it, so that the child finds no parameter half written, and no lock held by a thread
that it does not have.
"""

from __future__ import annotations

import os

# What ``threading`` gives by the same names; its import takes longer than that of this room.
from _thread import RLock, _local
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any
from weakref import ref

__all__ = ["FORK_WAITS", "GUARD", "hold_at_forks"]

# Reentrant: the collector may run anything in the middle of a delivery or a step. One for all
# leaves: several would have to be taken in an order, and a step writes to what others may share.
GUARD = RLock()

# Seconds that a fork waits for other threads. An update of a parameter takes a few milliseconds,
# unless it is a user's, which could wait for the thread that forks.
FORK_WAITS = 1.0


class _Token:
    """Stands for the locks that a fork holds: as it dies they are released."""

    __slots__ = ("__weakref__",)


def hold_at_forks(
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


hold_at_forks(lambda: (GUARD,), FORK_WAITS)
