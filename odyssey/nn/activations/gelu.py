"""Gaussian error linear unit (GELU)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.errors import DTypeError, SettingError
from odyssey.kernels import T, select
from odyssey.nn.activations.smooth import logistic, logistic_scalar, sigmoid, single_precision
from odyssey.ops.elementwise.arithmetic import add, mul, neg, square, sub
from odyssey.ops.elementwise.elementary import exp, power, tanh
from odyssey.special.error_functions import SCALAR_LOOP_SIZE, erf, erfc, error_function, saturate
from odyssey.table.declare import op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import real_floating
from odyssey.table.samples import reject, singles

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")

# Beyond 40 the normal distribution function is 0 or 1, and the slope of its tails 0.
_TAIL_END = 40.0
_SQRT_HALF = math.sqrt(0.5)
# Twice sqrt(2 / pi): (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel.
_TANH_SCALE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gelu_options(approximate: Any) -> tuple[str]:
    return (check_choice("gelu", "approximate", approximate, ("none", "tanh")),)


def _gelu_rule(g: Any, x: Any, approximate: str, residual: Any = None) -> Any:
    if type(residual) is tuple:  # the derivatives, left by a compiled loop
        return mul(g, residual[0])
    if residual is None:
        return mul(g, gelu_slope(x, approximate=approximate))
    return mul(g, _slope_of(x, approximate, residual))


def _slope_of(x: Any, approximate: str, chance: Any = None) -> Any:
    """Derivative of gelu in ops; ``chance`` is the factor of ``x`` in gelu."""
    c = saturate(x, _TAIL_END)
    if approximate == "none":
        z = mul(c, _SQRT_HALF)
        chance = mul(0.5, erfc(neg(z))) if chance is None else chance
        # exp(-z * z), whose square is far from overflowing: z is below 29.
        return add(chance, mul(c, mul(_SQRT_HALF / math.sqrt(math.pi), exp(neg(square(z))))))
    z, steep = _tanh_argument(c)
    chance = sigmoid(z) if chance is None else chance
    return add(chance, mul(mul(mul(c, chance), sigmoid(neg(z))), steep))


def _tanh_argument(c: Any) -> tuple[Any, Any]:
    """Return the argument of the sigmoid of the tanh approximation, and its derivative."""
    z = mul(_TANH_SCALE, mul(c, add(1, mul(_CUBIC, square(c)))))
    return z, mul(_TANH_SCALE, add(1, mul(3 * _CUBIC, square(c))))


def _normal_cdf(x: Any, approximate: str) -> Any:
    """Return the factor of ``x`` in gelu: the normal CDF, or its approximation."""
    if approximate == "none":
        if x.dtype == np.float32 and x.size <= SCALAR_LOOP_SIZE:
            return _normal_cdf(x.astype(np.float64), approximate).astype(np.float32)
        z = x * -_SQRT_HALF
        chance = 0.5 * error_function(z, complement=True)
        if x.dtype != np.float32:
            return chance
        # Correct the rounding of z in the left tail, where its square magnifies it a hundredfold.
        c = np.clip(x, -_TAIL_END, _TAIL_END)
        z = c * -_SQRT_HALF
        left = (c.astype(np.float64) * -_SQRT_HALF - z).astype(np.float32)
        return chance * (1 - 2 * np.maximum(z, 0) * left)
    c = np.clip(x, -_TAIL_END, _TAIL_END)
    return logistic(_TANH_SCALE * (c * (1 + _CUBIC * (c * c))))


def _gelu_with_cdf(x: Any, approximate: str) -> tuple[Any, Any]:
    """Return the result, and the factor as residual: two thirds of the time of computing both."""
    x = real_floating(x)
    chance = _normal_cdf(x, approximate)
    return np.maximum(x, -_TAIL_END) * chance, chance


def _gelu_decomposition(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return mul(mul(0.5, x), add(1, erf(mul(x, _SQRT_HALF))))
    inner = mul(math.sqrt(2 / math.pi), add(x, mul(_CUBIC, power(x, 3))))
    return mul(mul(0.5, x), add(1, tanh(inner)))


# The probability that a normal number is above s, over e**(-s**2 / 2) u, as a polynomial of
# u = 1 / (1 + _P s), on 0 <= s < inf: interpolated at its Chebyshev points with 50 digits, to
# 1.2e-8; the form of M. Abramowitz and I. Stegun, Handbook of Mathematical Functions, 26.2.17.
_P = 0.2316419
# Adding and subtracting it rounds a single-precision number to a multiple of 1/64.
_COARSE = 1.5 * 2**17
_TAIL_SERIES = (
    *(0.0924117478316, 0.0924117422897, 0.0874540119496, 0.0775028259933, 0.0639502216305),
    *(0.0430801829815, 0.0460097739284, -0.027547066329, 0.0694647251691, -0.0596426234058),
    0.0149044616931,
)


def _gaussian(s: Any) -> Any:
    """Return ``e**(-s**2 / 2)`` for s up to 40, in single precision."""
    # The square of the leading digits is exact; the rounding error of the sum with the rest is
    # corrected, since the exponential would magnify it.
    leading = (s + T(_COARSE)) - T(_COARSE)
    square, rest = T(0.5) * leading * leading, T(0.5) * (s + leading) * (s - leading)
    total = square + rest
    e = math.exp(-total)
    return e - e * (rest - (total - square))


def _gaussian_fma(s: Any) -> Any:
    """Return ``e**(-s**2 / 2)`` with fused multiply-add, which makes gelu a ninth faster."""
    half = s * T(0.5)
    square = half * s
    e = math.exp(-square)
    fma: Any = math.fma  # type: ignore[attr-defined]  # Python has it from 3.13 on
    return fma(-e, fma(half, s, -square), e)


def _gaussian_and_cdf(c: Any, bell_of: Any) -> Any:
    """Return ``e**(-c**2 / 2)``, and the probability that a normal number is below c."""
    s = abs(c)
    if single_precision():
        u = T(1) / (T(1) + T(_P) * s)
        total = T(_TAIL_SERIES[-1])
        for k in _TAIL_SERIES[-2::-1]:
            total = total * u + T(k)
        bell = bell_of(s)
        tail = bell * (u * total)
    else:
        bell, tail = math.exp(T(-0.5) * s * s), T(0.5) * math.erfc(s * T(_SQRT_HALF))
    return bell, select(c < T(0), tail, T(1) - tail)


def _clipped(x: Any) -> Any:
    return select(x < T(-_TAIL_END), T(-_TAIL_END), select(x > T(_TAIL_END), T(_TAIL_END), x))


def _steep_scalar(c: Any) -> tuple[Any, Any]:
    z = T(_TANH_SCALE) * (c * (T(1) + T(_CUBIC) * (c * c)))
    return z, T(_TANH_SCALE) * (T(1) + T(3 * _CUBIC) * (c * c))


def _gelu_scalar(x: Any, approximate: str, bell_of: Any) -> Any:
    c = _clipped(x)
    exact = approximate == "none"
    chance = _gaussian_and_cdf(c, bell_of)[1] if exact else logistic_scalar(_steep_scalar(c)[0])
    return select(x < T(-_TAIL_END), T(-_TAIL_END), x) * chance


def _slope_scalar(x: Any, approximate: str, bell_of: Any) -> Any:
    c = _clipped(x)
    if approximate == "none":
        bell, chance = _gaussian_and_cdf(c, bell_of)
        return chance + c * (T(1 / math.sqrt(2 * math.pi)) * bell)
    z, steep = _steep_scalar(c)
    chance = logistic_scalar(z)
    return chance + c * chance * logistic_scalar(-z) * steep


_IN_LOOPS = scalar_loop(
    lambda x, approximate: _gelu_scalar(x, approximate, _gaussian_fma),
    slope=lambda x, approximate: _slope_scalar(x, approximate, _gaussian_fma),
)


@op(
    elementwise=True,
    with_residual=_gelu_with_cdf,
    prepare=_gelu_options,
    kernels=[_IN_LOOPS],
    scalar=lambda x, approximate: _gelu_scalar(x, approximate, _gaussian),
    decomposition=_gelu_decomposition,
    vjp={"x": _gelu_rule},
    samples=[*singles(), *singles(approximate="tanh")],
    rejects=[_COMPLEX, reject((3,), approximate=True, error=SettingError, match="choose 'none'")],
)
def gelu(x: Any, /, *, approximate: str = "none") -> Any:
    """Elementwise ``x`` times the chance that a standard normal number is below ``x``.

    D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, 2016; with ``approximate="tanh"``
    their approximation of it.
    """
    x = real_floating(x)
    return np.maximum(x, -_TAIL_END) * _normal_cdf(x, approximate)


def _gelu_bend(g: Any, x: Any, approximate: str) -> Any:
    c = saturate(x, _TAIL_END)
    if approximate == "none":
        density = mul(1 / math.sqrt(2 * math.pi), exp(neg(square(mul(c, _SQRT_HALF)))))
        return mul(g, mul(density, sub(2, square(c))))
    z, steep = _tanh_argument(c)
    s, other = sigmoid(z), sigmoid(neg(z))
    bend = add(mul(6 * _TANH_SCALE * _CUBIC, c), mul(sub(other, s), square(steep)))
    return mul(g, mul(mul(s, other), add(mul(2, steep), mul(c, bend))))


@op(
    elementwise=True,
    prepare=_gelu_options,
    scalar=lambda x, approximate: _slope_scalar(x, approximate, _gaussian),
    decomposition=lambda x, approximate: _slope_of(x, approximate),
    vjp={"x": _gelu_bend},
    samples=[*singles(), *singles(approximate="tanh")],
    rejects=[_COMPLEX, reject((3,), approximate=True, error=SettingError, match="choose 'none'")],
)
def gelu_slope(x: Any, /, *, approximate: str = "none") -> Any:
    """Elementwise derivative of ``gelu``."""
    x = real_floating(x)
    c, chance = np.clip(x, -_TAIL_END, _TAIL_END), _normal_cdf(x, approximate)
    if approximate == "none":  # the steps of the rule, whose bits these are
        z = c * _SQRT_HALF
        return chance + c * ((_SQRT_HALF / math.sqrt(math.pi)) * np.exp(-(z * z)))
    z = _TANH_SCALE * (c * (1 + _CUBIC * (c * c)))
    return chance + ((c * chance) * logistic(-z)) * (_TANH_SCALE * (1 + 3 * _CUBIC * (c * c)))


publish(globals())
