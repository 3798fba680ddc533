"""Guard discovery: the walk from a function to every Python object that its code may read.

Names lead the walk: of an object, a class or a module it visits what the code that was reached so
far may read by name. More code brings more names, so namespaces are searched again until no new
name matters.
"""

from __future__ import annotations

from abc import ABCMeta
from collections import namedtuple
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import EnumMeta
from functools import cached_property
from itertools import chain
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import describe_type
from odyssey.compiler.guards import terms
from odyssey.compiler.guards.bytecode import (
    INERT_NAMES,
    ReachedNames,
    assigns_plainly,
    class_defines,
    uses_first_argument,
)
from odyssey.compiler.guards.effects import impure_attributes, side_effect_of
from odyssey.devices.arrays import ARRAYS, DEVICE_TYPES
from odyssey.devices.device import Device
from odyssey.optim.groups import Group
from odyssey.transforms.reachability import MAX_REACHED, is_user_defined, slot_descriptors
from odyssey.tree_objects import holds_arrays, is_plain_class
from odyssey.tree_rebuild import attributes
from odyssey.variable import Variable

__all__ = ["USED", "GuardDiscovery", "Namespace", "Unguardable", "Use"]

# Attributes that read or set a generator's state; draws are noticed while the function is traced.
_GENERATOR_STATE_NAMES = {
    *("state", "get_state", "getstate", "bit_generator", "spawn", "jumped", "seed_seq"),
}

# Descriptors that hand the object to nobody.
_PLAIN_DESCRIPTORS = (
    *(staticmethod, classmethod, MemberDescriptorType, GetSetDescriptorType, type),
    type(vars(namedtuple("Pair", "first"))["first"]),
)

# Attributes with side effects on arrays that leave their elements unchanged.
_ARRAY_FLAG_NAMES = {"setflags", "writeable", "tofile", "dump"}


class Unguardable(Exception):
    """Raised where code reaches an object that no guard can be made for."""


class Use(NamedTuple):
    """How code uses an object that a name leads to.

    Attributes:
        read_only: Whether only attributes are read of it or assigned to it, so that Python calls
            none of its special methods.
        called: Whether it is called in place.
        only_writes: Whether code only appends to it or to its items, or assigns items of it, and
            does not read it.
        appended: The keys of the items that it appends to.
    """

    read_only: bool = False
    called: bool = False
    only_writes: bool = False
    appended: frozenset[str] = frozenset()


USED = Use()
"""Any use: it is passed on, indexed, iterated over, compared."""


class Namespace:
    """The names of an object, a class or a module, of which only those matter that code may read.

    Args:
        path: The name of the owner, as a user would write it.
        names: Function that returns the names it has now.
        make_guard: Function of a path and a name that returns the guard of this name, or None.
        is_relevant: Function that returns whether a name matters.
        owner: The class whose names these are, if they are a class's.
        use_of: Function that returns how the code uses what a name leads to.
    """

    __slots__ = ("done", "is_relevant", "make_guard", "names", "owner", "path", "use_of")

    def __init__(
        self,
        path: str,
        names: Callable[[], Iterable[str]],
        make_guard: Callable[[str, str], terms.Guard | None],
        is_relevant: Callable[[str], bool],
        owner: type | None = None,
        use_of: Callable[[str], Use] = lambda _: USED,
    ) -> None:
        self.path, self.names, self.owner, self.use_of = path, names, owner, use_of
        self.make_guard, self.is_relevant = make_guard, is_relevant
        self.done: set[str] = set()


