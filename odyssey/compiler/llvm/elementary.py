"""Elementary functions as native code: formulas without branches, which LLVM vectorizes.

A function of a row is a call in its code, as ``@odyssey.exp.f4``; ``definitions`` gives what code
calls, and LLVM puts it in the place of each call. The formulas are those of compiled loops, in
``kernels.formulas``, and those of ``circular``, ``hyperbolic`` and ``powers``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from odyssey.compiler.llvm import far_angles, vector_fallbacks
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.circular import circular_formulas, inverse_circular_formulas
from odyssey.compiler.llvm.hyperbolic import (
    hyperbolic_formulas,
    hypot_formula,
    inverse_hyperbolic_formulas,
)
from odyssey.compiler.llvm.powers import positive_pow, positive_pow_float32, pow_special_cases
from odyssey.compiler.llvm.types import LLVM, type_code
from odyssey.kernels import elementary
from odyssey.kernels.formulas import World, errors, exponentials, logarithms

__all__ = ["BOUNDS", "define_formulas", "formula_symbol"]

BOUNDS: Mapping[str, float] = MappingProxyType(
    {
        **elementary.BOUNDS,
        **{"sin": 1.0, "cos": 1.0, "tan": 1.5, "asin": 2.0, "acos": 1.5, "atan": 1.5, "atan2": 2.0},
        **{"sinh": 2.0, "cosh": 2.0, "asinh": 2.0, "acosh": 2.0, "atanh": 2.0, "hypot": 1.5},
        "pow": 1.0,
    }
)
"""How many units in the last place results may lie from the exact ones, where those are normal.

What is not named here is libm's.
"""

Formula = Callable[..., LLVMValue]

_FORMULA_CALL = re.compile(r"@(odyssey\.(\w+)\.(f4|f8))\(")
_FAR_CALL = re.compile(r"@odyssey_far_(\w+)\(")


def formula_symbol(function: str, kind: str) -> str | None:
    """Return the symbol of a function of ``math``; None if it has no formula.

    >>> formula_symbol("exp", "f4")
    'odyssey.exp.f4'
    """
    return f"odyssey.{function}.{kind}" if function in BOUNDS else None


def define_formulas(text: str) -> str:
    """Define what the code calls by such names.

    Args:
        text: Of functions.

    Returns:
        Text that goes into the same module; what it calls in turn is to be declared.
    """
    found = sorted(set(_FORMULA_CALL.findall(text)))
    made = "\n".join(_definition(function, kind) for _, function, kind in found)
    made += vector_fallbacks.define_fallbacks(made)
    far = sorted(set(_FAR_CALL.findall(made)))
    return (
        made + (far_angles.TWO_OVER_PI_TABLE if far else "") + "\n".join(map(_far_definition, far))
    )


@lru_cache(maxsize=8)
def _far_definition(function: str) -> str:
    """A function of float64 that takes an angle of any size."""
    code = FunctionBuilder()
    x = LLVMValue(code, "f8", "%x")
    size = abs(x)
    of_rest = _formulas(code, "f8")[{"sin": "sine", "cos": "cosine", "tan": "tangent"}[function]]
    found = of_rest(*far_angles.reduce_far_angle(code, size))
    if function != "cos":
        found = code.select(x < 0, -found, found)
    found = code.select(size < math.inf, found, x - x)
    head = f"define internal double @odyssey_far_{function}(double %x) noinline optsize {{"
    return "\n".join([head, *code.lines, f"  ret double {found.text}", "}\n"])


@lru_cache(maxsize=128)
def _definition(function: str, kind: str) -> str:
    code = FunctionBuilder()
    formula = _formulas(code, kind)[function]
    count = formula.__code__.co_argcount
    result = formula(*[LLVMValue(code, kind, f"%x{k}") for k in range(count)])
    given = ", ".join(f"{LLVM[kind]} %x{k}" for k in range(count))
    head = f"define internal {LLVM[kind]} @odyssey.{function}.{kind}({given}) alwaysinline {{"
    return "\n".join([head, *code.lines, f"  ret {LLVM[kind]} {result.text}", "}"])


class _Converter:
    """Converter of numbers and of other values to values of one type."""

    def __init__(self, code: FunctionBuilder, dtype: Any) -> None:
        self.code = code
        self.dtype = np.dtype(dtype)
        self.kind = type_code(dtype)

    def __call__(self, value: Any) -> Any:
        return (
            self.code.cast(value, self.kind)
            if isinstance(value, LLVMValue)
            else self.dtype.type(value)
        )


def _world(code: FunctionBuilder, kind: str) -> World:
    """Return the operations that formulas compute with."""
    dtype = np.dtype(kind)
    number, whole = (
        _Converter(code, dtype),
        _Converter(code, np.int32 if kind == "f4" else np.int64),
    )

    def fma(*factors: Any) -> LLVMValue:
        words = [w if isinstance(w, LLVMValue) else code.const(kind, w) for w in factors]
        return code.intrinsic("fma", *words)

    return World(number, whole, dtype, lambda formula: formula, code.select, fma)


def _formulas(code: FunctionBuilder, kind: str) -> dict[str, Formula]:
    """Formulas that write into code."""

    def root(x: LLVMValue) -> LLVMValue:
        return code.intrinsic("sqrt", x)

    def copysign(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        return code.intrinsic("copysign", x, y)

    def mended(name: str, x: LLVMValue, result: LLVMValue) -> LLVMValue:
        return code.op(kind, vector_fallbacks.fallback_call(name, kind, x.text, result.text))

    world = _world(code, kind)
    made = exponentials(world) | logarithms(world)
    made |= errors(world, made["exp_of"])
    made |= circular_formulas(world, mended) | inverse_circular_formulas(world, root, copysign)
    made |= hyperbolic_formulas(world, made) | inverse_hyperbolic_formulas(
        world, made, root, copysign
    )
    made |= hypot_formula(world, root)
    made["pow"] = _power(code, kind, world, made)
    return made


def _power(code: FunctionBuilder, kind: str, world: World, made: Mapping[str, Formula]) -> Formula:
    """``pow``: of float32, by way of float64."""

    def floor(x: LLVMValue) -> LLVMValue:
        return code.intrinsic("floor", x)

    def copysign(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        return code.intrinsic("copysign", x, y)

    corner: Formula = pow_special_cases(world, floor, copysign)

    def power(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        if not world.single:
            return corner(x, y, of_positive(abs(x), y))
        wide = of_positive(code.cast(abs(x), "f8"), code.cast(y, "f8"))
        return corner(x, y, code.cast(wide, kind))

    of_positive: Formula
    if world.single:
        wide_world = _world(code, "f8")
        known = exponentials(wide_world) | logarithms(wide_world)
        of_positive = positive_pow_float32(wide_world, known)
    else:
        of_positive = positive_pow(world, made)
    return power
