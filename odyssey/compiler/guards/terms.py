"""What is watched of Python: one place each, as a term of a function that looks at all of them."""

from __future__ import annotations

from abc import get_cache_token
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from keyword import iskeyword
from operator import is_
from struct import pack
from types import CellType, CodeType
from typing import Any, Self

import numpy as np

from odyssey.checks import shown, sort_of
from odyssey.compiler.native_dispatch import cpython_layout
from odyssey.compiler.native_dispatch.cpython_layout import MISSING, Seen
from odyssey.transforms.replay import slot_value

__all__ = [
    "MISSING",
    "PLAIN",
    "Place",
    "Watch",
    "absent",
    "attribute",
    "bytes_of",
    "cell",
    "item",
    "keys",
    "kind",
    "looking",
    "means_the_same",
    "members",
    "number_of",
    "own_attribute",
    "plain_attribute",
    "registered",
    "slot",
    "unshadowed",
]

# So many terms are compiled as one function.
_TERMS = 200


class Watch:
    """One place that is watched.

    Attributes:
        name: What a user would call it.
        text: A term that is true while nothing changed: Python, with ``{0}``, ``{1}`` for what
            ``bound`` returns; or a function that gives it for what was found there.
        bound: From what was found there, the objects of the term.
        read: What is found there now; it may raise where there is nothing.
        same: Whether another thing at this place means the same.
        array: The id of the array whose elements are watched, or None.
        instead: What watches that the array is the same, where its elements need not be.
        seen: From what was found there, what native code looks at instead of the term; or None.
    """

    __slots__ = ("array", "bound", "instead", "kept", "name", "read", "same", "seen", "text")

    def __init__(
        self,
        name: str,
        text: str | Callable[[Any], str],
        read: Callable[[], Any],
        bound: Callable[[Any], Sequence[Any]],
        same: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        self.name, self.text, self.read, self.bound = name, text, read, bound
        self.same = same or means_the_same
        self.array: int | None = None
        self.instead: Callable[[], Watch] | None = None
        self.seen: Callable[[Any], Seen | None] | None = None
        self.kept = self.now()

    def term(self) -> tuple[str, Sequence[Any]]:
        """The term, and its objects."""
        text = self.text if isinstance(self.text, str) else self.text(self.kept)
        return text, self.bound(self.kept)

    def by(self, seen: Callable[..., Seen | None], *given: Any) -> Self:
        """The same, where native code looks at what a function of ``memory`` gives."""
        self.seen = partial(seen, *given)
        return self

    def now(self) -> Any:
        """What is found there, or ``MISSING``."""
        try:
            return self.read()
        except Exception:  # where there is nothing, each kind of place raises its own
            return MISSING

    def change(self) -> str | None:
        """What changed, in words, or None; what means the same is remembered in its place."""
        now = self.now()
        if now is self.kept:
            return None
        if self.same(now, self.kept):
            self.kept = now
            return None
        return f"{self.name}: {_told(self.kept)} -> {_told(now)}"


class Place(Watch):
    """A place where there is one object, or MISSING.

    Args:
        name: What a user would call it.
        where: Python that gives the object, with ``{0}``, ``{1}`` for ``holders``.
        read: Gives it.
        holders: The objects of ``where``.
    """

    __slots__ = ("holders", "where")

    def __init__(self, name: str, where: str, read: Callable[[], Any], *holders: Any) -> None:
        self.where, self.holders = where, holders
        text = f"{where} is {{{len(holders)}}}"
        super().__init__(name, text, read, lambda kept: (*holders, kept))


def _told(thing: Any) -> str:
    try:
        return shown(thing)
    except Exception:  # an object that does not let itself be written
        return f"{sort_of(thing)}"


# ------------------------------------------------------------------ what is the same


def means_the_same(new: Any, old: Any) -> bool:
    """Whether two objects cannot be told apart but by ``is``: numbers of the same bits, strings.

    >>> means_the_same(1.5, 3.0 / 2.0), means_the_same(0.0, -0.0), means_the_same(1, True)
    (True, False, False)
    """
    if new is old:
        return True
    made = type(new)
    if made is not type(old):
        return False
    if made is tuple:
        return len(new) == len(old) and all(map(means_the_same, new, old))
    if made is float:
        return pack("d", new) == pack("d", old)
    if made is complex:
        return pack("2d", new.real, new.imag) == pack("2d", old.real, old.imag)
    if made in _EQUAL:
        return bool(new == old)
    if issubclass(made, np.generic) and made is not np.object_:
        return new.dtype == old.dtype and bool(new.tobytes() == old.tobytes())
    return False


PLAIN = frozenset({int, str, bytes, range, bool, float, complex, type(None), type(...)})
"""The types of what nothing changes, and which hold nothing."""

_EQUAL = frozenset({int, str, bytes, range, bool})


# ------------------------------------------------------------------ kinds of places


def item(name: str, room: Any, key: Any) -> Place:
    """What a dictionary, a list or a view of a class has by a key."""
    if type(key) in (str, int):
        place = Place(name, f"{{0}}[{_spelled(key)}]", lambda: room[key], room)
        return place.by(cpython_layout.item, room, key)
    return Place(name, "{0}[{1}]", lambda: room[key], room, key)


def _spelled(word: str) -> str:
    return repr(word).replace("{", "{{").replace("}", "}}")


def attribute(name: str, thing: Any, word: str) -> Place:
    """What an object of a library has by a name."""
    place = Place(name, f"{{0}}.{word}", lambda: getattr(thing, word), thing)
    return place.by(cpython_layout.attribute, thing, word)


def plain_attribute(name: str, thing: Any, word: str) -> Place:
    """What an object has of its own by a name that its class has nothing by."""
    if not word.isidentifier() or iskeyword(word):
        return own_attribute(name, thing, word)
    # To read it by the name might call a property that the class has got since.
    place = Place(name, f"{{0}}.{word}", lambda: thing.__dict__[word], thing)
    return place.by(cpython_layout.own, thing, word)


def own_attribute(name: str, thing: Any, word: str) -> Place:
    """The same, where the class has something by that name, or code for what is missing."""
    text = f"{{0}}.__dict__[{_spelled(word)}]"
    return Place(name, text, lambda: thing.__dict__[word], thing).by(
        cpython_layout.own, thing, word
    )


def slot(name: str, thing: Any, place: Any) -> Place:
    """What stands in a slot, or that nothing does."""
    read = partial(slot_value, place, thing, MISSING)
    return Place(name, "{0}()", read, read).by(cpython_layout.slot, thing, place)


def kind(name: str, thing: Any) -> Place:
    """The class of an object, which can be assigned."""
    place = Place(f"the class of {name}", "type({0})", lambda: type(thing), thing)
    return place.by(cpython_layout.kind, thing)


def cell(name: str, place: CellType) -> Watch:
    """What a name stands for that a function closes over."""
    if place == CellType():
        text = "{0} == {1}"
        empty = Watch(name, text, lambda: place == CellType(), lambda _: (place, CellType()))
        return empty.by(lambda kept: cpython_layout.cell(place, MISSING) if kept is True else None)
    read = lambda: place.cell_contents  # noqa: E731
    return Place(name, "{0}.cell_contents", read, place).by(cpython_layout.cell, place)


def absent(name: str, room: Any, key: str) -> Watch:
    """That there is nothing by a name: else what is found elsewhere would be another thing."""
    text = f"{_spelled(key)} not in {{0}}"
    watch = Watch(name, text, lambda: room.get(key, MISSING), lambda _: (room,))
    return watch.by(lambda kept: cpython_layout.absent(room, key) if kept is MISSING else None)


def unshadowed(name: str, thing: Any, words: Sequence[str]) -> Watch:
    """That an object has none of its own by the names that its class answers for."""
    terms = [f"{_spelled(word)} not in room" for word in words]
    text = f"(room := {{0}}.__dict__) is not None and {' and '.join(terms)}"
    return Watch(
        name,
        text,
        lambda: [word for word in words if word in thing.__dict__],
        lambda _: (thing,),
        _equal,
    ).by(lambda kept: None if kept else cpython_layout.unshadowed(thing, words))


def keys(
    name: str, room: Callable[[], Any], text: str, thing: Any, named: set[str] | None
) -> Watch:
    """The names in a room, in order.

    Args:
        name: Of the room.
        room: Gives it.
        text: The same, with ``{0}`` for ``thing``.
        thing: Whose room it is.
        named: The names that matter, all where it is None; the set may still grow.
    """

    def same(new: Any, old: Any) -> bool:
        if new is MISSING or named is None:
            return bool(new == old)
        return not any(word in named or _is_special(word) for word in {*new} ^ {*old})

    watch = Watch(name, f"[*{text}] == {{1}}", lambda: [*room()], lambda old: (thing, old), same)
    return watch.by(cpython_layout.names, thing, text != "{0}")


def _is_special(word: str) -> bool:
    return word.startswith("__") and word.endswith("__")


def number_of(name: str, thing: Any) -> Watch:
    """How many there are."""
    return Watch(
        f"the length of {name}", "len({0}) == {1}", lambda: len(thing), lambda kept: (thing, kept)
    ).by(cpython_layout.length, thing)


def members(name: str, thing: Any, over: Callable[[Any], Iterable[Any]]) -> Watch:
    """Which things there are, in order; ``over`` iterates over them."""
    return Watch(
        name,
        "len({0}) == {1} and all(map(is_, {3}({0}), {2}))",
        lambda: tuple(over(thing)),
        lambda kept: (thing, len(kept), kept, over),
    )


def bytes_of(name: str, buffer: Any) -> Watch:
    """The bytes of a bytearray, a view of one, or a record."""
    return Watch(
        name, "bytes({0}) == {1}", lambda: bytes(buffer), lambda kept: (buffer, kept), _equal
    )


def registered() -> Watch:
    """Which classes were registered with abstract ones, such as ``numbers.Number``."""
    name, text = "the classes that are registered with abstract ones", "{0}() == {1}"
    return Watch(name, text, get_cache_token, lambda kept: (get_cache_token, kept), _equal)


def _equal(new: Any, old: Any) -> bool:
    return type(new) is type(old) and bool(new == old)


# ------------------------------------------------------------------ one function for all


def looking(watches: Sequence[Watch]) -> Callable[[], bool]:
    """A function that tells whether every place is as it was kept.

    A term takes 4 to 30 ns so, where a call for each would take 50 to 100.
    """
    parts = [_looking(watches[k : k + _TERMS]) for k in range(0, len(watches), _TERMS)]
    if len(parts) == 1:
        return parts[0]
    return lambda: all(part() for part in parts)


def _looking(watches: Sequence[Watch]) -> Callable[[], bool]:
    known: dict[int, str] = {}
    given: dict[str, Any] = {"is_": is_}
    terms: list[str] = []
    for watch in watches:
        words = []
        text, things = watch.term()
        for thing in things:
            if id(thing) not in known:
                known[id(thing)] = f"k{len(known)}"
                given[known[id(thing)]] = thing
            words.append(known[id(thing)])
        terms.append(text.format(*words))
    parameters = ", ".join(f"{name}={name}" for name in given)
    text = (
        f"def holds({parameters}):\n"
        "    try:\n"
        f"        return {' and '.join(terms)}\n"
        "    except Exception:\n"
        "        return False\n"
    )
    exec(_compiled(text), given)
    made: Callable[[], bool] = given.pop("holds")
    return made


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<guards>", "exec")
