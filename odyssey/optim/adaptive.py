"""AdaGrad and RMSprop: steps divided by the size that gradients had so far."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import flag, number
from odyssey.devices.commit import Plan
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, like, not_negative

__all__ = ["AdaGrad", "RMSprop", "adagrad", "rmsprop"]


def adagrad(
    learning_rate: float = 1e-2,
    lr_decay: float = 0.0,
    weight_decay: float = 0.0,
    initial_accumulator_value: float = 0.0,
    eps: float = 1e-10,
) -> Rule:
    """Return the pure rule of AdaGrad (Duchi, Hazan and Singer 2011), as PyTorch has it.

    With ``g = grad + weight_decay * p`` and ``t`` the number of steps before, ``s = s + g**2`` and
    ``p = p - learning_rate / (1 + t * lr_decay) * g / (sqrt(s) + eps)``.
    """
    learning_rate, lr_decay, weight_decay, start, eps = not_negative(
        "AdaGrad",
        learning_rate=learning_rate,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        initial_accumulator_value=initial_accumulator_value,
        eps=eps,
    )

    def size(steps: Any, p: Any) -> Any:
        slowed = ops.add(1, ops.multiply(steps, lr_decay))
        return like(ops.divide(learning_rate, slowed), p)

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if weight_decay:
            g = ops.add(g, ops.multiply(weight_decay, p))
        s = ops.add(state["total"], ops.multiply(g, g))
        below = ops.add(ops.sqrt(s), eps)
        scaled = ops.divide(ops.multiply(size(state["steps"], p), g), below)
        return ops.subtract(p, scaled), state | {"total": s}

    def in_place(g: Any, state: State, p: Any, scratch: Any) -> Plan:
        one, two = scratch
        calls: Plan = []
        if weight_decay:
            calls += [(np.multiply, weight_decay, p, two), (np.add, g, two, two)]
            g = two
        s = state["total"]
        calls += [
            (np.multiply, g, g, one),
            (np.add, s, one, s),
            (np.sqrt, s, one),
            (np.add, one, eps, one),
            (np.multiply, size(state["steps"], p), g, two),
            (np.divide, two, one, two),
            (np.subtract, p, two, p),
        ]
        return calls

    return Rule(("total",), step, in_place, start=start)


def rmsprop(
    learning_rate: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    momentum: float = 0.0,
    centered: bool = False,
) -> Rule:
    """Return the pure rule of RMSprop (Tieleman and Hinton 2012, lecture 6.5), as PyTorch has it.

    With ``g = grad + weight_decay * p``, ``s = alpha s + (1 - alpha) g**2`` and
    ``d = g / (sqrt(s) + eps)``; ``p = p - learning_rate * d``, or with momentum
    ``b = momentum b + d`` and ``p = p - learning_rate * b``. When ``centered`` (Graves 2013), the
    root is that of ``s - a**2``, with ``a = alpha a + (1 - alpha) g``; a difference below 0, which
    only rounding can make, counts as 0.
    """
    learning_rate, alpha, eps, weight_decay, momentum = not_negative(
        "RMSprop",
        learning_rate=learning_rate,
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
    )
    number("RMSprop", "alpha", alpha, "[0, 1]")
    centered = flag("RMSprop", "centered", centered)

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if weight_decay:
            g = ops.add(g, ops.multiply(weight_decay, p))
        s = ops.multiply(alpha, state["square"])
        s = ops.add(s, ops.multiply(1 - alpha, ops.multiply(g, g)))
        state = state | {"square": s}
        if centered:
            a = state["mean"]
            a = ops.add(a, ops.multiply(1 - alpha, ops.subtract(g, a)))
            state["mean"] = a
            s = ops.maximum(ops.subtract(s, ops.multiply(a, a)), 0)
        g = ops.divide(g, ops.add(ops.sqrt(s), eps))
        if momentum:
            g = ops.add(ops.multiply(momentum, state["velocity"]), g)
            state["velocity"] = g
        return ops.subtract(p, ops.multiply(like(learning_rate, p), g)), state

    def in_place(g: Any, state: State, p: Any, scratch: Any) -> Plan:
        one, two = scratch
        calls: Plan = []
        if weight_decay:
            calls += [(np.multiply, weight_decay, p, two), (np.add, g, two, two)]
            g = two
        s = state["square"]
        calls += [
            (np.multiply, g, g, one),
            (np.multiply, 1 - alpha, one, one),
            (np.multiply, alpha, s, s),
            (np.add, s, one, s),
        ]
        if centered:
            a = state["mean"]
            calls += [
                (np.subtract, g, a, one),
                (np.multiply, 1 - alpha, one, one),
                (np.add, a, one, a),
                (np.multiply, a, a, one),
                (np.subtract, s, one, one),
                (partial(np.maximum, out=one), one, 0),
            ]
            s = one
        calls += [(np.sqrt, s, one), (np.add, one, eps, one), (np.divide, g, one, two)]
        g = two
        if momentum:
            v = state["velocity"]
            calls += [(np.multiply, momentum, v, v), (np.add, v, g, v)]
            g = v
        calls += [(np.multiply, learning_rate, g, one), (np.subtract, p, one, p)]
        return calls

    optional = {"mean": centered, "velocity": momentum}
    slots = ("square", *[slot for slot, used in optional.items() if used])
    return Rule(slots, step, in_place, steady=True)


class AdaGrad(Optimizer):
    """AdaGrad, with PyTorch's semantics; ``adagrad`` has the formulas and the source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        lr_decay: How fast the step length falls with the number of steps.
        weight_decay: L2 penalty.
        initial_accumulator_value: What the sums of squares begin with.
        eps: Added to the root of the sum of squares.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> optimizer = AdaGrad([w], learning_rate=1.0, eps=0.0)
    >>> for g in (3.0, 4.0):
    ...     w.grad = [g]
    ...     optimizer.step()
    >>> w.numpy()  # 3 - 3/3 - 4/5
    array([1.2])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(
            params,
            adagrad,
            learning_rate=learning_rate,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )


class RMSprop(Optimizer):
    """RMSprop, with PyTorch's semantics; ``rmsprop`` has the formulas and sources.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        alpha: How much of the averaged square stays, in [0, 1].
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty.
        momentum: How much of the velocity stays.
        centered: Divide by the spread of the gradient instead of its size.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [7.0]
    >>> RMSprop([w], learning_rate=0.5, alpha=0.75, eps=0.0).step()
    >>> w.numpy()  # 3 - 0.5 * 7 / sqrt(0.25 * 49)
    array([2.])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(
            params,
            rmsprop,
            learning_rate=learning_rate,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
        )
