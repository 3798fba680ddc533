"""Layout of NumPy arrays and Variables in memory, for machine code that reads their fields.

Called by ``runtime``, and by the other modules of this room for the class. Offsets are measured or
confirmed on probes, once a process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from odyssey.compiler.native_dispatch import NATIVE_DISPATCH
from odyssey.compiler.native_dispatch.cpython_layout import (
    REFERENCE_COUNT_MASK,
    dict_version_offset,
    list_field_offsets,
    slot_offset,
)
from odyssey.devices.ownership import address_of
from odyssey.table.value import Value

__all__ = ["ObjectLayout", "numpy_functions", "object_layout"]


class ObjectLayout(NamedTuple):
    """Offsets, in bytes, of the fields of NumPy arrays, Variables, dictionaries and tuples.

    Attributes:
        data: Address of an array's first element.
        ndim: Number of axes of an array.
        shape: Address of an array's shape.
        dtype: Dtype of an array.
        flags: Flags of an array.
        variable: Slots of a Variable, by name; empty where native dispatch is not possible.
        version: Version of a dictionary; None if it has none.
        items: First item of a tuple.
    """

    data: int
    ndim: int
    shape: int
    dtype: int
    flags: int
    variable: Mapping[str, int] = MappingProxyType({})
    version: int | None = None
    items: int = tuple.__basicsize__


_PROBE = 0.1


@cache
def object_layout() -> ObjectLayout | None:
    """Return the offsets of the fields; None if those of arrays are not the known ones."""
    if not NATIVE_DISPATCH:
        return None
    layout = ObjectLayout(data=16, ndim=24, shape=32, dtype=56, flags=64)
    probe = np.arange(6.0).reshape(2, 3)
    words = (ctypes.c_int64 * 9).from_address(id(probe))
    if object.__basicsize__ != 16 or ndarray.__basicsize__ < 72:
        return None
    shape = (ctypes.c_int64 * 2).from_address(words[4])
    flags = words[8] & 0xFFFFFFFF
    pair = (None, probe)
    confirmed = (
        words[1] == id(ndarray)
        and words[2] == address_of(probe)
        and words[3] & 0xFFFFFFFF == 2
        and list(shape) == [2, 3]
        and words[7] == id(probe.dtype)
        and flags == probe.flags.num
        and ctypes.c_double.from_address(id(_PROBE) + 16).value == _PROBE
        and float.__basicsize__ == 24
        and ctypes.c_int64.from_address(id(pair) + layout.items + 8).value == id(probe)
        and ctypes.c_int64.from_address(id(probe)).value & REFERENCE_COUNT_MASK == 2
    )
    if not confirmed:
        return None
    if numpy_functions() and list_field_offsets() != (0, 0):
        names = ("_array", "_id", "_info", "_placed", "_recording", "_spec")
        slots = MappingProxyType({name: slot_offset(Value, name) for name in names})
        layout = layout._replace(variable=slots, version=dict_version_offset())
    return layout


# Indices of two functions in NumPy's C API table; they are part of its ABI.
_NEW_ARRAY, _NEW_NUMBER = 184, 60


@cache
def numpy_functions() -> Mapping[str, int]:
    """Return addresses of NumPy's C functions that make arrays and scalars; empty if not found."""
    core: Any = getattr(np, "_core", None) or np.core
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    capsule_pointer = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        table = (ctypes.c_void_p * (_NEW_ARRAY + 1)).from_address(
            capsule_pointer(core.multiarray._ARRAY_API, None)
        )
        found = {"odyssey_new_array": table[_NEW_ARRAY], "odyssey_new_number": table[_NEW_NUMBER]}
    except (AttributeError, TypeError, ValueError):
        return {}
    return MappingProxyType({name: at for name, at in found.items() if at})
