"""What a program answers that did nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from odyssey.compiler.arguments import input_leaves
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.table.value import Traced, Value
from odyssey.tree import leaves
from odyssey.tree_rebuild import attributes

__all__ = [
    "CACHE_MISS",
    "always_miss",
    "FastPath",
    "fast_path_of",
    "compile_flattener",
    "flattener_of_call",
]


CACHE_MISS: Any = object()
"""What a program answers that did nothing, since something is not as it was made for."""


def always_miss(*args: Any) -> Any:
    """The same, in the place of a program where there is none."""
    return CACHE_MISS


_Flattener = Callable[[tuple[Any, ...]], Any]


class FastPath(NamedTuple):
    """What calls a program, and answers CACHE_MISS where it is not for such arguments.

    Attributes:
        latest: ``latest(*args)``, in one native function, which counts the call.
        again: ``again(args)``, with Python.
    """

    latest: Callable[..., Any]
    again: Callable[..., Any]


def fast_path_of(program: Any, take: _Flattener) -> FastPath:
    """The ways to a program, whose arguments ``take`` takes apart.

    Args:
        program: See ``Program``.
        take: Gives its arrays, and then its numbers, or None.
    """
    run, numbers, places = program.run, program.numbers, program.places
    call = always_miss if program.native is None else program.native.call
    count = len(places)

    def latest(*args: Any) -> Any:
        given = take(args)
        if given is None:
            return CACHE_MISS
        if numbers.computes:
            first = len(given) - count
            found = numbers.completed(given[first:])
            return CACHE_MISS if found is None else call(*given[:first], *found)
        return call(*given)

    def again(args: tuple[Any, ...]) -> Any:
        given = take(args)
        if given is None:
            return CACHE_MISS
        arrays = given[: len(given) - len(places)]
        # An array that comes twice no program knows of.
        return run(given) if len(set(map(id, arrays))) == len(arrays) else CACHE_MISS

    return FastPath(latest, again)


def flattener_of_call(
    places: Iterable[int], args: tuple[Any, ...], named: dict[str, Any]
) -> _Flattener | None:
    """``taking_apart`` of arguments, behind which those by name are, if no array comes twice."""
    arrays = input_leaves(args, named)
    if len(set(map(id, arrays))) != len(arrays):
        return None  # of others than these two in one a program would know nothing
    return compile_flattener((*args, *named.values()), tuple(places))


# ------------------------------------------------------------------ taking apart


# What these are, or hold, is told by more than which object it is.
_IDENTITY_IS_NOT_ENOUGH = (Value, Traced, *ARRAY_LIKE, dict, list, tuple)


class _NotFlattenable(Exception):
    """Something whose structure is not taken apart here."""


def compile_flattener(args: tuple[Any, ...], places: Sequence[int]) -> _Flattener | None:
    """A function of arguments that gives the arrays among them, then the numbers at some places.

    It gives None for arguments of another structure, and where something else among them is not
    what it was. That arrays are arrays, and numbers are numbers, it leaves to the program.

    Args:
        args: Arguments of the structure that is meant.
        places: Of the numbers that may be any, among all leaves.

    >>> import numpy as np
    >>> take = taking_apart((np.ones(1), {"a": (2.0, "mean")}), [1])
    >>> take((np.zeros(1), {"a": (3.0, "mean")}))
    (array([0.]), 3.0)
    >>> take((np.zeros(1), {"a": (3.0, "sum")})), take((np.zeros(1),))
    (None, None)
    """
    text = _FlattenerWriter(frozenset(places))
    try:
        text.whole(args)
    except (_NotFlattenable, RecursionError):
        return None
    if text.count != len(leaves(args)):
        return None
    return text.made()


class _FlattenerWriter:
    """The lines of such a function, and what they name."""

    def __init__(self, places: frozenset[int]) -> None:
        self.count = 0
        self._places = places
        self._known: dict[str, Any] = {"ids": _ids_of_items}
        self._lines: list[str] = []
        self._arrays: list[str] = []
        self._numbers: list[str] = []
        self._words = 0

    def made(self) -> _Flattener:
        given = "".join(f"{word}, " for word in (*self._arrays, *self._numbers))
        body = "\n".join(f"        {line}" for line in (*self._lines, f"return ({given})"))
        # What is taken apart may be of users, or change meanwhile.
        text = f"def take(args):\n    try:\n{body}\n    except Exception:\n        return None"
        exec(text, self._known)
        found: _Flattener = self._known["take"]
        return found

    def word(self) -> str:
        self._words += 1
        return f"v{self._words}"

    def name(self, thing: Any) -> str:
        """A name for what must be there."""
        word = f"k{len(self._known)}"
        self._known[word] = thing
        return word

    def unless(self, truth: str) -> None:
        self._lines.append(f"if not ({truth}): return None")

    def parts(self, source: str, parts: Sequence[Any]) -> None:
        """Unpack parts, and take them apart."""
        words = [self.word() for _ in parts]
        if words:
            self._lines.append(f"{''.join(f'{word}, ' for word in words)} = {source}")
        for word, part in zip(words, parts, strict=True):
            self.take(word, part)

    def whole(self, args: tuple[Any, ...]) -> None:
        self.unless(f"len(args) == {len(args)}")
        self.parts("args", args)

    def _names(self, word: str, node: dict[Any, Any]) -> None:
        """Keys are the same objects, or are looked at elsewhere: 1, 1.0 and True are equal."""
        if not node:
            self.unless(f"not {word}")
            return
        self.unless(f"ids({word}) == {self.name(_ids_of_items(node))}")
        self.name(tuple(node))  # which lets no other object have their ids
        self.parts(f"{word}.values()", list(node.values()))

    def take(self, word: str, node: Any) -> None:
        """Take one thing apart."""
        kind = type(node)
        if kind is ndarray:
            self._arrays.append(word)
            self.count += 1
        elif kind is tuple or kind is list or _is_named_tuple(node):
            self.unless(f"type({word}) is {self.name(kind)} and len({word}) == {len(node)}")
            self.parts(word, list(node))
        elif kind is dict:
            self.unless(f"type({word}) is {self.name(kind)}")
            self._names(word, node)
        elif "__dataclass_fields__" in vars(kind):
            self._record(word, node)
        else:
            self._leaf(word, node)

    def _record(self, word: str, node: Any) -> None:
        from dataclasses import fields

        self.unless(f"type({word}) is {self.name(type(node))}")
        names = [field.name for field in fields(node)]
        held = [name for name, _ in attributes(node)]
        if not set(held) <= set(names):
            raise _NotFlattenable
        if hasattr(node, "__dict__"):
            self.unless(f"{word}.__dict__.keys() == {self.name(vars(node).keys() & names)}")
        source = "".join(f"{word}.{name}, " for name in names)
        self.parts(f"({source})", [getattr(node, name) for name in names])

    def _leaf(self, word: str, node: Any) -> None:
        kind = type(node)
        if isinstance(node, _IDENTITY_IS_NOT_ENOUGH) or hasattr(kind, "__dataclass_fields__"):
            raise _NotFlattenable
        place, self.count = self.count, self.count + 1
        if place in self._places:
            self._numbers.append(word)
        elif node is None:
            self.unless(f"{word} is None")
        elif kind in (int, bool, str, bytes):
            self.unless(f"type({word}) is {self.name(kind)} and {word} == {self.name(node)}")
        elif kind in (float, complex):  # -0.0 is not 0.0, and NaN is NaN
            plain = kind is float and node == node and node
            same = f"{word} == {self.name(node)}" if plain else f"repr({word}) == {repr(node)!r}"
            self.unless(f"type({word}) is {self.name(kind)} and {same}")
        else:  # what it holds is watched
            self.unless(f"{word} is {self.name(node)}")


def _ids_of_items(node: Any) -> tuple[int, ...]:
    return tuple(map(id, node))


def _is_named_tuple(node: Any) -> bool:
    kind = type(node)
    named = kind.__base__ is tuple and hasattr(kind, "_fields")
    return isinstance(node, tuple) and named and not kind.__dictoffset__
