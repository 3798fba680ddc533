"""RNG replay: a second run of a function draws the random numbers of the first.

A checkpoint runs its function a second time, in the sweep. Then ``is_replaying()`` is true, and ops
with a state, such as the running statistics of ``batch_norm``, leave it as it is. A random
generator, whose state is a Value, asks ``current_rng_state`` for its Value. The first run stores
the initial state of each generator in a ``RecordedRng``; the replay uses copies of these states,
and the generators keep theirs.
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
    """Initial generator states of a run, as Symbols or copied arrays, by the id of their Value.

    The Value is kept as well, so that its id stays unique.
    """

    __slots__ = ("starts",)

    def __init__(self) -> None:
        self.starts: dict[int, tuple[Value, Any]] = {}


class _RecordingScope:
    """Scope of the first run: stores initial states."""

    replays = over = False

    def __init__(self, recorded: RecordedRng) -> None:
        self._starts = recorded.starts

    def substitute(self, state: Value, outer: Any) -> Value:
        found = _lookup_state(state, outer)
        if id(state) not in self._starts:
            self._starts[id(state)] = (state, store().copied(found))
        return found


class _ReplayScope:
    """Scope of a replay: substitutes copies of the stored states."""

    replays, over = True, False

    def __init__(self, recorded: RecordedRng) -> None:
        self._starts = recorded.starts
        self._others: dict[int, tuple[Value, Value]] = {}

    def substitute(self, state: Value, outer: Any) -> Value:
        if id(state) not in self._others:
            # A generator that the first run did not use begins at its current state.
            noted = self._starts.get(id(state))
            begin = store().copied(_lookup_state(state, outer)) if noted is None else noted[1]
            data = begin if isinstance(begin, Symbol) else np.array(begin)
            other = make_value(type(state), data, CONSTANT, free_id())
            self._others[id(state)] = (state, other)
        return self._others[id(state)][1]


# A linked list of scopes, innermost first.
_SCOPES: ContextVar[Any] = ContextVar("odyssey_repeats", default=None)


def _lookup_state(state: Value, around: Any) -> Value:
    while around is not None:
        scope, around = around
        if not scope.over:
            found: Value = scope.substitute(state, around)
            return found
    return state


def current_rng_state(state: Value) -> Value:
    """Return the state of a generator here: its own Value, or a substitute in a replay."""
    return _lookup_state(state, _SCOPES.get())


def is_replaying() -> bool:
    """Return whether the running code is replayed, so that its state changes are already made."""
    around = _SCOPES.get()
    while around is not None:
        scope, around = around
        if scope.replays and not scope.over:
            return True
    return False


class _ScopeBlock(ScopedBlock):
    """A block with a scope that ends with it, whatever scopes were entered since."""

    def __init__(
        self, kind: type[_RecordingScope] | type[_ReplayScope], recorded: RecordedRng
    ) -> None:
        super().__init__()
        self._kind, self._recorded = kind, recorded

    def _begin(self, entry: list[Any]) -> None:
        entry[1] = self._kind(self._recorded)
        _SCOPES.set((entry[1], _SCOPES.get()))

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is None:
            return
        entry[1].over = True
        around = _SCOPES.get()
        while around is not None and around[0].over:
            around = around[1]
        _SCOPES.set(around)


def record_rng(recorded: RecordedRng) -> ScopedBlock:
    """Return a block that records the initial state of each generator it uses."""
    return _ScopeBlock(_RecordingScope, recorded)


def replay_rng(recorded: RecordedRng) -> ScopedBlock:
    """Return a block that replays the generator states recorded by ``record_rng``."""
    return _ScopeBlock(_ReplayScope, recorded)
