"""Bessel functions that SciPy computes; names and signatures are its own.

They need the extra ``odyssey[special]``, which they load at their first call. Their derivatives
follow from the recurrences (DLMF 10.6.2, 10.6.3, 10.29.2, 10.29.3).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.choice import equal, where
from odyssey.special.library import by_scipy
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, singles

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")
_AROUND = singles(low=-9.0, high=9.0)
_ABOVE = singles(low=0.5, high=6.0)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, j1(x)))},
    samples=_AROUND,
    rejects=[_COMPLEX],
)
def j0(x: Any, /) -> Any:
    """Elementwise Bessel function of the first kind of order 0."""
    return by_scipy("j0", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: mul(g, where(equal(x, 0), 0.5, sub(j0(x), div(j1(x), x))))},
    samples=_AROUND,
    rejects=[_COMPLEX],
)
def j1(x: Any, /) -> Any:
    """Elementwise Bessel function of the first kind of order 1."""
    return by_scipy("j1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, y1(x)))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def y0(x: Any, /) -> Any:
    """Elementwise Bessel function of the second kind of order 0, for positive numbers."""
    return by_scipy("y0", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: mul(g, sub(y0(x), div(y1(x), x)))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def y1(x: Any, /) -> Any:
    """Elementwise Bessel function of the second kind of order 1, for positive numbers."""
    return by_scipy("y1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, k1(x)))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def k0(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the second kind of order 0, for positive numbers."""
    return by_scipy("k0", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, add(k0(x), div(k1(x), x))))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def k1(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the second kind of order 1, for positive numbers."""
    return by_scipy("k1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x, out: mul(g, sub(out, k1e(x)))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def k0e(x: Any, /) -> Any:
    """Elementwise ``e**x`` times the modified Bessel function ``k0``, for positive numbers."""
    return by_scipy("k0e", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x, out: mul(g, sub(sub(out, k0e(x)), div(out, x)))},
    samples=_ABOVE,
    rejects=[_COMPLEX],
)
def k1e(x: Any, /) -> Any:
    """Elementwise ``e**x`` times the modified Bessel function ``k1``, for positive numbers."""
    return by_scipy("k1e", x)


publish(globals())
