"""What classes written in C are known here, with all that a run can change of their objects."""

from __future__ import annotations

from collections import deque, namedtuple
from contextvars import ContextVar
from datetime import date, time, timedelta, tzinfo
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from weakref import ref

import numpy as np

from odyssey.devices.arrays import ARRAYS

__all__ = ["FIELD", "KNOWN", "made_of"]

# What a class of named tuples has by the name of a field.
FIELD = type(vars(namedtuple("Pair", "first"))["first"])

# What is made of these, or of no class written in C, holds nothing that a run changes but what is
# put back. Of other classes written in C nobody knows: caches, queues, arrays of other libraries.
KNOWN = (
    *(type(None), int, float, complex, str, bytes, tuple, frozenset, range, slice, type(...)),
    *(FunctionType, BuiltinFunctionType, MethodType, CodeType, CellType, ModuleType, type),
    *(staticmethod, classmethod, property, super, partial, ref, ContextVar, MappingProxyType),
    *(BaseException, date, time, timedelta, tzinfo, type(np.sum), np.dtype, np.generic),
    *(list, dict, set, deque, bytearray, memoryview, *ARRAYS),
    *(FIELD, SimpleNamespace),
)


def made_of(kind: type) -> type:
    """The class written in C that a class is made of; None's where that is ``object``."""
    for base in kind.__mro__[:-1]:
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType) and new.__self__ is base:
            return base
    return type(None)
