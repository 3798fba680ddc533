"""The ways by which a call reaches a program: its arguments are taken apart, and looked at.

Of arguments that are all arrays, and numbers behind them, there is nothing to take apart. For trees
and names a function is written, as code that knows one structure takes a twentieth of the time of
code that finds out what structure came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from odyssey.compiler.arguments import inputs
from odyssey.compiler.dispatch.cache_miss import MISSED, missed
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.table.value import Traced, Value
from odyssey.tree import leaves
from odyssey.tree_rebuild import attributes

__all__ = ["Doors", "doors_of", "taking_apart", "taking_arrays_apart"]

_Take = Callable[[tuple[Any, ...]], Any]


class Doors(NamedTuple):
    """What calls a program, and answers MISSED where it is not for such arguments.

    Attributes:
        latest: ``latest(*args)``, in one native function, which counts the call.
        again: ``again(args)``, with Python.
    """

    latest: Callable[..., Any]
    again: Callable[..., Any]


def doors_of(program: Any, take: _Take) -> Doors:
    """The ways to a program, whose arguments ``take`` takes apart.

    Args:
        program: See ``Program``.
        take: Gives its arrays, and then its numbers, or None.
    """
    run, numbers, places = program.run, program.numbers, program.places
    call = missed if program.native is None else program.native.call
    count = len(places)

    def latest(*args: Any) -> Any:
        given = take(args)
        if given is None:
            return MISSED
        if numbers.computes:
            first = len(given) - count
            found = numbers.completed(given[first:])
            return MISSED if found is None else call(*given[:first], *found)
        return call(*given)

    def again(args: tuple[Any, ...]) -> Any:
        given = take(args)
        if given is None:
            return MISSED
        arrays = given[: len(given) - len(places)]
        # An array that comes twice no program knows of.
        return run(given) if len(set(map(id, arrays))) == len(arrays) else MISSED

    return Doors(latest, again)


def taking_arrays_apart(
    places: Iterable[int], args: tuple[Any, ...], named: dict[str, Any]
) -> _Take | None:
    """``taking_apart`` of arguments, behind which those by name are, if no array comes twice."""
    arrays = inputs(args, named)
    if len(set(map(id, arrays))) != len(arrays):
        return None  # of others than these two in one a program would know nothing
    return taking_apart((*args, *named.values()), tuple(places))


# ------------------------------------------------------------------ taking apart


# What these are, or hold, is told by more than which object it is.
_LOOKED_AT = (Value, Traced, *ARRAY_LIKE, dict, list, tuple)


class _Unknown(Exception):
    """Something whose structure is not taken apart here."""


def taking_apart(args: tuple[Any, ...], places: Sequence[int]) -> _Take | None:
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
    text = _Text(frozenset(places))
    try:
        text.whole(args)
    except (_Unknown, RecursionError):
        return None
    if text.count != len(leaves(args)):
        return None
    return text.made()


class _Text:
    """The lines of such a function, and what they name."""

    def __init__(self, places: frozenset[int]) -> None:
        self.count = 0
        self._places = places
        self._known: dict[str, Any] = {"ids": _ids}
        self._lines: list[str] = []
        self._arrays: list[str] = []
        self._numbers: list[str] = []
        self._words = 0

    def made(self) -> _Take:
        given = "".join(f"{word}, " for word in (*self._arrays, *self._numbers))
        body = "\n".join(f"        {line}" for line in (*self._lines, f"return ({given})"))
        # What is taken apart may be of users, or change meanwhile.
        text = f"def take(args):\n    try:\n{body}\n    except Exception:\n        return None"
        exec(text, self._known)
        found: _Take = self._known["take"]
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
        self.unless(f"ids({word}) == {self.name(_ids(node))}")
        self.name(tuple(node))  # which lets no other object have their ids
        self.parts(f"{word}.values()", list(node.values()))

    def take(self, word: str, node: Any) -> None:
        """Take one thing apart."""
        kind = type(node)
        if kind is ndarray:
            self._arrays.append(word)
            self.count += 1
        elif kind is tuple or kind is list or _is_named(node):
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
            raise _Unknown
        if hasattr(node, "__dict__"):
            self.unless(f"{word}.__dict__.keys() == {self.name(vars(node).keys() & names)}")
        source = "".join(f"{word}.{name}, " for name in names)
        self.parts(f"({source})", [getattr(node, name) for name in names])

    def _leaf(self, word: str, node: Any) -> None:
        kind = type(node)
        if isinstance(node, _LOOKED_AT) or hasattr(kind, "__dataclass_fields__"):
            raise _Unknown
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


def _ids(node: Any) -> tuple[int, ...]:
    return tuple(map(id, node))


def _is_named(node: Any) -> bool:
    kind = type(node)
    named = kind.__base__ is tuple and hasattr(kind, "_fields")
    return isinstance(node, tuple) and named and not kind.__dictoffset__
