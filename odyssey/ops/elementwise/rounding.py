"""Rounding, floor division and remainders.

Rounding is a step function: its derivative is 0, at the steps too, as for ``sign``. For a
straight-through gradient, add ``(round(x) - x)`` detached.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import div, mul, neg, sub
from odyssey.ops.structure.creation import zeros_like
from odyssey.table.declare import PASS, op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, sample, singles

_DIVISIONS = [sample(*s.operands, low=0.5) for s in PAIRS]
# Larger powers of ten are infinite.
_MOST_DIGITS = 308
_STEPS = "0 everywhere, at the steps too"
# Not g times 0, which is NaN where g is infinite.
_FLAT = {"x": lambda g: zeros_like(g)}


def _round_half_even(x: Any) -> Any:
    """Round to the nearest integer, ties to even."""
    return x if T.kind in "bi" else math.copysign(_drop_fraction(abs(x), T(1 / T.eps)), x)


def _drop_fraction(size: Any, round_size: Any) -> Any:
    """Round an absolute value by adding a number whose float spacing is 1."""
    return select(size < round_size, (size + round_size) - round_size, size)


def _floor_scalar(x: Any) -> Any:
    if T.kind in "bi":
        return x
    near = _round_half_even(x)
    return math.copysign(select(near > x, near - T(1), near), x)


def _ceil_scalar(x: Any) -> Any:
    if T.kind in "bi":
        return x
    near = _round_half_even(x)
    return math.copysign(select(near < x, near + T(1), near), x)


def _trunc_scalar(x: Any) -> Any:
    return x if T.kind in "bi" else math.copysign(_floor_scalar(abs(x)), x)


def _round_array(x: Any, decimals: int) -> Any:
    if decimals == 0 or (T.kind in "bi" and decimals > 0):
        return _round_half_even(x)
    # As in NumPy: multiply by a power of ten, which may overflow, and divide; integers in float64.
    power = 10.0 ** abs(decimals) if abs(decimals) <= _MOST_DIGITS else math.inf
    if T.kind in "bi":
        return T(_round_scalar(x / power, 2.0**52) * power)
    power, round_size = T(power), T(1 / T.eps)
    if decimals > 0:
        return _round_scalar(x * power, round_size) / power
    return _round_scalar(x / power, round_size) * power


def _round_scalar(x: Any, round_size: Any) -> Any:
    """Round ``abs(x)`` and restore the sign, in arithmetic alone: float16 rounds each step."""
    near = _drop_fraction(abs(x), round_size)
    return select(x < 0.0, -near, select(x > 0.0, near, x))


def _fmod_scalar(x: Any, y: Any) -> Any:
    if T.kind in "bi":  # the remainder of a quotient rounded down has the sign of y
        rest = x % y
        return select((rest != 0) & ((x < 0) ^ (y < 0)), rest - y, rest)
    return math.fmod(x, y)


def _truncated_quotient(x: Any, y: Any, out: Any) -> Any:
    """Return the integer ``(x - fmod(x, y)) / y``; the quotient x / y may round up to the next."""
    return rint(div(sub(x, out), y))


@op(
    elementwise=True,
    ufunc=np.floor,
    selects=True,
    scalar=lambda x: _floor_scalar(x),
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
    scalar=lambda x: _ceil_scalar(x),
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
    scalar=lambda x: _round_half_even(x),
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
    scalar=lambda x: _trunc_scalar(x),
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
    scalar=lambda x: _trunc_scalar(x),
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
    scalar=lambda x, decimals: _round_array(x, decimals),
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
    rejects=[NO_BROADCAST],
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
    rejects=[NO_BROADCAST],
)
def mod(x: Any, y: Any, /) -> Any:
    """Elementwise remainder ``x - y * floor(x / y)``, which has the sign of ``y``."""
    return np.remainder(x, y)


@op(
    real=True,
    elementwise=True,
    ufunc=np.fmod,
    scalar=lambda x, y: _fmod_scalar(x, y),
    vjp={"x": PASS, "y": lambda g, x, y, out: neg(mul(g, _truncated_quotient(x, y, out)))},
    kinks="at its jumps, where x is a multiple of y, still 1 in x and -x / y in y",
    samples=_DIVISIONS,
    rejects=[NO_BROADCAST],
)
def fmod(x: Any, y: Any, /) -> Any:
    """Elementwise remainder ``x - y * trunc(x / y)``, which has the sign of ``x``."""
    return np.fmod(x, y)


publish(globals())
