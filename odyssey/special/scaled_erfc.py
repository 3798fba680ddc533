"""Scaled complementary error function erfcx and its repeated integrals.

The functions ``e**(x**2)`` times the repeated integrals of erfc (DLMF 7.18) are positive and
decreasing; the derivative of each is ``-2 (order + 1)`` times the next (DLMF 7.18.3, 7.18.7), so no
derivative is a difference of large numbers.

For x >= 0, erfcx is a polynomial of (x - K) / (x + K) over 1 + 2 x, as in
``kernels.error_functions``. The coefficients below interpolate it on 0 <= x < inf for K = 3.75,
computed with 60 digits, to 2.1e-18.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.special.scalar_formulas import NO_COMPLEX, order_option, polynomial
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample, singles

_ERFCX_COEFFICIENTS = [
    *(-3.7980647235900285e-11, 4.2433038251096756e-10, 5.485084520083625e-10),
    *(-5.169080644815932e-09, -4.396921916762906e-09, 3.866242066283792e-08),
    *(2.4301839484503084e-08, -2.586489910718322e-07, -5.827501862768691e-08),
    *(1.7516189406943677e-06, -9.728413451815077e-07, -1.1444134389658475e-05),
    *(2.238390827660038e-05, 5.1649093885821704e-05, -0.0002901539781378384),
    *(0.0002937136669846131, 0.0017556258321915355, -0.009746579558275152, 0.02836227742154398),
    *(-0.05869339858961116, 0.09230432116019638, -0.10880393014175023, 0.08227673849015109),
    *(0.0035854154854644583, -0.14024059858554702, 1.2375126308378275),
]
# For higher orders the upward recurrence below x = 1 loses too many digits.
_MAX_ORDER = 10


def leading_half(y: Any) -> Any:
    """Round to the leading half of the digits, whose square is exact (T. J. Dekker, 1971)."""
    shifted = T(2.0**27 + 1 if T.max > 1e300 else 2.0**12 + 1) * y
    return shifted - (shifted - y)


def erfcx_level(y: Any) -> Any:
    """Return ``(1 + 2 y) e**(y**2) erfc(y)`` for ``y >= 0``, a number close to 1."""
    return polynomial(T(1) - T(7.5) / (y + T(3.75)), _ERFCX_COEFFICIENTS)


def erfcx_positive(y: Any) -> Any:
    """Return ``e**(y**2) erfc(y)`` for ``y >= 0``."""
    return erfcx_level(y) / (T(1) + T(2) * y)


def erfcx_scalar(x: Any) -> Any:
    """Scalar formula of ``erfcx``; for x < 0 by ``2 e**(x**2) - erfcx(-x)``."""
    y = abs(x)
    stopped = select(y > T(27), T(27), y)
    high = leading_half(stopped)
    power = math.exp(high * high) * math.exp((stopped - high) * (stopped + high))
    return select(x < T(0), T(2) * power - erfcx_positive(y), erfcx_positive(y))


def _scaled_erfc_integral_scalar(x: Any, order: int) -> Any:
    """Upward recurrence (DLMF 7.18.7), or for large x its continued fraction."""
    before, now = T(2 / math.sqrt(math.pi)), erfcx_scalar(x)
    for k in range(order):
        before, now = now, (before - T(2) * x * now) / T(2 * k + 2)
    # Ratios of consecutive orders, from the highest down.
    border, steps = (1.5, 75) if order <= 2 else (1.0, 110 + 15 * order)
    z = select(x < T(border), T(border), x)
    ratio = T(1) / (z + math.sqrt(z * z + T(2 * steps + 2)))
    product = T(2 / math.sqrt(math.pi))
    for k in range(steps, -1, -1):
        ratio = T(1) / (T(2) * z + T(2 * k + 2) * ratio)
        product = product * ratio if k <= order else product
    return select(x < T(border), now, product)


@op(
    elementwise=True,
    scalar=erfcx_scalar,
    vjp={"x": lambda g, x: mul(g, mul(-2.0, scaled_erfc_integral(x, order=1)))},
    samples=[*singles(), sample((5,), low=0.5, high=9.0)],
    rejects=[NO_COMPLEX],
)
def erfcx(x: Any, /) -> Any:
    """Elementwise scaled complementary error function, ``e**(x**2) * erfc(x)``."""
    return on_arrays(erfcx_scalar, x)


@op(
    elementwise=True,
    prepare=lambda order: (order_option("scaled_erfc_integral", order, 1, _MAX_ORDER),),
    scalar=_scaled_erfc_integral_scalar,
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
    """Elementwise ``e**(x**2)`` times the ``order``-fold integral of erfc from x to infinity."""
    return on_arrays(_scaled_erfc_integral_scalar, x, options=(order,))


publish(globals())
