"""Arithmetic of LLVM values: NumPy's semantics, bit by bit.

Two operands have one type already. Integers wrap, and are divided towards minus infinity; what is
divided by zero, or shifted by more bits than there are, is what NumPy makes of it. LLVM promises
nothing for these, so they are chosen beside, without a branch.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any, TypeVar

import numpy as np

from odyssey.compiler.llvm import complex
from odyssey.compiler.llvm.types import FLOATING, LLVM, PARTS, SUFFIXES
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
# Numbers from here on may be infinite in a type.
_FOLD_LIMIT = 1e4
# Up to here a power is as few products of the number with itself.
_MAX_POWER_BY_MULTIPLY = 4


def _refuse_complex(name: str, x: Value) -> None:
    if x.type in PARTS:
        raise DTypeError(f"{name}: no native code for complex numbers")


def _binary(instruction: str, x: Value, y: Value) -> Value:
    text = f"{instruction} {LLVM[x.type]} {x.text}, {y.text}"
    return x.code.rounded(x.code.op(x.type, text))


def add_sub_mul(name: str, x: Value, y: Value) -> Value:
    """``add``, ``sub`` or ``mul``; the sum of truth values is ``or``, their product ``and``.

    Raises:
        DTypeError: the difference of truth values, which NumPy has none of either.
    """
    if x.type in PARTS:
        return complex.complex_add_sub_mul(name, x, y)
    if x.type == "b1":
        if name not in _BOOLEAN_OPS:
            raise DTypeError("sub: truth values have no difference; use ^, or cast them first")
        name = _BOOLEAN_OPS[name]
    if x.type not in FLOATING:
        return _binary(name, x, y)
    known = _fold_constants(name, x, y)
    return _binary(f"f{name}", x, y) if known is None else known


def _fold_constants(name: str, x: Value, y: Value) -> Value | None:
    """Fold an operator over two constants; None if one is no constant.

    The result is computed in float64, where it is exact or rounds as the type does. Constants are
    recognized by their text, since reading the number of a scalar input would fix it.
    """
    if not (x.text.startswith("0x") and y.text.startswith("0x")):
        return None
    value = getattr(operator, name)(x.number, y.number)
    return x.code.const(x.type, value) if abs(value) < _FOLD_LIMIT else None


def divide(x: Value, y: Value) -> Value:
    """The quotient; of integers, as float64."""
    if x.type in PARTS:
        return complex.complex_divide(x, y)
    if x.type not in FLOATING:
        x, y = x.code.cast(x, "f8"), y.code.cast(y, "f8")
    return _binary("fdiv", x, y)


def floor_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    """The quotient, rounded towards minus infinity, and what is left, of the sign of ``y``.

    Raises:
        DTypeError: they are truth values, or complex.
    """
    _refuse_complex("floordiv, mod", x)
    if x.type == "b1":
        raise DTypeError("floordiv, mod: truth values have none here; cast them to integers first")
    if x.type == "f2":
        wide = floor_divmod(x.code.cast(x, "f4"), x.code.cast(y, "f4"))
        return x.code.cast(wide[0], "f2"), x.code.cast(wide[1], "f2")
    return _floating_divmod(x, y) if x.type in FLOATING else _integer_divmod(x, y)


def _floating_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    code = x.code
    none = code.const(x.type, 0)
    rest = _binary("frem", x, y)
    quotient = (x - rest) / y
    turned = (rest != 0) & ((y < 0) ^ (rest < 0))
    quotient = code.select(turned, quotient - 1, quotient)
    left = code.select(turned, rest + y, rest)
    left = code.select(rest == 0, code.intrinsic("copysign", none, y), left)
    floor = code.intrinsic("floor", quotient)
    floor = code.select(quotient - floor > 0.5, floor + 1, floor)
    floor = code.select(quotient == 0, code.intrinsic("copysign", none, x / y), floor)
    by_none = y == 0
    return code.select(by_none, x / y, floor), code.select(by_none, rest, left)


def _integer_divmod(x: Value, y: Value) -> tuple[Value, Value]:
    code = x.code
    none = code.const(x.type, 0)
    by_none = y == 0
    if x.type[0] == "u":
        safe = code.select(by_none, code.const(x.type, 1), y)
        quotient, rest = _binary("udiv", x, safe), _binary("urem", x, safe)
    else:
        least = code.const(x.type, -(1 << 8 * int(x.type[1]) - 1))
        # The least number by -1 is itself, for it wraps; by 1, too.
        safe = code.select(by_none | ((y == -1) & (x == least)), code.const(x.type, 1), y)
        quotient, rest = _binary("sdiv", x, safe), _binary("srem", x, safe)
        turned = (rest != 0) & ((rest ^ safe) < 0)
        quotient = quotient - code.cast(turned, x.type)
        rest = rest + code.select(turned, safe, none)
    return code.select(by_none, none, quotient), code.select(by_none, none, rest)


def power(x: Value, y: Value) -> Value:
    """``x ** y``: products and roots for exponents that are known and small, else ``pow``.

    Raises:
        DTypeError: integers by an exponent that is unknown, or negative, for which NumPy raises; or
            complex numbers by another than 2.
    """
    if x.type in PARTS:
        return complex.complex_power(x, y)
    code, known = x.code, y.number
    if x.type == "f2":
        return code.cast(power(code.cast(x, "f4"), code.cast(y, "f4")), "f2")
    if x.type not in FLOATING:
        if x.type == "b1" or known is None or known < 0:
            raise DTypeError(
                f"pow: {x.type} by {y!r}; native code has powers of integers by numbers that are "
                "known and not negative; cast to a floating dtype, or call NumPy"
            )
        return _integer_power(x, int(known))
    if known is not None and abs(known) <= _MAX_POWER_BY_MULTIPLY and known == int(known):
        base = code.const(x.type, 1) / x if known < 0 else x
        return _integer_power(base, abs(int(known)))
    if known is not None and abs(known) == 0.5:
        if known > 0 and _numpy_uses_sqrt():
            return code.intrinsic("sqrt", x)
        # The power gives inf for -inf, and 0 for -0.0.
        root = code.intrinsic("sqrt", x + 0)
        root = code.select(x == -math.inf, code.const(x.type, math.inf), root)
        return root if known > 0 else 1 / root
    return code.call(x.type, f"odyssey.pow.{x.type}", x, y)


@cache
@ignore_fp_errors("invalid")
def _numpy_uses_sqrt() -> bool:
    """Whether NumPy takes the root where the exponent is one half; not all versions do."""
    return bool(np.isnan(np.power(np.array([-np.inf]), 0.5))[0])


def _integer_power(x: Value, times: int) -> Value:
    """``x`` times itself, by squares."""
    found: Any = None
    while times:
        if times & 1:
            found = x if found is None else found * x
        times >>= 1
        x = x * x if times else x
    return x.code.const(x.type, 1) if found is None else found


def bitwise(name: str, x: Value, y: Value) -> Value:
    """``and``, ``or`` or ``xor`` of integers or truth values.

    Raises:
        DTypeError: they are floating numbers.
    """
    if x.type in FLOATING or x.type in PARTS:
        raise DTypeError(f"{name}: bits of {x.type}; want integers or truth values")
    return _binary(name, x, y)


def shift(way: str, x: Value, y: Value) -> Value:
    """Bits moved left or right; by more than there are, and by less than none, all of them.

    Raises:
        DTypeError: they are not integers.
    """
    if x.type in FLOATING or x.type in PARTS or x.type == "b1":
        raise DTypeError(f"{way} shift: of {x.type}; want integers")
    code, signed = x.code, x.type[0] == "i"
    bits = 8 * int(x.type[1])
    last, none = code.const(x.type, bits - 1), code.const(x.type, 0)
    known = y.number
    inside = known is not None and 0 <= known < bits
    within = code.op("b1", f"icmp ult {LLVM[x.type]} {y.text}, {bits}")
    if way == "right" and signed:
        return _binary("ashr", x, y if inside else code.select(within, y, last))
    moved = _binary(
        "shl" if way == "left" else "lshr", x, y if inside else code.select(within, y, none)
    )
    return moved if inside else code.select(within, moved, none)


def compare(name: str, x: Value, y: Value) -> Value:
    """``lt``, ``le``, ``gt``, ``ge``, ``eq`` or ``ne``; nothing is equal to NaN, or in order."""
    if x.type in PARTS:
        return complex.complex_equal(name, x, y)
    if x.type in FLOATING:
        text = f"fcmp {_FCMP[name]}"
    else:
        sign = "" if name in ("eq", "ne") else "s" if x.type[0] == "i" else "u"
        text = f"icmp {sign}{name}"
    return x.code.op("b1", f"{text} {LLVM[x.type]} {x.text}, {y.text}")


def negate(x: Value) -> Value:
    """``-x``.

    Raises:
        DTypeError: it is a truth value.
    """
    if x.type in PARTS:
        return complex.complex_negative(x)
    if x.type in FLOATING:
        return x.code.op(x.type, f"fneg {LLVM[x.type]} {x.text}")
    return x.code.const(x.type, 0) - x


def absolute(x: Value) -> Value:
    """``abs(x)``; the least integer is its own.

    Raises:
        DTypeError: it is complex; ``math.fabs`` has its size.
    """
    _refuse_complex("abs", x)
    if x.type in FLOATING:
        return x.code.call(x.type, f"llvm.fabs.{SUFFIXES[x.type]}", x)
    return x.code.select(x < 0, -x, x) if x.type[0] == "i" else x


def invert(x: Value) -> Value:
    """``~x``: each bit turned.

    Raises:
        DTypeError: it is a floating number, or complex.
    """
    return bitwise("xor", x, x.code.const(x.type, 1 if x.type == "b1" else -1))
