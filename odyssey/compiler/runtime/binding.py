"""Binding: guard words of the states that a program reads, and checks of their memory.

Called by ``executable`` when it binds a program to the arrays of its states. A guard word is a row
of an address, a mask and the expected word, which the native entry point compares.
"""

from __future__ import annotations

from odyssey.compiler.native_dispatch.cpython_layout import (
    ALL_BITS,
    REFERENCE_COUNT_MASK,
    slot_offset,
)
from odyssey.compiler.native_dispatch.object_layout import object_layout
from odyssey.compiler.runtime.buffer_leases import needs_exclusive_array
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.devices.copy_on_write import EXCLUSIVE_COUNT
from odyssey.devices.ownership import address_of
from odyssey.graph.graph import State
from odyssey.spec import Array
from odyssey.table.value import LEAF, Info, Value, is_trainable
from odyssey.variable import Variable

__all__ = ["absent_gradient_words", "planned_strides", "state_guard_words"]

_WRITEABLE = 0x400  # a flag of NumPy arrays


def planned_strides(plan_: Plan, k: int) -> tuple[int, ...] | None:
    """Return the strides that a plan assumes for state `k`; None if it has no such state."""
    for allocation in plan_.allocations.values():
        if allocation.buffer.kind == "state" and allocation.buffer.index == k:
            return allocation.view.strides
    return None


def state_guard_words(state: State, array: Array, written: bool) -> list[int]:
    """Return the guard words of a bound state; none if the layout of arrays is unknown."""
    variable, layout = state.variable, object_layout()
    if layout is None:
        return []
    words = [slot_offset(Value, "_array") + id(variable), ALL_BITS, id(array)]
    words += [id(array) + layout.data, ALL_BITS, address_of(array)]
    if is_trainable(variable):
        info = variable._info
        words += [slot_offset(Value, "_recording") + id(variable), ALL_BITS, id(LEAF)]
        words += [slot_offset(Value, "_info") + id(variable), ALL_BITS, id(info)]
        shared = info.shared if info is not None else None
        if shared is not None:
            words += [slot_offset(Info, "shared") + id(info), ALL_BITS, id(shared)]
    if written:
        words += [id(array) + layout.flags, _WRITEABLE, _WRITEABLE]
    if needs_exclusive_array(state):
        words += [id(array), REFERENCE_COUNT_MASK, EXCLUSIVE_COUNT]
    return words


def absent_gradient_words(variable: Variable) -> list[int]:
    """Return guard words for a leaf without a gradient; none if the layout is unknown."""
    info = variable._info
    if info is None or object_layout() is None:
        return []
    words = [slot_offset(Value, "_info") + id(variable), ALL_BITS, id(info)]
    return [*words, slot_offset(Info, "grad") + id(info), ALL_BITS, id(None)]
