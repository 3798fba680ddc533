"""What containers, arrays, classes and other objects hold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from functools import partial
from types import (
    BuiltinFunctionType,
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
    WrapperDescriptorType,
)
from typing import Any
from weakref import ref

import numpy as np

from odyssey.checks import article
from odyssey.compiler.guards import terms as w
from odyssey.compiler.guards.c_types import FIELD, KNOWN, made_of
from odyssey.compiler.guards.discovery import Unwatchable, Walk
from odyssey.compiler.guards.effects import home_of
from odyssey.compiler.guards.functions import (
    take_builtin,
    take_function,
    take_method,
    take_module,
    take_partial,
)
from odyssey.compiler.guards.library_objects import is_ours, take_ours
from odyssey.devices.arrays import ARRAYS
from odyssey.table.value import Symbol
from odyssey.transforms.replay import DICT_VIEWS, dictionary_of, is_generator, of_users

__all__ = ["take"]

# A list of up to so many is watched place by place, which is faster than to iterate over it.
_FEW = 32

# Nothing of these changes, and they hold nothing that does.
_LEAVES = (
    *(np.generic, np.dtype, date, time, timedelta, tzinfo, Symbol),
    *(CodeType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, FIELD, type(NotImplemented)),
)


def take(walk: Walk, thing: Any, path: str) -> None:
    """Take up one thing that was met: watch what can change of it, and meet its parts."""
    for kinds, one in _TAKING:
        if isinstance(thing, kinds):
            one(walk, thing, path)
            if of_users(type(thing)) and not isinstance(thing, (type, partial)):
                walk.take_object(thing, path)  # of a class made from property, say
            return
    if is_ours(thing):
        take_ours(walk, thing, path)
    elif is_generator(thing):
        walk.generators.append(path)
        if of_users(type(thing)):
            walk.take_object(thing, path)
    elif isinstance(thing, _LEAVES):
        if of_users(type(thing)):
            walk.take_object(thing, path)
    else:
        _take_other(walk, thing, path)


def _take_other(walk: Walk, thing: Any, path: str) -> None:
    kind = type(thing)
    if hasattr(kind, "__next__"):
        raise Unwatchable(f"it reaches {path}, an iterator, which goes on with each call")
    if isinstance(thing, (ref, ContextVar)) or not issubclass(made_of(kind), KNOWN):
        raise Unwatchable(f"it reaches {path}, {article(kind.__name__)}, which cannot be watched")
    if not of_users(kind):
        walk.refuse(kind, home_of(kind), kind.__name__)
    for container, one in _CONTAINERS.items():
        if isinstance(thing, container):
            one(walk, thing, path)
    if kind not in _CONTAINERS:
        walk.take_object(thing, path)


# ------------------------------------------------------------------ containers


def _take_list(walk: Walk, things: list[Any], path: str) -> None:
    if type(things) is list and len(things) <= _FEW:
        walk.watch(w.number_of(path, things))
        for k in range(len(things)):
            walk.follow(w.item(f"{path}[{k}]", things, k))
        return
    _watch_members(walk, things, path, list.__iter__)


def _watch_members(walk: Walk, things: Any, path: str, over: Callable[[Any], Any]) -> None:
    """Watch the members by one term; ``over`` iterates, whatever a class of users says."""
    held = walk.watch(w.members(path, things, over))
    for k, part in enumerate(held):
        walk.meet(part, f"{path}[{k}]")


def _take_set(walk: Walk, things: Any, path: str) -> None:
    _watch_members(walk, things, path, set.__iter__)


def _take_deque(walk: Walk, things: Any, path: str) -> None:
    _watch_members(walk, things, path, deque.__iter__)


def _take_tuple(walk: Walk, things: Any, path: str) -> None:
    """Tuples and frozen sets do not change; what they hold may."""
    for k, part in enumerate(tuple.__iter__(things) if isinstance(things, tuple) else things):
        if type(things) is tuple and isinstance(part, ARRAYS):
            walk.watch(w.item(f"{path}[{k}]", things, k))
        else:
            walk.meet(part, f"{path}[{k}]")


def _take_slice(walk: Walk, part: slice, path: str) -> None:
    for bound in (part.start, part.stop, part.step):
        walk.meet(bound, path)


def _take_dict(walk: Walk, things: dict[Any, Any], path: str) -> None:
    plain = type(things) is dict and all(type(key) is str for key in things)
    if plain and len(things) <= _FEW:
        walk.watch(w.keys(f"the keys of {path}", things.keys, "{0}", things, None))
        for key in things:
            walk.follow(w.item(f"{path}[{key!r}]", things, key))
        return
    kind: Any = OrderedDict if isinstance(things, OrderedDict) else dict
    for key in walk.watch(w.members(f"the keys of {path}", things, kind.__iter__)):
        walk.meet(key, f"a key of {path}")
    values = walk.watch(w.members(path, things, lambda held: kind.values(held)))
    for key, part in zip(kind.__iter__(things), values, strict=True):
        walk.meet(part, f"{path}[{key!r}]")
    if isinstance(things, defaultdict):
        walk.follow(w.attribute(f"{path}.default_factory", things, "default_factory"))


def _take_proxy(walk: Walk, things: Any, path: str) -> None:
    for key in walk.watch(w.members(f"the keys of {path}", things, iter)):
        walk.meet(key, f"a key of {path}")
    for part in walk.watch(w.members(path, things, lambda held: held.values())):
        walk.meet(part, f"an item of {path}")


def _take_view(walk: Walk, view: Any, path: str) -> None:
    for held in dictionary_of(view):
        walk.meet(held, f"the dictionary of {path}")


def _take_bytes(walk: Walk, buffer: Any, path: str) -> None:
    walk.watch(w.bytes_of(path, buffer))
    if isinstance(buffer, memoryview):
        walk.meet(buffer.obj, f"{path}.obj")


_CONTAINERS: dict[type, Callable[[Walk, Any, str], None]] = {
    list: _take_list,
    tuple: _take_tuple,
    frozenset: _take_tuple,
    set: _take_set,
    deque: _take_deque,
    dict: _take_dict,
    OrderedDict: lambda walk, things, path: None,  # as the dictionary that it is
    defaultdict: lambda walk, things, path: None,
    slice: _take_slice,
    MappingProxyType: _take_proxy,
    **dict.fromkeys(DICT_VIEWS, _take_view),
    bytearray: _take_bytes,
    memoryview: _take_bytes,
}


# ------------------------------------------------------------------ arrays, classes, descriptors


def _take_array(walk: Walk, array: Any, path: str) -> None:
    """Take up an array that was met at no place of its own."""
    walk.watch(w.Place(path, "{0}", lambda: array, array))


def _take_record(walk: Walk, record: np.void, path: str) -> None:
    """Take up an element of a structured array, which shows the array's memory."""
    if record.dtype.hasobject:
        raise Unwatchable(f"it reaches {path}, a record of Python objects")
    walk.watch(w.bytes_of(path, record))


