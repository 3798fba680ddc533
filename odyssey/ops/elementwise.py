"""Arithmetic and elementary functions, element by element on broadcast operands."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.kernels import T
from odyssey.ops.samples import reject, sample
from odyssey.ops.shape import astype
from odyssey.ops.table import PASS, op, publish

_PAIRS = (
    sample((2, 3), (2, 3)),
    sample((2, 3), (3,)),
    sample((3, 1), (1, 4)),
    sample((), (2,)),
    sample((), ()),
    sample((0, 3), (3,)),
)
_APART = reject((2, 3), (4,), error=ShapeError, match="do not broadcast")


def _one(low: float = -2.0, high: float = 2.0) -> tuple[Any, ...]:
    """Samples of one operand between ``low`` and ``high``."""
    return tuple(sample(shape, low=low, high=high) for shape in [(2, 3), (), (0,), (3, 1, 2)])


# ------------------------------------------------------------------ arithmetic


@op(
    elementwise=True,
    ufunc=np.add,
    scalar=lambda x, y: x + y,
    vjp={"x": PASS, "y": PASS},
    samples=_PAIRS,
    rejects=[_APART],
)
def add(x: Any, y: Any, /) -> Any:
    """Elementwise sum, ``x + y``."""
    return np.add(x, y)


@op(
    elementwise=True,
    ufunc=np.subtract,
    aliases=["sub"],
    scalar=lambda x, y: x - y,
    vjp={"x": PASS, "y": lambda g: neg(g)},
    samples=_PAIRS,
    rejects=[_APART],
)
def subtract(x: Any, y: Any, /) -> Any:
    """Elementwise difference, ``x - y``."""
    return np.subtract(x, y)


@op(
    elementwise=True,
    ufunc=np.multiply,
    aliases=["mul"],
    scalar=lambda x, y: x * y,
    vjp={"x": lambda g, y: mul(g, y), "y": lambda g, x: mul(g, x)},
    samples=_PAIRS,
    rejects=[_APART],
)
def multiply(x: Any, y: Any, /) -> Any:
    """Elementwise product, ``x * y``."""
    return np.multiply(x, y)


@op(
    elementwise=True,
    ufunc=np.divide,
    aliases=["div"],
    scalar=lambda x, y: x / y,
    vjp={
        "x": lambda g, y: div(g, y),
        "y": lambda g, y, out: neg(div(mul(g, out), y)),
    },
    samples=[sample(*s.operands, low=0.5) for s in _PAIRS],
    rejects=[_APART],
)
def divide(x: Any, y: Any, /) -> Any:
    """Elementwise quotient, ``x / y``; integers divide to floats."""
    return np.divide(x, y)


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
    samples=[sample(*s.operands, low=0.5) for s in _PAIRS],
    rejects=[_APART],
)
def power(x: Any, y: Any, /) -> Any:
    """Elementwise power, ``x ** y``."""
    return np.power(x, y)


@op(
    elementwise=True,
    ufunc=np.negative,
    aliases=["neg"],
    scalar=lambda x: -x,
    vjp={"x": lambda g: neg(g)},
    samples=_one(),
)
def negative(x: Any, /) -> Any:
    """Elementwise negation, ``-x``."""
    return np.negative(x)


@op(
    elementwise=True,
    ufunc=np.square,
    scalar=lambda x: x * x,
    vjp={"x": lambda g, x: mul(g, mul(2, x))},
    samples=_one(),
)
def square(x: Any, /) -> Any:
    """Elementwise square, ``x * x``."""
    return np.square(x)


# ------------------------------------------------------------------ elementary functions


@op(
    elementwise=True,
    ufunc=np.exp,
    scalar=lambda x: math.exp(x),
    vjp={"x": lambda g, out: mul(g, out)},
    samples=_one(),
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
    samples=_one(low=0.5),
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
    samples=_one(low=0.5),
)
def sqrt(x: Any, /) -> Any:
    """Elementwise square root."""
    return np.sqrt(x)


@op(
    elementwise=True,
    ufunc=np.tanh,
    scalar=lambda x: math.tanh(x),
    vjp={"x": lambda g, out: mul(g, sub(1, mul(out, out)))},
    samples=_one(),
)
def tanh(x: Any, /) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


def _sigmoid(x: Any) -> Any:
    # exp of a non-positive number: no overflow on either side.
    if np.iscomplexobj(x):
        right = np.real(x) >= 0
        e = np.exp(np.where(right, -x, x))
        return np.where(right, 1, e) / (1 + e)
    e = np.exp(-np.abs(x))
    return np.where(np.signbit(x), e, 1) / (1 + e)


@op(
    elementwise=True,
    scalar=lambda x: T(1) / (T(1) + math.exp(-x)) if x > T(0) else math.exp(x) / (T(1) + math.exp(x)),
    vjp={"x": lambda g, out: mul(g, mul(out, sub(1, out)))},
    samples=_one(),
)
def sigmoid(x: Any, /) -> Any:
    """Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
    out = _sigmoid(x)
    return out if np.ndim(out) else out[()]


