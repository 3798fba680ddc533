"""Arithmetic of LLVM values: NumPy's semantics, bit by bit.

Called by the operators of ``builder.LLVMValue``, with two operands of one type. Integers wrap, and
integer division rounds towards minus infinity. Division by zero and shifts by too many bits have
NumPy's results; in LLVM they are undefined, so a select replaces the operand or the result.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any, TypeVar

import numpy as np

from odyssey.compiler.llvm import complex
from odyssey.compiler.llvm.types import FLOATING, HALVES, LLVM, PARTS, SUFFIXES
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors

__all__ = [
    "bitwise",
    "compare",
    "divide",
    "floor_divmod",
    "invert",
    "negate",
    "add_sub_mul",
    "power",
    "shift",
    "absolute",
]

Value = TypeVar("Value", bound=Any)  # LLVMValue of ``builder``, which imports this file

_BOOLEAN_OPS = {"add": "or", "mul": "and"}
_FCMP = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
# Results below this are finite in every type.
_FOLD_LIMIT = 1e4
# Integer exponents up to this are computed by multiplication.
_MAX_POWER_BY_MULTIPLY = 4


def _refuse_complex(name: str, x: Value) -> None:
    if x.type in PARTS:
        raise DTypeError(f"{name}: no native code for complex numbers")


def _binary(instruction: str, x: Value, y: Value) -> Value:
    text = f"{instruction} {LLVM[x.type]} {x.text}, {y.text}"
    return x.code.rounded(x.code.op(x.type, text))


def add_sub_mul(name: str, x: Value, y: Value) -> Value:
    """Return a sum, difference or product; a sum of bools is ``or``, a product is ``and``.

    Raises:
        DTypeError: the difference of bools, which NumPy has not either.
    """
    if x.type in PARTS:
        return complex.complex_add_sub_mul(name, x, y)
    if x.type == "b1":
        if name not in _BOOLEAN_OPS:
            raise DTypeError("sub: truth values have no difference; use ^, or cast them first")
        name = _BOOLEAN_OPS[name]
    if x.type not in FLOATING:
        return _binary(name, x, y)
    constant = _fold_constants(name, x, y)
    return _binary(f"f{name}", x, y) if constant is None else constant


def _fold_constants(name: str, x: Value, y: Value) -> Value | None:
    """Fold an operator over two constants; None if one is not constant.

    The result is computed in float64, where it is exact or rounds as the type does. Constants are
    recognized by their text, since reading the number of a scalar input would fix it.
    """
    if not (x.text.startswith("0x") and y.text.startswith("0x")):
        return None
    value = getattr(operator, name)(x.number, y.number)
    return x.code.const(x.type, value) if abs(value) < _FOLD_LIMIT else None


def divide(x: Value, y: Value) -> Value:
    """Return the quotient; of integers, as float64."""
    if x.type in PARTS:
        return complex.complex_divide(x, y)
    if x.type not in FLOATING:
        x, y = x.code.cast(x, "f8"), y.code.cast(y, "f8")
    return _binary("fdiv", x, y)


def floor_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    """Return the quotient rounded towards minus infinity, and the remainder with y's sign.

    Raises:
        DTypeError: the operands are bools or complex.
    """
    _refuse_complex("floordiv, mod", x)
    if x.type == "b1":
        raise DTypeError("floordiv, mod: truth values have none here; cast them to integers first")
    if x.type in HALVES:
        wide = floor_divmod(x.code.cast(x, "f4"), x.code.cast(y, "f4"))
        return x.code.cast(wide[0], x.type), x.code.cast(wide[1], x.type)
    return _floating_divmod(x, y) if x.type in FLOATING else _integer_divmod(x, y)


def _floating_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    code = x.code
    none = code.const(x.type, 0)
    rest = _binary("frem", x, y)
    quotient = (x - rest) / y
    adjust = (rest != 0) & ((y < 0) ^ (rest < 0))
    quotient = code.select(adjust, quotient - 1, quotient)
    remainder = code.select(adjust, rest + y, rest)
    remainder = code.select(rest == 0, code.intrinsic("copysign", none, y), remainder)
    floor = code.intrinsic("floor", quotient)
    floor = code.select(quotient - floor > 0.5, floor + 1, floor)
    floor = code.select(quotient == 0, code.intrinsic("copysign", none, x / y), floor)
    by_zero = y == 0
    return code.select(by_zero, x / y, floor), code.select(by_zero, rest, remainder)


def _integer_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    code = x.code
    none = code.const(x.type, 0)
    by_zero = y == 0
    if x.type[0] == "u":
        safe = code.select(by_zero, code.const(x.type, 1), y)
        quotient, rest = _binary("udiv", x, safe), _binary("urem", x, safe)
    else:
        least = code.const(x.type, -(1 << 8 * int(x.type[1]) - 1))
        # The least integer divided by -1 wraps to itself; so does division by 1.
        safe = code.select(by_zero | ((y == -1) & (x == least)), code.const(x.type, 1), y)
        quotient, rest = _binary("sdiv", x, safe), _binary("srem", x, safe)
        adjust = (rest != 0) & ((rest ^ safe) < 0)
        quotient = quotient - code.cast(adjust, x.type)
        rest = rest + code.select(adjust, safe, none)
    return code.select(by_zero, none, quotient), code.select(by_zero, none, rest)


def power(x: Value, y: Value) -> Value:
    """Return ``x ** y``: products or roots for small constant exponents, otherwise ``pow``.

    Raises:
        DTypeError: integers with an exponent that is not constant, or negative, for which NumPy
            raises; or complex numbers with another exponent than 2.
    """
    if x.type in PARTS:
        return complex.complex_power(x, y)
    code, exponent = x.code, y.number
    if x.type in HALVES:
        return code.cast(power(code.cast(x, "f4"), code.cast(y, "f4")), x.type)
    if x.type not in FLOATING:
        if x.type == "b1" or exponent is None or exponent < 0:
            raise DTypeError(
                f"pow: {x.type} by {y!r}; native code has powers of integers by numbers that are "
                "known and not negative; cast to a floating dtype, or call NumPy"
            )
        return _integer_power(x, int(exponent))
    small = exponent is not None and abs(exponent) <= _MAX_POWER_BY_MULTIPLY
    if exponent is not None and small and exponent == int(exponent):
        base = code.const(x.type, 1) / x if exponent < 0 else x
        return _integer_power(base, abs(int(exponent)))
    if exponent is not None and abs(exponent) == 0.5:
        if exponent > 0 and _numpy_uses_sqrt():
            return code.intrinsic("sqrt", x)
        # Unlike the root, the power of -inf is inf, and that of -0.0 is 0.
        root = code.intrinsic("sqrt", x + 0)
        root = code.select(x == -math.inf, code.const(x.type, math.inf), root)
        return root if exponent > 0 else 1 / root
    return code.call(x.type, f"odyssey.pow.{x.type}", x, y)


@cache
@ignore_fp_errors("invalid")
def _numpy_uses_sqrt() -> bool:
    """Return whether NumPy computes a power of one half as a root; not all versions do."""
    return bool(np.isnan(np.power(np.array([-np.inf]), 0.5))[0])


def _integer_power(x: Value, times: int) -> Value:
    """Return an integer power by repeated squaring."""
    product: Any = None
    while times:
        if times & 1:
            product = x if product is None else product * x
        times >>= 1
        x = x * x if times else x
    return x.code.const(x.type, 1) if product is None else product


def bitwise(name: str, x: Value, y: Value) -> Value:
    """Return ``and``, ``or`` or ``xor`` of integers or bools.

    Raises:
        DTypeError: the operands are floating-point or complex.
    """
    if x.type in FLOATING or x.type in PARTS:
        raise DTypeError(f"{name}: bits of {x.type}; want integers or truth values")
    return _binary(name, x, y)


def shift(direction: str, x: Value, y: Value) -> Value:
    """Shift bits left or right; all of them by too large or negative a number.

    Raises:
        DTypeError: the operands are not integers.
    """
    if x.type in FLOATING or x.type in PARTS or x.type == "b1":
        raise DTypeError(f"{direction} shift: of {x.type}; want integers")
    code, signed = x.code, x.type[0] == "i"
    bits = 8 * int(x.type[1])
    last, none = code.const(x.type, bits - 1), code.const(x.type, 0)
    number = y.number
    in_range = number is not None and 0 <= number < bits
    within = code.op("b1", f"icmp ult {LLVM[x.type]} {y.text}, {bits}")
    if direction == "right" and signed:
        return _binary("ashr", x, y if in_range else code.select(within, y, last))
    shifted = _binary(
        "shl" if direction == "left" else "lshr", x, y if in_range else code.select(within, y, none)
    )
    return shifted if in_range else code.select(within, shifted, none)


def compare(name: str, x: Value, y: Value) -> Value:
    """Return ``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``; with NaN only ``ne`` is true."""
    if x.type in PARTS:
        return complex.complex_equal(name, x, y)
    if x.type in FLOATING:
        text = f"fcmp {_FCMP[name]}"
    else:
        sign = "" if name in ("eq", "ne") else "s" if x.type[0] == "i" else "u"
        text = f"icmp {sign}{name}"
    return x.code.op("b1", f"{text} {LLVM[x.type]} {x.text}, {y.text}")


def negate(x: Value) -> Value:
    """Return ``-x``.

    Raises:
        DTypeError: the operand is a bool.
    """
    if x.type in PARTS:
        return complex.complex_negative(x)
    if x.type in FLOATING:
        return x.code.op(x.type, f"fneg {LLVM[x.type]} {x.text}")
    return x.code.const(x.type, 0) - x


def absolute(x: Value) -> Value:
    """Return ``abs(x)``; the least integer wraps to itself.

    Raises:
        DTypeError: the operand is complex; use ``math.fabs``.
    """
    _refuse_complex("abs", x)
    if x.type in FLOATING:
        return x.code.call(x.type, f"llvm.fabs.{SUFFIXES[x.type]}", x)
    return x.code.select(x < 0, -x, x) if x.type[0] == "i" else x


def invert(x: Value) -> Value:
    """Return ``~x``, with every bit inverted.

    Raises:
        DTypeError: the operand is floating-point or complex.
    """
    return bitwise("xor", x, x.code.const(x.type, 1 if x.type == "b1" else -1))
