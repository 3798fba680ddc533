"""Hurwitz zeta function, with the name of SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, mul, neg
from odyssey.special.scalar_formulas import BERNOULLI
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, reject, sample

_DIRECT_TERMS = 10


def _zeta_scalar(x: Any, q: Any) -> Any:
    """Euler–Maclaurin formula (DLMF 2.10.1, 25.11.28)."""
    total = math.pow(q, -x)
    for k in range(1, _DIRECT_TERMS):
        total = total + math.pow(q + T(k), -x)
    w = q + T(_DIRECT_TERMS)
    last = math.pow(w, -x)
    # Nested evaluation, so that no term overflows.
    rest, square = T(1), w * w
    for j in range(len(BERNOULLI) - 1, 0, -1):
        ratio = T(BERNOULLI[j] / BERNOULLI[j - 1])
        rest = T(1) + ratio * (x + T(2 * j - 1)) * (x + T(2 * j)) / square * rest
    rest = T(BERNOULLI[0]) * x / w * rest
    tail = last * w / (x - T(1)) + last * (T(0.5) + rest)
    total = total + select((last == T(0)) | (q > T(T.max)), T(0), tail)
    outside = (x < T(1)) | (q < T(0)) | (x != x) | (q != q)
    total = select(q == T(0), T(math.inf), total)
    return select(outside, T(math.nan), select(x == T(1), T(math.inf), total))


_POWERS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((3, 1), (1, 4)), ((), (2,)), ((), ()), ((0, 3), (3,))]


@op(
    elementwise=True,
    scalar=_zeta_scalar,
    vjp={"x": None, "q": lambda g, x, q: neg(mul(g, mul(x, zeta(add(x, 1), q))))},
    kinks="none in x, which has no rule; infinite at q = 0, NaN below, as the value is",
    samples=[sample(*shapes, low=1.5, high=6.0) for shapes in _POWERS],
    rejects=[
        NO_BROADCAST,
        reject(np.array([1j]), 1.0, error=DTypeError, match="needs real numbers"),
    ],
)
def zeta(x: Any, q: Any, /) -> Any:
    """Elementwise Hurwitz zeta function, the sum of ``(k + q)**-x`` over integers k >= 0.

    Defined for x > 1 and q >= 0; NaN for a negative ``q`` or ``x < 1``. The derivative in ``x`` is
    not implemented: NotDifferentiableError.
    """
    return on_arrays(_zeta_scalar, x, q)


publish(globals())
