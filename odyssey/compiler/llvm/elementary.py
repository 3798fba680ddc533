"""Elementary functions as LLVM functions, without branches, so that loops vectorize.

Called by ``scalar_programs``, which writes a call such as ``@odyssey.exp.f4`` for a function of a
row, and by ``declarations``, which adds the definitions of what a module calls. LLVM inlines each
call. The formulas are those of ``kernels.formulas``, which numba loops share, and those of
``elementary_formulas``.

Angles that are too large for the formulas are reduced by integers, as in M. H. Payne and R. N.
Hanek, Radian reduction for trigonometric functions, 1983. Of the binary digits of 2 / pi only those
matter that make less than four quarter turns, down to the precision that the distance of the angle
from a multiple of pi / 2 needs. For float64, no such distance is below 2**-62.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from odyssey.compiler.llvm import vector_fallbacks
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.elementary_formulas import (
    circular_formulas,
    hyperbolic_formulas,
    hypot_formula,
    inverse_circular_formulas,
    inverse_hyperbolic_formulas,
    positive_pow,
    positive_pow_float32,
    pow_special_cases,
)
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
"""By function, the largest error of normal results, in units in the last place.

Other functions are those of libm.
"""

Formula = Callable[..., LLVMValue]

_FORMULA_CALL = re.compile(r"@(odyssey\.(\w+)\.(f4|f8))\(")
_FAR_CALL = re.compile(r"@odyssey_far_(\w+)\(")


def formula_symbol(function: str, kind: str) -> str | None:
    """Return the symbol of a function of ``math``; None if it has no formula here.

    >>> formula_symbol("exp", "f4")
    'odyssey.exp.f4'
    """
    return f"odyssey.{function}.{kind}" if function in BOUNDS else None


def define_formulas(text: str, vector_variants: bool = True) -> str:
    """Define the elementary functions that a text calls.

    Args:
        text: LLVM functions.
        vector_variants: Whether to define variants that LLVM calls in loops that it vectorizes.

    Returns:
        Definitions for the same module; the functions that they call are not declared.
    """
    calls = sorted(set(_FORMULA_CALL.findall(text)))
    definitions = "\n".join(_definition(function, kind) for _, function, kind in calls)
    definitions += vector_fallbacks.define_fallbacks(definitions, vector_variants)
    far = sorted(set(_FAR_CALL.findall(definitions)))
    table = _TWO_OVER_PI_TABLE if far else ""
    return definitions + table + "\n".join(map(_far_definition, far))


@lru_cache(maxsize=8)
def _far_definition(function: str) -> str:
    """Return the definition of a function of float64 that takes an angle of any size."""
    code = FunctionBuilder()
    x = LLVMValue(code, "f8", "%x")
    size = abs(x)
    reduced = {"sin": "sine", "cos": "cosine", "tan": "tangent"}[function]
    formula = _formulas(code, "f8")[reduced]
    result = formula(*_reduce_far_angle(code, size))
    if function != "cos":
        result = code.select(x < 0, -result, result)
    result = code.select(size < math.inf, result, x - x)
    head = f"define internal double @odyssey_far_{function}(double %x) noinline optsize {{"
    return "\n".join([head, *code.lines, f"  ret double {result.text}", "}\n"])


@lru_cache(maxsize=128)
def _definition(function: str, kind: str) -> str:
    code = FunctionBuilder()
    formula = _formulas(code, kind)[function]
    count = formula.__code__.co_argcount
    result = formula(*[LLVMValue(code, kind, f"%x{k}") for k in range(count)])
    parameters = ", ".join(f"{LLVM[kind]} %x{k}" for k in range(count))
    head = f"define internal {LLVM[kind]} @odyssey.{function}.{kind}({parameters}) alwaysinline {{"
    return "\n".join([head, *code.lines, f"  ret {LLVM[kind]} {result.text}", "}"])


class _Converter:
    """Conversion of Python numbers and of LLVM values to one type."""

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
    """Return the arithmetic of LLVM values of a type, for formulas."""
    dtype = np.dtype(kind)
    number = _Converter(code, dtype)
    whole = _Converter(code, np.int32 if kind == "f4" else np.int64)

    def fma(*factors: Any) -> LLVMValue:
        operands = [w if isinstance(w, LLVMValue) else code.const(kind, w) for w in factors]
        return code.intrinsic("fma", *operands)

    return World(number, whole, dtype, lambda formula: formula, code.select, fma)


def _formulas(code: FunctionBuilder, kind: str) -> dict[str, Formula]:
    """Return all formulas of a type by name; they write into ``code``."""

    def root(x: LLVMValue) -> LLVMValue:
        return code.intrinsic("sqrt", x)

    def copysign(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        return code.intrinsic("copysign", x, y)

    def with_fallback(name: str, x: LLVMValue, result: LLVMValue) -> LLVMValue:
        return code.op(kind, vector_fallbacks.fallback_call(name, kind, x.text, result.text))

    world = _world(code, kind)
    formulas = exponentials(world) | logarithms(world)
    formulas |= errors(world, formulas["exp_of"])
    formulas |= circular_formulas(world, with_fallback) | inverse_circular_formulas(
        world, root, copysign
    )
    formulas |= hyperbolic_formulas(world, formulas)
    formulas |= inverse_hyperbolic_formulas(world, formulas, root, copysign)
    formulas |= hypot_formula(world, root)
    formulas["pow"] = _power(code, kind, world, formulas)
    return formulas


def _power(
    code: FunctionBuilder, kind: str, world: World, formulas: Mapping[str, Formula]
) -> Formula:
    """Return ``pow``; that of float32 is computed in float64."""

    def floor(x: LLVMValue) -> LLVMValue:
        return code.intrinsic("floor", x)

    def copysign(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        return code.intrinsic("copysign", x, y)

    with_special_cases: Formula = pow_special_cases(world, floor, copysign)

    def power(x: LLVMValue, y: LLVMValue) -> LLVMValue:
        if not world.single:
            return with_special_cases(x, y, power_of_positive(abs(x), y))
        wide = power_of_positive(code.cast(abs(x), "f8"), code.cast(y, "f8"))
        return with_special_cases(x, y, code.cast(wide, kind))

    power_of_positive: Formula
    if world.single:
        wide_world = _world(code, "f8")
        wide_formulas = exponentials(wide_world) | logarithms(wide_world)
        power_of_positive = positive_pow_float32(wide_world, wide_formulas)
    else:
        power_of_positive = positive_pow(world, formulas)
    return power


# ------------------------------------------------------------------ reduction of large angles

# Hexadecimal digits of 2 / pi.
_DIGITS = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
)
# A word of zeros before the point, for angles that need it.
_WORDS = [0, *(int(_DIGITS[k : k + 16], 16) for k in range(0, len(_DIGITS), 16))]

_TWO_OVER_PI_TABLE = (
    f"@odyssey_two_over_pi = internal constant [{len(_WORDS)} x i64] "
    f"[{', '.join(f'i64 {word}' for word in _WORDS)}]\n"
)
"""The LLVM global with the digits."""


def _reduce_far_angle(
    code: FunctionBuilder, x: LLVMValue
) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Reduce an angle of 2**-10 or more to quarter turns, modulo 4, and a remainder.

    Args:
        code: Builder of the function.
        x: The angle; the result for infinity is meaningless.

    Returns:
        An integer, and the remainder in two parts; it is at most an eighth of a turn in size.
    """
    bits = x.view("i8")
    fraction = (bits & ((1 << 52) - 1)) | (1 << 52)
    start = ((bits >> 52) & 2047) - (1075 - 62)  # index of the first digit that matters
    # Quarter turns in fixed point: 2 bits before the point and 126 behind it.
    turns = _quarter_turns(code, fraction, _two_over_pi_digits(code, start))
    shifted = _emit_i128(code, f"add i128 {turns}, {1 << 125}")
    quarter = _emit_low_word(code, f"lshr i128 {shifted}, 126")
    extended = _emit_i128(code, f"zext i64 {quarter.text} to i128")
    nearest = _emit_i128(code, f"shl i128 {extended}, 126")
    rest = _emit_i128(code, f"sub i128 {turns}, {nearest}")
    negative = code.op("b1", f"icmp slt i128 {rest}, 0")
    negated = _emit_i128(code, f"sub i128 0, {rest}")
    size = _emit_i128(code, f"select i1 {negative.text}, i128 {negated}, i128 {rest}")
    first, second = _quarter_turns_to_radians(code, *_to_float_pair(code, size))
    return quarter, code.select(negative, -first, first), code.select(negative, -second, second)


