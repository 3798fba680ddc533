"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from odyssey.errors import OdysseyError
from odyssey.ops.elementwise import add, mul, sub
from odyssey.optim.optimizer import Optimizer, Rule
from odyssey.tree import leaves, map_tree, unflatten

__all__ = ["SGD", "sgd"]


def sgd(
    learning_rate: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """Return the pure pair of SGD: ``init(params)`` and ``update(grads, state, params)``.

    With ``g = grad + weight_decay * p``, the velocity is ``v = momentum * v + (1 - dampening) * g``
    (``v = g`` in the first step), and ``p = p - learning_rate * v``, or, after Nesterov,
    ``p - learning_rate * (g + momentum * v)``. These are PyTorch's formulas.

    >>> import numpy as np
    >>> rule = sgd(0.5)
    >>> rule.update({"w": np.array(4.0)}, rule.init({"w": np.array(3.0)}), {"w": np.array(3.0)})[0]
    {'w': np.float64(1.0)}
    """

    def update_one(g: Any, v: Any, p: Any) -> tuple[Any, Any]:
        if weight_decay:
            g = add(g, mul(weight_decay, p))
        if momentum:
            fresh = g if not dampening else mul(1 - dampening, g)
            v = g if v is None else add(mul(momentum, v), fresh)
            g = add(g, mul(momentum, v)) if nesterov else v
        return sub(p, mul(learning_rate, g)), v

    def init(params: Any) -> Any:
        return map_tree(lambda p: None, params)

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        columns = zip(leaves(grads), leaves(state), leaves(params), strict=True)
        results = [update_one(*row) for row in columns]
        return unflatten(params, [p for p, _ in results]), unflatten(state, [v for _, v in results])

    return Rule(init, update)


class SGD(Optimizer):
    """Stochastic gradient descent, with PyTorch's semantics.

    Args:
        params: Trainable Variables, in any tree.
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
        if nesterov and (momentum <= 0 or dampening != 0):
            raise OdysseyError("SGD: nesterov=True needs momentum > 0 and dampening = 0")
        if momentum < 0 or weight_decay < 0:
            raise OdysseyError("SGD: momentum and weight_decay must not be negative")
        self.momentum = momentum
        self.dampening = dampening
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        super().__init__(params, learning_rate)

    def rule(self) -> Rule:
        """The pure pair with this optimizer's present settings."""
        return sgd(
            self.learning_rate, self.momentum, self.dampening, self.nesterov, self.weight_decay
        )

    # With zeros for a velocity the first step is the same, unless part of the gradient is held back.
    @property
    def starts_from_zeros(self) -> bool:
        """Whether zeros stand for a state that no step has touched."""
        return self.dampening == 0

    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return {
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
            "dampening": self.dampening,
            "nesterov": self.nesterov,
            "weight_decay": self.weight_decay,
        }