def _take_class(walk: Walk, kind: type, path: str) -> None:
    walk.take_abstract(kind)
    if of_users(kind):
        walk.take_class(kind, path, made=True)
    else:
        walk.refuse(kind, home_of(kind), kind.__name__)


def _take_numpys(walk: Walk, function: Any, path: str) -> None:
    """Take up a function of NumPy's, unless it is one of Python that ``np.frompyfunc`` made."""
    if isinstance(function, np.ufunc):
        if all(set(kind) <= set("O->") for kind in function.types):
            raise Unwatchable(f"it reaches {path}, a function of Python that NumPy wraps")
        return
    walk.refuse(function, str(function.__module__), function.__name__)


def _take_wrapped(walk: Walk, made: Any, path: str) -> None:
    walk.meet(made.__func__, path)


def _take_property(walk: Walk, made: property, path: str) -> None:
    for part in (made.fget, made.fset, made.fdel):
        walk.meet(part, path)


def _take_bound(walk: Walk, method: Any, path: str) -> None:
    walk.meet(method.__self__, path)


_TAKING: list[tuple[Any, Callable[[Walk, Any, str], None]]] = [
    (FunctionType, take_function),
    (MethodType, take_method),
    (BuiltinFunctionType, take_builtin),
    (MethodWrapperType, _take_bound),
    (partial, take_partial),
    ((np.ufunc, type(np.sum)), _take_numpys),
    (ModuleType, take_module),
    (type, _take_class),
    ((staticmethod, classmethod), _take_wrapped),
    (property, _take_property),
    (ARRAYS, _take_array),
    (np.void, _take_record),
]
