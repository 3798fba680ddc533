"""Metric learning losses: cosine embedding and triplet margin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_number
from odyssey.errors import SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.margins import sign_targets
from odyssey.losses.reduction import float_operand, reduce_losses, require_same_shape
from odyssey.table.samples import reject, sample

__all__ = ["cosine_embedding", "triplet_margin"]

_SIGNS = np.array([1, -1, -1, 1])
_WEIGHTS = np.array([0.5, 2.0, 1.0, 3.0])


@loss(
    samples=[
        sample((4, 3), (4, 3), _SIGNS),
        sample((4, 3), (4, 3), _SIGNS, margin=-0.5, reduction="none", weights=_WEIGHTS),
        sample((3,), (3,), np.array(1)),
        sample((0, 3), (0, 3), np.zeros(0, int), reduction="sum"),
    ],
    rejects=[
        reject((4, 3), (4, 2), _SIGNS, match="differ"),
        reject((4, 3), (4, 3), np.ones(3), match="differ"),
        reject((2, 3), (2, 3), np.zeros(2), error=SettingError, match="must be -1 or 1"),
        reject((), (), np.array(1), match="a vector"),
        reject((2, 3), (2, 3), np.ones(2), margin=2.0, error=SettingError, match="margin"),
    ],
)
def cosine_embedding(
    x1: Any,
    x2: Any,
    targets: Any,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Cosine embedding loss: ``1 - cos`` of similar vectors, ``max(0, cos - margin)`` of others.

    The derivative is 0 at the margin, and for zero vectors.

    Args:
        x1: Real vectors along the last axis.
        x2: The same number of them, of the same shape.
        targets: 1 for similar pairs, -1 for dissimilar pairs; of the shape without the last axis.
        margin: Cosine up to which dissimilar pairs have no loss, from -1 to 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ. SettingError: for other targets.

    >>> a, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 4.0]])
    >>> cosine_embedding(a, b, np.array([1, -1]), reduction="none")
    array([1. , 0.6])
    """
    who = "cosine_embedding"
    margin = check_number(who, "margin", margin, "[-1, 1]")
    x1, x2 = float_operand(who, x1), float_operand(who, x2)
    require_same_shape(who, x1, x2)
    _check_vectors(who, x1)
    cosines = ops.cosine_similarity(x1, x2)
    t = sign_targets(who, targets, cosines)
    dissimilar = ops.relu(ops.subtract(cosines, margin))
    losses = ops.where(ops.greater(t, 0), ops.subtract(1, cosines), dissimilar)
    return reduce_losses(who, losses, reduction, weights)


@loss(
    samples=[
        sample((4, 3), (4, 3), (4, 3)),
        sample((4, 3), (4, 3), (4, 3), margin=3.0, p=1, reduction="none", weights=_WEIGHTS),
        sample((4, 3), (4, 3), (4, 3), margin=2.5, swap=True, reduction="sum"),
        sample((2, 3), (2, 3), (2, 3), p=math.inf, eps=0.0, margin=4.0),
        sample((3,), (3,), (3,), margin=5.0),
        sample((0, 3), (0, 3), (0, 3), reduction="sum"),
    ],
    rejects=[
        reject((4, 3), (4, 2), (4, 3), match="differ"),
        reject((4, 3), (4, 3), (3,), match="differ"),
        reject((), (), (), match="a vector"),
        reject((2, 3), (2, 3), (2, 3), p=0.5, error=SettingError, match="p=0.5"),
        reject((2, 3), (2, 3), (2, 3), margin=-1.0, error=SettingError, match="margin"),
    ],
)
def triplet_margin(
    anchor: Any,
    positives: Any,
    negatives: Any,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Triplet loss, mean of ``max(0, d(anchor, positive) - d(anchor, negative) + margin)``.

    The derivative is 0 at the margin, and at a distance 0; equal distances that ``swap`` selects
    from share it evenly.

    Args:
        anchor: Real vectors along the last axis.
        positives: Vectors similar to the anchor, of the same shape.
        negatives: Vectors dissimilar to the anchor, of the same shape.
        margin: Required difference of the distances.
        p: Order of the norm, at least 1; see ``pairwise_distance``.
        eps: Added to each difference of vectors.
        swap: Whether to use the distance of positives and negatives if it is smaller than that of
            anchor and negatives (Balntas et al. 2016).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss, which has no last axis.

    Raises:
        ShapeError: when the shapes differ. SettingError: for ``margin`` or ``p`` out of range.

    >>> zero, near, far = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 5.5]])
    >>> float(triplet_margin(zero, near, far, eps=0.0))
    0.5
    """
    who = "triplet_margin"
    margin = check_number(who, "margin", margin, "[0, inf)")
    p, eps = check_number(who, "p", p, "[1, inf]"), check_number(who, "eps", eps)
    swap = check_flag(who, "swap", swap)
    anchor, positives, negatives = (float_operand(who, x) for x in (anchor, positives, negatives))
    require_same_shape(who, anchor, positives)
    require_same_shape(who, anchor, negatives)
    _check_vectors(who, anchor)
    from odyssey.nn.distances import flat_distance

    near = flat_distance(anchor, positives, p, eps)
    far = flat_distance(anchor, negatives, p, eps)
    if swap:
        far = ops.minimum(far, flat_distance(positives, negatives, p, eps))
    losses = ops.relu(ops.add(ops.subtract(near, far), margin))
    return reduce_losses(who, losses, reduction, weights)


def _check_vectors(who: str, x: Any) -> None:
    if not x.shape:
        raise ShapeError(f"{who}: numbers came; pass a vector or more, along the last axis")
