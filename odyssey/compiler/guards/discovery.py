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
from odyssey.compiler.guards.arrays import elements_at, layout_at
from odyssey.compiler.guards.effects import effect_of
from odyssey.compiler.guards.names import TOLD, Names, found_in
from odyssey.devices.arrays import ARRAYS
from odyssey.optim.groups import Group
from odyssey.transforms.replay import FURTHEST, of_users, slots_of
from odyssey.variable import Variable

__all__ = ["Room", "Unwatchable", "Walk"]

# What is asked of a generator besides draws, which a trial notices.
_OF_GENERATORS = {"state", "get_state", "getstate", "bit_generator", "spawn", "jumped", "seed_seq"}

# Effects on arrays that leave the elements as they are.
_OF_ARRAYS = {"setflags", "writeable", "tofile", "dump"}


class Unwatchable(Exception):
    """Something is reached that nobody can watch."""


class Room:
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
        place: Callable[[str, str], w.Watch | None],
        matters: Callable[[str], bool],
        owner: type | None = None,
    ) -> None:
        self.path, self.names, self.place, self.matters = path, names, place, matters
        self.owner = owner
        self.done: set[str] = set()


class Walk:
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

    def __init__(self, take: Callable[[Walk, Any, str], None], watching: bool = True) -> None:
        self._take = take
        self.watching = watching
        self.watches: list[w.Watch] = []
        self.code = Names()
        self.variables: list[Variable] = []
        self.groups: list[Group] = []
        self.generators: list[str] = []
        self.schedules: list[Any] = []
        self.asks_schedules = False
        self.at_end: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        self._waiting: list[tuple[Any, str]] = []
        self._rooms: list[Room] = []
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
        if thing is None or type(thing) in w.PLAIN:
            return
        if id(thing) in self._seen:
            if self.code.owner_of(thing) is not owner:
                self.code.disown(thing)
            return
        self._seen[id(thing)] = thing
        if owner is not None:
            self.code.owners[id(thing)] = owner
        self._waiting.append((thing, path))
        if max(len(self._seen), len(self.watches)) > FURTHEST:
            raise Unwatchable(f"it reaches more than {FURTHEST:,} things")

    def watch(self, watch: w.Watch) -> Any:
        """Watch a place, once; return what is there."""
        kept = watch.kept
        if not isinstance(watch, w.Place) or not isinstance(kept, ARRAYS):
            self._add(watch)
            return kept
        self._seen[id(kept)] = kept
        if type(kept) not in (np.ndarray, np.memmap):
            kind = sort_of(kept)
            raise Unwatchable(f"it reaches {watch.name}, {kind}, which is more than an array")
        if kept.dtype.hasobject:
            raise Unwatchable(f"it reaches {watch.name}, an array of Python objects")
        if self.watching:
            self._add(layout_at(watch))
            self._add(elements_at(watch))
        return kept

    def _add(self, watch: w.Watch) -> None:
        text, things = watch.term()
        key = (text, *map(id, things))
        if self.watching and key not in self._watched:
            self._watched.add(key)
            self.watches.append(watch)

    def follow(self, watch: w.Watch, owner: type | None = None) -> None:
        """Watch a place, and meet what is there."""
        kept = self.watch(watch)
        if kept is not w.MISSING:
            self.meet(kept, watch.name, owner)

    def refuse(self, thing: Any, home: str, name: str) -> None:
        """Raise where a thing of a library may do something else at each call."""
        why = effect_of(thing, home, name)
        if why is not None:
            raise Unwatchable(why)

    def finish(self) -> list[w.Watch]:
        """Walk to the end; return all places."""
        while self._waiting or self._look_around():
            while self._waiting:
                self._take(self, *self._waiting.pop())
        if not self.code.spoken.isdisjoint(_OF_ARRAYS):
            found = ", ".join(sorted(self.code.spoken & _OF_ARRAYS))
            raise Unwatchable(f"it uses {found}, by which arrays change in ways that nobody sees")
        careless = self.code.by_text or not self.code.spoken.isdisjoint(_OF_GENERATORS)
        if self.generators and careless:
            raise Unwatchable(f"it may read the state of {self.generators[0]}")
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

    def enter(self, room: Room) -> None:
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
            if of_users(base):
                if made:
                    self.code.made.add(id(base))
                self._take_one_class(base, base.__name__)
        if of_users(type(kind)):
            self.take_class(type(kind), f"the class of {path}")

    def take_abstract(self, kind: type) -> None:
        """Note a class that objects may be of without being made from it."""
        if not isinstance(kind, ABCMeta):
            return
        for base in kind.__mro__:
            if getattr(base, "_is_protocol", False):  # it asks objects for these
                self.code.names |= {*vars(base), *getattr(base, "__annotations__", ())}
                self.code.caught = True
        self.at_end.append(lambda: self.watch(w.registered()) if self.code.told else None)

    def _take_one_class(self, kind: type, path: str) -> None:
        if id(kind) in self._classes:
            return
        self._classes[id(kind)] = kind
        self.code.caught |= "__exit__" in vars(kind)  # it may let the code go on
        self.code.by_text |= "__getattr__" in vars(kind)
        if "__getattribute__" in vars(kind):
            raise Unwatchable(f"{path} decides by itself what its attributes are")
        room = vars(kind)
        whole = isinstance(kind, EnumMeta)
        self.watch(w.attribute(f"{path}.__mro__", kind, "__mro__"))
        self.enter(
            Room(
                path,
                room.keys,
                lambda told, name: w.item(told, room, name),
                lambda name: self.code.is_asked(name, kind) or (whole and name not in TOLD),
                None if issubclass(kind, type) else kind,  # else ``self`` is a class
            )
        )
        self.at_end.append(lambda: self._end_class(kind, path))

    def _end_class(self, kind: type, path: str) -> None:
        room = vars(kind)
        named = None if self.code.by_text else self.code.names
        # First of all: what else is looked at might now be a property, and call its code.
        self.watches.insert(0, w.keys(f"the names of {path}", room.keys, "{0}", room, named))

    def take_object(self, thing: Any, path: str, whole: bool = False) -> None:
        """Look at the class of an object, at its attributes and its slots.

        Args:
            thing: The object.
            path: What it is called.
            whole: Whether all attributes matter: code may read them that is not walked.
        """
        self.code.objects.append((thing, set()))
        kind, own = type(thing), of_users(type(thing))
        if own:
            self.watch(w.kind(path, thing))
            self.take_class(kind, path)
        whole = whole or not own or found_in(kind, "__dataclass_fields__")
        whole = whole or isinstance(kind, EnumMeta) or any(map(_asks, kind.__mro__))
        made: dict[type, dict[str, Any]] = {}
        for slot in slots_of(kind):  # two classes may have slots of one name
            made.setdefault(slot.__objclass__, {})[slot.__name__] = slot
        for slots in made.values():
            self._enter_slots(thing, path, slots, whole)
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._enter_attributes(thing, path, whole)

    def _enter_slots(self, thing: Any, path: str, slots: dict[str, Any], whole: bool) -> None:
        self.enter(
            Room(
                path,
                slots.keys,
                lambda told, name: w.slot(told, thing, slots[name]),
                self._reading(whole),
            )
        )

    def _reading(self, whole: bool) -> Callable[[str], bool]:
        return lambda name: whole or self.code.is_read(name)

    def _enter_attributes(self, thing: Any, path: str, whole: bool) -> None:
        kind = type(thing)

        def place(told: str, name: str) -> w.Watch:
            if found_in(kind, name) or not plain:
                return w.own_attribute(told, thing, name)
            return w.plain_attribute(told, thing, name)

        plain = not found_in(kind, "__getattr__")
        self.enter(
            Room(path, lambda: thing.__dict__, place, lambda n: whole or self.code.is_read(n))
        )
        self.at_end.append(lambda: self._end_object(thing, path, whole))

    def _end_object(self, thing: Any, path: str, whole: bool) -> None:
        """Watch that an object gets no attributes that hide those of its class, or are asked."""
        if whole or self.code.by_text or self.code.caught:
            named = None if whole or self.code.by_text else self.code.names
            read = lambda: thing.__dict__  # noqa: E731
            self.watch(w.keys(f"the names of {path}", read, "{0}.__dict__", thing, named))
            return
        own = thing.__dict__
        hidden = [n for n in sorted(self.code.names) if n not in own and found_in(type(thing), n)]
        if hidden:
            self.watch(w.unshadowed(f"attributes of {path}", thing, hidden))


def _asks(kind: type) -> bool:
    """Whether a class of the standard library has methods in Python, which read attributes."""
    top = kind.__module__.partition(".")[0]
    if top in ("abc", "builtins", "enum", "odyssey", "typing") or of_users(kind):
        return False
    return any(isinstance(part, FunctionType) for part in vars(kind).values())
