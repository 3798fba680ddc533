"""Activation functions, element by element; names and definitions are those of PyTorch.

Where a formula multiplies ``x`` by something that has fallen to 0, as ``x * sigmoid(x)`` does far
to the left, ``x`` is stopped first at a number beyond that point, so that infinity gives the limit
and not NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OdysseyError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.elementwise.complex_numbers import absolute
from odyssey.ops.elementwise.elementary import exp, power, tanh
from odyssey.ops.elementwise.logarithms import logaddexp
from odyssey.special.error_function import bell, erf, erfc, error_function, within
from odyssey.table.declare import op, publish
from odyssey.table.kernels import by_scalar
from odyssey.table.operands import real_floating, real_options
from odyssey.table.samples import reject, sample, singles

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")

# ------------------------------------------------------------------ sigmoid and its kin


# Where 1 + e**-x is no longer 1 to the left, and still far from overflow.
_LOWEST = {"e": -9.0, "f": -80.0, "d": -700.0}


def _sigmoid(x: Any) -> Any:
    if np.iscomplexobj(x):
        right = np.real(x) >= 0  # exp of a non-positive number: no overflow on either side
        e = np.exp(np.where(right, -x, x))
        return np.where(right, 1, e) / (1 + e)
    x = np.asarray(x)
    if x.dtype.kind != "f":
        x = x.astype(np.exp(np.zeros(1, x.dtype)).dtype)
    # In place, without a choice between two formulas: np.where alone took twice as long as exp.
    lowest = _LOWEST.get(x.dtype.char, -700.0)
    out: Any = np.asarray(np.maximum(x, lowest))
    np.negative(out, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.divide(1, out, out)
    if out.size and not x.min() >= lowest:  # further to the left it is the exponential alone
        np.multiply(out, np.exp(np.minimum(x - lowest, 0)), out)
    return out


def _sigmoid_scalar(x: Any) -> Any:
    e = math.exp(-abs(x))
    return select(x > T(0), T(1), e) / (T(1) + e)


@op(
    elementwise=True,
    aliases=["expit"],
    scalar=lambda x: _sigmoid_scalar(x),
    equals=lambda x: div(1, add(1, exp(neg(x)))),
    vjp={"x": lambda g, out: mul(g, mul(out, sub(1, out)))},
    kinks="exact to the rounding of 1: 0 where the result has rounded to 0 or 1",
    samples=singles(),
)
def sigmoid(x: Any, /) -> Any:
    """Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
    out = _sigmoid(x)
    return out if np.ndim(out) else out[()]


