"""Poisson and Gaussian negative log-likelihoods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_number
from odyssey.errors import SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import (
    concrete_array,
    float_operand,
    reduce_losses,
    require_same_shape,
    targets_like,
)
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.table.samples import reject, sample

__all__ = ["gaussian_nll", "poisson_nll"]

_COUNTS = np.array([[0, 1, 4], [2, 0, 7]])
_WEIGHTS = np.array([0.5, 2.0, 1.0])


@loss(
    samples=[
        sample((2, 3), _COUNTS),
        sample((2, 3), (2, 3), low=0.2, log_input=False, reduction="none", weights=_WEIGHTS),
        sample((2, 3), _COUNTS, full=True, reduction="sum"),
        sample((), np.array(3), low=0.2, log_input=False, eps=0.1),
        sample((0,), np.zeros(0), reduction="sum"),
    ],
    rejects=[
        reject((2, 3), (3,), match="differ"),
        reject((2,), np.ones(2), eps=-1.0, error=SettingError, match="eps"),
        reject((2,), np.ones(2), reduction="median", error=SettingError, match="choose 'mean'"),
    ],
)
def poisson_nll(
    predictions: Any,
    targets: Any,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Poisson negative log-likelihood, the mean of ``rate - targets * log(rate)``.

    Args:
        predictions: Logarithms of the rates, or with ``log_input=False`` the rates; a real array
            or Variable of any shape.
        targets: Counts, of the same shape.
        log_input: Whether ``predictions`` are logarithms.
        full: Add the term of the targets alone, ``log(targets!)`` by Stirling's formula,
            ``t log t - t + log(2 pi t) / 2`` for counts above 1 and 0 for the others.
        eps: Added to a rate before taking its logarithm.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for a negative ``eps``.

    >>> poisson_nll(np.array([0.0, 1.0]), np.array([2, 1]), reduction="none").round(4)
    array([1.    , 1.7183])
    """
    who = "poisson_nll"
    log_input, full = check_flag(who, "log_input", log_input), check_flag(who, "full", full)
    eps = check_number(who, "eps", eps, "[0, inf)")
    x = float_operand(who, predictions)
    t = targets_like(who, targets, x)
    require_same_shape(who, x, t)
    if log_input:
        losses = ops.subtract(ops.exp(x), ops.multiply(t, x))
    else:
        losses = ops.subtract(x, ops.multiply(t, ops.log(ops.add(x, eps))))
    if full:
        # Logarithms of counts above 1 only; 0 is selected for the others.
        many = ops.greater(t, 1)
        n = ops.where(many, t, 1)
        rest = ops.multiply(0.5, ops.log(ops.multiply(2 * math.pi, n)))
        stirling = ops.add(ops.subtract(ops.multiply(n, ops.log(n)), n), rest)
        losses = ops.add(losses, ops.where(many, stirling, 0))
    return reduce_losses(who, losses, reduction, weights)


@loss(
    samples=[
        sample((2, 3), (2, 3), (2, 3), low=0.2),
        sample((2, 3), (2, 3), (2, 1), low=0.2, full=True, reduction="sum"),
        sample((2, 3), (2, 3), (), low=0.2, reduction="none", weights=_WEIGHTS),
        sample((3,), (3,), np.array([0, 1, 2]), eps=0.25),
        sample((2, 3), (2, 3), (2,), low=0.2, reduction="none"),
        sample((0, 3), (0, 3), (1, 3), low=0.2, reduction="sum"),
    ],
    rejects=[
        reject((2, 3), (3,), (2, 3), match="differ"),
        reject((2, 3), (2, 3), (3,), match="variances"),
        reject((2, 3), (2, 3), (4, 1), match="variances"),
        reject((2,), (2,), -np.ones(2), error=SettingError, match="negative"),
        reject((2,), (2,), np.ones(2), eps=0.0, error=SettingError, match="eps"),
    ],
)
def gaussian_nll(
    predictions: Any,
    targets: Any,
    variances: Any,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Gaussian negative log-likelihood, mean of ``(log v + d**2 / v) / 2``.

    With ``d = predictions - targets`` and variances ``v``.

    Args:
        predictions: Means, a real array or Variable of any shape.
        targets: Observations, of the same shape.
        variances: Nonnegative; a number, an array of the same shape whose axes may have length 1,
            or one for each row, without the last axis.
        full: Add the constant ``log(2 pi) / 2``.
        eps: Lower bound of the variances; the derivative of smaller ones is 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes do not fit. SettingError: for a negative variance.

    >>> gaussian_nll(np.array([1.0, 2.0]), np.array([1.0, 4.0]), 1.0, reduction="none")
    array([0., 2.])
    """
    who = "gaussian_nll"
    full, eps = check_flag(who, "full", full), check_number(who, "eps", eps, "(0, inf)")
    x = float_operand(who, predictions)
    t = targets_like(who, targets, x)
    require_same_shape(who, x, t)
    v = _check_variances(who, variances, x)
    d = ops.subtract(x, t)
    v = ops.maximum(v, eps)
    # Divide before multiplying, so that large differences over large variances do not overflow.
    losses = ops.multiply(0.5, ops.add(ops.log(v), ops.multiply(d, ops.divide(d, v))))
    if full:
        losses = ops.add(losses, 0.5 * math.log(2 * math.pi))
    return reduce_losses(who, losses, reduction, weights)


def _check_variances(who: str, variances: Any, x: Any) -> Any:
    v = targets_like(who, variances, x)
    if x.shape and v.shape == x.shape[:-1] and v.shape:
        v = ops.expand_dims(v, -1)
    fits = len(v.shape) == len(x.shape) and all(
        a in (1, b) for a, b in zip(v.shape, x.shape, strict=True)
    )
    if v.shape and not fits:
        raise ShapeError(
            f"{who}: variances {v.shape} for predictions {x.shape}; pass as many, one for each row "
            f"{x.shape[:-1]}, one for all, or axes of length 1 where they repeat"
        )
    concrete = concrete_array(v)
    if concrete is None:
        # NaN passes, as below.
        nonnegative = ops.logical_not(ops.less(v, 0))
        return demanded(v, nonnegative, f"{who}: a variance is negative; pass squares or exp(x)")
    if (concrete < 0).any():
        raise SettingError(
            f"{who}: a variance is negative, {concrete.min()}; pass squares or exp(x)"
        )
    return v
