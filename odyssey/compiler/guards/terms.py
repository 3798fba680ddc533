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
from odyssey.compiler.native_dispatch.cpython_layout import MISSING, MemoryGuard
from odyssey.devices.array_locks import is_locked
from odyssey.devices.ownership import copy_with_layout, is_writable, owner_of, same_bits
from odyssey.transforms.replay import slot_value

__all__ = [
    "MISSING",
    "ATOMIC_TYPES",
    "ReferenceGuard",
    "Guard",
    "absence_guard",
    "attribute_guard",
    "bytes_guard",
    "cell_guard",
    "item_guard",
    "names_guard",
    "class_guard",
    "compile_guards",
    "equivalent_values",
    "members_guard",
    "length_guard",
    "dict_attribute_guard",
    "plain_attribute_guard",
    "abc_registry_guard",
    "slot_guard",
    "unshadowed_guard",
    "array_elements_guard",
    "array_layout_guard",
    "without_repetitions",
]


# So many terms are compiled as one function.
_GUARDS_PER_FUNCTION = 200


class Guard:
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
        self.same = same or equivalent_values
        self.array: int | None = None
        self.instead: Callable[[], Guard] | None = None
        self.seen: Callable[[Any], MemoryGuard | None] | None = None
        self.kept = self.now()

    def term(self) -> tuple[str, Sequence[Any]]:
        """The term, and its objects."""
        text = self.text if isinstance(self.text, str) else self.text(self.kept)
        return text, self.bound(self.kept)

    def by(self, seen: Callable[..., MemoryGuard | None], *given: Any) -> Self:
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
        return f"{self.name}: {_format_value(self.kept)} -> {_format_value(now)}"


class ReferenceGuard(Guard):
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


def _format_value(thing: Any) -> str:
    try:
        return shown(thing)
    except Exception:  # an object that does not let itself be written
        return f"{sort_of(thing)}"


# ------------------------------------------------------------------ what is the same


def equivalent_values(new: Any, old: Any) -> bool:
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
        return len(new) == len(old) and all(map(equivalent_values, new, old))
    if made is float:
        return pack("d", new) == pack("d", old)
    if made is complex:
        return pack("2d", new.real, new.imag) == pack("2d", old.real, old.imag)
    if made in _COMPARED_BY_EQUALITY:
        return bool(new == old)
    if issubclass(made, np.generic) and made is not np.object_:
        return new.dtype == old.dtype and bool(new.tobytes() == old.tobytes())
    return False


ATOMIC_TYPES = frozenset({int, str, bytes, range, bool, float, complex, type(None), type(...)})
"""The types of what nothing changes, and which hold nothing."""

_COMPARED_BY_EQUALITY = frozenset({int, str, bytes, range, bool})


# ------------------------------------------------------------------ kinds of places


def item_guard(name: str, room: Any, key: Any) -> ReferenceGuard:
    """What a dictionary, a list or a view of a class has by a key."""
    if type(key) in (str, int):
        place = ReferenceGuard(name, f"{{0}}[{_escaped_literal(key)}]", lambda: room[key], room)
        return place.by(cpython_layout.item_memory_guard, room, key)
    return ReferenceGuard(name, "{0}[{1}]", lambda: room[key], room, key)


def _escaped_literal(word: str) -> str:
    return repr(word).replace("{", "{{").replace("}", "}}")


def attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """What an object of a library has by a name."""
    place = ReferenceGuard(name, f"{{0}}.{word}", lambda: getattr(thing, word), thing)
    return place.by(cpython_layout.attribute_memory_guard, thing, word)


def plain_attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """What an object has of its own by a name that its class has nothing by."""
    if not word.isidentifier() or iskeyword(word):
        return dict_attribute_guard(name, thing, word)
    # To read it by the name might call a property that the class has got since.
    place = ReferenceGuard(name, f"{{0}}.{word}", lambda: thing.__dict__[word], thing)
    return place.by(cpython_layout.dict_attribute_memory_guard, thing, word)


def dict_attribute_guard(name: str, thing: Any, word: str) -> ReferenceGuard:
    """The same, where the class has something by that name, or code for what is missing."""
    text = f"{{0}}.__dict__[{_escaped_literal(word)}]"
    return ReferenceGuard(name, text, lambda: thing.__dict__[word], thing).by(
        cpython_layout.dict_attribute_memory_guard, thing, word
    )


def slot_guard(name: str, thing: Any, place: Any) -> ReferenceGuard:
    """What stands in a slot, or that nothing does."""
    read = partial(slot_value, place, thing, MISSING)
    return ReferenceGuard(name, "{0}()", read, read).by(
        cpython_layout.slot_memory_guard, thing, place
    )


