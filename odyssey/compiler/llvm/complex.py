"""Complex LLVM values: operators and functions of two components.

Products are those of NumPy, which rounds a product and a sum once where the processor can;
quotients are Smith's (Algorithm 116, 1962), as NumPy's are. What has no code here raises, and its
row is called.
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
    """The real part, 0, or the imaginary one, 1."""
    return x.code.op(PARTS[x.type], f"extractvalue {LLVM[x.type]} {x.text}, {k}")


def make_complex(type: str, real: Value, imaginary: Value) -> Value:
    """A number of two parts, which have the type of such."""
    code, whole, one = real.code, LLVM[type], LLVM[PARTS[type]]
    half = code.op(type, f"insertvalue {whole} poison, {one} {real.text}, 0")
    return code.op(type, f"insertvalue {whole} {half.text}, {one} {imaginary.text}, 1")


def complex_constant(code: Any, type: str, number: complex) -> str:
    """How LLVM spells a number that is known now."""
    one = PARTS[type]
    real, imaginary = (code.const(one, part).text for part in (number.real, number.imag))
    return f"{{ {LLVM[one]} {real}, {LLVM[one]} {imaginary} }}"


def imaginary_address(code: Any, type: str, pointer: str) -> str:
    """Return the address of the imaginary part, given that of the real part."""
    found: str = code.op("ptr", f"getelementptr inbounds {LLVM[type]}, ptr {pointer}, i64 1").text
    return found


def _parts(x: Value) -> tuple[Value, Value]:
    return complex_component(x, 0), complex_component(x, 1)


def complex_add_sub_mul(name: str, x: Value, y: Value) -> Value:
    """``add``, ``sub`` or ``mul``."""
    (a, b), (c, d) = _parts(x), _parts(y)
    if name == "mul":
        return make_complex(x.type, *_products_and_sums(x.type, a, b, c, d))
    if name == "add":
        return make_complex(x.type, a + c, b + d)
    return make_complex(x.type, a - c, b - d)


def _products_and_sums(type: str, a: Value, b: Value, c: Value, d: Value) -> tuple[Value, Value]:
    """``a c - b d`` and ``a d + b c``, as NumPy rounds them."""
    if not _rounds_once(type):
        return a * c - b * d, a * d + b * c
    return a.code.intrinsic("fma", a, c, -(b * d)), a.code.intrinsic("fma", a, d, b * c)


@cache
def _rounds_once(type: str) -> bool:
    """Whether NumPy rounds a product and a sum once, which depends on the processor."""
    little = 2.0 ** -(15 if type == "c8" else 30)
    x = np.full(64, complex(1 + little, 1.0), type)
    return bool((x * x)[0].real > 2 * little)


def complex_divide(x: Value, y: Value) -> Value:
    """The quotient; by 0 parts are divided by 0."""
    code = x.code
    (a, b), (c, d) = _parts(x), _parts(y)
    size_c, size_d = abs(c), abs(d)
    wide = size_c >= size_d  # of no NaN
    none = (size_c == 0) & (size_d == 0)
    large, small = code.select(wide, c, d), code.select(wide, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    real = code.select(wide, a + b * ratio, a * ratio + b) * scale
    imaginary = code.select(wide, b - a * ratio, b * ratio - a) * scale
    real = code.select(none, a / size_c, real)
    return make_complex(x.type, real, code.select(none, b / size_c, imaginary))


def complex_power(x: Value, y: Value) -> Value:
    """``x ** 2``, which is NumPy's square.

    Raises:
        DTypeError: of another exponent.
    """
    if y.text != complex_constant(x.code, y.type, 2):
        raise DTypeError("pow: native code has squares of complex numbers, and no other power")
    return complex_add_sub_mul("mul", x, x)


def complex_negative(x: Value) -> Value:
    """``-x``."""
    a, b = _parts(x)
    return make_complex(x.type, -a, -b)


def complex_equal(name: str, x: Value, y: Value) -> Value:
    """``eq`` or ``ne``.

    Raises:
        DTypeError: of another comparison; complex numbers have no order.
    """
    (a, b), (c, d) = _parts(x), _parts(y)
    if name == "eq":
        return (a == c) & (b == d)
    if name == "ne":
        return (a != c) | (b != d)
    raise DTypeError(f"{name}: native code has no order of complex numbers")


def _size(x: Value, of: Callable[..., Any]) -> Any:
    return of("hypot", *_parts(x))


def _exp(x: Value, of: Callable[..., Any]) -> Any:
    """With infinities and NaN as C has them (C17, G.6.3.1)."""
    code, kind = x.code, PARTS[x.type]
    a, b = _parts(x)
    # Where the exponential overflows, its product with a sine need not.
    most = math.floor(math.log(np.finfo(kind).max))
    above = (a > most) & (a < math.inf)
    first = code.select(above, code.const(kind, math.exp(most)), code.const(kind, 1))
    rest = of("exp", code.select(above, a - most, a))
    real = rest * (first * of("cos", b))
    imaginary = code.select(b == 0, b, rest * (first * of("sin", b)))
    # Without an angle exp(inf) is infinite all the same, and exp(-inf) is 0.
    lost = (b != b) | (abs(b) == math.inf)
    none = code.const(kind, 0)
    nothing = lost & (a == -math.inf)
    real = code.select(lost & (a == math.inf), a, code.select(nothing, none, real))
    signed = code.intrinsic("copysign", none, b)
    return make_complex(x.type, real, code.select(nothing, signed, imaginary))


COMPLEX_FUNCTIONS: dict[str, Callable[..., Any]] = {"fabs": _size, "exp": _exp}
"""By their names in ``math``; each is given what writes down functions of the parts."""
