"""What containers, arrays, classes and other objects hold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any
from weakref import ref

import numpy as np

from odyssey.checks import article
from odyssey.compiler.guards import terms as w
from odyssey.compiler.guards.discovery import GuardDiscovery, Unguardable
from odyssey.compiler.guards.effects import defining_module
from odyssey.compiler.guards.functions import (
    visit_builtin,
    visit_function,
    visit_method,
    visit_module,
    visit_partial,
)
from odyssey.compiler.guards.library_objects import is_odyssey_object, visit_odyssey_object
from odyssey.devices.arrays import ARRAYS
from odyssey.table.value import Symbol
from odyssey.transforms.replay import DICT_VIEWS, dict_of_view, is_generator, is_user_defined

__all__ = ["visit_object", "NAMED_TUPLE_FIELD", "KNOWN_C_TYPES", "c_base_of"]


# What a class of named tuples has by the name of a field.
NAMED_TUPLE_FIELD = type(vars(namedtuple("Pair", "first"))["first"])

# What is made of these, or of no class written in C, holds nothing that a run changes but what is
# put back. Of other classes written in C nobody knows: caches, queues, arrays of other libraries.
KNOWN_C_TYPES = (
    *(type(None), int, float, complex, str, bytes, tuple, frozenset, range, slice, type(...)),
    *(FunctionType, BuiltinFunctionType, MethodType, CodeType, CellType, ModuleType, type),
    *(staticmethod, classmethod, property, super, partial, ref, ContextVar, MappingProxyType),
    *(BaseException, date, time, timedelta, tzinfo, type(np.sum), np.dtype, np.generic),
    *(list, dict, set, deque, bytearray, memoryview, *ARRAYS),
    *(NAMED_TUPLE_FIELD, SimpleNamespace),
)


def c_base_of(kind: type) -> type:
    """The class written in C that a class is made of; None's where that is ``object``."""
    for base in kind.__mro__[:-1]:
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType) and new.__self__ is base:
            return base
    return type(None)


# A list of up to so many is watched place by place, which is faster than to iterate over it.
_MAX_ITEMWISE = 32

# Nothing of these changes, and they hold nothing that does.
_IMMUTABLE_TYPES = (
    *(np.generic, np.dtype, date, time, timedelta, tzinfo, Symbol),
    *(CodeType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, NAMED_TUPLE_FIELD, type(NotImplemented)),
)


def visit_object(walk: GuardDiscovery, thing: Any, path: str) -> None:
    """Take up one thing that was met: watch what can change of it, and meet its parts."""
    for kinds, one in _VISITORS:
        if isinstance(thing, kinds):
            one(walk, thing, path)
            if is_user_defined(type(thing)) and not isinstance(thing, (type, partial)):
                walk.take_object(thing, path)  # of a class made from property, say
            return
    if is_odyssey_object(thing):
        visit_odyssey_object(walk, thing, path)
    elif is_generator(thing):
        walk.generators.append(path)
        if is_user_defined(type(thing)):
            walk.take_object(thing, path)
    elif isinstance(thing, _IMMUTABLE_TYPES):
        if is_user_defined(type(thing)):
            walk.take_object(thing, path)
    else:
        _visit_other(walk, thing, path)


def _visit_other(walk: GuardDiscovery, thing: Any, path: str) -> None:
    kind = type(thing)
    if hasattr(kind, "__next__"):
        raise Unguardable(f"it reaches {path}, an iterator, which goes on with each call")
    if isinstance(thing, (ref, ContextVar)) or not issubclass(c_base_of(kind), KNOWN_C_TYPES):
        raise Unguardable(f"it reaches {path}, {article(kind.__name__)}, which cannot be watched")
    if not is_user_defined(kind):
        walk.refuse(kind, defining_module(kind), kind.__name__)
    for container, one in _CONTAINER_VISITORS.items():
        if isinstance(thing, container):
            one(walk, thing, path)
    if kind not in _CONTAINER_VISITORS:
        walk.take_object(thing, path)


# ------------------------------------------------------------------ containers


def _visit_list(walk: GuardDiscovery, things: list[Any], path: str) -> None:
    if type(things) is list and len(things) <= _MAX_ITEMWISE:
        walk.watch(w.length_guard(path, things))
        for k in range(len(things)):
            walk.follow(w.item_guard(f"{path}[{k}]", things, k))
        return
    _guard_members(walk, things, path, list.__iter__)


def _guard_members(
    walk: GuardDiscovery, things: Any, path: str, over: Callable[[Any], Any]
) -> None:
    """Watch the members by one term; ``over`` iterates, whatever a class of users says."""
    held = walk.watch(w.members_guard(path, things, over))
    for k, part in enumerate(held):
        walk.meet(part, f"{path}[{k}]")


def _visit_set(walk: GuardDiscovery, things: Any, path: str) -> None:
    _guard_members(walk, things, path, set.__iter__)


def _visit_deque(walk: GuardDiscovery, things: Any, path: str) -> None:
    _guard_members(walk, things, path, deque.__iter__)


