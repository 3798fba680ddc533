"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.errors import SettingError
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Stochastic gradient descent, with PyTorch's semantics.

    A gradient of ``od.SparseRows`` updates its rows alone; with momentum or weight decay, which
    move all rows, it is made dense.

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
        Optimizer.__init__(**locals())


@rule_of(SGD)
def sgd(s: Settings) -> Rule:
    """Return the pure rule of SGD, with PyTorch's formulas.

    With ``g = grad + weight_decay * p``, the velocity is ``v = momentum * v + (1 - dampening) * g``
    (in the first step ``v = g``), and ``p = p - learning_rate * v``, or, after Nesterov,
    ``p - learning_rate * (g + momentum * v)``.

    Raises:
        SettingError: for negative settings, or ``nesterov`` without a plain momentum.
    """
    if s.nesterov and (s.momentum == 0 or s.dampening != 0):
        raise SettingError("SGD: nesterov=True needs momentum > 0 and dampening = 0")

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        if s.momentum:
            v = ops.multiply(s.momentum, state["velocity"])
            if s.dampening:
                slower = ops.add(v, ops.multiply(1 - s.dampening, g))
                v = ops.where(ops.equal(state["steps"], 0), g, slower)
            else:
                v = ops.add(v, g)
            g = ops.add(g, ops.multiply(s.momentum, v)) if s.nesterov else v
            state = state | {"velocity": v}
        return ops.subtract(p, ops.multiply(weak_factor(s.learning_rate, p), g)), state

    by_rows = not (s.momentum or s.weight_decay)
    return Rule(("velocity",) if s.momentum else (), step, by_rows=by_rows)
