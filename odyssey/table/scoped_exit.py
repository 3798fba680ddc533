"""``with`` blocks whose leaving cannot be missed.

Ctrl-C may come after ``__exit__`` was called and before its first line. But a ``with`` statement
holds what it is going to call at its end, and lets go of it however it ends. So each block is given
an object of its own to call: its *door*. Should the door die while its block is open, the block is
left then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from typing import Any
from weakref import ref

__all__ = ["ExitHandle", "Scoped", "ScopedBlock"]


class ExitHandle:
    """Stands in a class as ``__exit__``; ``with`` looks it up anew for each block.

    The class, ``Left``, has ``_blocks``, its open blocks; ``_leave(kind, error, trace)``, which
    leaves the last of them, and may be called again where it was interrupted; ``_abandon(door)``,
    which leaves that of a door, if it is open; and ``_door``, where the next block finds its door.
    """

    def __get__(self, scope: Any, kind: Any = None) -> Callable[..., None]:
        if scope is None:
            return self
        leave: Callable[..., None] = partial(scope._leave)  # equal to itself alone
        scope._door = ref(leave, scope._abandon)
        return leave

    def __call__(self, scope: Any, *failure: Any) -> None:
        """Leave a block that was entered by hand, or by an ``ExitStack``: there is no door then."""
        depth = len(scope._blocks)
        try:
            scope._leave(*failure)
        except BaseException as error:
            if len(scope._blocks) == depth:
                scope._leave(type(error), error, None)
            raise


class Scoped:
    """What is left by doors.

    ``_blocks`` are its open blocks, each a sequence whose first item is its door. Subclasses have
    ``_leave(kind, error, trace)``.
    """

    _blocks: list[Any]
    _door: Any = None

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        raise NotImplementedError

    def _abandon(self, door: Any) -> None:
        """Leave the block of a door that is gone, as after an exception."""
        try:
            self._leave_by(door)
        except BaseException:
            self._leave_by(door)
            raise

    def _leave_by(self, door: Any) -> None:
        while any(block[0] is door for block in self._blocks):
            self._leave(BaseException, None, None)

    __exit__ = ExitHandle()


class ScopedBlock(Scoped, ContextDecorator):
    """A ``with`` block that does something at its begin and undoes it at its end.

    Subclasses have ``_begin(entry)``, which stores what ``_end`` will need in ``entry[1]`` before
    it changes anything, and ``_end(entry)``, which may be called after any part of ``_begin``, and
    again after any part of itself.
    """

    def __init__(self) -> None:
        self._blocks = []

    def __enter__(self) -> Any:
        entry = [self._door, None]
        self._door = None
        self._blocks.append(entry)
        return self._begin(entry)

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        if self._blocks:
            self._end(self._blocks[-1])
            self._blocks.pop()

    def _begin(self, entry: list[Any]) -> Any:
        raise NotImplementedError

    def _end(self, entry: list[Any]) -> None:
        raise NotImplementedError
