"""What the elementwise rows and their derivatives are, from calculus, in many digits.

A reference is the function and its partial derivatives of first and second order in mpmath. Where
a formula has no value the limit stands: at infinity, or from the side that the sign of a zero
says. Where there is no derivative, ``stated`` says what the row's ``kinks`` promise.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import mpmath
from mpmath import mp, mpf

DIGITS = 120
log, exp, sqrt, tanh = mpmath.log, mpmath.exp, mpmath.sqrt, mpmath.tanh
INF, NAN = math.inf, math.nan


class Unary(NamedTuple):
    """A function of one number with its two derivatives; ``stated``: point to both."""

    f: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    bend: Callable[[Any], Any]
    stated: Mapping[float, tuple[float, float]] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    # Of the derivatives: they are differences of numbers around 1, and so exact to its rounding.
    absolute: bool = False
    # Of the numbers: how many units of rounding.
    rounding: int = 64
    # Beyond the domain, where the result is NaN, the derivatives go on as these formulas.
    beyond: bool = False
    # NaN may choose a side: what its slope is then, is stated with the choices.
    chooses: bool = False
    # Where the second derivative may be NaN though there is a limit.
    no_bend: frozenset[float] = frozenset()
    # At -0.0 infinite with the sign of the zero.
    signed_zero: bool = False
    # Close to the largest numbers it may be NaN, since it multiplies them.
    overflows: bool = False
    # The value is exact to the rounding of 1 as well: it is 0 at multiples of a rounded number.
    periodic: bool = False


# ------------------------------------------------------------------ limits


def value(function, *numbers):
    """``function`` at ``numbers`` as a real number, NaN where it has no value there."""
    try:
        out = function(*numbers)
    except (ZeroDivisionError, ValueError, OverflowError):
        return mp.nan
    if isinstance(out, mpmath.mpc):
        return out.real if out.imag == 0 else mp.nan
    return mpf(out)


def trend(near, far):
    """Where a sequence goes of which two members are known, the second much farther on."""
    if mpmath.isnan(near) or mpmath.isnan(far):
        return mp.nan
    if near == far or abs(near - far) <= mpf(10) ** -20 * abs(far):
        return far
    if abs(far) <= abs(near) / 1.5:
        return mpf(0)
    if abs(far) >= 1.5 * abs(near) and near * far > 0:
        return mp.inf * mpmath.sign(far)
    return mp.nan


def approach(x, step):
    """A number close to ``x`` on the side that a zero's sign says, or far out if it is infinite."""
    sign = mpf(math.copysign(1, x))
    if math.isinf(x):
        return sign * mpf(10) ** step
    return mpf(x) + (abs(mpf(x)) or sign) * mpf(10) ** -step


def limit(function, x, domain=None):
    """``function`` at ``x`` or, where that has no value, as its argument goes there.

    From the side where ``domain`` is a number, if it is one on one side only.
    """
    if math.isnan(x):  # what does not depend on it is a number after all
        return value(function, mp.nan)
    if math.isfinite(x):
        direct = value(function, mpf(x))
        if mpmath.isfinite(direct):
            return direct
    near, far = (approach(x, step) for step in (25, 50))
    if math.isfinite(x) and mpmath.isnan(value(domain or function, near)):
        near, far = 2 * mpf(x) - near, 2 * mpf(x) - far
    return trend(value(function, near), value(function, far))


def of_one(reference, x):
    """What a function of one number and its two derivatives are to be at ``x``."""
    f, slope, bend, stated = reference[:4]

    def inside(derivative):
        if reference.beyond:
            return derivative
        return lambda v: mp.nan if mpmath.isnan(value(f, v)) and v == v else derivative(v)

    wanted = limit(f, x), limit(inside(slope), x, f), limit(inside(bend), x, f)
    return (wanted[0], *map(mpf, stated[x])) if x in stated else wanted


# ------------------------------------------------------------------ functions of one number


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x)) if mpmath.re(x) >= 0 else mpmath.exp(x) / (1 + mpmath.exp(x))


def logistic_slope(x):
    return sigmoid(x) * sigmoid(-x)


def softplus(x):
    return max(x, mpf(0)) + mpmath.log1p(mpmath.exp(-abs(x)))


def mish_parts(x):
    """``tanh(softplus(x))`` and its derivatives."""
    w, s, fall = tanh(softplus(x)), sigmoid(x), mpmath.sech(softplus(x)) ** 2
    _, rise, turn, _ = logistic_parts(x)
    third = turn - 6 * w * s * rise + (4 * w * w - 2 * fall) * s**3
    return w, fall * s, fall * (rise - 2 * w * s * s), fall * third


def normal_parts(x):
    """The chance that a standard normal number is below ``x``, and its derivatives."""
    far = mpf(10) ** 6  # beyond which erfc takes very long to find that it is 0 or 2
    chance = mpmath.erfc(-x / mpmath.sqrt(2)) / 2 if abs(x) < far else mpf(x > 0) + 0 * x
    density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
    return chance, density, -x * density, (x * x - 1) * density


