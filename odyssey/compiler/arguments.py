"""Arguments of compiled functions: what is an input of a graph, and what is fixed in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.errors import DTypeError
from odyssey.table.value import array_of, is_trainable
from odyssey.tree import leaves, paths
from odyssey.variable import Variable

__all__ = ["arrays", "fixed", "is_input", "refuse_unhashable", "sign"]


def sign(value: Any) -> Any:
    """What of an argument decides whether a graph must be traced anew.

    Numbers do by their type alone: a rate or a count of steps may be new in every call.
    """
    kind = type(value)
    if kind is ndarray or issubclass(kind, np.generic):
        return value.shape, value.dtype  # hashed in C, which a spec is not
    if kind is Variable:
        return is_trainable(value), value._spec.shape, value._spec.dtype
    if kind is tuple or kind is list:
        return (kind, *map(sign, value))
    if kind is dict:
        return (kind, *[(sign(key), sign(item)) for key, item in value.items()])
    if kind is str or kind is bool:
        return kind, value
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return (kind, *[(path, sign(leaf)) for path, leaf in paths(value)])
    return kind


def is_input(leaf: Any) -> bool:
    """Whether an argument is an input of the graph, and not fixed in it."""
    if isinstance(leaf, Variable):
        return not is_trainable(leaf)
    return isinstance(leaf, ARRAY_LIKE)


def arrays(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """The arrays among the arguments, in order."""
    return list(map(array_of, filter(is_input, leaves((args, named)))))


def fixed(args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are fixed in a graph, by path: -0.0, 0.0, 0 and False are four."""
    plain = (int, float, complex, str)
    return {
        path: repr(leaf) if isinstance(leaf, plain) or leaf is None else (type(leaf), id(leaf))
        for path, leaf in paths((args, named))
        if not is_input(leaf)
    }


def refuse_unhashable(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise for an argument that is neither an array nor can be told from others."""
    try:
        given = [*paths(list(args)), *paths(named)]
    except Exception:  # of a strange container: the run will show whether that matters
        return
    for path, leaf in given:
        if type(leaf).__hash__ is None and not issubclass(type(leaf), ARRAYS):
            raise DTypeError(
                f"compile: argument {path} is a {type(leaf).__name__}, which is neither an array "
                "nor hashable; pass arrays, numbers or strings, or let the function close over it"
            )
