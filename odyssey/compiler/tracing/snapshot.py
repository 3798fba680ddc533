"""Snapshots: the Python objects that a function can reach, saved and restored after a trace.

A snapshot holds an undo action for each object that a trace may write to. The guards of the same
objects are made with it, before the trace.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from itertools import compress, starmap
from operator import call, is_
from threading import Condition, Lock, RLock
from types import CellType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import describe_type, with_article
from odyssey.compiler.attribute_states import StatefulFunction
from odyssey.compiler.guards.bytecode import assigns_plainly
from odyssey.compiler.guards.guards import (
    GuardSet,
    NamedObjects,
    discover_guards,
    named_objects,
)
from odyssey.compiler.guards.library_objects import is_odyssey_object
from odyssey.compiler.guards.objects import KNOWN_C_TYPES, c_base_of
from odyssey.compiler.scoped_function import unscoped_function
from odyssey.devices.array_locks import lock_array
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.ownership import is_writable
from odyssey.table.value import Symbol, Value
from odyssey.tape import GradientTape
from odyssey.transforms.reachability import (
    MAX_REACHED,
    enterable,
    equal_generator_states,
    generator_states,
    is_generator,
    is_user_defined,
    named_namespaces,
    names_in_code,
    reachable,
    restore_generator_states,
    slot_descriptors,
    slot_value,
)
from odyssey.tree import leaves
from odyssey.tree_objects import no_attributes

__all__ = ["HeldLocks", "PythonEffect", "Snapshot"]

# Larger arrays are data that functions read; copying them would cost more than the trace. They are
# read-only during a trace, which ends with an error where the function would write to one.
_MAX_COPIED_BYTES = 1 << 16

# Modules whose objects threads share.
_SHARING_MODULES = {
    "_queue",
    "_thread",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "queue",
    "threading",
}

# Names by which a function reaches objects that no traversal finds.
_ESCAPING_NAMES = {"__import__", "environ", "eval", "exec", "globals", "import_module", "putenv"}

_LOCK_TYPES = (type(Lock()), type(RLock()), Condition)
_LOCK_TIMEOUT = 0.05  # seconds that a trial waits for a lock of the user's

_GOES_ON = "which advances with each call"
# Reasons that name a function which writes to files and terminals, or asks.
_WRITES_OUT = re.compile(
    r"it uses ((print|input|breakpoint|open)$|\w+ of (logging|sys|_?io|subprocess)\b)"
)

_EMPTY = object()


class Snapshot:
    """A snapshot of the Python objects that a function can reach.

    It covers the objects that the code may read by name; if these are unknown, all reachable ones.

    Args:
        fn: The function.
        args: Its arguments, pytrees.
        allow_unknown: Whether a trace is allowed where not all of it can be undone.
        locks: Holds locks of users for as long as the trace takes; None to hold none.
        tapes: Whether Variables have no guards, and may lie on tapes.

    Attributes:
        guards: The guards of all that a program of ``fn`` would depend on.
        refusal: Why a trace would do lasting harm, in words, or None. It would where it draws from
            an iterator or uses an open tape; and, without ``allow_unknown``, where other threads
            may write to the objects, or these are of unknown classes or too many.
        is_restorable: Whether ``refusal`` is None.
    """

    def __init__(
        self,
        fn: Any,
        *args: Any,
        allow_unknown: bool = False,
        locks: HeldLocks | None = None,
        tapes: bool = False,
    ) -> None:
        inner = fn.function if isinstance(fn, StatefulFunction) else fn
        roots = (unscoped_function(inner), *args)
        self.guards = discover_guards(fn, *args, tapes=tapes)
        self._discover = partial(discover_guards, fn, *args, tapes=tapes)
        named = named_objects(fn, *args) if self.guards.reason is None else None
        found = list(reachable(*roots)) if named is None else named.objects
        exclusive = _ExclusiveObjects(named, locks)
        self.refusal = _reason_against_tracing(found, allow_unknown, self.guards.reason, exclusive)
        self.is_restorable = self.refusal is None
        if named is None and self.is_restorable:
            found = list(reachable(*roots, but=_is_shared))
        restorable = (
            [t for t in found if not _is_shared(t) or exclusive.is_held(t)]
            if self.is_restorable
            else []
        )
        assigned = None
        if exclusive.untouched:  # another thread may write to them, and the code does not
            of_library = set(map(id, reachable(*filter(is_odyssey_object, restorable))))
            restorable = [
                t for t in restorable if id(t) in of_library or not isinstance(t, tuple(_SAVERS))
            ]
            assigned = named and named.assigned
        enter = enterable(roots)
        self._saved = [saved for t in restorable for saved in _save_object(t, enter, assigned)]
        self._attributes = [
            (t, _items_of(t, assigned)) for t in restorable if _has_plain_attributes(t)
        ]
        self._generators = [thing for thing in found if self.is_restorable and is_generator(thing)]
        self._states = generator_states(self._generators)
        self._large = [a for a in restorable if isinstance(a, ARRAYS) and _is_large(a)]
        # Optimizers write to their arrays under a lock of their own, in any thread.
        ours = [x for x in restorable if str(type(x).__module__).startswith("odyssey.")]
        self._odyssey_objects = {id(part) for part in reachable(*ours)} if self._large else set()
        self._locks: dict[int, Any] = {}

    def guards_with_trees(self, trees: frozenset[int]) -> GuardSet:
        """Return the guards again, with those of all attributes of some objects, by their ids."""
        return self._discover(trees=trees)

    def lock_large_arrays(self) -> None:
        """Make large arrays read-only until ``restore``."""
        # They are unlocked in this order; a view cannot be while its base is read-only.
        for array in sorted(self._large, key=_view_depth):
            if id(array) not in self._odyssey_objects:
                lock_array(array, self._locks)

    def describe_change(self) -> str | None:
        """Name the first object that was written to since; None if there is none."""
        for name, has_changed, _, _ in self._saved:
            changed = has_changed()
            if changed:
                return name if changed is True else f"{changed}, {name}"
        # Guards also compare layouts of arrays, and tell equal members of sets apart.
        change = self.guards.describe_change()
        return change and change.partition(":")[0]

    def replayable_effects(self) -> list[PythonEffect] | None:
        """Return the writes so far, to be done again after each run; None if some cannot be.

        A write can be repeated where no guard depends on what was written.
        """
        found: list[PythonEffect] = []
        for saved in self._saved:
            if saved.has_changed():
                effects = None if saved.effects is None else saved.effects()
                if effects is None:
                    return None
                found += effects
        if self.guards.describe_change() is not None:
            return None
        counted = [e.is_attribute and e.key in self.guards.counted for e in found]
        found = [e.as_sum() if is_count else e for e, is_count in zip(found, counted, strict=True)]
        written = set(map(id, self.guards.only_written))
        if any(type(e.target) is list and id(e.target) not in written for e in found):
            return None
        if any(e.added is None for e, is_count in zip(found, counted, strict=True) if is_count):
            return None
        known = all(map(_is_replayable, leaves([effect.values for effect in found], no_attributes)))
        return found if known else None

    def assigned_attributes(self) -> list[tuple[Any, str]] | None:
        """Return the attributes that have guards and got traced values since, or None."""
        guarded = self.guards.attribute_places()
        found = []
        for thing, before in self._attributes:
            now = _items_of(thing, None)
            changed = [name for name in before if now.get(name) is not before[name]]
            found += [
                (thing, name)
                for name in changed
                if (id(thing), name) in guarded and _is_traced(now.get(name))
            ]
        return found or None

    def restore(self) -> str | None:
        """Restore all objects; return the class name of a random generator that was drawn from."""
        now = generator_states(self._generators)
        moved = [
            type(generator).__name__
            for generator, old, new in zip(self._generators, self._states, now, strict=True)
            if not equal_generator_states(old, new)
        ]
        if moved:
            restore_generator_states(self._generators, self._states)
        for saved in self._saved:
            saved.undo()
        self._locks.clear()
        return moved[0] if moved else None


class PythonEffect(NamedTuple):
    """A write of a function to an object of Python, to be done again after each run.

    Attributes:
        target: A list that items are appended to; a dictionary, or the attributes of an object.
        key: The key or the name; None for a list.
        values: The items, or the one value; none if a number is added.
        before: The value of before, if there was one.
        is_attribute: Whether ``key`` is an attribute.
        added: The number that is added to an attribute, or None.
    """

    target: Any
    key: Any
    values: list[Any]
    before: Any = None
    is_attribute: bool = False
    added: int | None = None

    def as_sum(self) -> PythonEffect:
        """Return the write as the number that it adds, if both values are whole numbers."""
        if type(self.before) is not int or type(self.values[0]) is not int:
            return self
        return self._replace(values=[], added=self.values[0] - self.before)

    def current(self) -> list[Any]:
        """Return what the latest run of the function wrote."""
        if self.added is not None:
            return []
        if type(self.target) is list:
            return self.target[len(self.target) - len(self.values) :]
        return [self.target.get(self.key)]

    def calls(self, values: list[Any]) -> list[tuple[Any, ...]]:
        """Return the calls that write other values."""
        if self.added is not None:
            return [(_add_to_item, self.target, self.key, self.added)]
        if type(self.target) is list:
            return [(list.extend, self.target, values)]
        return [(dict.__setitem__, self.target, self.key, values[0])]


def _add_to_item(items: dict[str, Any], key: str, number: int) -> None:
    items[key] += number


def _is_replayable(value: Any) -> bool:
    """Return whether a program can make a value, or has it as a constant."""
    plain = value is None or type(value) in (bool, int, float, complex, str)
    return plain or isinstance(value, (Value, Symbol, *ARRAYS))


class HeldLocks:
    """Locks that a trial holds, so that no other thread writes to what they protect.

    Attributes:
        release: Release all locks. One call in C, so that an interrupt leaves none held.
    """

    def __init__(self) -> None:
        self._releases: list[Callable[[], None]] = []
        self.release: Callable[[], object] = partial(deque, map(call, self._releases), 0)

    def acquire(self, lock: Any, timeout: float = _LOCK_TIMEOUT) -> bool:
        """Acquire a lock, unless others hold it for longer than ``timeout``, in seconds."""
        before = len(self._releases)
        # One call in C takes the lock and records it, so that no interrupt comes between the two.
        self._releases.extend(compress([lock.release], starmap(lock.acquire, [(True, timeout)])))
        return len(self._releases) > before


class _ExclusiveObjects:
    """Objects that have locks, queues or threads as attributes, which the code does not read.

    Where the code writes no elements of containers and arrays, only the attributes that it assigns
    are restored, and what other threads write meanwhile stays. Otherwise a trial holds the locks,
    so that no other thread writes.

    Args:
        named: What the code may reach by name and write to; None if that is unknown.
        locks: Holds the locks.

    Attributes:
        untouched: Whether there are such objects, and the code writes no elements.
    """

    def __init__(self, named: NamedObjects | None, locks: HeldLocks | None) -> None:
        self._named, self._locks = named, locks
        self._held: dict[int, Any] = {}
        self.untouched = False

    def is_held(self, thing: Any) -> bool:
        """Return whether the locks of an object are held."""
        return id(thing) in self._held

    def includes(self, thing: Any) -> bool:
        """Return whether a trial does no harm to an object that threads share."""
        if self._named is None or self._locks is None or _is_of_sharing_module(thing):
            return False
        self.untouched = self._named.assigned is not None and not self._named.writes_elements
        if self.untouched:
            self._held[id(thing)] = thing
            return True
        locks = [part for part in vars(thing).values() if _is_of_sharing_module(part)]
        are_locks = all(isinstance(part, _LOCK_TYPES) for part in locks)
        if are_locks and all(map(self._locks.acquire, locks)):
            self._held[id(thing)] = thing
        return self.is_held(thing)


def _reason_against_tracing(
    found: list[Any], allow_unknown: bool, unguardable: str | None, exclusive: _ExclusiveObjects
) -> str | None:
    """Return why tracing a function would do lasting harm, in words, or None.

    Args:
        found: The objects that the function reaches.
        allow_unknown: Whether objects of unknown classes are accepted.
        unguardable: Why no guards could be made; None where there are some.
        exclusive: The objects of which the trial holds the locks.
    """
    if not allow_unknown and unguardable is not None and _WRITES_OUT.match(unguardable):
        return unguardable  # no trace can take back what was printed, logged or asked
    reads_iterator = unguardable is not None and _GOES_ON in unguardable
    for thing in found:
        if isinstance(thing, GradientTape):
            return "it reaches a tape that was opened before the call"
        if hasattr(type(thing), "__next__") and unguardable is not None:
            where = f"it reaches {describe_type(thing)}, {_GOES_ON}"
            return unguardable if reads_iterator else where
        if not allow_unknown and not _is_restorable(thing, unguardable is None, exclusive):
            why = ""
            if unguardable is not None:
                why = f"{unguardable}, so tracing must be able to restore all objects in reach; "
            name = _display_name(thing)
            if unguardable is None and not _is_of_sharing_module(thing) and _is_shared(thing):
                return (
                    f"it reaches {name}, to which other threads may write: {_shared_names(thing)}"
                )
            return f"{why}it reaches {name}, which tracing cannot restore"
    if not allow_unknown and len(found) >= MAX_REACHED:
        return f"it reaches more than {MAX_REACHED:,} objects"
    return None


def _shared_names(thing: Any) -> str:
    """Name the locks, queues and threads that an object has."""
    names = [name for name, part in vars(thing).items() if _is_of_sharing_module(part)]
    locks = all(isinstance(vars(thing)[name], _LOCK_TYPES) for name in names)
    return f"its {names[0]} is held" if locks else f"it has {', '.join(names)}"


def _is_traced(value: Any) -> bool:
    if type(value) in (tuple, list):
        return bool(value) and all(map(_is_traced, value))
    return isinstance(value, (Value, Symbol))


def _has_plain_attributes(thing: Any) -> bool:
    """Return whether an object is a user's, whose attributes are items of its dictionary.

    Lists and dictionaries count as well, with their items.
    """
    kind = type(thing)
    return kind in (list, dict) or (
        is_user_defined(kind)
        and assigns_plainly(kind)
        and type(getattr(thing, "__dict__", None)) is dict
        and not isinstance(thing, (FunctionType, ModuleType, type))
    )


def _display_name(thing: Any) -> str:
    own = thing.__name__ if isinstance(thing, FunctionType) else None
    return own or describe_type(thing)


def _view_depth(array: Any) -> int:
    """Return the number of arrays in the chain of bases of a view."""
    count = 0
    while isinstance(array := array.base, ARRAYS):
        count += 1
    return count


def _is_large(array: Any) -> bool:
    return bool(array.nbytes > _MAX_COPIED_BYTES and is_writable(array))


def _is_shared(thing: Any) -> bool:
    """Return whether other threads may write to an object, so that it must not be restored.

    Locks, queues and threads are shared, and objects that have one as an attribute.
    """
    if isinstance(thing, (FunctionType, ModuleType)):
        return False
    parts = getattr(thing, "__dict__", None)
    held = parts.values() if isinstance(parts, dict) else ()
    return any(map(_is_of_sharing_module, (thing, *held)))


def _is_of_sharing_module(thing: Any) -> bool:
    return str(type(thing).__module__).split(".")[0] in _SHARING_MODULES


def _is_restorable(thing: Any, has_guards: bool, exclusive: _ExclusiveObjects) -> bool:
    if isinstance(thing, (Value, Symbol)) or is_generator(thing):
        return True
    if isinstance(thing, FunctionType):
        # Guards can tell these from methods of the same names, as ``polynomial.eval(x)``.
        return has_guards or _ESCAPING_NAMES.isdisjoint(names_in_code(thing.__code__))
    known = issubclass(c_base_of(type(thing)), KNOWN_C_TYPES)
    return known and (not _is_shared(thing) or exclusive.includes(thing))


# ------------------------------------------------------------------ undo actions

_Undo = tuple[Callable[[], bool | str], Callable[[], None]]
_FindEffects = Callable[[], "list[PythonEffect] | None"]


class _SavedPart(NamedTuple):
    """A part of an object that was saved.

    Attributes:
        name: The name of the object.
        has_changed: Returns whether it was written to since, or the name of the attribute that was.
        undo: Restores it.
        effects: Returns the writes since then as effects, None if they are of another kind; None
            for objects whose writes are not repeated.
    """

    name: str
    has_changed: Callable[[], bool | str]
    undo: Callable[[], None]
    effects: _FindEffects | None = None


def _items_of(thing: Any, names: set[str] | None) -> dict[Any, Any]:
    """Return the attributes of an object, those of ``names``; or the items of a container."""
    if type(thing) is list:
        return dict(enumerate(thing))
    items = thing if type(thing) is dict else thing.__dict__
    return {name: items[name] for name in items if names is None or name in names}


def _save_object(
    thing: Any, enter: Callable[[Any], bool], assigned: set[str] | None
) -> list[_SavedPart]:
    """Save the parts of an object; return an undo action for each.

    Args:
        thing: The object.
        enter: Whether classes and modules are entered.
        assigned: The only attributes that may change; None for all.
    """
    kind = type(thing).__name__
    if isinstance(thing, FunctionType):
        name = thing.__name__
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        parts = [_SavedPart(f"{n}, in {name}", *_save_cell(cell)) for n, cell in cells]
        for namespace, names in named_namespaces(thing, enter):
            saved = _save_namespace(namespace, names)
            parts.append(_SavedPart(f"a global that {name} names", *saved))
        if thing.__dict__:
            saved = _save_namespace(thing.__dict__)
            parts.append(_SavedPart(f"an attribute of {name}", *saved))
        return parts
    if isinstance(thing, type):
        name_of_part = f"an attribute of {thing.__name__}"
        return [_SavedPart(name_of_part, *_save_class_attributes(thing))] if enter(thing) else []
    name_of_part = f"an attribute of {with_article(kind)}"
    slots = slot_descriptors(type(thing))
    parts = [_SavedPart(name_of_part, *_save_slot(slot, thing)) for slot in slots]
    saves_dict = not isinstance(thing, ModuleType) or enter(thing)
    if saves_dict and isinstance(getattr(thing, "__dict__", None), dict):
        effects = None
        if is_user_defined(type(thing)) and not isinstance(thing, (type, ModuleType)):
            effects = _effects_on_items(thing.__dict__, assigned, are_attributes=True)
        parts.append(_SavedPart(name_of_part, *_save_namespace(thing.__dict__, assigned), effects))
    for base, save in _SAVERS.items():
        if isinstance(thing, base):
            make = _EFFECT_FINDERS.get(type(thing))
            effects = None if make is None else make(thing)
            parts.append(_SavedPart(with_article(kind), *save(thing), effects))
    return parts


def _effects_on_items(
    items: dict[Any, Any], names: set[str] | None = None, are_attributes: bool = False
) -> _FindEffects:
    """Return a function that finds the items of a dictionary that are assigned from now on.

    Args:
        items: The dictionary.
        names: The only keys that count; None for all.
        are_attributes: Whether these are attributes.
    """
    before = dict(items)

    def effects() -> list[PythonEffect] | None:
        if any(key not in items for key in before) or not all(map(is_, items, before)):
            return None  # keys were deleted, or are in another order
        changed = [key for key, value in items.items() if value is not before.get(key, _EMPTY)]
        changed = [key for key in changed if names is None or key in names]
        return [
            PythonEffect(items, key, [items[key]], before.get(key), are_attributes)
            for key in changed
        ]

    return effects


def _effects_on_list(items: list[Any]) -> _FindEffects:
    """Return a function that finds what is appended to a list from now on."""
    before = list(items)

    def effects() -> list[PythonEffect] | None:
        if len(items) < len(before) or not all(map(is_, items, before)):
            return None
        return [PythonEffect(items, None, items[len(before) :])]

    return effects


def _save_list(sequence: list[Any]) -> _Undo:
    before = list.copy(sequence)

    def has_changed() -> bool:
        return len(sequence) != len(before) or not all(map(is_, sequence, before))

    def undo() -> None:
        if has_changed():
            list.__setitem__(sequence, slice(None), before)

    return has_changed, undo


def _save_deque(sequence: deque[Any]) -> _Undo:
    before = list(sequence)

    def has_changed() -> bool:
        return len(sequence) != len(before) or not all(map(is_, sequence, before))

    def undo() -> None:
        if has_changed():
            deque.clear(sequence)
            deque.extend(sequence, before)

    return has_changed, undo


def _save_set(members: set[Any]) -> _Undo:
    before = frozenset(members)

    def has_changed() -> bool:
        return members != before

    def undo() -> None:
        if has_changed():
            set.clear(members)
            set.update(members, before)

    return has_changed, undo


def _save_namespace(items: dict[str, Any], names: set[str] | None = None) -> _Undo:
    """Save the items of a dictionary of attributes or globals, or those of ``names``."""
    has_changed, undo = _save_dict_items(items, names)
    kind: Any = OrderedDict if isinstance(items, OrderedDict) else dict
    names_now = (lambda: items) if names is None else (lambda: names)
    before = {name: kind.get(items, name, _EMPTY) for name in names_now()}

    def changed_name() -> bool | str:
        if not has_changed():
            return False
        now = {name: kind.get(items, name, _EMPTY) for name in (*before, *names_now())}
        changed = [n for n, value in now.items() if value is not before.get(n, _EMPTY)]
        # Traced values alone would be no obstacle, see ``attribute_states``.
        changed.sort(key=lambda name: name in before and _is_traced(now[name]))
        return next((name for name in changed if isinstance(name, str)), True)

    return changed_name, undo


def _save_dict_items(items: dict[Any, Any], names: set[str] | None = None) -> _Undo:
    """Save the items of a dictionary, or those of ``names``."""
    kind: Any = OrderedDict if isinstance(items, OrderedDict) else dict
    names_saved = (
        kind.__iter__(items) if names is None else [name for name in names if name in items]
    )
    before = {name: kind.__getitem__(items, name) for name in names_saved}

    def was_replaced(name: Any) -> bool:
        return name not in items or kind.__getitem__(items, name) is not before[name]

    def was_added(name: Any) -> bool:
        # A module that was imported during the trace would not be imported again.
        return name not in before and not isinstance(items.get(name, np), ModuleType)

    def was_reordered() -> bool:
        return names is None and not all(map(is_, kind.__iter__(items), before))

    def current_names() -> list[Any]:
        return list(kind.__iter__(items)) if names is None else list(names)

    def has_changed() -> bool:
        return (
            any(map(was_replaced, before))
            or any(map(was_added, current_names()))
            or was_reordered()
        )

    def undo() -> None:
        for name in filter(was_replaced, before):
            kind.__setitem__(items, name, before[name])
        for name in filter(was_added, current_names()):
            kind.__delitem__(items, name)
        if was_reordered():
            for name in before:  # restores their order
                kind.__setitem__(items, name, kind.pop(items, name))

    return has_changed, undo


def _save_class_attributes(kind: type) -> _Undo:
    before = dict(vars(kind))

    def has_changed() -> bool:
        now = vars(kind)
        return now.keys() != before.keys() or any(now[name] is not before[name] for name in before)

    def undo() -> None:
        now = dict(vars(kind))
        for name, value in before.items():
            if name not in now or now[name] is not value:
                type.__setattr__(kind, name, value)
        for name in now.keys() - before.keys():
            type.__delattr__(kind, name)

    return has_changed, undo


def _save_slot(slot: Any, thing: Any) -> _Undo:
    before = slot_value(slot, thing, _EMPTY)

    def has_changed() -> bool:
        return slot_value(slot, thing, _EMPTY) is not before

    def undo() -> None:
        if not has_changed():
            return
        if before is _EMPTY:
            slot.__delete__(thing)
        else:
            slot.__set__(thing, before)

    return has_changed, undo


def _save_bytes(buffer: Any) -> _Undo:
    before = buffer[:]

    def has_changed() -> bool:
        return len(buffer) != len(before) or bytes(buffer) != bytes(before)

    def undo() -> None:
        if has_changed():
            buffer[:] = before

    return has_changed, undo


def _save_array_elements(array: Any) -> _Undo:
    if array.nbytes > _MAX_COPIED_BYTES or not is_writable(array):
        return (lambda: False), (lambda: None)
    before = array.copy()

    def has_changed() -> bool:
        return bool(array.tobytes() != before.tobytes())

    def undo() -> None:
        if has_changed():
            array[...] = before

    return has_changed, undo


def _save_cell(cell: CellType) -> _Undo:
    before = _cell_value(cell)

    def has_changed() -> bool:
        return _cell_value(cell) is not before

    def undo() -> None:
        if before is not _EMPTY:
            cell.cell_contents = before
        elif has_changed():
            del cell.cell_contents

    return has_changed, undo


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return _EMPTY


_SAVERS: dict[Any, Callable[[Any], _Undo]] = {
    list: _save_list,
    deque: _save_deque,
    set: _save_set,
    dict: _save_dict_items,
    bytearray: _save_bytes,
    **dict.fromkeys(ARRAYS, _save_array_elements),
}

_EFFECT_FINDERS: dict[type, Callable[[Any], _FindEffects]] = {
    list: _effects_on_list,
    dict: _effects_on_items,
}
