"""RAdam: rectified Adam (Liu et al. 2020)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["RAdam", "radam"]


class RAdam(Optimizer):
    """Rectified Adam, with PyTorch's semantics; ``radam`` has the formulas and the source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averages of the gradient and of its square stays.
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty, whose gradient enters both averages.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [0.5]
    >>> RAdam([w], learning_rate=1.0).step()  # as descent with momentum, at first
    >>> w.numpy().round(5)
    array([2.5])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(RAdam)
def radam(s: Settings) -> Rule:
    """Return the pure rule of RAdam (Liu et al. 2020, algorithm 2), as PyTorch has it.

    ``g``, ``m`` and ``v`` are those of ``adam``. With ``r = 2 / (1 - b2) - 1`` and
    ``r_t = r - 2 t b2**t / (1 - b2**t)``, the step is ``learning_rate * m / (1 - b1**t)`` where
    ``r_t <= 5``; else that, times ``sqrt(1 - b2**t) / (sqrt(v) + eps)``, times
    ``sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t))``.
    """
    beta1, beta2 = s.betas
    most = 2 / (1 - beta2) - 1
    safe = most if most > 5 else 6.0  # replaces numbers whose root may not exist

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        m, v = state["mean"], state["square"]
        m = ops.add(m, ops.multiply(1 - beta1, ops.subtract(g, m)))
        v = ops.add(ops.multiply(beta2, v), ops.multiply(1 - beta2, ops.multiply(g, g)))
        t = ops.add(state["steps"], 1)
        size = weak_factor(ops.divide(s.learning_rate, ops.subtract(1, ops.power(beta1, t))), p)
        early, scale = rectified(t)
        scaled = ops.divide(weak_factor(scale, p), ops.add(ops.sqrt(v), s.eps))
        moved = ops.multiply(ops.multiply(size, m), ops.where(early, 1, scaled))
        return ops.subtract(p, moved), state | {"mean": m, "square": v}

    def rectified(t: Any) -> tuple[Any, Any]:
        """Return whether ``t`` is too small for the averaged square, and its scale otherwise."""
        power = ops.power(beta2, t)
        left = ops.subtract(1, power)
        known = ops.subtract(most, ops.divide(ops.multiply(ops.multiply(2, t), power), left))
        early = ops.less_equal(known, 5)
        known = ops.where(early, safe, known)
        above = ops.multiply(ops.multiply(ops.subtract(known, 4), ops.subtract(known, 2)), safe)
        below = ops.multiply((safe - 4) * (safe - 2), known)
        return early, ops.sqrt(ops.multiply(left, ops.divide(above, below)))

    return Rule(("mean", "square"), step)
