"""What threads and forks mean to a tape: it belongs to one thread at a time."""

from __future__ import annotations

import os
import sys
import weakref
from _thread import get_ident
from collections.abc import Iterator
from itertools import repeat, starmap
from typing import Any, Protocol

from odyssey.devices.array_locks import unlock_all_except
from odyssey.errors import TapeConsumedError, TapeError
from odyssey.table.value import Mark

__all__ = [
    "LEFT_BEHIND",
    "NO_IDS",
    "entered_elsewhere",
    "holds_arrays",
    "ids_of_thread",
    "recorded_elsewhere",
    "swept_elsewhere",
]

NO_IDS = Mark.block

# Why a recording is empty in the child of a fork.
LEFT_BEHIND = "left behind by a fork"


class Recording(Protocol):
    """What is asked of a recording here."""

    held: dict[int, Any]
    open: dict[int, Any]
    dead: str
    thread: int

    def tapes(self) -> list[Any]:
        """The living tapes that share it."""

    def spend(self, why: str) -> None:
        """Drop everything."""


# ------------------------------------------------------------------ threads


class _ForOneThread(dict[int, Iterator[int]]):
    """Ids by thread: for all threads but one there are none."""

    def __missing__(self, thread: int) -> Iterator[int]:
        return NO_IDS


def ids_of_thread(ids: Iterator[int], thread: int) -> Iterator[int]:
    """The same ids, but none when another thread asks; each takes 57 ns more."""
    threads = starmap(get_ident, repeat(()))
    return map(next, map(_ForOneThread({thread: ids}).__getitem__, threads))


def entered_elsewhere(recording: Recording) -> TapeError:
    """What is raised for a second thread that enters a tape."""
    return TapeError(
        f"{recording!r} is entered by another thread; give each thread a tape of its own, or hand "
        "this one over after its block"
    )


def swept_elsewhere() -> TapeError:
    """What is raised where two sweeps would use up the same nodes."""
    return TapeConsumedError(
        "this tape was swept or cleared during the sweep, by another thread or by a function given "
        "to on_gradient; sweep it in one place, or make it with persistent=True"
    )


def recorded_elsewhere() -> TapeError:
    """What is raised where nodes came or went during a sweep."""
    return TapeError(
        "another thread recorded on this tape during the sweep; let it finish before, or give each "
        "thread a tape of its own"
    )


# ------------------------------------------------------------------ forks

# Recordings that ever held an array of others; each leaves the set by itself when it dies.
_HOLDING: set[weakref.ref[Recording]] = set()

# The threads that were alive at a fork, by the thread that forks.
_alive: dict[int, Any] = {}


def holds_arrays(recording: Recording) -> None:
    """Note a recording that is about to lock an array."""
    _HOLDING.add(weakref.ref(recording, _HOLDING.discard))


def _before_fork() -> None:
    _alive[get_ident()] = frozenset(sys._current_frames()) if _HOLDING else frozenset()


def _in_the_parent() -> None:
    _alive.pop(get_ident(), None)


def _in_the_child() -> None:
    """Give the arrays back that are locked for threads which the child does not have.

    What those threads refer to is never freed here, and so would stay locked for good.
    """
    me = get_ident()
    lost = _alive.pop(me, frozenset()) - {me}
    _alive.clear()
    for reference in list(_HOLDING):
        recording = reference()
        if recording is None or not recording.held:
            continue
        half_swept = not (recording.open or recording.dead)
        if half_swept or recording.thread in lost:
            for tape in recording.tapes():
                tape._consumed = True
            recording.spend(LEFT_BEHIND)
    # A thread may have been about to lock an array, for a recording that did not hold it yet.
    living = (reference() for reference in list(_HOLDING))
    unlock_all_except({key for recording in living if recording for key in recording.held})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_in_the_parent, after_in_child=_in_the_child
    )