@op(
    elementwise=True,
    aliases=["logsigmoid", "log_expit"],
    scalar=lambda x: select(x > T(0), T(0), x) - math.log1p(math.exp(-abs(x))),
    equals=lambda x: neg(softplus(neg(x))),
    vjp={"x": lambda g, x: mul(g, sigmoid(neg(x)))},
    samples=singles(),
    rejects=[_COMPLEX],
)
def log_sigmoid(x: Any, /) -> Any:
    """Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""
    x = real_floating(x)
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def _softplus_options(beta: Any) -> tuple[float, ...]:
    (beta,) = real_options("softplus", "beta")(beta)
    if beta == 0:
        raise OdysseyError("softplus: beta is 0, by which it divides; pass another number")
    return (beta,)


def _softplus_scalar(x: Any, beta: float) -> Any:
    z = T(beta) * x
    return (select(z < T(0), T(0), z) + math.log1p(math.exp(-abs(z)))) / T(beta)


@op(
    elementwise=True,
    prepare=_softplus_options,
    scalar=lambda x, beta: _softplus_scalar(x, beta),
    equals=lambda x, beta: div(logaddexp(0, mul(beta, x)), beta),
    vjp={"x": lambda g, x, beta: mul(g, sigmoid(mul(beta, x)))},
    samples=[*singles(), sample((2, 3), beta=2.5)],
    rejects=[
        _COMPLEX,
        reject((3,), beta=0, error=OdysseyError, match="beta is 0"),
        reject((3,), beta="2x", error=DTypeError, match="pass a real number"),
        reject((3,), beta=np.ones(3), error=DTypeError, match="static"),
    ],
)
def softplus(x: Any, /, *, beta: float = 1.0) -> Any:
    """Elementwise ``log(1 + e**(beta x)) / beta``, exact at every size: there is no threshold."""
    z = beta * real_floating(x)
    return (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta


def _silu_rule(g: Any, x: Any) -> Any:
    s = sigmoid(x)
    bend = mul(mul(within(x, 1000.0), s), sigmoid(neg(x)))
    return mul(g, add(s, bend))


@op(
    elementwise=True,
    aliases=["swish"],
    scalar=lambda x: select(x < T(-1000), T(-1000), x) * _sigmoid_scalar(x),
    equals=lambda x: mul(x, sigmoid(x)),
    vjp={"x": _silu_rule},
    samples=singles(),
    rejects=[_COMPLEX],
)
def silu(x: Any, /) -> Any:
    """Elementwise ``x * sigmoid(x)``, also called swish."""
    x = real_floating(x)
    return np.maximum(x, -1000) * _sigmoid(x)


def _mish_rule(g: Any, x: Any) -> Any:
    w = tanh(softplus(x))
    bend = mul(mul(within(x, 1000.0), sigmoid(x)), sub(1, square(w)))
    return mul(g, add(w, bend))


def _mish_scalar(x: Any) -> Any:
    e = math.exp(-math.fabs(x))
    above = select(x > T(0), T(1) + T(2) * e, e * (e + T(2)))
    below = above + select(x > T(0), T(2) * e * e, T(2))
    return select(x < T(-1000), T(-1000), x) * (above / below)


@op(
    elementwise=True,
    kernels=[by_scalar(_mish_scalar)],
    scalar=_mish_scalar,
    equals=lambda x: mul(x, tanh(softplus(x))),
    vjp={"x": _mish_rule},
    samples=singles(),
    rejects=[_COMPLEX],
)
def mish(x: Any, /) -> Any:
    """Elementwise ``x * tanh(log(1 + e**x))``."""
    x = real_floating(x)
    # With e = e**-|x|, tanh(log(1 + e**x)) is a quotient in which nothing cancels or overflows.
    e = np.exp(-np.abs(x))
    right = x > 0
    above = np.where(right, 1 + 2 * e, e * (e + 2))
    return np.maximum(x, -1000) * (above / (above + np.where(right, 2 * e * e, 2)))


def _softsign_scalar(x: Any) -> Any:
    return select(abs(x) > T(T.max), math.copysign(T(1), x), x / (T(1) + abs(x)))


@op(
    elementwise=True,
    kernels=[by_scalar(_softsign_scalar)],
    scalar=_softsign_scalar,
    equals=lambda x: div(x, add(1, absolute(x))),
    vjp={"x": lambda g, x: _over_square(g, add(1, absolute(x)))},
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


def _over_square(g: Any, length: Any) -> Any:
    # Twice, for the square could overflow.
    return div(div(g, length), length)


# ------------------------------------------------------------------ gelu

# Beyond 40 the normal distribution function is 0 or 1, and the slope of its tails 0.
_END = 40.0
_SQRT_HALF = math.sqrt(0.5)
# Twice sqrt(2 / pi): (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel.
_STEEP = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715


def _gelu_options(approximate: Any) -> tuple[str]:
    if approximate not in ("none", "tanh"):
        raise OdysseyError(f'gelu: approximate is {approximate!r}; pass "none" or "tanh"')
    return (approximate,)


def _gelu_rule(g: Any, x: Any, approximate: str, residual: Any = None) -> Any:
    c = within(x, _END)
    if approximate == "none":
        z = mul(c, _SQRT_HALF)
        chance = mul(0.5, erfc(neg(z))) if residual is None else residual
        bend = mul(c, mul(_SQRT_HALF / math.sqrt(math.pi), bell(z)))
    else:
        z = mul(_STEEP, mul(c, add(1, mul(_CUBIC, square(c)))))
        chance = sigmoid(z) if residual is None else residual
        slope = mul(_STEEP, add(1, mul(3 * _CUBIC, square(c))))
        bend = mul(mul(mul(c, chance), sigmoid(neg(z))), slope)
    return mul(g, add(chance, bend))


def _chance(x: Any, approximate: str) -> Any:
    """What gelu multiplies a number by."""
    if approximate == "none":
        return 0.5 * error_function(x * -_SQRT_HALF, complement=True)
    c = np.clip(x, -_END, _END)
    return _sigmoid(_STEEP * (c * (1 + _CUBIC * (c * c))))


def _gelu_with_chance(x: Any, approximate: str) -> tuple[Any, Any]:
    """The result, and for the rule the chance: two thirds of the time of both."""
    x = real_floating(x)
    chance = _chance(x, approximate)
    return np.maximum(x, -_END) * chance, chance


def _gelu_in_ops(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return mul(mul(0.5, x), add(1, erf(mul(x, _SQRT_HALF))))
    inner = mul(math.sqrt(2 / math.pi), add(x, mul(_CUBIC, power(x, 3))))
    return mul(mul(0.5, x), add(1, tanh(inner)))


def _gelu_scalar(x: Any, approximate: str) -> Any:
    return select(x < T(-_END), T(-_END), x) * _chance_scalar(x, approximate)


def _chance_scalar(x: Any, approximate: str) -> Any:
    if approximate == "none":
        return T(0.5) * math.erfc(x * T(-_SQRT_HALF))
    c = select(x < T(-_END), T(-_END), select(x > T(_END), T(_END), x))
    return _sigmoid_scalar(T(_STEEP) * (c * (T(1) + T(_CUBIC) * (c * c))))


_compiled_chance = by_scalar(_chance_scalar).run


def _compiled_forward(x: Any, approximate: str) -> tuple[Any, Any]:
    chance = _compiled_chance(x, approximate)
    return np.maximum(x, -_END) * chance, chance


@op(
    elementwise=True,
    with_residual=_gelu_with_chance,
    prepare=_gelu_options,
    kernels=[by_scalar(_gelu_scalar)._replace(with_residual=_compiled_forward)],
    scalar=_gelu_scalar,
    equals=_gelu_in_ops,
    vjp={"x": _gelu_rule},
    samples=[*singles(), *singles(approximate="tanh")],
    rejects=[_COMPLEX, reject((3,), approximate=True, error=OdysseyError, match='pass "none"')],
)
def gelu(x: Any, /, *, approximate: str = "none") -> Any:
    """Elementwise ``x`` times the chance that a standard normal number is below ``x``.

    D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, 2016; with ``approximate="tanh"``
    their approximation of it.
    """
    x = real_floating(x)
    return np.maximum(x, -_END) * _chance(x, approximate)


publish(globals())
