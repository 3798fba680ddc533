"""Relative exponential ``(e**x - 1) / x`` and its derivatives, the exponential moments.

The moments, integrals of ``t**n e**(x t)`` for t from 0 to 1, are positive and smooth, and the
derivative of each is the next; order 0 is ``(e**x - 1) / x``. For small x they are series of
positive terms (DLMF 13.2.2, 13.2.39 for M(1, n + 2, -x)), for large x integration by parts gives
them from order 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.special.scalar_formulas import NO_COMPLEX, order_option
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample, singles

# Highest derivative.
_MAX_ORDER = 20


def _exprel_scalar(x: Any) -> Any:
    # The quotient may be finite where e**x overflows.
    stopped = select(x > T(1000), T(1000), x)
    power = math.exp(T(0.5) * stopped)
    quotient = math.expm1(x) / select(x == T(0), T(1), x)
    quotient = select(x == T(0), T(1), quotient)
    return select(x > T(50), power / stopped * power, quotient)


def _moment_series(x: Any, order: int, border: float) -> Any:
    """Series of terms of one sign: of e**(x t) for x > 0, and e**x times that of e**(x t - x)."""
    size = abs(x)
    right = left = T(1)
    terms = 4
    while border**terms > 1e-18 * math.factorial(terms):
        terms += 1
    for k in range(terms, 0, -1):
        right = T(1) + size * T((order + k) / (k * (order + k + 1))) * right
        left = T(1) + size / T(order + k + 1) * left
    return select(x < T(0), math.exp(x) * left, right) / T(order + 1)


def _moment_scalar(x: Any, order: int) -> Any:
    border = order + 4.0
    near = abs(x) < T(border)
    z = select(near | (x < T(0)), T(border), select(x > T(1000), T(1000), x))
    # For x > 0 without the factor e**x, which may overflow.
    right = (T(1) - math.exp(-z)) / z
    y = select(near | (x > T(0)), T(border), -x)
    fall = math.exp(-y)
    left = (T(1) - fall) / y
    for k in range(1, order + 1):
        right = (T(1) - T(k) * right) / z
        left = (T(k) * left - fall) / y
    power = math.exp(T(0.5) * z)
    far = select(x < T(0), left, power * right * power)
    return select(
        near, _moment_series(select(near, x, T(0)), order, border), select(x == x, far, x)
    )


@op(
    elementwise=True,
    scalar=_exprel_scalar,
    vjp={"x": lambda g, x: mul(g, exponential_moment(x, order=1))},
    samples=[*singles(), sample((4,), low=-9.0, high=9.0)],
    rejects=[NO_COMPLEX],
)
def exprel(x: Any, /) -> Any:
    """Elementwise ``(e**x - 1) / x``; 1 at 0."""
    return on_arrays(_exprel_scalar, x)


@op(
    elementwise=True,
    prepare=lambda order: (order_option("exponential_moment", order, 1, _MAX_ORDER),),
    scalar=_moment_scalar,
    vjp={"x": lambda g, x, order: mul(g, exponential_moment(x, order=order + 1))},
    samples=[*singles(order=1), sample((6,), low=-9.0, high=9.0, order=2), sample((3,), order=5)],
    rejects=[
        reject((3,), order=0, error=DTypeError, match="from 1 to 20"),
        reject((3,), order=21, error=DTypeError, match="from 1 to 20"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
        reject(np.array([1j]), order=1, error=DTypeError, match="needs real numbers"),
    ],
)
def exponential_moment(x: Any, /, *, order: int) -> Any:
    """Elementwise integral of ``t**order * e**(x t)`` for t from 0 to 1."""
    return on_arrays(_moment_scalar, x, options=(order,))


publish(globals())
