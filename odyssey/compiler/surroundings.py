"""What a function can reach, and how a trial run of it is undone."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from functools import partial
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ref

import numpy as np

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.locks import lock
from odyssey.devices.ownership import is_writable
from odyssey.table.value import Symbol, Value
from odyssey.tape import GradientTape
from odyssey.transforms.replay import (
    FURTHEST,
    entering,
    is_generator,
    named_by,
    names_in,
    reachable,
    same_states,
    set_states,
    slot_value,
    slots_of,
    states_of,
)

__all__ = ["Surroundings"]

# Larger arrays are data, which functions read; copying them would cost more than the trace. They
# are read-only during a trial, which ends where the function would write to one.
_SMALL = 1 << 16

# The modules of what threads share.
_SHARING = {"_queue", "_thread", "asyncio", "concurrent", "multiprocessing", "queue", "threading"}

# What is made of these, or of no class written in C, holds nothing that a run changes but what is
# put back. Of other classes written in C nobody knows: caches, queues, arrays of other libraries.
_KNOWN = (
    *(type(None), int, float, complex, str, bytes, tuple, frozenset, range, slice, type(...)),
    *(FunctionType, BuiltinFunctionType, MethodType, CodeType, CellType, ModuleType, type),
    *(staticmethod, classmethod, property, super, partial, ref, ContextVar, MappingProxyType),
    *(BaseException, date, time, timedelta, tzinfo, type(np.sum), np.dtype, np.generic),
    *(list, dict, set, deque, bytearray, memoryview, *ARRAYS),
)

# By these a function reaches what cannot be found in it.
_ELSEWHERE = {"__import__", "environ", "eval", "exec", "globals", "import_module", "putenv"}

_NOTHING = object()


class Surroundings:
    """The Python objects that a function can reach, as they are now.

    Args:
        roots: Where to begin to look.
        anyway: Whether to try where not all of a trial can be undone.

    Attributes:
        tried: Whether a trial run does no lasting harm: not where it would draw from an iterator,
            or work on a tape that is there already; nor, but for ``anyway``, where other threads
            may write meanwhile, or things are reached that nobody knows, or too many.
    """

    def __init__(self, *roots: Any, anyway: bool = False) -> None:
        found = list(reachable(*roots))
        self.tried = not any(
            isinstance(thing, GradientTape) or hasattr(type(thing), "__next__") for thing in found
        )
        if not anyway:
            few = len(found) < FURTHEST
            self.tried = self.tried and few and all(map(_can_be_put_back, found))
        own = list(reachable(*roots, but=_is_shared)) if self.tried else []
        enter = entering(roots)
        self._undo = [undo for thing in own for undo in _undoing(thing, enter)]
        self._generators = [thing for thing in found if self.tried and is_generator(thing)]
        self._states = states_of(self._generators)
        self._large = [a for a in own if isinstance(a, ARRAYS) and _is_large(a)]
        # What optimizers hold they write to under a lock of theirs, in any thread.
        ours = [x for x in own if str(type(x).__module__).startswith("odyssey.")]
        self._ours = {id(part) for part in reachable(*ours)} if self._large else set()
        self._locks: dict[int, Any] = {}

    def lock_large(self) -> None:
        """Make large arrays read-only until ``put_back``."""
        for array in self._large:
            if id(array) not in self._ours:
                lock(array, self._locks)

    def put_back(self) -> str | None:
        """Undo what was done since; return the kind of a generator that moved, or None."""
        now = states_of(self._generators)
        moved = [
            type(generator).__name__
            for generator, old, new in zip(self._generators, self._states, now, strict=True)
            if not same_states(old, new)
        ]
        if moved:
            set_states(self._generators, self._states)
        for undo in self._undo:
            undo()
        self._locks.clear()
        return moved[0] if moved else None


def _is_large(array: Any) -> bool:
    return bool(array.nbytes > _SMALL and is_writable(array))


def _is_shared(thing: Any) -> bool:
    """Whether other threads may write to this meanwhile, which must not be taken back.

    So it is of locks, queues and threads, and of an object that holds one.
    """
    if isinstance(thing, (FunctionType, ModuleType)):
        return False
    parts = getattr(thing, "__dict__", None)
    held = parts.values() if isinstance(parts, dict) else ()
    return any(str(type(part).__module__).split(".")[0] in _SHARING for part in (thing, *held))


def _can_be_put_back(thing: Any) -> bool:
    if isinstance(thing, (Value, Symbol)) or is_generator(thing):
        return True
    if isinstance(thing, FunctionType):
        return _ELSEWHERE.isdisjoint(names_in(thing.__code__))
    return issubclass(_made_of(type(thing)), _KNOWN) and not _is_shared(thing)


def _made_of(kind: type) -> type:
    """The class written in C that a class is made of; None's where that is ``object``."""
    for base in kind.__mro__[:-1]:
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType) and new.__self__ is base:
            return base
    return type(None)