class GuardDiscovery:
    """One walk over what a function may read; see ``discover_guards``.

    Args:
        visitor: Function ``visitor(discovery, thing, path)`` that guards one object and visits
            what it refers to.
        guarding: Whether guards are made, or objects only enumerated.
        tapes: Whether Variables on tapes are passed over, instead of refused.

    Attributes:
        guards: The guards that were made so far.
        names: The names in the code that was reached so far.
        variables: The Variables reached.
        groups: The parameter groups reached.
        generators: The paths of the random generators reached.
        schedules: The schedules reached, but for those of users, which are plain objects.
        asks_schedules: Whether the code may read what the step of a schedule changes.
        exempt: Attributes that are arguments of the function, by id of the object and name.
        final_steps: Functions that make the guards which depend on all names reached.
        trees: The ids of plain objects that are read as trees, so that all attributes matter.
        only_written: By id, lists and dictionaries that code writes to and does not read. They have
            no guards.
    """

    def __init__(
        self,
        visitor: Callable[[GuardDiscovery, Any, str], None],
        guarding: bool = True,
        tapes: bool = False,
    ) -> None:
        self._visitor = visitor
        self.guarding, self.tapes = guarding, tapes
        self.trees: frozenset[int] = frozenset()
        self.guards: list[terms.Guard] = []
        self.names = ReachedNames()
        self.variables: list[Variable] = []
        self.groups: list[Group] = []
        self.generators: list[tuple[str, Any]] = []
        self.schedules: list[Any] = []
        self.asks_schedules = False
        self.exempt: set[tuple[int, str]] = set()
        self.final_steps: list[Callable[[], None]] = []
        self.only_written: dict[int, Any] = {}
        self._visited: dict[int, Any] = {}
        self._queue: list[tuple[Any, str]] = []
        self._namespaces: list[Namespace] = []
        self._guard_keys: set[Any] = set()
        self._classes: dict[int, type] = {}
        self._used: set[int] = set()
        # Objects of which so far only attributes are read, with their name in a namespace.
        self._unused: list[tuple[Namespace, str, Any]] = []
        # The ids of classes some of whose methods use their first argument as such.
        self._exposing: set[int] = set()
        self._impure_attributes: dict[str, str] = {}

    # -------------------------------------------------------------- the walk

    def visit(self, thing: Any, path: str, owner: type | None = None, use: Use = USED) -> None:
        """Queue an object, called ``path``, unless it was visited.

        Args:
            thing: The object.
            path: Its name, as a user would write it.
            owner: The class that it is a method of.
            use: How the code uses it.
        """
        if thing is None or type(thing) in terms.ATOMIC_TYPES:
            return
        if use.only_writes and type(thing) in (list, dict) and id(thing) not in self._visited:
            self.only_written[id(thing)] = thing
            self._visit_appended_items(thing, path, use.appended)
            return
        if use.appended:
            self.names.add_names({"append"})  # of whatever its items are
        self.only_written.pop(id(thing), None)
        self._note_use(thing, use)
        if id(thing) in self._visited:
            if self.names.owner_of(thing) is not owner:
                self.names.disown(thing)
            return
        self._visited[id(thing)] = thing
        if owner is not None:
            self.names.owners[id(thing)] = owner
        self._queue.append((thing, path))
        if max(len(self._visited), len(self.guards)) > MAX_REACHED:
            raise Unguardable(f"it reaches more than {MAX_REACHED:,} objects")

    def _visit_appended_items(self, items: Any, path: str, keys: Iterable[str]) -> None:
        """Guard the items of a dictionary that code only appends to, and not what is in them."""
        for key in sorted(keys):
            if type(items) is dict and key in items:
                guard = terms.item_guard(f"{path}[{key!r}]", items, key)
                use = Use(only_writes=True)
                if type(guard.expected) is not list:
                    self.names.add_names({"append"})
                    use = USED
                self.guard_and_visit(guard, use=use)

    def _note_use(self, thing: Any, use: Use) -> None:
        if use.called:
            self.names.expose(thing, called=True)
        if id(thing) not in self._used and not (use.read_only and _has_own_methods(type(thing))):
            self._used.add(id(thing))
            self.names.expose(thing)

    def may_be_attributes_only(self, iterator: Any, path: str) -> bool:
        """Return whether so far only attributes of an iterator are read; refuse it later if not."""
        if id(iterator) in self._used:
            return False

        def refuse_if_used() -> None:
            if id(iterator) in self._used or self.names.is_exposed(type(iterator)):
                raise Unguardable(f"it reaches {path}, an iterator, which advances with each call")

        self.final_steps.append(refuse_if_used)
        return True

    def add_guard(self, guard: terms.Guard) -> Any:
        """Add a guard, once; return the value that it expects."""
        value = guard.expected
        if not isinstance(guard, terms.ReferenceGuard) or not isinstance(value, ARRAYS):
            self._append_guard(guard)
            return value
        self._visited[id(value)] = value
        if type(value) in DEVICE_TYPES:
            why = "an array of a device, and no guard notices writes to it"
            raise Unguardable(f"it reaches {guard.name}, {why}")
        if type(value) not in (np.ndarray, np.memmap):
            kind = describe_type(value)
            raise Unguardable(f"it reaches {guard.name}, {kind}, which is not a plain array")
        self.note_dtype(value.dtype, guard.name)
        if self.guarding:
            for made in (terms.array_layout_guard(guard), terms.array_elements_guard(guard)):
                made.place = guard.place
                self._append_guard(made)
        return value

    def _append_guard(self, guard: terms.Guard) -> None:
        expression, operands = guard.term()
        key = (expression, *map(id, operands))
        if self.guarding and key not in self._guard_keys:
            self._guard_keys.add(key)
            self.guards.append(guard)

    def guard_and_visit(
        self, guard: terms.Guard, owner: type | None = None, use: Use = USED
    ) -> Any:
        """Add a guard, and visit the object that it expects; return it."""
        value = self.add_guard(guard)
        if value is not terms.MISSING:
            self.visit(value, guard.name, owner, use)
        return value

    def reject_side_effects(self, thing: Any, module: str, name: str) -> None:
        """Raise Unguardable where a library's function may differ between two calls."""
        reason = side_effect_of(thing, module, name)
        if reason is not None:
            raise Unguardable(reason)

    def note_impure_attributes(self, kind: type) -> None:
        """Note that the code reaches objects of a class, some of whose methods may be impure."""
        self._impure_attributes.update(impure_attributes(kind))

    def note_dtype(self, dtype: np.dtype[Any], path: str) -> None:
        """Note the Python objects that elements of an array may become, dates for example."""
        if dtype.hasobject:
            raise Unguardable(f"it reaches {path}, an array of Python objects")
        if dtype.kind == "M" or (dtype.kind == "V" and "M8[" in str(dtype)):
            self.note_impure_attributes(datetime)

    def _reject_impure_attributes(self) -> None:
        """Raise Unguardable where the code may use an impure method of an object it reaches."""
        used = self.names.names | self.names.mentioned
        if "device" in used:  # of a Variable, say
            found = impure_attributes(Device)
            self._impure_attributes.update({name: found[name] for name in used & found.keys()})
        if self.names.uses_format_spec:
            used.add("__format__")
        for name, owner in sorted(self._impure_attributes.items()):
            if name in used or self.names.uses_dynamic_names:
                verb = "uses" if name in used else "may use"
                raise Unguardable(
                    f"it {verb} {name} of {owner}, which may behave differently at each call"
                )

    def complete(self) -> list[terms.Guard]:
        """Walk until nothing new is reached; return all guards."""
        while self._queue or self._search_namespaces():
            while self._queue:
                self._visitor(self, *self._queue.pop())
        self._reject_impure_attributes()
        if not self.names.mentioned.isdisjoint(_ARRAY_FLAG_NAMES):
            used = ", ".join(sorted(self.names.mentioned & _ARRAY_FLAG_NAMES))
            raise Unguardable(
                f"it uses {used}, which can change arrays in ways that guards cannot detect"
            )
        for path, generator in self.generators:
            read = self.names.of_generators | self.names.lost
            if id(generator) in self._used:
                read |= self.names.unresolved
            if self.names.uses_dynamic_names or not read.isdisjoint(_GENERATOR_STATE_NAMES):
                raise Unguardable(f"it may read the state of {path}")
        for step in self.final_steps:
            step()
        return self.guards

    def visited_objects(self) -> list[Any]:
        """Return all objects that were visited, classes among them."""
        visited = self._visited.values(), self._classes.values(), self.only_written.values()
        return [*chain.from_iterable(visited)]

    def close(self) -> None:
        """Drop the references to visited objects, and those that lead back to this walk."""
        for held in (
            *(
                self.only_written,
                self._visited,
                self._queue,
                self._namespaces,
                self._classes,
                self._unused,
            ),
            *(self.final_steps, self.names.objects),
        ):
            held.clear()

    def _search_namespaces(self) -> bool:
        """Visit the names that matter by now; return whether there was a new one."""
        self.names.resolve_self_chains()
        progress = False
        for namespace in self._namespaces:
            for name in list(namespace.names()):
                if name not in namespace.done and namespace.is_relevant(name):
                    namespace.done.add(name)
                    progress = True
                    guard = namespace.make_guard(f"{namespace.path}.{name}", name)
                    if guard is None:
                        continue
                    use = namespace.use_of(name)
                    value = self.guard_and_visit(guard, namespace.owner, use)
                    if namespace.owner is not None and _uses_instance(value):
                        self._exposing.add(id(namespace.owner))
                    if isinstance(value, cached_property):
                        self.names.assigned.add(name)
                    if use.read_only or use.only_writes:
                        self._unused.append((namespace, name, value))
        return self._note_new_uses() or progress

    def _use_of(self, name: str) -> Use:
        """Return how the code uses what objects have by a name."""
        names = self.names
        appended = frozenset(names.appended_items.get(name, ()))
        used = name in names.ends or name in names.stored_into or names.uses_dynamic_names
        is_read_only = not (used or appended)
        return Use(is_read_only, name in names.called, names.only_writes(name), appended)

    def _note_new_uses(self) -> bool:
        """Note uses of objects that code reached since uses as such; return whether there are."""
        before = len(self.names.exposed), len(self.names.callable), len(self._used)
        for namespace, name, value in self._unused:
            if id(value) in self.only_written:
                self.visit(value, f"{namespace.path}.{name}", use=namespace.use_of(name))
            elif value is not terms.MISSING:
                self._note_use(value, namespace.use_of(name))
        if self.names.uses_dynamic_names:
            for thing in [*self.only_written.values()]:
                self.visit(thing, "a container that it writes to")
        for thing, _ in self.names.objects:
            if not self._exposing.isdisjoint(map(id, type(thing).__mro__)):
                self._note_use(thing, USED)
        after = len(self.names.exposed), len(self.names.callable), len(self._used)
        return before != after or bool(self._queue)

    def add_namespace(self, namespace: Namespace) -> None:
        """Search a namespace, and search it again whenever new names matter."""
        self._namespaces.append(namespace)

    # -------------------------------------------------------------- classes and objects

    def visit_class(self, kind: type, path: str, instantiated: bool = False) -> None:
        """Visit a user-defined class and its bases.

        Args:
            kind: The class.
            path: Its name.
            instantiated: Whether the code may make objects of it.
        """
        self.note_impure_attributes(kind)
        for base in kind.__mro__:
            if is_user_defined(base):
                if instantiated:
                    self.names.instantiated.add(id(base))
                self._visit_base(base, base.__name__)
        if is_user_defined(type(kind)):
            self.visit_class(type(kind), f"the class of {path}")

    def note_abstract_class(self, kind: type) -> None:
        """Note an abstract class or protocol, of which objects are instances without inheriting."""
        if not isinstance(kind, ABCMeta):
            return
        for base in kind.__mro__:
            if getattr(base, "_is_protocol", False):  # isinstance asks objects for these names
                asked = {*vars(base), *getattr(base, "__annotations__", ())}
                self.names.names |= asked
                self.names.loaded |= asked
                self.names.catches_errors = True

        def guard_registrations() -> None:
            if self.names.checks_instances:
                self.add_guard(terms.abc_registry_guard())

        self.final_steps.append(guard_registrations)

    def _visit_base(self, kind: type, path: str) -> None:
        if id(kind) in self._classes:
            return
        self._classes[id(kind)] = kind
        self.names.catches_errors |= "__exit__" in vars(kind)  # it may suppress an error
        self.names.uses_dynamic_names |= "__getattr__" in vars(kind)
        if "__getattribute__" in vars(kind):
            raise Unguardable(
                f"{path} defines __getattribute__, so its attributes cannot be guarded"
            )
        attributes = vars(kind)
        is_enum = isinstance(kind, EnumMeta)
        self.add_guard(terms.attribute_guard(f"{path}.__mro__", kind, "__mro__"))
        self.add_namespace(
            Namespace(
                path,
                attributes.keys,
                lambda path, name: terms.item_guard(path, attributes, name),
                lambda name: (
                    self.names.is_read_of_class(name, kind) or (is_enum and name not in INERT_NAMES)
                ),
                None if issubclass(kind, type) else kind,  # of a metaclass ``self`` is a class
            )
        )
        self.final_steps.append(lambda: self._guard_class_names(kind, path))

    def _guard_class_names(self, kind: type, path: str) -> None:
        attributes = vars(kind)
        relevant = None if self.names.uses_dynamic_names else self.names.names_of(kind)
        guard = terms.names_guard(
            f"the names of {path}", attributes.keys, "{0}", attributes, relevant
        )
        # First of all guards: the others might read a property that was added, and run its code.
        self.guards.insert(0, guard)

    def visit_attributes(self, thing: Any, path: str, all_attributes: bool = False) -> None:
        """Visit the class, the attributes and the slots of an object.

        Args:
            thing: The object.
            path: Its name.
            all_attributes: Whether all attributes matter, since code reads them that no walk sees.
        """
        self.names.objects.append((thing, set()))
        kind, user_defined = type(thing), is_user_defined(type(thing))
        if user_defined:
            self.add_guard(terms.class_guard(path, thing))
            self.visit_class(kind, path)
        always = (
            all_attributes
            or not user_defined
            or isinstance(kind, EnumMeta)
            or any(map(_has_python_methods, kind.__mro__))
        )
        is_record = class_defines(kind, "__dataclass_fields__")
        parts = self._tree_parts(thing)

        def reads_all() -> bool:
            return always or (is_record and self.names.is_exposed(kind))

        def is_relevant(name: str) -> bool:
            known = self.names.of_object.get(id(thing), ())
            if self.names.is_only_stored(name) or self.names.is_only_counted(name):
                return reads_all() or name in parts
            return self.names.is_read(name) or name in known or reads_all() or name in parts

        def use_of(name: str) -> Use:
            return USED if reads_all() or name in parts else self._use_of(name)

        by_class: dict[type, dict[str, Any]] = {}
        for slot in slot_descriptors(kind):  # two classes may have slots of one name
            by_class.setdefault(slot.__objclass__, {})[slot.__name__] = slot
        for slots in by_class.values():
            self._add_slots(thing, path, slots, is_relevant, use_of)
        is_tree = id(thing) in self.trees
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._add_attributes(thing, path, is_relevant, use_of)
            self.final_steps.append(
                lambda: self._guard_attribute_names(thing, path, reads_all() or is_tree)
            )
        if is_tree:
            self.final_steps.append(lambda: self._guard_other_attributes(thing, path, parts))

    def _tree_parts(self, thing: Any) -> frozenset[str]:
        """Return the attributes of a tree that hold arrays or might, being containers."""
        if id(thing) not in self.trees:
            return frozenset()
        held = dict(attributes(thing))
        self.trees |= {id(v) for v in held.values() if is_plain_class(type(v))}
        return frozenset(name for name, value in held.items() if _may_hold_arrays(value))

    def _guard_other_attributes(self, thing: Any, path: str, parts: frozenset[str]) -> None:
        """Guard which objects the other attributes of a tree are, and not what is in them."""
        slots = {slot.__name__: slot for slot in slot_descriptors(type(thing))}
        for name, _ in attributes(thing):
            if name in parts or (id(thing), name) in self.exempt:
                continue
            where = f"{path}.{name}"
            if name in getattr(thing, "__dict__", ()):
                self.add_guard(terms.dict_attribute_guard(where, thing, name))
            else:
                self.add_guard(terms.slot_guard(where, thing, slots[name]))

    def _add_slots(
        self,
        thing: Any,
        path: str,
        slots: dict[str, Any],
        is_relevant: Callable[[str], bool],
        use_of: Callable[[str], Use],
    ) -> None:
        self.add_namespace(
            Namespace(
                path,
                slots.keys,
                lambda path, name: terms.slot_guard(path, thing, slots[name]),
                is_relevant,
                use_of=use_of,
            )
        )

    def _add_attributes(
        self,
        thing: Any,
        path: str,
        is_relevant: Callable[[str], bool],
        use_of: Callable[[str], Use],
    ) -> None:
        kind = type(thing)

        def make_guard(path: str, name: str) -> terms.Guard | None:
            if (id(thing), name) in self.exempt:
                return None
            if class_defines(kind, name) or not plain:
                return terms.dict_attribute_guard(path, thing, name)
            guard = terms.plain_attribute_guard(path, thing, name)
            guard.place = (thing, name) if assigns_plainly(kind) else None
            return guard

        plain = not class_defines(kind, "__getattr__")
        self.add_namespace(
            Namespace(
                path,
                lambda: thing.__dict__,
                make_guard,
                is_relevant,
                use_of=use_of,
            )
        )

    def _guard_attribute_names(self, thing: Any, path: str, reads_all: bool) -> None:
        """Guard that an object gets no attributes that are read or hide those of its class."""
        dynamic = reads_all or self.names.uses_dynamic_names
        if dynamic or self.names.catches_errors:
            relevant = None if dynamic else self._names_read_of(thing)
            read = lambda: thing.__dict__  # noqa: E731
            name = f"the names of {path}"
            self.add_guard(terms.names_guard(name, read, "{0}.__dict__", thing, relevant))
            return
        own, kind = thing.__dict__, type(thing)
        read_names = sorted(self._names_read_of(thing))
        inherited = [n for n in read_names if n not in own and class_defines(kind, n)]
        if inherited:
            self.add_guard(terms.unshadowed_guard(f"attributes of {path}", thing, inherited))

    def _names_read_of(self, thing: Any) -> set[str]:
        """Return the attributes that the code may read of an object, and not only assign."""
        names = self.names.names_of(thing)
        return {name for name in names if not self.names.is_only_stored(name)}


