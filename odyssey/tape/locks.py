"""Keeping the arrays of others unchanged while a tape needs them: counted read-only locks."""

from __future__ import annotations

import threading

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


def lock(array: Array) -> None:
    """Make ``array`` read-only until it was unlocked as often as locked."""
    with _GUARD:
        held = _HELD.get(id(array)) or _Lock(array)
        held.count += 1
        _HELD[id(array)] = held
        array.setflags(write=False)


def unlock(array: Array) -> None:
    """Undo one ``lock`` of ``array``."""
    with _GUARD:
        held = _HELD[id(array)]
        held.count -= 1
        if held.count == 0:
            _HELD.pop(id(array), None)
            if held.writable:
                array.setflags(write=True)


def locked_bytes() -> int:
    """Bytes of all arrays that tapes hold locked now."""
    with _GUARD:
        return sum(held.array.nbytes for held in list(_HELD.values()))
