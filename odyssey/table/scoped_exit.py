"""Scoped exit: ``with`` blocks whose exit survives KeyboardInterrupt.

Ctrl-C may arrive after the call of ``__exit__`` and before its first line. But a ``with`` statement
holds a reference to the bound exit function, and drops it however it ends. So each block gets an
exit function of its own, its *exit handle*. If the handle is freed while its block is open, a weak
reference callback exits the block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import partial
from typing import Any
from weakref import ref

__all__ = ["ExitHandle", "Scoped", "ScopedBlock"]


class ExitHandle:
    """Descriptor for ``__exit__`` of ``Scoped``; a ``with`` statement looks it up for each block.

    ``Scoped`` has ``_blocks``, the open blocks; ``_leave(kind, error, trace)``, which exits the
    last one and can be called again after an interrupt; ``_abandon(handle)``, which exits the block
    of a handle, if open; and ``_handle``, the handle of the next block.
    """

    def __get__(self, scope: Any, kind: Any = None) -> Callable[..., None]:
        if scope is None:
            return self
        leave: Callable[..., None] = partial(scope._leave)  # equal to itself alone
        scope._handle = ref(leave, scope._abandon)
        return leave

    def __call__(self, scope: Any, *failure: Any) -> None:
        """Exit a block that was entered by hand or by an ``ExitStack``, without a handle."""
        depth = len(scope._blocks)
        try:
            scope._leave(*failure)
        except BaseException as error:
            if len(scope._blocks) == depth:
                scope._leave(type(error), error, None)
            raise


class Scoped:
    """Base of context managers whose exit survives KeyboardInterrupt.

    ``_blocks`` are the open blocks, sequences whose first item is the exit handle. Subclasses
    define ``_leave(kind, error, trace)``.
    """

    _blocks: list[Any]
    _handle: Any = None

    def _leave(self, kind: Any, error: Any, trace: Any) -> None:
        raise NotImplementedError

    def _abandon(self, handle: Any) -> None:
        """Exit the block of a freed handle, as after an exception."""
        try:
            self._leave_by(handle)
        except BaseException:
            self._leave_by(handle)
            raise

    def _leave_by(self, handle: Any) -> None:
        while any(block[0] is handle for block in self._blocks):
            self._leave(BaseException, None, None)

    __exit__ = ExitHandle()


class ScopedBlock(Scoped, ContextDecorator):
    """A ``with`` block that makes a change and undoes it at its exit.

    Subclasses define ``_begin(entry)``, which stores in ``entry[1]`` all that ``_end`` needs before
    it changes anything, and ``_end(entry)``, which may run after an interrupted ``_begin`` or
    ``_end``.
    """

    def __init__(self) -> None:
        self._blocks = []

    def __enter__(self) -> Any:
        entry = [self._handle, None]
        self._handle = None
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
