"""NAdam: Adam with Nesterov momentum (Dozat 2016)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["NAdam", "nadam"]


class NAdam(Optimizer):
    """Adam with Nesterov momentum, with PyTorch's semantics; ``nadam`` has formulas and source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averages of the gradient and of its square stays.
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty, whose gradient enters both averages.
        momentum_decay: How fast the momentum approaches the first of ``betas``.
        decoupled_weight_decay: Remove ``learning_rate * weight_decay`` of each parameter instead.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [0.5]
    >>> NAdam([w], learning_rate=0.1).step()
    >>> w.numpy().round(4)
    array([2.8944])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(NAdam)
def nadam(s: Settings) -> Rule:
    """Return the pure rule of NAdam (Dozat 2016, algorithm 2), as PyTorch has it.

    ``g``, ``m`` and ``v`` are those of ``adam``. With ``u_t = b1 * (1 - 0.96**(t d) / 2)`` for
    ``d = momentum_decay``, and ``c_t = 1 - u_1 u_2 ... u_t``, which the slot ``correction`` holds,
    ``p = p - learning_rate * ((1 - u_t) / c_t * g + u_(t+1) / c_(t+1) * m) /
    (sqrt(v / (1 - b2**t)) + eps)``.
    """
    beta1, beta2 = s.betas

    def momentum(t: Any) -> Any:
        decayed = ops.power(0.96, ops.multiply(t, s.momentum_decay))
        return ops.multiply(beta1, ops.subtract(1, ops.multiply(0.5, decayed)))

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        t = ops.add(state["steps"], 1)
        now, after = momentum(t), momentum(ops.add(t, 1))
        root = weak_factor(ops.sqrt(ops.subtract(1, ops.power(beta2, t))), p)
        plain = weak_factor(ops.multiply(s.learning_rate, ops.subtract(1, now)), p)
        ahead = weak_factor(ops.multiply(s.learning_rate, after), p)
        now, after = weak_factor(now, p), weak_factor(after, p)
        if s.weight_decay and s.decoupled_weight_decay:
            kept = ops.subtract(1, ops.multiply(s.learning_rate, s.weight_decay))
            p = ops.multiply(p, weak_factor(kept, p))
        elif s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        m, v = state["mean"], state["square"]
        m = ops.add(m, ops.multiply(1 - beta1, ops.subtract(g, m)))
        v = ops.add(ops.multiply(beta2, v), ops.multiply(1 - beta2, ops.multiply(g, g)))
        product = ops.multiply(ops.subtract(1, state["correction"]), now)
        correction = ops.subtract(1, product)
        next_correction = ops.subtract(1, ops.multiply(product, after))
        below = ops.add(ops.divide(ops.sqrt(v), root), s.eps)
        moved = ops.divide(ops.divide(ops.multiply(plain, g), correction), below)
        moved = ops.add(
            moved, ops.divide(ops.divide(ops.multiply(ahead, m), next_correction), below)
        )
        return ops.subtract(p, moved), {
            **state,
            "mean": m,
            "square": v,
            "correction": correction,
        }

    return Rule(("mean", "square", "correction"), step)
