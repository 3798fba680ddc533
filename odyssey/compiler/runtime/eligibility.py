"""Eligibility: states for which no program can be compiled.

Called by ``compiled_call`` before it compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odyssey.compiler.runtime.results import NotCompilableError
from odyssey.devices.ownership import may_alias
from odyssey.table.value import Mark, array_of

__all__ = ["refuse_states_on_tapes", "refuse_captured_aliases"]


def refuse_states_on_tapes(states: Sequence[Any]) -> None:
    """Refuse states that belong to a tape: ops on them are recorded there."""
    for state in states:
        variable = state.variable
        info = variable._info
        home = info is not None and info.home is not None and info.home()
        if home is not None and home is not False:
            raise NotCompilableError(f"{state.label} was made by a tape")
        if not isinstance(variable._recording, Mark):
            raise NotCompilableError(f"{state.label} is a result on a tape")


def refuse_captured_aliases(states: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Refuse programs that write a state aliased by a captured constant."""
    for state in states:
        written = state.field == "data" and state.update is not None
        if written and may_alias(array_of(state.variable), arrays):
            raise NotCompilableError(
                f"it reads an array that shares memory with {state.label}, and writes to it"
            )
