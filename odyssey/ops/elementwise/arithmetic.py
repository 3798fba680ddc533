"""Arithmetic: sums, products, quotients, minimum and maximum."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.ops.elementwise.choice import (
    equal,
    greater_equal,
    keep_where,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
)
from odyssey.ops.structure.shape import astype
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, sample, singles

# Python's operators are the kernels. On arrays they call the ufuncs; on NumPy scalars, such as the
# cotangent of a loss, they take a tenth of a ufunc's time.


@op(
    elementwise=True,
    ufunc=np.add,
    kernel=operator.add,
    scalar=lambda x, y: x + y,
    vjp={"x": PASS, "y": PASS},
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def add(x: Any, y: Any, /) -> Any:
    """Elementwise sum, ``x + y``."""
    return np.add(x, y)


@op(
    elementwise=True,
    ufunc=np.subtract,
    kernel=operator.sub,
    aliases=["sub"],
    scalar=lambda x, y: x - y,
    vjp={"x": PASS, "y": lambda g: neg(g)},
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def subtract(x: Any, y: Any, /) -> Any:
    """Elementwise difference, ``x - y``."""
    return np.subtract(x, y)


@op(
    elementwise=True,
    ufunc=np.multiply,
    kernel=operator.mul,
    aliases=["mul"],
    scalar=lambda x, y: x * y,
    vjp={"x": lambda g, y: mul(g, y), "y": lambda g, x: mul(g, x)},
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def multiply(x: Any, y: Any, /) -> Any:
    """Elementwise product, ``x * y``."""
    return np.multiply(x, y)


@op(
    elementwise=True,
    ufunc=np.divide,
    kernel=operator.truediv,
    aliases=["div"],
    scalar=lambda x, y: x / y,
    vjp={
        "x": lambda g, y: div(g, y),
        "y": lambda g, y, out: neg(div(mul(g, out), y)),
    },
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[NO_BROADCAST],
)
def divide(x: Any, y: Any, /) -> Any:
    """Elementwise quotient, ``x / y``; integers divide to floats."""
    return np.divide(x, y)


@op(
    elementwise=True,
    ufunc=np.negative,
    kernel=operator.neg,
    aliases=["neg"],
    scalar=lambda x: -x,
    vjp={"x": lambda g: neg(g)},
    samples=singles(),
)
def negative(x: Any, /) -> Any:
    """Elementwise negation, ``-x``."""
    return np.negative(x)


@op(
    elementwise=True,
    ufunc=np.square,
    scalar=lambda x: x * x,
    decomposition=lambda x: mul(x, x),
    vjp={"x": lambda g, x: mul(g, mul(2, x))},
    samples=singles(),
)
def square(x: Any, /) -> Any:
    """Elementwise square, ``x * x``."""
    return np.square(x)


def _scalar_is_float16() -> bool:
    """Return whether a scalar kernel is of float16, where NumPy returns the first of equals."""
    return bool(T.kind == "f" and T.eps > 1e-4)


def _chosen_gradient(g: Any, x: Any, y: Any) -> Any:
    """Return ``g`` where ``x`` is the larger or NaN, half of it at a tie, and 0 elsewhere."""
    return _split_at_ties(g, logical_or(greater_equal(x, y), not_equal(x, x)), equal(x, y))


def _other_gradient(g: Any, x: Any, y: Any) -> Any:
    return _split_at_ties(g, logical_or(less_equal(x, y), not_equal(x, x)), equal(x, y))


def _split_at_ties(g: Any, chosen: Any, tie: Any) -> Any:
    return div(keep_where(g, chosen), add(1, astype(tie, g.dtype)))


@op(
    real=True,
    elementwise=True,
    selects=True,
    ufunc=np.maximum,
    scalar=lambda x, y: select((x >= y if _scalar_is_float16() else x > y) | (x != x), x, y),
    vjp={
        "x": lambda g, x, y: _chosen_gradient(g, x, y),
        "y": lambda g, x, y: _chosen_gradient(g, y, x),
    },
    kinks="a tie splits evenly",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def maximum(x: Any, y: Any, /) -> Any:
    """Elementwise larger of two; NaN if either is."""
    return np.maximum(x, y)


@op(
    real=True,
    elementwise=True,
    selects=True,
    ufunc=np.minimum,
    scalar=lambda x, y: select((x <= y if _scalar_is_float16() else x < y) | (x != x), x, y),
    vjp={
        "x": lambda g, x, y: _other_gradient(g, x, y),
        "y": lambda g, x, y: _other_gradient(g, y, x),
    },
    kinks="a tie splits evenly",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def minimum(x: Any, y: Any, /) -> Any:
    """Elementwise smaller of two; NaN if either is."""
    return np.minimum(x, y)


def _only_y_is_nan(x: Any, y: Any) -> Any:
    """Return a mask of the elements where ``y`` is NaN and ``x`` is not."""
    return logical_and(equal(x, x), not_equal(y, y))


@op(
    real=True,
    elementwise=True,
    selects=True,
    ufunc=np.fmax,
    scalar=lambda x, y: select((x >= y) | (y != y), x, y),
    vjp={
        "x": lambda g, x, y: _split_at_ties(
            g, logical_or(greater_equal(x, y), not_equal(y, y)), equal(x, y)
        ),
        "y": lambda g, x, y: _split_at_ties(
            g, logical_or(less_equal(x, y), _only_y_is_nan(y, x)), equal(x, y)
        ),
    },
    kinks="a tie splits evenly; beside NaN the number has all, of two NaNs the first",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def fmax(x: Any, y: Any, /) -> Any:
    """Elementwise larger of two, ignoring NaN: beside a NaN, the other operand."""
    return np.fmax(x, y)


@op(
    real=True,
    elementwise=True,
    selects=True,
    ufunc=np.fmin,
    scalar=lambda x, y: select((x <= y) | (y != y), x, y),
    vjp={
        "x": lambda g, x, y: _split_at_ties(
            g, logical_or(less_equal(x, y), not_equal(y, y)), equal(x, y)
        ),
        "y": lambda g, x, y: _split_at_ties(
            g, logical_or(greater_equal(x, y), _only_y_is_nan(y, x)), equal(x, y)
        ),
    },
    kinks="a tie splits evenly; beside NaN the number has all, of two NaNs the first",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def fmin(x: Any, y: Any, /) -> Any:
    """Elementwise smaller of two, ignoring NaN: beside a NaN, the other operand."""
    return np.fmin(x, y)


sub: Callable[..., Any] = subtract
mul: Callable[..., Any] = multiply
div: Callable[..., Any] = divide
neg: Callable[..., Any] = negative
publish(globals())
