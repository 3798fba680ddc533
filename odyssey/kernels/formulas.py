"""Formulas of elementary functions, shared by numba loops and the compiler.

A formula is a branch-free function of the arithmetic of a ``World``: numba's numbers, or LLVM
values of the compiler. Only ``fma`` rounds a product and a sum once, so results are the same in
every loop, vectorized or not.

Arguments of exponentials are reduced by a multiple of ln 2, exactly, as in W. J. Cody and W. Waite,
Software Manual for the Elementary Functions, 1980. The logarithm is that of (1 + s) / (1 - s), as
in FDLIBM. The error functions are those of ``error_functions``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.kernels.error_functions import ERRORS, K
from odyssey.kernels.series import SERIES

__all__ = ["World", "errors", "exponentials", "logarithms", "polynomial", "two_parts"]

Formula = Callable[..., Any]

# From this number of coefficients on, even and odd powers are summed separately.
_APART = 6


class World(NamedTuple):
    """Arithmetic that formulas are written in.

    Attributes:
        number: Convert a Python number, or one of the world's, to a floating number.
        whole: Convert to an integer of the same width.
        dtype: Dtype of the floating numbers.
        function: A decorator of formulas.
        select: ``select(condition, x, y)``.
        fma: ``x * y + z``, rounded once.
    """

    number: Any
    whole: Any
    dtype: np.dtype[Any]
    function: Callable[[Formula], Any]
    select: Formula
    fma: Formula

    @property
    def single(self) -> bool:
        """True for float32."""
        return self.dtype.char == "f"

    @property
    def bits(self) -> int:
        """Number of bits of the significand."""
        return 23 if self.single else 52

    @property
    def bias(self) -> int:
        """Bias of exponents."""
        return 127 if self.single else 1023

    @property
    def magic(self) -> Any:
        """Constant whose sum with a number rounds that to an integer, in the last bits."""
        return self.number(1.5 * 2.0**self.bits)

    def series(self, name: str) -> Any:
        """Return a polynomial of ``SERIES``."""
        return polynomial(self, SERIES[name][0 if self.single else 1])


def two_parts(w: World, high: float, low: float) -> tuple[Any, Any]:
    """Split a constant, given as a float64 and a remainder, into a number and a rest."""
    first = w.number(high)
    return first, w.number((high - float(first)) + low)


def polynomial(w: World, coefficients: Sequence[float], apart: bool = True) -> Any:
    """Return a function for the sum of ``c[k] * z**k`` as one expression, which vectorizes.

    Even and odd powers are summed separately, which halves the dependency chain; with
    ``apart=False`` they are not, where that is more accurate.
    """
    scope: dict[str, Any] = {f"c{k}": w.number(c) for k, c in enumerate(coefficients)}
    scope |= {"fma": w.fma, "__name__": __name__}
    few = len(coefficients) < _APART or not apart
    whole = _nested(range(len(coefficients)), "z")
    odd, even = (_nested(range(k, len(coefficients), 2), "y") for k in (1, 0))
    text = f"    return {whole}\n" if few else f"    y = z * z\n    return fma({odd}, z, {even})\n"
    exec(f"def polynomial(z):\n{text}", scope)
    return w.function(scope["polynomial"])


def _nested(places: Sequence[int], variable: str) -> str:
    """Return the text of ``c0 + z (c1 + z (...))`` for some coefficients."""
    text = f"c{places[-1]}"
    for k in reversed(places[:-1]):
        text = f"fma({text}, {variable}, c{k})"
    return text


def exponentials(w: World) -> dict[str, Any]:
    """Return ``exp``, ``exp2``, ``expm1`` and ``tanh``, and their common building block.

    ``exp_of(x, low, down)`` is ``exp(x + low) / 2**down``, where ``low`` is small.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, two, none, half = F(1), F(2), F(0), F(0.5)
    log2e = F(1 / math.log(2))
    high, low_of_two = two_parts(w, math.log(2), 2.3190468138462996e-17)
    # Bounds beyond which the exponential, also halved, is 0 or infinite.
    least, most = (F(-105), F(90)) if w.single else (F(-747), F(711))
    least_two, most_two = (F(-151), F(129)) if w.single else (F(-1076), F(1025))
    magic, magic_bits = w.magic, w.magic.view(w.whole)
    bias, bits, single = I(w.bias), I(w.bits), I(1)
    series, series_of_two, near = w.series("exp"), w.series("exp2"), w.series("tanh")

    # numba promotes 32-bit integers to 64 bits unless each step is cast.
    @w.function
    def power_of_two(i: Any) -> Any:
        return I(I(i + bias) << bits).view(F)

    @w.function
    def scale_by_power_of_two(y: Any, i: Any) -> Any:
        first = I(i >> single)  # two factors: the result may be subnormal, or infinite
        return y * power_of_two(first) * power_of_two(I(i - first))

    @w.function
    def clamped(x: Any, least: Any, most: Any) -> Any:  # NaN stays
        c = select(x > most, most, x)
        return select(c < least, least, c)

    @w.function
    def whole_of(shifted: Any) -> Any:
        return I(F(shifted).view(I) - magic_bits)

    @w.function
    def exp_of(x: Any, low: Any, down: Any) -> Any:
        c = clamped(x, least, most)
        shifted = fma(c, log2e, magic)
        n = shifted - magic
        leading = fma(-n, high, c)  # exact
        rest = fma(n, low_of_two, -low)
        r = leading - rest
        y = (leading + fma(r * r, series(r), -rest)) + one
        return scale_by_power_of_two(y, I(whole_of(shifted) - down))

    @w.function
    def exp(x: Any) -> Any:
        c = clamped(x, least, most)
        shifted = fma(c, log2e, magic)
        n = shifted - magic
        r = fma(-n, low_of_two, fma(-n, high, c))
        return scale_by_power_of_two(fma(r * r, series(r), r) + one, whole_of(shifted))

    @w.function
    def exp2(x: Any) -> Any:
        c = clamped(x, least_two, most_two)
        shifted = c + magic
        r = c - (shifted - magic)
        y = fma(r, high, fma(r * r, series_of_two(r), r * low_of_two)) + one
        return scale_by_power_of_two(y, whole_of(shifted))

    @w.function
    def expm1(x: Any) -> Any:
        c = clamped(x, -F(40), most - one)  # below the bound -1 is exact
        shifted = fma(c, log2e, magic)
        n = shifted - magic
        leading = fma(-n, high, c)
        rest = n * low_of_two
        r = leading - rest
        tail = fma(r * r, series(r), -rest)  # leading + tail is e**r - 1
        i = whole_of(shifted)
        # Half of the power of two, then twice the sum: the largest power would overflow.
        large = i > single
        scale = power_of_two(select(large, I(i - single), i))
        sum = fma(scale, tail, fma(scale, leading, scale - select(large, half, one)))
        return select(x == none, x, select(large, sum * two, sum))

    @w.function
    def tanh(x: Any) -> Any:
        size = abs(x)
        z = x * x
        inner = fma(x * z, near(z), x)
        outer = one - two / (exp(size + size) + one)
        outer = select(x < none, -outer, outer)
        return select(x == none, x, select(size > F(0.56), outer, inner))

    made = {"exp": exp, "exp2": exp2, "expm1": expm1, "tanh": tanh}
    return made | {"exp_of": exp_of, "power_of_two": power_of_two, "whole_of": whole_of}


