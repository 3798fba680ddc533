"""Binding: addresses of states, and guard words on the objects that hold them.

The offsets of the fields of NumPy's arrays and of the package's own objects are measured once.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from functools import cache
from threading import RLock, get_ident
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy import ndarray

from odyssey.compiler.machine.jit import Loaded, load
from odyssey.compiler.native_dispatch import NATIVE_DISPATCH
from odyssey.compiler.native_dispatch.cpython_layout import (
    dict_version_offset,
    list_field_offsets,
    slot_offset,
)
from odyssey.compiler.native_dispatch.dispatcher import native_dispatch_module
from odyssey.compiler.native_dispatch.entry import Layout, entry_module
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.state_layout import BindingError
from odyssey.graph.graph import State
from odyssey.spec import Array
from odyssey.table.value import LEAF, Info, Value, is_trainable
from odyssey.variable import Variable

__all__ = [
    "BufferLease",
    "address_of",
    "load_entry_points",
    "native_dispatch_available",
    "absent_gradient_words",
    "numpy_functions",
    "lease_of",
    "array_layout",
    "ensure_exclusive",
    "is_exclusive",
    "assert_exclusive",
    "lock_owner_offset",
    "refuse_overlap",
    "memory_span",
    "planned_strides",
    "state_guard_words",
    "write_words",
]

_WRITEABLE = 0x400
# The reference count is the first word of an object, or the lower half of it.
_COUNT = 0xFFFFFFFF
# References to an exclusively owned array: from its Variable, and from a BufferLease.
_EXCLUSIVE_COUNT = 2
_PROBE = 0.1


def planned_strides(plan_: Plan, k: int) -> tuple[int, ...] | None:
    """Return the strides that a plan assumes for state `k`; None if it has no such state."""
    for home in plan_.allocations.values():
        if home.buffer.kind == "state" and home.buffer.index == k:
            return home.view.strides
    return None


def memory_span(array: Array) -> tuple[int, int]:
    """Return the first address of an array's memory and the address behind its last byte."""
    start = end = address_of(array)
    if not array.size:
        return start, start
    for n, s in zip(array.shape, array.strides, strict=True):
        if s > 0:
            end += (n - 1) * s
        else:
            start += (n - 1) * s
    return start, end + array.itemsize


def refuse_overlap(spans: list[tuple[int, int, bool]]) -> None:
    """Raise BindingError if a written state aliases another: spans are (start, end, written)."""
    ordered = sorted(spans)
    reach, reach_written = -1, False
    for start, end, written in ordered:
        if start < reach and (written or reach_written):
            raise BindingError("two states share memory")
        if end > reach:
            reach, reach_written = end, written


def state_guard_words(state: State, array: Array, written: bool) -> list[int]:
    """Return guard words for a bound state: triples of address, mask and expected word."""
    variable, found = state.variable, array_layout()
    if found is None:
        return []
    words = [slot_offset(Value, "_array") + id(variable), -1, id(array)]
    words += [id(array) + found.data, -1, address_of(array)]
    if is_trainable(variable):
        words += [slot_offset(Value, "_recording") + id(variable), -1, id(LEAF)]
        words += [slot_offset(Value, "_info") + id(variable), -1, id(variable._info)]
        shared = variable._info.shared if variable._info is not None else None
        if shared is not None:
            words += [slot_offset(Info, "shared") + id(variable._info), -1, id(shared)]
    if written:
        words += [id(array) + found.flags, _WRITEABLE, _WRITEABLE]
    if state.gets_new_array:
        words += [id(array), _COUNT, _EXCLUSIVE_COUNT]
    return words


class BufferLease:
    """Shared reference to a buffer: all programs bound to it count as one reference."""

    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Array) -> None:
        self.array = array


_LEASES: WeakValueDictionary[int, BufferLease] = WeakValueDictionary()


def lease_of(array: Array) -> BufferLease:
    """Return the lease of an array, the one that every program shares."""
    found = _LEASES.get(id(array))
    if found is None or found.array is not array:
        found = _LEASES[id(array)] = BufferLease(array)
    return found


def ensure_exclusive(state: State) -> None:
    """Give a state that a run rebinds an exclusively owned buffer (copy on write).

    A run may then write to it in place, and later runs keep the buffer.

    Raises:
        BindingError: another owner holds the array and must see its old elements.
    """
    variable = state.variable
    if type(variable._array) is not ndarray:
        return
    held = lease_of(variable._array)
    if held.array.flags.owndata and is_exclusive(held):
        return
    if state.updates_old_array:
        raise BindingError(f"another owner holds the array of {state.label}")
    variable._array = np.array(held.array)


