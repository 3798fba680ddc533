"""Guards of containers, arrays, classes and other objects: their parts, by kind of object."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from functools import partial
from re import LOCALE, Pattern
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

from odyssey.checks import with_article
from odyssey.compiler.guards import terms
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
from odyssey.transforms.reachability import DICT_VIEWS, dict_of_view, is_generator, is_user_defined

__all__ = ["visit_object", "NAMED_TUPLE_FIELD", "KNOWN_C_TYPES", "c_base_of"]


# The class of the descriptors that named tuples have for their fields.
NAMED_TUPLE_FIELD = type(vars(namedtuple("Pair", "first"))["first"])

# If a class derives from these, or from no class written in C, a snapshot restores all that a run
# can change of its objects. Other classes written in C are unknown: caches, queues, foreign arrays.
KNOWN_C_TYPES = (
    *(type(None), int, float, complex, str, bytes, tuple, frozenset, range, slice, type(...)),
    *(FunctionType, BuiltinFunctionType, MethodType, CodeType, CellType, ModuleType, type),
    *(staticmethod, classmethod, property, super, partial, ref, ContextVar, MappingProxyType),
    *(BaseException, date, time, timedelta, tzinfo, type(np.sum), np.dtype, np.generic),
    *(list, dict, set, deque, bytearray, memoryview, *ARRAYS),
    *(NAMED_TUPLE_FIELD, SimpleNamespace),
)


def c_base_of(kind: type) -> type:
    """Return the base written in C of a class; ``NoneType`` where that is ``object``."""
    for base in kind.__mro__[:-1]:
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType) and new.__self__ is base:
            return base
    return type(None)


# The longest list that is guarded item by item, which is faster than to iterate over it.
_MAX_ITEMWISE = 32

# Immutable objects that hold nothing mutable. Some of their methods depend on more than the object:
# ``effects.impure_attributes`` names these.
_IMMUTABLE_TYPES = (
    *(np.generic, np.dtype, date, time, timedelta, tzinfo, Symbol),
    *(CodeType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, NAMED_TUPLE_FIELD, type(NotImplemented)),
)


def visit_object(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    """Guard what can change of an object, and visit its parts."""
    for kinds, visitor in _VISITORS:
        if isinstance(thing, kinds):
            visitor(discovery, thing, path)
            if is_user_defined(type(thing)) and not isinstance(thing, (type, partial)):
                discovery.visit_attributes(thing, path)  # a class that inherits from property, say
            return
    if is_odyssey_object(thing):
        visit_odyssey_object(discovery, thing, path)
    elif is_generator(thing):
        discovery.generators.append((path, thing))
        if is_user_defined(type(thing)):
            discovery.visit_attributes(thing, path)
    elif isinstance(thing, _IMMUTABLE_TYPES):
        _note_impure_methods(discovery, thing, path)
        if is_user_defined(type(thing)):
            discovery.visit_attributes(thing, path)
    else:
        _visit_other(discovery, thing, path)


def _note_impure_methods(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    """Note the methods of an immutable object that read the clock or its like."""
    if isinstance(thing, (MethodDescriptorType, ClassMethodDescriptorType)):
        discovery.names.mentioned.add(thing.__name__)
        discovery.note_impure_attributes(thing.__objclass__)
    elif isinstance(thing, np.generic):
        discovery.note_dtype(thing.dtype, path)
    else:
        discovery.note_impure_attributes(type(thing))


def _visit_other(discovery: GuardDiscovery, thing: Any, path: str) -> None:
    kind = type(thing)
    if hasattr(kind, "__next__") and not discovery.may_be_attributes_only(thing, path):
        raise Unguardable(f"it reaches {path}, an iterator, which advances with each call")
    if isinstance(thing, (ref, ContextVar)) or not issubclass(c_base_of(kind), KNOWN_C_TYPES):
        raise Unguardable(
            f"it reaches {path}, {with_article(kind.__name__)}, which cannot be guarded"
        )
    if isinstance(thing, Pattern) and thing.flags & LOCALE:
        raise Unguardable(f"it reaches {path}, a regular expression that depends on the locale")
    if not is_user_defined(kind):
        discovery.note_impure_attributes(kind)
        discovery.reject_side_effects(kind, defining_module(kind), kind.__name__)
    for container, visitor in _CONTAINER_VISITORS.items():
        if isinstance(thing, container):
            visitor(discovery, thing, path)
    if kind not in _CONTAINER_VISITORS:
        discovery.visit_attributes(thing, path)


# ------------------------------------------------------------------ containers


def _visit_list(discovery: GuardDiscovery, things: list[Any], path: str) -> None:
    if type(things) is list and len(things) <= _MAX_ITEMWISE:
        discovery.add_guard(terms.length_guard(path, things))
        for k in range(len(things)):
            _guard_item(discovery, things, k, path)
        return
    _guard_members(discovery, things, path, list.__iter__)


def _guard_item(discovery: GuardDiscovery, things: Any, key: Any, path: str) -> None:
    if (id(things), key) not in discovery.exempt:
        guard = terms.item_guard(f"{path}[{key!r}]", things, key)
        guard.place = things, key
        discovery.guard_and_visit(guard)


def _guard_members(
    discovery: GuardDiscovery, things: Any, path: str, iterate: Callable[[Any], Any]
) -> None:
    """Guard the members by one term; ``iterate`` bypasses what a user's class overrides."""
    held = discovery.add_guard(terms.members_guard(path, things, iterate))
    for k, part in enumerate(held):
        discovery.visit(part, f"{path}[{k}]")