def logarithms(w: World) -> dict[str, Any]:
    """Return ``log``, ``log2``, ``log10`` and ``log1p``, and their common building block.

    ``log_of(x, low)`` is ``log(x) + low``, where ``low`` is small.
    """
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    one, two, none, half = F(1), F(2), F(0), F(0.5)
    high, low_of_two = two_parts(w, math.log(2), 2.3190468138462996e-17)
    tiny, lift, lifted = F(np.finfo(w.dtype).tiny), F(2.0 ** (w.bits + 1)), F(w.bits + 1)
    root, infinity, nan = F(math.sqrt(2)), F(math.inf), F(math.nan)
    fraction, bias, bits = I((1 << w.bits) - 1), I(w.bias), I(w.bits)
    exponent, of_one = I(2 * w.bias + 1), I(w.bias << w.bits)
    series = w.series("log")

    @w.function
    def split_exponent(x: Any) -> Any:  # the exponent, and the significand minus 1
        small = x < tiny
        y = select(small, x * lift, x)
        i = F(y).view(I)
        n = F(I(I(I(i >> bits) & exponent) - bias)) - select(small, lifted, none)
        m = I((i & fraction) | of_one).view(F)
        above = m > root
        return select(above, n + one, n), select(above, m * half, m) - one

    @w.function
    def corners(x: Any, r: Any) -> Any:
        r = select(x < infinity, r, x)  # infinity, NaN
        r = select(x == none, -infinity, r)
        return select(x < none, nan, r)

    @w.function
    def log_of(x: Any, low: Any) -> Any:
        n, f = split_exponent(x)
        s = f / (two + f)
        z = s * s
        # log(1 + f) = f - (f**2 / 2 - s (f**2 / 2 + R)), without cancellation
        square = half * f * f
        rest = two * z * series(z)
        inner = f - (square - fma(s, square + rest, fma(n, low_of_two, low)))
        return corners(x, fma(n, high, inner))

    def in_base(of_e: tuple[Any, Any], of_two: tuple[Any, Any]) -> Any:
        (e_high, e_low), (two_high, two_low) = of_e, of_two

        @w.function
        def log_in_base(x: Any) -> Any:
            n, f = split_exponent(x)
            s = f / (two + f)
            z = s * s
            square = half * f * f
            leading = f - square
            tail = ((f - leading) - square) + s * (square + two * z * series(z))
            # The products with log(e) and with the exponent, each in two parts.
            a = leading * e_high
            a_low = fma(leading, e_high, -a) + fma(tail, e_high, leading * e_low)
            b = n * two_high
            b_low = fma(n, two_low, fma(n, two_high, -b))
            sum = b + a
            return corners(x, sum + (((b - sum) + a) + (a_low + b_low)))

        return log_in_base

    @w.function
    def log(x: Any) -> Any:
        return log_of(x, none)

    @w.function
    def log1p(x: Any) -> Any:
        y = one + x
        # The rounding error of 1 + x.
        left = select(abs(x) < one, x - (y - one), one - (y - x))
        r = log_of(y, left / y)
        return select((x == none) | (x == infinity), x, r)

    log2 = in_base(two_parts(w, 1 / math.log(2), 2.0355273740931033e-17), (one, none))
    log10 = in_base(
        two_parts(w, 1 / math.log(10), 6.649434773342548e-17),
        two_parts(w, math.log10(2), -2.8037281277851704e-18),
    )
    made = {"log": log, "log2": log2, "log10": log10, "log1p": log1p}
    return made | {"log_of": log_of, "parts": split_exponent, "corners": corners}


