"""Trigonometric and hyperbolic functions.

The derivatives of the inverse functions are written so that no intermediate overflows, and for
complex numbers so that they are continuous wherever NumPy's function is.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, square, sub
from odyssey.ops.elementwise.choice import equal, isinf, logical_and, where
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.table.declare import op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import promoted
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample, singles
from odyssey.table.shape_rules import floating_dtype

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="no meaning for complex")


@op(
    elementwise=True,
    ufunc=np.sin,
    scalar=lambda x: math.sin(x),
    vjp={"x": lambda g, x: mul(g, cos(x))},
    samples=singles(),
)
def sin(x: Any, /) -> Any:
    """Elementwise sine of an angle in radians."""
    return np.sin(x)


@op(
    elementwise=True,
    ufunc=np.cos,
    scalar=lambda x: math.cos(x),
    vjp={"x": lambda g, x: neg(mul(g, sin(x)))},
    samples=singles(),
)
def cos(x: Any, /) -> Any:
    """Elementwise cosine of an angle in radians."""
    return np.cos(x)


@op(
    elementwise=True,
    ufunc=np.tan,
    scalar=lambda x: math.tan(x),
    vjp={"x": lambda g, out: mul(g, add(1, square(out)))},
    samples=singles(low=-1.0, high=1.0),
    precision="wide",
)
def tan(x: Any, /) -> Any:
    """Elementwise tangent of an angle in radians."""
    return np.tan(x)


@op(
    elementwise=True,
    ufunc=np.sinh,
    scalar=lambda x: math.sinh(x),
    vjp={"x": lambda g, x: mul(g, cosh(x))},
    samples=singles(),
    precision="wide",
)
def sinh(x: Any, /) -> Any:
    """Elementwise hyperbolic sine."""
    return np.sinh(x)


@op(
    elementwise=True,
    ufunc=np.cosh,
    scalar=lambda x: math.cosh(x),
    vjp={"x": lambda g, x: mul(g, sinh(x))},
    samples=singles(),
    precision="wide",
)
def cosh(x: Any, /) -> Any:
    """Elementwise hyperbolic cosine."""
    return np.cosh(x)


# ------------------------------------------------------------------ degrees and radians


@op(
    elementwise=True,
    ufunc=np.deg2rad,
    numpy=[np.radians],
    aliases=["radians"],
    scalar=lambda x: x * T(0.017453292519943295),
    decomposition=lambda x: mul(x, math.pi / 180),
    vjp={"x": lambda g: deg2rad(g)},
    samples=singles(),
    rejects=[_COMPLEX],
)
def deg2rad(x: Any, /) -> Any:
    """Convert degrees to radians, elementwise."""
    return np.deg2rad(x)


@op(
    elementwise=True,
    ufunc=np.rad2deg,
    numpy=[np.degrees],
    aliases=["degrees"],
    scalar=lambda x: x * T(57.29577951308232),
    decomposition=lambda x: mul(x, 180 / math.pi),
    vjp={"x": lambda g: rad2deg(g)},
    samples=singles(),
    rejects=[_COMPLEX],
)
def rad2deg(x: Any, /) -> Any:
    """Convert radians to degrees, elementwise."""
    return np.rad2deg(x)


# ------------------------------------------------------------------ inverse functions


def _one_less_square(x: Any) -> Any:
    # As a product: 1 - x**2 would cancel near the ends of the domain.
    return mul(sub(1, x), add(1, x))


@op(
    elementwise=True,
    ufunc=np.arcsin,
    aliases=["asin"],
    scalar=lambda x: math.asin(x),
    vjp={"x": lambda g, x: div(g, sqrt(_one_less_square(x)))},
    kinks="inf at -1 and 1, the second derivative there NaN",
    samples=singles(low=-0.8, high=0.8),
    precision="wide",
)
def arcsin(x: Any, /) -> Any:
    """Elementwise angle whose sine is ``x``, in radians."""
    return np.arcsin(x)


@op(
    elementwise=True,
    ufunc=np.arccos,
    aliases=["acos"],
    scalar=lambda x: math.acos(x),
    vjp={"x": lambda g, x: neg(div(g, sqrt(_one_less_square(x))))},
    kinks="-inf at -1 and 1, the second derivative there NaN",
    samples=singles(low=-0.8, high=0.8),
    precision="wide",
)
def arccos(x: Any, /) -> Any:
    """Elementwise angle whose cosine is ``x``, in radians."""
    return np.arccos(x)


def _arctan_rule(g: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return div(g, add(1, square(x)))
    length = hypot(1, x)
    return div(div(g, length), length)


@op(
    elementwise=True,
    ufunc=np.arctan,
    aliases=["atan"],
    scalar=lambda x: math.atan(x),
    vjp={"x": _arctan_rule},
    samples=singles(low=-0.8, high=0.8),
)
def arctan(x: Any, /) -> Any:
    """Elementwise angle whose tangent is ``x``, in radians."""
    return np.arctan(x)


def _arcsinh_rule(g: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        return div(g, sqrt(add(1, square(x))))
    return div(g, hypot(1, x))


@op(
    elementwise=True,
    ufunc=np.arcsinh,
    aliases=["asinh"],
    scalar=lambda x: math.asinh(x),
    vjp={"x": _arcsinh_rule},
    samples=singles(low=-0.8, high=0.8),
)
def arcsinh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic sine."""
    return np.arcsinh(x)


