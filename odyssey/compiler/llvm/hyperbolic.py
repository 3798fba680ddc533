"""Hyperbolic functions, their inverses, and lengths, as formulas without branches.

See ``kernels.formulas``. The inverses are logarithms, of numbers in two parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from odyssey.kernels.formulas import World

__all__ = ["hyperbolic_formulas", "hypot_formula", "inverse_hyperbolic_formulas"]

Formula = Callable[..., Any]


def hyperbolic_formulas(w: World, known: Mapping[str, Formula]) -> dict[str, Formula]:
    """``sinh`` and ``cosh``; ``known`` has the exponential."""
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, none, quarter, down = F(1), F(0), F(0.25), I(1)
    near, exp_of = w.series("sinh"), known["exp_of"]

    def sinh(x: Any) -> Any:
        size = abs(x)
        h = exp_of(size, none, down)  # half of the exponential, which may be out of range
        outer = h - quarter / h
        z = x * x
        inner = fma(x * z, near(z), x)
        outer = select(x < none, -outer, outer)
        return select(x == none, x, select(size > one, outer, inner))

    def cosh(x: Any) -> Any:
        h = exp_of(abs(x), none, down)
        return h + quarter / h

    return {"sinh": sinh, "cosh": cosh}


def inverse_hyperbolic_formulas(
    w: World, known: Mapping[str, Formula], root: Formula, copysign: Formula
) -> dict[str, Formula]:
    """``asinh``, ``acosh`` and ``atanh``; ``known`` has the logarithm."""
    F, fma, select = w.number, w.fma, w.select
    one, half, nan, log_of_two = F(1), F(0.5), F(math.nan), F(math.log(2))
    large = F(2.0**13 if w.single else 2.0**28)  # from here on 1 is nothing beside the square
    log_of = known["log_of"]

    def one_more(u: Any, low: Any) -> tuple[Any, Any]:
        """``1 + u + low``, and what it leaves out, relative to it."""
        y = one + u
        return y, (select(u < one, u - (y - one), one - (y - u)) + low) / y

    def of_sum(x: Any, u: Any, low: Any) -> Any:
        """``log(1 + u + low)``, or, for large numbers, ``log(2 x)``."""
        y, left = one_more(u, low)
        far = x > large
        return log_of(select(far, x, y), select(far, log_of_two, left))

    def asinh(x: Any) -> Any:
        size = abs(x)
        square = size * size
        t = square / (one + root(fma(size, size, one)))
        u = size + t
        return copysign(of_sum(size, u, t - (u - size)), x)

    def acosh(x: Any) -> Any:
        t = x - one
        square = fma(t, t, t + t)
        s = root(square)
        u = s + t
        return select(x < one, nan, of_sum(x, u, t - (u - s)))

    def atanh(x: Any) -> Any:
        size = abs(x)
        below = one - size
        below_low = (one - below) - size
        q = (size + size) / below
        left = fma(-q, below, size + size) - q * below_low
        y, rest = one_more(q, left / below)
        return copysign(half * log_of(y, rest), x)

    return {"asinh": asinh, "acosh": acosh, "atanh": atanh}


def hypot_formula(w: World, root: Formula) -> dict[str, Formula]:
    """``hypot``."""
    F, fma, select = w.number, w.fma, w.select
    one, infinity = F(1), F(math.inf)
    # Squares of numbers between these are in range, and those of others when scaled.
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
