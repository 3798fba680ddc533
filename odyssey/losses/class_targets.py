"""Targets of cross entropy: class indices, or probabilities of the shape of the logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int, check_number
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import add, maximum, mul
from odyssey.ops.elementwise.choice import (
    equal,
    greater_equal,
    less,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.shape import astype, expand_dims
from odyssey.spec import Spec
from odyssey.table.shape_rules import floating_dtype, normalize_axes, reduced_shape

__all__ = [
    "check_class_indices",
    "class_axis",
    "class_index_conditions",
    "mean_denominator",
    "target_distribution",
    "class_index_in_range",
    "target_probabilities",
    "has_class_indices",
]


def class_axis(logits: Any, axis: int) -> int:
    """Return the class axis of the logits, counted from the front."""
    return normalize_axes("cross_entropy", axis, len(logits.shape))[0]


def has_class_indices(logits: Any, targets: Any, axis: int) -> bool:
    """Return whether targets are class indices; False for probabilities, else ShapeError."""
    k = class_axis(logits, axis)
    folded = reduced_shape("cross_entropy", logits.shape, axis, False)
    if targets.dtype.kind in "iu" and targets.shape == folded:
        return True
    if targets.shape == logits.shape and (
        targets.dtype.kind in "biu" or is_floating(targets.dtype)
    ):
        return False
    raise ShapeError(
        f"cross_entropy: logits {logits.shape} with {logits.shape[k]} classes on axis {axis} want "
        f"class numbers of shape {folded} or probabilities of shape {logits.shape}; "
        f"targets are {targets.dtype}{list(targets.shape)}"
    )


def target_probabilities(
    logits: Any, targets: Any, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """Return the smoothed target distribution as an array; 0 for ignored targets."""
    smoothing = check_number("cross_entropy", "label_smoothing", smoothing, "[0, 1]")
    k = class_axis(logits, axis)
    classes, dtype = logits.shape[k], floating_dtype(logits.dtype)
    if not has_class_indices(logits, targets, axis):
        p = targets.astype(dtype)
        return p * (1 - smoothing) + smoothing / classes if smoothing else p
    safe, ignored = check_class_indices(targets, classes, ignore_index)
    p = np.full(logits.shape, smoothing / classes if smoothing else 0, dtype)
    np.put_along_axis(
        p, np.expand_dims(safe, k), 1 - smoothing + (smoothing / classes if smoothing else 0), k
    )
    if ignored is not None:
        p *= ~np.expand_dims(ignored, k)
    return p


def check_class_indices(targets: Any, classes: int, ignore_index: int | None) -> tuple[Any, Any]:
    """Return class indices with ignored ones replaced by 0, and the mask of the ignored."""
    ignored = None
    if ignore_index is not None:
        mask = targets == check_int("cross_entropy", "ignore_index", ignore_index)
        if mask.any():
            ignored, targets = mask, np.where(mask, 0, targets)
    if targets.size and (targets.min() < 0 or targets.max() >= classes):
        raise ShapeError(
            f"cross_entropy: class numbers lie in [{targets.min()}, {targets.max()}], "
            f"there are {classes} classes; mark missing targets by ignore_index"
        )
    return targets, ignored


def class_index_conditions(
    logits: Any, targets: Any, axis: int, ignore_index: int | None = None
) -> list[Any]:
    """Return the condition, by ops, that class indices are valid; none for probabilities."""
    if not has_class_indices(logits, targets, axis):
        return []
    return [class_index_in_range(targets, logits.shape[class_axis(logits, axis)], ignore_index)]


def class_index_in_range(targets: Any, classes: int, ignore_index: int | None = None) -> Any:
    """Return the mask, by ops, of class indices that are valid or ignored."""
    valid = logical_and(greater_equal(targets, 0), less(targets, classes))
    return valid if ignore_index is None else logical_or(valid, equal(targets, ignore_index))


def target_distribution(
    targets: Any, logits: Spec, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """Return the smoothed target distribution by ops; 0 for ignored targets."""
    k = class_axis(logits, axis)
    classes, dtype = logits.shape[k], floating_dtype(logits.dtype)
    if not has_class_indices(logits, targets, axis):
        p = astype(targets, dtype)
        return _smooth_targets(p, smoothing, classes)
    # 32-bit integers suffice, and twice as many fit a vector comparison.
    index_dtype = np.dtype(np.int32 if classes < 2**31 else np.int64)
    shape = [-1 if j == k else 1 for j in range(len(logits.shape))]
    indices, numbers = expand_dims(targets, k), np.arange(classes, dtype=index_dtype).reshape(shape)
    p = _smooth_targets(
        astype(equal(astype(indices, index_dtype), numbers), dtype), smoothing, classes
    )
    return p if ignore_index is None else where(equal(indices, ignore_index), 0, p)


def _smooth_targets(p: Any, smoothing: float, classes: int) -> Any:
    return add(mul(p, 1 - smoothing), smoothing / classes) if smoothing else p


def mean_denominator(
    targets: Any, logits: Spec, axis: int, ignore_index: int | None, least: int = 1
) -> Any:
    """Return the number of samples in a mean, by ops: those that are not ignored."""
    if ignore_index is not None and has_class_indices(logits, targets, axis):
        dtype = floating_dtype(logits.dtype)
        return maximum(sum(astype(not_equal(targets, ignore_index), dtype)), least)
    folded = reduced_shape("cross_entropy", logits.shape, axis, False)
    return max(math.prod(folded), least)
