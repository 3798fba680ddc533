"""Normal distribution: CDF, log-CDF, inverse Mills ratio and quantiles; inverses of erf and erfc.

Tail probabilities are e**(-x**2 / 2) times a slowly decreasing function, with the square split in
two parts, one of them exact. Quantiles, and the inverses of erf and erfc, use M. J. Wichura's
algorithm AS 241 (Applied Statistics 37, 1988), with relative error about 1e-16.
"""

from __future__ import annotations

import math
from typing import Any

from odyssey.devices.half_dtypes import finfo
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, div, minimum, mul, neg, square
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.spec import Spec
from odyssey.special.error_functions import exp_minus_square, saturate
from odyssey.special.scalar_formulas import NO_COMPLEX, polynomial
from odyssey.special.scaled_erfc import (
    erfcx,
    erfcx_level,
    erfcx_positive,
    leading_half,
    scaled_erfc_integral,
)
from odyssey.table.declare import op, publish
from odyssey.table.samples import singles
from odyssey.table.shape_rules import floating_dtype

_CENTRAL_NUMERATOR = [
    *(2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987),
    *(13731.69376550946, 1971.5909503065513, 133.14166789178438, 3.3871328727963665),
]
_CENTRAL_DENOMINATOR = [
    *(5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597),
    *(5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0),
]
_TAIL_NUMERATOR = [
    *(0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684),
    *(3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835),
]
_TAIL_DENOMINATOR = [
    *(1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008),
    *(0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0),
]
_FAR_NUMERATOR = [
    *(2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784),
    *(0.026532189526576124, 0.29656057182850487, 1.7848265399172913, 5.463784911164114),
    6.657904643501103,
]
_FAR_DENOMINATOR = [
    *(2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05),
    *(0.0007868691311456133, 0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0),
]
_SQRT_HALF = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _upper_tail(y: Any) -> Any:
    """Upper tail probability for ``y >= 0``."""
    y = select(y > T(50), T(50), y)
    high = leading_half(y)
    power = math.exp(T(-0.5) * high * high) * math.exp(T(-0.5) * (y - high) * (y + high))
    return T(0.5) * power * erfcx_positive(T(_SQRT_HALF) * y)


def _ndtr_scalar(x: Any) -> Any:
    tail = _upper_tail(abs(x))
    return select(x < T(0), tail, T(1) - tail)


def _log_ndtr_scalar(x: Any) -> Any:
    y = abs(x)
    left = math.log(T(0.5) * erfcx_positive(T(_SQRT_HALF) * y)) - T(0.5) * y * y
    return select(x < T(0), left, math.log1p(-_upper_tail(y)))


def _mills_scalar(x: Any) -> Any:
    y = abs(x)
    z = T(_SQRT_HALF) * y
    left = (T(0.5) + z) / erfcx_level(z) * T(math.sqrt(8 / math.pi))
    stopped = select(y > T(50), T(50), y)
    high = leading_half(stopped)
    power = math.exp(T(-0.5) * high * high)
    power = power * math.exp(T(-0.5) * (stopped - high) * (stopped + high))
    return select(x < T(0), left, T(_DENSITY) * power / (T(1) - _upper_tail(y)))


def _normal_quantile(middle: Any, logarithm: Any) -> Any:
    """Quantile of probability ``middle + 1/2``, given the log of the smaller tail probability."""
    near = T(0.180625) - middle * middle
    inner = middle * polynomial(near, _CENTRAL_NUMERATOR) / polynomial(near, _CENTRAL_DENOMINATOR)
    root = math.sqrt(-logarithm)
    side, end = root - T(1.6), root - T(5)
    size = select(
        root <= T(5),
        polynomial(side, _TAIL_NUMERATOR) / polynomial(side, _TAIL_DENOMINATOR),
        polynomial(end, _FAR_NUMERATOR) / polynomial(end, _FAR_DENOMINATOR),
    )
    size = select(logarithm < T(-T.max), T(math.inf), size)
    return select(abs(middle) <= T(0.425), inner, select(middle < T(0), -size, size))


def _ndtri_scalar(x: Any) -> Any:
    middle = x - T(0.5)
    return _normal_quantile(middle, math.log(select(middle < T(0), x, T(1) - x)))


