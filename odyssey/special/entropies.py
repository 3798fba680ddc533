"""Terms of entropies and the logarithm of odds, element by element; names are those of SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.elementary import log, precise, reciprocal
from odyssey.ops.folds.statistics import over_length
from odyssey.table.declare import op, publish
from odyssey.table.operands import promoted, real_floating
from odyssey.table.samples import APART, PAIRS, reject, sample, singles


@op(
    elementwise=True,
    scalar=lambda x: select(
        abs(x - T(0.5)) < T(0.2), T(2) * math.atanh(T(2) * x - T(1)), math.log(x / (T(1) - x))
    ),
    equals=lambda x: log(div(x, sub(1, x))),
    # As a sum, whose derivative in turn has no product of 0 and infinity at the ends.
    vjp={"x": lambda g, x: mul(g, add(reciprocal(x), reciprocal(sub(1, x))))},
    kinks="inf at 0 and 1, -inf at -0.0; beyond, where the result is NaN, still the same formula",
    samples=singles(low=0.1, high=0.9),
    rejects=[reject(np.array([1j]), error=DTypeError, match="needs real numbers")],
)
def logit(x: Any, /) -> Any:
    """Elementwise logarithm of the odds, ``log(x / (1 - x))``: the inverse of sigmoid."""
    x = real_floating(x)
    middle = np.abs(x - 0.5) < 0.2  # where the quotient is close to 1
    out = np.log(np.divide(x, 1 - x, where=~middle, out=np.ones_like(x)))
    return np.where(middle, 2 * np.arctanh(2 * np.where(middle, x, 0.5) - 1), out)[()]


@op(
    elementwise=True,
    equals=lambda x, y: mul(x, log(y)),
    scalar=lambda x, y: x * math.log(select((x == T(0)) & (y == y), T(1), y)),
    vjp={
        "x": lambda g, y: mul(g, log(precise(y, g))),
        "y": lambda g, x, y: mul(g, over_length(x, y)),
    },
    kinks="at (0, 0) -inf in x and 0 in y, the second derivatives there infinite or NaN",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[APART],
)
def xlogy(x: Any, y: Any, /) -> Any:
    """Elementwise ``x * log(y)``, but 0 where ``x`` is 0 and ``y`` is a number."""
    x, y = promoted(x, y)
    nothing = np.equal(x, 0) & np.equal(y, y)
    return x * np.log(np.where(nothing, 1, y).astype(np.result_type(y, np.float16)))


publish(globals())
