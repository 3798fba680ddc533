"""Absolute values, signs, and real and imaginary parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import div, mul, sub
from odyssey.ops.elementwise.choice import equal, where
from odyssey.ops.structure.creation import zeros_like
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import reject, sample, singles


def _absolute_rule(g: Any, x: Any) -> Any:
    return mul(g, conj(sign(x)) if x.dtype.kind == "c" else sign(x))


@op(
    elementwise=True,
    keeps_dtype=False,
    ufunc=np.absolute,
    aliases=["abs"],
    scalar=lambda x: math.fabs(x),
    vjp={"x": _absolute_rule},
    jvp={"x": lambda t, x: real(_absolute_rule(t, x))},
    kinks="0 at 0, where the second derivative is 0 too for real numbers and NaN for complex ones",
    samples=singles(),
)
def absolute(x: Any, /) -> Any:
    """Elementwise absolute value, ``|x|``."""
    return np.absolute(x)


@op(
    elementwise=True,
    ufunc=np.fabs,
    scalar=lambda x: math.fabs(x),
    decomposition=lambda x: absolute(x),
    vjp={"x": lambda g, x: mul(g, sign(x))},
    kinks="0 at 0",
    samples=singles(),
    rejects=[reject(np.array([1j]), error=DTypeError, match="no meaning for complex")],
)
def fabs(x: Any, /) -> Any:
    """Elementwise absolute value of real numbers, as floating numbers."""
    return np.fabs(x)


_divide = ignore_fp_errors("invalid")(np.divide)


def _sign(x: Any) -> Any:
    out = np.sign(x)
    if out.dtype.kind == "c" and (far := np.isinf(np.absolute(x))).any():
        # NumPy's sign treats a complex number as imaginary if its absolute value overflows.
        near = x * 0.25
        finite = _divide(near, np.absolute(near))
        both = np.isinf(np.real(x)) & np.isinf(np.imag(x))
        out = np.where(far & np.isfinite(x), finite, np.where(both, np.nan, out))[()]
    return out


def _real_sign(x: Any) -> Any:
    """Return the sign of a real number, for scalar kernels."""
    return select(x > T(0), T(1), select(x < T(0), T(-1), select(x == T(0), T(0), x)))


def _complex_sign(x: Any) -> Any:
    """Return ``x / |x|`` of a complex number, for scalar kernels."""
    size, a, b = math.fabs(x), x.real, x.imag
    far, endless, beside = size == math.inf, abs(a) == math.inf, abs(b) == math.inf
    near = math.fabs(T(a * 0.25, b * 0.25))
    along, across = (
        select(far & ~endless & ~beside, part * 0.25 / near, part / size) for part in (a, b)
    )
    along = select(far & endless, math.copysign(1.0, a), select(far & beside, 0.0, along))
    across = select(far & beside, math.copysign(1.0, b), select(far & endless, 0.0, across))
    along = select(endless & beside, math.nan, select(size == 0, 0.0, along))
    return T(along, select((endless & beside) | (size == 0), 0.0, across))


def _sign_rule(g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return zeros_like(g)
    return _rotation_over_radius(sub(g, mul(real(mul(g, out)), conj(out))), x)


def _sign_forward(t: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return zeros_like(t)
    return _rotation_over_radius(sub(t, mul(real(mul(t, conj(out))), out)), x)


def _rotation_over_radius(turn: Any, x: Any) -> Any:
    radius = absolute(x)
    return div(turn, where(equal(radius, 0), np.nan, radius))


@op(
    elementwise=True,
    # A step function of real numbers: it selects no operand.
    selects={"x": lambda c, x: c if x.dtype.kind == "c" else zeros_like(c)},
    ufunc=np.sign,
    kernel=_sign,
    scalar=lambda x: _complex_sign(x) if T.kind == "c" else _real_sign(x),
    vjp={"x": _sign_rule},
    jvp={"x": _sign_forward},
    kinks="0 everywhere for real numbers, at 0 too; NaN at 0 for complex numbers",
    samples=singles(),
)
def sign(x: Any, /) -> Any:
    """Elementwise sign: -1, 0 or 1; ``x / |x|`` for complex numbers."""
    return np.sign(x)


@op(
    elementwise=True,
    ufunc=np.conjugate,
    scalar=lambda x: x.conjugate() if T.kind == "c" else x,
    vjp={"x": lambda g: conj(g)},
    samples=singles(),
)
def conj(x: Any, /) -> Any:
    """Elementwise complex conjugate; real numbers pass through."""
    return np.conjugate(x)


@op(
    elementwise=True,
    keeps_dtype=False,
    numpy=[np.real],
    scalar=lambda x: x.real if T.kind == "c" else x,
    vjp={"x": PASS},
    jvp={"x": lambda t: real(t)},
    samples=singles(),
)
def real(x: Any, /) -> Any:
    """Elementwise real part."""
    return np.real(x) * True  # a copy, also of booleans


@op(
    elementwise=True,
    keeps_dtype=False,
    numpy=[np.imag],
    scalar=lambda x: x.imag if T.kind == "c" else T(0),
    vjp={"x": lambda g: mul(g, -1j)},
    jvp={"x": lambda t: imag(t)},
    samples=singles(),
)
def imag(x: Any, /) -> Any:
    """Elementwise imaginary part; 0 for real numbers."""
    return np.imag(x) * True


def _angle_derivative(x: Any, deg: bool) -> Any:
    """Return the derivative of the angle, ``-i / x``; 0 at 0, where it does not exist."""
    radius = absolute(x)
    turn = div(conj(sign(x)), where(equal(radius, 0), 1, radius))
    return mul(-1j * _degrees_option(deg), turn)


def _angle_array(x: Any, deg: bool) -> Any:
    if T.kind == "c":
        return math.atan2(x.imag, x.real) * _degrees_option(deg)
    return math.atan2(T(0), x) * T(_degrees_option(deg))


def _degrees_option(deg: bool) -> float:
    return 180 / math.pi if deg else 1.0


@op(
    elementwise=True,
    keeps_dtype=False,
    # A step function of real numbers: it selects no operand.
    selects={"x": lambda c, x: c if x.dtype.kind == "c" else zeros_like(c)},
    numpy=[np.angle],
    scalar=lambda x, deg: _angle_array(x, deg),
    vjp={
        "x": lambda g, x, deg: (
            mul(g, _angle_derivative(x, deg)) if x.dtype.kind == "c" else zeros_like(g)
        )
    },
    jvp={
        "x": lambda t, x, deg: (
            real(mul(t, _angle_derivative(x, deg))) if x.dtype.kind == "c" else zeros_like(t)
        )
    },
    kinks="0 everywhere for real numbers; 0 at 0 for complex ones, the second derivative there NaN",
    samples=[*singles(), sample((2, 3), deg=True)],
)
def angle(x: Any, /, deg: bool = False) -> Any:
    """Elementwise angle of complex numbers, in radians from -pi to pi, or in degrees."""
    return np.angle(x, deg)


publish(globals())
