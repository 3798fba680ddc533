"""Types of LLVM values, by the letters that NumPy gives them.

``f4`` is float32, ``c8`` complex64, ``u1`` uint8, ``b1`` a bool. Half precision, ``f2``, is in a
register as a float32 whose value is one of float16. So is bfloat16, which is ``f2b`` here: NumPy
has no letters for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from odyssey.devices.half_dtypes import bfloat16, is_bfloat16
from odyssey.errors import DTypeError

__all__ = [
    "FLOATING",
    "HALVES",
    "LLVM",
    "MEMORY",
    "PARTS",
    "SUFFIXES",
    "TYPES",
    "common_type",
    "dtype_of_code",
    "type_code",
]

PARTS: Mapping[str, str] = MappingProxyType({"c8": "f4", "c16": "f8"})
"""By complex type, the type of the real and the imaginary part."""

HALVES = ("f2", "f2b")
"""Types of half precision, float16 and bfloat16."""

_INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")

TYPES = (*HALVES, "f4", "f8", "c8", "c16", *_INTEGERS, "b1", "ptr")
"""Types of LLVM values."""

_WIDE = {f"{kind}{size}": f"i{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)}

_PAIRS = {"c8": "{ float, float }", "c16": "{ double, double }"}

LLVM: Mapping[str, str] = MappingProxyType(
    {
        **{"f2": "float", "f2b": "float", "f4": "float", "f8": "double", "b1": "i1", "ptr": "ptr"},
        **_WIDE,
        **_PAIRS,
    }
)
"""By type, the LLVM type of a value in a register."""

MEMORY: Mapping[str, str] = MappingProxyType({**LLVM, "f2": "half", "f2b": "i16", "b1": "i8"})
"""By type, the LLVM type of a value in memory."""

SUFFIXES = {"f2": "f32", "f2b": "f32", "f4": "f32", "f8": "f64", "b1": "i1", "ptr": "p0", **_WIDE}
"""By type, the suffix of an intrinsic's name."""

FLOATING = (*HALVES, "f4", "f8")
"""Floating-point types."""


def type_code(dtype: DTypeLike) -> str:
    """Return the letters of a dtype.

    Raises:
        DTypeError: no LLVM value has that dtype.

    >>> type_code(np.float32), type_code(bool)
    ('f4', 'b1')
    """
    dtype = np.dtype(dtype)
    code = "f2b" if is_bfloat16(dtype) else dtype.str[1:]
    if code not in TYPES or not dtype.isnative:
        raise DTypeError(f"compile: no native code for {dtype}; want one of {TYPES[:-1]}")
    return code


def dtype_of_code(code: str) -> np.dtype[Any]:
    """Return the dtype of letters, the inverse of ``type_code``.

    >>> dtype_of_code("f2b"), dtype_of_code("b1"), dtype_of_code("f4")
    (dtype(bfloat16), dtype('bool'), dtype('float32'))
    """
    return bfloat16() if code == "f2b" else np.dtype(bool if code == "b1" else code)


def common_type(*codes: str) -> str:
    """Return the type that values of several types are promoted to, as by ``np.result_type``.

    bfloat16 is promoted as float16 is: beside int8, for example, it stays, and beside int16 it
    becomes float32.

    Raises:
        DTypeError: float16 beside bfloat16, of which neither holds the other.
    """
    if "f2b" in codes and "f2" in codes:
        raise DTypeError("compile: no native code for float16 beside bfloat16; cast one of them")
    known = ["f2" if code == "f2b" else code for code in codes]
    found = type_code(np.result_type(*map(dtype_of_code, known)))
    return "f2b" if found == "f2" and "f2b" in codes else found
