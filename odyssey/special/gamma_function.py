"""Gamma function and its logarithm, with the names of SciPy.

The coefficients below interpolate, at Chebyshev points and with 60 digits: log(gamma(2 + t)) / t
for abs(t) <= 1/2, to 2.1e-17; and x times the remainder of Stirling's formula (DLMF 5.11.1), as a
function of 1 / x**2, for x >= 2.5, to 4.1e-17. Negative numbers are reflected (DLMF 5.5.3), with
angles in multiples of pi, which are exact.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from odyssey.checks import format_value
from odyssey.errors import DTypeError, SettingError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, minimum, mul, sub
from odyssey.ops.elementwise.choice import greater, where
from odyssey.special.polygamma_functions import digamma
from odyssey.special.scalar_formulas import NO_COMPLEX, integer_threshold, polynomial, sin_pi
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample, singles

_MAX_DIMENSIONS = 10_000

_NEAR = [
    *(2.0962059060600024e-12, -8.867306165956492e-12, 2.8206946487921987e-11),
    *(-1.2050236137952312e-10, 5.350164231426595e-10, -2.3086641882572558e-09),
    *(1.0012704932493954e-08, -4.38708276994606e-08, 1.94253158049944e-07),
    *(-8.716991307145595e-07, 3.981793122286463e-06, -1.8636779703098573e-05),
    *(9.03284478395594e-05, -0.00046159693930847154, 0.0025726010534729226),
    *(-0.016838075263298908, 0.1612335167120566, 0.42278433509846713),
]
_FAR = [
    *(-4.287567299569376e-14, 1.1824145952126192e-13, -1.9814709191435188e-13),
    *(6.93021336816899e-13, -2.8372621753318578e-12, 1.1603171776450904e-11),
    *(-5.3841049893978914e-11, 2.938792549900159e-10, -1.958013108273035e-09),
    *(1.692349543300304e-08, -2.0868323224146684e-07, 4.326175143099727e-06),
    *(-0.00021286406858162175, 0.0831159151616548),
]
_STIRLING = 0.5 * math.log(2 * math.pi)


def stirling_correction(x: Any) -> Any:
    """Remainder of Stirling's formula for log(gamma(x)), for x >= 2.5."""
    return polynomial(T(12.5) / (x * x) - T(1), _FAR) / x


def _log_gamma_near_two(x: Any, y: Any) -> Any:
    """Return t and log(gamma(2 + t)) for y = abs(x) < 2.5, where 2 + t is x, x + 1 or x + 2."""
    t = select(y < T(0.5), x, select(y < T(1.5), y - T(1), y - T(2)))
    return t, t * polynomial(T(2) * t, _NEAR)


def gammaln_scalar(x: Any) -> Any:
    """Scalar formula of ``gammaln``."""
    y = abs(x)
    t, near = _log_gamma_near_two(x, y)
    near = near - select(y < T(1.5), math.log1p(t), T(0))
    near = near - select(y < T(0.5), math.log(y), T(0))
    # Grouped so that cancellation below e is small.
    far = (y - T(0.5)) * (math.log(y) - T(1)) + T(_STIRLING - 0.5) + stirling_correction(y)
    size = select(y < T(2.5), near, far)
    stopped = select(y > integer_threshold(), integer_threshold(), y)
    sine = abs(sin_pi(stopped))
    mirrored = select(sine == T(0), T(math.inf), math.log(T(math.pi) / (stopped * sine)) - size)
    return select(x <= T(-0.5), mirrored, size)


def gamma_scalar(x: Any) -> Any:
    """Scalar formula of ``gamma``."""
    y = abs(x)
    _, near = _log_gamma_near_two(x, y)
    near = math.exp(near) / select(y < T(0.5), x * (T(1) + x), select(y < T(1.5), y, T(1)))
    # Above, the result is infinite; the power is split in two factors that do not overflow.
    end = T(200 if T.max > 1e300 else 40)
    z = select(y > end, end, y)
    root = math.pow(z, T(0.5) * z - T(0.25))
    rest = math.exp(-z) * T(math.sqrt(2 * math.pi)) * math.exp(stirling_correction(z))
    is_near = y < T(2.5)
    stopped = select(y > integer_threshold(), integer_threshold(), y)
    sine = sin_pi(stopped)
    mirrored = T(-math.pi) / (stopped * sine) / select(is_near, near, root)
    mirrored = mirrored / select(is_near, T(1), rest) / select(is_near, T(1), root)
    mirrored = select(sine == T(0), T(math.nan), mirrored)
    return select(x <= T(-0.5), mirrored, select(is_near, near, root * rest * root))


# ------------------------------------------------------------------ ops


_SAMPLES = (*singles(low=0.5, high=4.0), sample((5,), low=-0.9, high=-0.2))


@op(
    elementwise=True,
    aliases=["lgamma"],
    scalar=gammaln_scalar,
    vjp={"x": lambda g, x: mul(g, digamma(x))},
    kinks="at 0 -inf, at -0.0 inf; NaN at negative integers and at -inf, where the result is inf",
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def gammaln(x: Any, /) -> Any:
    """Elementwise logarithm of the absolute value of the gamma function."""
    return on_arrays(gammaln_scalar, x)


@op(
    elementwise=True,
    scalar=gamma_scalar,
    # Clipped where gamma is infinite.
    vjp={"x": lambda g, x, out: mul(g, mul(out, digamma(minimum(x, 1e4))))},
    kinks="-inf at both zeros; NaN at negative integers and at -inf, as the result is",
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def gamma(x: Any, /) -> Any:
    """Elementwise gamma function, ``(x - 1)!`` for positive integers."""
    return on_arrays(gamma_scalar, x)


@composite(
    samples=[
        sample((2, 3), 1, low=0.5),
        sample((2, 3), 2, low=1.0),
        sample((), 3, low=1.5),
        sample((0,), 2),
    ],
    rejects=[
        reject((3,), 0, error=SettingError, match="d is 0"),
        reject((3,), 1.5, error=DTypeError, match="pass an int"),
    ],
)
def multigammaln(a: Any, d: int) -> Any:
    """Elementwise logarithm of the multivariate gamma function of dimension ``d``.

    The function is ``pi**(d * (d - 1) / 4)`` times the product of ``gamma(a - j / 2)`` for j from 0
    to d - 1 (DLMF 35.3.4), a normalizing constant of the Wishart distribution.

    Args:
        a: Real numbers; the result is NaN unless ``a > (d - 1) / 2``.
        d: The dimension, at least 1.

    Raises:
        DTypeError: if ``d`` is not an int.
        SettingError: if ``d`` is less than 1, or above 10,000.

    >>> round(multigammaln(3.0, 1), 6)  # log(2!)
    0.693147
    """
    try:
        count = operator.index(d)
    except TypeError:
        raise DTypeError(f"multigammaln: d is {format_value(d)}; pass an int") from None
    if count < 1:
        raise SettingError(f"multigammaln: d is {count}; dimensions start from 1")
    if count > _MAX_DIMENSIONS:
        raise SettingError(
            f"multigammaln: d is {format_value(count)}; a term is added for each of at most "
            f"{_MAX_DIMENSIONS:,} dimensions"
        )
    out = gammaln(a)
    for j in range(1, count):
        out = add(out, gammaln(sub(a, j / 2)))
    out = add(out, count * (count - 1) / 4 * math.log(math.pi))
    return where(greater(a, (count - 1) / 2), out, math.nan)


publish(globals())