def _emit_i128(code: FunctionBuilder, text: str) -> str:
    """Append an instruction with an i128 value, which no LLVMValue holds; return its name."""
    return code.op("i8", text).text


def _emit_low_word(code: FunctionBuilder, text: str) -> LLVMValue:
    """Append an instruction whose value is an i128, and return the low 64 bits."""
    return code.op("i8", f"trunc i128 {_emit_i128(code, text)} to i64")


def _two_over_pi_digits(code: FunctionBuilder, start: LLVMValue) -> list[LLVMValue]:
    """Load 192 binary digits of 2 / pi, in three words."""
    word, shift = start >> 6, start & 63
    words = []
    for k in range(4):
        index = (word + k).text
        at = code.op("ptr", f"getelementptr i64, ptr @odyssey_two_over_pi, i64 {index}")
        words.append(code.load("i8", at.text))
    return [code.call("i8", "llvm.fshl.i64", x, y, shift) for x, y in pairwise(words)]


def _quarter_turns(code: FunctionBuilder, fraction: LLVMValue, window: list[LLVMValue]) -> str:
    """Multiply the digits by the fraction of the angle; the lowest 64 bits are dropped."""
    factor = _emit_i128(code, f"zext i64 {fraction.text} to i128")
    first, second, third = (
        _emit_i128(code, f"mul i128 {factor}, {_emit_i128(code, f'zext i64 {word.text} to i128')}")
        for word in window
    )
    first = _emit_i128(code, f"shl i128 {first}, 64")
    third = _emit_i128(code, f"lshr i128 {third}, 64")
    return _emit_i128(code, f"add i128 {_emit_i128(code, f'add i128 {first}, {second}')}, {third}")


