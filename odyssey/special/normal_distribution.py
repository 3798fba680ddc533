"""The normal distribution: chances, their logarithms, and the numbers that belong to chances.

Chances in the tail are e**(-x**2 / 2) times a function that falls slowly, with the square in two
parts, of which one is exact. What belongs to a chance is found by M. J. Wichura's algorithm AS 241
(Applied Statistics 37, 1988), to about 1 part in 10**16; so are the inverses of erf and erfc.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, div, minimum, mul, neg, square
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.spec import Spec
from odyssey.special.error_functions import bell, within
from odyssey.special.scalar_formulas import polynomial
from odyssey.special.scaled_erfc import erfcx, fall, head, level, scaled_erfc_integral
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, singles
from odyssey.table.shape_rules import floating_dtype

_MIDDLE = [
    *(2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987),
    *(13731.69376550946, 1971.5909503065513, 133.14166789178438, 3.3871328727963665),
]
_MIDDLE_UNDER = [
    *(5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597),
    *(5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0),
]
_SIDE = [
    *(0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684),
    *(3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835),
]
_SIDE_UNDER = [
    *(1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008),
    *(0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0),
]
_END = [
    *(2.0103343992922881e-07, 2.7115555687434876e-05, 0.0012426609473880784),
    *(0.026532189526576124, 0.29656057182850487, 1.7848265399172913, 5.463784911164114),
    6.657904643501103,
]
_END_UNDER = [
    *(2.0442631033899397e-15, 1.421511758316446e-07, 1.8463183175100548e-05),
    *(0.0007868691311456133, 0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0),
]
_HALF_ROOT = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)


def _tail(y: Any) -> Any:
    """The chance to lie above a ``y`` that is not negative."""
    y = select(y > T(50), T(50), y)
    high = head(y)
    power = math.exp(T(-0.5) * high * high) * math.exp(T(-0.5) * (y - high) * (y + high))
    return T(0.5) * power * fall(T(_HALF_ROOT) * y)


def _ndtr_scalar(x: Any) -> Any:
    tail = _tail(abs(x))
    return select(x < T(0), tail, T(1) - tail)


def _log_ndtr_scalar(x: Any) -> Any:
    y = abs(x)
    left = math.log(T(0.5) * fall(T(_HALF_ROOT) * y)) - T(0.5) * y * y
    return select(x < T(0), left, math.log1p(-_tail(y)))


def _mills_scalar(x: Any) -> Any:
    y = abs(x)
    z = T(_HALF_ROOT) * y
    left = (T(0.5) + z) / level(z) * T(math.sqrt(8 / math.pi))
    stopped = select(y > T(50), T(50), y)
    high = head(stopped)
    power = math.exp(T(-0.5) * high * high)
    power = power * math.exp(T(-0.5) * (stopped - high) * (stopped + high))
    return select(x < T(0), left, T(_DENSITY) * power / (T(1) - _tail(y)))


def _quantile(middle: Any, logarithm: Any) -> Any:
    """What belongs to the chance ``middle + 1/2``, and the logarithm of it or of what is above.

    Of the two the logarithm is that of the smaller.
    """
    near = T(0.180625) - middle * middle
    inner = middle * polynomial(near, _MIDDLE) / polynomial(near, _MIDDLE_UNDER)
    root = math.sqrt(-logarithm)
    side, end = root - T(1.6), root - T(5)
    size = select(
        root <= T(5),
        polynomial(side, _SIDE) / polynomial(side, _SIDE_UNDER),
        polynomial(end, _END) / polynomial(end, _END_UNDER),
    )
    size = select(logarithm < T(-T.max), T(math.inf), size)
    return select(abs(middle) <= T(0.425), inner, select(middle < T(0), -size, size))


def _ndtri_scalar(x: Any) -> Any:
    middle = x - T(0.5)
    return _quantile(middle, math.log(select(middle < T(0), x, T(1) - x)))


def _erfinv_scalar(x: Any) -> Any:
    return T(_HALF_ROOT) * _quantile(T(0.5) * x, math.log(T(0.5) * (T(1) - abs(x))))


def _erfcinv_scalar(x: Any) -> Any:
    middle = T(0.5) - T(0.5) * x
    # The half of the smallest number is 0, and its logarithm is not.
    logarithm = math.log(select(middle > T(0), x, T(2) - x)) - T(math.log(2))
    return T(_HALF_ROOT) * _quantile(middle, logarithm)


# ------------------------------------------------------------------ chances


_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")
_WIDE = [*singles(), *singles(low=-9.0, high=6.0)[:1]]


@op(
    elementwise=True,
    scalar=_ndtr_scalar,
    vjp={"x": lambda g, x: mul(g, mul(_DENSITY, bell(mul(_HALF_ROOT, x))))},
    samples=_WIDE,
    rejects=[_COMPLEX],
)
def ndtr(x: Any, /) -> Any:
    """Elementwise chance that a standard normal number is below ``x``."""
    return on_arrays(_ndtr_scalar, x)


@op(
    elementwise=True,
    scalar=_log_ndtr_scalar,
    vjp={"x": lambda g, x: mul(g, inverse_mills_ratio(x))},
    samples=_WIDE,
    rejects=[_COMPLEX],
)
def log_ndtr(x: Any, /) -> Any:
    """Elementwise logarithm of the chance that a standard normal number is below ``x``."""
    return on_arrays(_log_ndtr_scalar, x)


def _mills_slope(g: Any, x: Any, x_spec: Spec, out: Any) -> Any:
    """Minus itself times its sum with x, which on the left is not computed as a sum.

    Far to the left the slope has become -1; far to the right it is 0, as the ratio is.
    """
    end = float(np.finfo(floating_dtype(x_spec.dtype)).eps) ** -0.5
    below = less(x, 0)
    z = mul(-_HALF_ROOT, where(below, within(x, 2 * end), -1.0))
    falling = mul(math.sqrt(2), div(scaled_erfc_integral(z, order=1), erfcx(z)))
    slope = neg(mul(out, where(below, falling, add(minimum(x, 1e3), out))))
    return mul(g, where(less(x, -end), -1.0, slope))


@op(
    elementwise=True,
    scalar=_mills_scalar,
    vjp={"x": _mills_slope},
    samples=_WIDE,
    rejects=[_COMPLEX],
)
def inverse_mills_ratio(x: Any, /) -> Any:
    """Elementwise density of a standard normal number over the chance to be below ``x``."""
    return on_arrays(_mills_scalar, x)


# ------------------------------------------------------------------ what belongs to a chance


_ENDS = "infinite at both ends, NaN beyond, as the value is"


@op(
    elementwise=True,
    scalar=_ndtri_scalar,
    vjp={"x": lambda g, out: mul(g, mul(1 / _DENSITY, exp(mul(0.5, square(out)))))},
    kinks=_ENDS,
    samples=singles(low=0.02, high=0.98),
    rejects=[_COMPLEX],
)
def ndtri(x: Any, /) -> Any:
    """Elementwise number below which a standard normal one lies with chance ``x``."""
    return on_arrays(_ndtri_scalar, x)


@op(
    elementwise=True,
    scalar=_erfinv_scalar,
    vjp={"x": lambda g, out: mul(g, mul(0.5 * math.sqrt(math.pi), exp(square(out))))},
    kinks=_ENDS,
    samples=singles(low=-0.95, high=0.95),
    rejects=[_COMPLEX],
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
    rejects=[_COMPLEX],
)
def erfcinv(x: Any, /) -> Any:
    """Elementwise inverse of the complement of the error function."""
    return on_arrays(_erfcinv_scalar, x)


publish(globals())
