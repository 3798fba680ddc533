"""Containers made again: of other children, and with what else they hold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from types import MemberDescriptorType
from typing import Any

from odyssey.errors import DTypeError

__all__ = [
    "attributes",
    "extra_attributes",
    "field_names",
    "is_cached_property",
    "namedtuple_fields",
    "rebuild_container",
]

_MISSING = object()


def field_names(node: Any) -> list[str]:
    """The names of a dataclass's fields."""
    # Imported where it is needed: it brings inspect along, a tenth of the package's import time.
    from dataclasses import fields

    return [field.name for field in fields(node)]


def namedtuple_fields(node: Any) -> tuple[str, ...]:
    """The names of a named tuple's fields; none for other tuples, and all else."""
    names = getattr(type(node), "_fields", ()) if isinstance(node, tuple) else ()
    return names if type(names) is tuple and len(names) == len(node) else ()


def rebuild_container(node: Any, values: list[Any], names: Iterable[str] | None = None) -> Any:
    """A container like ``node`` of other children.

    Args:
        node: The container.
        values: The children.
        names: The attributes that are the children of a plain object; None for other containers.
    """
    if names is not None:
        return _rebuild_plain_object(node, names, values)
    if type(node) is dict:
        return dict(zip(node, values, strict=True))
    if type(node) is list:
        return values
    if type(node) is tuple:
        return tuple(values)
    if isinstance(node, dict):
        return _rebuild_dict(node, values)
    if isinstance(node, list):
        return _rebuild_list(node, values)
    if isinstance(node, tuple):
        return _rebuild_tuple(node, values)
    return _rebuild_dataclass(node, values)


def _rebuild_dict(node: Any, values: list[Any]) -> Any:
    """Code of the class might convert the items, and has done so before; none of it runs."""
    if type(node) is defaultdict:
        return defaultdict(node.default_factory, zip(node, values, strict=True))
    base: Any = next(
        kind for kind in type(node).__mro__ if kind in (OrderedDict, defaultdict, dict)
    )
    made = base.__new__(type(node))
    if base is defaultdict:
        made.default_factory = node.default_factory
    if getattr(node, "__dict__", None) is node:  # its items are its attributes
        made.__dict__ = made
    room = _copy_attributes(made, node)
    for key, value in zip(node, values, strict=True):
        if key in room and room[key] is dict.get(node, key):  # it is an attribute as well
            _instance_dict(made)[key] = value
        base.__setitem__(made, key, value)
    return _drop_cached(made)


def _rebuild_list(node: Any, values: list[Any]) -> Any:
    made = list.__new__(type(node))
    _copy_attributes(made, node)
    list.__setitem__(made, slice(None), values)
    return _drop_cached(made)


def _rebuild_tuple(node: Any, values: list[Any]) -> Any:
    kind = type(node)
    try:
        made = tuple.__new__(kind, values)
    except TypeError as error:  # a class written in C
        raise DTypeError(
            f"a tree: {kind.__name__} cannot be made again with other values ({error}); "
            "pass a plain tuple"
        ) from error
    _copy_attributes(made, node)
    return _drop_cached(made)


def _rebuild_dataclass(node: Any, values: list[Any]) -> Any:
    """A dataclass's object of other children: no code of the class runs, as a constructor would."""
    kind = type(node)
    try:
        made = object.__new__(kind)
    except TypeError:  # a class that is made from one written in C
        made = copy(node)
    names, room = field_names(node), _instance_dict(node)
    more = not room.keys() <= set(names)
    _copy_attributes(made, node, more, names)
    described = _data_descriptors(kind, names)
    for name, value in zip(names, values, strict=True):
        homes = _backing_attributes(node, name) if name in described else []
        for place in homes or [name]:
            if place in homes and place in room:
                _instance_dict(made)[place] = value
            else:  # which calls a setter, where no home is known
                object.__setattr__(made, place, value)  # also where it is frozen
    return _drop_cached(made) if more else made


