"""LARS: layer-wise adaptive rate scaling (You, Gitman and Ginsburg 2017)."""

from __future__ import annotations

from typing import Any

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["LARS", "lars"]


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
        Optimizer.__init__(**locals())


@rule_of(LARS)
def lars(s: Settings) -> Rule:
    """Return the pure rule of LARS (You, Gitman and Ginsburg 2017, algorithm 1).

    For each parameter as a whole, ``r = trust_coefficient |p| / (|g| + weight_decay |p|)``,
    ``v = momentum v + learning_rate * r * (g + weight_decay p)`` and ``p = p - v``. Where ``|p|``
    or ``|g|`` is 0, which the paper leaves open, ``r = 1``.
    """

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        p_norm, g_norm = _norm(p), _norm(g)
        usable = ops.logical_and(ops.greater(p_norm, 0), ops.greater(g_norm, 0))
        below = ops.add(g_norm, ops.multiply(s.weight_decay, p_norm))
        ratio = ops.divide(ops.multiply(s.trust_coefficient, p_norm), ops.where(usable, below, 1))
        size = ops.multiply(weak_factor(s.learning_rate, p), ops.where(usable, ratio, 1))
        direction = ops.add(g, ops.multiply(s.weight_decay, p)) if s.weight_decay else g
        v = ops.add(ops.multiply(s.momentum, state["velocity"]), ops.multiply(size, direction))
        return ops.subtract(p, v), state | {"velocity": v}

    return Rule(("velocity",), step, elementwise=False)


def _norm(x: Any) -> Any:
    size = ops.absolute(x) if x.dtype.kind == "c" else x
    return ops.sqrt(ops.sum(ops.square(size)))
