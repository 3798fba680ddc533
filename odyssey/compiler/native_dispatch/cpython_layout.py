"""Memory guards: where CPython keeps the fields of guarded objects, for checks in native code.

Called by ``guards``, whose terms attach a memory guard to each guard that has one, and by
``runtime.dispatch_tables``. Offsets are probed, once for each kind of object. An object of unknown
layout gets no memory guard and is checked in Python. Where storage may move, the pointer to it is
guarded as well. A *word* here is always 64 bits of memory.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from gc import get_referents
from threading import RLock, get_ident
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType
from typing import Any, NamedTuple

from odyssey.compiler.machine.addresses import read_word

__all__ = [
    "ALL_BITS",
    "MISSING",
    "REFERENCE_COUNT_MASK",
    "MemoryGuard",
    "key_absent_memory_guard",
    "attribute_memory_guard",
    "cell_memory_guard",
    "item_memory_guard",
    "class_memory_guard",
    "list_length_memory_guard",
    "dict_names_memory_guard",
    "dict_attribute_memory_guard",
    "slot_offset",
    "list_field_offsets",
    "slot_memory_guard",
    "unshadowed_memory_guard",
    "dict_version_offset",
    "lock_owner_offset",
]

MISSING = type("Missing", (), {"__repr__": lambda self: "nothing"})()
"""The value of an attribute, item or cell that does not exist."""

ALL_BITS = -1
"""The mask that compares all bits of a word."""

REFERENCE_COUNT_MASK = 0xFFFFFFFF
"""The mask of the reference count in the first word of an object, which is all or half of it."""

_MANAGED_DICT = 1 << 4  # flag of a class whose objects are preceded by their dictionaries
_OBJECT, _OBJECT_OR_ERROR = 6, 16  # type codes of members that are references
_CLASS_OFFSET = 8  # of any object: the address of its class
# Of an object of a class with ``_MANAGED_DICT``: the pointer to its dictionary.
_MANAGED_DICT_OFFSET = -24
# The version of a dictionary up to Python 3.12, confirmed by ``dict_version_offset``.
_DICT_VERSION_OFFSET = 24


class MemoryGuard(NamedTuple):
    """The words that native code compares for a guard.

    Attributes:
        words: Rows of an address, a mask and the expected word. An earlier row may ensure that the
            address of a later one is still valid.
        items: Rows of a dictionary, a key and the expected value, MISSING if the key is absent.
        versions: Rows of a dictionary that must not change, and its version.
        pairs: Rows of two addresses that must hold equal words.
        held: Objects that must live as long as the words are compared.
    """

    words: tuple[tuple[int, int, int], ...] = ()
    items: tuple[tuple[dict[Any, Any], str, Any], ...] = ()
    versions: tuple[tuple[dict[Any, Any], int], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    held: tuple[Any, ...] = ()


# ------------------------------------------------------------------ offsets of fields


@cache
def slot_offset(kind: Any, name: str) -> int:
    """Return the offset of a slot in the objects of a class."""
    thing = kind.__new__(kind)
    mark = object()
    getattr(kind, name).__set__(thing, mark)
    offsets = _offsets_of(thing, mark)
    assert len(offsets) == 1, "a slot is one word"
    return offsets[0]


def _offsets_of(thing: Any, referent: Any) -> list[int]:
    """Return the offsets at which an object holds the address of another."""
    words = (ctypes.c_int64 * (type(thing).__basicsize__ // 8)).from_address(id(thing))
    return [8 * k for k, word in enumerate(words) if k > 1 and word == id(referent)]


def _single_offset(offsets: list[int]) -> int | None:
    return offsets[0] if len(offsets) == 1 else None


@cache
def list_field_offsets() -> tuple[int, int]:
    """Return the offsets of a list's length and of its pointer to items; zeros if unknown."""
    probe = [object() for _ in range(5)]
    words = (ctypes.c_int64 * 4).from_address(id(probe))
    if list.__basicsize__ < 32 or words[2] != len(probe):
        return 0, 0
    items = (ctypes.c_int64 * len(probe)).from_address(words[3])
    return (16, 24) if [*items] == [*map(id, probe)] else (0, 0)


