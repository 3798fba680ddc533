"""Adafactor: adaptive rates from the row and column means of squared gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_number, format_value
from odyssey.devices.half_dtypes import is_inexact
from odyssey.errors import DTypeError
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor
from odyssey.spec import Shape

__all__ = ["Adafactor", "adafactor"]


class Adafactor(Optimizer):
    """Adafactor, with PyTorch's semantics; ``adafactor`` has the formulas and the source.

    The state of a matrix is two vectors: the means of squared gradients over columns and over rows.

    Args:
        params: Trainable real Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Upper limit of the relative step length; assignable later.
        beta2_decay: Exponent, not positive, by which the weight of a new square falls.
        eps: Lower limit of mean squares, by default the machine epsilon of the dtype; and of the
            scale of a parameter.
        d: Limit of the root mean square of an update, at least 1.
        weight_decay: Times the learning rate, the part of each parameter that a step removes.

    >>> from odyssey import Variable
    >>> w = Variable([[3.0, 4.0]], requires_grad=True)
    >>> w.grad = [[0.5, -0.5]]
    >>> Adafactor([w], learning_rate=0.1).step()
    >>> w.numpy().round(4)
    array([[2.6464, 4.3536]])
    """

    _ranges = {"beta2_decay": "(-inf, 0]", "d": "[1, inf)"}  # noqa: RUF012

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(Adafactor)
def adafactor(s: Settings) -> Rule:
    """Return the pure rule of Adafactor (Shazeer and Stern 2018, algorithms 4 and 5), as PyTorch.

    With ``t`` the number of this step, from 1, and ``b = t**beta2_decay``, the mean squares ``r``
    over the last axis and ``c`` over the one before become ``r + b (mean(g**2) - r)``; their
    product over the mean of ``r`` is the estimate ``v`` of the square. Vectors and numbers have
    ``v`` itself. Then ``u = g / sqrt(max(v, eps1**2))``, and with ``size = max(eps2, rms(p))``,
    ``p = p - min(learning_rate, 1 / sqrt(t)) * size * u / max(1, rms(u) / d)``.
    """
    least, least_scale = _limits(s.eps)

    def slot_shape(slot: str, shape: Shape) -> Shape:
        if len(shape) < 2:
            return shape if slot == "square" else (0,)
        if slot == "square":
            return (0,)
        return (*shape[:-1], 1) if slot == "rows" else (*shape[:-2], 1, shape[-1])

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if p.dtype.kind == "c":
            raise DTypeError("Adafactor: a parameter is complex; pass real ones")
        if not is_inexact(p.dtype):
            raise DTypeError(f"Adafactor: a parameter has dtype {p.dtype}; pass floats")
        if not math.prod(p.shape):
            return p, state
        tiny = float(np.finfo(p.dtype).eps) if least is None else least
        t = ops.add(state["steps"], 1)
        weight = weak_factor(ops.power(ops.multiply(1.0, t), s.beta2_decay), p)
        rho = ops.minimum(s.learning_rate, ops.divide(1, ops.sqrt(t)))
        size = ops.multiply(ops.maximum(least_scale, _rms(p)), weak_factor(rho, p))
        if s.weight_decay:
            kept = ops.subtract(1, ops.multiply(s.learning_rate, s.weight_decay))
            p = ops.multiply(p, weak_factor(kept, p))
        squares = ops.square(g)
        if len(p.shape) > 1:
            rows = _lerp(state["rows"], ops.mean(squares, -1, keepdims=True), weight)
            columns = _lerp(state["columns"], ops.mean(squares, -2, keepdims=True), weight)
            state = state | {"rows": rows, "columns": columns}
            scale = ops.maximum(ops.mean(rows, -2, keepdims=True), tiny)
            v = ops.divide(ops.multiply(rows, columns), scale)
        else:
            v = _lerp(state["square"], squares, weight)
            state = state | {"square": v}
        update = ops.divide(g, ops.sqrt(ops.maximum(v, tiny * tiny)))
        factor = ops.divide(size, ops.maximum(1.0, ops.divide(_rms(update), s.d)))
        return ops.subtract(p, ops.multiply(factor, update)), state

    return Rule(("rows", "columns", "square"), step, elementwise=False, slot_shape=slot_shape)


def _limits(eps: Any) -> tuple[float | None, float]:
    """Return the lower limits of squares, or None for that of the dtype, and of scales."""
    try:
        first, second = eps
    except (TypeError, ValueError):
        raise DTypeError(f"Adafactor: eps={format_value(eps)}; pass two numbers") from None
    if first is not None:
        first = check_number("Adafactor", "eps", first, "[0, inf)")
    return first, check_number("Adafactor", "eps", second, "[0, inf)")


def _rms(x: Any) -> Any:
    return ops.sqrt(ops.mean(ops.square(x)))


def _lerp(old: Any, new: Any, weight: Any) -> Any:
    return ops.add(old, ops.multiply(weight, ops.subtract(new, old)))
