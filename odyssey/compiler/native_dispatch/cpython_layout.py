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
    "ALL_BITS",
    "MISSING",
    "MemoryGuard",
    "key_absent_guard",
    "attribute_memory_guard",
    "cell_memory_guard",
    "item_memory_guard",
    "class_memory_guard",
    "list_length_guard",
    "dict_names_guard",
    "dict_attribute_memory_guard",
    "slot_offset",
    "list_field_offsets",
    "slot_memory_guard",
    "unshadowed_memory_guard",
    "dict_version_offset",
    "read_word",
]

MISSING = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""What is read where there is nothing."""

ALL_BITS = -1
"""The mask under which all of a word is looked at."""

_MANAGED_DICT = 1 << 4  # of a class whose objects have their dictionaries in front of them
_OBJECT, _OBJECT_OR_ERROR = 6, 16  # kinds of members that are references


class MemoryGuard(NamedTuple):
    """What native code looks at for a watch.

    Attributes:
        words: Of each a place, a mask and the word that must stand there. An earlier one may say
            that a later place is still there.
        items: Of each a dictionary, a key, and what it must have there, MISSING for nothing.
        versions: Of each a dictionary that must not change, and the version that it has.
        pairs: Of each two places that must have the same word.
        held: What must live as long as the words are looked at.
    """

    words: tuple[tuple[int, int, int], ...] = ()
    items: tuple[tuple[dict[Any, Any], str, Any], ...] = ()
    versions: tuple[tuple[dict[Any, Any], int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    held: tuple[Any, ...] = ()


def read_word(place: int) -> int:
    """The word at a place in memory."""
    return int(ctypes.c_int64.from_address(place).value)


# ------------------------------------------------------------------ where things lie


@cache
def slot_offset(kind: Any, name: str) -> int:
    """How far into an object of a class with slots one of them lies."""
    thing = kind.__new__(kind)
    mark = object()
    getattr(kind, name).__set__(thing, mark)
    found = _offsets_of(thing, mark)
    assert len(found) == 1, "a slot is one word"
    return found[0]


def _offsets_of(thing: Any, part: Any) -> list[int]:
    """How far into an object words lie that are the address of another."""
    words = (ctypes.c_int64 * (type(thing).__basicsize__ // 8)).from_address(id(thing))
    return [8 * k for k, word in enumerate(words) if k > 1 and word == id(part)]


def _single_offset(places: list[int]) -> int | None:
    return places[0] if len(places) == 1 else None


@cache
def list_field_offsets() -> tuple[int, int]:
    """How far into a list its length lies, and the address of its items; zeros if elsewhere."""
    probe = [object() for _ in range(5)]
    words = (ctypes.c_int64 * 4).from_address(id(probe))
    if list.__basicsize__ < 32 or words[2] != len(probe):
        return 0, 0
    items = (ctypes.c_int64 * len(probe)).from_address(words[3])
    return (16, 24) if [*items] == [*map(id, probe)] else (0, 0)


@cache
def dict_version_offset() -> int | None:
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
        for change in _dict_mutations(room, probe if room is probe.__dict__ else None):
            before = read_word(place)
            _ = room.get("x"), len(room), [*room]
            if read_word(place) != before:
                return None
            change()
            now = read_word(place)
            if now == before or now in seen or now in (0, -1):
                return None
            seen.add(now)
    return 24


def _dict_mutations(room: dict[Any, Any], owner: Any) -> list[Callable[[], object]]:
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
def _function_offsets() -> dict[str, int]:
    """How far into a function its parts lie, by the names of its attributes."""

    def probe(x: Any = object(), *, y: Any = object()) -> None:  # noqa: B008
        pass

    probe.z = None  # type: ignore[attr-defined]
    names = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
    found = {name: _single_offset(_offsets_of(probe, getattr(probe, name))) for name in names}
    return {name: place for name, place in found.items() if place is not None}


@cache
def _cell_offset() -> int | None:
    mark = object()
    return _single_offset(_offsets_of(CellType(mark), mark))


@cache
def _mro_offset() -> int | None:
    class Probe:
        pass

    return _single_offset(_offsets_of(Probe, Probe.__mro__))


def _member_definition(member: Any) -> tuple[int, int]:
    """Of a member of a class, its kind, and how far into an object it lies."""
    definition = read_word(id(member) + 40)
    return read_word(definition + 8) & 0xFFFFFFFF, read_word(definition + 16)


@cache
def _member_layout_is_known() -> bool:
    class Probe:
        __slots__ = ("a", "b", "c")

    if MemberDescriptorType.__basicsize__ < 48:
        return False
    wanted = [(_OBJECT_OR_ERROR, slot_offset(Probe, name)) for name in Probe.__slots__]
    return [_member_definition(getattr(Probe, name)) for name in Probe.__slots__] == wanted


def _instance_dict(thing: Any) -> tuple[int, dict[Any, Any]] | None:
    """Where the address of an object's dictionary stands, and the dictionary."""
    kind = type(thing)
    room = getattr(thing, "__dict__", None)
    if type(room) is not dict:
        return None
    if kind is FunctionType:
        place = id(thing) + _function_offsets().get("__dict__", 0)
    elif kind.__dictoffset__ > 0 and not kind.__itemsize__:
        place = id(thing) + kind.__dictoffset__
    elif kind.__flags__ & _MANAGED_DICT:
        place = id(thing) - 24
    else:
        return None
    return (place, room) if read_word(place) == id(room) else None