@cache
def dict_version_offset() -> int | None:
    """Return the offset of a dictionary's version, which is new after each change; or None.

    Up to Python 3.12 it is the fourth word, which a probe confirms. Python 3.13 does not update it
    for a dictionary whose values are stored in its object.
    """
    if sys.version_info >= (3, 13):
        return None

    class Probe:
        pass

    probe = Probe()
    dictionaries: list[dict[Any, Any]] = [{}, {"a": 1, "b": 2}, {1: 2}, probe.__dict__]
    seen: set[int] = set()
    for dictionary in dictionaries:
        address = id(dictionary) + _DICT_VERSION_OFFSET
        for change in _dict_mutations(dictionary, probe if dictionary is probe.__dict__ else None):
            before = read_word(address)
            _ = dictionary.get("x"), len(dictionary), [*dictionary]
            if read_word(address) != before:
                return None
            change()
            now = read_word(address)
            if now == before or now in seen or now in (0, -1):
                return None
            seen.add(now)
    return _DICT_VERSION_OFFSET


def _dict_mutations(dictionary: dict[Any, Any], owner: Any) -> list[Callable[[], object]]:
    """Return functions that change a dictionary, that of an object if ``owner`` is given."""
    attribute_changes: list[Callable[[], object]] = []
    if owner is not None:
        attribute_changes.append(partial(setattr, owner, "x", object()))
        attribute_changes.append(partial(setattr, owner, "x", object()))
        attribute_changes.append(partial(setattr, owner, "new", object()))
        attribute_changes.append(partial(delattr, owner, "new"))
    return [
        *attribute_changes,
        partial(dictionary.__setitem__, "x", object()),
        partial(dictionary.__setitem__, "x", object()),
        partial(dictionary.update, y=object(), z=1),
        partial(dictionary.__delitem__, "y"),
        partial(dictionary.__setitem__, "y", 1),
        partial(dictionary.pop, "x"),
        partial(dictionary.setdefault, "x", 3),
        dictionary.popitem,
        dictionary.clear,
        partial(dictionary.__setitem__, "x", object()),
    ]


@cache
def _function_offsets() -> dict[str, int]:
    """Return the offsets of a function's fields, by attribute name."""

    def probe(x: Any = object(), *, y: Any = object()) -> None:  # noqa: B008
        pass

    probe.z = None  # type: ignore[attr-defined]
    names = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
    offsets = {name: _single_offset(_offsets_of(probe, getattr(probe, name))) for name in names}
    return {name: offset for name, offset in offsets.items() if offset is not None}


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
    """Return the type code and the offset of a member descriptor."""
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
    """Return where an object stores the pointer to its dictionary, and the dictionary."""
    kind = type(thing)
    dictionary = getattr(thing, "__dict__", None)
    if type(dictionary) is not dict:
        return None
    if kind is FunctionType:
        address = id(thing) + _function_offsets().get("__dict__", 0)
    elif kind.__dictoffset__ > 0 and not kind.__itemsize__:
        address = id(thing) + kind.__dictoffset__
    elif kind.__flags__ & _MANAGED_DICT:
        address = id(thing) + _MANAGED_DICT_OFFSET
    else:
        return None
    return (address, dictionary) if read_word(address) == id(dictionary) else None


def _underlying_dict(mapping: Any) -> dict[Any, Any] | None:
    """Return a dictionary, or the one behind the mapping proxy of a class."""
    if type(mapping) is MappingProxyType:
        referents = get_referents(mapping)
        mapping = referents[0] if len(referents) == 1 else None
    return mapping if type(mapping) is dict else None


def _class_attribute(kind: type, name: str) -> Any:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), MISSING)


