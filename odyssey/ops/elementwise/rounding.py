"""Rounding, and division with remainder, element by element.

What rounds is a step function: its derivative is 0, and 0 at the steps too, as that of ``sign``
is. To let the gradient pass straight through, add ``(round(x) - x)`` detached.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import mul, neg
from odyssey.ops.structure.creation import zeros_like
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import APART, PAIRS, sample, singles

_DIVISIONS = [sample(*s.operands, low=0.5) for s in PAIRS]
# Ten to a power beyond this one is infinite.
_MOST_DIGITS = 308
_STEPS = "0 everywhere, at the steps too"
# Not g times 0, which is NaN where g is infinite.
_FLAT = {"x": lambda g: zeros_like(g)}


def _nearest(x: Any) -> Any:
    """The nearest whole number, ties to even."""
    return x if T.kind in "bi" else math.copysign(_without_fraction(abs(x), T(1 / T.eps)), x)


def _without_fraction(size: Any, whole: Any) -> Any:
    """A size rounded: added to a number that has no digits for fractions, it has none."""
    return select(size < whole, (size + whole) - whole, size)


def _below(x: Any) -> Any:
    if T.kind in "bi":
        return x
    near = _nearest(x)
    return math.copysign(select(near > x, near - T(1), near), x)


def _above(x: Any) -> Any:
    if T.kind in "bi":
        return x
    near = _nearest(x)
    return math.copysign(select(near < x, near + T(1), near), x)


def _whole_part(x: Any) -> Any:
    return x if T.kind in "bi" else math.copysign(_below(abs(x)), x)


def _rounded(x: Any, decimals: int) -> Any:
    if decimals == 0 or (T.kind in "bi" and decimals > 0):
        return _nearest(x)
    # As NumPy does: times a power of ten, which may overflow, and back; of integers, in float64.
    power = 10.0 ** abs(decimals) if abs(decimals) <= _MOST_DIGITS else math.inf
    if T.kind in "bi":
        return T(_signed_nearest(x / power, 2.0**52) * power)
    power, whole = T(power), T(1 / T.eps)
    if decimals > 0:
        return _signed_nearest(x * power, whole) / power
    return _signed_nearest(x / power, whole) * power


def _signed_nearest(x: Any, whole: Any) -> Any:
    """``_nearest`` without functions, beside which half precision does not round each step."""
    near = _without_fraction(abs(x), whole)
    return select(x < 0.0, -near, select(x > 0.0, near, x))


@op(
    elementwise=True,
    ufunc=np.floor,
    selects=True,
    scalar=lambda x: _below(x),
    vjp=_FLAT,
    kinks=_STEPS,
    samples=singles(),
)
def floor(x: Any, /) -> Any:
    """Elementwise largest integer that is not above ``x``."""
    return np.floor(x)


@op(
    elementwise=True,
    ufunc=np.ceil,
    selects=True,
    scalar=lambda x: _above(x),
    vjp=_FLAT,
    kinks=_STEPS,
    samples=singles(),
)
def ceil(x: Any, /) -> Any:
    """Elementwise smallest integer that is not below ``x``."""
    return np.ceil(x)


@op(
    elementwise=True,
    ufunc=np.rint,
    selects=True,
    scalar=lambda x: _nearest(x),
    vjp=_FLAT,
    kinks=_STEPS,
    samples=singles(),
)
def rint(x: Any, /) -> Any:
    """Elementwise nearest integer, ties to even."""
    return np.rint(x)


@op(
    elementwise=True,
    ufunc=np.trunc,
    selects=True,
    scalar=lambda x: _whole_part(x),
    vjp=_FLAT,
    kinks=_STEPS,
    samples=singles(),
)
def trunc(x: Any, /) -> Any:
    """Elementwise integer part: ``x`` without its fraction."""
    return np.trunc(x)


@op(
    elementwise=True,
    numpy=[np.fix],
    selects=True,
    decomposition=lambda x: trunc(x),
    scalar=lambda x: _whole_part(x),
    vjp=_FLAT,
    kinks=_STEPS,
    samples=singles(),
)
def fix(x: Any, /) -> Any:
    """Elementwise integer part, as ``trunc``: NumPy has both names."""
    return np.trunc(x)


@op(
    elementwise=True,
    numpy=[np.round, np.around],
    selects=True,
    scalar=lambda x, decimals: _rounded(x, decimals),
    vjp=_FLAT,
    kinks=_STEPS,
    canonical=lambda x, decimals: (int(decimals),),
    samples=[*singles(), sample((2, 3), decimals=2), sample((3,), decimals=-1, low=-40, high=40)],
)
def round(x: Any, /, decimals: int = 0) -> Any:
    """Elementwise nearest number of ``decimals`` digits, ties to even."""
    return np.round(x, decimals)


@op(
    elementwise=True,
    ufunc=np.floor_divide,
    selects=True,
    scalar=lambda x, y: x // y,
    vjp={"x": lambda g: zeros_like(g), "y": lambda g: zeros_like(g)},
    kinks="0 everywhere in both, at the steps too",
    samples=_DIVISIONS,
    rejects=[APART],
)
def floor_divide(x: Any, y: Any, /) -> Any:
    """Elementwise quotient rounded down, ``x // y``."""
    return np.floor_divide(x, y)


@op(
    elementwise=True,
    ufunc=np.remainder,
    aliases=["remainder"],
    scalar=lambda x, y: x % y,
    vjp={"x": PASS, "y": lambda g, x, y: neg(mul(g, floor_divide(x, y)))},
    kinks="at its jumps, where x is a multiple of y, still 1 in x and -x / y in y",
    samples=_DIVISIONS,
    rejects=[APART],
)
def mod(x: Any, y: Any, /) -> Any:
    """Elementwise remainder ``x - y * floor(x / y)``, which has the sign of ``y``."""
    return np.remainder(x, y)


publish(globals())
