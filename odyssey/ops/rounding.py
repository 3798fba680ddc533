"""Rounding, and division with remainder, element by element.

What rounds is a step function: its derivative is 0 where it exists, which is never meant. It has
no rule, so differentiating through it raises; round a detached value where a constant is meant,
or add ``(round(x) - x)`` detached to let the gradient pass straight through.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.arithmetic import mul, neg
from odyssey.ops.samples import APART, PAIRS, sample, singles
from odyssey.ops.scope import no_grad
from odyssey.ops.table import PASS, op, publish

_DIVISIONS = [sample(*s.operands, low=0.5) for s in PAIRS]


@op(elementwise=True, ufunc=np.floor, samples=singles())
def floor(x: Any, /) -> Any:
    """Elementwise largest integer that is not above ``x``; not differentiable."""
    return np.floor(x)


@op(elementwise=True, ufunc=np.ceil, samples=singles())
def ceil(x: Any, /) -> Any:
    """Elementwise smallest integer that is not below ``x``; not differentiable."""
    return np.ceil(x)


@op(
    elementwise=True,
    numpy=[np.round, np.around],
    samples=[*singles(), sample((2, 3), decimals=2), sample((3,), decimals=-1, low=-40, high=40)],
)
def round(x: Any, /, decimals: int = 0) -> Any:
    """Elementwise nearest number of ``decimals`` digits, ties to even; not differentiable."""
    return np.round(x, decimals)


@op(
    elementwise=True,
    ufunc=np.floor_divide,
    scalar=lambda x, y: x // y,
    samples=_DIVISIONS,
    rejects=[APART],
)
def floor_divide(x: Any, y: Any, /) -> Any:
    """Elementwise quotient rounded down, ``x // y``; not differentiable."""
    return np.floor_divide(x, y)


def _mod_divisor(g: Any, x: Any, y: Any) -> Any:
    with no_grad():  # between its jumps the quotient is a constant, of derivative 0
        quotient = floor_divide(x, y)
    return neg(mul(g, quotient))


@op(
    elementwise=True,
    ufunc=np.remainder,
    aliases=["remainder"],
    scalar=lambda x, y: x % y,
    vjp={"x": PASS, "y": _mod_divisor},
    kinks="at its jumps, where x is a multiple of y, still 1 in x and -x / y in y",
    samples=_DIVISIONS,
    rejects=[APART],
)
def mod(x: Any, y: Any, /) -> Any:
    """Elementwise remainder ``x - y * floor(x / y)``, which has the sign of ``y``."""
    return np.remainder(x, y)


publish(globals())
