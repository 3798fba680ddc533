"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag
from odyssey.devices.commit import Plan
from odyssey.errors import OdysseyError
from odyssey.ops.arithmetic import add, mul, sub
from odyssey.ops.choice import equal, where
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Constants, Rule, State, like, not_negative

__all__ = ["SGD", "sgd"]


def sgd(
    learning_rate: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """Return the pure rule of SGD, with PyTorch's formulas.

    With ``g = grad + weight_decay * p``, the velocity is ``v = momentum * v + (1 - dampening) * g``
    (in the first step ``v = g``), and ``p = p - learning_rate * v``, or, after Nesterov,
    ``p - learning_rate * (g + momentum * v)``.

    Raises:
        OdysseyError: for negative settings, or ``nesterov`` without a plain momentum.
    """
    learning_rate, momentum, dampening, weight_decay = not_negative(
        "SGD",
        learning_rate=learning_rate,
        momentum=momentum,
        dampening=dampening,
        weight_decay=weight_decay,
    )
    nesterov = flag("SGD", "nesterov", nesterov)
    if nesterov and (momentum == 0 or dampening != 0):
        raise OdysseyError("SGD: nesterov=True needs momentum > 0 and dampening = 0")

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if weight_decay:
            g = add(g, mul(weight_decay, p))
        if momentum:
            v = mul(momentum, state["velocity"])
            if dampening:
                v = where(equal(state["steps"], 0), g, add(v, mul(1 - dampening, g)))
            else:
                v = add(v, g)
            g = add(g, mul(momentum, v)) if nesterov else v
            state = state | {"velocity": v}
        return sub(p, mul(like(learning_rate, p), g)), state

    constants = Constants(learning_rate, momentum, weight_decay)

    def in_place(g: Any, state: State, p: Any, scratch: Any) -> Plan:
        one, two = scratch
        rate, share, decay = constants[p.dtype]
        calls: Plan = []
        if weight_decay:
            calls += [(np.multiply, decay, p, one), (np.add, g, one, one)]
            g = one
        if momentum:
            v = state["velocity"]
            calls += [(np.multiply, share, v, v), (np.add, v, g, v)]
            if nesterov:
                calls += [(np.multiply, share, v, two), (np.add, g, two, one)]
                g = one
            else:
                g = v
        calls += [(np.multiply, rate, g, two), (np.subtract, p, two, p)]
        return calls

    slots = ("velocity",) if momentum else ()
    return Rule(slots, step, None if dampening else in_place, steady=True)


class SGD(Optimizer):
    """Stochastic gradient descent, with PyTorch's semantics.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        momentum: How much of the velocity stays, in [0, 1).
        dampening: How much of the gradient does not enter the velocity.
        nesterov: Step with the velocity that the step itself leads to.
        weight_decay: L2 penalty.

    >>> from odyssey import GradientTape, Variable
    >>> w = Variable(3.0, requires_grad=True)
    >>> with GradientTape() as tape:
    ...     loss = w * w
    >>> _ = tape.backward(loss)
    >>> SGD([w], learning_rate=0.25).step()
    >>> float(w)
    1.5
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params,
            sgd,
            learning_rate=learning_rate,
            momentum=momentum,
            dampening=dampening,
            nesterov=nesterov,
            weight_decay=weight_decay,
        )
