"""Margin losses: soft margin, hinge embedding, ranking and multi-class margins."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_int, check_number, format_value
from odyssey.devices.same_device import new_beside
from odyssey.errors import SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import (
    concrete_array,
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

__all__ = [
    "hinge_embedding",
    "margin_ranking",
    "multi_margin",
    "multilabel_margin",
    "multilabel_soft_margin",
    "soft_margin",
]

_SIGNS = np.array([[1, -1, 1], [-1, -1, 1]])
_CLASSES = np.array([2, 0, 1, 1])
_WEIGHTS = np.array([0.5, 2.0, 1.0])
_MARKED = (
    sample((2, 3), _SIGNS),
    sample((2, 3), _SIGNS, reduction="none", weights=_WEIGHTS),
    sample((), np.array(-1), reduction="sum"),
    sample((0,), np.zeros(0), reduction="sum"),
)
_UNMARKED = (
    reject((2, 3), (3,), match="differ"),
    reject((2,), np.zeros(2), error=SettingError, match="must be -1 or 1"),
    reject((3,), np.ones(3), reduction="median", error=SettingError, match="choose 'mean'"),
)


def sign_targets(who: str, targets: Any, predictions: Any) -> Any:
    """Return targets of -1 and 1 in the dtype of the predictions; raise for others."""
    targets = targets_like(who, targets, predictions)
    require_same_shape(who, predictions, targets)
    return require_signs(who, targets)


@loss(samples=_MARKED, rejects=_UNMARKED)
def soft_margin(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Soft margin loss, mean of ``log(1 + exp(-targets * predictions))``, for targets -1 and 1.

    Args:
        predictions: Real array or Variable of any shape.
        targets: -1 or 1 for each, of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for other targets.

    >>> soft_margin(np.array([0.0, 2.0]), np.array([1, -1]), reduction="none").round(4)
    array([0.6931, 2.1269])
    """
    x = float_operand("soft_margin", predictions)
    t = sign_targets("soft_margin", targets, x)
    losses = ops.softplus(ops.negative(ops.multiply(t, x)))
    return reduce_losses("soft_margin", losses, reduction, weights)


