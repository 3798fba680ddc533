"""Negative log-likelihoods of counts and of normal errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import flag, number
from odyssey.errors import SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import alike, floating, known, reduced, same_shape
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
    """Mean of ``rate - targets * log(rate)``: of counts that follow a Poisson distribution.

    Args:
        predictions: Logarithms of the rates, or with ``log_input=False`` the rates; a real array
            or Variable of any shape.
        targets: Counts, of the same shape.
        log_input: Whether ``predictions`` are logarithms.
        full: Add what depends on the targets alone, ``log(targets!)`` by Stirling's formula,
            ``t log t - t + log(2 pi t) / 2`` for counts above 1 and 0 for the others.
        eps: What is added to a rate before its logarithm is taken.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for a negative ``eps``.

    >>> poisson_nll(np.array([0.0, 1.0]), np.array([2, 1]), reduction="none").round(4)
    array([1.    , 1.7183])
    """
    who = "poisson_nll"
    log_input, full = flag(who, "log_input", log_input), flag(who, "full", full)
    eps = number(who, "eps", eps, "[0, inf)")
    x = floating(who, predictions)
    t = alike(who, targets, x)
    same_shape(who, x, t)
    if log_input:
        losses = ops.subtract(ops.exp(x), ops.multiply(t, x))
    else:
        losses = ops.subtract(x, ops.multiply(t, ops.log(ops.add(x, eps))))
    if full:
        # The logarithms are those of numbers above 1 alone; the others choose 0.
        many = ops.greater(t, 1)
        n = ops.where(many, t, 1)
        rest = ops.multiply(0.5, ops.log(ops.multiply(2 * math.pi, n)))
        stirling = ops.add(ops.subtract(ops.multiply(n, ops.log(n)), n), rest)
        losses = ops.add(losses, ops.where(many, stirling, 0))
    return reduced(who, losses, reduction, weights)


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
    """Mean of ``(log v + (predictions - targets)**2 / v) / 2``: of errors of variance ``v``.

    Args:
        predictions: Means, a real array or Variable of any shape.
        targets: What was seen, of the same shape.
        variances: Not negative; one number, or of the same shape, where axes may have length 1, or
            one for each row, without the last axis.
        full: Add the constant ``log(2 pi) / 2``.
        eps: The least variance; smaller ones count as it, and their derivative is 0.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes do not fit. SettingError: for a negative variance.

    >>> gaussian_nll(np.array([1.0, 2.0]), np.array([1.0, 4.0]), 1.0, reduction="none")
    array([0., 2.])
    """
    who = "gaussian_nll"
    full, eps = flag(who, "full", full), number(who, "eps", eps, "(0, inf)")
    x = floating(who, predictions)
    t = alike(who, targets, x)
    same_shape(who, x, t)
    v = _variances(who, variances, x)
    d = ops.subtract(x, t)
    v = ops.maximum(v, eps)
    # Divided before it is squared again, so that large differences over large variances are kept.
    losses = ops.multiply(0.5, ops.add(ops.log(v), ops.multiply(d, ops.divide(d, v))))
    if full:
        losses = ops.add(losses, 0.5 * math.log(2 * math.pi))
    return reduced(who, losses, reduction, weights)


def _variances(who: str, variances: Any, x: Any) -> Any:
    v = alike(who, variances, x)
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
    found = known(v)
    if found is None:
        # So that NaN is let through, as it is here.
        fine = ops.logical_not(ops.less(v, 0))
        return demanded(v, fine, f"{who}: a variance is negative; pass squares or exp(x)")
    if (found < 0).any():
        raise SettingError(f"{who}: a variance is negative, {found.min()}; pass squares or exp(x)")
    return v
