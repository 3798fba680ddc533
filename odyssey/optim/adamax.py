"""Adamax: Adam with the infinity norm (Kingma and Ba 2015)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["Adamax", "adamax"]


class Adamax(Optimizer):
    """Adam by the infinity norm, with PyTorch's semantics; ``adamax`` has formulas and source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averaged gradient and of its largest size stays.
        eps: Added to the size of each gradient.
        weight_decay: L2 penalty.

    >>> from odyssey import Variable
    >>> w = Variable([3.0, -3.0], requires_grad=True)
    >>> w.grad = [100.0, -0.01]
    >>> Adamax([w], learning_rate=0.5, eps=0.0).step()
    >>> w.numpy()
    array([ 2.5, -2.5])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(Adamax)
def adamax(s: Settings) -> Rule:
    """Return the pure rule of Adamax (Kingma and Ba 2015, section 7.1), as PyTorch has it.

    With ``g = grad + weight_decay * p`` and ``t`` the number of this step, from 1,
    ``m = b1 m + (1 - b1) g``, ``u = max(b2 u, |g| + eps)`` and
    ``p = p - learning_rate / (1 - b1**t) * m / u``.
    """
    beta1, beta2 = s.betas

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        t = ops.add(state["steps"], 1)
        size = weak_factor(ops.divide(s.learning_rate, ops.subtract(1, ops.power(beta1, t))), p)
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        m = ops.add(state["mean"], ops.multiply(1 - beta1, ops.subtract(g, state["mean"])))
        u = ops.maximum(ops.multiply(beta2, state["largest"]), ops.add(ops.absolute(g), s.eps))
        moved = ops.subtract(p, ops.divide(ops.multiply(size, m), u))
        return moved, state | {"mean": m, "largest": u}

    return Rule(("mean", "largest"), step)
