"""Lion: evolved sign momentum (Chen et al. 2023)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["Lion", "lion"]


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
        Optimizer.__init__(**locals())


@rule_of(Lion)
def lion(s: Settings) -> Rule:
    """Return the pure rule of Lion (Chen et al. 2023, algorithm 2).

    ``u = sign(b1 m + (1 - b1) g)``, ``p = p - learning_rate * (u + weight_decay p)`` and
    ``m = b2 m + (1 - b2) g``. The sign of 0 is 0.
    """
    beta1, beta2 = s.betas

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        m = state["mean"]
        u = ops.sign(ops.add(ops.multiply(beta1, m), ops.multiply(1 - beta1, g)))
        if s.weight_decay:
            u = ops.add(u, ops.multiply(s.weight_decay, p))
        m = ops.add(ops.multiply(beta2, m), ops.multiply(1 - beta2, g))
        return ops.subtract(p, ops.multiply(weak_factor(s.learning_rate, p), u)), state | {
            "mean": m
        }

    return Rule(("mean",), step)
