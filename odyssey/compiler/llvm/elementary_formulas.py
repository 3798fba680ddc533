"""Circular, hyperbolic and power functions as formulas without branches.

Called by ``elementary``, which writes LLVM functions with them. Like the exponential, the logarithm
and the error function in ``kernels.formulas``, a formula is written in the arithmetic of a
``World``, and takes and returns its numbers. Numbers in two parts, such as ``s + s_low``, carry the
rounding error of the first part in the second.

An angle is reduced by a multiple of pi / 2 in three parts, as in W. J. Cody and W. Waite, Software
Manual for the Elementary Functions, 1980. Too large an angle needs a fallback, see
``vector_fallbacks``. The inverse hyperbolic functions are logarithms of numbers in two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from odyssey.kernels.formulas import World, polynomial, two_parts
from odyssey.kernels.series import SERIES

__all__ = [
    "circular_formulas",
    "hyperbolic_formulas",
    "hypot_formula",
    "inverse_circular_formulas",
    "inverse_hyperbolic_formulas",
    "positive_pow",
    "positive_pow_float32",
    "pow_special_cases",
]

Formula = Callable[..., Any]

# ------------------------------------------------------------------ circular functions

# pi / 2 as the sum of three numbers.
_HALF_PI, _HALF_PI_LOW, _HALF_PI_LOWEST = (
    1.5707963267948966,
    6.123233995736766e-17,
    -1.4973849048591833e-33,
)


def _half_pi_parts(w: World) -> tuple[Any, Any, Any]:
    """Return pi / 2 as the sum of three numbers of the type."""
    first, second = two_parts(w, _HALF_PI, _HALF_PI_LOW)
    if not w.single:
        return first, second, w.number(_HALF_PI_LOWEST)
    return first, second, w.number((_HALF_PI - float(first)) + _HALF_PI_LOW - float(second))


def circular_formulas(
    w: World, with_fallback: Callable[[str, Any, Any], Any]
) -> dict[str, Formula]:
    """Return ``sin``, ``cos`` and ``tan``, and ``sine``, ``cosine`` and ``tangent``.

    The latter three take an angle that is already reduced: a number of quarter turns, and the
    rest in two parts.

    Args:
        w: Arithmetic that the formulas are written in.
        with_fallback: ``with_fallback(name, x, result)`` replaces the result if the angle ``x`` is
            too large for the reduction.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, none, half, two_over_pi = F(1), F(0), F(0.5), F(2 / math.pi)
    first, second, third = _half_pi_parts(w)
    magic, magic_bits = w.magic, w.magic.view(w.whole)
    odd_bit, sign_bit, zero_bits = I(1), I(2), I(0)  # of a number of quarter turns
    to_sign = I(30 if w.single else 62)
    sines, cosines = w.series("sin"), w.series("cos")

    def reduce_angle(x: Any) -> tuple[Any, Any, Any]:
        """Return the number of quarter turns, and the rest in two parts."""
        shifted = fma(x, two_over_pi, magic)
        n = shifted - magic
        a = fma(-n, first, x)  # exact
        p = n * second
        b = a - p
        back = a - b
        low = (a - (b + back)) + (back - p)  # the rounding error of b
        low = low - fma(n, third, fma(n, second, -p))
        return I(F(shifted).view(I) - magic_bits), b, low

    def sine_cosine(b: Any, low: Any) -> tuple[Any, Any, Any, Any]:
        """Return the sine and the cosine, in two parts each."""
        z = b * b
        half_square = half * z
        leading = one - half_square
        rest = ((one - leading) - half_square) + fma(z * z, cosines(z), -b * low)
        return b, fma(b * z, sines(z), low), leading, rest

    def with_sign(value: Any, quarter: Any) -> Any:
        return I(F(value).view(I) ^ ((quarter & sign_bit) << to_sign)).view(F)

    def sine(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = sine_cosine(b, low)
        value = select((quarter & odd_bit) != zero_bits, c + c_low, s + s_low)
        return with_sign(value, quarter)

    def cosine(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = sine_cosine(b, low)
        value = select((quarter & odd_bit) != zero_bits, s + s_low, c + c_low)
        return with_sign(value, quarter + odd_bit)

    def tangent(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = sine_cosine(b, low)
        s, s_low = s + s_low, (s - (s + s_low)) + s_low
        c, c_low = c + c_low, (c - (c + c_low)) + c_low
        swapped = (quarter & odd_bit) != zero_bits
        above, above_low = select(swapped, -c, s), select(swapped, -c_low, s_low)
        below, below_low = select(swapped, s, c), select(swapped, s_low, c_low)
        inverse = one / below
        q = above * inverse
        error = fma(-q, below, above) + (above_low - q * below_low)
        return fma(error, inverse, q)

    def sin(x: Any) -> Any:
        return with_fallback("sin", x, select(x == none, x, sine(*reduce_angle(x))))

    def cos(x: Any) -> Any:
        return with_fallback("cos", x, cosine(*reduce_angle(x)))

    def tan(x: Any) -> Any:
        return with_fallback("tan", x, select(x == none, x, tangent(*reduce_angle(x))))

    reduced = {"sine": sine, "cosine": cosine, "tangent": tangent}
    return {"sin": sin, "cos": cos, "tan": tan, **reduced}


def inverse_circular_formulas(w: World, root: Formula, copysign: Formula) -> dict[str, Formula]:
    """Return ``asin``, ``acos``, ``atan`` and ``atan2``.

    Args:
        w: Arithmetic that the formulas are written in.
        root: Square root.
        copysign: ``copysign(x, y)``.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, two, none, half, zero_bits = F(1), F(2), F(0), F(0.5), I(0)
    half_pi, half_pi_low, _ = _half_pi_parts(w)
    pi, pi_low = two * half_pi, two * half_pi_low
    quarter_pi, quarter_pi_low = half * half_pi, half * half_pi_low
    infinity, far = F(math.inf), F(2.0 ** (w.bits + 10))
    small, up = (F(2.0**-60), F(2.0**80)) if w.single else (F(2.0**-500), F(2.0**600))
    asin_series, atan_series = w.series("asin"), w.series("atan")

    def arctangent(u: Any, low: Any, above_one: bool) -> Any:
        """Return the angle of the tangent ``u + low >= 0``, which is at most 1 unless above_one."""
        steep, middle = u > two, u > half
        above, below = select(middle, u - one, u), select(middle, u + one, one)
        above_low, below_low = low, select(middle, (u - (below - one)) + low, none)
        base, base_low = (
            select(middle, quarter_pi, none),
            select(middle, quarter_pi_low, none),
        )
        if above_one:
            above, below = select(steep, -one, above), select(steep, u, below)
            above_low, below_low = select(steep, none, above_low), select(steep, low, below_low)
            base, base_low = select(steep, half_pi, base), select(steep, half_pi_low, base_low)
        inverse = one / below
        t = above * inverse
        t_low = (fma(-t, below, above) + (above_low - t * below_low)) * inverse
        z = t * t
        return base + (t + (fma(t * z, atan_series(z), t_low) + base_low))

    def atan(x: Any) -> Any:
        size = abs(x)
        return copysign(arctangent(select(size > far, far, size), none, True), x)

    def atan2(y: Any, x: Any) -> Any:
        a, b = abs(x), abs(y)
        swapped = b > a
        above, below = select(swapped, a, b), select(swapped, b, a)
        scale = select(below < small, up, one)
        above, below = above * scale, below * scale
        t = above / below
        t_low = fma(-t, below, above) / below
        special = (above == below) | (below == infinity)
        # Both infinite, both 0, or one divided by infinity.
        t = select(special, select(above == below, select(below == none, none, one), none), t)
        r = arctangent(t, select(special, none, t_low), False)
        r = select(swapped, half_pi - (r - half_pi_low), r)
        r = select(F(x).view(I) < zero_bits, pi - (r - pi_low), r)
        return select((x != x) | (y != y), x + y, copysign(r, y))

    def half_angle(size: Any) -> tuple[Any, Any]:
        """Return half of the angle of the cosine ``size > 1/2``, in two parts."""
        z = half * (one - size)
        s = root(z)
        s_low = fma(-s, s, z) / select(z == none, one, s + s)
        return s, fma(s * z, asin_series(z), s_low)

    def asin(x: Any) -> Any:
        size = abs(x)
        s, s_low = half_angle(size)
        outer = (half_pi - two * s) - (two * s_low - half_pi_low)
        z = x * x
        return copysign(select(size > half, outer, fma(size * z, asin_series(z), size)), x)

    def acos(x: Any) -> Any:
        s, s_low = half_angle(abs(x))
        outer = two * s + two * s_low
        outer = select(x < none, (pi - two * s) - (two * s_low - pi_low), outer)
        z = x * x
        inner = half_pi - (x + (x * z * asin_series(z) - half_pi_low))
        return select(abs(x) <= half, inner, outer)

    return {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}


# ------------------------------------------------------------------ hyperbolic functions


def hyperbolic_formulas(w: World, formulas: Mapping[str, Formula]) -> dict[str, Formula]:
    """Return ``sinh`` and ``cosh``; ``formulas`` has the exponential."""
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, none, quarter, down = F(1), F(0), F(0.25), I(1)
    sinh_series, exp_of = w.series("sinh"), formulas["exp_of"]

    def sinh(x: Any) -> Any:
        size = abs(x)
        h = exp_of(size, none, down)  # half of the exponential, which itself may overflow
        outer = h - quarter / h
        z = x * x
        inner = fma(x * z, sinh_series(z), x)
        outer = select(x < none, -outer, outer)
        return select(x == none, x, select(size > one, outer, inner))

    def cosh(x: Any) -> Any:
        h = exp_of(abs(x), none, down)
        return h + quarter / h

    return {"sinh": sinh, "cosh": cosh}


def inverse_hyperbolic_formulas(
    w: World, formulas: Mapping[str, Formula], root: Formula, copysign: Formula
) -> dict[str, Formula]:
    """Return ``asinh``, ``acosh`` and ``atanh``; ``formulas`` has the logarithm."""
    F, fma, select = w.number, w.fma, w.select
    one, half, nan, log_of_two = F(1), F(0.5), F(math.nan), F(math.log(2))
    large = F(2.0**13 if w.single else 2.0**28)  # from here on the square + 1 rounds to the square
    log_of = formulas["log_of"]

    def one_plus(u: Any, low: Any) -> tuple[Any, Any]:
        """Return ``1 + u + low`` and its relative rounding error."""
        y = one + u
        return y, (select(u < one, u - (y - one), one - (y - u)) + low) / y

    def log_one_plus(x: Any, u: Any, low: Any) -> Any:
        """Return ``log(1 + u + low)``; ``log(2 x)`` if ``x`` is large."""
        y, error = one_plus(u, low)
        far = x > large
        return log_of(select(far, x, y), select(far, log_of_two, error))

    def asinh(x: Any) -> Any:
        size = abs(x)
        square = size * size
        t = square / (one + root(fma(size, size, one)))
        u = size + t
        return copysign(log_one_plus(size, u, t - (u - size)), x)

    def acosh(x: Any) -> Any:
        t = x - one
        square = fma(t, t, t + t)
        s = root(square)
        u = s + t
        return select(x < one, nan, log_one_plus(x, u, t - (u - s)))

    def atanh(x: Any) -> Any:
        size = abs(x)
        below = one - size
        below_low = (one - below) - size
        q = (size + size) / below
        error = fma(-q, below, size + size) - q * below_low
        y, y_error = one_plus(q, error / below)
        return copysign(half * log_of(y, y_error), x)

    return {"asinh": asinh, "acosh": acosh, "atanh": atanh}


def hypot_formula(w: World, root: Formula) -> dict[str, Formula]:
    """Return ``hypot``, which scales its arguments so that no square overflows."""
    F, fma, select = w.number, w.fma, w.select
    one, infinity = F(1), F(math.inf)
    # Squares of numbers between 2**least and 2**most are in range, and those of others if scaled.
    least, most, up, down = (-45, 60, 100, -70) if w.single else (-400, 500, 700, -600)
    small, large = F(2.0**least), F(2.0**most)

    def hypot(x: Any, y: Any) -> Any:
        a, b = abs(x), abs(y)
        larger = select(a > b, a, b)
        tiny, huge = larger < small, larger > large
        scale = select(tiny, F(2.0**up), select(huge, F(2.0**down), one))
        back = select(tiny, F(2.0**-up), select(huge, F(2.0**-down), one))
        c, d = a * scale, b * scale
        r = root(fma(c, c, d * d)) * back
        return select((a == infinity) | (b == infinity), infinity, r)

    return {"hypot": hypot}


# ------------------------------------------------------------------ powers

# log(2) in two parts, of which the first has 42 bits; 1/3 in two parts.
_LOG_TWO, _LOG_TWO_LOW = 0.6931471805598903, 5.497923018708371e-14
_THIRD, _THIRD_LOW = 1 / 3, 1.850371707708594e-17
# ((atanh(s) / s - 1) / s**2 - 1/3) / s**2 as a polynomial of s**2, for
# s <= (sqrt(2) - 1) / (sqrt(2) + 1); error 2**-70.
_ATANH_SERIES = (
    *(0.2, 0.14285714285714693, 0.11111111110822655, 0.09090909168893319),
    *(0.07692297353566649, 0.0666740928118603, 0.05852932762575816, 0.05863525165318467),
)
# (atanh(s) / s - 1) / s**2 as a polynomial of s**2, for the same s; error 2**-43.
_ATANH_SERIES_FLOAT32 = (
    0.33333333333693205,
    0.19999999390972328,
    0.14285878836922353,
    0.11095600957478867,
)
_ATANH_LAST_FLOAT32 = 0.09683256270952247


def positive_pow(w: World, formulas: Mapping[str, Formula]) -> Formula:
    """Return ``pow`` of positive numbers in float64.

    ``x**y`` is the exponential of ``y log(x)``, which magnifies the error of the logarithm by its
    size. So the logarithm is computed in two parts, with 20 bits more than float64 has.

    Args:
        w: Arithmetic that the formula is written in.
        formulas: Formulas; it needs ``parts``, ``corners`` and ``exp_of``.
    """
    F, fma, select = w.number, w.fma, w.select
    two, none, zero_bits = F(2), F(0), w.whole(0)
    log_two, log_two_low = F(_LOG_TWO), F(_LOG_TWO_LOW)
    third, third_low = F(_THIRD), F(_THIRD_LOW)
    series = polynomial(w, _ATANH_SERIES)

    def log_of_fraction(f: Any) -> tuple[Any, Any]:
        """Return ``log(1 + f)`` in two parts."""
        below = two + f
        s = f / below
        s_low = (fma(-s, below, f) - s * (f - (below - two))) / below
        z = s * s
        z_low = fma(s, s, -z) + two * s * s_low
        t = z * series(z)
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
        n, f = formulas["parts"](x)
        log, log_low = log_of_fraction(f)
        a = n * log_two  # exact
        sum = a + log
        low = ((a - sum) + log) + fma(n, log_two_low, log_low)
        log = sum + low
        log_low = (sum - log) + low
        log = formulas["corners"](x, log)
        product = y * log
        error = fma(y, log, -product) + y * log_low
        # Beyond 1000 the power is 0 or infinite, and the error may be NaN.
        return formulas["exp_of"](product, select(abs(product) < F(1000), error, none), zero_bits)

    return power


def positive_pow_float32(w: World, formulas: Mapping[str, Formula]) -> Formula:
    """Return ``pow`` of positive float32 numbers, computed in float64.

    The relative error of the logarithm in base 2 is 2**-43. Below 2**8 that is less than the error
    of the exponential, 2**-31.
    """
    F, fma, select = w.number, w.fma, w.select
    two = F(2)
    least, most, magic = F(-200), F(200), w.magic
    series = polynomial(w, (*_ATANH_SERIES_FLOAT32, _ATANH_LAST_FLOAT32))
    exp2_series = polynomial(w, SERIES["exp2"][0])
    log_two, two_over_log_two = F(math.log(2)), F(2 / math.log(2))

    def power(x: Any, y: Any) -> Any:
        n, f = formulas["parts"](x)
        s = f / (two + f)
        z = s * s
        log = formulas["corners"](x, fma(fma(s * z, series(z), s), two_over_log_two, n))
        product = y * log
        c = select(product > most, most, product)
        c = select(c < least, least, c)
        shifted = c + magic
        r = c - (shifted - magic)
        scale = formulas["power_of_two"](formulas["whole_of"](shifted))
        return fma(fma(r, exp2_series(r), log_two) * r, scale, scale)

    return power


def pow_special_cases(w: World, floor: Formula, copysign: Formula) -> Formula:
    """Return C's ``pow(x, y)`` for all numbers, from the power of ``abs(x)``."""
    F, select = w.number, w.select
    one, none, half, infinity, nan = F(1), F(0), F(0.5), F(math.inf), F(math.nan)

    def apply_special_cases(x: Any, y: Any, power: Any) -> Any:
        is_integer = floor(y) == y
        halved = half * y
        odd = is_integer & (floor(halved) != halved)
        power = select((x < none) & (x > -infinity) & (floor(y) != y), nan, power)
        power = select(odd, copysign(power, x), power)
        minus_one_to_infinity = (x == -one) & (abs(y) == infinity)
        return select((y == none) | (x == one) | minus_one_to_infinity, one, power)

    return apply_special_cases
