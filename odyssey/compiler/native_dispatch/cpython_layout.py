"""Where Python's objects keep what is watched, for native code that looks at words in memory.

Where that is was found out by looking, once for each kind of object; what does not lie where it
should, Python is asked about. Where storage may move, a word is watched that tells of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from gc import get_referents
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType
from typing import Any, NamedTuple

__all__ = [
    "ALWAYS",
    "MISSING",
    "Seen",
    "absent",
    "attribute",
    "cell",
    "item",
    "kind",
    "length",
    "names",
    "own",
    "place_in",
    "places_of_list",
    "slot",
    "unshadowed",
    "version_place",
    "word_at",
]

MISSING = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""What is read where there is nothing."""

ALWAYS = -1
"""The mask under which all of a word is looked at."""

_MANAGED_DICT = 1 << 4  # of a class whose objects have their dictionaries in front of them
_OBJECT, _OBJECT_OR_ERROR = 6, 16  # kinds of members that are references


class Seen(NamedTuple):
    """What native code looks at for a watch.

    Attributes:
        words: Of each a place, a mask and the word that must stand there. An earlier one may say
            that a later place is still there.
        items: Of each a dictionary, a key, and what it must have there, MISSING for nothing.
        rooms: Of each a dictionary that must not change, and the version that it has.
        pairs: Of each two places that must have the same word.
        held: What must live as long as the words are looked at.
    """

    words: tuple[tuple[int, int, int], ...] = ()
    items: tuple[tuple[dict[Any, Any], str, Any], ...] = ()
    rooms: tuple[tuple[dict[Any, Any], int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    held: tuple[Any, ...] = ()


def word_at(place: int) -> int:
    """The word at a place in memory."""
    return int(ctypes.c_int64.from_address(place).value)


# ------------------------------------------------------------------ where things lie


@cache
def place_in(kind: Any, name: str) -> int:
    """How far into an object of a class with slots one of them lies."""
    thing = kind.__new__(kind)
    mark = object()
    getattr(kind, name).__set__(thing, mark)
    found = _places(thing, mark)
    assert len(found) == 1, "a slot is one word"
    return found[0]


def _places(thing: Any, part: Any) -> list[int]:
    """How far into an object words lie that are the address of another."""
    words = (ctypes.c_int64 * (type(thing).__basicsize__ // 8)).from_address(id(thing))
    return [8 * k for k, word in enumerate(words) if k > 1 and word == id(part)]


def _only(places: list[int]) -> int | None:
    return places[0] if len(places) == 1 else None


@cache
def places_of_list() -> tuple[int, int]:
    """How far into a list its length lies, and the address of its items; zeros if elsewhere."""
    probe = [object() for _ in range(5)]
    words = (ctypes.c_int64 * 4).from_address(id(probe))
    if list.__basicsize__ < 32 or words[2] != len(probe):
        return 0, 0
    items = (ctypes.c_int64 * len(probe)).from_address(words[3])
    return (16, 24) if [*items] == [*map(id, probe)] else (0, 0)


@cache
def version_place() -> int | None:
    """How far into a dictionary lies a number that is new after each change; None where none does.

    It is number 3 of its words up to Python 3.12; here it is believed where it is seen to be one.
    In 3.13 it is not, of a dictionary whose values lie in the object that it is of.
    """
    if sys.version_info >= (3, 13):
        return None

    class Probe:
        pass

    probe = Probe()
    rooms: list[dict[Any, Any]] = [{}, {"a": 1, "b": 2}, {1: 2}, probe.__dict__]
    seen: set[int] = set()
    for room in rooms:
        place = id(room) + 24
        for change in _changes(room, probe if room is probe.__dict__ else None):
            before = word_at(place)
            _ = room.get("x"), len(room), [*room]
            if word_at(place) != before:
                return None
            change()
            now = word_at(place)
            if now == before or now in seen or now in (0, -1):
                return None
            seen.add(now)
    return 24


def _changes(room: dict[Any, Any], owner: Any) -> list[Callable[[], object]]:
    """Ways to change a dictionary, which is that of an object or of nobody."""
    found: list[Callable[[], object]] = []
    if owner is not None:
        found.append(partial(setattr, owner, "x", object()))
        found.append(partial(setattr, owner, "x", object()))
        found.append(partial(setattr, owner, "new", object()))
        found.append(partial(delattr, owner, "new"))
    return [
        *found,
        partial(room.__setitem__, "x", object()),
        partial(room.__setitem__, "x", object()),
        partial(room.update, y=object(), z=1),
        partial(room.__delitem__, "y"),
        partial(room.__setitem__, "y", 1),
        partial(room.pop, "x"),
        partial(room.setdefault, "x", 3),
        room.popitem,
        room.clear,
        partial(room.__setitem__, "x", object()),
    ]


@cache
def _of_functions() -> dict[str, int]:
    """How far into a function its parts lie, by the names of its attributes."""

    def probe(x: Any = object(), *, y: Any = object()) -> None:  # noqa: B008
        pass

    probe.z = None  # type: ignore[attr-defined]
    names = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
    found = {name: _only(_places(probe, getattr(probe, name))) for name in names}
    return {name: place for name, place in found.items() if place is not None}


@cache
def _place_of_cell() -> int | None:
    mark = object()
    return _only(_places(CellType(mark), mark))


@cache
def _place_of_mro() -> int | None:
    class Probe:
        pass

    return _only(_places(Probe, Probe.__mro__))


def _member(member: Any) -> tuple[int, int]:
    """Of a member of a class, its kind, and how far into an object it lies."""
    definition = word_at(id(member) + 40)
    return word_at(definition + 8) & 0xFFFFFFFF, word_at(definition + 16)


@cache
def _knows_members() -> bool:
    class Probe:
        __slots__ = ("a", "b", "c")

    if MemberDescriptorType.__basicsize__ < 48:
        return False
    wanted = [(_OBJECT_OR_ERROR, place_in(Probe, name)) for name in Probe.__slots__]
    return [_member(getattr(Probe, name)) for name in Probe.__slots__] == wanted


def _room_of(thing: Any) -> tuple[int, dict[Any, Any]] | None:
    """Where the address of an object's dictionary stands, and the dictionary."""
    kind = type(thing)
    room = getattr(thing, "__dict__", None)
    if type(room) is not dict:
        return None
    if kind is FunctionType:
        place = id(thing) + _of_functions().get("__dict__", 0)
    elif kind.__dictoffset__ > 0 and not kind.__itemsize__:
        place = id(thing) + kind.__dictoffset__
    elif kind.__flags__ & _MANAGED_DICT:
        place = id(thing) - 24
    else:
        return None
    return (place, room) if word_at(place) == id(room) else None


def _dictionary(room: Any) -> dict[Any, Any] | None:
    """A dictionary, or that which a class lets be seen."""
    if type(room) is MappingProxyType:
        found = get_referents(room)
        room = found[0] if len(found) == 1 else None
    return room if type(room) is dict else None


def _found(kind: type, word: str) -> Any:
    return next((vars(base)[word] for base in kind.__mro__ if word in vars(base)), MISSING)


# ------------------------------------------------------------------ what stands for a watch


def item(room: Any, key: Any, kept: Any) -> Seen | None:
    """What a dictionary or a list has by a key."""
    things = _dictionary(room)
    if things is not None and type(key) is str:
        return Seen(items=((things, key, kept),), held=(kept,))
    size, items = places_of_list()
    if type(room) is not list or type(key) is not int or kept is MISSING or not items:
        return None
    start, count = word_at(id(room) + items), len(room)
    if not 0 <= key < count:
        return None
    words = ((id(room) + size, ALWAYS, count), (id(room) + items, ALWAYS, start))
    return Seen((*words, (start + 8 * key, ALWAYS, id(kept))), held=(room, kept))


def length(room: Any, kept: Any) -> Seen | None:
    """How many a list has."""
    size, _ = places_of_list()
    if type(room) is not list or not size:
        return None
    return Seen(((id(room) + size, ALWAYS, kept),), held=(room,))


def own(thing: Any, word: str, kept: Any) -> Seen | None:
    """What an object has by a name in its dictionary."""
    found = _room_of(thing)
    if found is None:
        return None
    place, room = found
    return Seen(((place, ALWAYS, id(room)),), ((room, word, kept),), held=(thing, kept))


def unshadowed(thing: Any, words: Sequence[str]) -> Seen | None:
    """That an object has nothing by some names in its dictionary."""
    found = _room_of(thing)
    if found is None:
        return None
    place, room = found
    items = tuple((room, word, MISSING) for word in words)
    return Seen(((place, ALWAYS, id(room)),), items, held=(thing,))


def attribute(thing: Any, word: str, kept: Any) -> Seen | None:
    """What an object of a library has by a name."""
    place = None
    if isinstance(thing, type):
        place = _place_of_mro() if word == "__mro__" and kept is not MISSING else None
    elif type(thing) is FunctionType:
        place = _of_functions().get(word) if word != "__dict__" else None
    else:
        member = _found(type(thing), word)
        if type(member) is MemberDescriptorType:
            return slot(thing, member, kept)
        reads: Any = type(thing).__getattribute__
        plain = reads is object.__getattribute__
        return own(thing, word, kept) if plain and member is MISSING else None
    if place is None:
        return None
    wanted = 0 if kept is None else id(kept)  # of a function without defaults
    return Seen(((id(thing) + place, ALWAYS, wanted),), held=(thing, kept))


def slot(thing: Any, member: Any, kept: Any) -> Seen | None:
    """What stands in a slot of an object, or that nothing does."""
    if type(member) is not MemberDescriptorType or not _knows_members():
        return None
    sort, offset = _member(member)
    place = id(thing) + offset
    known = 0 < offset < type(thing).__basicsize__ and sort in (_OBJECT, _OBJECT_OR_ERROR)
    wanted = 0 if kept is MISSING or (kept is None and word_at(place) == 0) else id(kept)
    return Seen(((place, ALWAYS, wanted),), held=(thing, kept)) if known else None


def kind(thing: Any, kept: Any) -> Seen | None:
    """The class of an object."""
    return Seen(((id(thing) + 8, ALWAYS, id(kept)),), held=(thing, kept))


def cell(place: CellType, kept: Any) -> Seen | None:
    """What a name stands for that a function closes over; MISSING for nothing."""
    at = _place_of_cell()
    if at is None:
        return None
    wanted = 0 if kept is MISSING else id(kept)
    return Seen(((id(place) + at, ALWAYS, wanted),), held=(place, kept))


def absent(room: Any, key: str) -> Seen | None:
    """That a dictionary has nothing by a key."""
    things = _dictionary(room)
    return None if things is None else Seen(items=((things, key, MISSING),))


def names(thing: Any, of_object: bool, kept: list[Any]) -> Seen | None:
    """The names in a dictionary, a class or an object, in order."""
    if version_place() is None:
        return None
    found = _room_of(thing) if of_object else None
    room = _dictionary(thing) if found is None else found[1]
    if room is None or (found is None and of_object):
        return None
    # First the number, then what it is to stand for.
    version = word_at(id(room) + 24)
    if [*room] != kept:
        return None
    words = () if found is None else ((found[0], ALWAYS, id(room)),)
    return Seen(words, rooms=((room, version),), held=(thing,))
