"""Exponentials, logarithms, powers and roots."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.elementwise.choice import (
    equal,
    greater_equal,
    isnan,
    logical_and,
    logical_or,
    where,
)
from odyssey.ops.structure.shape import astype
from odyssey.table.declare import op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import promoted, real_dtype, real_options
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample, singles
from odyssey.table.value import NUMBERS

_POWERS = [sample(*s.operands, low=0.5) for s in PAIRS]


@op(
    elementwise=True,
    ufunc=np.power,
    aliases=["pow"],
    scalar=lambda x, y: math.pow(x, y),
    vjp={
        "x": lambda g, x, y: mul(g, power_slope(x, y)),
        "y": lambda g, x, y: mul(g, power_log(x, y)),
    },
    kinks="at y = 0 the derivative in x is 0, also for 0**0; at x = 0 and y >= 0 that in y is 0; "
    "at x < 0 that in y is NaN, and that in x if y is infinite; at 0**0 the second derivatives but "
    "that in x alone are NaN",
    samples=_POWERS,
    rejects=[NO_BROADCAST],
    precision="wide",
)
def power(x: Any, y: Any, /) -> Any:
    """Elementwise power, ``x ** y``."""
    return np.power(x, y)


def cast_to_cotangent(v: Any, g: Any) -> Any:
    """Cast a real array to the real dtype of the cotangent; see ``promoted``."""
    if not hasattr(v, "dtype") or v.dtype == g.dtype or v.dtype.kind == "c":
        return v
    real = real_dtype(g.dtype)
    return v if v.dtype == real else astype(v, real)


def _power_slope_base_rule(g: Any, x: Any, y: Any, out: Any) -> Any:
    x, y = cast_to_cotangent(x, g), cast_to_cotangent(y, g)
    slope = power_slope(x, sub(y, 1))
    nothing = logical_or(equal(y, 0), equal(slope, 0))  # whose other factor may be infinite
    return mul(g, where(isnan(out), np.nan, where(nothing, 0, mul(y, slope))))


def _power_mixed_rule(g: Any, x: Any, y: Any) -> Any:
    """Return ``g`` times the mixed derivative of a power, ``x**(y - 1) (1 + y log x)``."""
    x, y = cast_to_cotangent(x, g), cast_to_cotangent(y, g)
    x = add(x, 0)  # + 0 turns -0.0 into 0.0
    below = power(x, sub(y, 1))
    underflowed = logical_and(equal(below, 0), greater_equal(x, 0))
    return mul(g, where(underflowed, 0, mul(below, add(1, mul(y, log(x))))))


def _power_log_exponent_rule(g: Any, x: Any, y: Any, out: Any) -> Any:
    x = cast_to_cotangent(x, g)
    bend = where(equal(out, 0), 0, mul(out, log(x)))
    return mul(g, where(logical_and(equal(x, 0), equal(y, 0)), np.nan, bend))


def _power_slope(x: Any, y: Any) -> Any:
    if type(y) in NUMBERS and y == 2:
        return x + x
    x, y = promoted(x, y)
    below = y - 1
    flat = np.equal(y, 0)
    if flat.any():
        x = np.where(flat, 1, x)
    p = np.power(x, below)
    usual = type(y) in (int, float) and y % 1 == 0 and abs(y) < 1000
    if not usual and p.dtype.kind == "f" and np.less_equal(x, 0).any():
        p = _fix_nonpositive_bases(x, y, below, p)
    slope = _times(y, p)
    return slope if np.isfinite(slope).all() else _fix_overflowed_powers(x, y, p, slope)


_times = ignore_fp_errors("invalid")(np.multiply)


@ignore_fp_errors()
def _fix_nonpositive_bases(x: Any, y: Any, below: Any, p: Any) -> Any:
    """Correct ``p = x**(y - 1)`` for bases that are not positive.

    Subtracting 1 may round a fractional ``y`` to an integer; it leaves a very large ``y`` as it is.
    """
    fractional = np.not_equal(np.floor(y), y)
    by_division = np.power(x, y) / x
    below_zero = np.where(fractional, np.nan, by_division)
    at_zero = np.where(fractional, np.power(np.abs(x), below), np.where(y < 0, by_division, p))
    wrong = np.less_equal(x, 0) & (fractional | np.equal(below, y) & np.isfinite(y))
    return np.where(wrong, np.where(np.equal(x, 0), at_zero, below_zero), p).astype(p.dtype)[()]


@ignore_fp_errors()
def _fix_overflowed_powers(x: Any, y: Any, p: Any, slope: Any) -> Any:
    """Correct ``y * p`` where ``p = x**(y - 1)`` has overflowed or ``y`` is infinite."""
    near = np.isfinite(x) & np.not_equal(x, 0)
    slope = np.where(near & np.isinf(p), y * np.power(x, y) / x, slope)
    slope = np.where(np.isinf(y) & np.less(x, 0), np.nan, slope)
    return np.where(np.equal(p, 0), p, slope)[()]


def _power_slope_scalar(x: Any, y: Any) -> Any:
    below = y - T(1)
    x = select(y == T(0), T(1), x)
    p = math.pow(x, below)
    # As in _fix_nonpositive_bases: y - 1 may round to an integer, or leave y unchanged.
    fractional = (y % T(1) != T(0)) & (abs(y) <= T(T.max)) | (y != y)
    by_division = math.pow(x, y) / x
    at_zero = select(fractional, math.pow(abs(x), below), select(y < T(0), by_division, p))
    wrong = (x <= T(0)) & (fractional | (below == y) & (abs(y) <= T(T.max)))
    exact = select(x == T(0), at_zero, select(fractional, T(math.nan), by_division))
    p = select(wrong, exact, p)
    slope = y * p
    # Where x**(y - 1) has overflowed, or y is infinite.
    near = (abs(x) <= T(T.max)) & (x != T(0)) & (abs(p) > T(T.max))
    slope = select(near, y * math.pow(x, y) / x, slope)
    slope = select((abs(y) > T(T.max)) & (x < T(0)), T(math.nan), slope)
    return select(p == T(0), p, slope)


@op(
    elementwise=True,
    kernel=_power_slope,
    scalar=_power_slope_scalar,
    decomposition=lambda x, y: mul(y, power(x, sub(y, 1))),
    vjp={"x": _power_slope_base_rule, "y": _power_mixed_rule},
    kinks="as of power, of which it is the derivative",
    samples=_POWERS,
    rejects=[NO_BROADCAST],
)
def power_slope(x: Any, y: Any, /) -> Any:
    """Elementwise derivative of a power in its base, ``y * x ** (y - 1)``; 0 where ``y`` is 0."""
    return _power_slope(x, y)


def _power_log(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    out = np.power(x + 0, y)  # + 0 turns -0.0 into 0.0
    at_zero = np.equal(x, 0) & np.greater_equal(y, 0)
    # x may be a Python number, or only y complex.
    base = np.where(at_zero, 1, x).astype(out.dtype)
    # Where the power underflows to 0 the logarithm may be infinite.
    underflowed = np.equal(out, 0) & np.greater_equal(x, 0)
    return np.where(underflowed, out, _multiply_by_log(out, base))[()]


@ignore_fp_errors("invalid")
def _multiply_by_log(x: Any, base: Any) -> Any:
    return x * np.log(base)


def _power_log_scalar(x: Any, y: Any) -> Any:
    out = math.pow(x + T(0), y)  # + 0 turns -0.0 into 0.0
    # Where the power underflows to 0 the logarithm may be infinite.
    underflowed = (out == T(0)) & (x >= T(0))
    base = select((x == T(0)) & (y >= T(0)), T(1), x)
    return select(underflowed, out, out * math.log(base))


@op(
    elementwise=True,
    kernel=_power_log,
    scalar=_power_log_scalar,
    decomposition=lambda x, y: mul(power(x, y), log(x)),
    vjp={"x": _power_mixed_rule, "y": _power_log_exponent_rule},
    kinks="as of power, of which it is the derivative",
    samples=_POWERS,
    rejects=[NO_BROADCAST],
)
def power_log(x: Any, y: Any, /) -> Any:
    """Elementwise derivative of a power in its exponent, ``x ** y * log(x)``; 0 at ``x = 0``."""
    return _power_log(x, y)


@op(
    elementwise=True,
    ufunc=np.exp,
    scalar=lambda x: math.exp(x),
    vjp={"x": lambda g, out: mul(g, out)},
    samples=singles(),
    precision="wide",
)
def exp(x: Any, /) -> Any:
    """Elementwise exponential, ``e ** x``."""
    return np.exp(x)


@op(
    elementwise=True,
    ufunc=np.log,
    scalar=lambda x: math.log(x),
    vjp={"x": lambda g, x: div(g, x)},
    kinks="inf at 0, -inf at -0.0; below 0, where the result is NaN, that of the logarithm of -x",
    samples=singles(low=0.5),
    precision="wide",
)
def log(x: Any, /) -> Any:
    """Elementwise natural logarithm."""
    return np.log(x)


@op(
    real=True,
    elementwise=True,
    ufunc=np.exp2,
    scalar=lambda x: math.exp2(x),
    vjp={"x": lambda g, out: mul(g, mul(math.log(2), out))},
    samples=singles(),
    precision="wide",
)
def exp2(x: Any, /) -> Any:
    """Elementwise power of two, ``2 ** x``."""
    return np.exp2(x)


@op(
    elementwise=True,
    ufunc=np.expm1,
    scalar=lambda x: math.expm1(x),
    # Not out + 1, which has lost all digits where x is very negative.
    vjp={"x": lambda g, x: mul(g, exp(x))},
    samples=singles(),
    precision="wide",
)
def expm1(x: Any, /) -> Any:
    """Elementwise ``e ** x - 1``, exact near 0."""
    return np.expm1(x)


@op(
    elementwise=True,
    ufunc=np.log2,
    scalar=lambda x: math.log2(x),
    vjp={"x": lambda g, x: div(g, mul(math.log(2), x))},
    kinks="inf at 0, -inf at -0.0; below 0, where the result is NaN, that of the logarithm of -x",
    samples=singles(low=0.5),
    precision="wide",
)
def log2(x: Any, /) -> Any:
    """Elementwise logarithm to base 2."""
    return np.log2(x)


@op(
    elementwise=True,
    ufunc=np.log10,
    scalar=lambda x: math.log10(x),
    vjp={"x": lambda g, x: div(g, mul(math.log(10), x))},
    kinks="inf at 0, -inf at -0.0; below 0, where the result is NaN, that of the logarithm of -x",
    samples=singles(low=0.5),
    precision="wide",
)
def log10(x: Any, /) -> Any:
    """Elementwise logarithm to base 10."""
    return np.log10(x)


@op(
    elementwise=True,
    ufunc=np.log1p,
    scalar=lambda x: math.log1p(x),
    vjp={"x": lambda g, x: div(g, add(1, x))},
    kinks="inf at -1; below, where the result is NaN, still 1 / (1 + x)",
    samples=singles(low=-0.5),
    precision="wide",
)
def log1p(x: Any, /) -> Any:
    """Elementwise natural logarithm of ``1 + x``, exact near 0."""
    return np.log1p(x)


@op(
    elementwise=True,
    ufunc=np.sqrt,
    scalar=lambda x: math.sqrt(x),
    vjp={"x": lambda g, out: div(mul(g, 0.5), out)},
    kinks="inf at 0, -inf at -0.0",
    samples=singles(low=0.5),
)
def sqrt(x: Any, /) -> Any:
    """Elementwise square root."""
    return np.sqrt(x)


@op(
    elementwise=True,
    scalar=lambda x: T(1) / math.sqrt(x),
    decomposition=lambda x: div(1, sqrt(x)),
    vjp={"x": lambda g, x, out: mul(g, mul(-0.5, div(out, x)))},
    kinks="-inf at 0",
    samples=singles(low=0.5),
    precision="wide",
)
def rsqrt(x: Any, /) -> Any:
    """Elementwise reciprocal of the square root, ``1 / sqrt(x)``."""
    return 1 / np.sqrt(x)


def _cbrt_scalar(x: Any) -> Any:
    size = abs(x)
    near = math.exp(math.log(size) * T(1 / 3))
    # One Newton step removes the rounding error of the logarithm.
    near = near - (near - size / near / near) / T(3)
    ends = (size == T(0)) | (size > T(T.max))
    return math.copysign(select(ends, size, near), x)


@op(
    elementwise=True,
    ufunc=np.cbrt,
    scalar=lambda x: _cbrt_scalar(x),
    # Two divisions: the square underflows to 0 where the derivative is finite.
    vjp={"x": lambda g, out: div(div(mul(g, 1 / 3), out), out)},
    kinks="inf at 0",
    samples=[*singles(low=0.5), sample((3,), low=-2.0, high=-0.5)],
)
def cbrt(x: Any, /) -> Any:
    """Elementwise cube root; of a negative number the negative one."""
    return np.cbrt(x)


def _lower_reciprocal(build: Any, x: Any) -> Any:
    if x.dtype.kind == "c":  # an integer 1 / 0 differs from the floating one
        return NotImplemented
    # For integers NumPy divides in floating point and truncates the quotient, at 0 too.
    dtype = x.dtype if is_floating(x.dtype) else np.float64
    return build.elementwise(lambda x: T(1) / x, x, dtype=dtype)


@op(
    elementwise=True,
    ufunc=np.reciprocal,
    scalar=lambda x: T(1) / x if T.kind == "f" else select(abs(x) == T(1), x, T(0)),
    lowering=_lower_reciprocal,
    vjp={"x": lambda g, out: neg(mul(g, square(out)))},
    kinks="-inf at 0",
    samples=singles(low=0.5),
    precision="wide",
)
def reciprocal(x: Any, /) -> Any:
    """Elementwise ``1 / x``; truncated to an integer for integers, as in NumPy."""
    return np.reciprocal(x)


@op(
    elementwise=True,
    ufunc=np.tanh,
    scalar=lambda x: math.tanh(x),
    vjp={"x": lambda g, out: mul(g, sub(1, mul(out, out)))},
    kinks="exact to the rounding of 1: 0 where the result has rounded to -1 or 1",
    samples=singles(),
)
def tanh(x: Any, /) -> Any:
    """Elementwise hyperbolic tangent."""
    return np.tanh(x)


_COMPLEX = reject(np.array([1j]), 1.0, error=DTypeError, match="no meaning for complex")


@ignore_fp_errors("invalid")
def _log_sum_difference(x: Any, y: Any, base: float) -> Any:
    return np.asarray((x - y) * math.log(base))


def _power_share(x: Any, y: Any, base: float) -> Any:
    x, y = promoted(x, y)
    # From the difference: a common offset of large exponents cancels.
    away = _log_sum_difference(x, y, base)
    if away.dtype.kind == "c":
        raise TypeError("needs real numbers")
    e = np.exp(-np.abs(away))
    out = np.where(away >= 0, 1, e) / (1 + e)
    if np.isnan(out).any():
        out = np.where(np.isneginf(x) & np.isneginf(y), 0, out)
    return out.astype(away.dtype, copy=False)[()]


def _power_share_rule(g: Any, x: Any, y: Any, base: float) -> Any:
    both = mul(power_share(x, y, base=base), power_share(y, x, base=base))
    return mul(g, mul(math.log(base), both))


def _power_share_scalar(x: Any, y: Any, base: float) -> Any:
    away = (x - y) * T(math.log(base))
    e = math.exp(-abs(away))
    out = select(away >= T(0), T(1), e) / (T(1) + e)
    return select((x < T(-T.max)) & (y < T(-T.max)), T(0), out)


@op(
    elementwise=True,
    kernel=_power_share,
    kernels=[scalar_loop(_power_share_scalar, 2)],
    scalar=_power_share_scalar,
    decomposition=lambda x, y, base: div(1, add(1, exp(mul(sub(y, x), math.log(base))))),
    prepare=real_options("power_share", "base"),
    vjp={"x": _power_share_rule, "y": lambda g, x, y, base: neg(_power_share_rule(g, x, y, base))},
    kinks="0 where both are -inf, NaN where both are inf",
    samples=[*PAIRS, sample((2, 3), (3,), base=2)],
    rejects=[
        NO_BROADCAST,
        reject(np.array([1j]), 1.0, error=DTypeError, match="needs real numbers"),
        reject((2,), (2,), base="e", error=DTypeError, match="pass a real number"),
    ],
)
def power_share(x: Any, y: Any, /, *, base: float = math.e) -> Any:
    """Elementwise ``base**x / (base**x + base**y)``, without overflow; 0 where both are -inf."""
    return _power_share(x, y, base)


@op(
    elementwise=True,
    ufunc=np.logaddexp,
    scalar=lambda x, y: select(
        x == y,
        x + T(0.6931471805599453),
        select(x > y, x, y) + math.log1p(math.exp(-abs(x - y))),
    ),
    decomposition=lambda x, y: log(add(exp(x), exp(y))),
    vjp={
        "x": lambda g, x, y: mul(g, power_share(x, y)),
        "y": lambda g, x, y: mul(g, power_share(y, x)),
    },
    kinks="0 where both are -inf, as that of logsumexp; NaN where both are inf",
    samples=PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
    precision="wide",
)
def logaddexp(x: Any, y: Any, /) -> Any:
    """Elementwise ``log(e**x + e**y)``, without overflow."""
    return np.logaddexp(x, y)


@op(
    elementwise=True,
    ufunc=np.logaddexp2,
    scalar=lambda x, y: select(
        x == y,
        x + T(1),
        select(x > y, x, y) + math.log1p(math.exp2(-abs(x - y))) * T(1.4426950408889634),
    ),
    decomposition=lambda x, y: log2(add(exp2(x), exp2(y))),
    vjp={
        "x": lambda g, x, y: mul(g, power_share(x, y, base=2.0)),
        "y": lambda g, x, y: mul(g, power_share(y, x, base=2.0)),
    },
    kinks="0 where both are -inf; NaN where both are inf",
    samples=PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
    precision="wide",
)
def logaddexp2(x: Any, y: Any, /) -> Any:
    """Elementwise ``log2(2**x + 2**y)``, without overflow."""
    return np.logaddexp2(x, y)


publish(globals())
