"""Running a function once more: what it drew is drawn again, and what it left is not left twice.

A checkpoint runs its function again in the sweep. Then ``repeating()`` is true, by which those ops
know that leave something behind, such as the running statistics of ``batch_norm``. And a generator
of random numbers, whose state is a Value, asks ``standing_for`` which Value it stands at. While a
function is run for the first time, a ``Noted`` remembers where each generator stood; in the
repetition other Values stand for them, which begin there, and the generators stay where they are.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np

from odyssey.table.scoped_exit import ScopedBlock
from odyssey.table.store import store
from odyssey.table.value import CONSTANT, Symbol, Value, free_id, make_value

__all__ = ["RecordedRng", "current_rng_state", "is_replaying", "record_rng", "replay_rng"]


class RecordedRng:
    """Where generators stood when a function first asked for them: Symbols, or arrays of its own.

    Each by the id of its Value, with the Value, whose id would else be given out again.
    """

    __slots__ = ("starts",)

    def __init__(self) -> None:
        self.starts: dict[int, tuple[Value, Any]] = {}


class _RecordingScope:
    """The scope of a first run."""

    again = over = False

    def __init__(self, noted: RecordedRng) -> None:
        self._starts = noted.starts

    def stand_in(self, state: Value, outer: Any) -> Value:
        found = _lookup_state(state, outer)
        if id(state) not in self._starts:
            self._starts[id(state)] = (state, store().copied(found))
        return found


class _ReplayScope:
    """The scope of a repetition."""

    again, over = True, False

    def __init__(self, noted: RecordedRng) -> None:
        self._starts = noted.starts
        self._others: dict[int, tuple[Value, Value]] = {}

    def stand_in(self, state: Value, outer: Any) -> Value:
        if id(state) not in self._others:
            # What drew nothing the first time begins where it stands.
            noted = self._starts.get(id(state))
            begin = store().copied(_lookup_state(state, outer)) if noted is None else noted[1]
            data = begin if isinstance(begin, Symbol) else np.array(begin)
            other = make_value(type(state), data, CONSTANT, free_id())
            self._others[id(state)] = (state, other)
        return self._others[id(state)][1]


# The scope of the innermost block, with what is around it.
_SCOPES: ContextVar[Any] = ContextVar("odyssey_repeats", default=None)


def _lookup_state(state: Value, around: Any) -> Value:
    while around is not None:
        scope, around = around
        if not scope.over:
            found: Value = scope.stand_in(state, around)
            return found
    return state


def current_rng_state(state: Value) -> Value:
    """The Value that a generator stands at here: its own, but in a repetition."""
    return _lookup_state(state, _SCOPES.get())


def is_replaying() -> bool:
    """Whether what runs here has run before, and left what it leaves."""
    around = _SCOPES.get()
    while around is not None:
        scope, around = around
        if scope.again and not scope.over:
            return True
    return False


class _ScopeBlock(ScopedBlock):
    """A block that a scope surrounds, which ends with the block, whatever was entered since."""

    def __init__(
        self, kind: type[_RecordingScope] | type[_ReplayScope], noted: RecordedRng
    ) -> None:
        super().__init__()
        self._kind, self._noted = kind, noted

    def _begin(self, entry: list[Any]) -> None:
        entry[1] = self._kind(self._noted)
        _SCOPES.set((entry[1], _SCOPES.get()))

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is None:
            return
        entry[1].over = True
        around = _SCOPES.get()
        while around is not None and around[0].over:
            around = around[1]
        _SCOPES.set(around)


def record_rng(noted: RecordedRng) -> ScopedBlock:
    """A block that notes where generators stand when they are first asked for."""
    return _ScopeBlock(_RecordingScope, noted)


def replay_rng(noted: RecordedRng) -> ScopedBlock:
    """A block that runs once more what ran in ``noting(noted)``."""
    return _ScopeBlock(_ReplayScope, noted)
