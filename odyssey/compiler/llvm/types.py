"""Types of LLVM values, by the letters that NumPy gives them.

``f4`` is float32, ``c8`` complex64, ``u1`` uint8, ``b1`` a bool. Half precision, ``f2``, is in a
register as a float32 whose value is one of float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError

__all__ = [
    "FLOATING",
    "LLVM",
    "MEMORY",
    "PARTS",
    "SUFFIXES",
    "TYPES",
    "type_code",
]

PARTS: Mapping[str, str] = MappingProxyType({"c8": "f4", "c16": "f8"})
"""By complex type, the type of the real and the imaginary part."""

TYPES = ("f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "ptr")
"""Types of LLVM values."""

_WIDE = {f"{kind}{size}": f"i{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)}

_PAIRS = {"c8": "{ float, float }", "c16": "{ double, double }"}

LLVM: Mapping[str, str] = MappingProxyType(
    {"f2": "float", "f4": "float", "f8": "double", "b1": "i1", "ptr": "ptr", **_WIDE, **_PAIRS}
)
"""By type, the LLVM type of a value in a register."""

MEMORY: Mapping[str, str] = MappingProxyType({**LLVM, "f2": "half", "b1": "i8"})
"""By type, the LLVM type of a value in memory."""

SUFFIXES = {"f2": "f32", "f4": "f32", "f8": "f64", "b1": "i1", "ptr": "p0", **_WIDE}
"""By type, the suffix of an intrinsic's name."""

FLOATING = ("f2", "f4", "f8")
"""Floating-point types."""


def type_code(dtype: DTypeLike) -> str:
    """Return the letters of a dtype.

    Raises:
        DTypeError: no LLVM value has that dtype.

    >>> type_code(np.float32), type_code(bool)
    ('f4', 'b1')
    """
    dtype = np.dtype(dtype)
    code = dtype.str[1:]
    if code not in TYPES or not dtype.isnative:
        raise DTypeError(f"compile: no native code for {dtype}; want one of {TYPES[:-1]}")
    return code
