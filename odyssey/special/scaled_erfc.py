"""The complement of the error function without its fall, and the integrals of that.

The functions ``e**(x**2)`` times the repeated integrals of erfc (DLMF 7.18) are positive and fall;
the derivative of each is ``-2 (order + 1)`` times the next (DLMF 7.18.3, 7.18.7), so no derivative
is a difference of large numbers.

erfcx is, for x >= 0, a polynomial of (x - K) / (x + K) over 1 + 2 x, see the file of the error
function; the coefficients below interpolate it on 0 <= x < inf for K = 3.75, with 60 digits, to
2.1e-18.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.special.scalar_formulas import polynomial
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample, singles

_LEVEL = [
    *(-3.7980647235900285e-11, 4.2433038251096756e-10, 5.485084520083625e-10),
    *(-5.169080644815932e-09, -4.396921916762906e-09, 3.866242066283792e-08),
    *(2.4301839484503084e-08, -2.586489910718322e-07, -5.827501862768691e-08),
    *(1.7516189406943677e-06, -9.728413451815077e-07, -1.1444134389658475e-05),
    *(2.238390827660038e-05, 5.1649093885821704e-05, -0.0002901539781378384),
    *(0.0002937136669846131, 0.0017556258321915355, -0.009746579558275152, 0.02836227742154398),
    *(-0.05869339858961116, 0.09230432116019638, -0.10880393014175023, 0.08227673849015109),
    *(0.0035854154854644583, -0.14024059858554702, 1.2375126308378275),
]
# Of higher orders the steps upwards, below 1, lose too many digits.
_MOST = 10


def head(y: Any) -> Any:
    """The leading half of the digits of a number, whose square is exact (T. J. Dekker, 1971)."""
    shifted = T(2.0**27 + 1 if T.max > 1e300 else 2.0**12 + 1) * y
    return shifted - (shifted - y)


def level(y: Any) -> Any:
    """``(1 + 2 y) e**(y**2) erfc(y)`` for a ``y`` that is not negative: close to 1."""
    return polynomial(T(1) - T(7.5) / (y + T(3.75)), _LEVEL)


def fall(y: Any) -> Any:
    """``e**(y**2) erfc(y)`` for a ``y`` that is not negative."""
    return level(y) / (T(1) + T(2) * y)


def erfcx_scalar(x: Any) -> Any:
    """On the left, where it grows, 2 e**(x**2) less what it is on the right."""
    y = abs(x)
    stopped = select(y > T(27), T(27), y)
    high = head(stopped)
    power = math.exp(high * high) * math.exp((stopped - high) * (stopped + high))
    return select(x < T(0), T(2) * power - fall(y), fall(y))


def _integral_scalar(x: Any, order: int) -> Any:
    """Upwards by the recurrence (DLMF 7.18.7); far to the right by the continued fraction of it."""
    before, now = T(2 / math.sqrt(math.pi)), erfcx_scalar(x)
    for k in range(order):
        before, now = now, (before - T(2) * x * now) / T(2 * k + 2)
    # There the ratios of one order to that before, from the last down.
    border, steps = (1.5, 75) if order <= 2 else (1.0, 110 + 15 * order)
    z = select(x < T(border), T(border), x)
    ratio = T(1) / (z + math.sqrt(z * z + T(2 * steps + 2)))
    product = T(2 / math.sqrt(math.pi))
    for k in range(steps, -1, -1):
        ratio = T(1) / (T(2) * z + T(2 * k + 2) * ratio)
        product = product * ratio if k <= order else product
    return select(x < T(border), now, product)


def _of_order(order: Any) -> tuple[int]:
    try:
        n = operator.index(order)
    except TypeError:
        raise DTypeError(f"scaled_erfc_integral: order is {shown(order)}; pass an int") from None
    if not 1 <= n <= _MOST:
        raise DTypeError(f"scaled_erfc_integral: order is {shown(n)}; orders go from 1 to {_MOST}")
    return (n,)


_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")


@op(
    elementwise=True,
    scalar=erfcx_scalar,
    vjp={"x": lambda g, x: mul(g, mul(-2.0, scaled_erfc_integral(x, order=1)))},
    samples=[*singles(), sample((5,), low=0.5, high=9.0)],
    rejects=[_COMPLEX],
)
def erfcx(x: Any, /) -> Any:
    """Elementwise ``e**(x**2) * erfc(x)``, which falls as ``1 / x`` does."""
    return on_arrays(erfcx_scalar, x)


@op(
    elementwise=True,
    prepare=_of_order,
    scalar=_integral_scalar,
    vjp={
        "x": lambda g, x, order: mul(
            g, mul(-2.0 * (order + 1), scaled_erfc_integral(x, order=order + 1))
        )
    },
    samples=[
        *singles(order=1),
        sample((5,), low=1.0, high=9.0, order=2),
        sample((3,), order=4),
    ],
    rejects=[
        reject((3,), order=0, error=DTypeError, match="from 1 to 10"),
        reject((3,), order=11, error=DTypeError, match="from 1 to 10"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
        reject(np.array([1j]), order=1, error=DTypeError, match="needs real numbers"),
    ],
)
def scaled_erfc_integral(x: Any, /, *, order: int) -> Any:
    """Elementwise ``e**(x**2)`` times the integral of erfc from x on, repeated ``order`` times."""
    return on_arrays(_integral_scalar, x, options=(order,))


publish(globals())