def _visit_set(discovery: GuardDiscovery, things: Any, path: str) -> None:
    _guard_members(discovery, things, path, set.__iter__)


def _visit_deque(discovery: GuardDiscovery, things: Any, path: str) -> None:
    _guard_members(discovery, things, path, deque.__iter__)


def _visit_tuple(discovery: GuardDiscovery, things: Any, path: str) -> None:
    """Visit the members of a tuple or frozen set, which itself does not change."""
    for k, part in enumerate(tuple.__iter__(things) if isinstance(things, tuple) else things):
        if type(things) is tuple and isinstance(part, ARRAYS):
            discovery.add_guard(terms.item_guard(f"{path}[{k}]", things, k))
        else:
            discovery.visit(part, f"{path}[{k}]")


def _visit_slice(discovery: GuardDiscovery, part: slice, path: str) -> None:
    for bound in (part.start, part.stop, part.step):
        discovery.visit(bound, path)


def _visit_dict(discovery: GuardDiscovery, things: dict[Any, Any], path: str) -> None:
    plain = type(things) is dict and all(type(key) is str for key in things)
    if plain and len(things) <= _MAX_ITEMWISE:
        discovery.add_guard(
            terms.names_guard(f"the keys of {path}", things.keys, "{0}", things, None)
        )
        for key in things:
            _guard_item(discovery, things, key, path)
        return
    kind: Any = OrderedDict if isinstance(things, OrderedDict) else dict
    for key in discovery.add_guard(
        terms.members_guard(f"the keys of {path}", things, kind.__iter__)
    ):
        discovery.visit(key, f"a key of {path}")
    values = discovery.add_guard(terms.members_guard(path, things, lambda held: kind.values(held)))
    for key, part in zip(kind.__iter__(things), values, strict=True):
        discovery.visit(part, f"{path}[{key!r}]")
    if isinstance(things, defaultdict):
        discovery.names.writes_elements = True  # a read of a missing key adds it
        discovery.guard_and_visit(
            terms.attribute_guard(f"{path}.default_factory", things, "default_factory")
        )


def _visit_mapping_proxy(discovery: GuardDiscovery, things: Any, path: str) -> None:
    for key in discovery.add_guard(terms.members_guard(f"the keys of {path}", things, iter)):
        discovery.visit(key, f"a key of {path}")
    for part in discovery.add_guard(terms.members_guard(path, things, lambda held: held.values())):
        discovery.visit(part, f"an item of {path}")