def by_tanh_parts(x):
    """The same chance as GELU approximates it."""
    k, cubic = 2 * mpmath.sqrt(2 / mpmath.pi), mpf(0.044715)
    u, steep, bent = k * (x + cubic * x**3), k * (1 + 3 * cubic * x * x), 6 * k * cubic * x
    gate, slope, bend, third = logistic_parts(u)
    turn = slope * bent + bend * steep**2
    return (
        gate,
        slope * steep,
        turn,
        third * steep**3 + 3 * bend * steep * bent + slope * 6 * k * cubic,
    )


def logistic_parts(x):
    slope = logistic_slope(x)
    return sigmoid(x), slope, slope * -tanh(x / 2), slope * (1 - 6 * slope)


def _gated(parts):
    """``x`` times a function that is given with its derivatives, and three derivatives."""

    def derivative(order):
        return lambda x: order * parts(x)[order - 1] + x * parts(x)[order]

    return lambda x: x * parts(x)[0], derivative(1), derivative(2), derivative(3)


def gated(parts, **more):
    return Unary(*_gated(parts)[:3], **more)


def slope_of_gated(parts, **more):
    return Unary(*_gated(parts)[1:], **more)


def pieces(x, *borders_and_functions):
    """The function of the piece that ``x`` lies in: f0, border, f1, border, f2 ..."""
    functions, borders = borders_and_functions[::2], borders_and_functions[1::2]
    return functions[sum(x > border for border in borders)](x)


def zero(x):
    return mpf(0)


def one(x):
    return mpf(1)


def straight(*slopes_and_borders):
    """A function made of straight pieces has these slopes between the borders, and no bend."""
    given = [lambda x, s=s: mpf(s) for s in slopes_and_borders]
    given[1::2] = slopes_and_borders[1::2]
    return lambda x: pieces(x, *given)


SELU_SCALE, SELU_LEFT = mpf(1.0507009873554805), mpf(1.7580993408473766)


def softsign(x):
    return x / (1 + abs(x))


def bell(x):
    return 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x)


def cbrt(x):
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def elu(x, scale, left):
    return scale * x if x > 0 else left * mpmath.expm1(x)


def elu_reference(scale, left, **options):
    """The slope at 0, and its slope, are those from the left."""

    def below(x):
        return left * mpmath.exp(x)

    return Unary(
        lambda x: elu(x, scale, left),
        lambda x: mpf(scale) if x > 0 else below(x),
        lambda x: mpf(0) if x > 0 else below(x),
        options=options,
        chooses=True,
    )


def hard_swish(x):
    return pieces(x, zero, -3, lambda x: x * (x + 3) / 6, 3, lambda x: x)


def ends(slope, *places):
    """The slope, and no bend, at some places."""
    return dict.fromkeys(places, (slope, 0.0))


def chosen(f, slopes, stated, **options):
    return Unary(f, straight(*slopes), zero, stated, options, chooses=True)


def steps(f):
    return Unary(f, zero, zero)


FLAT = {0.0: (0.0, 0.0)}


def sine_quotient(z, n=0):
    """The spherical Bessel function over ``z**n``, by its series or by sines."""
    if abs(z) < 1:
        terms = (
            (-z * z / 2) ** k / mpmath.factorial(k) / mpmath.fac2(2 * n + 2 * k + 1)
            for k in range(60)
        )
        return mpmath.fsum(terms)
    before, now = mpmath.cos(z), mpmath.sin(z) / z
    for k in range(n):
        before, now = now, ((2 * k + 1) * now - before) / z**2
    return now


def quotient(n):
    return Unary(
        lambda z: sine_quotient(z, n),
        lambda z: -z * sine_quotient(z, n + 1),
        # By the recurrence, z**2 of the next but one.
        lambda z: (2 * n + 2) * sine_quotient(z, n + 1) - sine_quotient(z, n),
        options={"order": n},
        absolute=True,
        overflows=True,
    )


DEGREES = {"deg": True}


def straight_angle(x):
    return mpf(0) if x > 0 else mpmath.pi if x < 0 else mp.nan


def at_poles(x):
    """Whether ``x`` is a negative whole number, or next to one, as all large floating ones are."""
    return x < mpf(-0.5) and (x < -(10**7) or abs(x - mpmath.nint(x)) < mpf(10) ** -20)


def off_poles(f, there=mp.nan):
    """A function of the gamma family; and what it is at negative whole numbers."""
    return lambda x: there if at_poles(x) else f(x)


def order_of_digamma(n):
    """The derivative of digamma of an order, infinite at poles where both sides agree."""
    return off_poles(lambda x: mpmath.polygamma(n, x), mp.inf if n % 2 else mp.nan)


def gamma_slope(x):
    return mpmath.gamma(x) * mpmath.digamma(x)


def gamma_bend(x):
    return mpmath.gamma(x) * (mpmath.digamma(x) ** 2 + mpmath.polygamma(1, x))


def finite_gamma(f):
    """Where the gamma function is infinite in double precision, a number that is too large."""
    return off_poles(lambda x: mpf(10) ** 1000 * x if x > 10**4 else f(x))