def class_guard(name: str, thing: Any) -> ReferenceGuard:
    """The class of an object, which can be assigned."""
    place = ReferenceGuard(f"the class of {name}", "type({0})", lambda: type(thing), thing)
    return place.by(cpython_layout.class_memory_guard, thing)


def cell_guard(name: str, place: CellType) -> Guard:
    """What a name stands for that a function closes over."""
    if place == CellType():
        text = "{0} == {1}"
        empty = Guard(name, text, lambda: place == CellType(), lambda _: (place, CellType()))
        return empty.by(
            lambda kept: cpython_layout.cell_memory_guard(place, MISSING) if kept is True else None
        )
    read = lambda: place.cell_contents  # noqa: E731
    return ReferenceGuard(name, "{0}.cell_contents", read, place).by(
        cpython_layout.cell_memory_guard, place
    )


def absence_guard(name: str, room: Any, key: str) -> Guard:
    """That there is nothing by a name: else what is found elsewhere would be another thing."""
    text = f"{_escaped_literal(key)} not in {{0}}"
    watch = Guard(name, text, lambda: room.get(key, MISSING), lambda _: (room,))
    return watch.by(
        lambda kept: cpython_layout.key_absent_guard(room, key) if kept is MISSING else None
    )


def unshadowed_guard(name: str, thing: Any, words: Sequence[str]) -> Guard:
    """That an object has none of its own by the names that its class answers for."""
    terms = [f"{_escaped_literal(word)} not in room" for word in words]
    text = f"(room := {{0}}.__dict__) is not None and {' and '.join(terms)}"
    return Guard(
        name,
        text,
        lambda: [word for word in words if word in thing.__dict__],
        lambda _: (thing,),
        _equal_values,
    ).by(lambda kept: None if kept else cpython_layout.unshadowed_memory_guard(thing, words))


def names_guard(
    name: str, room: Callable[[], Any], text: str, thing: Any, named: set[str] | None
) -> Guard:
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
        return not any(word in named or _is_dunder(word) for word in {*new} ^ {*old})

    watch = Guard(name, f"[*{text}] == {{1}}", lambda: [*room()], lambda old: (thing, old), same)
    return watch.by(cpython_layout.dict_names_guard, thing, text != "{0}")


def _is_dunder(word: str) -> bool:
    return word.startswith("__") and word.endswith("__")


def length_guard(name: str, thing: Any) -> Guard:
    """How many there are."""
    return Guard(
        f"the length of {name}", "len({0}) == {1}", lambda: len(thing), lambda kept: (thing, kept)
    ).by(cpython_layout.list_length_guard, thing)


def members_guard(name: str, thing: Any, over: Callable[[Any], Iterable[Any]]) -> Guard:
    """Which things there are, in order; ``over`` iterates over them."""
    return Guard(
        name,
        "len({0}) == {1} and all(map(is_, {3}({0}), {2}))",
        lambda: tuple(over(thing)),
        lambda kept: (thing, len(kept), kept, over),
    )


def bytes_guard(name: str, buffer: Any) -> Guard:
    """The bytes of a bytearray, a view of one, or a record."""
    return Guard(
        name, "bytes({0}) == {1}", lambda: bytes(buffer), lambda kept: (buffer, kept), _equal_values
    )


def abc_registry_guard() -> Guard:
    """Which classes were registered with abstract ones, such as ``numbers.Number``."""
    name, text = "the classes that are registered with abstract ones", "{0}() == {1}"
    return Guard(name, text, get_cache_token, lambda kept: (get_cache_token, kept), _equal_values)


def _equal_values(new: Any, old: Any) -> bool:
    return type(new) is type(old) and bool(new == old)


# ------------------------------------------------------------------ one function for all


def compile_guards(watches: Sequence[Guard]) -> Callable[[], bool]:
    """A function that tells whether every place is as it was kept.

    A term takes 4 to 30 ns so, where a call for each would take 50 to 100.
    """
    parts = [
        _compile_guard_chunk(watches[k : k + _GUARDS_PER_FUNCTION])
        for k in range(0, len(watches), _GUARDS_PER_FUNCTION)
    ]
    if len(parts) == 1:
        return parts[0]
    return lambda: all(part() for part in parts)


def _compile_guard_chunk(watches: Sequence[Guard]) -> Callable[[], bool]:
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
    exec(_compile_source(text), given)
    made: Callable[[], bool] = given.pop("holds")
    return made


