"""Leaves of a saved tree: supported kinds, and their paths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from odyssey.checks import describe_type, format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, refuse_non_array
from odyssey.devices.half_dtypes import is_number_dtype
from odyssey.devices.same_device import host_array
from odyssey.devices.stateful import Stateful
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.random.generator import Generator
from odyssey.optim import Optimizer
from odyssey.optim.schedules import Schedule
from odyssey.table.store import refuse_in_vmap, store
from odyssey.tree import paths
from odyssey.tree_objects import holds_arrays, is_plain_class
from odyssey.tree_rebuild import attributes, is_cached_property
from odyssey.variable import Variable

__all__ = [
    "EmptyList",
    "class_of",
    "format_few",
    "leaf_kind",
    "named_leaves",
    "refuse_in_trace",
    "saved_attributes",
    "state_of",
]

# The default repr of a key contains its address.
_ADDRESS = re.compile(r"\[<[^\[]* at 0x[0-9A-Fa-f]+>\]")
# The order in a set's repr differs from process to process.
_SET = re.compile(r"[\[( ]frozenset\(\{[^{}]*,")

_PLAIN = (type(None), bool, int, float, complex, str)


def saved_attributes(node: Any) -> dict[str, Any] | None:
    """Return the attributes of a plain object that are saved: all that a tree may hold."""
    return _saved_attributes(node, set())


def _saved_attributes(node: Any, known: set[int]) -> dict[str, Any] | None:
    kind = type(node)
    if not is_plain_class(kind):
        return None
    known.add(id(node))
    found = {
        name: value
        for name, value in attributes(node)
        if not is_cached_property(kind, name) and _is_saved(value, known)
    }
    return found or None


def _is_saved(value: Any, known: set[int]) -> bool:
    """Return whether an attribute holds an array, or nothing but what can be saved."""
    if id(value) in known or holds_arrays(value):
        return True
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    elif hasattr(type(value), "__dataclass_fields__"):
        parts = [part for _, part in attributes(value)]
    else:
        return _can_be_saved(value) or _saved_attributes(value, known) is not None
    known.add(id(value))
    return all(_is_saved(part, known) for part in parts)


def _can_be_saved(leaf: Any) -> bool:
    if type(leaf) in (*_PLAIN, type(...)) or isinstance(leaf, (Optimizer, Schedule, Generator)):
        return True
    # By name, since NumPy imports numpy.random at the first use, which takes 10 ms.
    of_numpy = any(str(kind.__module__).startswith("numpy.random") for kind in type(leaf).__mro__)
    return of_numpy or isinstance(leaf, (Stateful, EmptyList))


class EmptyList:
    """A leaf of ``like`` that takes what the file has there, instead of an empty list."""

    def __repr__(self) -> str:
        return "[]"


def refuse_in_trace(who: str) -> None:
    """Raise TapeError while a graph is traced: no graph can access files."""
    store().refuse_effect(f"{who}: called", "call it outside of the compiled function")
    refuse_in_vmap(who)


def named_leaves(who: str, tree: Any) -> dict[str, Any]:
    """Return the leaves of a tree by path.

    Raises:
        SettingError: if two leaves have one path, or a path would differ in another process.
    """
    by_path: dict[str, Any] = {}
    for path, leaf in paths(tree, rule=saved_attributes):
        if path in by_path:
            raise SettingError(
                f"{who}: two leaves are called {format_value(path)}, since different keys look the "
                "same; use text or numbers for keys"
            )
        if _ADDRESS.search(path):
            raise SettingError(
                f"{who}: {format_value(path)} has a key that is known by its address, which "
                "another process does not have; use text or numbers for keys"
            )
        if _SET.search(path):
            raise SettingError(
                f"{who}: {format_value(path)} has a set for a key, whose members another process "
                "lists in another order; use text, numbers or tuples for keys"
            )
        by_path[path] = leaf
    return by_path


def format_few(names: list[str]) -> str:
    """Return the first of many names, for a message."""
    most = 4
    text = ", ".join(map(short_path, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def short_path(path: str) -> str:
    """Return a path on one short line; the path of a tree that is a leaf is empty."""
    path = path.encode("ascii", "backslashreplace").decode() if not path.isprintable() else path
    return "the root" if not path else path if len(path) <= 80 else f"{path[:38]}..{path[-38:]}"


def leaf_kind(who: str, path: str, leaf: Any) -> str:
    """Return the kind of a leaf, which names it in a file.

    Raises:
        DTypeError: if leaves of its type cannot be saved.
    """
    if type(leaf) in _PLAIN:
        return type(leaf).__name__
    if isinstance(leaf, Variable):
        return "Variable"
    if isinstance(leaf, ARRAYS):
        refuse_non_array(who, short_path(path), leaf)
        return "array" if is_number_dtype(leaf.dtype) else _raise_unsupported(who, path, leaf)
    if isinstance(leaf, np.generic) and is_number_dtype(leaf.dtype):
        return "scalar"
    for kind, name in ((Optimizer, "optimizer"), (Schedule, "schedule")):
        if isinstance(leaf, kind):
            _refuse_own_state(who, path, leaf, kind)
            return name
    if isinstance(leaf, Generator):
        return "generator"
    if isinstance(leaf, Stateful):
        return "stateful"
    # Last, since NumPy imports numpy.random at the first use, which takes 10 ms.
    if isinstance(leaf, (np.random.Generator, np.random.RandomState, np.random.BitGenerator)):
        return "generator"
    return _raise_unsupported(who, path, leaf)


def _raise_unsupported(who: str, path: str, leaf: Any) -> str:
    text = describe_type(leaf)
    if isinstance(leaf, ARRAY_LIKE):
        text += f" of dtype {leaf.dtype}"
    raise DTypeError(
        f"{who}: {short_path(path)} is {text}; a tree may hold Variables, arrays of numbers, "
        "numbers, text, None, optimizers, schedules and random generators, NumPy's too"
    )


def _refuse_own_state(who: str, path: str, leaf: Any, kind: Any) -> None:
    """Raise DTypeError for a class with its own state_dict: loading it may not be atomic."""
    for name in ("state_dict", "load_state_dict"):
        if getattr(type(leaf), name) is not getattr(kind, name):
            raise DTypeError(
                f"{who}: {short_path(path)} is {describe_type(leaf)}, which has a {name} "
                "of its own; save what its state_dict() returns, and give load_state_dict() that"
            )


def class_of(leaf: Any) -> str:
    """Return the class name of an optimizer, a schedule or a generator in a file."""
    name = type(leaf).__name__
    if isinstance(leaf, np.random.Generator):
        return f"{name}({type(leaf.bit_generator).__name__})"
    return name


def state_of(leaf: Any) -> Any:
    """Return the state of an optimizer, schedule or generator; its arrays may be shared."""
    if isinstance(leaf, Optimizer):
        return leaf._saved(host_array)
    if isinstance(leaf, (Schedule, Stateful)):
        return leaf.state_dict()
    if isinstance(leaf, np.random.RandomState):
        return leaf.get_state(legacy=False)
    return getattr(leaf, "bit_generator", leaf).state