# ------------------------------------------------------------------ ways back


def _undoing(thing: Any, enter: Callable[[Any], bool]) -> list[Callable[[], None]]:
    """Functions that give ``thing`` back what it holds now."""
    if isinstance(thing, FunctionType):
        cells = [_keeping_cell(cell) for cell in thing.__closure__ or ()]
        named = [_keeping_items(room, names) for room, names in named_by(thing, enter)]
        return [*cells, *named, *([_keeping_items(thing.__dict__)] if thing.__dict__ else [])]
    if isinstance(thing, type):
        return [_keeping_attributes(thing)] if enter(thing) else []
    undo = [_keeping_slot(slot, thing) for slot in slots_of(type(thing))]
    has_room = not isinstance(thing, ModuleType) or enter(thing)
    if has_room and isinstance(getattr(thing, "__dict__", None), dict):
        undo.append(_keeping_items(thing.__dict__))
    return undo + [keeping(thing) for kind, keeping in _KEEPING.items() if isinstance(thing, kind)]


def _keeping_list(sequence: list[Any]) -> Callable[[], None]:
    before = list.copy(sequence)

    def undo() -> None:
        if len(sequence) != len(before) or not all(map(is_, sequence, before)):
            list.__setitem__(sequence, slice(None), before)

    return undo


def _keeping_deque(sequence: deque[Any]) -> Callable[[], None]:
    before = list(sequence)

    def undo() -> None:
        if len(sequence) != len(before) or not all(map(is_, sequence, before)):
            deque.clear(sequence)
            deque.extend(sequence, before)

    return undo


def _keeping_members(members: set[Any]) -> Callable[[], None]:
    before = frozenset(members)

    def undo() -> None:
        if members != before:
            set.clear(members)
            set.update(members, before)

    return undo


def _keeping_items(items: dict[Any, Any], names: set[str] | None = None) -> Callable[[], None]:
    """Keep the items of a dictionary, or those of ``names``."""
    kind: Any = OrderedDict if isinstance(items, OrderedDict) else dict
    kept = kind.__iter__(items) if names is None else [name for name in names if name in items]
    before = {name: kind.__getitem__(items, name) for name in kept}

    def undo() -> None:
        for name, value in before.items():
            if name not in items or kind.__getitem__(items, name) is not value:
                kind.__setitem__(items, name, value)
        for name in list(kind.__iter__(items)) if names is None else names:
            # A module that was imported meanwhile would not be imported again.
            if name not in before and not isinstance(items.get(name, np), ModuleType):
                kind.__delitem__(items, name)
        if names is None and not all(map(is_, kind.__iter__(items), before)):
            for name in before:  # into their order
                kind.__setitem__(items, name, kind.pop(items, name))

    return undo


def _keeping_attributes(kind: type) -> Callable[[], None]:
    before = dict(vars(kind))

    def undo() -> None:
        now = dict(vars(kind))
        for name, value in before.items():
            if name not in now or now[name] is not value:
                type.__setattr__(kind, name, value)
        for name in now.keys() - before.keys():
            type.__delattr__(kind, name)

    return undo


def _keeping_slot(slot: Any, thing: Any) -> Callable[[], None]:
    before = slot_value(slot, thing, _NOTHING)

    def undo() -> None:
        if slot_value(slot, thing, _NOTHING) is before:
            return
        if before is _NOTHING:
            slot.__delete__(thing)
        else:
            slot.__set__(thing, before)

    return undo


def _keeping_bytes(buffer: Any) -> Callable[[], None]:
    before = buffer[:]

    def undo() -> None:
        if len(buffer) != len(before) or bytes(buffer) != bytes(before):
            buffer[:] = before

    return undo


def _keeping_elements(array: Any) -> Callable[[], None]:
    if array.nbytes > _SMALL or not is_writable(array):
        return lambda: None
    before = array.copy()

    def undo() -> None:
        if array.tobytes() != before.tobytes():
            array[...] = before

    return undo


def _keeping_cell(cell: CellType) -> Callable[[], None]:
    try:
        before = cell.cell_contents
    except ValueError:  # not bound yet
        return lambda: None

    def undo() -> None:
        cell.cell_contents = before

    return undo


_KEEPING: dict[Any, Callable[[Any], Callable[[], None]]] = {
    list: _keeping_list,
    deque: _keeping_deque,
    set: _keeping_members,
    dict: _keeping_items,
    bytearray: _keeping_bytes,
    **dict.fromkeys(ARRAYS, _keeping_elements),
}
