"""Absolute value, sign, and the parts of complex numbers, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.ops.arithmetic import div, mul, sub
from odyssey.ops.choice import equal, where
from odyssey.ops.samples import singles
from odyssey.ops.table import PASS, op, publish


def _absolute_rule(g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(g, sign(x))
    return mul(g, div(conj(x), where(equal(out, 0), 1, out)))


@op(
    elementwise=True,
    closed=False,
    ufunc=np.absolute,
    aliases=["abs"],
    scalar=lambda x: math.fabs(x),
    vjp={"x": _absolute_rule},
    jvp={"x": lambda t, x, out: real(_absolute_rule(t, x, out))},
    kinks="0 at 0",
    samples=singles(),
)
def absolute(x: Any, /) -> Any:
    """Elementwise absolute value, ``|x|``."""
    return np.absolute(x)


def _sign_rule(g: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(g, 0)
    radius = absolute(x)
    turn = sub(g, mul(real(mul(g, out)), conj(out)))
    return div(turn, where(equal(radius, 0), 1, radius))


def _sign_forward(t: Any, x: Any, out: Any) -> Any:
    if x.dtype.kind != "c":
        return mul(t, 0)
    radius = absolute(x)
    turn = sub(t, mul(real(mul(t, conj(out))), out))
    return div(turn, where(equal(radius, 0), 1, radius))


@op(
    elementwise=True,
    ufunc=np.sign,
    vjp={"x": _sign_rule},
    jvp={"x": _sign_forward},
    kinks="0 everywhere, at 0 too, for real numbers",
    samples=singles(),
)
def sign(x: Any, /) -> Any:
    """Elementwise sign: -1, 0 or 1; ``x / |x|`` for complex numbers."""
    return np.sign(x)


@op(
    elementwise=True,
    ufunc=np.conjugate,
    vjp={"x": lambda g: conj(g)},
    samples=singles(),
)
def conj(x: Any, /) -> Any:
    """Elementwise complex conjugate; real numbers pass through."""
    return np.conjugate(x)


@op(
    elementwise=True,
    closed=False,
    numpy=[np.real],
    vjp={"x": PASS},
    jvp={"x": lambda t: real(t)},
    samples=singles(),
)
def real(x: Any, /) -> Any:
    """Elementwise real part."""
    return np.real(x) * 1


@op(
    elementwise=True,
    closed=False,
    numpy=[np.imag],
    vjp={"x": lambda g: mul(g, -1j)},
    jvp={"x": lambda t: imag(t)},
    samples=singles(),
)
def imag(x: Any, /) -> Any:
    """Elementwise imaginary part; 0 for real numbers."""
    return np.imag(x) * 1


publish(globals())
