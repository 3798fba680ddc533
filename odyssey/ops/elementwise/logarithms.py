"""Logarithms of sums of two powers, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.elementary import exp, exp2, log, log2
from odyssey.quiet import unwarned
from odyssey.table.choosing import by_scalar
from odyssey.table.declare import op, publish
from odyssey.table.operands import promoted, real_options
from odyssey.table.samples import APART, PAIRS, reject, sample

_COMPLEX = reject(np.array([1j]), 1.0, error=DTypeError, match="no meaning for complex")


@unwarned("invalid")
def _away(x: Any, y: Any, base: float) -> Any:
    return np.asarray((x - y) * math.log(base))


def _share(x: Any, y: Any, base: float) -> Any:
    x, y = promoted(x, y)
    # By the difference, since what is common to large exponents says nothing.
    away = _away(x, y, base)
    if away.dtype.kind == "c":
        raise TypeError("needs real numbers")
    e = np.exp(-np.abs(away))
    out = np.where(away >= 0, 1, e) / (1 + e)
    if np.isnan(out).any():
        out = np.where(np.isneginf(x) & np.isneginf(y), 0, out)
    return out.astype(away.dtype, copy=False)[()]


def _bend(g: Any, x: Any, y: Any, base: float) -> Any:
    both = mul(power_share(x, y, base=base), power_share(y, x, base=base))
    return mul(g, mul(math.log(base), both))


def _share_scalar(x: Any, y: Any, base: float) -> Any:
    away = (x - y) * T(math.log(base))
    e = math.exp(-abs(away))
    out = select(away >= T(0), T(1), e) / (T(1) + e)
    return select((x < T(-T.max)) & (y < T(-T.max)), T(0), out)


@op(
    elementwise=True,
    kernel=_share,
    kernels=[by_scalar(_share_scalar, 2)],
    scalar=_share_scalar,
    equals=lambda x, y, base: div(1, add(1, exp(mul(sub(y, x), math.log(base))))),
    prepare=real_options("power_share", "base"),
    vjp={"x": _bend, "y": lambda g, x, y, base: neg(_bend(g, x, y, base))},
    kinks="0 where both are -inf, NaN where both are inf",
    samples=[*PAIRS, sample((2, 3), (3,), base=2)],
    rejects=[
        APART,
        reject(np.array([1j]), 1.0, error=DTypeError, match="needs real numbers"),
        reject((2,), (2,), base="e", error=DTypeError, match="pass a real number"),
    ],
)
def power_share(x: Any, y: Any, /, *, base: float = math.e) -> Any:
    """Elementwise ``base**x / (base**x + base**y)``, without overflow; 0 where both are -inf."""
    return _share(x, y, base)


@op(
    elementwise=True,
    ufunc=np.logaddexp,
    scalar=lambda x, y: select(
        x == y,
        x + T(0.6931471805599453),
        select(x > y, x, y) + math.log1p(math.exp(-abs(x - y))),
    ),
    equals=lambda x, y: log(add(exp(x), exp(y))),
    vjp={
        "x": lambda g, x, y: mul(g, power_share(x, y)),
        "y": lambda g, x, y: mul(g, power_share(y, x)),
    },
    kinks="0 where both are -inf, as that of logsumexp; NaN where both are inf",
    samples=PAIRS,
    rejects=[APART, _COMPLEX],
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
    equals=lambda x, y: log2(add(exp2(x), exp2(y))),
    vjp={
        "x": lambda g, x, y: mul(g, power_share(x, y, base=2.0)),
        "y": lambda g, x, y: mul(g, power_share(y, x, base=2.0)),
    },
    kinks="0 where both are -inf; NaN where both are inf",
    samples=PAIRS,
    rejects=[APART, _COMPLEX],
)
def logaddexp2(x: Any, y: Any, /) -> Any:
    """Elementwise ``log2(2**x + 2**y)``, without overflow."""
    return np.logaddexp2(x, y)


publish(globals())
