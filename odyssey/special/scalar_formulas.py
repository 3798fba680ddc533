"""What scalars of special functions share: polynomials, sines of half turns, constants."""

from __future__ import annotations

import math
from typing import Any

from odyssey.kernels import T, select

__all__ = ["BERNOULLI", "half_turn_cotangent", "half_turn_sine", "polynomial", "whole"]

# Of Bernoulli's numbers those of even index over their factorials, from B2 on.
BERNOULLI = [
    *(1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000),
    *(1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000),
    *(-174611 / 802857662698291200000, 77683 / 14101100039391805440000),
    -236364091 / 1693824136731743669452800000,
]


def polynomial(v: Any, coefficients: Any) -> Any:
    """A polynomial of ``v``, by coefficients from the highest down."""
    total = T(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * v + T(coefficient)
    return total


def whole() -> Any:
    """The number from which on numbers of the dtype have no fractions."""
    return T(2.0**52 if T.max > 1e300 else 2.0**23)


def half_turn_sine(y: Any) -> Any:
    """The sine of ``pi * y`` for a ``y`` that is not negative, exactly 0 where ``y`` is whole."""
    half = T(0.5) * y
    turn = y - T(2) * ((half + whole()) - whole())
    turn = select(turn > T(0.5), T(1) - turn, select(turn < T(-0.5), T(-1) - turn, turn))
    return math.sin(T(math.pi) * turn)


def half_turn_cotangent(y: Any) -> Any:
    """The cotangent of ``pi * y`` for a ``y`` that is not negative, and where it is whole."""
    turn = y - ((y + whole()) - whole())
    rest = math.sin(T(math.pi) * (T(0.5) - abs(turn)))
    return rest / math.sin(T(math.pi) * turn), turn == T(0)