@lru_cache(maxsize=1000)
def scaled_erfc(x, n=0):
    """``e**(x**2)`` times the integral of erfc, repeated ``n`` times."""
    if x < -40:  # where it is infinite in double precision, a number that is too large
        return mpf(10) ** 1000 * -x
    if x >= 8:  # by the continued fraction
        ratio, product = 1 / (2 * x), 2 / sqrt(mpmath.pi)
        for k in range(400, -1, -1):
            ratio = 1 / (2 * x + 2 * (k + 1) * ratio)
            product = product * ratio if k <= n else product
        return product
    with mp.workdps(300):
        before, now = 2 / sqrt(mpmath.pi), exp(x * x) * mpmath.erfc(x)
        for k in range(n):
            before, now = now, (before - 2 * x * now) / (2 * k + 2)
        return now


def falling(n, **more):
    return Unary(
        lambda x: scaled_erfc(x, n),
        lambda x: -2 * (n + 1) * scaled_erfc(x, n + 1),
        lambda x: 4 * (n + 1) * (n + 2) * scaled_erfc(x, n + 2),
        **more,
    )


def mills(x):
    """The density of a normal number over the chance to lie below ``x``."""
    return sqrt(2 / mpmath.pi) / scaled_erfc(-x / sqrt(2))


def mills_slope(x):
    z = -x / sqrt(2)
    return -mills(x) * sqrt(2) * scaled_erfc(z, 1) / scaled_erfc(z)


def mills_bend(x):
    if x < -(10**20):
        return -2 / x**3
    slope = mills_slope(x)
    return -slope * sqrt(2) * scaled_erfc(-x / sqrt(2), 1) / scaled_erfc(-x / sqrt(2)) - (
        mills(x) * (1 + slope)
    )


def log_ndtr(x):
    if x > 0:
        return mpmath.log1p(-normal_parts(-x)[0])
    return log(scaled_erfc(-x / sqrt(2)) / 2) - x * x / 2


@lru_cache(maxsize=1000)
def ndtri(p):
    """By Newton's method on logarithms; infinite so close to the ends as limits are looked for."""
    if not 0 <= p <= 1:
        return mp.nan
    if p > mpf(0.5):
        return -ndtri(1 - p)
    if p == 0 or any(abs(n * p / mpf(10) ** -k - 1) < 1e-20 for k in (25, 50) for n in (1, 2)):
        return -mp.inf
    x = -sqrt(-2 * log(2 * p)) if p < mpf(0.1) else (p - mpf(0.5)) * sqrt(2 * mpmath.pi)
    for _ in range(60):
        step = (log_ndtr(x) - log(p)) / mills(x)
        x -= step
        if abs(step) < mpf(10) ** -(mp.dps - 20):
            break
    return x


def quantile(f, scale, bend):
    """``f`` with the slope ``scale * e**(bend / 2 * f**2)``."""

    def slope(x):
        return scale * exp(bend * f(x) ** 2 / 2)

    return Unary(f, slope, lambda x: bend * f(x) * slope(x) ** 2, rounding=4096)


def erfinv(x):
    return sqrt(mpmath.pi) * x / 2 if abs(x) < mpf(10) ** -60 else ndtri((x + 1) / 2) / sqrt(2)


def erfcinv(x):
    return -ndtri(x / 2) / sqrt(2)


@lru_cache(maxsize=1000)
def moment(x, n=0):
    """The integral of ``t**n e**(x t)`` from 0 to 1."""
    if abs(x) > 10**6:  # to the right infinite in double precision
        return mpf(10) ** 1000 * x if x > 0 else mpmath.factorial(n) / (-x) ** (n + 1)
    if abs(x) < 1:
        return mpmath.fsum(x**k / mpmath.factorial(k) / (n + k + 1) for k in range(90))
    with mp.workdps(200):
        found = mpmath.expm1(x) / x
        for k in range(1, n + 1):
            found = (exp(x) - k * found) / x
        return found


def moments(n, **more):
    return Unary(*(lambda x, k=k: moment(x, n + k) for k in range(3)), **more)


@lru_cache(maxsize=1000)
def bessel(x, n):
    """``I_n(x) / x**n``; where it is infinite in double precision, a number that is too large."""
    if abs(x) > 2000:
        return mpf(10) ** 1000 * abs(x)
    return mpmath.hyp0f1(n + 1, x * x / 4) / mpf(2) ** n / mpmath.factorial(n)


def bessels(n, **more):
    return Unary(
        lambda x: bessel(x, n),
        lambda x: x * bessel(x, n + 1),
        lambda x: bessel(x, n + 1) + x * x * bessel(x, n + 2),
        **more,
    )


@lru_cache(maxsize=1000)
def fallen_bessel(x, n):
    """``e**-x I_n(x) / x**n`` for a positive ``x``, from 2000 on by its asymptotic series."""
    if x <= 2000:
        return exp(-x) * bessel(x, n)
    term = total = mpf(1)
    for k in range(1, 60):
        term *= -mpf(4 * n * n - (2 * k - 1) ** 2) / (8 * k * x)
        total += term
    return total / sqrt(2 * mpmath.pi * x) / x**n


