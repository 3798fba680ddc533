"""Adadelta (Zeiler 2012)."""

from __future__ import annotations

from typing import Any, ClassVar

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Optimizer):
    """Adadelta, with PyTorch's semantics; ``adadelta`` has the formulas and the source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length over that of the method itself; assignable later.
        rho: How much of both averaged squares stays, in [0, 1].
        eps: Added to both averaged squares; the length of the first step follows from it.
        weight_decay: L2 penalty.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [4.0]
    >>> Adadelta([w], rho=0.0, eps=9.0).step()
    >>> w.numpy().round(5)  # 3 - sqrt(9) * 4 / sqrt(16 + 9)
    array([0.6])
    """

    _ranges: ClassVar[dict[str, str]] = {"rho": "[0, 1]"}

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(Adadelta)
def adadelta(s: Settings) -> Rule:
    """Return the pure rule of Adadelta (Zeiler 2012, algorithm 1), as PyTorch has it.

    With ``g = grad + weight_decay * p``, ``v = rho v + (1 - rho) g**2``,
    ``d = sqrt(u + eps) * g / sqrt(v + eps)``, ``u = rho u + (1 - rho) d**2`` and
    ``p = p - learning_rate * d``.
    """

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        v = averaged(state["square"], g)
        d = ops.multiply(ops.sqrt(ops.add(state["moved"], s.eps)), g)
        d = ops.divide(d, ops.sqrt(ops.add(v, s.eps)))
        state = state | {"square": v, "moved": averaged(state["moved"], d)}
        return ops.subtract(p, ops.multiply(weak_factor(s.learning_rate, p), d)), state

    def averaged(square: Any, x: Any) -> Any:
        return ops.add(ops.multiply(s.rho, square), ops.multiply(1 - s.rho, ops.multiply(x, x)))

    return Rule(("square", "moved"), step)