@lru_cache(maxsize=256)
def _compile_source(text: str) -> CodeType:
    return compile(text, "<guards>", "exec")


# Arrays up to this size are compared by their bytes, which are copied for it: for larger ones
# that costs more than to compare by pieces.
_SMALL = 1 << 16


def array_layout_guard(place: ReferenceGuard) -> Guard:
    """That there is an array at a place, of the same class, shape, strides and dtype."""
    n = len(place.holders)
    text = f"type(array := {place.where}) is {{{n}}} and array.shape == {{{n + 1}}}"
    text += f" and array.strides == {{{n + 2}}} and array.dtype is {{{n + 3}}}"
    read, holders = place.read, place.holders

    def look() -> tuple[Any, ...]:
        array = read()
        return type(array), array.shape, array.strides, array.dtype

    return Guard(
        f"the layout of {place.name}",
        text,
        look,
        lambda kept: (*holders, *kept),
        lambda new, old: type(new) is tuple and bool(new == old),
    )


def array_elements_guard(place: ReferenceGuard) -> Guard:
    """The elements of an array at a place; of one that nobody can write to, that it stays so."""
    array = place.kept
    watch = _read_only_guard(place) if _is_read_only(array) else _copied_elements_guard(place)
    watch.array = id(array)
    # Made anew when it is asked for, since it refers to the array.
    name, where, read, holders = place.name, place.where, place.read, place.holders
    watch.instead = lambda: ReferenceGuard(name, where, read, *holders)
    return watch


def _copied_elements_guard(place: ReferenceGuard) -> Guard:
    n = len(place.holders)
    take, text = _copy_method(place.kept)
    read, holders = place.read, place.holders
    return Guard(
        f"elements of {place.name}",
        text.format(place.where, f"{{{n}}}", f"{{{n + 1}}}"),
        lambda: ArrayElements(take(read())),
        lambda kept: (
            *holders,
            kept.held,
            without_repetitions if take is _bytes_without_repetitions else same_bits,
        ),
        _equal_elements,
    )


def _copy_method(array: Any) -> tuple[Callable[[Any], Any], str]:
    """How a copy is taken, and the term that compares with it."""
    axes = zip(array.shape, array.strides, strict=True)
    if any(n > 1 and not stride for n, stride in axes):
        return _bytes_without_repetitions, "{2}({0}).tobytes() == {1}"
    if array.nbytes <= _SMALL or array.dtype.itemsize not in (1, 2, 4, 8):
        return lambda there: there.tobytes(), "{0}.tobytes() == {1}"
    return copy_with_layout, "{2}({0}, {1})"


def without_repetitions(array: Any) -> Any:
    """An array without its repetitions: a broadcast one would be large if it were copied.

    >>> import numpy as np
    >>> once(np.broadcast_to(np.arange(2.0), (10**6, 2)))
    array([[0., 1.]])
    """
    axes = zip(array.shape, array.strides, strict=True)
    return array[tuple(slice(None) if stride or n < 2 else slice(1) for n, stride in axes)]


def _bytes_without_repetitions(array: Any) -> bytes:
    taken: bytes = without_repetitions(array).tobytes()
    return taken


class ArrayElements:
    """The elements that an array had, as bytes or as a copy."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held

    def __repr__(self) -> str:
        return "elements"


def _equal_elements(new: Any, old: Any) -> bool:
    """Whether both are elements, and the same bits: there may be nothing any more."""
    if not (isinstance(new, ArrayElements) and isinstance(old, ArrayElements)):
        return False
    one, two = new.held, old.held
    if isinstance(one, bytes) or isinstance(two, bytes):
        return type(one) is type(two) and bool(one == two)
    return one.shape == two.shape and one.dtype == two.dtype and same_bits(one, two)


def _read_only_guard(place: ReferenceGuard) -> Guard:
    owner, n = owner_of(place.kept), len(place.holders)
    read, holders, array = place.read, place.holders, place.kept
    return Guard(
        f"elements of {place.name}",
        f"(array := {place.where}) is {{{n}}} and not array.flags.writeable"
        f" and not {{{n + 1}}}.flags.writeable",
        lambda: read() is array and not is_writable(array) and not is_writable(owner),
        lambda _: (*holders, array, owner),
    )


def _is_read_only(array: Any) -> bool:
    """Whether the owner of an array made it read-only, and no tape did so for a while."""
    owner = owner_of(array)
    if owner.base is not None:  # memory of something else, which may have other ways
        return False
    while array is not owner:
        if is_writable(array) or is_locked(array):
            return False
        array = array.base
    return not is_writable(owner) and not is_locked(owner)
