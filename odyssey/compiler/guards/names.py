"""What code asks for by name, and of what."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from odyssey.compiler.guards.bytecode import Reads, reads_of
from odyssey.compiler.guards.effects import home_of, is_library
from odyssey.transforms.replay import of_users

__all__ = ["TOLD", "Names", "chain_names", "found_in"]

# What Python itself asks of classes only where objects are written out, made, or copied.
_WRITTEN = {"__repr__", "__str__", "__format__"}
_MADE = {"__init__", "__new__", "__init_subclass__", "__set_name__", "__del__"}
_SET = {"__setattr__", "__delattr__", "__set__", "__delete__"}
_COPIED = {
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__"),
    *("__getnewargs__", "__getnewargs_ex__", "__sizeof__", "__dir__", "__replace__"),
}
# What says something of a class that no code does with.
TOLD = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
    *("__slots__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"),
    *("__firstlineno__", "__static_attributes__", "__abstractmethods__", "__parameters__"),
    *("__orig_bases__", "__annotate_func__", "__annotations_cache__", "__classdictcell__"),
    "_abc_impl",
}


class Names:
    """The names in the code that a walk has found so far.

    Attributes:
        names: Those of attributes, but for what the code asks of objects of libraries alone.
        spoken: Those of all attributes.
        selves: What the methods of a class, by its id, ask of their first argument.
        passed: The names on the way to what is asked.
        by_text: Whether the code may read attributes by names that are not in it.
        caught: Whether it goes on after errors, so that what is missing matters.
        identities: Whether it tells things apart by ``is``.
        told: Whether it asks objects whether they are of a class.
        owners: The class of a function, by its id, that is a method and nothing else.
        objects: The objects that were met, each with what was asked of it as a first argument.
        made: The ids of the classes of which the code may make objects.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.spoken: set[str] = set()
        self.selves: dict[int, set[tuple[str, ...]]] = {}
        self.passed: set[str] = set()
        self.by_text = self.caught = self.identities = self.told = False
        self.owners: dict[int, type] = {}
        self.objects: list[tuple[Any, set[tuple[str, ...]]]] = []
        self.made: set[int] = set()
        self._stored: set[str] = set()
        self._formats = self._kinds = self._stores = False

    def learn(self, reads: Reads) -> None:
        """Let names of attributes matter from now on."""
        self.names |= reads.loose
        self.spoken |= reads.attributes
        self._stored |= reads.stored
        self.by_text |= reads.by_text
        self.caught |= reads.caught
        self.identities |= reads.identities
        self.told |= reads.told
        self._formats |= reads.formats
        self._kinds |= reads.kinds
        self._stores |= reads.stores

    def ask(self, thing: Any, chain: tuple[str, ...]) -> None:
        """Note what the code asks of a thing: ``self.optimizer.step`` is no matter of ``self``."""
        for k, name in enumerate(chain):
            if isinstance(thing, ModuleType):
                self.names.update(chain[k:])
                return
            if is_of_users(thing):
                self.names.add(name)
            room = _room_of(thing)
            if name not in room or found_in(type(thing), name):
                self.names.update(chain[k + 1 :])
                return
            if chain[k + 1 :]:
                self.passed.add(name)
            thing = room[name]

    def owner_of(self, function: Any) -> type | None:
        """The class that a function is a method of, and nothing else; or None."""
        return self.owners.get(id(function))

    def disown(self, thing: Any) -> None:
        """Take a function for one whose first argument may be anything."""
        if self.owners.pop(id(thing), None) is not None and isinstance(thing, FunctionType):
            self.names.update(chain_names(reads_of(thing.__code__).arguments))

    def ask_selves(self) -> None:
        """Ask objects for what the methods of their classes ask of ``self``."""
        for thing, asked in self.objects:
            for base in type(thing).__mro__:
                for chain in self.selves.get(id(base), set()) - asked:
                    asked.add(chain)
                    self.ask(thing, chain)
        for owner, chains in self.selves.items():
            if owner in self.made or self._kinds:  # there are others
                self.names.update(chain_names(chains))
        if not self.passed.isdisjoint(self._stored):  # there may be something else for a while
            self.names |= self.spoken

    def is_read(self, name: str) -> bool:
        """Whether the code may read an attribute of this name."""
        return self.by_text or name in self.names

    def is_asked(self, name: str, kind: type) -> bool:
        """Whether the code, or Python for it, may ask a class for this name."""
        if name in TOLD or (name in _SET and _is_frozen(kind)):
            return False
        if name in self.names:
            return True
        if not (name.startswith("__") and name.endswith("__")):
            return self.by_text
        if name in _MADE:
            return id(kind) in self.made or self._kinds
        if name in _WRITTEN:
            return self._formats
        if name in _SET:
            return self._stores or self.by_text
        return name not in _COPIED or self.by_text


def chain_names(chains: Iterable[tuple[str, ...]]) -> set[str]:
    """All names in chains of attributes."""
    return {name for chain in chains for name in chain}


def _room_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object; no code of users is asked for them."""
    if isinstance(thing, type):
        return {}
    try:
        room = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return room if isinstance(room, dict) else {}


def is_of_users(thing: Any) -> bool:
    """Whether the names of a thing are those that users gave: not of what a library made."""
    if isinstance(thing, FunctionType):
        return not is_library(home_of(thing))
    if isinstance(thing, MethodType):  # which shows the names of its function
        return True
    return of_users(thing if isinstance(thing, (type, ModuleType)) else type(thing))


def found_in(kind: type, name: str) -> bool:
    """Whether a class, or one that it is made from, has something by a name."""
    return any(name in vars(base) for base in kind.__mro__)


def _is_frozen(kind: type) -> bool:
    """Whether a class is a frozen dataclass, to whose objects nothing is assigned."""
    return getattr(vars(kind).get("__dataclass_params__"), "frozen", False) is True
