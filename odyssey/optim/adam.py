"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.errors import SettingError
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["Adam", "AdamW", "adam", "adamw"]


class Adam(Optimizer):
    """Adam, with PyTorch's semantics; ``adam`` has the formulas and sources.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averages of the gradient and of its square stays.
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty, whose gradient enters both averages.
        amsgrad: Divide by the root of the largest averaged square so far.
        lazy: Let a gradient of ``od.SparseRows`` update its rows alone, with their averages, as
            PyTorch's ``SparseAdam`` does. Without, it is made dense, and averages of all rows
            decay and move their rows. Needs ``weight_decay=0``.

    >>> from odyssey import Variable
    >>> w = Variable([3.0, -3.0], requires_grad=True)
    >>> optimizer = Adam([w], learning_rate=0.5)
    >>> w.grad = [100.0, -0.01]
    >>> optimizer.step()
    >>> w.numpy().round(5)
    array([ 2.5, -2.5])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        lazy: bool = False,
    ) -> None:
        Optimizer.__init__(**locals())


class AdamW(Optimizer):
    """Adam with decoupled weight decay, with PyTorch's semantics; see ``adamw`` for the source.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averages of the gradient and of its square stays.
        eps: Added to the root of the averaged square.
        weight_decay: Times the learning rate, the part of each parameter that a step removes.
        amsgrad: Divide by the root of the largest averaged square so far.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [0.0]
    >>> AdamW([w], learning_rate=0.5, weight_decay=0.5).step()
    >>> w.numpy()
    array([2.25])
    """

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(Adam)
def adam(s: Settings) -> Rule:
    """Return the pure rule of Adam (Kingma and Ba 2015, algorithm 1), as PyTorch has it.

    With ``g = grad + weight_decay * p`` and ``t`` the number of this step, from 1,
    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g**2`` and
    ``p = p - learning_rate * m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)``. With ``amsgrad``
    (Reddi, Kale and Kumar 2018) the largest ``v`` so far stands in for ``v``. With ``lazy`` a
    gradient of ``od.SparseRows`` updates its rows alone; ``t`` counts all steps.

    Raises:
        SettingError: for ``lazy`` with a weight decay, which moves all rows.
    """
    if s.lazy and s.weight_decay:
        raise SettingError("Adam: lazy=True needs weight_decay=0, because the decay moves all rows")
    return _adam(s, decoupled=False, by_rows=s.lazy)


@rule_of(AdamW)
def adamw(s: Settings) -> Rule:
    """Return the pure rule of AdamW (Loshchilov and Hutter 2019), as PyTorch has it.

    Adam on the gradient alone, after ``p = p * (1 - learning_rate * weight_decay)``.
    """
    return _adam(s, decoupled=True)


def _adam(s: Settings, decoupled: bool, by_rows: bool = False) -> Rule:
    beta1, beta2 = s.betas

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        t = ops.add(state["steps"], 1)
        # Factors that do not depend on the parameter are computed once, in float64.
        size = weak_factor(ops.divide(s.learning_rate, ops.subtract(1, ops.power(beta1, t))), p)
        root = weak_factor(ops.sqrt(ops.subtract(1, ops.power(beta2, t))), p)
        if s.weight_decay and decoupled:
            kept = ops.subtract(1, ops.multiply(s.learning_rate, s.weight_decay))
            p = ops.multiply(p, weak_factor(kept, p))
        elif s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        m, v = state["mean"], state["square"]
        m = ops.add(m, ops.multiply(1 - beta1, ops.subtract(g, m)))
        v = ops.add(ops.multiply(beta2, v), ops.multiply(1 - beta2, ops.multiply(g, g)))
        state = state | {"mean": m, "square": v}
        if s.amsgrad:
            v = ops.maximum(state["peak"], v)
            state["peak"] = v
        below = ops.add(ops.divide(ops.sqrt(v), root), s.eps)
        return ops.subtract(p, ops.divide(ops.multiply(size, m), below)), state

    slots = ("mean", "square", "peak") if s.amsgrad else ("mean", "square")
    return Rule(slots, step, by_rows=by_rows)