def _erfinv_scalar(x: Any) -> Any:
    return T(_SQRT_HALF) * _normal_quantile(T(0.5) * x, math.log(T(0.5) * (T(1) - abs(x))))


def _erfcinv_scalar(x: Any) -> Any:
    middle = T(0.5) - T(0.5) * x
    # Half of the smallest number would be 0, so log(2) is subtracted instead.
    logarithm = math.log(select(middle > T(0), x, T(2) - x)) - T(math.log(2))
    return T(_SQRT_HALF) * _normal_quantile(middle, logarithm)


# ------------------------------------------------------------------ probabilities


_WIDE = [*singles(), *singles(low=-9.0, high=6.0)[:1]]


@op(
    elementwise=True,
    scalar=_ndtr_scalar,
    vjp={"x": lambda g, x: mul(g, mul(_DENSITY, exp_minus_square(mul(_SQRT_HALF, x))))},
    samples=_WIDE,
    rejects=[NO_COMPLEX],
)
def ndtr(x: Any, /) -> Any:
    """Elementwise CDF of the standard normal distribution."""
    return on_arrays(_ndtr_scalar, x)


@op(
    elementwise=True,
    scalar=_log_ndtr_scalar,
    vjp={"x": lambda g, x: mul(g, inverse_mills_ratio(x))},
    samples=_WIDE,
    rejects=[NO_COMPLEX],
)
def log_ndtr(x: Any, /) -> Any:
    """Elementwise logarithm of the CDF of the standard normal distribution."""
    return on_arrays(_log_ndtr_scalar, x)


def _inverse_mills_ratio_vjp(g: Any, x: Any, x_spec: Spec, out: Any) -> Any:
    """VJP by the derivative ``-out * (x + out)``, without cancellation in the sum for x < 0.

    It tends to -1 for x -> -inf and to 0 for x -> inf.
    """
    end = float(finfo(floating_dtype(x_spec.dtype)).eps) ** -0.5
    below = less(x, 0)
    z = mul(-_SQRT_HALF, where(below, saturate(x, 2 * end), -1.0))
    falling = mul(math.sqrt(2), div(scaled_erfc_integral(z, order=1), erfcx(z)))
    slope = neg(mul(out, where(below, falling, add(minimum(x, 1e3), out))))
    return mul(g, where(less(x, -end), -1.0, slope))


@op(
    elementwise=True,
    scalar=_mills_scalar,
    vjp={"x": _inverse_mills_ratio_vjp},
    samples=_WIDE,
    rejects=[NO_COMPLEX],
)
def inverse_mills_ratio(x: Any, /) -> Any:
    """Elementwise inverse Mills ratio: standard normal density over CDF."""
    return on_arrays(_mills_scalar, x)


# ------------------------------------------------------------------ quantiles


_ENDS = "infinite at both ends, NaN beyond, as the value is"


@op(
    elementwise=True,
    scalar=_ndtri_scalar,
    vjp={"x": lambda g, out: mul(g, mul(1 / _DENSITY, exp(mul(0.5, square(out)))))},
    kinks=_ENDS,
    samples=singles(low=0.02, high=0.98),
    rejects=[NO_COMPLEX],
)
def ndtri(x: Any, /) -> Any:
    """Elementwise quantile of the standard normal distribution, the inverse of ``ndtr``."""
    return on_arrays(_ndtri_scalar, x)


@op(
    elementwise=True,
    scalar=_erfinv_scalar,
    vjp={"x": lambda g, out: mul(g, mul(0.5 * math.sqrt(math.pi), exp(square(out))))},
    kinks=_ENDS,
    samples=singles(low=-0.95, high=0.95),
    rejects=[NO_COMPLEX],
    precision="wide",
)
def erfinv(x: Any, /) -> Any:
    """Elementwise inverse of the error function."""
    return on_arrays(_erfinv_scalar, x)


@op(
    elementwise=True,
    scalar=_erfcinv_scalar,
    vjp={"x": lambda g, out: mul(g, mul(-0.5 * math.sqrt(math.pi), exp(square(out))))},
    kinks=_ENDS,
    samples=singles(low=0.05, high=1.95),
    rejects=[NO_COMPLEX],
    precision="wide",
)
def erfcinv(x: Any, /) -> Any:
    """Elementwise inverse of the complementary error function."""
    return on_arrays(_erfcinv_scalar, x)


publish(globals())