def fallen_slope(x, n):
    y, f = abs(x), fallen_bessel
    return mpmath.sign(x) * (y * f(y, n + 1) - f(y, n))


def fallen_bend(x, n):
    y, f = abs(x), fallen_bessel
    return y * y * f(y, n + 2) + f(y, n + 1) - 2 * y * f(y, n + 1) + f(y, n)


def fallen(n, at_zero, **more):
    parts = fallen_bessel, fallen_slope, fallen_bend
    return Unary(
        lambda x: parts[0](abs(x), n),
        *(lambda x, f=f: f(x, n) for f in parts[1:]),
        {0.0: (0.0, at_zero)},
        absolute=True,
        **more,
    )


def fallen_odd():
    """The same of order 1, with its sign, by parts from what it is over x."""

    def slope(x):
        return fallen_bessel(abs(x), 1) + x * fallen_slope(x, 1)

    def bend(x):
        return 2 * fallen_slope(x, 1) + x * fallen_bend(x, 1)

    return Unary(
        lambda x: x * fallen_bessel(abs(x), 1), slope, bend, {0.0: (0.5, 0.0)}, absolute=True
    )


UNARY = {
    "negative": Unary(lambda x: -x, lambda x: -one(x), zero),
    "square": Unary(lambda x: x * x, lambda x: 2 * x, lambda x: 2 * one(x)),
    "absolute": Unary(abs, mpmath.sign, zero, FLAT),
    "sign": Unary(mpmath.sign, zero, zero, FLAT),
    "conj": Unary(lambda x: x, one, zero),
    "real": Unary(lambda x: x, one, zero),
    "imag": Unary(zero, zero, zero),
    "exp": Unary(exp, exp, exp),
    "log": Unary(log, lambda x: 1 / x, lambda x: -1 / x**2, signed_zero=True, beyond=True),
    "exp2": Unary(
        lambda x: mpf(2) ** x, lambda x: mpf(2) ** x * log(2), lambda x: mpf(2) ** x * log(2) ** 2
    ),
    "expm1": Unary(mpmath.expm1, exp, exp),
    "log2": Unary(
        lambda x: log(x) / log(2),
        lambda x: 1 / x / log(2),
        lambda x: -1 / x**2 / log(2),
        signed_zero=True,
        beyond=True,
    ),
    "log10": Unary(
        mpmath.log10,
        lambda x: 1 / x / log(10),
        lambda x: -1 / x**2 / log(10),
        signed_zero=True,
        beyond=True,
    ),
    "log1p": Unary(mpmath.log1p, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2, beyond=True),
    "sqrt": Unary(
        sqrt, lambda x: 1 / (2 * sqrt(x)), lambda x: -1 / (4 * sqrt(x) ** 3), signed_zero=True
    ),
    "rsqrt": Unary(
        lambda x: 1 / sqrt(x),
        lambda x: -1 / (2 * sqrt(x) ** 3),
        lambda x: mpf(3) / 4 / sqrt(x) ** 5,
        signed_zero=True,
    ),
    "cbrt": Unary(cbrt, lambda x: 1 / (3 * cbrt(x) ** 2), lambda x: -2 / (9 * cbrt(x) ** 5)),
    "reciprocal": Unary(lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3),
    "tanh": Unary(
        tanh,
        lambda x: mpmath.sech(x) ** 2,
        lambda x: -2 * tanh(x) * mpmath.sech(x) ** 2,
        absolute=True,
    ),
    "erf": Unary(mpmath.erf, bell, lambda x: -2 * x * bell(x)),
    "erfc": Unary(
        lambda x: mpmath.erfc(x) if abs(x) < 10**6 else mpf(2 * (x < 0)) + 0 * x,
        lambda x: -bell(x),
        lambda x: 2 * x * bell(x),
    ),
    "exprel": moments(0),
    "exponential_moment, 1": moments(1, options={"order": 1}),
    "exponential_moment, 5": moments(5, options={"order": 5}),
    "i0": bessels(0),
    "i1": Unary(
        lambda x: x * bessel(x, 1),
        lambda x: bessel(x, 1) + x * x * bessel(x, 2),
        lambda x: 3 * x * bessel(x, 2) + x**3 * bessel(x, 3),
    ),
    "bessel_quotient, 0": bessels(0, options={"order": 0}),
    "bessel_quotient, 2": bessels(2, options={"order": 2}),
    "i0e": fallen(0, 0.5),
    "i1e": fallen_odd(),
    "bessel_quotient, 1, scaled": fallen(1, 0.125, options={"order": 1, "scaled": True}),
    "entr": Unary(
        lambda x: -x * log(x) if x > 0 else -mp.inf if x < 0 else x,
        # At -0.0 what it is at 0.0.
        lambda x: -log(-x if x in (-(mpf(10) ** -25), -(mpf(10) ** -50)) else x) - 1,
        lambda x: -1 / x,
    ),
    "erfcx": falling(0),
    "scaled_erfc_integral, 1": falling(1, options={"order": 1}),
    "scaled_erfc_integral, 2": falling(2, options={"order": 2}),
    "ndtr": Unary(*(lambda x, k=k: normal_parts(x)[k] for k in range(3)), rounding=2048),
    "log_ndtr": Unary(log_ndtr, mills, mills_slope),
    "inverse_mills_ratio": Unary(mills, mills_slope, mills_bend, absolute=True),
    "ndtri": quantile(ndtri, sqrt(2 * mpmath.pi), 1),
    "erfinv": quantile(erfinv, sqrt(mpmath.pi) / 2, 2),
    "erfcinv": quantile(erfcinv, -sqrt(mpmath.pi) / 2, 2),
    "sigmoid": Unary(
        sigmoid, logistic_slope, lambda x: logistic_slope(x) * -tanh(x / 2), absolute=True
    ),
    "log_sigmoid": Unary(
        lambda x: -softplus(-x), lambda x: sigmoid(-x), lambda x: -logistic_slope(x), absolute=True
    ),
    "softplus": Unary(softplus, sigmoid, logistic_slope, absolute=True),
    "softplus, beta": Unary(
        lambda x: softplus(x * 2.5) / 2.5,
        lambda x: sigmoid(2.5 * x),
        lambda x: 2.5 * logistic_slope(2.5 * x),
        options={"beta": 2.5},
        absolute=True,
    ),
    "silu": gated(logistic_parts, absolute=True),
    "mish": gated(mish_parts, absolute=True),
    "silu_slope": slope_of_gated(logistic_parts, absolute=True, periodic=True),
    "mish_slope": slope_of_gated(mish_parts, absolute=True, periodic=True),
    "softsign": Unary(
        softsign,
        lambda x: 1 / (1 + abs(x)) ** 2,
        lambda x: -2 * mpmath.sign(x) / (1 + abs(x)) ** 3,
        {0.0: (1.0, 0.0)},
    ),
    "gelu": gated(normal_parts, rounding=2048),
    "gelu, tanh": gated(by_tanh_parts, absolute=True, options={"approximate": "tanh"}),
    "gelu_slope": slope_of_gated(normal_parts, absolute=True, periodic=True),
    "gelu_slope, tanh": slope_of_gated(
        by_tanh_parts, absolute=True, periodic=True, options={"approximate": "tanh"}
    ),
    "sin": Unary(mpmath.sin, mpmath.cos, lambda x: -mpmath.sin(x)),
    "cos": Unary(mpmath.cos, lambda x: -mpmath.sin(x), lambda x: -mpmath.cos(x)),
    "tan": Unary(
        mpmath.tan, lambda x: mpmath.sec(x) ** 2, lambda x: 2 * mpmath.tan(x) * mpmath.sec(x) ** 2
    ),
    "sinh": Unary(mpmath.sinh, mpmath.cosh, mpmath.sinh),
    "cosh": Unary(mpmath.cosh, mpmath.sinh, mpmath.cosh),
    "arcsin": Unary(
        mpmath.asin,
        lambda x: 1 / sqrt(1 - x * x),
        lambda x: x / sqrt(1 - x * x) ** 3,
        no_bend=frozenset({1.0}),
        absolute=True,
    ),
    "arccos": Unary(
        mpmath.acos,
        lambda x: -1 / sqrt(1 - x * x),
        lambda x: -x / sqrt(1 - x * x) ** 3,
        no_bend=frozenset({1.0}),
        absolute=True,
    ),
    "arctan": Unary(mpmath.atan, lambda x: 1 / (1 + x * x), lambda x: -2 * x / (1 + x * x) ** 2),
    "arcsinh": Unary(
        mpmath.asinh, lambda x: 1 / sqrt(1 + x * x), lambda x: -x / sqrt(1 + x * x) ** 3
    ),
    "arccosh": Unary(
        mpmath.acosh,
        lambda x: 1 / (sqrt(x - 1) * sqrt(x + 1)),
        lambda x: -x / (sqrt(x - 1) * sqrt(x + 1)) ** 3,
    ),
    "arctanh": Unary(
        mpmath.atanh,
        lambda x: 1 / (1 - x * x),
        lambda x: 2 * x / (1 - x * x) ** 2,
        beyond=True,
        no_bend=frozenset({1.0}),
        absolute=True,
    ),
}
UNARY |= {
    "fabs": UNARY["absolute"],
    "deg2rad": Unary(lambda x: x * mpmath.pi / 180, lambda x: mpmath.pi / 180 + 0 * one(x), zero),
    "rad2deg": Unary(
        lambda x: x * 180 / mpmath.pi, lambda x: 180 / mpmath.pi + 0 * one(x), zero, overflows=True
    ),
    "angle": steps(straight_angle),
    "angle, deg": Unary(lambda x: straight_angle(x) * 180 / mpmath.pi, zero, zero, options=DEGREES),
    "logit": Unary(
        lambda x: log(x / (1 - x)),
        lambda x: 1 / x + 1 / (1 - x),
        lambda x: 1 / (1 - x) ** 2 - 1 / x**2,
        absolute=True,
        beyond=True,
        signed_zero=True,
    ),
    "gammaln": Unary(
        off_poles(lambda x: mpmath.loggamma(x) if x > 9 else log(abs(mpmath.gamma(x))), mp.inf),
        order_of_digamma(0),
        order_of_digamma(1),
        absolute=True,
    ),
    "gamma": Unary(finite_gamma(mpmath.gamma), finite_gamma(gamma_slope), finite_gamma(gamma_bend)),
    "digamma": Unary(*map(order_of_digamma, range(3)), absolute=True, beyond=True),
    "digamma_derivative, 1": Unary(*map(order_of_digamma, range(1, 4)), options={"order": 1}),
    "digamma_derivative, 2": Unary(
        *map(order_of_digamma, range(2, 5)), options={"order": 2}, beyond=True
    ),
    "sine_quotient, 0": quotient(0),
    "sine_quotient, 1": quotient(1),
    "sine_quotient, 2": quotient(2),
    "sinc": Unary(
        lambda x: sine_quotient(mpmath.pi * x),
        lambda x: -(mpmath.pi**2) * x * sine_quotient(mpmath.pi * x, 1),
        lambda x: (
            mpmath.pi**2 * (2 * sine_quotient(mpmath.pi * x, 1) - sine_quotient(mpmath.pi * x))
        ),
        absolute=True,
        overflows=True,
        periodic=True,
    ),
    "floor": steps(mpmath.floor),
    "ceil": steps(mpmath.ceil),
    "round": steps(mpmath.nint),
    "rint": steps(mpmath.nint),
    "trunc": steps(lambda x: mpmath.sign(x) * mpmath.floor(abs(x))),
    "fix": steps(lambda x: mpmath.sign(x) * mpmath.floor(abs(x))),
    "relu": chosen(lambda x: max(x, mpf(0)), (0, 0, 1), ends(0.0, 0.0)),
    "relu6": chosen(lambda x: min(max(x, mpf(0)), mpf(6)), (0, 0, 1, 6, 0), ends(0.0, 0.0, 6.0)),
    "leaky_relu": chosen(
        lambda x: x * (1 if x > 0 else 0.25), (0.25, 0, 1), ends(0.25, 0.0), negative_slope=0.25
    ),
    "elu": elu_reference(1.0, 0.5, alpha=0.5),
    "selu": elu_reference(SELU_SCALE, SELU_LEFT),
    "celu": Unary(
        lambda x: x if x > 0 else mpmath.expm1(2 * x) / 2,
        lambda x: mpf(1) if x > 0 else mpmath.exp(2 * x),
        lambda x: mpf(0) if x > 0 else 2 * mpmath.exp(2 * x),
        options={"alpha": 0.5},
        chooses=True,
    ),
    "hard_shrink": chosen(
        lambda x: x if abs(x) > 1 else mpf(0), (1, -1, 0, 1, 1), ends(0.0, -1.0, 1.0), lambd=1.0
    ),
    "soft_shrink": chosen(
        lambda x: max(x - 1, mpf(0)) + min(x + 1, mpf(0)),
        (1, -1, 0, 1, 1),
        ends(0.0, -1.0, 1.0),
        lambd=1.0,
    ),
    "threshold": chosen(
        lambda x: x if x > 1 else mpf(3), (0, 1, 1), ends(0.0, 1.0), threshold=1.0, value=3.0
    ),
    "hard_sigmoid": chosen(
        lambda x: min(max(x + 3, mpf(0)), mpf(6)) / 6,
        (0, -3, mpf(1) / 6, 3, 0),
        ends(0.0, -3.0, 3.0),
    ),
    "hard_swish": Unary(
        hard_swish,
        lambda x: pieces(x, zero, -3, lambda x: (2 * x + 3) / 6, 3, one),
        lambda x: pieces(x, zero, -3, lambda x: mpf(1) / 3, 3, zero),
        ends(0.0, -3.0) | ends(1.0, 3.0),
        chooses=True,
    ),
    "hard_tanh": chosen(
        lambda x: min(max(x, mpf(-1)), mpf(1)), (0, -1, 1, 1, 0), ends(0.0, -1.0, 1.0)
    ),
    "clip": chosen(
        lambda x: min(max(x, mpf(-1)), mpf(2)),
        (0, -1, 1, 2, 0),
        ends(1.0, -1.0, 2.0),
        a_min=-1.0,
        a_max=2.0,
    ),
}


