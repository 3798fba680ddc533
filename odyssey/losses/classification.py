"""Losses of classes and probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_choice, check_flag, check_int, check_number
from odyssey.devices.half_dtypes import finfo
from odyssey.devices.same_device import new_beside
from odyssey.errors import SettingError, ShapeError
from odyssey.losses.class_targets import class_index_in_range
from odyssey.losses.declare import loss
from odyssey.losses.reduction import (
    REDUCTIONS,
    concrete_array,
    count_targets,
    float_operand,
    loss_operand,
    reduce_losses,
    require_same_shape,
    require_signs,
    targets_like,
)
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, reduced_shape
from odyssey.table.store import home_of

__all__ = ["binary_cross_entropy", "cross_entropy", "focal", "hinge", "kl_divergence", "nll"]

_SIGNS = np.array([[1, -1, 1], [-1, -1, 1]])
_YES = (_SIGNS + 1) // 2
_CLASSES = np.array([2, 0, 1, 1])
_WEIGHTS = np.array([0.5, 2.0, 1.0])
_APART = (
    reject((2, 3), (3,), match="differ"),
    reject((3,), np.ones(3), reduction="median", error=SettingError, match="choose 'mean'"),
)
_BY_CLASS = (
    sample((4, 3), _CLASSES),
    sample((4, 3), _CLASSES, ignore_index=1, reduction="sum"),
    sample((4, 3), _CLASSES, ignore_index=1, weights=np.array([0.5, 2.0, 1.0, 3.0])),
    sample((2, 3, 2), np.array([[0, 2], [1, 1]]), axis=1, reduction="none"),
    sample((3,), np.array(1)),
    sample((0, 3), np.zeros(0, int), reduction="sum"),
)
_NO_CLASS = (
    reject((4, 3), np.array([0, 1]), match="want class"),
    reject((2, 3), np.array([0, 3]), match="there are 3"),
)


@loss(
    samples=[
        sample((2, 3), (2, 3), low=0.1, high=0.9),
        sample((2, 3), (2, 3), low=0.1, high=0.9, reduction="none", weights=_WEIGHTS),
        sample((2, 3), (2, 3), from_logits=True, reduction="sum"),
        sample((), (), low=0.1, high=0.9),
        sample((0, 3), (0, 3), from_logits=True, reduction="sum"),
    ],
    rejects=_APART,
)
def binary_cross_entropy(
    predictions: Any,
    targets: Any,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Cross entropy of yes-or-no targets.

    Args:
        predictions: Probabilities in [0, 1], or with ``from_logits`` any real numbers.
        targets: Probabilities of yes, usually 0 or 1, of the same shape.
        from_logits: Whether ``predictions`` come before the sigmoid: exact for any size.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    >>> round(float(binary_cross_entropy(np.array([0.5, 0.5]), np.array([0.0, 1.0]))), 6)
    0.693147
    """
    predictions, targets = (
        float_operand("binary_cross_entropy", predictions),
        float_operand("binary_cross_entropy", targets),
    )
    require_same_shape("binary_cross_entropy", predictions, targets)
    from_logits = check_flag("binary_cross_entropy", "from_logits", from_logits)
    row = ops.binary_entropy_with_logits if from_logits else ops.binary_entropy
    return reduce_losses("binary_cross_entropy", row(predictions, targets), reduction, weights)


