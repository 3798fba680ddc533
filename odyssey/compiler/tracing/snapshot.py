"""What a function can reach, and how a trial run of it is undone."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from operator import is_
from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from odyssey.checks import article, sort_of
from odyssey.compiler.guards.objects import KNOWN_C_TYPES, c_base_of
from odyssey.devices.array_locks import lock_array
from odyssey.devices.arrays import ARRAYS
from odyssey.devices.ownership import is_writable
from odyssey.table.value import Symbol, Value
from odyssey.tape import GradientTape
from odyssey.transforms.replay import (
    MAX_REACHED,
    enterable,
    equal_generator_states,
    generator_states,
    is_generator,
    named_namespaces,
    names_in_code,
    reachable,
    restore_generator_states,
    slot_descriptors,
    slot_value,
)

__all__ = ["Snapshot"]

# Larger arrays are data, which functions read; copying them would cost more than the trace. They
# are read-only during a trial, which ends where the function would write to one.
_MAX_COPIED_BYTES = 1 << 16

# The modules of what threads share.
_SHARING_MODULES = {
    "_queue",
    "_thread",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "queue",
    "threading",
}

# By these a function reaches what cannot be found in it.
_ESCAPING_NAMES = {"__import__", "environ", "eval", "exec", "globals", "import_module", "putenv"}

_EMPTY = object()


class Snapshot:
    """The Python objects that a function can reach, as they are now.

    They are those that its code may ask for by name; where that cannot be told, all there are.

    Args:
        fn: The function.
        args: What it is called with: trees.
        anyway: Whether to try where not all of a trial can be undone.

    Attributes:
        guards: Tell whether what a program of ``fn`` would depend on is as it is now.
        tried: Whether a trial run does no lasting harm: not where it would draw from an iterator,
            or work on a tape that is there already; nor, but for ``anyway``, where other threads
            may write meanwhile, or things are reached that nobody knows, or too many.
        why: Why not, in words; None where it does none.
    """

    def __init__(self, fn: Any, *args: Any, anyway: bool = False) -> None:
        from odyssey.compiler.guards.guards import (  # when something is compiled
            discover_guards,
            named_objects,
        )

        roots = (fn, *args)
        self.guards = discover_guards(fn, *args)
        named = named_objects(*roots) if self.guards.reason is None else None
        found = list(reachable(*roots)) if named is None else named
        self.why = _reason_against_tracing(found, anyway, self.guards.reason)
        self.tried = self.why is None
        if named is None and self.tried:
            found = list(reachable(*roots, but=_is_shared))
        own = [thing for thing in found if not _is_shared(thing)] if self.tried else []
        enter = enterable(roots)
        self._kept = [kept for thing in own for kept in _save_object(thing, enter)]
        self._generators = [thing for thing in found if self.tried and is_generator(thing)]
        self._states = generator_states(self._generators)
        self._large = [a for a in own if isinstance(a, ARRAYS) and _is_large(a)]
        # What optimizers hold they write to under a lock of theirs, in any thread.
        ours = [x for x in own if str(type(x).__module__).startswith("odyssey.")]
        self._ours = {id(part) for part in reachable(*ours)} if self._large else set()
        self._locks: dict[int, Any] = {}

    def lock_large(self) -> None:
        """Make large arrays read-only until ``put_back``."""
        # They are opened in this order, and a view not while its base is read-only.
        for array in sorted(self._large, key=_view_depth):
            if id(array) not in self._ours:
                lock_array(array, self._locks)

    def changed(self) -> str | None:
        """What was written to since, in words; None where nothing was."""
        for what, is_other, _ in self._kept:
            if is_other():
                return what
        # They know the layout of arrays too, and equal members of sets from one another.
        change = self.guards.changed()
        return change and change.partition(":")[0]

    def put_back(self) -> str | None:
        """Undo what was done since; return the kind of a generator that moved, or None."""
        now = generator_states(self._generators)
        moved = [
            type(generator).__name__
            for generator, old, new in zip(self._generators, self._states, now, strict=True)
            if not equal_generator_states(old, new)
        ]
        if moved:
            restore_generator_states(self._generators, self._states)
        for _, _, undo in self._kept:
            undo()
        self._locks.clear()
        return moved[0] if moved else None


def _reason_against_tracing(found: list[Any], anyway: bool, unwatched: str | None) -> str | None:
    """What of the things that were found makes a trial do lasting harm, in words.

    Args:
        found: The things.
        anyway: Whether harm is accepted of what nobody knows.
        unwatched: Why guards could not be made; None where there are some.
    """
    for thing in found:
        if isinstance(thing, GradientTape):
            return "it reaches a tape from before"
        if hasattr(type(thing), "__next__"):
            return f"it reaches {sort_of(thing)}, which goes on with each call"
        if not anyway and not _is_restorable(thing, unwatched is None):
            why = "" if unwatched is None else f"{unwatched}, so all counts that is there; "
            name = _display_name(thing)
            return f"{why}it reaches {name}, of which nobody knows what a run does to it"
    if not anyway and len(found) >= MAX_REACHED:
        return f"it reaches more than {MAX_REACHED:,} things"
    return None


def _display_name(thing: Any) -> str:
    own = thing.__name__ if isinstance(thing, FunctionType) else None
    return own or sort_of(thing)


def _view_depth(array: Any) -> int:
    """How many arrays an array is a view of, one of the other."""
    count = 0
    while isinstance(array := array.base, ARRAYS):
        count += 1
    return count


def _is_large(array: Any) -> bool:
    return bool(array.nbytes > _MAX_COPIED_BYTES and is_writable(array))


def _is_shared(thing: Any) -> bool:
    """Whether other threads may write to this meanwhile, which must not be taken back.

    So it is of locks, queues and threads, and of an object that holds one.
    """
    if isinstance(thing, (FunctionType, ModuleType)):
        return False
    parts = getattr(thing, "__dict__", None)
    held = parts.values() if isinstance(parts, dict) else ()
    return any(
        str(type(part).__module__).split(".")[0] in _SHARING_MODULES for part in (thing, *held)
    )


def _is_restorable(thing: Any, watched: bool) -> bool:
    if isinstance(thing, (Value, Symbol)) or is_generator(thing):
        return True
    if isinstance(thing, FunctionType):
        # Guards know these from methods that bear their names, as ``polynomial.eval(x)``.
        return watched or _ESCAPING_NAMES.isdisjoint(names_in_code(thing.__code__))
    return issubclass(c_base_of(type(thing)), KNOWN_C_TYPES) and not _is_shared(thing)


# ------------------------------------------------------------------ ways back

# What something is called, whether it was written to since, and what gives it back what it held.
_SavedPart = tuple[str, Callable[[], bool], Callable[[], None]]
_Undo = tuple[Callable[[], bool], Callable[[], None]]


def _save_object(thing: Any, enter: Callable[[Any], bool]) -> list[_SavedPart]:
    """How ``thing`` gets back what it holds now, part by part."""
    kind = type(thing).__name__
    if isinstance(thing, FunctionType):
        name = thing.__name__
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        kept: list[_SavedPart] = [(f"{n}, in {name}", *_save_cell(cell)) for n, cell in cells]
        for room, names in named_namespaces(thing, enter):
            kept.append((f"a global that {name} names", *_save_dict_items(room, names)))
        if thing.__dict__:
            kept.append((f"an attribute of {name}", *_save_dict_items(thing.__dict__)))
        return kept
    if isinstance(thing, type):
        what = f"an attribute of {thing.__name__}"
        return [(what, *_save_class_attributes(thing))] if enter(thing) else []
    what = f"an attribute of {article(kind)}"
    kept = [(what, *_save_slot(slot, thing)) for slot in slot_descriptors(type(thing))]
    has_room = not isinstance(thing, ModuleType) or enter(thing)
    if has_room and isinstance(getattr(thing, "__dict__", None), dict):
        kept.append((what, *_save_dict_items(thing.__dict__)))
    for base, keeping in _SAVERS.items():
        if isinstance(thing, base):
            kept.append((article(kind), *keeping(thing)))
    return kept


def _save_list(sequence: list[Any]) -> _Undo:
    before = list.copy(sequence)

    def is_other() -> bool:
        return len(sequence) != len(before) or not all(map(is_, sequence, before))

    def undo() -> None:
        if is_other():
            list.__setitem__(sequence, slice(None), before)

    return is_other, undo


def _save_deque(sequence: deque[Any]) -> _Undo:
    before = list(sequence)

    def is_other() -> bool:
        return len(sequence) != len(before) or not all(map(is_, sequence, before))

    def undo() -> None:
        if is_other():
            deque.clear(sequence)
            deque.extend(sequence, before)

    return is_other, undo


def _save_set(members: set[Any]) -> _Undo:
    before = frozenset(members)

    def is_other() -> bool:
        return members != before

    def undo() -> None:
        if is_other():
            set.clear(members)
            set.update(members, before)

    return is_other, undo


def _save_dict_items(items: dict[Any, Any], names: set[str] | None = None) -> _Undo:
    """Keep the items of a dictionary, or those of ``names``."""
    kind: Any = OrderedDict if isinstance(items, OrderedDict) else dict
    kept = kind.__iter__(items) if names is None else [name for name in names if name in items]
    before = {name: kind.__getitem__(items, name) for name in kept}

    def is_lost(name: Any) -> bool:
        return name not in items or kind.__getitem__(items, name) is not before[name]

    def is_new(name: Any) -> bool:
        # A module that was imported meanwhile would not be imported again.
        return name not in before and not isinstance(items.get(name, np), ModuleType)

    def is_moved() -> bool:
        return names is None and not all(map(is_, kind.__iter__(items), before))

    def there() -> list[Any]:
        return list(kind.__iter__(items)) if names is None else list(names)

    def is_other() -> bool:
        return any(map(is_lost, before)) or any(map(is_new, there())) or is_moved()

    def undo() -> None:
        for name in filter(is_lost, before):
            kind.__setitem__(items, name, before[name])
        for name in filter(is_new, there()):
            kind.__delitem__(items, name)
        if is_moved():
            for name in before:  # into their order
                kind.__setitem__(items, name, kind.pop(items, name))

    return is_other, undo


def _save_class_attributes(kind: type) -> _Undo:
    before = dict(vars(kind))

    def is_other() -> bool:
        now = vars(kind)
        return now.keys() != before.keys() or any(now[name] is not before[name] for name in before)

    def undo() -> None:
        now = dict(vars(kind))
        for name, value in before.items():
            if name not in now or now[name] is not value:
                type.__setattr__(kind, name, value)
        for name in now.keys() - before.keys():
            type.__delattr__(kind, name)

    return is_other, undo


def _save_slot(slot: Any, thing: Any) -> _Undo:
    before = slot_value(slot, thing, _EMPTY)

    def is_other() -> bool:
        return slot_value(slot, thing, _EMPTY) is not before

    def undo() -> None:
        if not is_other():
            return
        if before is _EMPTY:
            slot.__delete__(thing)
        else:
            slot.__set__(thing, before)

    return is_other, undo


def _save_bytes(buffer: Any) -> _Undo:
    before = buffer[:]

    def is_other() -> bool:
        return len(buffer) != len(before) or bytes(buffer) != bytes(before)

    def undo() -> None:
        if is_other():
            buffer[:] = before

    return is_other, undo


def _save_array_elements(array: Any) -> _Undo:
    if array.nbytes > _MAX_COPIED_BYTES or not is_writable(array):
        return (lambda: False), (lambda: None)
    before = array.copy()

    def is_other() -> bool:
        return bool(array.tobytes() != before.tobytes())

    def undo() -> None:
        if is_other():
            array[...] = before

    return is_other, undo


def _save_cell(cell: CellType) -> _Undo:
    before = _cell_value(cell)

    def is_other() -> bool:
        return _cell_value(cell) is not before

    def undo() -> None:
        if before is not _EMPTY:
            cell.cell_contents = before
        elif is_other():
            del cell.cell_contents

    return is_other, undo


def _cell_value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return _EMPTY


_SAVERS: dict[Any, Callable[[Any], _Undo]] = {
    list: _save_list,
    deque: _save_deque,
    set: _save_set,
    dict: _save_dict_items,
    bytearray: _save_bytes,
    **dict.fromkeys(ARRAYS, _save_array_elements),
}
