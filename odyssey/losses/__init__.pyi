"""Losses, and their gradients for loops without a tape.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import overload

from odyssey.losses.gradients import (
    LossAndGrad,
    bce_loss_and_grad,
    ce_loss_and_grad,
    compute_bce_gradient,
    compute_ce_gradient,
    compute_gradient,
    compute_mse_gradient,
    mse_loss_and_grad,
)
from odyssey.table.signatures import ArrayOrScalar, Loss, Operand, Plain, V

__all__ = [
    "binary_cross_entropy",
    "cross_entropy",
    "focal",
    "hinge",
    "kl_divergence",
    "nll",
    "LossAndGrad",
    "bce_loss_and_grad",
    "ce_loss_and_grad",
    "compute_bce_gradient",
    "compute_ce_gradient",
    "compute_gradient",
    "compute_mse_gradient",
    "mse_loss_and_grad",
    "huber",
    "log_cosh",
    "mean_absolute_error",
    "mean_squared_error",
    "smooth_l1",
]

@overload
def binary_cross_entropy(
    predictions: V,
    targets: Operand,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Cross entropy of yes-or-no targets."""
@overload
def binary_cross_entropy(
    predictions: Plain,
    targets: V,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def binary_cross_entropy(
    predictions: Plain,
    targets: Plain,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def binary_cross_entropy(
    predictions: Plain,
    targets: Plain,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def cross_entropy(
    logits: V,
    targets: Operand,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Cross entropy of targets against the softmax of ``logits``."""
@overload
def cross_entropy(
    logits: Plain,
    targets: V,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def cross_entropy(
    logits: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def cross_entropy(
    logits: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def focal(
    logits: V,
    targets: Operand,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Binary cross entropy that pays less heed to what is already right."""
@overload
def focal(
    logits: Plain,
    targets: V,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def focal(
    logits: Plain,
    targets: Plain,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def focal(
    logits: Plain,
    targets: Plain,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
hinge: Loss
"""Mean of ``max(0, 1 - targets * predictions)``, for targets -1 and 1."""

@overload
def huber(
    predictions: V,
    targets: Operand,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Mean of half the squared differences, made straight beyond ``delta`` (Huber 1964)."""
@overload
def huber(
    predictions: Plain,
    targets: V,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def huber(
    predictions: Plain, targets: Plain, *, delta: float = 1.0, reduction: str = "mean", weights: V
) -> V: ...
@overload
def huber(
    predictions: Plain,
    targets: Plain,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def kl_divergence(
    log_probabilities: V,
    targets: Operand,
    *,
    log_target: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Elementwise ``t (log t - x)`` of targets ``t`` and predicted log-probabilities ``x``."""
@overload
def kl_divergence(
    log_probabilities: Plain,
    targets: V,
    *,
    log_target: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def kl_divergence(
    log_probabilities: Plain,
    targets: Plain,
    *,
    log_target: bool = False,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def kl_divergence(
    log_probabilities: Plain,
    targets: Plain,
    *,
    log_target: bool = False,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
log_cosh: Loss
"""Mean of ``log(cosh(d))``: like ``d**2 / 2`` where small, like ``|d| - log 2`` far out."""
mean_absolute_error: Loss
"""Mean of the absolute differences, ``mean(|predictions - targets|)``."""
mean_squared_error: Loss
"""Mean of the squared differences, ``mean((predictions - targets)**2)``."""

@overload
def nll(
    log_probabilities: V,
    targets: Operand,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Negative logarithm of the probability that each target was given."""
@overload
def nll(
    log_probabilities: Plain,
    targets: V,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def nll(
    log_probabilities: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def nll(
    log_probabilities: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def smooth_l1(
    predictions: V,
    targets: Operand,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Mean of the absolute differences, rounded off below ``beta``."""
@overload
def smooth_l1(
    predictions: Plain,
    targets: V,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def smooth_l1(
    predictions: Plain, targets: Plain, *, beta: float = 1.0, reduction: str = "mean", weights: V
) -> V: ...
@overload
def smooth_l1(
    predictions: Plain,
    targets: Plain,
    *,
    beta: float = 1.0,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