def errors(w: World, exp_of: Any) -> dict[str, Any]:
    """Return ``erf`` and ``erfc``."""
    F, I, fma, select = w.number, w.whole, w.fma, w.select  # noqa: E741
    known = ERRORS[w.dtype.type]
    one, two, none, k, end = F(1), F(2), F(0), F(K), F(known.end)
    head, nothing = I(-4096 if w.single else -(1 << 27)), I(0)  # the leading half of a significand
    # An absolute term rather than a correction: saves 0.4 units in the last place.
    near = polynomial(w, known.near[::-1], apart=False)
    far = polynomial(w, known.far[::-1], apart=False)

    @w.function
    def tail(size: Any) -> Any:
        c = select(size > end, end, size)
        # The square of the leading half of the digits is exact; its rounding would be magnified.
        leading = I(F(c).view(I) & head).view(F)
        fall = exp_of(-leading * leading, (leading - c) * (leading + c), nothing)
        # fall * far / (1 + 2 c), with each rounding error corrected
        factor = far((c - k) / (c + k))
        above = fall * factor
        below = fma(two, c, one)
        inverse = one / below
        q = above * inverse
        left = fma(-q, below, above) + fma(fall, factor, -above) - q * (two * c - (below - one))
        return fma(left, inverse, q)

    @w.function
    def erf(x: Any) -> Any:
        inner = fma(x, near(x * x), x)
        outer = one - tail(abs(x))
        return select(abs(x) > one, select(x < none, -outer, outer), inner)

    @w.function
    def erfc(x: Any) -> Any:
        inner = fma(-x, near(x * x), one - x)
        outer = tail(abs(x))
        return select(abs(x) > one, select(x < none, two - outer, outer), inner)

    return {"erf": erf, "erfc": erfc}
