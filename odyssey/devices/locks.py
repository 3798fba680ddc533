"""Keeping the arrays of others unchanged while a tape needs them: counted read-only locks."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from odyssey.spec import Array

__all__ = ["lock", "locked_bytes", "unlock"]


class _Lock:
    """An array, whether it was writable, and how many recordings hold it."""

    __slots__ = ("array", "count", "writable")

    def __init__(self, array: Array) -> None:
        self.array = array
        self.writable = array.flags.writeable
        self.count = 0


# By the array's id. Process wide, because two tapes may save one array, and the first to finish
# must not open it.
_HELD: dict[int, _Lock] = {}
# The collector may end a tape, and so unlock, in the middle of any of these functions: hence
# reentrant, and each count is changed in place and stored again.
_GUARD = threading.RLock()


# By position: with the argument's name the call would take twice as long.
_set_writable: Any = np.ndarray.setflags


def lock(array: Array) -> None:
    """Make ``array`` read-only until it was unlocked as often as locked."""
    key = id(array)
    with _GUARD:
        held = _HELD.get(key) or _Lock(array)
        held.count += 1
        _HELD[key] = held
        _set_writable(array, False)


def unlock(array: Array) -> None:
    """Undo one ``lock`` of ``array``."""
    key = id(array)
    with _GUARD:
        held = _HELD[key]
        held.count -= 1
        if held.count == 0:
            _HELD.pop(key, None)
            if held.writable:
                _set_writable(array, True)


def locked_bytes() -> int:
    """Bytes of all arrays that tapes hold locked now."""
    with _GUARD:
        return sum(held.array.nbytes for held in list(_HELD.values()))
