"""Objects with a state that ``od.save`` and ``od.load`` keep, and objects without one."""

from __future__ import annotations

from typing import Any

from odyssey.devices.commit import Plan, commit
from odyssey.devices.write_guard import wait_for_programs, write_lock

__all__ = ["Stateful", "TraceConstant"]


class TraceConstant:
    """Base of objects of which nothing changes that a traced function may read."""


class Stateful:
    """Base class of objects whose state is a leaf of saved trees."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as numbers, text and arrays, which are copies."""
        raise NotImplementedError

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take over what ``state_dict`` returned; nothing changes if it does not fit."""
        with write_lock():
            wait_for_programs()
            commit(self._state_plan(saved))

    def _state_plan(self, saved: Any) -> Plan:
        """Return the calls that take over a state; raise OdysseyError if it does not fit."""
        raise NotImplementedError