def _visit_tuple(walk: GuardDiscovery, things: Any, path: str) -> None:
    """Tuples and frozen sets do not change; what they hold may."""
    for k, part in enumerate(tuple.__iter__(things) if isinstance(things, tuple) else things):
        if type(things) is tuple and isinstance(part, ARRAYS):
            walk.watch(w.item_guard(f"{path}[{k}]", things, k))
        else:
            walk.meet(part, f"{path}[{k}]")


def _visit_slice(walk: GuardDiscovery, part: slice, path: str) -> None:
    for bound in (part.start, part.stop, part.step):
        walk.meet(bound, path)


def _visit_dict(walk: GuardDiscovery, things: dict[Any, Any], path: str) -> None:
    plain = type(things) is dict and all(type(key) is str for key in things)
    if plain and len(things) <= _MAX_ITEMWISE:
        walk.watch(w.names_guard(f"the keys of {path}", things.keys, "{0}", things, None))
        for key in things:
            walk.follow(w.item_guard(f"{path}[{key!r}]", things, key))
        return
    kind: Any = OrderedDict if isinstance(things, OrderedDict) else dict
    for key in walk.watch(w.members_guard(f"the keys of {path}", things, kind.__iter__)):
        walk.meet(key, f"a key of {path}")
    values = walk.watch(w.members_guard(path, things, lambda held: kind.values(held)))
    for key, part in zip(kind.__iter__(things), values, strict=True):
        walk.meet(part, f"{path}[{key!r}]")
    if isinstance(things, defaultdict):
        walk.follow(w.attribute_guard(f"{path}.default_factory", things, "default_factory"))


def _visit_mapping_proxy(walk: GuardDiscovery, things: Any, path: str) -> None:
    for key in walk.watch(w.members_guard(f"the keys of {path}", things, iter)):
        walk.meet(key, f"a key of {path}")
    for part in walk.watch(w.members_guard(path, things, lambda held: held.values())):
        walk.meet(part, f"an item of {path}")


def _visit_dict_view(walk: GuardDiscovery, view: Any, path: str) -> None:
    for held in dict_of_view(view):
        walk.meet(held, f"the dictionary of {path}")


def _visit_bytes(walk: GuardDiscovery, buffer: Any, path: str) -> None:
    walk.watch(w.bytes_guard(path, buffer))
    if isinstance(buffer, memoryview):
        walk.meet(buffer.obj, f"{path}.obj")


_CONTAINER_VISITORS: dict[type, Callable[[GuardDiscovery, Any, str], None]] = {
    list: _visit_list,
    tuple: _visit_tuple,
    frozenset: _visit_tuple,
    set: _visit_set,
    deque: _visit_deque,
    dict: _visit_dict,
    OrderedDict: lambda walk, things, path: None,  # as the dictionary that it is
    defaultdict: lambda walk, things, path: None,
    slice: _visit_slice,
    MappingProxyType: _visit_mapping_proxy,
    **dict.fromkeys(DICT_VIEWS, _visit_dict_view),
    bytearray: _visit_bytes,
    memoryview: _visit_bytes,
}


# ------------------------------------------------------------------ arrays, classes, descriptors


def _visit_array(walk: GuardDiscovery, array: Any, path: str) -> None:
    """Take up an array that was met at no place of its own."""
    walk.watch(w.ReferenceGuard(path, "{0}", lambda: array, array))


def _visit_record(walk: GuardDiscovery, record: np.void, path: str) -> None:
    """Take up an element of a structured array, which shows the array's memory."""
    if record.dtype.hasobject:
        raise Unguardable(f"it reaches {path}, a record of Python objects")
    walk.watch(w.bytes_guard(path, record))


def _visit_class_object(walk: GuardDiscovery, kind: type, path: str) -> None:
    walk.take_abstract(kind)
    if is_user_defined(kind):
        walk.take_class(kind, path, made=True)
    else:
        walk.refuse(kind, defining_module(kind), kind.__name__)


def _visit_numpy_function(walk: GuardDiscovery, function: Any, path: str) -> None:
    """Take up a function of NumPy's, unless it is one of Python that ``np.frompyfunc`` made."""
    if isinstance(function, np.ufunc):
        if all(set(kind) <= set("O->") for kind in function.types):
            raise Unguardable(f"it reaches {path}, a function of Python that NumPy wraps")
        return
    walk.refuse(function, str(function.__module__), function.__name__)


def _visit_wrapped(walk: GuardDiscovery, made: Any, path: str) -> None:
    walk.meet(made.__func__, path)


def _visit_property(walk: GuardDiscovery, made: property, path: str) -> None:
    for part in (made.fget, made.fset, made.fdel):
        walk.meet(part, path)


def _visit_bound_method(walk: GuardDiscovery, method: Any, path: str) -> None:
    walk.meet(method.__self__, path)


_VISITORS: list[tuple[Any, Callable[[GuardDiscovery, Any, str], None]]] = [
    (FunctionType, visit_function),
    (MethodType, visit_method),
    (BuiltinFunctionType, visit_builtin),
    (MethodWrapperType, _visit_bound_method),
    (partial, visit_partial),
    ((np.ufunc, type(np.sum)), _visit_numpy_function),
    (ModuleType, visit_module),
    (type, _visit_class_object),
    ((staticmethod, classmethod), _visit_wrapped),
    (property, _visit_property),
    (ARRAYS, _visit_array),
    (np.void, _visit_record),
]