def _may_hold_arrays(value: Any) -> bool:
    kind = type(value)
    is_container = isinstance(value, (dict, list, tuple)) or is_plain_class(kind)
    return is_container or class_defines(kind, "__dataclass_fields__") or holds_arrays(value)


def _uses_instance(value: Any) -> bool:
    """Return whether an attribute of a class, once read of an object, may use it as such."""
    if isinstance(value, property):
        return any(map(uses_first_argument, filter(None, (value.fget, value.fset, value.fdel))))
    if isinstance(value, cached_property):
        return uses_first_argument(value.func)
    if isinstance(value, FunctionType):
        return uses_first_argument(value)
    return hasattr(type(value), "__get__") and not isinstance(value, _PLAIN_DESCRIPTORS)


def _has_own_methods(kind: type) -> bool:
    """Return whether all methods of a class are users', which are walked by name.

    Methods of other classes call special methods without any code that is walked.
    """
    own = ("abc", "typing")
    return all(base.__module__ in own or is_user_defined(base) for base in kind.__mro__[:-1])


def _has_python_methods(kind: type) -> bool:
    """Return whether a standard library class has methods in Python, which read attributes."""
    top = kind.__module__.partition(".")[0]
    if top in ("abc", "builtins", "enum", "odyssey", "typing") or is_user_defined(kind):
        return False
    return any(isinstance(member, FunctionType) for member in vars(kind).values())
