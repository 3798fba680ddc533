"""Losses, and their gradients for loops without a tape."""

from odyssey.losses.classification import (
    binary_cross_entropy,
    cross_entropy,
    focal,
    hinge,
    kl_divergence,
    nll,
)
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
from odyssey.losses.regression import huber, mean_absolute_error, mean_squared_error, smooth_l1

__all__ = [
    "LossAndGrad",
    "bce_loss_and_grad",
    "binary_cross_entropy",
    "ce_loss_and_grad",
    "compute_bce_gradient",
    "compute_ce_gradient",
    "compute_gradient",
    "compute_mse_gradient",
    "cross_entropy",
    "focal",
    "hinge",
    "huber",
    "kl_divergence",
    "mean_absolute_error",
    "mean_squared_error",
    "mse_loss_and_grad",
    "nll",
    "smooth_l1",
]
