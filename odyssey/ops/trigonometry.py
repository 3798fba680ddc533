"""Trigonometric and hyperbolic functions, element by element.

The derivatives of the inverse functions are written so that no intermediate overflows, and for
complex numbers so that they are continuous wherever NumPy's function is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.ops.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.choice import equal, where
from odyssey.ops.elementary import sqrt
from odyssey.ops.samples import APART, PAIRS, sample, singles
from odyssey.ops.table import op, publish


@op(
    elementwise=True,
    ufunc=np.sin,
    scalar=lambda x: math.sin(x),
    vjp={"x": lambda g, x: mul(g, cos(x))},
    samples=singles(),
)
def sin(x: Any, /) -> Any:
    """Elementwise sine of an angle in radians."""
    return np.sin(x)


@op(
    elementwise=True,
    ufunc=np.cos,
    scalar=lambda x: math.cos(x),
    vjp={"x": lambda g, x: neg(mul(g, sin(x)))},
    samples=singles(),
)
def cos(x: Any, /) -> Any:
    """Elementwise cosine of an angle in radians."""
    return np.cos(x)


@op(
    elementwise=True,
    ufunc=np.tan,
    scalar=lambda x: math.tan(x),
    vjp={"x": lambda g, out: mul(g, add(1, square(out)))},
    samples=singles(low=-1.0, high=1.0),
)
def tan(x: Any, /) -> Any:
    """Elementwise tangent of an angle in radians."""
    return np.tan(x)


@op(
    elementwise=True,
    ufunc=np.sinh,
    scalar=lambda x: math.sinh(x),
    vjp={"x": lambda g, x: mul(g, cosh(x))},
    samples=singles(),
)
def sinh(x: Any, /) -> Any:
    """Elementwise hyperbolic sine."""
    return np.sinh(x)


@op(
    elementwise=True,
    ufunc=np.cosh,
    scalar=lambda x: math.cosh(x),
    vjp={"x": lambda g, x: mul(g, sinh(x))},
    samples=singles(),
)
def cosh(x: Any, /) -> Any:
    """Elementwise hyperbolic cosine."""
    return np.cosh(x)


# ------------------------------------------------------------------ inverse functions


def _one_less_square(x: Any) -> Any:
    # As a product: 1 - x**2 would cancel near the ends of the domain.
    return mul(sub(1, x), add(1, x))


@op(
    elementwise=True,
    ufunc=np.arcsin,
    aliases=["asin"],
    scalar=lambda x: math.asin(x),
    vjp={"x": lambda g, x: div(g, sqrt(_one_less_square(x)))},
    kinks="inf at -1 and 1",
    samples=singles(low=-0.8, high=0.8),
)
def arcsin(x: Any, /) -> Any:
    """Elementwise angle whose sine is ``x``, in radians."""
    return np.arcsin(x)


@op(
    elementwise=True,
    ufunc=np.arccos,
    aliases=["acos"],
    scalar=lambda x: math.acos(x),
    vjp={"x": lambda g, x: neg(div(g, sqrt(_one_less_square(x))))},
    kinks="-inf at -1 and 1",
    samples=singles(low=-0.8, high=0.8),
)
def arccos(x: Any, /) -> Any:
    """Elementwise angle whose cosine is ``x``, in radians."""
    return np.arccos(x)


def _arctan_rule(g: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return div(g, add(1, square(x)))
    length = hypot(1, x)
    return div(div(g, length), length)


@op(
    elementwise=True,
    ufunc=np.arctan,
    aliases=["atan"],
    scalar=lambda x: math.atan(x),
    vjp={"x": _arctan_rule},
    samples=singles(low=-0.8, high=0.8),
)
def arctan(x: Any, /) -> Any:
    """Elementwise angle whose tangent is ``x``, in radians."""
    return np.arctan(x)


def _arcsinh_rule(g: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return div(g, sqrt(add(1, square(x))))
    return div(g, hypot(1, x))


@op(
    elementwise=True,
    ufunc=np.arcsinh,
    aliases=["asinh"],
    scalar=lambda x: math.asinh(x),
    vjp={"x": _arcsinh_rule},
    samples=singles(low=-0.8, high=0.8),
)
def arcsinh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic sine."""
    return np.arcsinh(x)


@op(
    elementwise=True,
    ufunc=np.arccosh,
    aliases=["acosh"],
    scalar=lambda x: math.acosh(x),
    vjp={"x": lambda g, x: div(g, mul(sqrt(sub(x, 1)), sqrt(add(x, 1))))},
    kinks="inf at 1",
    samples=singles(low=1.5, high=4.0),
)
def arccosh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic cosine, the one that is not negative."""
    return np.arccosh(x)


@op(
    elementwise=True,
    ufunc=np.arctanh,
    aliases=["atanh"],
    scalar=lambda x: math.atanh(x),
    vjp={"x": lambda g, x: div(g, _one_less_square(x))},
    kinks="inf at -1 and 1",
    samples=singles(low=-0.8, high=0.8),
)
def arctanh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic tangent."""
    return np.arctanh(x)


# ------------------------------------------------------------------ the plane


def _per_length(g: Any, x: Any, length: Any) -> Any:
    """``g x / length``, and 0 where the length is 0."""
    return mul(g, div(x, where(equal(length, 0), 1, length)))


@op(
    elementwise=True,
    ufunc=np.hypot,
    scalar=lambda x, y: math.hypot(x, y),
    vjp={
        "x": lambda g, x, out: _per_length(g, x, out),
        "y": lambda g, y, out: _per_length(g, y, out),
    },
    kinks="0 at (0, 0)",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[APART],
)
def hypot(x: Any, y: Any, /) -> Any:
    """Elementwise length ``sqrt(x**2 + y**2)``, without overflow of the squares."""
    return np.hypot(x, y)


def _turn(g: Any, across: Any, y: Any, x: Any) -> Any:
    """``g across / (x**2 + y**2)``, and 0 at the origin."""
    length = hypot(y, x)
    length = where(equal(length, 0), 1, length)
    return div(mul(g, div(across, length)), length)


@op(
    elementwise=True,
    ufunc=np.arctan2,
    aliases=["atan2"],
    scalar=lambda y, x: math.atan2(y, x),
    vjp={
        "y": lambda g, y, x: _turn(g, x, y, x),
        "x": lambda g, y, x: neg(_turn(g, y, y, x)),
    },
    kinks="0 at (0, 0)",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[APART],
)
def arctan2(y: Any, x: Any, /) -> Any:
    """Elementwise angle of the point ``(x, y)``, in radians from -pi to pi."""
    return np.arctan2(y, x)


publish(globals())
