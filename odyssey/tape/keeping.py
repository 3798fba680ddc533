"""What a recording keeps of arrays of others: locked, copied, or compared before a sweep."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.devices.locks import lock
from odyssey.devices.ownership import (
    LARGE,
    SMALL,
    address,
    digest,
    duplicate,
    frozen,
    same_bits,
    spot,
)
from odyssey.errors import MutationError
from odyssey.tape.threads import holds_arrays

__all__ = ["Keeping"]


class Keeping:
    """The part of a recording that keeps arrays of others unchanged.

    Attributes:
        held: Arrays of others that are locked, by their ids.
        borrowed: What nodes keep of arrays of others without a copy: a view of each, what to
            compare before a sweep, and what that was. By id for those that are locked, by place
            for views.
        copies: Copies of views of others, by place, for when the same one comes again.
        open: The tapes that share the recording.
        dead: Why it is empty, or nothing.
        thread: The thread that let it record last.
    """

    __slots__ = ("__weakref__", "borrowed", "copies", "dead", "held", "nodes", "open", "thread")

    held: dict[int, Any]
    borrowed: dict[Any, tuple[Any, Callable[[Any], bytes], bytes]]
    copies: dict[Any, weakref.ref[Any]]
    open: dict[int, weakref.ref[Any]]
    dead: str
    thread: int
    nodes: list[Any]

    def hold(self, array: Any) -> Any:
        """Return what the tape may keep of somebody else's array: itself or a copy.

        Itself it is locked, or, where that would not help, compared before a sweep.
        """
        if type(array) is not np.ndarray:
            return array
        if array.nbytes <= SMALL:
            return array.copy() if array.flags.c_contiguous else duplicate(array)
        if array.base is not None:
            return self._hold_view(array)
        key = id(array)
        entry = self.borrowed.get(key)
        # (It may be held and open, where an interrupt came in between.)
        if entry is None or array.flags.writeable:
            if not self.held:
                holds_arrays(self)  # type: ignore[arg-type]  # which is a Recording
            lock(array, self.held, self)
        if entry is None:
            # A view of it, as locked as it is, since its owner may give the array itself another
            # shape or dtype.
            entry = self.borrowed[key] = (array.view(), spot, spot(array))
        return entry[0]

    def _hold_view(self, view: Any) -> Any:
        """What the tape may keep of a view, which stays writable through its base.

        A copy, or a large one as it is, with a digest; the same again where it came before.
        """
        place = address(view)
        if view.nbytes >= LARGE:
            entry = self.borrowed.get(place)
            if entry is None:
                entry = self.borrowed[place] = (frozen(view), digest, digest(view))
            return entry[0]
        known = self.copies.get(place)
        copy = known() if known is not None else None
        if copy is None or not same_bits(copy, view):
            copy = duplicate(view)
            self.copies[place] = weakref.ref(copy)
        return copy

    def let_go(self) -> None:
        """Unlock the arrays of others that no node keeps any more."""
        if self.borrowed:
            needed = {id(value) for node in self.nodes for value in node[3] or ()}
            for key in [key for key, entry in self.borrowed.items() if id(entry[0]) not in needed]:
                del self.borrowed[key]
                self.held.pop(key, None)
        if self.copies:
            self.copies = {place: ref for place, ref in self.copies.items() if ref() is not None}

    def verify_borrowed(self) -> None:
        """Raise if an array that a node needs was written to since."""
        for array, look, before in tuple(self.borrowed.values()):
            if look(array) != before:
                self._refuse_overwritten(array)

    def _refuse_overwritten(self, array: Any) -> None:
        """Raise where a node needs an array that its owner wrote to, past a lock or by its base."""
        for row, _, _, kept, _ in self.nodes:
            if any(value is array for value in kept or ()):
                raise MutationError(
                    f"{row.name} saved an array of shape {array.shape} and {array.dtype}, which "
                    "was written to since, through a view or by a library that overwrites its "
                    "arguments; pass a copy, or sweep before writing"
                )
