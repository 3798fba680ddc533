"""Fast path: how a call reaches a compiled program without a search of the cache.

Arguments that are all arrays, with numbers behind them, go to the program as they are. For pytrees
and keywords a flattener is generated: code for one structure takes a twentieth of the time of code
that inspects any structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from numpy import ndarray

from odyssey.compiler.arguments import input_leaves
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.table.value import Traced, Value
from odyssey.tree import leaves
from odyssey.tree_objects import no_attributes
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
"""Cache miss: a guard failed, nothing was executed; fall back to the general path."""


def always_miss(*args: Any) -> Any:
    """Return ``CACHE_MISS``: the placeholder for a program where there is none."""
    return CACHE_MISS


_Flattener = Callable[[tuple[Any, ...]], Any]


class FastPath(NamedTuple):
    """Two ways to call a program; both return CACHE_MISS for arguments that it does not accept.

    Attributes:
        native: ``native(*args)``, by the native dispatcher, which counts the call.
        python: ``python(args)``, by guards and checks in Python.
    """

    native: Callable[..., Any]
    python: Callable[..., Any]


def fast_path_of(program: Any, flatten: _Flattener) -> FastPath:
    """Return the fast path of a program, whose arguments ``flatten`` flattens.

    Args:
        program: See ``CompiledCall``.
        flatten: Function from arguments to arrays, then numbers; or to None if they do not fit.
    """
    run, numbers, count = program.run, program.numbers, len(program.places)
    call = always_miss if program.native is None else program.native.call

    def native(*args: Any) -> Any:
        given = flatten(args)
        if given is None:
            return CACHE_MISS
        if numbers.computes:
            first = len(given) - count
            found = numbers.with_computed(given[first:])
            return CACHE_MISS if found is None else call(*given[:first], *found)
        return call(*given)

    def python(args: tuple[Any, ...]) -> Any:
        given = flatten(args)
        if given is None:
            return CACHE_MISS
        arrays = given[: len(given) - count]
        # No program accepts one array as two arguments.
        return run(given) if len(set(map(id, arrays))) == len(arrays) else CACHE_MISS

    return FastPath(native, python)


def flattener_of_call(
    places: Iterable[int], args: tuple[Any, ...], named: dict[str, Any]
) -> _Flattener | None:
    """Compile a flattener of positional, then keyword arguments; None if an array comes twice."""
    arrays = input_leaves(args, named)
    if len(set(map(id, arrays))) != len(arrays):
        return None  # a program would not see whether two arguments are one array
    return compile_flattener((*args, *named.values()), tuple(places))


# ------------------------------------------------------------------ flatteners


# Leaves and containers that need more than a comparison of identity.
_IDENTITY_IS_NOT_ENOUGH = (Value, Traced, *ARRAY_LIKE, dict, list, tuple)


class _NotFlattenable(Exception):
    """Raised for an argument whose structure no flattener handles."""


def compile_flattener(args: tuple[Any, ...], places: Sequence[int]) -> _Flattener | None:
    """Compile a function from arguments to their arrays, then the numbers at some leaf indices.

    It returns None for arguments of another structure, or with another static leaf. Whether arrays
    are arrays, and numbers are numbers, the program checks.

    Args:
        args: Arguments of the expected structure.
        places: The indices of scalar inputs among all leaves.

    >>> import numpy as np
    >>> flatten = compile_flattener((np.ones(1), {"a": (2.0, "mean")}), [1])
    >>> flatten((np.zeros(1), {"a": (3.0, "mean")}))
    (array([0.]), 3.0)
    >>> flatten((np.zeros(1), {"a": (3.0, "sum")})), flatten((np.zeros(1),))
    (None, None)
    """
    writer = _FlattenerWriter(frozenset(places))
    try:
        writer.write_arguments(args)
    except (_NotFlattenable, RecursionError):
        return None
    if writer.count != len(leaves(args, no_attributes)):
        return None
    return writer.compile()


class _FlattenerWriter:
    """The source of a flattener while it is written, and the constants in it."""

    def __init__(self, places: frozenset[int]) -> None:
        self.count = 0
        self._places = places
        self._constants: dict[str, Any] = {"ids": _ids_of_items}
        self._lines: list[str] = []
        self._arrays: list[str] = []
        self._numbers: list[str] = []
        self._variable_count = 0

    def compile(self) -> _Flattener:
        given = "".join(f"{word}, " for word in (*self._arrays, *self._numbers))
        body = "\n".join(f"        {line}" for line in (*self._lines, f"return ({given})"))
        # Containers may be of users' classes, or change in another thread.
        source = f"def flatten(args):\n    try:\n{body}\n    except Exception:\n        return None"
        exec(source, self._constants)
        # Taken out of its own globals: a function in a cycle waits for the garbage collector.
        flatten: _Flattener = self._constants.pop("flatten")
        return flatten

    def new_variable(self) -> str:
        self._variable_count += 1
        return f"v{self._variable_count}"

    def constant(self, thing: Any) -> str:
        """Return the name of a constant of the source."""
        word = f"k{len(self._constants)}"
        self._constants[word] = thing
        return word

    def check(self, condition: str) -> None:
        self._lines.append(f"if not ({condition}): return None")

    def flatten_children(self, source: str, children: Sequence[Any]) -> None:
        """Unpack the children of a container, and flatten each."""
        words = [self.new_variable() for _ in children]
        if words:
            self._lines.append(f"{''.join(f'{word}, ' for word in words)} = {source}")
        for word, child in zip(words, children, strict=True):
            self.flatten_node(word, child)

    def write_arguments(self, args: tuple[Any, ...]) -> None:
        self.check(f"len(args) == {len(args)}")
        self.flatten_children("args", args)

    def _flatten_dict(self, word: str, node: dict[Any, Any]) -> None:
        """Flatten a dictionary whose keys are the same objects: 1, 1.0 and True are equal keys."""
        if not node:
            self.check(f"not {word}")
            return
        self.check(f"ids({word}) == {self.constant(_ids_of_items(node))}")
        self.constant(tuple(node))  # keeps the keys alive, and so their ids unique
        self.flatten_children(f"{word}.values()", list(node.values()))

    def flatten_node(self, word: str, node: Any) -> None:
        """Flatten one node of a tree."""
        kind = type(node)
        if kind is ndarray:
            self._arrays.append(word)
            self.count += 1
        elif kind is tuple or kind is list or _is_named_tuple(node):
            self.check(f"type({word}) is {self.constant(kind)} and len({word}) == {len(node)}")
            self.flatten_children(word, list(node))
        elif kind is dict:
            self.check(f"type({word}) is {self.constant(kind)}")
            self._flatten_dict(word, node)
        elif "__dataclass_fields__" in vars(kind):
            self._flatten_dataclass(word, node)
        else:
            self._flatten_leaf(word, node)

    def _flatten_dataclass(self, word: str, node: Any) -> None:
        from dataclasses import fields

        self.check(f"type({word}) is {self.constant(type(node))}")
        names = [field.name for field in fields(node)]
        held = [name for name, _ in attributes(node)]
        if not set(held) <= set(names):
            raise _NotFlattenable
        if hasattr(node, "__dict__"):
            self.check(f"{word}.__dict__.keys() == {self.constant(vars(node).keys() & names)}")
        source = "".join(f"{word}.{name}, " for name in names)
        self.flatten_children(f"({source})", [getattr(node, name) for name in names])

    def _flatten_leaf(self, word: str, node: Any) -> None:
        kind = type(node)
        if isinstance(node, _IDENTITY_IS_NOT_ENOUGH) or hasattr(kind, "__dataclass_fields__"):
            raise _NotFlattenable
        index, self.count = self.count, self.count + 1
        if index in self._places:
            self._numbers.append(word)
        elif node is None:
            self.check(f"{word} is None")
        elif kind in (int, bool, str, bytes):
            self.check(f"type({word}) is {self.constant(kind)} and {word} == {self.constant(node)}")
        elif kind in (float, complex):  # -0.0 is not 0.0, and NaN is NaN
            plain = kind is float and node == node and node
            same = (
                f"{word} == {self.constant(node)}" if plain else f"repr({word}) == {repr(node)!r}"
            )
            self.check(f"type({word}) is {self.constant(kind)} and {same}")
        else:  # its attributes have guards
            self.check(f"{word} is {self.constant(node)}")


def _ids_of_items(node: Any) -> tuple[int, ...]:
    return tuple(map(id, node))


def _is_named_tuple(node: Any) -> bool:
    kind = type(node)
    named = kind.__base__ is tuple and hasattr(kind, "_fields")
    return isinstance(node, tuple) and named and not kind.__dictoffset__
