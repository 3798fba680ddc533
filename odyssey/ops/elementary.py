"""Powers and elementary functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.ops.arithmetic import div, mul, sub
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
    ufunc=np.tanh,
    scalar=lambda x: math.tanh(x),
    vjp={"x": lambda g, out: mul(g, sub(1, mul(out, out)))},
    samples=singles(),
)
def tanh(x: Any, /) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


publish(globals())
