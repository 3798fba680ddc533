"""LARS and Lion: steps whose length does not follow the length of the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.devices.commit import Plan
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, like, not_negative, pair

__all__ = ["LARS", "Lion", "lars", "lion"]


def lars(
    learning_rate: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    trust_coefficient: float = 1e-3,
) -> Rule:
    """Return the pure rule of LARS (You, Gitman and Ginsburg 2017, algorithm 1).

    For each parameter as a whole, ``r = trust_coefficient |p| / (|g| + weight_decay |p|)``,
    ``v = momentum v + learning_rate * r * (g + weight_decay p)`` and ``p = p - v``. Where ``|p|``
    or ``|g|`` is 0, which the paper leaves open, ``r = 1``.
    """
    learning_rate, momentum, weight_decay, trust_coefficient = not_negative(
        "LARS",
        learning_rate=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        trust_coefficient=trust_coefficient,
    )

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        of_p, of_g = _norm(p), _norm(g)
        usable = ops.logical_and(ops.greater(of_p, 0), ops.greater(of_g, 0))
        below = ops.add(of_g, ops.multiply(weight_decay, of_p))
        ratio = ops.divide(ops.multiply(trust_coefficient, of_p), ops.where(usable, below, 1))
        size = ops.multiply(like(learning_rate, p), ops.where(usable, ratio, 1))
        pull = ops.add(g, ops.multiply(weight_decay, p)) if weight_decay else g
        v = ops.add(ops.multiply(momentum, state["velocity"]), ops.multiply(size, pull))
        return ops.subtract(p, v), state | {"velocity": v}

    return Rule(("velocity",), step, elementwise=False)


def _norm(x: Any) -> Any:
    size = ops.absolute(x) if x.dtype.kind == "c" else x
    return ops.sqrt(ops.sum(ops.square(size)))


def lion(
    learning_rate: float = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99),
    weight_decay: float = 0.0,
) -> Rule:
    """Return the pure rule of Lion (Chen et al. 2023, algorithm 2).

    ``u = sign(b1 m + (1 - b1) g)``, ``p = p - learning_rate * (u + weight_decay p)`` and
    ``m = b2 m + (1 - b2) g``. The sign of 0 is 0.
    """
    learning_rate, weight_decay = not_negative(
        "Lion", learning_rate=learning_rate, weight_decay=weight_decay
    )
    beta1, beta2 = pair("Lion", betas)

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        m = state["mean"]
        u = ops.sign(ops.add(ops.multiply(beta1, m), ops.multiply(1 - beta1, g)))
        if weight_decay:
            u = ops.add(u, ops.multiply(weight_decay, p))
        m = ops.add(ops.multiply(beta2, m), ops.multiply(1 - beta2, g))
        return ops.subtract(p, ops.multiply(like(learning_rate, p), u)), state | {"mean": m}

    def in_place(g: Any, state: State, p: Any, scratch: Any) -> Plan:
        one, two = scratch
        m = state["mean"]
        calls: Plan = [
            (np.multiply, beta1, m, one),
            (np.multiply, 1 - beta1, g, two),
            (np.add, one, two, one),
            (np.sign, one, two),  # not onto itself: that is ten times slower
        ]
        if weight_decay:
            calls += [(np.multiply, weight_decay, p, one), (np.add, two, one, two)]
        calls += [
            (np.multiply, learning_rate, two, two),
            (np.subtract, p, two, p),
            (np.multiply, beta2, m, m),
            (np.multiply, 1 - beta2, g, one),
            (np.add, m, one, m),
        ]
        return calls

    return Rule(("mean",), step, in_place, steady=True)


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling, for large batches; ``lars`` has formulas and source.

    Biases and scales usually get no decay: give them a group with ``weight_decay=0``.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length of the whole; assignable later.
        momentum: How much of the velocity stays.
        weight_decay: L2 penalty, which also enters the length that a step is compared with.
        trust_coefficient: Length of a step over that of the parameter, at a learning rate of 1.

    >>> from odyssey import Variable
    >>> w = Variable([3.0, 4.0], requires_grad=True)
    >>> w.grad = [0.0, 0.02]
    >>> LARS([w], learning_rate=1.0, trust_coefficient=0.1).step()
    >>> w.numpy()
    array([3. , 3.5])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
    ) -> None:
        super().__init__(
            params,
            lars,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            trust_coefficient=trust_coefficient,
        )


class Lion(Optimizer):
    """Evolved sign momentum, every step of one length; ``lion`` has the formulas and the source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length of every element; assignable later.
        betas: How much of the average stays in the step's direction, and in the average.
        weight_decay: Times the learning rate, the part of each parameter that a step removes.

    >>> from odyssey import Variable
    >>> w = Variable([3.0, 3.0], requires_grad=True)
    >>> w.grad = [100.0, -0.01]
    >>> Lion([w], learning_rate=0.5).step()
    >>> w.numpy()
    array([2.5, 3.5])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params, lion, learning_rate=learning_rate, betas=betas, weight_decay=weight_decay
        )