def _visit_dict_view(discovery: GuardDiscovery, view: Any, path: str) -> None:
    for held in dict_of_view(view):
        discovery.visit(held, f"the dictionary of {path}")


def _visit_bytes(discovery: GuardDiscovery, buffer: Any, path: str) -> None:
    discovery.add_guard(terms.bytes_guard(path, buffer))
    if isinstance(buffer, memoryview):
        discovery.visit(buffer.obj, f"{path}.obj")


_CONTAINER_VISITORS: dict[type, Callable[[GuardDiscovery, Any, str], None]] = {
    list: _visit_list,
    tuple: _visit_tuple,
    frozenset: _visit_tuple,
    set: _visit_set,
    deque: _visit_deque,
    dict: _visit_dict,
    OrderedDict: lambda discovery, things, path: None,  # guarded as the dictionary that it is
    defaultdict: lambda discovery, things, path: None,
    slice: _visit_slice,
    MappingProxyType: _visit_mapping_proxy,
    **dict.fromkeys(DICT_VIEWS, _visit_dict_view),
    bytearray: _visit_bytes,
    memoryview: _visit_bytes,
}


# ------------------------------------------------------------------ arrays, classes, descriptors


def _visit_array(discovery: GuardDiscovery, array: Any, path: str) -> None:
    """Guard an array that no reference of its own leads to."""
    discovery.add_guard(terms.ReferenceGuard(path, "{0}", lambda: array, array))


def _visit_record(discovery: GuardDiscovery, record: np.void, path: str) -> None:
    """Guard an element of a structured array, which is a view of the array's memory."""
    if record.dtype.hasobject:
        raise Unguardable(
            f"it reaches {path}, a structured array element that holds Python objects"
        )
    discovery.note_dtype(record.dtype, path)
    discovery.add_guard(terms.bytes_guard(path, record))


def _visit_class(discovery: GuardDiscovery, kind: type, path: str) -> None:
    discovery.note_abstract_class(kind)
    if is_user_defined(kind):
        discovery.visit_class(kind, path, instantiated=True)
    else:
        discovery.note_impure_attributes(kind)
        discovery.reject_side_effects(kind, defining_module(kind), kind.__name__)


def _visit_numpy_function(discovery: GuardDiscovery, function: Any, path: str) -> None:
    """Check a function of NumPy, which must not be made by ``np.frompyfunc``."""
    if isinstance(function, np.ufunc):
        discovery.names.writes_elements = True  # ``np.add(a, b, c)`` writes to ``c``
        if all(set(kind) <= set("O->") for kind in function.types):
            raise Unguardable(f"it reaches {path}, a Python function that NumPy wraps")
        return
    discovery.reject_side_effects(function, str(function.__module__), function.__name__)


def _visit_wrapped(discovery: GuardDiscovery, wrapper: Any, path: str) -> None:
    discovery.visit(wrapper.__func__, path)


def _visit_property(discovery: GuardDiscovery, descriptor: property, path: str) -> None:
    for part in (descriptor.fget, descriptor.fset, descriptor.fdel):
        discovery.visit(part, path)


def _visit_bound_method(discovery: GuardDiscovery, method: Any, path: str) -> None:
    discovery.visit(method.__self__, path)


_VISITORS: list[tuple[Any, Callable[[GuardDiscovery, Any, str], None]]] = [
    (FunctionType, visit_function),
    (MethodType, visit_method),
    (BuiltinFunctionType, visit_builtin),
    (MethodWrapperType, _visit_bound_method),
    (partial, visit_partial),
    ((np.ufunc, type(np.sum)), _visit_numpy_function),
    (ModuleType, visit_module),
    (type, _visit_class),
    ((staticmethod, classmethod), _visit_wrapped),
    (property, _visit_property),
    (ARRAYS, _visit_array),
    (np.void, _visit_record),
]