@cache
def lock_owner_offset() -> int | None:
    """Return the offset of the owner's thread id (0 for none) in an RLock; None if not found."""
    lock, me = RLock(), get_ident()
    words = (ctypes.c_int64 * (type(lock).__basicsize__ // 8)).from_address(id(lock))
    before = [*words]
    with lock:
        indices = [k for k, word in enumerate(words) if word == me and before[k] == 0]
        with lock:
            indices = [k for k in indices if words[k] == me]
    indices = [k for k in indices if words[k] == 0]
    return 8 * indices[0] if len(indices) == 1 else None


# ------------------------------------------------------------------ memory guards


def item_memory_guard(container: Any, key: Any, expected: Any) -> MemoryGuard | None:
    """Guard an item of a dictionary or a list."""
    dictionary = _underlying_dict(container)
    if dictionary is not None and type(key) is str:
        return MemoryGuard(items=((dictionary, key, expected),), held=(expected,))
    size, items = list_field_offsets()
    if type(container) is not list or type(key) is not int or expected is MISSING or not items:
        return None
    start, count = read_word(id(container) + items), len(container)
    if not 0 <= key < count:
        return None
    words = ((id(container) + size, ALL_BITS, count), (id(container) + items, ALL_BITS, start))
    item = start + 8 * key, ALL_BITS, id(expected)
    return MemoryGuard((*words, item), held=(container, expected))


def list_length_memory_guard(items: Any, expected: Any) -> MemoryGuard | None:
    """Guard the length of a list."""
    size, _ = list_field_offsets()
    if type(items) is not list or not size:
        return None
    return MemoryGuard(((id(items) + size, ALL_BITS, expected),), held=(items,))


def dict_attribute_memory_guard(thing: Any, name: str, expected: Any) -> MemoryGuard | None:
    """Guard an item of an object's dictionary."""
    found = _instance_dict(thing)
    if found is None:
        return None
    address, dictionary = found
    return MemoryGuard(
        ((address, ALL_BITS, id(dictionary)),),
        ((dictionary, name, expected),),
        held=(thing, expected),
    )


def unshadowed_memory_guard(thing: Any, names: Sequence[str]) -> MemoryGuard | None:
    """Guard that an object's dictionary lacks some names."""
    found = _instance_dict(thing)
    if found is None:
        return None
    address, dictionary = found
    items = tuple((dictionary, name, MISSING) for name in names)
    return MemoryGuard(((address, ALL_BITS, id(dictionary)),), items, held=(thing,))


def attribute_memory_guard(thing: Any, name: str, expected: Any) -> MemoryGuard | None:
    """Guard an attribute of a library's object, a function or a class."""
    offset = None
    if isinstance(thing, type):
        offset = _mro_offset() if name == "__mro__" and expected is not MISSING else None
    elif type(thing) is FunctionType:
        offset = _function_offsets().get(name) if name != "__dict__" else None
    else:
        member = _class_attribute(type(thing), name)
        if type(member) is MemberDescriptorType:
            return slot_memory_guard(thing, member, expected)
        reads: Any = type(thing).__getattribute__
        plain = reads is object.__getattribute__
        return (
            dict_attribute_memory_guard(thing, name, expected)
            if plain and member is MISSING
            else None
        )
    if offset is None:
        return None
    wanted = 0 if expected is None else id(expected)  # a function without defaults
    return MemoryGuard(((id(thing) + offset, ALL_BITS, wanted),), held=(thing, expected))


def slot_memory_guard(thing: Any, member: Any, expected: Any) -> MemoryGuard | None:
    """Guard the value of a slot, or that it is empty."""
    if type(member) is not MemberDescriptorType or not _member_layout_is_known():
        return None
    type_code, offset = _member_definition(member)
    address = id(thing) + offset
    known = 0 < offset < type(thing).__basicsize__ and type_code in (_OBJECT, _OBJECT_OR_ERROR)
    wanted = (
        0 if expected is MISSING or (expected is None and read_word(address) == 0) else id(expected)
    )
    return MemoryGuard(((address, ALL_BITS, wanted),), held=(thing, expected)) if known else None


def class_memory_guard(thing: Any, expected: Any) -> MemoryGuard | None:
    """Guard the class of an object."""
    return MemoryGuard(
        ((id(thing) + _CLASS_OFFSET, ALL_BITS, id(expected)),), held=(thing, expected)
    )


def cell_memory_guard(cell: CellType, expected: Any) -> MemoryGuard | None:
    """Guard the contents of a closure's cell; MISSING if it is empty."""
    offset = _cell_offset()
    if offset is None:
        return None
    wanted = 0 if expected is MISSING else id(expected)
    return MemoryGuard(((id(cell) + offset, ALL_BITS, wanted),), held=(cell, expected))


def key_absent_memory_guard(mapping: Any, key: str) -> MemoryGuard | None:
    """Guard that a dictionary lacks a key."""
    dictionary = _underlying_dict(mapping)
    return None if dictionary is None else MemoryGuard(items=((dictionary, key, MISSING),))


def dict_names_memory_guard(
    thing: Any, of_instance: bool, expected: list[Any]
) -> MemoryGuard | None:
    """Guard the names in a dictionary, a class or an object, in order."""
    offset = dict_version_offset()
    if offset is None:
        return None
    found = _instance_dict(thing) if of_instance else None
    dictionary = _underlying_dict(thing) if found is None else found[1]
    if dictionary is None or (found is None and of_instance):
        return None
    # The version is read first: a change in between then makes the guard fail.
    version = read_word(id(dictionary) + offset)
    if [*dictionary] != expected:
        return None
    words = () if found is None else ((found[0], ALL_BITS, id(dictionary)),)
    return MemoryGuard(words, versions=((dictionary, version),), held=(thing,))
