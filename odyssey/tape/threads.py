"""Threads and forks: a tape belongs to one thread at a time."""

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
    "LOST_IN_FORK",
    "NO_IDS",
    "entered_elsewhere_error",
    "ids_of_thread",
    "recorded_elsewhere_error",
    "register_lock_holder",
    "swept_elsewhere_error",
]

NO_IDS = Mark.block

# The reason why a recording is empty in the child of a fork.
LOST_IN_FORK = "left behind by a fork"


class Recording(Protocol):
    """The part of a recording that this module needs."""

    locked: dict[int, Any]
    open: dict[int, Any]
    dead: str
    thread: int

    def tapes(self) -> list[Any]:
        """Return the living tapes that share it."""

    def discard(self, why: str) -> None:
        """Drop everything."""


# ------------------------------------------------------------------ threads


class _ForOneThread(dict[int, Iterator[int]]):
    """Ids by thread: none for all threads but one."""

    def __missing__(self, thread: int) -> Iterator[int]:
        return NO_IDS


def ids_of_thread(ids: Iterator[int], thread: int) -> Iterator[int]:
    """Return ``ids`` for one thread, and none when another thread asks; 57 ns more per id."""
    threads = starmap(get_ident, repeat(()))
    return map(next, map(_ForOneThread({thread: ids}).__getitem__, threads))


def entered_elsewhere_error(recording: Recording) -> TapeError:
    """Return the error for a second thread that enters a tape."""
    return TapeError(
        f"{recording!r} is entered by another thread; give each thread a tape of its own, or pass "
        "this one on after its block"
    )


def swept_elsewhere_error() -> TapeError:
    """Return the error for two sweeps that would consume the same nodes."""
    return TapeConsumedError(
        "this tape was swept or cleared during the sweep, by another thread or by a function given "
        "to on_gradient; sweep it in one place, or make it with persistent=True"
    )


def recorded_elsewhere_error() -> TapeError:
    """Return the error for nodes that were added or removed during a sweep."""
    return TapeError(
        "another thread recorded on this tape during the sweep; let it finish before, or give each "
        "thread a tape of its own"
    )


# ------------------------------------------------------------------ forks

# Recordings that ever locked an array owned by others; a weak reference leaves when it dies.
_LOCK_HOLDERS: set[weakref.ref[Recording]] = set()

# The threads that were alive at a fork, by the forking thread.
_threads_at_fork: dict[int, Any] = {}


def register_lock_holder(recording: Recording) -> None:
    """Note a recording that is about to lock an array."""
    _LOCK_HOLDERS.add(weakref.ref(recording, _LOCK_HOLDERS.discard))


def _before_fork() -> None:
    _threads_at_fork[get_ident()] = (
        frozenset(sys._current_frames()) if _LOCK_HOLDERS else frozenset()
    )


def _after_fork_in_parent() -> None:
    _threads_at_fork.pop(get_ident(), None)


def _after_fork_in_child() -> None:
    """Unlock the arrays that are locked for threads that the child does not have.

    Objects that those threads refer to are never freed here, and so would stay locked for good.
    """
    this_thread = get_ident()
    lost_threads = _threads_at_fork.pop(this_thread, frozenset()) - {this_thread}
    _threads_at_fork.clear()
    for reference in list(_LOCK_HOLDERS):
        recording = reference()
        if recording is None or not recording.locked:
            continue
        half_swept = not (recording.open or recording.dead)
        if half_swept or recording.thread in lost_threads:
            for tape in recording.tapes():
                tape._consumed = True
            recording.discard(LOST_IN_FORK)
    # A thread may have been about to lock an array for a recording that had not noted it yet.
    living = (reference() for reference in list(_LOCK_HOLDERS))
    unlock_all_except({key for recording in living if recording for key in recording.locked})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
