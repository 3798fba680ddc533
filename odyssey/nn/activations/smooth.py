"""Smooth activation functions: sigmoid, softplus, SiLU, Mish.

Names and definitions are those of PyTorch. A formula that multiplies ``x`` by a factor that
underflows to 0, as ``x * sigmoid(x)`` for very negative ``x``, clips ``x`` beyond that point first,
so that infinity gives the limit and not NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.elementwise.complex_numbers import absolute
from odyssey.ops.elementwise.elementary import exp, logaddexp, tanh
from odyssey.special.error_functions import saturate
from odyssey.table.declare import op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import real_floating, real_options
from odyssey.table.samples import reject, sample, singles

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")

# ------------------------------------------------------------------ sigmoid


# Where 1 + e**-x is no longer 1 to the left, and still far from overflow.
_LOWEST = {"e": -9.0, "f": -80.0, "d": -700.0}


def logistic(x: Any) -> Any:
    """Logistic function of an array, for kernels."""
    x = np.asarray(x)
    kind = x.dtype.kind
    if kind == "c":
        right = np.real(x) >= 0  # exp of a non-positive number: no overflow on either side
        e = np.exp(np.where(right, -x, x))
        return np.where(right, 1, e) / (1 + e)
    if kind != "f":
        x = x.astype(np.exp(np.zeros(1, x.dtype)).dtype)
    # In place, without np.where between two formulas, which took twice as long as exp.
    lowest = _LOWEST.get(x.dtype.char, -700.0)
    out: Any = np.asarray(np.maximum(x, lowest))
    np.negative(out, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.divide(1, out, out)
    # For more negative numbers it is the exponential.
    if out.size and not np.minimum.reduce(x, None) >= lowest:
        np.multiply(out, np.exp(np.minimum(x - lowest, 0)), out)
    return out


def logistic_scalar(x: Any) -> Any:
    """Logistic function of a number."""
    e = math.exp(-abs(x))
    return select(x > T(0), T(1), e) / (T(1) + e)


@op(
    elementwise=True,
    aliases=["expit"],
    scalar=lambda x: logistic_scalar(x),
    decomposition=lambda x: div(1, add(1, exp(neg(x)))),
    vjp={"x": lambda g, out: mul(g, mul(out, sub(1, out)))},
    kinks="exact to the rounding of 1: 0 where the result has rounded to 0 or 1",
    samples=singles(),
)
def sigmoid(x: Any, /) -> Any:
    """Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
    out = logistic(x)
    return out if np.ndim(out) else out[()]


def single_precision() -> bool:
    """Return whether a scalar function computes in single precision."""
    return bool(T.kind == "f" and T.eps > 1e-10)


def _log1p_series(u: Any) -> Any:
    """Return log(1 + u) for u from 0 to 1, as log((1 + s) / (1 - s)), a series in s**2.

    For loops of numba, where it takes half the time of ``log1p``; in programs it takes twice that.
    """
    s = u / (T(2) + u)
    z = s * s
    total = T(0)
    for k in reversed(range(8 if single_precision() else 17)):  # z is at most 1/9
        total = total * z + T(1 / (2 * k + 1))
    return T(2) * s * total


