"""Muon: momentum, orthogonalized by Newton-Schulz iterations."""

from __future__ import annotations

import math
from typing import Any

from odyssey import ops
from odyssey.checks import check_choice
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.optim.declare import Settings, rule_of
from odyssey.optim.optimizer import Optimizer
from odyssey.optim.rule import Rule, State, weak_factor

__all__ = ["Muon", "muon"]

_FORMULAS = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """Muon, for matrices, with PyTorch's semantics; ``muon`` has the formulas and the source.

    The iterations are computed in the dtype of the parameter, where PyTorch rounds to bfloat16.
    A parameter that is no matrix is refused at the first step, with a ShapeError. Embeddings and
    the last layer usually get another optimizer, too.

    Args:
        params: Trainable real matrices, in any tree; or a list of groups, see ``Optimizer``.
        learning_rate: Step length; assignable later.
        weight_decay: Times the learning rate, the part of each parameter that a step removes.
        momentum: How much of the average of gradients stays.
        nesterov: Look ahead by another step of the average.
        ns_coefficients: The coefficients of ``x``, ``x**3`` and ``x**5`` in an iteration.
        eps: Lower limit of the norm that a gradient is divided by.
        ns_steps: The number of iterations.
        adjust_lr_fn: ``"original"``, the default, multiplies the rate by
            ``sqrt(max(1, rows / columns))``, ``"match_rms_adamw"`` by
            ``0.2 * sqrt(max(rows, columns))``.

    >>> from odyssey import Variable
    >>> w = Variable([[3.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> w.grad = [[0.1, 0.0], [0.0, -0.1]]
    >>> Muon([w], learning_rate=0.5, weight_decay=0.0).step()
    >>> w.numpy().round(2)
    array([[2.45, 0.  ],
           [0.  , 4.55]])
    """

    _ranges = {"ns_coefficients": "(-inf, inf)"}  # noqa: RUF012

    def __init__(
        self,
        params: Any,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        Optimizer.__init__(**locals())


@rule_of(Muon)
def muon(s: Settings) -> Rule:
    """Return the pure rule of Muon (Jordan et al. 2024), as PyTorch has it.

    ``m = momentum m + (1 - momentum) g``, and with ``nesterov`` the direction ``x`` is
    ``momentum m + (1 - momentum) g``, else ``m``. Divided by its norm, and transposed if it has
    more rows than columns, it becomes ``a x + (b (x x') + c (x x')**2) x``, ``ns_steps`` times: a
    matrix whose singular values are near 1. The parameter loses the rate times that.
    """
    a, b, c = s.ns_coefficients
    repeats = int(s.ns_steps)
    if repeats != s.ns_steps:
        raise SettingError(f"Muon: ns_steps={s.ns_steps}; it must be an int")
    if s.adjust_lr_fn is not None:
        check_choice("Muon", "adjust_lr_fn", s.adjust_lr_fn, _FORMULAS)

    def step(g: Any, state: State, p: Any) -> tuple[Any, State]:
        if len(p.shape) != 2:
            raise ShapeError(
                f"Muon: a parameter has shape {p.shape}; pass matrices, and give other parameters "
                "to another optimizer"
            )
        if p.dtype.kind == "c":
            raise DTypeError("Muon: a parameter is complex; pass real matrices")
        m = _lerp_momentum(state["mean"], g, s.momentum)
        x = _lerp_momentum(m, g, s.momentum) if s.nesterov else m
        if s.weight_decay:
            kept = ops.subtract(1, ops.multiply(s.learning_rate, s.weight_decay))
            p = ops.multiply(p, weak_factor(kept, p))
        rate = weak_factor(ops.multiply(s.learning_rate, _rate_factor(s, p.shape)), p)
        return ops.subtract(p, ops.multiply(rate, orthogonalized(x))), state | {"mean": m}

    def orthogonalized(x: Any) -> Any:
        rows, columns = x.shape
        x = ops.transpose(x) if rows > columns else x
        x = ops.divide(x, ops.maximum(ops.sqrt(ops.sum(ops.square(x))), s.eps))
        for _ in range(repeats):
            gram = ops.matmul(x, ops.transpose(x))
            update = ops.add(ops.multiply(b, gram), ops.multiply(c, ops.matmul(gram, gram)))
            x = ops.add(ops.multiply(a, x), ops.matmul(update, x))
        return ops.transpose(x) if rows > columns else x

    return Rule(("mean",), step, elementwise=False, slot_shape=lambda slot, shape: shape)


def _lerp_momentum(old: Any, new: Any, momentum: float) -> Any:
    return ops.add(old, ops.multiply(1 - momentum, ops.subtract(new, old)))


def _rate_factor(s: Settings, shape: tuple[int, ...]) -> float:
    """Return the factor of the learning rate for a matrix of a shape."""
    rows, columns = shape
    if s.adjust_lr_fn in (None, "original"):
        return math.sqrt(max(1.0, rows / max(columns, 1)))
    return 0.2 * math.sqrt(max(rows, columns))
