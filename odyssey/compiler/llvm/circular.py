"""Circular functions and their inverses, as formulas without branches; see ``kernels.formulas``.

An angle is reduced by a multiple of pi / 2 in three parts, as in W. J. Cody and W. Waite, Software
Manual for the Elementary Functions, 1980; what the difference leaves out is kept beside it. From
``FARTHEST`` on ``far_angles`` reduces it, for those numbers of a vector that need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from odyssey.kernels.formulas import World, two_parts

__all__ = ["FARTHEST", "circular_formulas", "inverse_circular_formulas"]

FARTHEST: Mapping[str, float] = MappingProxyType({"f4": 2.0**16, "f8": 2.0**30})
"""Up to which size an angle is reduced here, by the type of the number."""

# pi / 2 is these two and the third part.
_HALF_PI, _HALF_PI_LOW, _HALF_PI_LOWEST = (
    1.5707963267948966,
    6.123233995736766e-17,
    -1.4973849048591833e-33,
)

Formula = Callable[..., Any]


def _parts_of_half_pi(w: World) -> tuple[Any, Any, Any]:
    first, second = two_parts(w, _HALF_PI, _HALF_PI_LOW)
    if not w.single:
        return first, second, w.number(_HALF_PI_LOWEST)
    return first, second, w.number((_HALF_PI - float(first)) + _HALF_PI_LOW - float(second))


def circular_formulas(w: World, mended: Callable[[str, Any, Any], Any]) -> dict[str, Formula]:
    """``sin``, ``cos`` and ``tan``; and ``sine``, ``cosine`` and ``tangent`` of reduced angles.

    Args:
        w: What the formulas compute with.
        mended: Called with a name, an angle and a result; gives the result for far angles, too.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, none, half, two_over_pi = F(1), F(0), F(0.5), F(2 / math.pi)
    first, second, third = _parts_of_half_pi(w)
    magic, magic_bits = w.magic, w.magic.view(w.whole)
    odd, turned, nothing = I(1), I(2), I(0)
    to_sign = I(30 if w.single else 62)
    sines, cosines = w.series("sin"), w.series("cos")

    def reduced(x: Any) -> tuple[Any, Any, Any]:
        """How many quarters of a turn, and what is left, in two parts."""
        shifted = fma(x, two_over_pi, magic)
        n = shifted - magic
        a = fma(-n, first, x)  # exact
        p = n * second
        b = a - p
        back = a - b
        low = (a - (b + back)) + (back - p)  # what rounding b left out
        low = low - fma(n, third, fma(n, second, -p))
        return I(F(shifted).view(I) - magic_bits), b, low

    def both(b: Any, low: Any) -> tuple[Any, Any, Any, Any]:
        """The sine and the cosine, in two parts each."""
        z = b * b
        of_half = half * z
        leading = one - of_half
        rest = ((one - leading) - of_half) + fma(z * z, cosines(z), -b * low)
        return b, fma(b * z, sines(z), low), leading, rest

    def signed(value: Any, quarter: Any) -> Any:
        return I(F(value).view(I) ^ ((quarter & turned) << to_sign)).view(F)

    def sine(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = both(b, low)
        found = select((quarter & odd) != nothing, c + c_low, s + s_low)
        return signed(found, quarter)

    def cosine(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = both(b, low)
        found = select((quarter & odd) != nothing, s + s_low, c + c_low)
        return signed(found, quarter + odd)

    def tangent(quarter: Any, b: Any, low: Any) -> Any:
        s, s_low, c, c_low = both(b, low)
        s, s_low = s + s_low, (s - (s + s_low)) + s_low
        c, c_low = c + c_low, (c - (c + c_low)) + c_low
        swapped = (quarter & odd) != nothing
        above, above_low = select(swapped, -c, s), select(swapped, -c_low, s_low)
        below, below_low = select(swapped, s, c), select(swapped, s_low, c_low)
        inverse = one / below
        q = above * inverse
        left = fma(-q, below, above) + (above_low - q * below_low)
        return fma(left, inverse, q)

    def sin(x: Any) -> Any:
        return mended("sin", x, select(x == none, x, sine(*reduced(x))))

    def cos(x: Any) -> Any:
        return mended("cos", x, cosine(*reduced(x)))

    def tan(x: Any) -> Any:
        return mended("tan", x, select(x == none, x, tangent(*reduced(x))))

    made = {"sin": sin, "cos": cos, "tan": tan}
    return made | {"sine": sine, "cosine": cosine, "tangent": tangent}


def inverse_circular_formulas(w: World, root: Formula, copysign: Formula) -> dict[str, Formula]:
    """``asin``, ``acos``, ``atan`` and ``atan2``.

    Args:
        w: What the formulas compute with.
        root: The square root.
        copysign: The size of one number with the sign of another.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, two, none, half, nothing = F(1), F(2), F(0), F(0.5), I(0)
    half_pi, half_pi_low, _ = _parts_of_half_pi(w)
    pi, pi_low = two * half_pi, two * half_pi_low
    quarter_pi, quarter_pi_low = half * half_pi, half * half_pi_low
    infinity, far = F(math.inf), F(2.0 ** (w.bits + 10))
    small, up = (F(2.0**-60), F(2.0**80)) if w.single else (F(2.0**-500), F(2.0**600))
    arcs, of_tangents = w.series("asin"), w.series("atan")

    def of_tangent(u: Any, low: Any, whole: bool) -> Any:
        """The angle of a tangent, in two parts, that is not negative; up to 1 if not ``whole``."""
        steep, middle = u > two, u > half
        above, below = select(middle, u - one, u), select(middle, u + one, one)
        above_low, below_low = low, select(middle, (u - (below - one)) + low, none)
        base, base_low = (
            select(middle, quarter_pi, none),
            select(middle, quarter_pi_low, none),
        )
        if whole:
            above, below = select(steep, -one, above), select(steep, u, below)
            above_low, below_low = select(steep, none, above_low), select(steep, low, below_low)
            base, base_low = select(steep, half_pi, base), select(steep, half_pi_low, base_low)
        inverse = one / below
        t = above * inverse
        t_low = (fma(-t, below, above) + (above_low - t * below_low)) * inverse
        z = t * t
        return base + (t + (fma(t * z, of_tangents(z), t_low) + base_low))

    def atan(x: Any) -> Any:
        size = abs(x)
        return copysign(of_tangent(select(size > far, far, size), none, True), x)

    def atan2(y: Any, x: Any) -> Any:
        a, b = abs(x), abs(y)
        swapped = b > a
        above, below = select(swapped, a, b), select(swapped, b, a)
        scale = select(below < small, up, one)
        above, below = above * scale, below * scale
        t = above / below
        t_low = fma(-t, below, above) / below
        known = (above == below) | (below == infinity)
        # Infinite both, or 0 both; by infinity
        t = select(known, select(above == below, select(below == none, none, one), none), t)
        r = of_tangent(t, select(known, none, t_low), False)
        r = select(swapped, half_pi - (r - half_pi_low), r)
        r = select(F(x).view(I) < nothing, pi - (r - pi_low), r)
        return select((x != x) | (y != y), x + y, copysign(r, y))

    def half_angle(size: Any) -> tuple[Any, Any]:
        """For sizes above one half: half of the angle of a cosine, in two parts."""
        z = half * (one - size)
        s = root(z)
        s_low = fma(-s, s, z) / select(z == none, one, s + s)
        return s, fma(s * z, arcs(z), s_low)

    def asin(x: Any) -> Any:
        size = abs(x)
        s, s_low = half_angle(size)
        outer = (half_pi - two * s) - (two * s_low - half_pi_low)
        z = x * x
        return copysign(select(size > half, outer, fma(size * z, arcs(z), size)), x)

    def acos(x: Any) -> Any:
        s, s_low = half_angle(abs(x))
        outer = two * s + two * s_low
        outer = select(x < none, (pi - two * s) - (two * s_low - pi_low), outer)
        z = x * x
        inner = half_pi - (x + (x * z * arcs(z) - half_pi_low))
        return select(abs(x) <= half, inner, outer)

    return {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2}
