"""RMSprop (Tieleman and Hinton 2012)."""

from __future__ import annotations

from typing import Any, ClassVar

from odyssey import ops
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Optimizer):
    """RMSprop, with PyTorch's semantics; ``rmsprop`` has the formulas and sources.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        alpha: How much of the averaged square stays, in [0, 1].
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty.
        momentum: How much of the velocity stays.
        centered: Divide by the spread of the gradient instead of its size.

    >>> from odyssey import Variable
    >>> w = Variable([3.0], requires_grad=True)
    >>> w.grad = [7.0]
    >>> RMSprop([w], learning_rate=0.5, alpha=0.75, eps=0.0).step()
    >>> w.numpy()  # 3 - 0.5 * 7 / sqrt(0.25 * 49)
    array([2.])
    """

    _ranges: ClassVar[dict[str, str]] = {"alpha": "[0, 1]"}

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(RMSprop)
def rmsprop(s: Settings) -> Rule:
    """Return the pure rule of RMSprop (Tieleman and Hinton 2012, lecture 6.5), as PyTorch has it.

    With ``g = grad + weight_decay * p``, ``s = alpha s + (1 - alpha) g**2`` and
    ``d = g / (sqrt(s) + eps)``; ``p = p - learning_rate * d``, or with momentum
    ``b = momentum b + d`` and ``p = p - learning_rate * b``. When ``centered`` (Graves 2013), the
    root is that of ``s - a**2``, with ``a = alpha a + (1 - alpha) g``; a difference below 0, which
    only rounding can make, counts as 0.
    """

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if s.weight_decay:
            g = ops.add(g, ops.multiply(s.weight_decay, p))
        square = ops.multiply(s.alpha, state["square"])
        square = ops.add(square, ops.multiply(1 - s.alpha, ops.multiply(g, g)))
        state = state | {"square": square}
        if s.centered:
            a = state["mean"]
            a = ops.add(a, ops.multiply(1 - s.alpha, ops.subtract(g, a)))
            state["mean"] = a
            square = ops.maximum(ops.subtract(square, ops.multiply(a, a)), 0)
        g = ops.divide(g, ops.add(ops.sqrt(square), s.eps))
        if s.momentum:
            g = ops.add(ops.multiply(s.momentum, state["velocity"]), g)
            state["velocity"] = g
        return ops.subtract(p, ops.multiply(weak_factor(s.learning_rate, p), g)), state

    optional = {"mean": s.centered, "velocity": s.momentum}
    return Rule(("square", *[slot for slot, used in optional.items() if used]), step)
