"""Plain objects as containers: which objects are trees, and which attributes are children."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from odyssey.checks import is_installed, is_standard_library
from odyssey.tree_rebuild import attributes, is_cached_property

__all__ = [
    "HOLE",
    "LEAF_TYPES",
    "READ_OBJECTS",
    "AttributeRule",
    "array_attributes",
    "array_type",
    "holds_arrays",
    "is_array",
    "is_plain_class",
    "no_attributes",
    "variable_type",
]

AttributeRule = Callable[[Any], dict[str, Any] | None]
"""Returns the attributes of a plain object that are its children; None if it is a leaf."""

# Most leaves: finding out that one is no container took most of the time of a walk.
LEAF_TYPES: set[type] = {
    *(np.ndarray, np.float64, np.float32, np.bool_),
    *(float, int, bool, complex, type(None)),
}
"""Types whose instances are leaves; instances of subclasses may be containers."""

READ_OBJECTS: ContextVar[list[Any] | None] = ContextVar("odyssey_read_objects", default=None)
"""The plain objects whose attributes were read as a tree, where a trace collects them."""

_ARRAY_TYPES: list[type] = [np.ndarray, np.generic]
_VARIABLE_TYPES: list[type] = []
# The commonest of these types themselves: a look-up is faster than a check by inheritance.
_EXACT_VARIABLES: set[type] = set()
_EXACT_ARRAYS: set[type] = {np.ndarray, np.float64, np.float32, np.bool_}

# Types of common attributes that hold no arrays.
_ATOMS = frozenset(
    {
        *(str, bytes, int, float, bool, complex, type(None)),
        *(type, np.ufunc, FunctionType, BuiltinFunctionType, MethodType, ModuleType),
    }
)

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: classes that are made at run time, as Python's are

# Attributes by which other libraries' arrays and tables are known; they are not taken apart.
_ARRAY_PROTOCOLS = (
    *("__array__", "__array_interface__", "__array_struct__", "__array_ufunc__"),
    *("__array_function__", "__array_priority__", "__dlpack__", "__dataframe__"),
)

# Modules of the standard library whose classes have no state of their own.
_STATELESS_MODULES = frozenset({"abc", "typing", "collections.abc"})


HOLE = np.False_
"""A placeholder for an array: a tree of it has the structure of one of arrays."""


def variable_type(kind: type) -> None:
    """Add a class whose instances are Variables to trees: an object that holds one is a tree."""
    _ARRAY_TYPES.append(kind)
    _VARIABLE_TYPES.append(kind)
    _EXACT_ARRAYS.add(kind)
    _EXACT_VARIABLES.add(kind)


def array_type(kind: type, joins: bool) -> None:
    """Add a class of a device's arrays to trees, or take it out of them again."""
    if joins:
        _ARRAY_TYPES.append(kind)
    else:
        _ARRAY_TYPES.remove(kind)
    for known in (_EXACT_ARRAYS, LEAF_TYPES):
        (known.add if joins else known.discard)(kind)


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array, a Variable or a traced value."""
    return isinstance(leaf, tuple(_ARRAY_TYPES))


def no_attributes(node: Any) -> None:
    """Return None: all plain objects are leaves."""
    return


def array_attributes(node: Any) -> dict[str, Any] | None:
    """Return the attributes of a plain object that are or hold arrays; None if there are none.

    An object of an installed package is a leaf unless it holds a Variable, at any depth: figures
    and tables hold arrays that are not ours.
    """
    kind = type(node)
    known = _kind_of(kind)
    if not known.is_plain or kind in LEAF_TYPES:
        return None
    if (read := READ_OBJECTS.get()) is not None:
        read.append(node)
    held = _attributes_of(node, known.has_slots)
    if known.is_foreign and not _holds([value for _, value in held], only_variables=True):
        return None
    found = {}
    for name, value in held:
        of = type(value)
        if of in _ATOMS or name in known.computed:
            continue
        if of in _EXACT_ARRAYS or _holds([value], only_variables=False):
            found[name] = value
    return found or None


def holds_arrays(value: Any) -> bool:
    """Return whether a value is an array, or a container or plain object that holds one."""
    return _holds([value], only_variables=False)


def _holds(values: list[Any], only_variables: bool) -> bool:
    todo, known = [(value, only_variables) for value in values], set()
    while todo:
        node, strict = todo.pop()
        kind = type(node)
        if kind in (_EXACT_VARIABLES if strict else _EXACT_ARRAYS):
            return True
        if kind in _ATOMS or kind in LEAF_TYPES:
            continue
        if isinstance(node, tuple(_VARIABLE_TYPES if strict else _ARRAY_TYPES)):
            return True
        if (id(node), strict) in known:
            continue
        parts, is_foreign = _parts_of(node)
        if parts:
            known.add((id(node), strict))
            strict |= is_foreign
            if not (_EXACT_VARIABLES if strict else _EXACT_ARRAYS).isdisjoint(map(type, parts)):
                return True
            todo += [(part, strict) for part in parts if type(part) not in _ATOMS]
    return False


def _parts_of(node: Any) -> tuple[list[Any], bool]:
    """Return what a container or plain object holds, and whether only Variables in it count."""
    kind = type(node)
    if isinstance(node, dict):
        return list(node.values()), False
    if isinstance(node, (list, tuple)):
        return list(node), False
    if hasattr(kind, "__dataclass_fields__"):
        return [value for _, value in attributes(node)], False
    found = _kind_of(kind)
    if found.is_plain:
        parts = [value for _, value in _attributes_of(node, found.has_slots)]
        return parts, found.is_foreign
    return [], False


def _is_foreign(kind: type) -> bool:
    return is_installed(kind.__module__.partition(".")[0])


class _Kind(NamedTuple):
    """Properties of a class, for the walk of a tree.

    Attributes:
        is_plain: Whether its objects may be trees.
        is_foreign: Whether it is of an installed package.
        has_slots: Whether its objects have slots.
        computed: The attributes that a ``cached_property`` sets.
    """

    is_plain: bool
    is_foreign: bool
    has_slots: bool
    computed: frozenset[str]


def _kind_of(kind: type) -> _Kind:
    # A cache: a model has few classes, and many objects that are asked at each walk.
    found = _KINDS.get(kind)
    if found is None:
        has_slots = any("__slots__" in vars(base) for base in kind.__mro__[:-1])
        names = {name for base in kind.__mro__[:-1] for name in vars(base)}
        computed = frozenset(name for name in names if is_cached_property(kind, name))
        plain = is_plain_class(kind), _is_foreign(kind)
        found = _KINDS[kind] = _Kind(*plain, has_slots, computed)
    return found


_KINDS: WeakKeyDictionary[type, _Kind] = WeakKeyDictionary()


def _attributes_of(node: Any, has_slots: bool) -> list[tuple[str, Any]]:
    if has_slots or type(found := getattr(node, "__dict__", None)) is not dict:
        return list(attributes(node))
    return list(found.items())


def is_plain_class(kind: type) -> bool:
    """Return whether objects of a class may be trees.

    Such a class is written in Python, and so are its bases; none of them is of Python's library,
    of NumPy or of this package, nor an array of another library.
    """
    if kind in LEAF_TYPES:
        return False
    if hasattr(kind, "__dataclass_fields__") or any(hasattr(kind, p) for p in _ARRAY_PROTOCOLS):
        return False
    return all(map(_is_plain_base, kind.__mro__[:-1]))


def _is_plain_base(base: type) -> bool:
    module = base.__module__
    if not isinstance(module, str):
        return False
    if module in _STATELESS_MODULES:
        return True
    top = module.partition(".")[0]
    if top in ("numpy", "odyssey") or not base.__flags__ & _HEAP_TYPE:
        return False
    # A class of code without ``__name__`` is called one of builtins, and is none.
    if top != "builtins" and top in sys.stdlib_module_names and is_standard_library(top):
        return False
    if type(vars(base).get("__dict__")) not in (GetSetDescriptorType, type(None)):
        return False  # its attributes are what its code says
    # Classes that Python makes have one of these; those of extensions written in C have not.
    is_root = base.__base__ is object
    return not is_root or "__slots__" in vars(base) or "__weakref__" in vars(base)


def __dir__() -> list[str]:
    return sorted(__all__)