@op(
    elementwise=True,
    scalar=lambda x: T(0) if x <= T(0) else x,
    vjp={"x": lambda g, out: mul(g, greater(out, 0))},
    kinks="0 at 0",
    samples=_one(),
)
def relu(x: Any, /) -> Any:
    """Elementwise rectifier, ``max(x, 0)``."""
    return np.maximum(x, 0)


# ------------------------------------------------------------------ absolute value and complex


def _absolute_rule(g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(g, sign(x))
    return mul(g, div(conj(x), where(equal(out, 0), 1, out)))


@op(
    elementwise=True,
    closed=False,
    ufunc=np.absolute,
    aliases=["abs"],
    scalar=lambda x: math.fabs(x),
    vjp={"x": _absolute_rule},
    jvp={"x": lambda t, x, out: real(_absolute_rule(t, x, out))},
    kinks="0 at 0",
    samples=_one(),
)
def absolute(x: Any, /) -> Any:
    """Elementwise absolute value, ``|x|``."""
    return np.absolute(x)


def _sign_rule(g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(g, 0)
    radius = absolute(x)
    turn = sub(g, mul(real(mul(g, out)), conj(out)))
    return div(turn, where(equal(radius, 0), 1, radius))


def _sign_forward(t: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(t, 0)
    radius = absolute(x)
    turn = sub(t, mul(real(mul(t, conj(out))), out))
    return div(turn, where(equal(radius, 0), 1, radius))


@op(
    elementwise=True,
    ufunc=np.sign,
    vjp={"x": _sign_rule},
    jvp={"x": _sign_forward},
    kinks="0 everywhere, at 0 too, for real numbers",
    samples=_one(),
)
def sign(x: Any, /) -> Any:
    """Elementwise sign: -1, 0 or 1; ``x / |x|`` for complex numbers."""
    return np.sign(x)


@op(
    elementwise=True,
    ufunc=np.conjugate,
    vjp={"x": lambda g: conj(g)},
    samples=_one(),
)
def conj(x: Any, /) -> Any:
    """Elementwise complex conjugate; real numbers pass through."""
    return np.conjugate(x)


@op(
    elementwise=True,
    closed=False,
    numpy=[np.real],
    vjp={"x": PASS},
    jvp={"x": lambda t: real(t)},
    samples=_one(),
)
def real(x: Any, /) -> Any:
    """Elementwise real part."""
    return np.real(x) * 1


@op(
    elementwise=True,
    closed=False,
    numpy=[np.imag],
    vjp={"x": lambda g: mul(g, -1j)},
    jvp={"x": lambda t: imag(t)},
    samples=_one(),
)
def imag(x: Any, /) -> Any:
    """Elementwise imaginary part; 0 for real numbers."""
    return np.imag(x) * 1


# ------------------------------------------------------------------ choice and comparison


@op(
    elementwise=True,
    numpy=[np.where],
    vjp={
        "x": lambda g, condition: where(condition, g, 0),
        "y": lambda g, condition: where(condition, 0, g),
    },
    kinks="the branch not taken has 0, whatever its value",
    samples=[
        sample(np.array([True, False, True]), (2, 3), (3,)),
        sample(np.array([[True], [False]]), (), (1, 4)),
        sample(np.array(False), (), ()),
    ],
    rejects=[reject(np.array([True, False]), (3,), (3,), match="do not broadcast")],
)
def where(condition: Any, x: Any, y: Any, /) -> Any:
    """Elementwise choice, ``x`` where ``condition`` holds and ``y`` elsewhere."""
    return np.where(condition, x, y)[()]


def _to_winner(g: Any, x: Any, y: Any) -> Any:
    """``g`` where ``x`` is the larger, or NaN; half of it at a tie; else 0."""
    won = mul(g, logical_or(greater(x, y), not_equal(x, x)))
    return where(equal(x, y), mul(g, 0.5), won)


def _to_loser(g: Any, x: Any, y: Any) -> Any:
    lost = mul(g, logical_or(less(x, y), not_equal(x, x)))
    return where(equal(x, y), mul(g, 0.5), lost)


@op(
    elementwise=True,
    ufunc=np.maximum,
    scalar=lambda x, y: x if x > y or x != x else y,
    vjp={
        "x": lambda g, x, y: _to_winner(g, x, y),
        "y": lambda g, x, y: _to_winner(g, y, x),
    },
    kinks="a tie splits evenly",
    samples=_PAIRS,
    rejects=[_APART],
)
def maximum(x: Any, y: Any, /) -> Any:
    """Elementwise larger of two; NaN if either is."""
    return np.maximum(x, y)


@op(
    elementwise=True,
    ufunc=np.minimum,
    scalar=lambda x, y: x if x < y or x != x else y,
    vjp={
        "x": lambda g, x, y: _to_loser(g, x, y),
        "y": lambda g, x, y: _to_loser(g, y, x),
    },
    kinks="a tie splits evenly",
    samples=_PAIRS,
    rejects=[_APART],
)
def minimum(x: Any, y: Any, /) -> Any:
    """Elementwise smaller of two; NaN if either is."""
    return np.minimum(x, y)


@op(elementwise=True, ufunc=np.equal, samples=_PAIRS, rejects=[_APART])
def equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x == y``; a constant."""
    return np.equal(x, y)


@op(elementwise=True, ufunc=np.not_equal, samples=_PAIRS, rejects=[_APART])
def not_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x != y``; a constant."""
    return np.not_equal(x, y)


@op(elementwise=True, ufunc=np.greater, samples=_PAIRS, rejects=[_APART])
def greater(x: Any, y: Any, /) -> Any:
    """Elementwise ``x > y``; a constant."""
    return np.greater(x, y)


@op(elementwise=True, ufunc=np.greater_equal, samples=_PAIRS, rejects=[_APART])
def greater_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x >= y``; a constant."""
    return np.greater_equal(x, y)


@op(elementwise=True, ufunc=np.less, samples=_PAIRS, rejects=[_APART])
def less(x: Any, y: Any, /) -> Any:
    """Elementwise ``x < y``; a constant."""
    return np.less(x, y)


@op(elementwise=True, ufunc=np.less_equal, samples=_PAIRS, rejects=[_APART])
def less_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x <= y``; a constant."""
    return np.less_equal(x, y)


@op(elementwise=True, ufunc=np.logical_and, samples=_PAIRS, rejects=[_APART])
def logical_and(x: Any, y: Any, /) -> Any:
    """Elementwise logical and; a constant."""
    return np.logical_and(x, y)


@op(elementwise=True, ufunc=np.logical_or, samples=_PAIRS, rejects=[_APART])
def logical_or(x: Any, y: Any, /) -> Any:
    """Elementwise logical or; a constant."""
    return np.logical_or(x, y)


@op(elementwise=True, ufunc=np.logical_not, samples=_one())
def logical_not(x: Any, /) -> Any:
    """Elementwise logical not; a constant."""
    return np.logical_not(x)


sub, mul, div, pow, neg, abs = subtract, multiply, divide, power, negative, absolute
publish(globals())