# ------------------------------------------------------------------ functions of two numbers


class Binary(NamedTuple):
    """The partial derivatives: in x, in y, twice in x, in both, twice in y."""

    x: Callable[[Any, Any], Any]
    y: Callable[[Any, Any], Any]
    xx: Callable[[Any, Any], Any]
    xy: Callable[[Any, Any], Any]
    yy: Callable[[Any, Any], Any]
    stated: Callable[[float, float], dict[str, float]] = lambda x, y: {}
    # The powers of ten that stand for infinity, and their inverses for 0.
    reach: tuple[int, int] = (400, 400)
    # Of the second derivatives: each is a difference of numbers like the largest of them.
    together: bool = False
    chooses: bool = False
    # As of one number.
    absolute: bool = False


# How fast two numbers go to their limits: a limit is one only if it is the same on each way.
RATES = (1, 1), (1, 3), (3, 1)


def limit_of_two(function, x, y, reach=(400, 400)):
    """``function`` at ``(x, y)``; where that has no value, as both go there in any way.

    Infinite operands always go; one that is 0 goes where there is no value without.
    """
    if math.isnan(x) or math.isnan(y):
        return independent(function, x, y, reach)
    infinite = math.isinf(x), math.isinf(y)
    for zero in ((False, False), (x == 0, False), (False, y == 0), (x == 0, y == 0)):
        found = along(function, (x, y), tuple(map(max, infinite, zero)), reach)
        if not mpmath.isnan(found):
            return found
    if x == 0 and math.copysign(1, x) < 0:  # the domain may lie on the other side
        return limit_of_two(function, 0.0, y, reach)
    return mp.nan


