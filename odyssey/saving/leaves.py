"""Leaves of a saved tree: supported kinds, and paths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from odyssey.checks import describe_type, format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, refuse_non_array
from odyssey.errors import DTypeError, SettingError
from odyssey.ops.random.generator import Generator
from odyssey.optim import Optimizer
from odyssey.optim.schedules import Schedule
from odyssey.table.store import store
from odyssey.tree import paths
from odyssey.variable import Variable

__all__ = ["class_of", "few", "kind_of", "named_leaves", "refuse_in_trace", "state_of"]

# What Python shows of a key whose class says nothing of it.
_ADDRESS = re.compile(r"\[<[^\[]* at 0x[0-9A-Fa-f]+>\]")
# Sets list their members in an order that differs from process to process.
_SET = re.compile(r"[\[( ]frozenset\(\{[^{}]*,")

_PLAIN = (type(None), bool, int, float, complex, str)


def refuse_in_trace(who: str) -> None:
    """Raise while a graph is traced: no graph can hold a file."""
    store().refuse_effect(f"{who}: called", "call it outside of what is compiled")


def named_leaves(who: str, tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path.

    Raises:
        SettingError: where two have one path, or a path would be another one in another process.
    """
    found: dict[str, Any] = {}
    for path, leaf in paths(tree):
        if path in found:
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
        found[path] = leaf
    return found


def few(names: list[str]) -> str:
    """A few of many names, for a message."""
    most = 4
    text = ", ".join(map(shown_path, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def shown_path(path: str) -> str:
    """A path on one short line; that of a tree that is a leaf is empty."""
    path = path.encode("ascii", "backslashreplace").decode() if not path.isprintable() else path
    return "the root" if not path else path if len(path) <= 80 else f"{path[:38]}..{path[-38:]}"


def kind_of(who: str, path: str, leaf: Any) -> str:
    """The kind of a leaf, by which it stands in a file.

    Raises:
        DTypeError: for what is not saved.
    """
    if type(leaf) in _PLAIN:
        return type(leaf).__name__
    if isinstance(leaf, Variable):
        return "Variable"
    if isinstance(leaf, ARRAYS):
        refuse_non_array(who, shown_path(path), leaf)
        return "array" if leaf.dtype.kind in "biufc" else _refused(who, path, leaf)
    if isinstance(leaf, np.generic) and leaf.dtype.kind in "biufc":
        return "scalar"
    for kind, name in ((Optimizer, "optimizer"), (Schedule, "schedule")):
        if isinstance(leaf, kind):
            _refuse_own_state(who, path, leaf, kind)
            return name
    if isinstance(leaf, Generator):
        return "generator"
    # NumPy loads its random numbers when they are first asked for, which takes 10 ms.
    if isinstance(leaf, (np.random.Generator, np.random.RandomState, np.random.BitGenerator)):
        return "generator"
    return _refused(who, path, leaf)


def _refused(who: str, path: str, leaf: Any) -> str:
    what = describe_type(leaf)
    if isinstance(leaf, ARRAY_LIKE):
        what += f" of dtype {leaf.dtype}"
    raise DTypeError(
        f"{who}: {shown_path(path)} is {what}; a tree may hold Variables, arrays of numbers, "
        "numbers, text, None, optimizers, schedules and random generators, NumPy's too"
    )


def _refuse_own_state(who: str, path: str, leaf: Any, kind: Any) -> None:
    """Raise for a class that saves itself: how it loads, all or nothing, is not known here."""
    for name in ("state_dict", "load_state_dict"):
        if getattr(type(leaf), name) is not getattr(kind, name):
            raise DTypeError(
                f"{who}: {shown_path(path)} is {describe_type(leaf)}, which has a {name} "
                "of its own; save what its state_dict() returns, and give load_state_dict() that"
            )


def class_of(leaf: Any) -> str:
    """Return the class name of an optimizer, a schedule or a generator in a file."""
    name = type(leaf).__name__
    if isinstance(leaf, np.random.Generator):
        return f"{name}({type(leaf.bit_generator).__name__})"
    return name


def state_of(leaf: Any) -> Any:
    """The state of an optimizer, a schedule or a generator; the arrays may be its own."""
    if isinstance(leaf, Optimizer):
        return leaf._saved(np.asarray)
    if isinstance(leaf, Schedule):
        return leaf.state_dict()
    if isinstance(leaf, np.random.RandomState):
        return leaf.get_state(legacy=False)
    return getattr(leaf, "bit_generator", leaf).state
