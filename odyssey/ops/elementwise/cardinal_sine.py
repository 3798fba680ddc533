"""The sine over its argument, and the functions that its derivatives are made of.

With the spherical Bessel functions ``j_n`` (DLMF 10.49), ``s_n(z) = j_n(z) / z**n`` are even and
smooth, ``s_0(z) = sin(z) / z`` and the derivative of ``s_n`` is ``-z s_{n+1}`` (DLMF 10.51.5). So
no derivative of any order has a quotient that cancels at 0.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import mul, neg
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample, singles
from odyssey.table.shape_rules import floating

# Of a result of order 0 no one takes so many derivatives.
_MOST = 100


def _order(order: Any) -> tuple[int]:
    try:
        n = operator.index(order)
    except TypeError:
        raise DTypeError(f"sine_quotient: order is {shown(order)}; pass an int") from None
    if n < 0:
        raise DTypeError(f"sine_quotient: order is {shown(n)}; orders start from 0")
    if n > _MOST:  # each order takes terms of its own
        raise DTypeError(f"sine_quotient: order is {shown(n)}; orders go up to {_MOST}")
    return (n,)


def _series(x: Any, n: int) -> Any:
    """The Maclaurin series (DLMF 10.53.1), for numbers below ``n + 2``."""
    square = -0.5 * x * x
    term = np.full_like(x, 1 / math.prod(range(1, 2 * n + 2, 2)))
    total = term.copy()
    for k in range(1, 40 + 2 * n):  # which is enough for any number below n + 2
        term = term * square / (k * (2 * n + 2 * k + 1))
        total += term
    return total


def _climb(x: Any, n: int) -> Any:
    """By the recurrence ``z**2 s_{k+1} = (2 k + 1) s_k - s_{k-1}``, stable above ``n``."""
    before, now = np.cos(x), np.sin(x) / x
    for k in range(n):
        # One after the other: the square could overflow.
        before, now = now, ((2 * k + 1) * now - before) / x / x
    return now


def _sine_quotient(x: Any, order: int) -> Any:
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        x = x.astype(floating(x.dtype))
    near = np.abs(x) < order + 2
    out = _climb(np.where(near, order + 3, x), order)
    return np.where(near, _series(np.where(near, x, 0), order), out).astype(x.dtype)[()]


def _sine_quotient_scalar(x: Any, order: int) -> Any:
    near = abs(x) < T(order + 2)
    far = select(near, T(order + 3), x)
    before, now = math.cos(far), math.sin(far) / far
    for k in range(order):
        before, now = now, (T(2 * k + 1) * now - before) / far / far
    close = select(near, x, T(0))
    square = T(-0.5) * close * close
    total = term = T(1 / math.prod(range(1, 2 * order + 2, 2)))
    for k in range(1, 40 + 2 * order):
        term = term * square / T(k * (2 * order + 2 * k + 1))
        total = total + term
    return select(near, total, now)


@op(
    elementwise=True,
    prepare=_order,
    scalar=_sine_quotient_scalar,
    vjp={"x": lambda g, x, order: neg(mul(g, mul(x, sine_quotient(x, order=order + 1))))},
    samples=[*singles(order=0), sample((7,), low=-9.0, high=9.0, order=1), sample((3,), order=2)],
    rejects=[
        reject((3,), order=-1, error=DTypeError, match="orders start from 0"),
        reject((3,), order=101, error=DTypeError, match="up to 100"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
    ],
)
def sine_quotient(x: Any, /, *, order: int) -> Any:
    """Elementwise spherical Bessel function of an order over ``x**order``: ``sin(x) / x`` for 0."""
    return _sine_quotient(x, order)


@op(
    elementwise=True,
    numpy=[np.sinc],
    scalar=lambda x: select(x == T(0), T(1), math.sin(T(math.pi) * x) / (T(math.pi) * x)),
    equals=lambda x: sine_quotient(mul(math.pi, x), order=0),
    vjp={
        "x": lambda g, x: mul(
            g, mul(mul(-(math.pi**2), x), sine_quotient(mul(math.pi, x), order=1))
        )
    },
    kinks="NaN at infinity, as the value",
    samples=[*singles(), sample((3,), low=-1e-3, high=1e-3)],
)
def sinc(x: Any, /) -> Any:
    """Elementwise ``sin(pi x) / (pi x)``; 1 at 0."""
    return np.sinc(x)


publish(globals())