def independent(function, x, y, reach):
    """The value where an operand is NaN: a number only if it does not depend on the operand."""
    places = [tuple(known if math.isnan(v) else v for v in (x, y)) for known in (1.25, 2.5)]
    one, other = (limit_of_two(function, *place, reach) for place in places)
    return one if one == other else mp.nan


def along(function, numbers, moving, reach):
    if not any(moving):
        direct = value(function, *map(mpf, numbers))
        return direct if mpmath.isfinite(direct) else mp.nan
    found = []
    for rates in RATES if all(moving) else RATES[:1]:
        near, far = (
            value(
                function,
                *(
                    approach(v, n * r * far) if m else mpf(v)
                    for v, r, m, far in zip(numbers, rates, moving, reach, strict=True)
                ),
            )
            for n in (1, 2)
        )
        found.append(trend(near, far))
    same = all(f == found[0] or abs(f - found[0]) < 1e-20 for f in found)
    return found[0] if same else mp.nan


def c(number):
    return lambda x, y: mpf(number)


def radius(x, y):
    return mpmath.sqrt(x * x + y * y)


def power_log(x, y, n=1):
    return x**y * log(x) ** n


def mixed_power(x, y):
    return x ** (y - 1) * (1 + y * log(x))


def power_stated(x, y):
    """What ``kinks`` of power says, and what is 0 because x**0 is 1 everywhere."""
    found = {}
    if y == 0:
        found |= {"x": 0.0, "xx": 0.0}
    if x == 0 and y >= 0:
        found["y"] = 0.0
    if x == 0 and y == 0:
        found |= {"xy": NAN, "yy": NAN}
    if x < 0:
        found |= {"y": NAN, "xy": NAN, "yy": NAN}
        if math.isinf(y) or y % 1:
            found |= {"x": NAN, "xx": NAN}
    if x == 1 and math.isinf(y):
        found["xy"] = NAN
    if math.isnan(x) and y == 1:
        found |= {"x": 1.0, "xx": 0.0}
    return found


