"""Declarations and definitions of the functions that generated code calls.

Called by ``codegen.module`` and ``cuda.module`` for each module.
"""

from __future__ import annotations

import re

from odyssey.compiler.llvm.elementary import define_formulas

__all__ = ["LIBM", "declarations"]

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
"""Functions of libm that code may call; those of float32 end with an f."""

_TYPE = r"<[^>]*>|\w+"
_CALL = re.compile(rf"call (?:\w+ )*?({_TYPE}) @([\w.]+)\((.*)\)")


def declarations(text: str, vector_variants: bool = True) -> str:
    """Declare the LLVM and libm functions that a text calls, and define our own.

    Args:
        text: LLVM functions; functions that it declares or defines itself are left out.
        vector_variants: Whether to define variants that LLVM calls in loops that it vectorizes.

    Returns:
        Text for the same module.

    >>> declarations("%y = call float @sinf(float %x)")
    'declare float @sinf(float) nounwind willreturn memory(none)'
    """
    definitions = define_formulas(text, vector_variants)
    return "\n".join(filter(None, [_declare_functions(text + definitions), definitions]))


def _declare_functions(text: str) -> str:
    """Declare the libm functions and the LLVM intrinsics that a text calls."""
    declared = set(re.findall(r"^ *(?:declare|define).*?@([\w.]+)\(", text, re.MULTILINE))
    lines = set()
    for result, name, arguments in _CALL.findall(text):
        if name in declared or not (name in LIBM or name.startswith("llvm.")):
            continue
        kinds = re.findall(rf"(?:^|, )({_TYPE})", arguments)
        effects = " nounwind willreturn memory(none)" if name in LIBM else ""
        lines.add(f"declare {result} @{name}({', '.join(kinds)}){effects}")
    return "\n".join(sorted(lines))
