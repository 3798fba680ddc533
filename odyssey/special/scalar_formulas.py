"""Scalar formulas, option checks and reject cases shared by special functions."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.table.samples import reject

__all__ = [
    "BERNOULLI",
    "NO_COMPLEX",
    "cot_pi",
    "integer_threshold",
    "order_option",
    "polynomial",
    "sin_pi",
]

NO_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")

# Bernoulli numbers of even index divided by factorials: B2 / 2!, B4 / 4!, …
BERNOULLI = [
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000),
    *(1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000),
    *(-174611 / 802857662698291200000, 77683 / 14101100039391805440000),
    -236364091 / 1693824136731743669452800000,
]


def polynomial(v: Any, coefficients: Any) -> Any:
    """Evaluate a polynomial by Horner's rule, highest coefficient first."""
    total = T(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * v + T(coefficient)
    return total


def integer_threshold() -> Any:
    """Threshold above which all numbers of the dtype are integers."""
    return T(2.0**52 if T.max > 1e300 else 2.0**23)


def sin_pi(y: Any) -> Any:
    """Return ``sin(pi * y)`` for ``y >= 0``, exactly 0 for integers."""
    half = T(0.5) * y
    turn = y - T(2) * ((half + integer_threshold()) - integer_threshold())
    turn = select(turn > T(0.5), T(1) - turn, select(turn < T(-0.5), T(-1) - turn, turn))
    return math.sin(T(math.pi) * turn)


def cot_pi(y: Any) -> Any:
    """Return ``cot(pi * y)`` for ``y >= 0``, and whether ``y`` is an integer."""
    turn = y - ((y + integer_threshold()) - integer_threshold())
    rest = math.sin(T(math.pi) * (T(0.5) - abs(turn)))
    return rest / math.sin(T(math.pi) * turn), turn == T(0)


def order_option(who: str, order: Any, least: int, most: int) -> int:
    """Return ``order`` as an int; raise DTypeError unless it lies between the bounds."""
    try:
        n = operator.index(order)
    except TypeError:
        raise DTypeError(f"{who}: order is {format_value(order)}; pass an int") from None
    if not least <= n <= most:
        raise DTypeError(f"{who}: order is {format_value(n)}; orders go from {least} to {most}")
    return n
