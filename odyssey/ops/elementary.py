"""Powers and elementary functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T
from odyssey.ops.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.choice import equal, greater_equal, logical_and, where
from odyssey.ops.samples import APART, PAIRS, sample, singles
from odyssey.ops.shape import astype
from odyssey.ops.table import op, publish


def _power_base(g: Any, x: Any, y: Any) -> Any:
    # An exponent of 0 is replaced inside: 0 * x**-1 would be NaN at x = 0 where 0 is meant.
    inner = power(x, sub(where(equal(y, 0), 1, y), 1))
    return mul(g, mul(y, inner))


def _power_exponent(g: Any, x: Any, y: Any, out: Any) -> Any:
    at_zero = logical_and(equal(x, 0), greater_equal(y, 0))
    base = where(at_zero, 1, x)
    if base.dtype != out.dtype:  # where x is a Python number, or y alone is complex
        base = astype(base, out.dtype)
    return mul(g, mul(out, log(base)))


@op(
    elementwise=True,
    ufunc=np.power,
    aliases=["pow"],
    scalar=lambda x, y: math.pow(x, y),
    vjp={"x": _power_base, "y": _power_exponent},
    kinks="at y = 0 the derivative in x is 0, also for 0**0; at x = 0 and y >= 0 that in y is 0; "
    "at x < 0 that in y is NaN",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[APART],
)
def power(x: Any, y: Any, /) -> Any:
    """Elementwise power, ``x ** y``."""
    return np.power(x, y)


@op(
    elementwise=True,
    ufunc=np.exp,
    scalar=lambda x: math.exp(x),
    vjp={"x": lambda g, out: mul(g, out)},
    samples=singles(),
)
def exp(x: Any, /) -> Any:
    """Elementwise exponential, ``e ** x``."""
    return np.exp(x)


@op(
    elementwise=True,
    ufunc=np.log,
    scalar=lambda x: math.log(x),
    vjp={"x": lambda g, x: div(g, x)},
    kinks="inf at 0",
    samples=singles(low=0.5),
)
def log(x: Any, /) -> Any:
    """Elementwise natural logarithm."""
    return np.log(x)


@op(
    real=True,
    elementwise=True,
    ufunc=np.exp2,
    scalar=lambda x: math.exp2(x),
    vjp={"x": lambda g, out: mul(g, mul(math.log(2), out))},
    samples=singles(),
)
def exp2(x: Any, /) -> Any:
    """Elementwise power of two, ``2 ** x``."""
    return np.exp2(x)


@op(
    elementwise=True,
    ufunc=np.expm1,
    scalar=lambda x: math.expm1(x),
    # Not out + 1, which has lost all digits where x is very negative.
    vjp={"x": lambda g, x: mul(g, exp(x))},
    samples=singles(),
)
def expm1(x: Any, /) -> Any:
    """Elementwise ``e ** x - 1``, exact near 0."""
    return np.expm1(x)


@op(
    elementwise=True,
    ufunc=np.log2,
    scalar=lambda x: math.log2(x),
    vjp={"x": lambda g, x: div(g, mul(math.log(2), x))},
    kinks="inf at 0",
    samples=singles(low=0.5),
)
def log2(x: Any, /) -> Any:
    """Elementwise logarithm to base 2."""
    return np.log2(x)


@op(
    elementwise=True,
    ufunc=np.log10,
    scalar=lambda x: math.log10(x),
    vjp={"x": lambda g, x: div(g, mul(math.log(10), x))},
    kinks="inf at 0",
    samples=singles(low=0.5),
)
def log10(x: Any, /) -> Any:
    """Elementwise logarithm to base 10."""
    return np.log10(x)


@op(
    elementwise=True,
    ufunc=np.log1p,
    scalar=lambda x: math.log1p(x),
    vjp={"x": lambda g, x: div(g, add(1, x))},
    kinks="inf at -1",
    samples=singles(low=-0.5),
)
def log1p(x: Any, /) -> Any:
    """Elementwise natural logarithm of ``1 + x``, exact near 0."""
    return np.log1p(x)


@op(
    elementwise=True,
    ufunc=np.sqrt,
    scalar=lambda x: math.sqrt(x),
    vjp={"x": lambda g, out: div(mul(g, 0.5), out)},
    kinks="inf at 0",
    samples=singles(low=0.5),
)
def sqrt(x: Any, /) -> Any:
    """Elementwise square root."""
    return np.sqrt(x)


@op(
    elementwise=True,
    scalar=lambda x: T(1) / math.sqrt(x),
    vjp={"x": lambda g, x, out: mul(g, mul(-0.5, div(out, x)))},
    kinks="-inf at 0",
    samples=singles(low=0.5),
)
def rsqrt(x: Any, /) -> Any:
    """Elementwise reciprocal of the square root, ``1 / sqrt(x)``."""
    return 1 / np.sqrt(x)


@op(
    elementwise=True,
    ufunc=np.cbrt,
    vjp={"x": lambda g, out: div(g, mul(3, square(out)))},
    kinks="inf at 0",
    samples=[*singles(low=0.5), sample((3,), low=-2.0, high=-0.5)],
)
def cbrt(x: Any, /) -> Any:
    """Elementwise cube root; of a negative number the negative one."""
    return np.cbrt(x)


@op(
    elementwise=True,
    ufunc=np.reciprocal,
    scalar=lambda x: T(1) / x,
    vjp={"x": lambda g, out: neg(mul(g, square(out)))},
    kinks="-inf at 0",
    samples=singles(low=0.5),
)
def reciprocal(x: Any, /) -> Any:
    """Elementwise ``1 / x``; of integers cut to an integer, as NumPy does."""
    return np.reciprocal(x)


@op(
    elementwise=True,
    ufunc=np.tanh,
    scalar=lambda x: math.tanh(x),
    vjp={"x": lambda g, out: mul(g, sub(1, mul(out, out)))},
    samples=singles(),
)
def tanh(x: Any, /) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


publish(globals())
