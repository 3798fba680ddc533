"""Complex LLVM values: operators and functions of two components.

Called by ``builder`` and ``arithmetic``. Products round as NumPy's do, which use a fused
multiply-add on processors that have one. Quotients use Smith's method (Algorithm 116, 1962), as
NumPy does. An operation without code here raises DTypeError, and its row becomes a host call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from odyssey.compiler.llvm.types import LLVM, PARTS
from odyssey.errors import DTypeError

__all__ = [
    "COMPLEX_FUNCTIONS",
    "imaginary_address",
    "complex_divide",
    "complex_equal",
    "complex_constant",
    "complex_negative",
    "make_complex",
    "complex_component",
    "complex_add_sub_mul",
    "complex_power",
]

Value = Any  # LLVMValue of ``builder``, which imports this file


def complex_component(x: Value, k: int) -> Value:
    """Return the real part (0) or the imaginary part (1)."""
    return x.code.op(PARTS[x.type], f"extractvalue {LLVM[x.type]} {x.text}, {k}")


def make_complex(type: str, real: Value, imaginary: Value) -> Value:
    """Return a complex number from its two parts."""
    code, pair, part = real.code, LLVM[type], LLVM[PARTS[type]]
    half = code.op(type, f"insertvalue {pair} poison, {part} {real.text}, 0")
    return code.op(type, f"insertvalue {pair} {half.text}, {part} {imaginary.text}, 1")


def complex_constant(code: Any, type: str, number: complex) -> str:
    """Return the text of a constant."""
    one = PARTS[type]
    real, imaginary = (code.const(one, part).text for part in (number.real, number.imag))
    return f"{{ {LLVM[one]} {real}, {LLVM[one]} {imaginary} }}"


def imaginary_address(code: Any, type: str, pointer: str) -> str:
    """Return the address of the imaginary part, given that of the real part."""
    name: str = code.op("ptr", f"getelementptr inbounds {LLVM[type]}, ptr {pointer}, i64 1").text
    return name


def _parts(x: Value) -> tuple[Value, Value]:
    return complex_component(x, 0), complex_component(x, 1)


def complex_add_sub_mul(name: str, x: Value, y: Value) -> Value:
    """Return a sum, difference or product."""
    (a, b), (c, d) = _parts(x), _parts(y)
    if name == "mul":
        return make_complex(x.type, *_products_and_sums(x.type, a, b, c, d))
    if name == "add":
        return make_complex(x.type, a + c, b + d)
    return make_complex(x.type, a - c, b - d)


def _products_and_sums(type: str, a: Value, b: Value, c: Value, d: Value) -> tuple[Value, Value]:
    """Return ``a c - b d`` and ``a d + b c``, rounded as NumPy does."""
    if not _rounds_once(type):
        return a * c - b * d, a * d + b * c
    return a.code.intrinsic("fma", a, c, -(b * d)), a.code.intrinsic("fma", a, d, b * c)


@cache
def _rounds_once(type: str) -> bool:
    """Return whether NumPy uses a fused multiply-add, which depends on the processor."""
    little = 2.0 ** -(15 if type == "c8" else 30)
    x = np.full(64, complex(1 + little, 1.0), type)
    return bool((x * x)[0].real > 2 * little)


def complex_divide(x: Value, y: Value) -> Value:
    """Return the quotient; division by 0 divides both parts by 0."""
    code = x.code
    (a, b), (c, d) = _parts(x), _parts(y)
    size_c, size_d = abs(c), abs(d)
    wide = size_c >= size_d  # false for NaN
    by_zero = (size_c == 0) & (size_d == 0)
    large, small = code.select(wide, c, d), code.select(wide, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = code.select(wide, a + b * ratio, a * ratio + b) * scale
    imaginary = code.select(wide, b - a * ratio, b * ratio - a) * scale
    real = code.select(by_zero, a / size_c, real)
    return make_complex(x.type, real, code.select(by_zero, b / size_c, imaginary))


def complex_power(x: Value, y: Value) -> Value:
    """Return ``x ** 2``, as NumPy's square.

    Raises:
        DTypeError: the exponent is another.
    """
    if y.text != complex_constant(x.code, y.type, 2):
        raise DTypeError("pow: native code has squares of complex numbers, and no other power")
    return complex_add_sub_mul("mul", x, x)


def complex_negative(x: Value) -> Value:
    """Return ``-x``."""
    a, b = _parts(x)
    return make_complex(x.type, -a, -b)


def complex_equal(name: str, x: Value, y: Value) -> Value:
    """Return ``eq`` or ``ne``.

    Raises:
        DTypeError: another comparison; complex numbers have no order.
    """
    (a, b), (c, d) = _parts(x), _parts(y)
    if name == "eq":
        return (a == c) & (b == d)
    if name == "ne":
        return (a != c) | (b != d)
    raise DTypeError(f"{name}: native code has no order of complex numbers")


def _magnitude(x: Value, call_math: Callable[..., Any]) -> Any:
    return call_math("hypot", *_parts(x))


def _exp(x: Value, call_math: Callable[..., Any]) -> Any:
    """Return the exponential, with infinities and NaN as in C (C17, G.6.3.1)."""
    code, kind = x.code, PARTS[x.type]
    a, b = _parts(x)
    # If the exponential of the real part overflows, its product with a sine need not: it is
    # computed in two factors.
    most = math.floor(math.log(np.finfo(kind).max))
    above = (a > most) & (a < math.inf)
    first = code.select(above, code.const(kind, math.exp(most)), code.const(kind, 1))
    rest = call_math("exp", code.select(above, a - most, a))
    real = rest * (first * call_math("cos", b))
    imaginary = code.select(b == 0, b, rest * (first * call_math("sin", b)))
    # For an infinite or NaN angle exp(inf) is infinite all the same, and exp(-inf) is 0.
    no_angle = (b != b) | (abs(b) == math.inf)
    zero = code.const(kind, 0)
    is_zero = no_angle & (a == -math.inf)
    real = code.select(no_angle & (a == math.inf), a, code.select(is_zero, zero, real))
    signed_zero = code.intrinsic("copysign", zero, b)
    return make_complex(x.type, real, code.select(is_zero, signed_zero, imaginary))


COMPLEX_FUNCTIONS: dict[str, Callable[..., Any]] = {"fabs": _magnitude, "exp": _exp}
"""By name in ``math``, functions of a complex value and of ``call_math`` for the parts."""