def assert_exclusive(variable: Variable, held: BufferLease) -> None:
    """Raise BindingError if a Variable has another array, or the array another owner."""
    # Without a call or a loop, no other thread runs between reading the count and the commit.
    if variable._array is not held.array or not is_exclusive(held):
        raise BindingError("another owner holds an array that is written to")


def is_exclusive(lease: BufferLease) -> bool:
    """Return whether nobody but a Variable and the lease refers to an array."""
    return sys.getrefcount(lease.array) - 1 == _EXCLUSIVE_COUNT  # the argument counts as well


def _reference_count(place: int) -> int:
    """Return the reference count of the object at an address."""
    return ctypes.c_int64.from_address(place).value & _COUNT


def absent_gradient_words(variable: Variable) -> list[int]:
    """Return guard words for a leaf without a gradient: address, mask and expected word."""
    if variable._info is None or array_layout() is None:
        return []
    words = [slot_offset(Value, "_info") + id(variable), -1, id(variable._info)]
    return [*words, slot_offset(Info, "grad") + id(variable._info), -1, id(None)]


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    found: int = array.__array_interface__["data"][0]
    return found


def write_words(address: int, words: list[int]) -> None:
    """Write 64-bit words to memory from an address on."""
    for k, word in enumerate(words):
        ctypes.c_int64.from_address(address + 8 * k).value = word


@cache
def array_layout() -> Layout | None:
    """Return the offsets of the fields of NumPy's arrays; None if they are not the known ones."""
    if not NATIVE_DISPATCH:
        return None
    known = Layout(data=16, ndim=24, shape=32, dtype=56, flags=64)
    probe = np.arange(6.0).reshape(2, 3)
    words = (ctypes.c_int64 * 9).from_address(id(probe))
    if object.__basicsize__ != 16 or ndarray.__basicsize__ < 72:
        return None
    shape = (ctypes.c_int64 * 2).from_address(words[4])
    flags = words[8] & 0xFFFFFFFF
    pair = (None, probe)
    right = (
        words[1] == id(ndarray)
        and words[2] == address_of(probe)
        and words[3] & 0xFFFFFFFF == 2
        and list(shape) == [2, 3]
        and words[7] == id(probe.dtype)
        and flags == probe.flags.num
        and ctypes.c_double.from_address(id(_PROBE) + 16).value == _PROBE
        and float.__basicsize__ == 24
        and ctypes.c_int64.from_address(id(pair) + known.items + 8).value == id(probe)
        and _reference_count(id(probe)) == 2
    )
    if not right:
        return None
    if numpy_functions() and list_field_offsets() != (0, 0):
        names = ("_array", "_id", "_info", "_placed", "_recording", "_spec")
        variable = {name: slot_offset(Value, name) for name in names}
        known = known._replace(variable=MappingProxyType(variable), version=dict_version_offset())
    return known


# Indices of two functions in NumPy's C API table; they are part of its ABI.
_NEW_ARRAY, _NEW_NUMBER = 184, 60


@cache
def numpy_functions() -> Mapping[str, int]:
    """Return addresses of NumPy's C functions that make arrays and scalars; empty if not found."""
    room: Any = getattr(np, "_core", None) or np.core
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    read = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        table = (ctypes.c_void_p * (_NEW_ARRAY + 1)).from_address(
            read(room.multiarray._ARRAY_API, None)
        )
        found = {"odyssey_new_array": table[_NEW_ARRAY], "odyssey_new_number": table[_NEW_NUMBER]}
    except (AttributeError, TypeError, ValueError):
        return {}
    return MappingProxyType({name: at for name, at in found.items() if at})


@cache
def lock_owner_offset() -> int | None:
    """Return the offset of the owner's thread id (0 for none) in an RLock; None if not found."""
    lock, me = RLock(), get_ident()
    words = (ctypes.c_int64 * (type(lock).__basicsize__ // 8)).from_address(id(lock))
    before = [*words]
    with lock:
        places = [k for k, word in enumerate(words) if word == me and before[k] == 0]
        with lock:
            places = [k for k in places if words[k] == me]
    places = [k for k in places if words[k] == 0]
    return 8 * places[0] if len(places) == 1 else None


@cache
def load_entry_points(direct: bool) -> Loaded:
    """Load the code that Python calls for any program; native dispatch if `direct`."""
    known = array_layout()
    assert known is not None, "without a known layout, Python dispatches every call"
    return (
        load(native_dispatch_module(known), numpy_functions())
        if direct
        else load(entry_module(known))
    )


def native_dispatch_available() -> bool:
    """Return whether a call may be dispatched by one native function on this interpreter."""
    known = array_layout()
    return known is not None and bool(known.variable)
