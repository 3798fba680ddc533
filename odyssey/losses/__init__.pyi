"""Losses, and their gradients for training loops without a tape.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import Any, overload

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
    "gaussian_nll",
    "poisson_nll",
    "hinge_embedding",
    "margin_ranking",
    "multi_margin",
    "multilabel_margin",
    "multilabel_soft_margin",
    "soft_margin",
    "cosine_embedding",
    "triplet_margin",
    "huber",
    "log_cosh",
    "mean_absolute_error",
    "mean_squared_error",
    "smooth_l1",
    "ctc",
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
def cosine_embedding(
    x1: V,
    x2: Operand,
    targets: Operand,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Cosine embedding loss: ``1 - cos`` of similar vectors, ``max(0, cos - margin)`` of others."""
@overload
def cosine_embedding(
    x1: Plain,
    x2: V,
    targets: Operand,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def cosine_embedding(
    x1: Plain,
    x2: Plain,
    targets: V,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def cosine_embedding(
    x1: Plain,
    x2: Plain,
    targets: Plain,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def cosine_embedding(
    x1: Plain,
    x2: Plain,
    targets: Plain,
    *,
    margin: float = 0.0,
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
def ctc(
    log_probs: Any,
    targets: V,
    *,
    input_lengths: Any = None,
    target_lengths: Any = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Connectionist temporal classification loss: negative log-likelihood of unaligned labels."""
@overload
def ctc(
    log_probs: Any,
    targets: Plain,
    *,
    input_lengths: Any = None,
    target_lengths: Any = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def ctc(
    log_probs: Any,
    targets: Plain,
    *,
    input_lengths: Any = None,
    target_lengths: Any = None,
    blank: int = 0,
    zero_infinity: bool = False,
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

@overload
def gaussian_nll(
    predictions: V,
    targets: Operand,
    variances: Operand,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Gaussian negative log-likelihood, mean of ``(log v + d**2 / v) / 2``."""
@overload
def gaussian_nll(
    predictions: Plain,
    targets: V,
    variances: Operand,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def gaussian_nll(
    predictions: Plain,
    targets: Plain,
    variances: V,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def gaussian_nll(
    predictions: Plain,
    targets: Plain,
    variances: Plain,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def gaussian_nll(
    predictions: Plain,
    targets: Plain,
    variances: Plain,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
hinge: Loss
"""Mean of ``max(0, 1 - targets * predictions)``, for targets -1 and 1."""

@overload
def hinge_embedding(
    predictions: V,
    targets: Operand,
    *,
    margin: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Hinge embedding loss of distances: small for targets 1, above a margin for -1."""
@overload
def hinge_embedding(
    predictions: Plain,
    targets: V,
    *,
    margin: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def hinge_embedding(
    predictions: Plain, targets: Plain, *, margin: float = 1.0, reduction: str = "mean", weights: V
) -> V: ...
@overload
def hinge_embedding(
    predictions: Plain,
    targets: Plain,
    *,
    margin: float = 1.0,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def huber(
    predictions: V,
    targets: Operand,
    *,
    delta: float = 1.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Huber loss: half the squared differences, linear beyond ``delta`` (Huber 1964)."""
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
"""Log-cosh loss, mean of ``log(cosh(d))``: close to ``d**2 / 2``, then to ``|d| - log 2``."""

@overload
def margin_ranking(
    x1: V,
    x2: Operand,
    targets: Operand,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Margin ranking loss, mean of ``max(0, margin - targets * (x1 - x2))``."""
@overload
def margin_ranking(
    x1: Plain,
    x2: V,
    targets: Operand,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def margin_ranking(
    x1: Plain,
    x2: Plain,
    targets: V,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def margin_ranking(
    x1: Plain,
    x2: Plain,
    targets: Plain,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def margin_ranking(
    x1: Plain,
    x2: Plain,
    targets: Plain,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
mean_absolute_error: Loss
"""Mean absolute error, ``mean(|predictions - targets|)``."""
mean_squared_error: Loss
"""Mean squared error, ``mean((predictions - targets)**2)``."""

@overload
def multi_margin(
    predictions: V,
    targets: Operand,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Multi-class margin loss: violations of the margin between target class and others."""
@overload
def multi_margin(
    predictions: Plain,
    targets: V,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def multi_margin(
    predictions: Plain,
    targets: Plain,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def multi_margin(
    predictions: Plain,
    targets: Plain,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def multilabel_margin(
    predictions: V,
    targets: Operand,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Multi-label margin loss: violations of a margin of 1 between target classes and others."""
@overload
def multilabel_margin(
    predictions: Plain,
    targets: V,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def multilabel_margin(
    predictions: Plain, targets: Plain, *, axis: int = -1, reduction: str = "mean", weights: V
) -> V: ...
@overload
def multilabel_margin(
    predictions: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

@overload
def multilabel_soft_margin(
    logits: V,
    targets: Operand,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Multi-label soft margin loss: mean binary cross entropy over classes."""
@overload
def multilabel_soft_margin(
    logits: Plain,
    targets: V,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def multilabel_soft_margin(
    logits: Plain, targets: Plain, *, axis: int = -1, reduction: str = "mean", weights: V
) -> V: ...
@overload
def multilabel_soft_margin(
    logits: Plain,
    targets: Plain,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...

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
def poisson_nll(
    predictions: V,
    targets: Operand,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Poisson negative log-likelihood, the mean of ``rate - targets * log(rate)``."""
@overload
def poisson_nll(
    predictions: Plain,
    targets: V,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def poisson_nll(
    predictions: Plain,
    targets: Plain,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def poisson_nll(
    predictions: Plain,
    targets: Plain,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
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
    """Smooth L1 loss: absolute differences, quadratic below ``beta``."""
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
soft_margin: Loss
"""Soft margin loss, mean of ``log(1 + exp(-targets * predictions))``, for targets -1 and 1."""

@overload
def triplet_margin(
    anchor: V,
    positives: Operand,
    negatives: Operand,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V:
    """Triplet loss, mean of ``max(0, d(anchor, positive) - d(anchor, negative) + margin)``."""
@overload
def triplet_margin(
    anchor: Plain,
    positives: V,
    negatives: Operand,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def triplet_margin(
    anchor: Plain,
    positives: Plain,
    negatives: V,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    weights: Operand | None = None,
) -> V: ...
@overload
def triplet_margin(
    anchor: Plain,
    positives: Plain,
    negatives: Plain,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    weights: V,
) -> V: ...
@overload
def triplet_margin(
    anchor: Plain,
    positives: Plain,
    negatives: Plain,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    weights: Plain | None = None,
) -> ArrayOrScalar: ...
