"""Powers of floating numbers, as formulas without branches; see ``kernels.formulas``.

``x**y`` is the exponential of ``y log(x)``, whose error the exponential magnifies by its size. So
in float64 the logarithm has 20 bits more than a number has, in two parts. Powers of float32 are
computed in float64, to as many digits as they need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from odyssey.kernels.formulas import World, polynomial
from odyssey.kernels.series import SERIES

__all__ = ["pow_special_cases", "positive_pow", "positive_pow_float32"]

Formula = Callable[..., Any]

# log(2), of which the first part has 42 bits, and a third
_LOG_TWO, _LOG_TWO_LOW = 0.6931471805598903, 5.497923018708371e-14
_THIRD, _THIRD_LOW = 1 / 3, 1.850371707708594e-17
# ((atanh(s) / s - 1) / s**2 - 1/3) / s**2, of s**2; s <= (sqrt(2) - 1) / (sqrt(2) + 1); 2**-70
_ATANH_SERIES = (
    *(0.2, 0.14285714285714693, 0.11111111110822655, 0.09090909168893319),
    *(0.07692297353566649, 0.0666740928118603, 0.05852932762575816, 0.05863525165318467),
)


# (atanh(s) / s - 1) / s**2, of s**2, likewise; 2**-43
_ATANH_SERIES_FLOAT32 = (
    0.33333333333693205,
    0.19999999390972328,
    0.14285878836922353,
    0.11095600957478867,
)
_ATANH_LAST_FLOAT32 = 0.09683256270952247


def positive_pow(w: World, known: Mapping[str, Formula]) -> Formula:
    """``pow`` of positive numbers, in float64.

    Args:
        w: What the formula computes with.
        known: Formulas, of which it takes ``parts``, ``corners`` and ``exp_of``.
    """
    F, fma, select = w.number, w.fma, w.select
    two, none, nothing = F(2), F(0), w.whole(0)
    of_two, of_two_low = F(_LOG_TWO), F(_LOG_TWO_LOW)
    third, third_low = F(_THIRD), F(_THIRD_LOW)
    rest = polynomial(w, _ATANH_SERIES)

    def log_of_fraction(f: Any) -> tuple[Any, Any]:
        """``log(1 + f)``, in two parts."""
        below = two + f
        s = f / below
        s_low = (fma(-s, below, f) - s * (f - (below - two))) / below
        z = s * s
        z_low = fma(s, s, -z) + two * s * s_low
        t = z * rest(z)
        p = third + t
        p_low = ((third - p) + t) + third_low
        q = z * p
        q_low = fma(z, p, -q) + fma(z, p_low, z_low * p)
        s, s_low = two * s, two * s_low
        r = s * q
        r_low = fma(s, q, -r) + fma(s, q_low, s_low * q)
        sum = s + r
        return sum, ((s - sum) + r) + (s_low + r_low)

    def power(x: Any, y: Any) -> Any:
        n, f = known["parts"](x)
        log, log_low = log_of_fraction(f)
        a = n * of_two  # exact
        sum = a + log
        low = ((a - sum) + log) + fma(n, of_two_low, log_low)
        log = sum + low
        log_low = (sum - log) + low
        log = known["corners"](x, log)
        product = y * log
        left = fma(y, log, -product) + y * log_low
        # Beyond, the power is 0 or infinite, and what is left may be no number.
        return known["exp_of"](product, select(abs(product) < F(1000), left, none), nothing)

    return power


def positive_pow_float32(w: World, known: Mapping[str, Formula]) -> Formula:
    """``pow`` of positive numbers that are float32, in float64, as ``powers`` has it.

    The logarithm in base 2 errs by 2**-43 of itself, and of what is below 2**8 by less than the
    exponential, 2**-31.
    """
    F, fma, select = w.number, w.fma, w.select
    two = F(2)
    least, most, magic = F(-200), F(200), w.magic
    series = polynomial(w, (*_ATANH_SERIES_FLOAT32, _ATANH_LAST_FLOAT32))
    series_of_two = polynomial(w, SERIES["exp2"][0])
    of_two, twice_of_e = F(math.log(2)), F(2 / math.log(2))

    def power(x: Any, y: Any) -> Any:
        n, f = known["parts"](x)
        s = f / (two + f)
        z = s * s
        log = known["corners"](x, fma(fma(s * z, series(z), s), twice_of_e, n))
        product = y * log
        c = select(product > most, most, product)
        c = select(c < least, least, c)
        shifted = c + magic
        r = c - (shifted - magic)
        scale = known["power_of_two"](known["whole_of"](shifted))
        return fma(fma(r, series_of_two(r), of_two) * r, scale, scale)

    return power


def pow_special_cases(w: World, floor: Formula, copysign: Formula) -> Formula:
    """Return C's ``pow(x, y)`` for all numbers, from the power of ``abs(x)``."""
    F, select = w.number, w.select
    one, none, half, infinity, nan = F(1), F(0), F(0.5), F(math.inf), F(math.nan)

    def corner(x: Any, y: Any, found: Any) -> Any:
        whole = floor(y) == y
        halved = half * y
        odd = whole & (floor(halved) != halved)
        found = select((x < none) & (x > -infinity) & (floor(y) != y), nan, found)
        found = select(odd, copysign(found, x), found)
        alone = (x == -one) & (abs(y) == infinity)
        return select((y == none) | (x == one) | alone, one, found)

    return corner