def _rebuild_plain_object(node: Any, names: Iterable[str], values: list[Any]) -> Any:
    """An object of the same class with other children; its constructor does not run."""
    made = object.__new__(type(node))
    _copy_attributes(made, node)
    room = _instance_dict(made)
    slots = {slot.__name__: slot for slot in _slots(type(node)) if slot.__name__ not in room}
    for name, value in zip(names, values, strict=True):
        if name in room:
            room[name] = value
        else:
            slots[name].__set__(made, value)
    return _drop_cached(made)


# ------------------------------------------------------------------ attributes


def _instance_dict(node: Any) -> dict[str, Any]:
    found = getattr(node, "__dict__", None)
    return found if type(found) is dict else {}


def _copy_attributes(made: Any, node: Any, more: bool = True, but: Any = ()) -> dict[str, Any]:
    """Give what is made the attributes of another one, and return those without slots."""
    for slot in _slots(type(node)):
        if slot.__name__ not in but and (held := _slot_value(slot, node)) is not _MISSING:
            slot.__set__(made, held)
    room = _instance_dict(node)
    if room and more:
        _instance_dict(made).update(room)
    return room


def _slots(kind: type) -> list[Any]:
    """The descriptors of all slots of a class, also of those that it is made from."""
    rooms = [base.__dict__ for base in kind.__mro__ if "__slots__" in base.__dict__]
    parts = [part for room in rooms for part in room.values()]
    return [part for part in parts if type(part) is MemberDescriptorType]


def _slot_value(slot: Any, node: Any) -> Any:
    try:
        return slot.__get__(node)
    except AttributeError:
        return _MISSING


def _class_attribute(kind: type, name: str) -> Any:
    """Return the attribute of a class without calling descriptors."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), _MISSING)


def _data_descriptors(kind: type, names: list[str]) -> set[str]:
    """The attributes that are set by code of the class: that of a property, say."""
    found = {name for base in kind.__mro__[:-1] for name in names if name in base.__dict__}
    made = {name: type(_class_attribute(kind, name)) for name in found}
    return {n for n, k in made.items() if k is not MemberDescriptorType and hasattr(k, "__set__")}


def _backing_attributes(node: Any, name: str) -> list[str]:
    """Return the attributes that hold the value of a field that is a property."""
    value = getattr(node, name)
    return [n for n, v in attributes(node) if v is value and n.endswith(name)]


def is_cached_property(kind: type, name: str) -> bool:
    """Return whether an attribute is a ``cached_property``, or a descriptor like it."""
    by_class = _class_attribute(kind, name)
    descriptor = type(by_class)
    if callable(by_class) or descriptor is classmethod or not hasattr(descriptor, "__get__"):
        return False
    return not hasattr(descriptor, "__set__")


def _drop_cached(made: Any) -> Any:
    """Forget what was computed of the children before."""
    if room := _instance_dict(made):
        kind = type(made)
        fields = getattr(kind, "__dataclass_fields__", ())
        for name in [
            name for name in room if name not in fields and is_cached_property(kind, name)
        ]:
            del room[name]
    return made


def attributes(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object has of its own, with their names."""
    yield from list(_instance_dict(node).items())
    for slot in _slots(type(node)):
        if (held := _slot_value(slot, node)) is not _MISSING:
            yield slot.__name__, held


def extra_attributes(node: Any, children: Collection[str] | None = None) -> list[tuple[str, Any]]:
    """The attributes of a container that are no children of it, nor computed of these.

    Args:
        node: The container.
        children: The attributes that are the children of a plain object.
    """
    kind = type(node)
    found = list(attributes(node))
    if not found:
        return found
    inner: set[str] = set()
    if isinstance(node, dict):
        inner.update(n for n, v in found if dict.get(node, n) is v)
    if children is not None:
        inner.update(children)
    elif not isinstance(node, (dict, list, tuple)):
        names = field_names(node)
        inner.update(
            names, *[_backing_attributes(node, name) for name in _data_descriptors(kind, names)]
        )
    return [(n, v) for n, v in found if n not in inner and not is_cached_property(kind, n)]


def __dir__() -> list[str]:
    return sorted(__all__)
