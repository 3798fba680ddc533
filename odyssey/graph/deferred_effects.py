"""Deferred effects: schedules whose step runs after the program.

A step of a schedule changes Python's numbers, which no graph holds. As long as nothing of the trace
asks for these afterwards, it makes no difference that it comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.errors import TapeError
from odyssey.graph.graph import Graph
from odyssey.variable import Variable

__all__ = ["DeferredEffects"]


class DeferredEffects:
    """The part of a trace that notes it."""

    graph: Graph
    only_eagerly: Callable[[str], None]
    _parts: list[int]

    def _begin_behind(self) -> None:
        # By id of its owner, that and what was made for it.
        self._made: dict[int, tuple[Any, Any]] = {}
        # Parameter groups whose schedules have stepped, by id.
        self._moved: dict[int, Any] = {}

    def step_behind(self, schedule: Any) -> bool:
        """Let a schedule step behind each run; False within a loop, and of a second schedule."""
        groups = {id(group): group for group in schedule.optimizer.groups}
        if self._parts or not self._moved.keys().isdisjoint(groups):
            return False
        self._moved |= groups
        self.graph.behind.append(schedule)
        return True

    def once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """Return what ``make`` gave when this was first asked for ``owner``."""
        if id(owner) in self._moved:
            self.only_eagerly("it steps an optimizer behind its schedule")
            raise TapeError(
                "step: the optimizer steps behind its schedule, whose rate only Python knows; step "
                "the schedule last"
            )
        if id(owner) not in self._made:
            made = make()
            self._made[id(owner)] = (owner, made)
            if isinstance(made, Variable):
                self.graph.made.append((made, make))
        return self._made[id(owner)][1]