@op(
    elementwise=True,
    aliases=["logsigmoid", "log_expit"],
    kernels=[scalar_loop(lambda x: select(x > T(0), T(0), x) - _log1p_series(math.exp(-abs(x))))],
    scalar=lambda x: select(x > T(0), T(0), x) - math.log1p(math.exp(-abs(x))),
    decomposition=lambda x: neg(softplus(neg(x))),
    vjp={"x": lambda g, x: mul(g, sigmoid(neg(x)))},
    samples=singles(),
    rejects=[_COMPLEX],
    precision="wide",
)
def log_sigmoid(x: Any, /) -> Any:
    """Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""
    x = real_floating(x)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _softplus_options(beta: Any) -> tuple[float, ...]:
    (beta,) = real_options("softplus", "beta")(beta)
    if beta == 0:
        raise SettingError("softplus: beta is 0, by which it divides; pass another number")
    return (beta,)


def _softplus_scalar(x: Any, beta: float) -> Any:
    z = T(beta) * x
    return (select(z < T(0), T(0), z) + math.log1p(math.exp(-abs(z)))) / T(beta)


def _softplus_loop(x: Any, beta: float) -> Any:
    z = T(beta) * x
    return (select(z < T(0), T(0), z) + _log1p_series(math.exp(-abs(z)))) / T(beta)


@op(
    elementwise=True,
    prepare=_softplus_options,
    kernels=[scalar_loop(_softplus_loop)],
    scalar=_softplus_scalar,
    decomposition=lambda x, beta: div(logaddexp(0, mul(beta, x)), beta),
    vjp={"x": lambda g, x, beta: mul(g, sigmoid(mul(beta, x)))},
    samples=[*singles(), sample((2, 3), beta=2.5)],
    rejects=[
        _COMPLEX,
        reject((3,), beta=0, error=SettingError, match="beta is 0"),
        reject((3,), beta="2x", error=DTypeError, match="pass a real number"),
        reject((3,), beta=np.ones(3), error=DTypeError, match="static"),
    ],
    precision="wide",
)
def softplus(x: Any, /, *, beta: float = 1.0) -> Any:
    """Elementwise ``log(1 + e**(beta x)) / beta``, exact at every size: there is no threshold."""
    z = beta * real_floating(x)
    return (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta


@op(
    elementwise=True,
    aliases=["swish"],
    scalar=lambda x: select(x < T(-1000), T(-1000), x) * logistic_scalar(x),
    decomposition=lambda x: mul(x, sigmoid(x)),
    vjp={"x": lambda g, x: mul(g, silu_slope(x))},
    samples=singles(),
    rejects=[_COMPLEX],
)
def silu(x: Any, /) -> Any:
    """Elementwise ``x * sigmoid(x)``, also called swish."""
    x = real_floating(x)
    return np.maximum(x, -1000) * logistic(x)


def _silu_slope(x: Any) -> Any:
    e = math.exp(-abs(x))
    right, share = x > T(0), T(1) / (T(1) + e)
    s, other = select(right, share, e * share), select(right, e * share, share)
    c = select(x < T(-1000), T(-1000), select(x > T(1000), T(1000), x))
    return s + c * s * other


def _silu_slope_decomposition(x: Any) -> Any:
    s = sigmoid(x)
    return add(s, mul(mul(saturate(x, 1000.0), s), sigmoid(neg(x))))


def _silu_second_derivative(g: Any, x: Any) -> Any:
    s, other = sigmoid(x), sigmoid(neg(x))
    bend = add(2, mul(saturate(x, 1000.0), sub(other, s)))
    return mul(g, mul(mul(s, other), bend))


@op(
    elementwise=True,
    scalar=_silu_slope,
    decomposition=_silu_slope_decomposition,
    vjp={"x": _silu_second_derivative},
    samples=singles(),
    rejects=[_COMPLEX],
)
def silu_slope(x: Any, /) -> Any:
    """Elementwise derivative of ``silu``."""
    x = real_floating(x)
    s = logistic(x)
    return s + np.clip(x, -1000, 1000) * s * logistic(-x)


def _mish_fraction(x: Any) -> tuple[Any, Any, Any]:
    """Return ``e**-|x|``, and w, r with tanh(log(1 + e**x)) = w / (w + r), without cancellation."""
    e = np.exp(-np.abs(x))
    right = x > 0
    return e, np.where(right, 1 + 2 * e, e * (e + 2)), np.where(right, 2 * e * e, 2)


def _mish_fraction_scalar(x: Any) -> tuple[Any, Any, Any]:
    e = math.exp(-math.fabs(x))
    right = x > T(0)
    return e, select(right, T(1) + T(2) * e, e * (e + T(2))), select(right, T(2) * e * e, T(2))


def _mish_scalar(x: Any) -> Any:
    _, above, rest = _mish_fraction_scalar(x)
    return select(x < T(-1000), T(-1000), x) * (above / (above + rest))


@op(
    elementwise=True,
    kernels=[scalar_loop(_mish_scalar)],
    scalar=_mish_scalar,
    decomposition=lambda x: mul(x, tanh(softplus(x))),
    vjp={"x": lambda g, x: mul(g, mish_slope(x))},
    samples=singles(),
    rejects=[_COMPLEX],
)
def mish(x: Any, /) -> Any:
    """Elementwise ``x * tanh(log(1 + e**x))``."""
    x = real_floating(x)
    _, above, rest = _mish_fraction(x)
    return np.maximum(x, -1000) * (above / (above + rest))


def _mish_slope(x: Any) -> Any:
    e, above, rest = _mish_fraction_scalar(x)
    below = above + rest
    c = select(x < T(-1000), T(-1000), select(x > T(1000), T(1000), x))
    s = select(x > T(0), T(1), e) / (T(1) + e)
    w = above / below
    # 1 - w**2, of which the sum and the difference do not cancel
    return w + c * s * (rest / below) * (T(1) + w)


def _mish_slope_decomposition(x: Any) -> Any:
    w = tanh(softplus(x))
    return add(w, mul(mul(saturate(x, 1000.0), sigmoid(x)), sub(1, square(w))))


def _mish_second_derivative(g: Any, x: Any) -> Any:
    # With w = tanh(log(1 + e**x)) and s = sigmoid(x), w' = s (1 - w**2) and s' = s (1 - s).
    w, s, c = tanh(softplus(x)), sigmoid(x), saturate(x, 1000.0)
    bend = add(2, mul(c, sub(1, mul(s, add(1, mul(2, w))))))
    return mul(g, mul(mul(s, sub(1, square(w))), bend))


@op(
    elementwise=True,
    scalar=_mish_slope,
    decomposition=_mish_slope_decomposition,
    vjp={"x": _mish_second_derivative},
    samples=singles(),
    rejects=[_COMPLEX],
)
def mish_slope(x: Any, /) -> Any:
    """Elementwise derivative of ``mish``."""
    x = real_floating(x)
    e, above, rest = _mish_fraction(x)
    below = above + rest
    w, s = above / below, np.where(x > 0, 1, e) / (1 + e)
    return w + np.clip(x, -1000, 1000) * s * (rest / below) * (1 + w)


def _softsign_scalar(x: Any) -> Any:
    return select(abs(x) > T(T.max), math.copysign(T(1), x), x / (T(1) + abs(x)))


@op(
    elementwise=True,
    kernels=[scalar_loop(_softsign_scalar)],
    scalar=_softsign_scalar,
    decomposition=lambda x: div(x, add(1, absolute(x))),
    vjp={"x": lambda g, x: _divide_by_square(g, add(1, absolute(x)))},
    samples=singles(low=0.5),
    rejects=[_COMPLEX],
)
def softsign(x: Any, /) -> Any:
    """Elementwise ``x / (1 + |x|)``."""
    x = real_floating(x)
    size = np.abs(x)
    # The largest number stands for infinity, which over itself were NaN.
    size = np.minimum(size, np.finfo(x.dtype).max)
    return np.copysign(size, x) / (1 + size)


def _divide_by_square(g: Any, length: Any) -> Any:
    # Twice, for the square could overflow.
    return div(div(g, length), length)


publish(globals())