def _underlying_dict(room: Any) -> dict[Any, Any] | None:
    """A dictionary, or that which a class lets be seen."""
    if type(room) is MappingProxyType:
        found = get_referents(room)
        room = found[0] if len(found) == 1 else None
    return room if type(room) is dict else None


def _class_attribute(kind: type, word: str) -> Any:
    return next((vars(base)[word] for base in kind.__mro__ if word in vars(base)), MISSING)


# ------------------------------------------------------------------ what stands for a watch


def item_memory_guard(room: Any, key: Any, kept: Any) -> MemoryGuard | None:
    """What a dictionary or a list has by a key."""
    things = _underlying_dict(room)
    if things is not None and type(key) is str:
        return MemoryGuard(items=((things, key, kept),), held=(kept,))
    size, items = list_field_offsets()
    if type(room) is not list or type(key) is not int or kept is MISSING or not items:
        return None
    start, count = read_word(id(room) + items), len(room)
    if not 0 <= key < count:
        return None
    words = ((id(room) + size, ALL_BITS, count), (id(room) + items, ALL_BITS, start))
    return MemoryGuard((*words, (start + 8 * key, ALL_BITS, id(kept))), held=(room, kept))


def list_length_guard(room: Any, kept: Any) -> MemoryGuard | None:
    """How many a list has."""
    size, _ = list_field_offsets()
    if type(room) is not list or not size:
        return None
    return MemoryGuard(((id(room) + size, ALL_BITS, kept),), held=(room,))


def dict_attribute_memory_guard(thing: Any, word: str, kept: Any) -> MemoryGuard | None:
    """What an object has by a name in its dictionary."""
    found = _instance_dict(thing)
    if found is None:
        return None
    place, room = found
    return MemoryGuard(((place, ALL_BITS, id(room)),), ((room, word, kept),), held=(thing, kept))


def unshadowed_memory_guard(thing: Any, words: Sequence[str]) -> MemoryGuard | None:
    """That an object has nothing by some names in its dictionary."""
    found = _instance_dict(thing)
    if found is None:
        return None
    place, room = found
    items = tuple((room, word, MISSING) for word in words)
    return MemoryGuard(((place, ALL_BITS, id(room)),), items, held=(thing,))


def attribute_memory_guard(thing: Any, word: str, kept: Any) -> MemoryGuard | None:
    """What an object of a library has by a name."""
    place = None
    if isinstance(thing, type):
        place = _mro_offset() if word == "__mro__" and kept is not MISSING else None
    elif type(thing) is FunctionType:
        place = _function_offsets().get(word) if word != "__dict__" else None
    else:
        member = _class_attribute(type(thing), word)
        if type(member) is MemberDescriptorType:
            return slot_memory_guard(thing, member, kept)
        reads: Any = type(thing).__getattribute__
        plain = reads is object.__getattribute__
        return (
            dict_attribute_memory_guard(thing, word, kept) if plain and member is MISSING else None
        )
    if place is None:
        return None
    wanted = 0 if kept is None else id(kept)  # of a function without defaults
    return MemoryGuard(((id(thing) + place, ALL_BITS, wanted),), held=(thing, kept))


def slot_memory_guard(thing: Any, member: Any, kept: Any) -> MemoryGuard | None:
    """What stands in a slot of an object, or that nothing does."""
    if type(member) is not MemberDescriptorType or not _member_layout_is_known():
        return None
    sort, offset = _member_definition(member)
    place = id(thing) + offset
    known = 0 < offset < type(thing).__basicsize__ and sort in (_OBJECT, _OBJECT_OR_ERROR)
    wanted = 0 if kept is MISSING or (kept is None and read_word(place) == 0) else id(kept)
    return MemoryGuard(((place, ALL_BITS, wanted),), held=(thing, kept)) if known else None


def class_memory_guard(thing: Any, kept: Any) -> MemoryGuard | None:
    """The class of an object."""
    return MemoryGuard(((id(thing) + 8, ALL_BITS, id(kept)),), held=(thing, kept))


def cell_memory_guard(place: CellType, kept: Any) -> MemoryGuard | None:
    """What a name stands for that a function closes over; MISSING for nothing."""
    at = _cell_offset()
    if at is None:
        return None
    wanted = 0 if kept is MISSING else id(kept)
    return MemoryGuard(((id(place) + at, ALL_BITS, wanted),), held=(place, kept))


def key_absent_guard(room: Any, key: str) -> MemoryGuard | None:
    """That a dictionary has nothing by a key."""
    things = _underlying_dict(room)
    return None if things is None else MemoryGuard(items=((things, key, MISSING),))


def dict_names_guard(thing: Any, of_object: bool, kept: list[Any]) -> MemoryGuard | None:
    """The names in a dictionary, a class or an object, in order."""
    if dict_version_offset() is None:
        return None
    found = _instance_dict(thing) if of_object else None
    room = _underlying_dict(thing) if found is None else found[1]
    if room is None or (found is None and of_object):
        return None
    # First the number, then what it is to stand for.
    version = read_word(id(room) + 24)
    if [*room] != kept:
        return None
    words = () if found is None else ((found[0], ALL_BITS, id(room)),)
    return MemoryGuard(words, versions=((room, version),), held=(thing,))