def larger(x, y):
    """The slope of the larger of two in the first."""
    return mpf(x > y)


def tie(x, y):
    return {"x": 0.5, "y": 0.5} if x == y else {}


NO_BEND = {"xx": NAN, "xy": NAN, "yy": NAN}


def hypot_stated(x, y):
    if x == y == 0:
        return {"x": 0.0, "y": 0.0, **NO_BEND}
    if math.isinf(x) and math.isinf(y):
        return {"x": NAN, "y": NAN, **NO_BEND}
    return {}


def turned(f):
    """The same in the other order of operands."""
    return lambda x, y: f(y, x)


TURN = {
    "x": lambda x, y: -y / (x * x + y * y),
    "y": lambda x, y: x / (x * x + y * y),
    "xx": lambda x, y: 2 * x * y / (x * x + y * y) ** 2,
    "xy": lambda x, y: (y - x) * (y + x) / (x * x + y * y) ** 2,
    "yy": lambda x, y: -2 * x * y / (x * x + y * y) ** 2,
}


def share(x, y, base=mpmath.e):
    """The slope of the logarithm of a sum of powers in the first exponent."""
    return sigmoid((x - y) * log(base))


def sum_of_powers(base):
    def bend(x, y):
        return log(base) * logistic_slope((x - y) * log(base))

    def nothing(x, y):
        return dict.fromkeys(("x", "y", "xx", "xy", "yy"), 0.0) if x == y == -INF else {}

    return Binary(
        lambda x, y: share(x, y, base),
        lambda x, y: share(y, x, base),
        bend,
        lambda x, y: -bend(x, y),
        bend,
        nothing,
        absolute=True,
    )


def log_quotient(x, y):
    return log(x) - log(y) if x >= 0 and y >= 0 else mp.nan


def log1p_stated(x, y):
    """At the end of the domain, where it is 0 for an x that is 0."""
    if y != -1:
        return {}
    slope = math.copysign(INF, x) if x else 0.0
    return {"x": -INF, "xy": INF, "y": slope, "yy": -slope if x else NAN}


def quotient_stated(x, y, slope):
    if x == y == 0:
        return {"x": NAN, "y": slope, "yy": NAN}
    return {"x": INF} if y == 0 < x else {}


