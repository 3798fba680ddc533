"""Adam and AdamW."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import flag
from odyssey.devices.commit import Plan
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, like, not_negative, pair

__all__ = ["Adam", "AdamW", "adam", "adamw"]


def adam(
    learning_rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
) -> Rule:
    """Return the pure rule of Adam (Kingma and Ba 2015, algorithm 1), as PyTorch has it.

    With ``g = grad + weight_decay * p`` and ``t`` the number of this step, from 1,
    ``m = b1 m + (1 - b1) g``, ``v = b2 v + (1 - b2) g**2`` and
    ``p = p - learning_rate * m / (1 - b1**t) / (sqrt(v / (1 - b2**t)) + eps)``. With ``amsgrad``
    (Reddi, Kale and Kumar 2018) the largest ``v`` so far stands in for ``v``.
    """
    return _adam("Adam", learning_rate, betas, eps, weight_decay, amsgrad, decoupled=False)


def adamw(
    learning_rate: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    amsgrad: bool = False,
) -> Rule:
    """Return the pure rule of AdamW (Loshchilov and Hutter 2019), as PyTorch has it.

    Adam on the gradient alone, after ``p = p * (1 - learning_rate * weight_decay)``.
    """
    return _adam("AdamW", learning_rate, betas, eps, weight_decay, amsgrad, decoupled=True)


def _adam(
    who: str, learning_rate: Any, betas: Any, eps: Any, decay: Any, amsgrad: bool, decoupled: bool
) -> Rule:
    learning_rate, eps, decay = not_negative(
        who, learning_rate=learning_rate, eps=eps, weight_decay=decay
    )
    amsgrad = flag(who, "amsgrad", amsgrad)
    beta1, beta2 = pair(who, betas)

    def scales(steps: Any) -> tuple[Any, Any, Any]:
        """The step length and the root of the second bias, corrected; and what decay leaves."""
        t = ops.add(steps, 1)
        size = ops.divide(learning_rate, ops.subtract(1, ops.power(beta1, t)))
        root = ops.sqrt(ops.subtract(1, ops.power(beta2, t)))
        kept = ops.subtract(1, ops.multiply(learning_rate, decay))
        return size, root, kept

    scales_once = lru_cache(maxsize=1)(scales)  # all packs and blocks of a step ask for the same

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        size, root, kept = [like(scale, p) for scale in scales(state["steps"])]
        if decay and decoupled:
            p = ops.multiply(p, kept)
        elif decay:
            g = ops.add(g, ops.multiply(decay, p))
        m, v = state["mean"], state["square"]
        m = ops.add(m, ops.multiply(1 - beta1, ops.subtract(g, m)))
        v = ops.add(ops.multiply(beta2, v), ops.multiply(1 - beta2, ops.multiply(g, g)))
        state = state | {"mean": m, "square": v}
        if amsgrad:
            v = ops.maximum(state["peak"], v)
            state["peak"] = v
        below = ops.add(ops.divide(ops.sqrt(v), root), eps)
        return ops.subtract(p, ops.divide(ops.multiply(size, m), below)), state

    def in_place(g: Any, state: State, p: Any, scratch: Any) -> Plan:
        one, two = scratch
        size, root, kept = scales_once(state["steps"])
        calls: Plan = []
        if decay and decoupled:
            calls += [(np.multiply, p, kept, p)]
        elif decay:
            calls += [(np.multiply, decay, p, one), (np.add, g, one, two)]
            g = two
        m, v = state["mean"], state["square"]
        calls += [
            (np.subtract, g, m, one),
            (np.multiply, 1 - beta1, one, one),
            (np.add, m, one, m),
            (np.multiply, g, g, one),
            (np.multiply, 1 - beta2, one, one),
            (np.multiply, beta2, v, v),
            (np.add, v, one, v),
        ]
        if amsgrad:
            peak = state["peak"]
            calls += [(partial(np.maximum, out=peak), peak, v)]
            v = peak
        calls += [
            (np.sqrt, v, one),
            (np.divide, one, root, one),
            (np.add, one, eps, one),
            (np.multiply, size, m, two),
            (np.divide, two, one, two),
            (np.subtract, p, two, p),
        ]
        return calls

    slots = ("mean", "square", "peak") if amsgrad else ("mean", "square")
    return Rule(slots, step, in_place)


class Adam(Optimizer):
    """Adam, with PyTorch's semantics; ``adam`` has the formulas and sources.

    Args:
        params: Trainable Variables, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        betas: How much of the averages of the gradient and of its square stays.
        eps: Added to the root of the averaged square.
        weight_decay: L2 penalty, whose gradient enters both averages.
        amsgrad: Divide by the root of the largest averaged square so far.

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
    ) -> None:
        super().__init__(
            params,
            adam,
            learning_rate=learning_rate,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
        )


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
        super().__init__(
            params,
            adamw,
            learning_rate=learning_rate,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
        )