@loss(
    samples=[*_MARKED, sample((2, 3), _SIGNS, margin=0.25)],
    rejects=[*_UNMARKED, reject((2,), np.ones(2), margin=np.nan, error=SettingError, match="marg")],
)
def hinge_embedding(
    predictions: Any,
    targets: Any,
    *,
    margin: float = 1.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Hinge embedding loss of distances: small for targets 1, above a margin for -1.

    Elementwise ``x`` where the target is 1, and ``max(0, margin - x)`` where it is -1; the
    derivative is 0 at the margin.

    Args:
        predictions: Distances, a real array or Variable of any shape.
        targets: 1 for similar pairs, -1 for dissimilar pairs, of the same shape.
        margin: Distance from which dissimilar pairs have no loss.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for other targets.

    >>> hinge_embedding(np.array([0.5, 0.25, 3.0]), np.array([1, -1, -1]), reduction="none")
    array([0.5 , 0.75, 0.  ])
    """
    margin = check_number("hinge_embedding", "margin", margin)
    x = float_operand("hinge_embedding", predictions)
    t = sign_targets("hinge_embedding", targets, x)
    far = ops.relu(ops.subtract(margin, x))
    losses = ops.where(ops.greater(t, 0), x, far)
    return reduce_losses("hinge_embedding", losses, reduction, weights)


@loss(
    samples=[
        sample((2, 3), (2, 3), _SIGNS),
        sample((2, 3), (2, 3), _SIGNS, margin=0.5, reduction="none", weights=_WEIGHTS),
        sample((), (), np.array(1), margin=2.0),
        sample((0,), (0,), np.zeros(0, int), reduction="sum"),
    ],
    rejects=[
        reject((2, 3), (3,), _SIGNS, match="differ"),
        reject((2, 3), (2, 3), np.ones(3), match="differ"),
        reject((2,), (2,), np.zeros(2), error=SettingError, match="must be -1 or 1"),
    ],
)
def margin_ranking(
    x1: Any,
    x2: Any,
    targets: Any,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Margin ranking loss, mean of ``max(0, margin - targets * (x1 - x2))``.

    The derivative is 0 at the margin.

    Args:
        x1: Scores, a real array or Variable of any shape.
        x2: Scores to compare with, of the same shape.
        targets: 1 if ``x1`` should be larger, -1 if ``x2`` should, of the same shape.
        margin: Required difference.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for other targets.

    >>> float(margin_ranking(np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([1, 1])))
    1.0
    """
    who = "margin_ranking"
    margin = check_number(who, "margin", margin)
    x1, x2 = float_operand(who, x1), float_operand(who, x2)
    require_same_shape(who, x1, x2)
    lead = ops.multiply(sign_targets(who, targets, x1), ops.subtract(x1, x2))
    return reduce_losses(who, ops.relu(ops.subtract(margin, lead)), reduction, weights)


# ------------------------------------------------------------------ class margins


@loss(
    samples=[
        sample((4, 3), _CLASSES),
        sample((4, 3), _CLASSES, margin=0.5, p=2, reduction="sum"),
        sample((2, 3, 2), np.array([[0, 2], [1, 1]]), axis=1, reduction="none"),
        sample((4, 3), _CLASSES, weights=np.array([0.5, 2.0, 1.0, 3.0])),
        sample((3,), np.array(1)),
        sample((0, 3), np.zeros(0, int), reduction="sum"),
    ],
    rejects=[
        reject((4, 3), np.array([0, 1]), match="want class numbers"),
        reject((2, 3), np.array([0, 3]), match="there are 3"),
        reject((2, 3), np.array([0, 1]), p=3, error=SettingError, match="pass 1 or 2"),
    ],
)
def multi_margin(
    predictions: Any,
    targets: Any,
    *,
    p: int = 1,
    margin: float = 1.0,
    axis: int = -1,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Multi-class margin loss: violations of the margin between target class and others.

    For each sample ``sum(max(0, margin - x[y] + x[j])**p) / C`` over the classes ``j`` other than
    ``y``, of ``C``; the derivative is 0 at the margin.

    Args:
        predictions: Scores, a real array or Variable; ``axis`` counts the classes.
        targets: Class numbers, of the shape of ``predictions`` without ``axis``.
        p: 1 or 2.
        margin: Required lead of the target class.
        axis: Where the classes are.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: for targets of another shape, or class numbers out of range.

    >>> multi_margin(np.array([[0.5, 2.0, 1.5]]), np.array([1]), reduction="none").round(4)
    array([0.1667])
    """
    who = "multi_margin"
    if p not in (1, 2):
        raise SettingError(f"{who}: p={format_value(p)}; pass 1 or 2")
    margin = check_number(who, "margin", margin)
    x, targets = float_operand(who, predictions), loss_operand(targets)
    (k,) = normalize_axes(who, check_int(who, "axis", axis), len(x.shape))
    targets = _check_classes(who, x, targets, k)
    count = x.shape[k]
    numbers = new_beside((home_of(x),), "arange", count).reshape(
        *(1,) * k, -1, *(1,) * (len(x.shape) - k - 1)
    )
    right = ops.equal(ops.expand_dims(targets, k), numbers)
    score = ops.sum(ops.where(right, x, 0), k, keepdims=True)
    near = ops.relu(ops.add(margin, ops.subtract(x, score)))
    near = ops.where(right, 0, near if p == 1 else ops.square(near))
    return reduce_losses(who, ops.divide(ops.sum(near, k), count), reduction, weights)


def _check_classes(who: str, x: Any, targets: Any, k: int) -> Any:
    wanted = reduced_shape(who, x.shape, k, False)
    if targets.dtype.kind not in "iu" or targets.shape != wanted:
        raise ShapeError(
            f"{who}: scores {x.shape} with {x.shape[k]} classes on axis {k} want class numbers of "
            f"shape {wanted}; targets are {targets.dtype}{list(targets.shape)}"
        )
    return _check_class_range(who, targets, 0, x.shape[k])


def _check_class_range(who: str, numbers: Any, least: int, count: int) -> Any:
    """Return class indices; raise ShapeError unless all lie in ``[least, count)``."""
    concrete = concrete_array(numbers)
    if concrete is None:
        message = f"{who}: a class number is not one of {count} classes"
        fits = ops.logical_and(ops.greater_equal(numbers, least), ops.less(numbers, count))
        return demanded(numbers, fits, message)
    if concrete.size and (concrete.min() < least or concrete.max() >= count):
        raise ShapeError(
            f"{who}: class numbers lie in [{concrete.min()}, {concrete.max()}], "
            f"there are {count} classes"
        )
    return numbers


_LISTS = np.array([[2, 0, -1, 1], [3, -1, 0, 0], [-1, -1, -1, -1]])


@loss(
    samples=[
        sample((3, 4), _LISTS),
        sample((3, 4), _LISTS, reduction="none", weights=np.array([1.0, 0.5, 2.0])),
        sample((4, 2), np.array([[2, 0], [0, 3], [-1, 1], [1, 2]]), axis=0, reduction="sum"),
        sample((3,), np.array([1, 2, -1])),
        sample((0, 3), np.zeros((0, 3), int), reduction="sum"),
    ],
    rejects=[
        reject((2, 3), np.array([0, 1]), match="want lists of class numbers"),
        reject((2, 3), (2, 3), match="want lists of class numbers"),
        reject((1, 3), np.array([[0, 3, -1]]), match="there are 3"),
        reject((1, 3), np.array([[0, -2, -1]]), match="there are 3"),
        reject((), np.array(0), match="does not fit"),
    ],
)
def multilabel_margin(
    predictions: Any,
    targets: Any,
    *,
    axis: int = -1,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Multi-label margin loss: violations of a margin of 1 between target classes and others.

    For each sample ``sum(max(0, 1 - (x[y] - x[j]))) / C`` over its target classes ``y`` and the
    other classes ``j``, of ``C``; the derivative is 0 at the margin.

    Args:
        predictions: Scores, a real array or Variable; ``axis`` counts the classes.
        targets: For each sample its class indices along ``axis``, -1 after the last; of the shape
            of ``predictions``. A class that is listed twice counts twice.
        axis: Where the classes are.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss, which has no ``axis``.

    Raises:
        ShapeError: for targets of another shape, or class numbers out of range.

    >>> x = np.array([[0.1, 0.2, 0.4, 0.8]])
    >>> float(multilabel_margin(x, np.array([[3, 0, -1, 1]])).round(6))
    0.85
    """
    who = "multilabel_margin"
    x, targets = float_operand(who, predictions), loss_operand(targets)
    (k,) = normalize_axes(who, check_int(who, "axis", axis), len(x.shape))
    if targets.dtype.kind != "i" or targets.shape != x.shape:
        raise ShapeError(
            f"{who}: scores {x.shape} want lists of class numbers of that shape, integers with -1 "
            f"after the last; targets are {targets.dtype}{list(targets.shape)}"
        )
    targets = _check_class_range(who, targets, -1, x.shape[k])
    x, lists = ops.moveaxis(x, k, -1), ops.moveaxis(targets, k, -1)
    count = lists.shape[-1]
    # Entries before the first -1.
    listed = ops.logical_not(ops.equal(ops.cummin(lists, -1)[0], -1))
    listed_classes = ops.where(listed, lists, 0)
    matches = ops.equal(ops.expand_dims(lists, -1), new_beside((home_of(x),), "arange", count))
    right = ops.any(ops.logical_and(matches, ops.expand_dims(listed, -1)), -2)
    scores = ops.take_along_axis(x, listed_classes, -1)
    leads = ops.subtract(ops.expand_dims(scores, -1), ops.expand_dims(x, -2))
    near = ops.relu(ops.subtract(1, leads))
    counts = ops.logical_and(
        ops.expand_dims(listed, -1), ops.expand_dims(ops.logical_not(right), -2)
    )
    losses = ops.divide(ops.sum(ops.where(counts, near, 0), (-2, -1)), count or 1)
    return reduce_losses(who, losses, reduction, weights)


_SOME = np.array([[1, 0, 1], [0, 0, 1]])


@loss(
    samples=[
        sample((2, 3), _SOME),
        sample((2, 3), (2, 3), axis=0, reduction="none", weights=_WEIGHTS),
        sample((3,), np.array([1, 0, 1]), reduction="sum"),
        sample((0, 3), np.zeros((0, 3)), reduction="sum"),
    ],
    rejects=[
        reject((2, 3), (3,), match="differ"),
        reject((), (), match="does not fit"),
    ],
)
def multilabel_soft_margin(
    logits: Any, targets: Any, *, axis: int = -1, reduction: str = "mean", weights: Any = None
) -> Any:
    """Multi-label soft margin loss: mean binary cross entropy over classes.

    Args:
        logits: Real array or Variable, before the sigmoid; ``axis`` counts the classes.
        targets: 1 for target classes and 0 for the others, of the same shape.
        axis: Where the classes are.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss, which has no ``axis``.

    Raises:
        ShapeError: when the shapes differ.

    >>> multilabel_soft_margin(np.zeros((1, 2)), np.array([[1, 0]]), reduction="none").round(4)
    array([0.6931])
    """
    who = "multilabel_soft_margin"
    x = float_operand(who, logits)
    t = targets_like(who, targets, x)
    require_same_shape(who, x, t)
    (k,) = normalize_axes(who, check_int(who, "axis", axis), len(x.shape))
    return reduce_losses(who, ops.mean(ops.binary_entropy_with_logits(x, t), k), reduction, weights)
