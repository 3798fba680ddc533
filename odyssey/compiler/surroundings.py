"""What a function can reach, and how a trial run of it is undone."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from operator import is_
from types import CellType, FunctionType
from typing import Any

import numpy as np

from odyssey.tape import GradientTape
from odyssey.transforms.replay import (
    is_generator,
    names_in,
    reachable,
    same_states,
    set_states,
    states_of,
)

__all__ = ["Surroundings"]

# Larger arrays are data, which functions read; copying them would cost more than the trace.
_SMALL = 1 << 16

# The modules of what threads share.
_SHARING = {"_queue", "_thread", "asyncio", "concurrent", "multiprocessing", "queue", "threading"}


class Surroundings:
    """The Python objects that a function can reach, as they are now.

    Attributes:
        tried: Whether a trial run can be undone: not where it would draw from an iterator, or
            work on a tape that is there already.
    """

    def __init__(self, *roots: Any) -> None:
        found = list(reachable(*roots))
        self.tried = not any(
            isinstance(thing, GradientTape) or hasattr(type(thing), "__next__") for thing in found
        )
        own = reachable(*roots, but=_is_shared) if self.tried else ()
        self._undo = [undo for thing in own for undo in _undoing(thing)]
        self._generators = [thing for thing in found if self.tried and is_generator(thing)]
        self._states = states_of(self._generators)

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
        return moved[0] if moved else None


def _is_shared(thing: Any) -> bool:
    """Whether other threads may write to this meanwhile, which must not be taken back.

    So it is of locks, queues and threads, and of an object that holds one.
    """
    parts = getattr(thing, "__dict__", None)
    held = parts.values() if isinstance(parts, dict) else ()
    return any(type(part).__module__.split(".")[0] in _SHARING for part in (thing, *held))


def _undoing(thing: Any) -> list[Callable[[], None]]:
    """Functions that give ``thing`` back what it holds now."""
    if type(thing) in (list, deque):
        return [_keeping(thing)]
    if type(thing) is set:
        return [_keeping_members(thing)]
    if type(thing) in (dict, defaultdict, OrderedDict):
        return [_keeping_items(thing)]
    if isinstance(thing, np.ndarray):
        small = thing.nbytes <= _SMALL and thing.flags.writeable
        return [_keeping_elements(thing)] if small else []
    if isinstance(thing, FunctionType):
        cells = [_keeping_cell(cell) for cell in thing.__closure__ or ()]
        names = [name for name in names_in(thing.__code__) if name in thing.__globals__]
        return [*cells, _keeping_items(thing.__globals__, names)]
    if isinstance(getattr(thing, "__dict__", None), dict):
        return [_keeping_items(thing.__dict__)]
    return []


def _keeping(sequence: Any) -> Callable[[], None]:
    before = list(sequence)

    def undo() -> None:
        if len(sequence) != len(before) or not all(map(is_, sequence, before)):
            sequence.clear()
            sequence.extend(before)

    return undo


def _keeping_members(members: set[Any]) -> Callable[[], None]:
    before = list(members)

    def undo() -> None:
        if len(members) != len(before):
            members.clear()
            members.update(before)

    return undo


def _keeping_items(items: dict[Any, Any], names: list[str] | None = None) -> Callable[[], None]:
    before = dict(items) if names is None else {name: items[name] for name in names}

    def undo() -> None:
        for name, value in before.items():
            if name not in items or items[name] is not value:
                items[name] = value
        if names is None and len(items) != len(before):
            for name in list(items):
                if name not in before:
                    del items[name]

    return undo


def _keeping_elements(array: Any) -> Callable[[], None]:
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