BINARY = {
    "copysign": Binary(
        lambda x, y: mpmath.sign(x) * (1 if y >= 0 else -1),
        c(0),
        c(0),
        c(0),
        c(0),
        # A zero has a sign as well, and the size of one has slope 0.
        lambda x, y: (
            dict.fromkeys(("x", "y", "xx", "xy", "yy"), 0.0)
            if x == 0
            else {"x": math.copysign(1, x) * math.copysign(1, y)}
        ),
    ),
    "heaviside": Binary(c(0), lambda x, y: mpf(x == 0), c(0), c(0), c(0), chooses=True),
    "logaddexp": sum_of_powers(mpmath.e),
    "logaddexp2": sum_of_powers(mpf(2)),
    "xlogy": Binary(
        lambda x, y: log(y),
        lambda x, y: x / y,
        c(0),
        lambda x, y: 1 / y,
        lambda x, y: -x / y**2,
        lambda x, y: ({"x": -INF} if y == 0 else {}) | ({"yy": NAN} if x == y == 0 else {}),
    ),
    "xlog1py": Binary(
        lambda x, y: mpmath.log1p(y),
        lambda x, y: x / (1 + y),
        c(0),
        lambda x, y: 1 / (1 + y),
        lambda x, y: -x / (1 + y) ** 2,
        log1p_stated,
    ),
    "rel_entr": Binary(
        lambda x, y: log_quotient(x, y) + 1,
        lambda x, y: -x / y,
        lambda x, y: 1 / x,
        lambda x, y: -1 / y,
        lambda x, y: x / y**2,
        lambda x, y: quotient_stated(x, y, 0.0),
    ),
    "kl_div": Binary(
        log_quotient,
        lambda x, y: 1 - x / y,
        lambda x, y: 1 / x,
        lambda x, y: -1 / y,
        lambda x, y: x / y**2,
        lambda x, y: quotient_stated(x, y, 1.0),
        absolute=True,
    ),
    "fmax": Binary(larger, turned(larger), c(0), c(0), c(0), tie, chooses=True),
    "fmin": Binary(turned(larger), larger, c(0), c(0), c(0), tie, chooses=True),
    "add": Binary(c(1), c(1), c(0), c(0), c(0)),
    "subtract": Binary(c(1), c(-1), c(0), c(0), c(0)),
    "multiply": Binary(lambda x, y: y, lambda x, y: x, c(0), c(1), c(0)),
    "divide": Binary(
        lambda x, y: 1 / y,
        lambda x, y: -x / y**2,
        c(0),
        lambda x, y: -1 / y**2,
        lambda x, y: 2 * x / y**3,
    ),
    "over_length": Binary(
        lambda x, y: 1 / y,
        lambda x, y: -x / y**2,
        c(0),
        lambda x, y: -1 / y**2,
        lambda x, y: 2 * x / y**3,
        lambda x, y: {"y": NAN, "yy": NAN} if x == y == 0 else {},
    ),
    "power": Binary(
        lambda x, y: y * x ** (y - 1),
        power_log,
        lambda x, y: y * (y - 1) * x ** (y - 2),
        mixed_power,
        lambda x, y: power_log(x, y, 2),
        power_stated,
        reach=(400, 6),
    ),
    "hypot": Binary(
        lambda x, y: x / radius(x, y),
        lambda x, y: y / radius(x, y),
        lambda x, y: y * y / radius(x, y) ** 3,
        lambda x, y: -x * y / radius(x, y) ** 3,
        lambda x, y: x * x / radius(x, y) ** 3,
        hypot_stated,
    ),
    # Its first operand is y.
    "arctan2": Binary(
        turned(TURN["y"]),
        turned(TURN["x"]),
        turned(TURN["yy"]),
        turned(TURN["xy"]),
        turned(TURN["xx"]),
        lambda x, y: {"x": 0.0, "y": 0.0, **NO_BEND} if x == y == 0 else {},
        together=True,
    ),
    "mod": Binary(c(1), lambda x, y: -mpmath.floor(x / y), c(0), c(0), c(0)),
    "fmod": Binary(
        c(1), lambda x, y: -mpmath.sign(x / y) * mpmath.floor(abs(x / y)), c(0), c(0), c(0)
    ),
    "floor_divide": Binary(c(0), c(0), c(0), c(0), c(0)),
    "binary_entropy_with_logits": Binary(
        lambda x, y: sigmoid(x) - y,
        lambda x, y: -x,
        lambda x, y: logistic_slope(x),
        c(-1),
        c(0),
        absolute=True,
    ),
    "maximum": Binary(larger, turned(larger), c(0), c(0), c(0), tie, chooses=True),
    "minimum": Binary(turned(larger), larger, c(0), c(0), c(0), tie, chooses=True),
}
# Rows that are derivatives of others: their own first derivatives are those others' second ones.
SLOPES = {
    "power_slope": ("power", "xx", "xy"),
    "power_log": ("power", "xy", "yy"),
    "direction": ("hypot", "xx", "xy"),
    "power_share": ("logaddexp", "xx", "xy"),
}
