"""The targets of cross entropy: class numbers, or probabilities of the shape of the logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import number, whole
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
    "checked_classes",
    "class_axis",
    "classes_exist",
    "counted",
    "distribution",
    "in_range",
    "target_probabilities",
    "target_spec",
]


def class_axis(logits: Any, axis: int) -> int:
    """Which axis of the logits counts the classes."""
    return normalize_axes("cross_entropy", axis, len(logits.shape))[0]


def target_spec(logits: Any, targets: Any, axis: int) -> bool:
    """Whether targets are class numbers, not probabilities; raises where they are neither."""
    k = class_axis(logits, axis)
    folded = reduced_shape("cross_entropy", logits.shape, axis, False)
    if targets.dtype.kind in "iu" and targets.shape == folded:
        return True
    if targets.shape == logits.shape and targets.dtype.kind in "fbiu":
        return False
    raise ShapeError(
        f"cross_entropy: logits {logits.shape} with {logits.shape[k]} classes on axis {axis} want "
        f"class numbers of shape {folded} or probabilities of shape {logits.shape}; "
        f"targets are {targets.dtype}{list(targets.shape)}"
    )


def target_probabilities(
    logits: Any, targets: Any, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """The distribution that the softmax is to match; zero where the target is ignored."""
    smoothing = number("cross_entropy", "label_smoothing", smoothing, "[0, 1]")
    k = class_axis(logits, axis)
    classes, dtype = logits.shape[k], floating_dtype(logits.dtype)
    if not target_spec(logits, targets, axis):
        p = targets.astype(dtype)
        return p * (1 - smoothing) + smoothing / classes if smoothing else p
    safe, ignored = checked_classes(targets, classes, ignore_index)
    p = np.full(logits.shape, smoothing / classes if smoothing else 0, dtype)
    np.put_along_axis(
        p, np.expand_dims(safe, k), 1 - smoothing + (smoothing / classes if smoothing else 0), k
    )
    if ignored is not None:
        p *= ~np.expand_dims(ignored, k)
    return p


def checked_classes(targets: Any, classes: int, ignore_index: int | None) -> tuple[Any, Any]:
    """Class numbers with 0 in place of the ignored ones, and where those are."""
    ignored = None
    if ignore_index is not None:
        mask = targets == whole("cross_entropy", "ignore_index", ignore_index)
        if mask.any():
            ignored, targets = mask, np.where(mask, 0, targets)
    if targets.size and (targets.min() < 0 or targets.max() >= classes):
        raise ShapeError(
            f"cross_entropy: class numbers lie in [{targets.min()}, {targets.max()}], "
            f"there are {classes} classes; mark missing targets by ignore_index"
        )
    return targets, ignored


def classes_exist(
    logits: Any, targets: Any, axis: int, ignore_index: int | None = None
) -> list[Any]:
    """By ops what ``checked_classes`` asks of class numbers; nothing of probabilities."""
    if not target_spec(logits, targets, axis):
        return []
    return [in_range(targets, logits.shape[class_axis(logits, axis)], ignore_index)]


def in_range(targets: Any, classes: int, ignore_index: int | None = None) -> Any:
    """By ops which of the numbers are those of classes, or are ignored."""
    found = logical_and(greater_equal(targets, 0), less(targets, classes))
    return found if ignore_index is None else logical_or(found, equal(targets, ignore_index))


def distribution(
    targets: Any, logits: Spec, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """What the softmax is to match, by ops; zero where the target is ignored."""
    k = class_axis(logits, axis)
    classes, dtype = logits.shape[k], floating_dtype(logits.dtype)
    if not target_spec(logits, targets, axis):
        p = astype(targets, dtype)
        return _smoothed(p, smoothing, classes)
    # Numbers of half the size, which hold all classes, are compared twice as many at a time.
    short = np.dtype(np.int32 if classes < 2**31 else np.int64)
    shape = [-1 if j == k else 1 for j in range(len(logits.shape))]
    at, numbers = expand_dims(targets, k), np.arange(classes, dtype=short).reshape(shape)
    p = _smoothed(astype(equal(astype(at, short), numbers), dtype), smoothing, classes)
    return p if ignore_index is None else where(equal(at, ignore_index), 0, p)


def _smoothed(p: Any, smoothing: float, classes: int) -> Any:
    return add(mul(p, 1 - smoothing), smoothing / classes) if smoothing else p


def counted(targets: Any, logits: Spec, axis: int, ignore_index: int | None, least: int = 1) -> Any:
    """How many samples a mean counts, by ops: those whose class is not ignored."""
    if ignore_index is not None and target_spec(logits, targets, axis):
        dtype = floating_dtype(logits.dtype)
        return maximum(sum(astype(not_equal(targets, ignore_index), dtype)), least)
    folded = reduced_shape("cross_entropy", logits.shape, axis, False)
    return max(math.prod(folded), least)