@loss(
    samples=[
        *_BY_CLASS,
        sample((2, 3), np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), label_smoothing=0.1),
    ],
    rejects=[
        *_NO_CLASS,
        reject(
            (2, 3),
            np.array([0, 1]),
            label_smoothing=2.0,
            error=SettingError,
            match="smoothing",
        ),
    ],
)
def cross_entropy(
    logits: Any,
    targets: Any,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Cross entropy of targets against the softmax of ``logits``.

    Args:
        logits: Real array or Variable; ``axis`` counts the classes.
        targets: Class numbers, of the shape of ``logits`` without ``axis``; or probabilities,
            of the shape of ``logits``.
        axis: Where the classes are.
        label_smoothing: Part of each target that is spread evenly over all classes.
        ignore_index: Class number of samples that have no target and count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss; a mean still divides by the
            number of samples that are not ignored.

    Raises:
        ShapeError: for targets of another shape, or class numbers out of range.

    >>> round(float(cross_entropy(np.zeros((2, 4)), np.array([0, 3]))), 6)
    1.386294
    """
    logits, targets = float_operand("cross_entropy", logits), loss_operand(targets)
    if type(reduction) is not str or reduction not in REDUCTIONS:
        check_choice("cross_entropy", "reduction", reduction, REDUCTIONS)
    if type(label_smoothing) is not float or label_smoothing:
        label_smoothing = check_number(
            "cross_entropy", "label_smoothing", label_smoothing, "[0, 1]"
        )
    if ignore_index is not None:
        ignore_index = check_int("cross_entropy", "ignore_index", ignore_index)
    options = (axis, label_smoothing, ignore_index)
    if weights is None:
        return ops.softmax_cross_entropy(logits, targets, *options, reduction)
    losses = ops.softmax_cross_entropy(logits, targets, *options, "none")
    by_class = targets.shape == losses.shape
    count = count_targets(targets, ignore_index, losses) if by_class else None
    return reduce_losses("cross_entropy", losses, reduction, weights, count)


@loss(
    samples=_BY_CLASS,
    rejects=_NO_CLASS,
)
def nll(
    log_probabilities: Any,
    targets: Any,
    *,
    axis: int = -1,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Negative logarithm of the probability that each target was given.

    Args:
        log_probabilities: Real array or Variable, of a ``log_softmax`` for instance; ``axis``
            counts the classes.
        targets: Class numbers, of the shape of ``log_probabilities`` without ``axis``.
        axis: Where the classes are.
        ignore_index: Class number of samples that have no target and count for nothing.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss; a mean still divides by the
            number of samples that are not ignored. Weights of classes are ``w[targets]``.

    Raises:
        ShapeError: for targets of another shape or kind, or class numbers out of range.

    >>> nll(np.array([[-2.0, -0.5], [-1.0, -3.0]]), np.array([0, 1]), reduction="none")
    array([2., 3.])
    """
    x, targets = float_operand("nll", log_probabilities), loss_operand(targets)
    (k,) = normalize_axes("nll", check_int("nll", "axis", axis), len(x.shape))
    if ignore_index is not None:
        ignore_index = check_int("nll", "ignore_index", ignore_index)
    targets = _check_nll_targets(x, targets, k, ignore_index)
    before, after = (1,) * k, (1,) * (len(x.shape) - k - 1)
    numbers = new_beside((home_of(x),), "arange", x.shape[k]).reshape(*before, -1, *after)
    wide = ops.reshape(targets, (*x.shape[:k], 1, *x.shape[k + 1 :]))
    # Chosen and added up rather than indexed: it traces, and what is not chosen may be infinite.
    chosen = ops.equal(wide, numbers)
    if ignore_index is not None:
        chosen = ops.logical_and(chosen, ops.not_equal(wide, ignore_index))
    losses = ops.sum(ops.where(chosen, ops.negative(x), 0), k)
    return reduce_losses(
        "nll", losses, reduction, weights, count_targets(targets, ignore_index, losses)
    )


def _check_nll_targets(x: Any, targets: Any, k: int, ignore_index: int | None) -> Any:
    wanted = reduced_shape("nll", x.shape, k, False)
    if targets.dtype.kind not in "iu" or targets.shape != wanted:
        raise ShapeError(
            f"nll: log-probabilities {x.shape} with {x.shape[k]} classes on axis {k} want class "
            f"numbers of shape {wanted}; targets are {targets.dtype}{list(targets.shape)}"
        )
    found = concrete_array(targets)
    if found is None:
        message = f"nll: a class number is not one of {x.shape[k]} classes"
        return demanded(targets, class_index_in_range(targets, x.shape[k], ignore_index), message)
    if ignore_index is not None:
        found = found[found != ignore_index]
    if found.size and (found.min() < 0 or found.max() >= x.shape[k]):
        raise ShapeError(
            f"nll: class numbers lie in [{found.min()}, {found.max()}], there are {x.shape[k]} "
            "classes; mark missing targets by ignore_index"
        )
    return targets


@loss(
    samples=[
        sample((2, 3), (2, 3), low=0.1, high=0.9),
        sample((2, 3), np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]), reduction="batchmean"),
        sample((2, 3), (2, 3), log_target=True, reduction="none", weights=_WEIGHTS),
        sample((), (), low=0.1, high=0.9),
        sample((0, 3), (0, 3), reduction="sum"),
    ],
    rejects=_APART,
)
def kl_divergence(
    log_probabilities: Any,
    targets: Any,
    *,
    log_target: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Elementwise ``t (log t - x)`` of targets ``t`` and predicted log-probabilities ``x``.

    Its sum is the Kullback-Leibler divergence of the prediction from the target. An element
    whose target is 0 counts 0, whatever the prediction, and its derivatives are 0.

    Args:
        log_probabilities: Real array or Variable of any shape.
        targets: Probabilities of the same shape; with ``log_target`` their logarithms.
        log_target: Whether the targets are logarithms.
        reduction: ``"mean"`` over all elements, ``"batchmean"``, which is the sum over the
            length of the first axis, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> kl_divergence(np.array([-2.0, -np.inf]), np.array([1.0, 0.0]), reduction="none")
    array([2., 0.])
    """
    x = float_operand("kl_divergence", log_probabilities)
    t = targets_like("kl_divergence", targets, x)
    require_same_shape("kl_divergence", x, t)
    if check_flag("kl_divergence", "log_target", log_target):
        nothing = ops.equal(t, -np.inf)
        log_t = ops.where(nothing, 0, t)
        t = ops.where(nothing, 0, ops.exp(log_t))
    else:
        nothing = ops.equal(t, 0)
        log_t = ops.log(ops.where(nothing, 1, t))
    # Where the target is 0, x may be -inf, which times 0 would be NaN.
    losses = ops.multiply(t, ops.subtract(log_t, ops.where(nothing, 0, x)))
    if isinstance(reduction, str) and reduction == "batchmean":
        rows = x.shape[0] if x.shape else 1
        return reduce_losses("kl_divergence", losses, "mean", weights, rows)
    return reduce_losses("kl_divergence", losses, reduction, weights)


@loss(
    samples=[
        sample((2, 3), _SIGNS),
        sample((2, 3), _SIGNS, reduction="none", weights=_WEIGHTS),
        sample((), np.array(-1)),
        sample((0,), np.zeros(0), reduction="sum"),
    ],
    rejects=[*_APART, reject((2,), np.zeros(2), error=SettingError, match="must be -1 or 1")],
)
def hinge(predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None) -> Any:
    """Mean of ``max(0, 1 - targets * predictions)``, for targets -1 and 1.

    The derivative is 0 on the margin, where ``targets * predictions`` is 1.

    Args:
        predictions: Real array or Variable of any shape.
        targets: -1 or 1 for each, of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for other targets.

    >>> hinge(np.array([2.0, 0.5, -1.0]), np.array([1, 1, 1]), reduction="none")
    array([0. , 0.5, 2. ])
    """
    predictions = float_operand("hinge", predictions)
    targets = targets_like("hinge", targets, predictions)
    require_same_shape("hinge", predictions, targets)
    targets = require_signs("hinge", targets)
    margins = ops.subtract(1, ops.multiply(targets, predictions))
    return reduce_losses("hinge", ops.relu(margins), reduction, weights)


@loss(
    samples=[
        sample((2, 3), _YES),
        sample((2, 3), _YES, alpha=None, gamma=0.5, reduction="none", weights=_WEIGHTS),
        sample((), np.array(1), gamma=0),
        sample((0,), np.zeros(0), reduction="sum"),
    ],
    rejects=[*_APART, reject((2,), np.ones(2), gamma=-1.0, error=SettingError, match="gamma")],
)
def focal(
    logits: Any,
    targets: Any,
    *,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Binary cross entropy that pays less heed to what is already right.

    Elementwise ``-a (1 - q)**gamma log(q)``, where ``q`` is the probability that the logit gives
    to the target, and ``a`` is ``alpha`` for targets of 1 and ``1 - alpha`` for those of 0 (Lin
    et al. 2017, equation 5). Exact for logits of any size.

    Args:
        logits: Real array or Variable of any shape, before the sigmoid.
        targets: 0 or 1 for each, of the same shape.
        alpha: Weight of the ones; None weighs both the same, by 1.
        gamma: How much less, at least 0; with 0 this is the cross entropy.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for ``alpha`` or ``gamma`` out of range.

    >>> focal(np.zeros(2), np.array([0, 1]), alpha=0.25, gamma=1.0, reduction="none").round(4)
    array([0.2599, 0.0866])
    """
    gamma = check_number("focal", "gamma", gamma, "[0, inf)")
    alpha = alpha if alpha is None else check_number("focal", "alpha", alpha, "[0, 1]")
    x = float_operand("focal", logits)
    t = targets_like("focal", targets, x)
    require_same_shape("focal", x, t)
    no = ops.subtract(1, t)
    wrong = ops.add(ops.multiply(t, ops.sigmoid(ops.negative(x))), ops.multiply(no, ops.sigmoid(x)))
    # The derivative of a power below 1 is infinite at 0, where a sure prediction rounds to; and
    # the second one of the least number, which is why it stops at the root of that.
    wrong = ops.maximum(wrong, float(finfo(x.dtype).tiny) ** 0.5)
    losses = ops.multiply(ops.power(wrong, gamma), ops.binary_entropy_with_logits(x, t))
    if alpha is not None:
        share = ops.add(ops.multiply(alpha, t), ops.multiply(1 - alpha, no))
        losses = ops.multiply(share, losses)
    return reduce_losses("focal", losses, reduction, weights)
