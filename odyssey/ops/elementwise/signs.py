"""Sign bits and the Heaviside step function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.choice import equal, keep_where
from odyssey.ops.elementwise.complex_numbers import sign
from odyssey.ops.structure.creation import zeros_like
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS


@op(
    real=True,
    elementwise=True,
    # A step function of the second operand: it selects nothing.
    selects={"x1": lambda c: c, "x2": lambda c: zeros_like(c)},
    ufunc=np.copysign,
    scalar=lambda x1, x2: math.copysign(x1, x2),
    vjp={
        "x1": lambda g, x1, x2: mul(g, mul(sign(x1), copysign(sign(x1), x2))),
        "x2": lambda g: zeros_like(g),
    },
    kinks="0 in the first at 0, as that of the absolute value, and 0 in the second everywhere",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def copysign(x1: Any, x2: Any, /) -> Any:
    """Elementwise ``|x1|`` with the sign of ``x2``, signed zeros included."""
    return np.copysign(x1, x2)


@op(
    real=True,
    elementwise=True,
    selects=True,
    ufunc=np.heaviside,
    scalar=lambda x1, x2: select(
        x1 < T(0), T(0), select(x1 > T(0), T(1), select(x1 == T(0), x2, x1))
    ),
    vjp={
        "x1": lambda g: zeros_like(g),
        "x2": lambda g, x1: keep_where(g, equal(x1, 0)),
    },
    kinks="0 in the first everywhere, at the step too; 1 in the second where the first is 0",
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def heaviside(x1: Any, x2: Any, /) -> Any:
    """Elementwise step: 0 below 0, 1 above, and ``x2`` where ``x1`` is 0."""
    return np.heaviside(x1, x2)


publish(globals())