def _to_float_pair(code: FunctionBuilder, size: str) -> tuple[LLVMValue, LLVMValue]:
    """Return an integer divided by 2**126 as the sum of two numbers."""
    zeros = _emit_i128(code, f"call i128 @llvm.ctlz.i128(i128 {size}, i1 false)")
    leading = _emit_i128(code, f"shl i128 {size}, {zeros}")
    high = _emit_low_word(code, f"lshr i128 {leading}, 64")
    low = _emit_low_word(code, f"lshr i128 {leading}, 11")  # 11 bits of the first word, and 53
    count = code.op("i8", f"trunc i128 {zeros} to i64")
    scale = ((1023 - 62) - count << 52).view("f8")
    rest = code.cast(low.view("u8"), "f8") * (scale * 2.0**-53)
    return code.cast((high & ~2047).view("u8"), "f8") * scale, rest


def _quarter_turns_to_radians(
    code: FunctionBuilder, high: LLVMValue, low: LLVMValue
) -> tuple[LLVMValue, LLVMValue]:
    """Multiply a number of quarter turns, in two parts, by pi / 2."""
    half_pi, rest = (code.const("f8", v) for v in (1.5707963267948966, 6.123233995736766e-17))
    first = high * half_pi
    second = code.intrinsic("fma", high, half_pi, -first) + (high * rest + low * half_pi)
    sum = first + second
    return sum, (first - sum) + second
