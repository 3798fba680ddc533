"""Exponentials, logarithms and error functions without branches, for loops that vectorize.

Those of libm, which ``math`` means in a compiled loop, take one number at a time, 5 to 30 ns each;
these take 0.4 to 4 ns. ``fast`` names them by what of ``math`` they stand for.

Arguments of exponentials are reduced by a multiple of ln 2, exactly, as in W. J. Cody and W. Waite,
Software Manual for the Elementary Functions, 1980; what is left is a Taylor series. The logarithm
is the series of log((1 + s) / (1 - s)). The error functions are those of ``error_functions``.

NaN, infinities, signed zeros and subnormal numbers are as IEEE has them; how far results may err,
``BOUNDS`` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.kernels.error_functions import ERRORS, K
from odyssey.kernels.loops import ByDtype, Loop
from odyssey.kernels.scalars import select

__all__ = ["BOUNDS", "exp", "fast", "log"]

BOUNDS: Mapping[str, float] = {
    "exp": 1.5,
    "expm1": 3.0,
    "log": 1.5,
    "log1p": 3.0,
    "tanh": 4.0,
    "erf": 3.0,
    "erfc": 8.0,
}
"""How many units in the last place results may lie from the exact ones, where those are normal."""


class _Precision(NamedTuple):
    """What differs between the two dtypes."""

    number: Any  # its constructor
    whole: Any  # of integers as long
    bits: int  # of the fraction
    bias: int  # of the exponent
    high: float  # leading digits of ln 2, by which a whole number is multiplied exactly
    low: float  # the rest
    least: float  # below, the exponential is 0
    most: float  # above, it is infinite
    terms: int  # of the exponential's series
    odd: int  # of the logarithm's
    head: int  # mask of the leading half of a fraction


_PRECISIONS = {
    "f": _Precision(
        np.float32, np.int32, 23, 127, 0.693359375, -2.12194440e-4, -104.0, 89.0, 8, 5, -4096
    ),
    "d": _Precision(
        *(np.float64, np.int64, 52, 1023, 6.93145751953125e-1, 1.42860682030941723212e-6),
        *(-746.0, 710.0, 14, 11, -(1 << 27)),
    ),
}


@lru_cache(maxsize=2)
def fast(dtype: np.dtype[Any]) -> Mapping[str, Loop]:
    """The functions of one dtype, float32 or float64, by the names that they have in ``math``."""
    p = _PRECISIONS[dtype.char]
    made = _exponentials(p)
    made |= _logarithms(p)
    return made | _errors(p, made["exp"])


def _loop(function: Callable[..., Any]) -> Loop:
    return Loop(function, contract=True)  # type: ignore[arg-type]


def _polynomial(p: _Precision, coefficients: list[float]) -> Loop:
    """``c0 + z (c1 + z (...))``, as one expression, for a loop in it would not vectorize."""
    names = {f"c{k}": p.number(c) for k, c in enumerate(coefficients)}
    text = f"c{len(coefficients) - 1}"
    for k in reversed(range(len(coefficients) - 1)):
        text = f"({text}) * z + c{k}"
    scope: dict[str, Any] = {**names, "__name__": __name__}
    exec(f"def polynomial(z):\n    return {text}", scope)
    return _loop(scope["polynomial"])


def _exponentials(p: _Precision) -> dict[str, Loop]:
    F, I = p.number, p.whole  # noqa: E741
    one, two, half = F(1), F(2), F(0.5)
    log2e, high, low = F(1 / math.log(2)), F(p.high), F(p.low)
    least, most = F(p.least), F(p.most)
    # A number added to it is rounded to a whole one, which its last bits then are.
    magic = F(1.5 * 2.0**p.bits)
    magic_bits = magic.view(I)
    bias, bits, single, none = I(p.bias), I(p.bits), I(1), F(0)
    # (e**r - 1 - r) / r**2
    series = _polynomial(p, [1 / math.factorial(k) for k in range(2, p.terms)])

    # numba computes with 32 bits in 64, unless told so after each step.
    @_loop
    def power_of_two(i: Any) -> Any:
        return I(I(i + bias) << bits).view(F)

    @_loop
    def rounded(x: Any) -> Any:
        return x * log2e + magic

    @_loop
    def exp(x: Any) -> Any:
        c = select(x > most, most, x)
        c = select(c < least, least, c)
        shifted = rounded(c)
        n = shifted - magic
        r = (c - n * high) - n * low
        y = (series(r) * (r * r) + r) + one
        i = I(F(shifted).view(I) - magic_bits)
        first = I(i >> single)  # two factors: the result may be subnormal, or infinite
        return y * power_of_two(first) * power_of_two(I(i - first))

    @_loop
    def expm1(x: Any) -> Any:
        c = select(x > most, most, x)
        c = select(c < -F(40), -F(40), c)  # where -1 is exact
        shifted = rounded(c)
        n = shifted - magic
        r = (c - n * high) - n * low
        y = series(r) * (r * r) + r  # e**r - 1
        i = I(F(shifted).view(I) - magic_bits)
        # Half of the power of two, and twice the sum: the largest power is out of range.
        large = i > single
        scale = power_of_two(select(large, I(i - single), i))
        sum = y * scale + (scale - select(large, half, one))
        return select(x == none, x, select(large, sum * two, sum))

    @_loop
    def tanh(x: Any) -> Any:
        size = abs(x)
        c = select(size > F(40), F(40), size)
        e = expm1(two * c)
        y = e / (e + two)
        return select(x == none, x, select(x < none, -y, y))

    return {"exp": exp, "expm1": expm1, "tanh": tanh}


def _logarithms(p: _Precision) -> dict[str, Loop]:
    F, I = p.number, p.whole  # noqa: E741
    one, half, none, two = F(1), F(0.5), F(0), F(2)
    high, low = F(p.high), F(p.low)
    tiny, lift, lifted = F(np.finfo(F).tiny), F(2.0 ** (p.bits + 1)), F(p.bits + 1)
    root = F(math.sqrt(2))
    fraction, exponent = I((1 << p.bits) - 1), I((2 << (p.number(1).nbytes * 8 - 2 - p.bits)) - 1)
    bias, bits, of_one = I(p.bias), I(p.bits), I(p.bias << p.bits)
    infinity, nan = F(math.inf), F(math.nan)
    # (log((1 + s) / (1 - s)) - 2 s) / (2 s**3), in powers of s**2
    series = _polynomial(p, [1 / (2 * k + 3) for k in range(p.odd)])

    @_loop
    def log(x: Any) -> Any:
        small = x < tiny
        y = select(small, x * lift, x)
        i = F(y).view(I)
        n = F(I(I(I(i >> bits) & exponent) - bias)) - select(small, lifted, none)
        m = I((i & fraction) | of_one).view(F)
        above = m > root
        n = select(above, n + one, n)
        f = select(above, m * half, m) - one
        s = f / (two + f)
        z = s * s
        # log(1 + f) = f - (f**2 / 2 - s (f**2 / 2 + R)), without cancellation
        square = half * f * f
        rest = two * z * series(z)
        r = n * high - ((square - (s * (square + rest) + n * low)) - f)
        r = select(x < infinity, r, x)  # infinity, NaN
        r = select(x == none, -infinity, r)
        return select(x < none, nan, r)

    @_loop
    def log1p(x: Any) -> Any:
        y = one + x
        # What rounding 1 + x left out.
        left = select(abs(x) < one, (x - (y - one)) / y, none)
        r = log(y) + left
        return select((x == none) | (x == infinity), x, r)

    return {"log": log, "log1p": log1p}


def _errors(p: _Precision, exp: Loop) -> dict[str, Loop]:
    F, I = p.number, p.whole  # noqa: E741
    known = ERRORS[F]
    one, two, none, k, end = F(1), F(2), F(0), F(K), F(known.end)
    head = I(p.head)
    near = _polynomial(p, known.near[::-1])
    far = _polynomial(p, known.far[::-1])

    @_loop
    def tail(size: Any) -> Any:
        c = select(size > end, end, size)
        # The square of the leading half of the digits is exact: rounding it would be magnified.
        leading = I(F(c).view(I) & head).view(F)
        fall = exp(-leading * leading) * exp((leading - c) * (leading + c))
        return fall * (far((c - k) / (c + k)) / (one + two * c))

    @_loop
    def erf(x: Any) -> Any:
        size = abs(x)
        inner = x + x * near(x * x)
        outer = one - tail(size)
        return select(size > one, select(x < none, -outer, outer), inner)

    @_loop
    def erfc(x: Any) -> Any:
        size = abs(x)
        inner = one - (x + x * near(x * x))
        outer = tail(size)
        return select(size > one, select(x < none, two - outer, outer), inner)

    return {"erf": erf, "erfc": erfc}


exp = ByDtype("exp", lambda dtype: fast(dtype)["exp"])
"""The exponential of a float32 or a float64, in loops."""

log = ByDtype("log", lambda dtype: fast(dtype)["log"])
"""The logarithm, likewise."""
