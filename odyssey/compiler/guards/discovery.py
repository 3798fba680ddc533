"""The walk from a function to everything of Python that its code may read.

Names lead it: of an object, a class or a module it takes up what the code that was found so far
may ask for by name, and begins anew whenever more code comes to light.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable
from enum import EnumMeta
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.checks import sort_of
from odyssey.compiler.guards import terms as w
from odyssey.compiler.guards.bytecode import INERT_NAMES, ReachedNames, class_defines
from odyssey.compiler.guards.effects import side_effect_of
from odyssey.compiler.guards.terms import array_elements_guard, array_layout_guard
from odyssey.devices.arrays import ARRAYS
from odyssey.optim.groups import Group
from odyssey.transforms.replay import MAX_REACHED, is_user_defined, slot_descriptors
from odyssey.variable import Variable

__all__ = ["Namespace", "Unguardable", "GuardDiscovery"]

# What is asked of a generator besides draws, which a trial notices.
_GENERATOR_STATE_NAMES = {
    "state",
    "get_state",
    "getstate",
    "bit_generator",
    "spawn",
    "jumped",
    "seed_seq",
}

# Effects on arrays that leave the elements as they are.
_ARRAY_FLAG_NAMES = {"setflags", "writeable", "tofile", "dump"}


class Unguardable(Exception):
    """Something is reached that nobody can watch."""


class Namespace:
    """Names of which only those matter that the code may read.

    Args:
        path: What a user would call the thing that has them.
        names: The names that are there now.
        place: Watches one of them, called as it is given.
        matters: Whether a name does.
        owner: The class whose names these are, if they are of one.
    """

    __slots__ = ("done", "matters", "names", "owner", "path", "place")

    def __init__(
        self,
        path: str,
        names: Callable[[], Iterable[str]],
        place: Callable[[str, str], w.Guard | None],
        matters: Callable[[str], bool],
        owner: type | None = None,
    ) -> None:
        self.path, self.names, self.place, self.matters = path, names, place, matters
        self.owner = owner
        self.done: set[str] = set()


class GuardDiscovery:
    """One walk; see ``guards_of``.

    Args:
        take: Takes up one thing that was met, and meets its parts.
        watching: Whether places are watched, or things only found.

    Attributes:
        watches: The places that were found so far.
        code: What the code that was found so far asks for.
        variables: The Variables that were met.
        groups: The parameter groups that were met.
        generators: What the random generators are called that were met.
        schedules: The schedules that were met; those of users are objects as others are.
        asks_schedules: Whether the code may ask for what the step of a schedule changes.
    """

    def __init__(
        self, take: Callable[[GuardDiscovery, Any, str], None], watching: bool = True
    ) -> None:
        self._take = take
        self.watching = watching
        self.watches: list[w.Guard] = []
        self.code = ReachedNames()
        self.variables: list[Variable] = []
        self.groups: list[Group] = []
        self.generators: list[str] = []
        self.schedules: list[Any] = []
        self.asks_schedules = False
        self.at_end: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._waiting: list[tuple[Any, str]] = []
        self._rooms: list[Namespace] = []
        self._watched: set[Any] = set()
        self._classes: dict[int, type] = {}

    # -------------------------------------------------------------- going

    def meet(self, thing: Any, path: str, owner: type | None = None) -> None:
        """Take a thing up, called ``path``, unless it is known.

        Args:
            thing: What.
            path: What it is called.
            owner: The class that it is a method of.
        """
        if thing is None or type(thing) in w.ATOMIC_TYPES:
            return
        if id(thing) in self._seen:
            if self.code.owner_of(thing) is not owner:
                self.code.disown(thing)
            return
        self._seen[id(thing)] = thing
        if owner is not None:
            self.code.owners[id(thing)] = owner
        self._waiting.append((thing, path))
        if max(len(self._seen), len(self.watches)) > MAX_REACHED:
            raise Unguardable(f"it reaches more than {MAX_REACHED:,} things")

    def watch(self, watch: w.Guard) -> Any:
        """Watch a place, once; return what is there."""
        kept = watch.kept
        if not isinstance(watch, w.ReferenceGuard) or not isinstance(kept, ARRAYS):
            self._add(watch)
            return kept
        self._seen[id(kept)] = kept
        if type(kept) not in (np.ndarray, np.memmap):
            kind = sort_of(kept)
            raise Unguardable(f"it reaches {watch.name}, {kind}, which is more than an array")
        if kept.dtype.hasobject:
            raise Unguardable(f"it reaches {watch.name}, an array of Python objects")
        if self.watching:
            self._add(array_layout_guard(watch))
            self._add(array_elements_guard(watch))
        return kept

    def _add(self, watch: w.Guard) -> None:
        text, things = watch.term()
        key = (text, *map(id, things))
        if self.watching and key not in self._watched:
            self._watched.add(key)
            self.watches.append(watch)

    def follow(self, watch: w.Guard, owner: type | None = None) -> None:
        """Watch a place, and meet what is there."""
        kept = self.watch(watch)
        if kept is not w.MISSING:
            self.meet(kept, watch.name, owner)

    def refuse(self, thing: Any, home: str, name: str) -> None:
        """Raise where a thing of a library may do something else at each call."""
        why = side_effect_of(thing, home, name)
        if why is not None:
            raise Unguardable(why)

    def finish(self) -> list[w.Guard]:
        """Walk to the end; return all places."""
        while self._waiting or self._look_around():
            while self._waiting:
                self._take(self, *self._waiting.pop())
        if not self.code.spoken.isdisjoint(_ARRAY_FLAG_NAMES):
            found = ", ".join(sorted(self.code.spoken & _ARRAY_FLAG_NAMES))
            raise Unguardable(f"it uses {found}, by which arrays change in ways that nobody sees")
        careless = self.code.by_text or not self.code.spoken.isdisjoint(_GENERATOR_STATE_NAMES)
        if self.generators and careless:
            raise Unguardable(f"it may read the state of {self.generators[0]}")
        for end in self.at_end:
            end()
        return self.watches

    def things(self) -> list[Any]:
        """All that was met, classes among them."""
        return [*self._seen.values(), *self._classes.values()]

    def close(self) -> None:
        """Let go of what was met, and of what refers to this walk."""
        held = self._seen, self._waiting, self._rooms, self._classes, self.at_end, self.code.objects
        for one in held:
            one.clear()

    def _look_around(self) -> bool:
        """Take up what rooms have by names that matter since; return whether there was any."""
        self.code.ask_selves()
        found = False
        for room in self._rooms:
            for name in list(room.names()):
                if name not in room.done and room.matters(name):
                    room.done.add(name)
                    found = True
                    watch = room.place(f"{room.path}.{name}", name)
                    if watch is not None:
                        self.follow(watch, room.owner)
        return found

    def enter(self, room: Namespace) -> None:
        """Look into a room now, and again whenever new names matter."""
        self._rooms.append(room)

    # -------------------------------------------------------------- classes and objects

    def take_class(self, kind: type, path: str, made: bool = False) -> None:
        """Look into a class of users, and into those that it is made from.

        Args:
            kind: The class.
            path: What it is called.
            made: Whether the code may make objects of it.
        """
        for base in kind.__mro__:
            if is_user_defined(base):
                if made:
                    self.code.made.add(id(base))
                self._take_one_class(base, base.__name__)
        if is_user_defined(type(kind)):
            self.take_class(type(kind), f"the class of {path}")

    def take_abstract(self, kind: type) -> None:
        """Note a class that objects may be of without being made from it."""
        if not isinstance(kind, ABCMeta):
            return
        for base in kind.__mro__:
            if getattr(base, "_is_protocol", False):  # it asks objects for these
                self.code.names |= {*vars(base), *getattr(base, "__annotations__", ())}
                self.code.caught = True
        self.at_end.append(lambda: self.watch(w.abc_registry_guard()) if self.code.told else None)

    def _take_one_class(self, kind: type, path: str) -> None:
        if id(kind) in self._classes:
            return
        self._classes[id(kind)] = kind
        self.code.caught |= "__exit__" in vars(kind)  # it may let the code go on
        self.code.by_text |= "__getattr__" in vars(kind)
        if "__getattribute__" in vars(kind):
            raise Unguardable(f"{path} decides by itself what its attributes are")
        room = vars(kind)
        whole = isinstance(kind, EnumMeta)
        self.watch(w.attribute_guard(f"{path}.__mro__", kind, "__mro__"))
        self.enter(
            Namespace(
                path,
                room.keys,
                lambda told, name: w.item_guard(told, room, name),
                lambda name: self.code.is_asked(name, kind) or (whole and name not in INERT_NAMES),
                None if issubclass(kind, type) else kind,  # else ``self`` is a class
            )
        )
        self.at_end.append(lambda: self._end_class(kind, path))

    def _end_class(self, kind: type, path: str) -> None:
        room = vars(kind)
        named = None if self.code.by_text else self.code.names
        # First of all: what else is looked at might now be a property, and call its code.
        self.watches.insert(0, w.names_guard(f"the names of {path}", room.keys, "{0}", room, named))

    def take_object(self, thing: Any, path: str, whole: bool = False) -> None:
        """Look at the class of an object, at its attributes and its slots.

        Args:
            thing: The object.
            path: What it is called.
            whole: Whether all attributes matter: code may read them that is not walked.
        """
        self.code.objects.append((thing, set()))
        kind, own = type(thing), is_user_defined(type(thing))
        if own:
            self.watch(w.class_guard(path, thing))
            self.take_class(kind, path)
        whole = whole or not own or class_defines(kind, "__dataclass_fields__")
        whole = whole or isinstance(kind, EnumMeta) or any(map(_has_python_methods, kind.__mro__))
        made: dict[type, dict[str, Any]] = {}
        for slot in slot_descriptors(kind):  # two classes may have slots of one name
            made.setdefault(slot.__objclass__, {})[slot.__name__] = slot
        for slots in made.values():
            self._enter_slots(thing, path, slots, whole)
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._enter_attributes(thing, path, whole)

    def _enter_slots(self, thing: Any, path: str, slots: dict[str, Any], whole: bool) -> None:
        self.enter(
            Namespace(
                path,
                slots.keys,
                lambda told, name: w.slot_guard(told, thing, slots[name]),
                self._reading(whole),
            )
        )

    def _reading(self, whole: bool) -> Callable[[str], bool]:
        return lambda name: whole or self.code.is_read(name)

    def _enter_attributes(self, thing: Any, path: str, whole: bool) -> None:
        kind = type(thing)

        def place(told: str, name: str) -> w.Guard:
            if class_defines(kind, name) or not plain:
                return w.dict_attribute_guard(told, thing, name)
            return w.plain_attribute_guard(told, thing, name)

        plain = not class_defines(kind, "__getattr__")
        self.enter(
            Namespace(path, lambda: thing.__dict__, place, lambda n: whole or self.code.is_read(n))
        )
        self.at_end.append(lambda: self._end_object(thing, path, whole))

    def _end_object(self, thing: Any, path: str, whole: bool) -> None:
        """Watch that an object gets no attributes that hide those of its class, or are asked."""
        if whole or self.code.by_text or self.code.caught:
            named = None if whole or self.code.by_text else self.code.names
            read = lambda: thing.__dict__  # noqa: E731
            self.watch(w.names_guard(f"the names of {path}", read, "{0}.__dict__", thing, named))
            return
        own = thing.__dict__
        hidden = [
            n for n in sorted(self.code.names) if n not in own and class_defines(type(thing), n)
        ]
        if hidden:
            self.watch(w.unshadowed_guard(f"attributes of {path}", thing, hidden))


def _has_python_methods(kind: type) -> bool:
    """Whether a class of the standard library has methods in Python, which read attributes."""
    top = kind.__module__.partition(".")[0]
    if top in ("abc", "builtins", "enum", "odyssey", "typing") or is_user_defined(kind):
        return False
    return any(isinstance(part, FunctionType) for part in vars(kind).values())
