"""Activation functions that leave out what is small, element by element, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import number
from odyssey.errors import DTypeError, SettingError
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import (
    greater,
    keep_where,
    less,
    less_equal,
    logical_or,
    where,
)
from odyssey.ops.elementwise.complex_numbers import absolute, sign
from odyssey.ops.elementwise.elementary import tanh
from odyssey.table.declare import composite, op, publish
from odyssey.table.operands import real_floating, real_options
from odyssey.table.samples import reject, sample, singles

_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")


def _lambd(who: str) -> Any:
    """A ``prepare`` for how far from 0 numbers are left out: at least 0, as in PyTorch."""
    real = real_options(who, "lambd")

    def prepare(lambd: Any) -> tuple[float, ...]:
        (far,) = real(lambd)
        return (number(who, "lambd", far, "[0, inf)"),)

    return prepare


def _outside(g: Any, x: Any, lambd: float) -> Any:
    """``g`` where ``x`` is left in, else 0; of NaN nothing was chosen."""
    return keep_where(g, logical_or(greater(x, lambd), less(x, -lambd)))


@op(
    elementwise=True,
    selects=True,
    aliases=["hardshrink"],
    prepare=_lambd("hard_shrink"),
    decomposition=lambda x, lambd: where(less_equal(absolute(x), lambd), 0, x),
    scalar=lambda x, lambd: select(abs(x) <= T(lambd), T(0), x),
    vjp={"x": lambda g, x, lambd: _outside(g, x, lambd)},
    kinks="0 at lambd and at -lambd",
    samples=[*singles(), sample((4, 3), lambd=1.25)],
    rejects=[_COMPLEX, reject((3,), lambd=-1, error=SettingError, match="must not be negative")],
)
def hard_shrink(x: Any, /, *, lambd: float = 0.5) -> Any:
    """Elementwise ``x``, but 0 between ``-lambd`` and ``lambd``."""
    x = real_floating(x)
    return np.where(np.abs(x) <= lambd, x.dtype.type(0), x)


@op(
    elementwise=True,
    selects=True,
    aliases=["softshrink"],
    prepare=_lambd("soft_shrink"),
    decomposition=lambda x, lambd: where(
        less_equal(absolute(x), lambd), 0, sub(x, mul(lambd, sign(x)))
    ),
    scalar=lambda x, lambd: select(
        x > T(lambd), x - T(lambd), select(x < T(-lambd), x + T(lambd), select(x != x, x, T(0)))
    ),
    vjp={"x": lambda g, x, lambd: _outside(g, x, lambd)},
    kinks="0 at lambd and at -lambd",
    samples=[*singles(), sample((4, 3), lambd=1.25)],
    rejects=[_COMPLEX, reject((3,), lambd=-1, error=SettingError, match="must not be negative")],
)
def soft_shrink(x: Any, /, *, lambd: float = 0.5) -> Any:
    """Elementwise ``x`` brought nearer to 0 by ``lambd``, and 0 where it was as near as that."""
    x = real_floating(x)
    return np.maximum(x - lambd, 0) + np.minimum(x + lambd, 0)


@op(
    elementwise=True,
    selects=True,
    prepare=real_options("threshold", "threshold", "value"),
    decomposition=lambda x, threshold, value: where(less_equal(x, threshold), value, x),
    scalar=lambda x, threshold, value: select(x <= T(threshold), T(value), x),
    vjp={"x": lambda g, x, threshold: keep_where(g, greater(x, threshold))},
    kinks="0 at the threshold",
    samples=[*singles(threshold=0.5, value=-1.0), sample((4, 3), threshold=-0.25, value=7)],
    rejects=[
        reject(np.array([1j]), threshold=0, value=0, error=DTypeError, match="needs real numbers"),
        reject((3,), threshold="a", value=0, error=DTypeError, match="pass a real number"),
    ],
)
def threshold(x: Any, /, *, threshold: float, value: float) -> Any:
    """Elementwise ``x`` above ``threshold``, and ``value`` elsewhere."""
    x = real_floating(x)
    return np.where(x <= threshold, x.dtype.type(value), x)


@composite(
    aliases=["tanhshrink"],
    samples=[*singles()],
)
def tanh_shrink(x: Any, *, tape: Any = None) -> Any:
    """Elementwise ``x - tanh(x)``.

    Args:
        x: Numbers, real or complex.
        tape: The tape to record on.

    >>> tanh_shrink(np.array([-10.0, 0.0, 10.0]))
    array([-9.,  0.,  9.])
    """
    return sub(x, tanh(x, tape=tape), tape=tape)


publish(globals())
