"""Keeping the arrays of others unchanged while a tape needs them: counted read-only locks."""

from __future__ import annotations

import threading

from odyssey.spec import Array

__all__ = ["lock", "locked_bytes", "unlock"]

# By the array's id: the array, whether it was writable, and how many recordings hold it. Process
# wide, because two tapes may save one array, and the first to finish must not open it.
_HELD: dict[int, tuple[Array, bool, int]] = {}
_GUARD = threading.Lock()


def lock(array: Array) -> None:
    """Make ``array`` read-only until it was unlocked as often as locked."""
    with _GUARD:
        _, writable, count = _HELD.get(id(array), (array, array.flags.writeable, 0))
        _HELD[id(array)] = (array, writable, count + 1)
        array.setflags(write=False)


def unlock(array: Array) -> None:
    """Undo one ``lock`` of ``array``."""
    with _GUARD:
        _, writable, count = _HELD.pop(id(array))
        if count > 1:
            _HELD[id(array)] = (array, writable, count - 1)
        elif writable:
            array.setflags(write=True)


def locked_bytes() -> int:
    """Bytes of all arrays that tapes hold locked now."""
    with _GUARD:
        return sum(array.nbytes for array, _, _ in _HELD.values())