@op(
    elementwise=True,
    ufunc=np.arccosh,
    aliases=["acosh"],
    scalar=lambda x: math.acosh(x),
    vjp={"x": lambda g, x: div(div(g, sqrt(sub(x, 1))), sqrt(add(x, 1)))},
    kinks="inf at 1",
    samples=singles(low=1.5, high=4.0),
)
def arccosh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic cosine, the one that is not negative."""
    return np.arccosh(x)


@op(
    elementwise=True,
    ufunc=np.arctanh,
    aliases=["atanh"],
    scalar=lambda x: math.atanh(x),
    vjp={"x": lambda g, x: div(g, _one_less_square(x))},
    kinks="inf at -1 and 1, the second derivative there NaN; beyond, where the result is NaN, "
    "still 1 / (1 - x**2)",
    samples=singles(low=-0.8, high=0.8),
)
def arctanh(x: Any, /) -> Any:
    """Elementwise inverse of the hyperbolic tangent."""
    return np.arctanh(x)


# ------------------------------------------------------------------ points in the plane


_ANGLES = [sample(*s.operands, low=0.5) for s in PAIRS]


def _direction(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    squares = _scaled_length_squared(x, y)
    limits = np.finfo(squares.dtype)
    low, high = limits.tiny * 2.0**limits.nmant, limits.max
    if not squares.size or (squares.min() > low and squares.max() <= high):
        return np.divide(x, np.sqrt(squares))  # hypot took five times as long as this function
    # Scale very large and very small lengths to about 1, and replace infinity by its limit.
    length = np.hypot(x, y)
    scale = np.where(
        length < 1, length.dtype.type(2.0 ** (limits.nmant + 2)), length.dtype.type(0.25)
    )
    far = np.isinf(x) & np.isfinite(y)
    middle = np.where(far, np.sign(x), _times(x, scale))
    length = np.where(far, 1, np.hypot(_times(x, scale), _times(y, scale)))
    out = np.where(length == 0, 0, _divide(middle, np.where(length == 0, 1, length)))
    return out.astype(limits.dtype)[()]


@ignore_fp_errors("over", "under")
def _scaled_length_squared(x: Any, y: Any) -> Any:
    return np.asarray(x * x + y * y)


_times: Any = ignore_fp_errors("invalid")(np.multiply)
_divide: Any = ignore_fp_errors("invalid")(np.divide)


def _hypot_gradient(g: Any, across: Any, x: Any, y: Any) -> Any:
    """Return ``g`` times the sine times ``across / length``, ordered so as not to underflow."""
    return mul(div(mul(g, direction(y, x)), hypot(x, y)), across)


def _direction_scalar(x: Any, y: Any) -> Any:
    # Scale by the larger component, so that no square overflows or underflows; infinity is 1.
    size, other = abs(x), abs(y)
    most = select(size > other, size, other)
    along, across = size / most, other / most
    out = along / math.sqrt(along * along + across * across)
    out = select((size > T(T.max)) & (other <= T(T.max)), T(1), out)
    out = select((other > T(T.max)) & (size <= T(T.max)), T(0), out)
    return select(size + other == T(0), T(0), math.copysign(out, x))


@op(
    real=True,
    elementwise=True,
    kernel=_direction,
    kernels=[scalar_loop(_direction_scalar, 2)],
    scalar=_direction_scalar,
    decomposition=lambda x, y: div(x, hypot(x, y)),
    vjp={
        "x": lambda g, x, y: _hypot_gradient(g, direction(y, x), x, y),
        "y": lambda g, x, y, out: neg(_hypot_gradient(g, out, x, y)),
    },
    kinks="NaN at (0, 0)",
    samples=_ANGLES,
    rejects=[NO_BROADCAST],
)
def direction(x: Any, y: Any, /) -> Any:
    """Elementwise ``x / hypot(x, y)``: the cosine of the angle of ``(x, y)``; 0 at the origin."""
    return _direction(x, y)


@op(
    elementwise=True,
    ufunc=np.hypot,
    scalar=lambda x, y: math.hypot(x, y),
    decomposition=lambda x, y: sqrt(add(square(x), square(y))),
    vjp={
        "x": lambda g, x, y: mul(g, direction(x, y)),
        "y": lambda g, x, y: mul(g, direction(y, x)),
    },
    kinks="0 at (0, 0), the second derivatives there NaN; NaN at two infinities",
    samples=_ANGLES,
    rejects=[NO_BROADCAST],
)
def hypot(x: Any, y: Any, /) -> Any:
    """Elementwise length ``sqrt(x**2 + y**2)``, without overflow of the squares."""
    return np.hypot(x, y)


def _arctan2_gradient(g: Any, across: Any, along: Any) -> Any:
    """Return ``g across / (across**2 + along**2)``, and 0 at the origin and at infinity."""
    length = hypot(across, along)
    length = where(equal(length, 0), 1, length)
    far = logical_and(isinf(across), isinf(along))
    return mul(g, where(far, 0, div(direction(across, along), length)))


@op(
    elementwise=True,
    ufunc=np.arctan2,
    aliases=["atan2"],
    scalar=lambda y, x: math.atan2(y, x),
    vjp={
        "y": lambda g, y, x: _arctan2_gradient(g, x, y),
        "x": lambda g, y, x: neg(_arctan2_gradient(g, y, x)),
    },
    kinks="0 at (0, 0), the second derivatives there NaN",
    samples=_ANGLES,
    rejects=[NO_BROADCAST],
)
def arctan2(y: Any, x: Any, /) -> Any:
    """Elementwise angle of the point ``(x, y)``, in radians from -pi to pi."""
    return np.arctan2(y, x)


# The largest order; nobody differentiates order 0 more often.
_MOST = 100


def _order_option(order: Any) -> tuple[int]:
    try:
        n = operator.index(order)
    except TypeError:
        raise DTypeError(f"sine_quotient: order is {format_value(order)}; pass an int") from None
    if n < 0:
        raise DTypeError(f"sine_quotient: order is {format_value(n)}; orders start from 0")
    if n > _MOST:  # each order needs its own number of terms
        raise DTypeError(f"sine_quotient: order is {format_value(n)}; orders go up to {_MOST}")
    return (n,)


def _maclaurin_series(x: Any, n: int) -> Any:
    """Maclaurin series (DLMF 10.53.1), for arguments below ``n + 2``."""
    square = -0.5 * x * x
    term = np.full_like(x, 1 / math.prod(range(1, 2 * n + 2, 2)))
    total = term.copy()
    for k in range(1, 40 + 2 * n):  # enough terms for any argument below n + 2
        term = term * square / (k * (2 * n + 2 * k + 1))
        total += term
    return total


def _upward_recurrence(x: Any, n: int) -> Any:
    """Upward recurrence ``z**2 s_{k+1} = (2 k + 1) s_k - s_{k-1}``, stable above ``n``."""
    before, now = np.cos(x), np.sin(x) / x
    for k in range(n):
        # Two divisions: the square could overflow.
        before, now = now, ((2 * k + 1) * now - before) / x / x
    return now


def _sine_quotient(x: Any, order: int) -> Any:
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        x = x.astype(floating_dtype(x.dtype))
    near = np.abs(x) < order + 2
    out = _upward_recurrence(np.where(near, order + 3, x), order)
    return np.where(near, _maclaurin_series(np.where(near, x, 0), order), out).astype(x.dtype)[()]


def _sine_quotient_scalar(x: Any, order: int) -> Any:
    near = abs(x) < T(order + 2)
    far = select(near, T(order + 3), x)
    before, now = math.cos(far), math.sin(far) / far
    for k in range(order):
        before, now = now, (T(2 * k + 1) * now - before) / far / far
    close = select(near, x, T(0))
    square = T(-0.5) * close * close
    total = term = T(1 / math.prod(range(1, 2 * order + 2, 2)))
    for k in range(1, 40 + 2 * order):
        term = term * square / T(k * (2 * order + 2 * k + 1))
        total = total + term
    return select(near, total, now)


@op(
    elementwise=True,
    prepare=_order_option,
    scalar=_sine_quotient_scalar,
    vjp={"x": lambda g, x, order: neg(mul(g, mul(x, sine_quotient(x, order=order + 1))))},
    samples=[*singles(order=0), sample((7,), low=-9.0, high=9.0, order=1), sample((3,), order=2)],
    rejects=[
        reject((3,), order=-1, error=DTypeError, match="orders start from 0"),
        reject((3,), order=101, error=DTypeError, match="up to 100"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
    ],
)
def sine_quotient(x: Any, /, *, order: int) -> Any:
    """Elementwise spherical Bessel function of an order over ``x**order``: ``sin(x) / x`` for 0."""
    return _sine_quotient(x, order)


@op(
    elementwise=True,
    numpy=[np.sinc],
    scalar=lambda x: select(x == T(0), T(1), math.sin(T(math.pi) * x) / (T(math.pi) * x)),
    decomposition=lambda x: sine_quotient(mul(math.pi, x), order=0),
    vjp={
        "x": lambda g, x: mul(
            g, mul(mul(-(math.pi**2), x), sine_quotient(mul(math.pi, x), order=1))
        )
    },
    kinks="NaN at infinity, as the value",
    samples=[*singles(), sample((3,), low=-1e-3, high=1e-3)],
)
def sinc(x: Any, /) -> Any:
    """Elementwise ``sin(pi x) / (pi x)``; 1 at 0."""
    return np.sinc(x)


publish(globals())
