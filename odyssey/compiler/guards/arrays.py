"""How arrays are watched: at their places, and by copies of their elements.

The array itself is not held: its owner may resize it in place only while nobody else refers to it,
and may have dropped it for its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.compiler.guards.terms import Place, Watch
from odyssey.devices.array_locks import is_locked
from odyssey.devices.ownership import copy_with_layout, is_writable, owner_of, same_bits

__all__ = ["elements_at", "layout_at", "once"]

# Arrays up to this size are compared by their bytes, which are copied for it: for larger ones
# that costs more than to compare by pieces.
_SMALL = 1 << 16


def layout_at(place: Place) -> Watch:
    """That there is an array at a place, of the same class, shape, strides and dtype."""
    n = len(place.holders)
    text = f"type(array := {place.where}) is {{{n}}} and array.shape == {{{n + 1}}}"
    text += f" and array.strides == {{{n + 2}}} and array.dtype is {{{n + 3}}}"
    read, holders = place.read, place.holders

    def look() -> tuple[Any, ...]:
        array = read()
        return type(array), array.shape, array.strides, array.dtype

    return Watch(
        f"the layout of {place.name}",
        text,
        look,
        lambda kept: (*holders, *kept),
        lambda new, old: type(new) is tuple and bool(new == old),
    )


def elements_at(place: Place) -> Watch:
    """The elements of an array at a place; of one that nobody can write to, that it stays so."""
    array = place.kept
    watch = _sealed(place) if _is_sealed(array) else _copied(place)
    watch.array = id(array)
    # Made anew when it is asked for, since it refers to the array.
    name, where, read, holders = place.name, place.where, place.read, place.holders
    watch.instead = lambda: Place(name, where, read, *holders)
    return watch


def _copied(place: Place) -> Watch:
    n = len(place.holders)
    take, text = _taking(place.kept)
    read, holders = place.read, place.holders
    return Watch(
        f"elements of {place.name}",
        text.format(place.where, f"{{{n}}}", f"{{{n + 1}}}"),
        lambda: _Elements(take(read())),
        lambda kept: (*holders, kept.held, once if take is _once_taken else same_bits),
        _same_elements,
    )


def _taking(array: Any) -> tuple[Callable[[Any], Any], str]:
    """How a copy is taken, and the term that compares with it."""
    axes = zip(array.shape, array.strides, strict=True)
    if any(n > 1 and not stride for n, stride in axes):
        return _once_taken, "{2}({0}).tobytes() == {1}"
    if array.nbytes <= _SMALL or array.dtype.itemsize not in (1, 2, 4, 8):
        return lambda there: there.tobytes(), "{0}.tobytes() == {1}"
    return copy_with_layout, "{2}({0}, {1})"


def once(array: Any) -> Any:
    """An array without its repetitions: a broadcast one would be large if it were copied.

    >>> import numpy as np
    >>> once(np.broadcast_to(np.arange(2.0), (10**6, 2)))
    array([[0., 1.]])
    """
    axes = zip(array.shape, array.strides, strict=True)
    return array[tuple(slice(None) if stride or n < 2 else slice(1) for n, stride in axes)]


def _once_taken(array: Any) -> bytes:
    taken: bytes = once(array).tobytes()
    return taken


class _Elements:
    """The elements that an array had, as bytes or as a copy."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return "elements"


def _same_elements(new: Any, old: Any) -> bool:
    """Whether both are elements, and the same bits: there may be nothing any more."""
    if not (isinstance(new, _Elements) and isinstance(old, _Elements)):
        return False
    one, two = new.held, old.held
    if isinstance(one, bytes) or isinstance(two, bytes):
        return type(one) is type(two) and bool(one == two)
    return one.shape == two.shape and one.dtype == two.dtype and same_bits(one, two)


def _sealed(place: Place) -> Watch:
    owner, n = owner_of(place.kept), len(place.holders)
    read, holders, array = place.read, place.holders, place.kept
    return Watch(
        f"elements of {place.name}",
        f"(array := {place.where}) is {{{n}}} and not array.flags.writeable"
        f" and not {{{n + 1}}}.flags.writeable",
        lambda: read() is array and not is_writable(array) and not is_writable(owner),
        lambda _: (*holders, array, owner),
    )


def _is_sealed(array: Any) -> bool:
    """Whether the owner of an array made it read-only, and no tape did so for a while."""
    owner = owner_of(array)
    if owner.base is not None:  # memory of something else, which may have other ways
        return False
    while array is not owner:
        if is_writable(array) or is_locked(array):
            return False
        array = array.base
    return not is_writable(owner) and not is_locked(owner)
