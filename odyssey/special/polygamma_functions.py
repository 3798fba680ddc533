"""Digamma and polygamma functions, with the names of SciPy.

The coefficients below interpolate, at Chebyshev points and with 60 digits: digamma(x) / (x - root)
for 1 <= x <= 2, to 1.6e-17; and x**2 (log(x) - 1 / (2 x) - digamma(x)) (DLMF 5.11.2), as a function
of 1 / x**2, for x >= 2, to 2.4e-16. Negative numbers are reflected (DLMF 5.5.4, 5.15.6), with
angles in multiples of pi, which are exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.choice import where
from odyssey.ops.structure.shape import broadcast_to, shape_of
from odyssey.special.scalar_formulas import (
    BERNOULLI,
    NO_COMPLEX,
    cot_pi,
    integer_threshold,
    order_option,
    polynomial,
)
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample, singles

_NEAR_ROOT = [
    *(-8.25512972008104e-11, 2.4765474440031764e-10, -2.889363639216111e-10),
    *(8.668257373761658e-10, -3.6788868183645545e-09, 1.10370884388543e-08),
    *(-3.166618072027162e-08, 9.500926192924096e-08, -2.8628755280038686e-07),
    *(8.591324222417666e-07, -2.578107848270217e-06, 7.741156881253708e-06),
    *(-2.325823828431376e-05, 6.995020484160625e-05, -0.00021074841215733007),
    *(0.000636888028319074, -0.0019350666647832667, 0.005936795278433826, -0.018550615381738605),
    *(0.06013562106019355, -0.21181371064073026, 0.951055876031833),
]
_ASYMPTOTIC = [
    *(-2.0392304941474054e-12, 3.869871297510936e-12, 1.6128814136396942e-12),
    *(-2.133660426226009e-12, -1.5219695472454364e-11, 3.404933699807999e-11),
    *(-6.355199544121608e-11, 1.7327023100828967e-10, -5.150294774727888e-10),
    *(1.61235685335512e-09, -5.576127870635281e-09, 2.1829282207988166e-08),
    *(-9.97597342347115e-08, 5.576415713968915e-07, -4.09937936440629e-06),
    *(4.4839052951413235e-05, -0.0009367704342562904, 0.08234693724440534),
]
# Positive root of digamma as a sum of two numbers, in single and in double precision.
_ROOT_SINGLE = (1.4616321325302124, 1.2438149938918909e-08)
_ROOT_DOUBLE = (1.4616321449683622, 9.549995429965697e-17)
# Highest derivative of digamma.
_MAX_ORDER = 100


def _digamma_scalar(x: Any) -> Any:
    below = x < T(-0.5)
    y = abs(x)
    z = select(below, y, x)
    far = math.log(y) - T(0.5) / y - polynomial(T(8) / (y * y) - T(1), _ASYMPTOTIC) / (y * y)
    # Shifted to [1, 2] by one or two steps of the recurrence.
    shifted = select(y < T(1), z + select(z < T(0), T(2), T(1)), y)
    first, second = _ROOT_DOUBLE if T.max > 1e300 else _ROOT_SINGLE
    near = ((shifted - T(first)) - T(second)) * polynomial(T(2) * shifted - T(3), _NEAR_ROOT)
    steps = select(z < T(0), (T(1) + T(2) * z) / (z * (T(1) + z)), T(1) / z)
    inner = select(y < T(1), near - steps, near)
    value = select(y < T(2), inner, far)
    stopped = select(y > integer_threshold(), integer_threshold(), y)
    cotangent, pole = cot_pi(stopped)
    mirrored = value + T(1) / y + T(math.pi) * cotangent
    return select(below, select(pole, T(math.nan), mirrored), value)


_DIRECT_TERMS = 10


def _integer_power(base: Any, exponent: int) -> Any:
    result = base if exponent % 2 else T(1)
    while exponent := exponent // 2:
        base = base * base
        if exponent % 2:
            result = result * base
    return result


def _representable(number: float) -> Any:
    return T(min(number, T.max))


def _digamma_derivative_scalar(x: Any, order: int) -> Any:
    """Euler–Maclaurin formula (DLMF 2.10.1) for the sum of ``(x + k)**-s``."""
    s = order + 1
    z = select(x < T(0), T(1) - x, x)
    # A large factorial is distributed over the terms, so that it does not overflow.
    scale = math.factorial(order) ** (1 / s) if order > 20 else 1.0
    total = _integer_power(T(scale) / z, s)
    for k in range(1, _DIRECT_TERMS):
        total = total + _integer_power(T(scale) / (z + T(k)), s)
    w = z + T(_DIRECT_TERMS)
    last = _integer_power(T(scale) / w, order)
    # Nested evaluation, so that no term overflows.
    rest, square = T(1), w * w
    for j in range(len(BERNOULLI) - 1, 0, -1):
        ratio = BERNOULLI[j] / BERNOULLI[j - 1] * (s + 2 * j - 1) * (s + 2 * j)
        rest = T(1) + T(ratio) * rest / square
    rest = T(BERNOULLI[0] * s) * rest
    total = total + last * (T(scale / order) + (T(0.5 * scale) + T(scale) * rest / w) / w)
    total = total * T(math.factorial(order) if order <= 20 else 1)
    odd = order % 2 == 1
    right = total if odd else -total
    # Reflection: derivatives of the cotangent are polynomials of the cotangent.
    y = abs(x)
    stopped = select(y > integer_threshold(), integer_threshold(), y)
    opposite, pole = cot_pi(stopped)
    cotangent = -opposite
    square = cotangent * cotangent
    first, *others = _cotangent_polynomial(order)
    reflection = _representable(first)
    for coefficient in others:
        reflection = reflection * square + _representable(coefficient)
    reflection = reflection if odd else reflection * cotangent
    mirrored = reflection - right if odd else right - reflection
    mirrored = select(pole, T(math.inf if odd else math.nan), mirrored)
    return select(x < T(0), mirrored, right)


def _cotangent_polynomial(order: int) -> list[float]:
    """Coefficients, highest first, of ``pi`` times a derivative of ``c = cot(pi x)``, up to sign.

    The derivative is a polynomial of every other power of c; one more derivative differentiates it
    in c and multiplies by pi (1 + c**2).
    """
    powers = [0, 1]
    for _ in range(order):
        slopes = [k * a for k, a in enumerate(powers)][1:]
        powers = [
            (slopes[k] if k < len(slopes) else 0) + (slopes[k - 2] if k >= 2 else 0)
            for k in range(len(slopes) + 2)
        ]
    kept = powers[::-1][::2]
    return [a * math.pi ** (order + 1) for a in kept]


# ------------------------------------------------------------------ ops


_SAMPLES = (*singles(low=0.5, high=4.0), sample((5,), low=-0.9, high=-0.2))


@op(
    elementwise=True,
    aliases=["psi"],
    scalar=_digamma_scalar,
    vjp={"x": lambda g, x: mul(g, digamma_derivative(x, order=1))},
    kinks="inf at 0 and at negative integers, where the result is NaN, and at -inf",
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def digamma(x: Any, /) -> Any:
    """Elementwise digamma function, the derivative of the logarithm of the gamma function."""
    return on_arrays(_digamma_scalar, x)


@op(
    elementwise=True,
    prepare=lambda order: (order_option("digamma_derivative", order, 1, _MAX_ORDER),),
    scalar=_digamma_derivative_scalar,
    vjp={"x": lambda g, x, order: mul(g, digamma_derivative(x, order=order + 1))},
    kinks="inf at integers up to 0, or NaN if both sides differ in sign",
    samples=[
        *(sample(*s.operands, low=s.low, high=s.high, order=1) for s in _SAMPLES),
        *(sample((3,), low=1.0, high=9.0, order=order) for order in (2, 21)),
    ],
    rejects=[
        reject((3,), order=0, error=DTypeError, match="from 1 to 100"),
        reject((3,), order=101, error=DTypeError, match="from 1 to 100"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
        reject(np.array([1j]), order=1, error=DTypeError, match="needs real numbers"),
    ],
)
def digamma_derivative(x: Any, /, *, order: int) -> Any:
    """Elementwise derivative of the digamma function, of order 1 to 100."""
    return on_arrays(_digamma_derivative_scalar, x, options=(order,))


@composite(
    samples=[
        sample(0, (2, 3), low=0.5),
        sample(2, (2, 3), low=0.5),
        sample(np.array([[0], [1], [3]]), (2,), low=0.5),
    ],
    rejects=[
        reject(-1, (3,), error=DTypeError, match="n is -1"),
        reject(0.5, (3,), error=DTypeError, match="n has dtype float64"),
        reject(101, (3,), error=DTypeError, match="n is 101"),
    ],
)
def polygamma(n: Any, x: Any) -> Any:
    """Elementwise polygamma function, the derivative of order ``n`` of digamma.

    Args:
        n: Integers from 0 to 100, an int or an array that broadcasts with ``x``; constant.
        x: Real numbers.

    Raises:
        DTypeError: if ``n`` is not an integer from 0 to 100, or an array of these.

    >>> polygamma(1, np.array([1.0, 2.0])).round(6)  # pi**2 / 6, and 1 less
    array([1.644934, 0.644934])
    """
    orders = _check_orders(n)
    first, *others = sorted(set(orders.ravel().tolist())) or [0]
    out = _polygamma_of_order(first, x)
    for order in others:
        out = where(np.equal(orders, order), _polygamma_of_order(order, x), out)
    shape = np.broadcast_shapes(orders.shape, shape_of(x))
    return out if shape_of(out) == shape else broadcast_to(out, shape)


def _check_orders(n: Any) -> Any:
    orders = as_array("polygamma", "n", n)
    if orders.dtype.kind not in "iu":
        raise DTypeError(f"polygamma: n has dtype {orders.dtype}; pass an int or an array of ints")
    wrong = (orders < 0) | (orders > _MAX_ORDER)
    if wrong.any():
        raise DTypeError(f"polygamma: n is {orders[wrong][0]}; orders go from 0 to {_MAX_ORDER}")
    return orders


def _polygamma_of_order(order: int, x: Any) -> Any:
    return digamma_derivative(x, order=order) if order else digamma(x)


publish(globals())
