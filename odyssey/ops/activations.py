"""Activation functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T
from odyssey.ops.arithmetic import mul, sub
from odyssey.ops.choice import greater
from odyssey.ops.samples import singles
from odyssey.ops.table import op, publish


def _sigmoid(x: Any) -> Any:
    # exp of a non-positive number: no overflow on either side.
    if np.iscomplexobj(x):
        right = np.real(x) >= 0
        e = np.exp(np.where(right, -x, x))
        return np.where(right, 1, e) / (1 + e)
    e = np.exp(-np.abs(x))
    return np.where(np.signbit(x), e, 1) / (1 + e)


@op(
    elementwise=True,
    scalar=lambda x: (
        T(1) / (T(1) + math.exp(-x)) if x > T(0) else math.exp(x) / (T(1) + math.exp(x))
    ),
    vjp={"x": lambda g, out: mul(g, mul(out, sub(1, out)))},
    samples=singles(),
)
def sigmoid(x: Any, /) -> Any:
    """Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
    out = _sigmoid(x)
    return out if np.ndim(out) else out[()]


@op(
    elementwise=True,
    scalar=lambda x: T(0) if x <= T(0) else x,
    vjp={"x": lambda g, out: mul(g, greater(out, 0))},
    kinks="0 at 0",
    samples=singles(),
)
def relu(x: Any, /) -> Any:
    """Elementwise rectifier, ``max(x, 0)``."""
    return np.maximum(x, 0)


publish(globals())
