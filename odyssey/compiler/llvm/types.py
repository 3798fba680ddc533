"""The types of LLVM IR by the letters that NumPy gives them, and what code declares.

``f4`` is float32, ``c8`` complex64, ``u1`` uint8, ``b1`` a truth value. Half precision, ``f2``,
lies in a register as a float32 whose value is one of float16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError

__all__ = [
    "FLOATING",
    "LIBM",
    "LLVM",
    "MEMORY",
    "PARTS",
    "SUFFIXES",
    "TYPES",
    "type_code",
    "declare_functions",
]

PARTS: Mapping[str, str] = MappingProxyType({"c8": "f4", "c16": "f8"})
"""By the type of a complex number that of its two parts."""

TYPES = ("f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1", "ptr")
"""Types of LLVM values."""

_WIDE = {f"{kind}{size}": f"i{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)}

_PAIRS = {"c8": "{ float, float }", "c16": "{ double, double }"}

LLVM: Mapping[str, str] = MappingProxyType(
    {"f2": "float", "f4": "float", "f8": "double", "b1": "i1", "ptr": "ptr", **_WIDE, **_PAIRS}
)
"""LLVM's name of a type, in registers."""

MEMORY: Mapping[str, str] = MappingProxyType({**LLVM, "f2": "half", "b1": "i8"})
"""LLVM's name of a type, in memory."""

SUFFIXES = {"f2": "f32", "f4": "f32", "f8": "f64", "b1": "i1", "ptr": "p0", **_WIDE}
"""What an intrinsic's name ends with."""

FLOATING = ("f2", "f4", "f8")
"""Types of floating numbers."""

LIBM = frozenset(
    f"{name}{width}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh"),
        *("erf", "erfc", "exp", "exp2", "expm1", "fmod", "hypot", "lgamma", "log", "log10"),
        *("log1p", "log2", "nextafter", "pow", "remainder", "sin", "sinh", "tan", "tanh"),
        "tgamma",
    )
    for width in ("", "f")
)
"""Functions of libm that code may call, those of float32 with an f behind."""

_TYPE = r"<[^>]*>|\w+"
_CALL = re.compile(rf"call (?:\w+ )*?({_TYPE}) @([\w.]+)\((.*)\)")


def type_code(dtype: DTypeLike) -> str:
    """The letters of a dtype.

    Raises:
        DTypeError: no LLVM value has such a type.

    >>> type_code(np.float32), type_code(bool)
    ('f4', 'b1')
    """
    given = np.dtype(dtype)
    found = given.str[1:]
    if found not in TYPES or not given.isnative:
        raise DTypeError(f"compile: no native code for {given}; want one of {TYPES[:-1]}")
    return found


def declare_functions(text: str) -> str:
    """Declare what code calls: functions of libm, and those that are LLVM's own.

    Args:
        text: Of functions.

    Returns:
        A line for each; what the text itself declares or defines is left out.

    >>> declare_functions("%y = call float @sinf(float %x)")
    'declare float @sinf(float) nounwind willreturn memory(none)'
    """
    known = set(re.findall(r"^ *(?:declare|define).*?@([\w.]+)\(", text, re.MULTILINE))
    lines = set()
    for result, name, given in _CALL.findall(text):
        if name in known or not (name in LIBM or name.startswith("llvm.")):
            continue
        kinds = re.findall(rf"(?:^|, )({_TYPE})", given)
        effects = " nounwind willreturn memory(none)" if name in LIBM else ""
        lines.add(f"declare {result} @{name}({', '.join(kinds)}){effects}")
    return "\n".join(sorted(lines))
