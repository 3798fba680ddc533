"""AdaGrad (Duchi, Hazan and Singer 2011)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["AdaGrad", "adagrad"]


class AdaGrad(Optimizer):
    """AdaGrad, with PyTorch's semantics; ``adagrad`` has the formulas and the source.

    A gradient of ``od.SparseRows`` updates its rows alone; with weight decay, which moves all rows,
    it is made dense.

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
        Optimizer.__init__(**locals())


@rule_of(AdaGrad)
def adagrad(s: Settings) -> Rule:
    """Return the pure rule of AdaGrad (Duchi, Hazan and Singer 2011), as PyTorch has it.

    With ``g = grad + weight_decay * p`` and ``t`` the number of steps before, ``s = s + g**2`` and
    ``p = p - learning_rate / (1 + t * lr_decay) * g / (sqrt(s) + eps)``.
    """

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        total = ops.add(state["total"], ops.multiply(g, g))
        slowed = ops.add(1, ops.multiply(state["steps"], s.lr_decay))
        size = weak_factor(ops.divide(s.learning_rate, slowed), p)
        below = ops.add(ops.sqrt(total), s.eps)
        return (
            ops.subtract(p, ops.divide(ops.multiply(size, g), below)),
            state | {"total": total},
        )

    return Rule(("total",), step, start=s.initial_accumulator_value, by_rows=not s.weight_decay)
