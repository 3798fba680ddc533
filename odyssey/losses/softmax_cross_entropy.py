"""Cross entropy against the softmax, in one pass, with its slope as a row of its own.

The slope, softmax minus target, is what the reverse and the forward rule both need; its own
derivative is that of the softmax, so the loss differentiates to any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import number, word
from odyssey.losses.class_targets import (
    checked_classes,
    class_axis,
    classes_exist,
    counted,
    distribution,
    target_probabilities,
    target_spec,
)
from odyssey.losses.softmax_cross_entropy_rows import (
    compiled_losses,
    folded_losses,
    losses_of,
    row_starts,
    rows_fill_vectors,
    rows_of_classes,
    slope_of,
)
from odyssey.nn.activations.softmax import log_softmax, log_softmax_of, softmax, softmax_of
from odyssey.ops.elementwise.arithmetic import div, mul, neg, sub
from odyssey.ops.elementwise.choice import equal, where
from odyssey.ops.elementwise.elementary import exp, log
from odyssey.ops.reductions import reduce
from odyssey.ops.reductions.broadcast_back import broadcast_back
from odyssey.ops.reductions.reduce import divide_by_size, mean_loss, sum
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.shape import expand_dims, reshape
from odyssey.spec import Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype, reduced_shape


def _spelled(
    logits: Any, targets: Any, axis: int, smoothing: Any, ignore_index: Any, reduction: str
) -> tuple[Any, ...]:
    return class_axis(logits, axis), float(smoothing), ignore_index, reduction


def _counted(samples: int, targets: Any, ignore_index: int | None, by_class: bool) -> int:
    """How many of the samples a mean counts: those whose class is not ignored."""
    if by_class and ignore_index is not None:
        return int(np.count_nonzero(targets != ignore_index))
    return samples


def _entropy_spec(
    logits: Spec, targets: Spec, axis: int, smoothing: float, ignore_index: Any, reduction: str
) -> Spec:
    target_spec(logits, targets, axis)
    shape = reduced_shape("cross_entropy", logits.shape, axis, False)
    return Spec(shape if reduction == "none" else (), floating_dtype(logits.dtype))


# Of so many classes that of the target is looked up; of fewer, all are compared with it, in the
# loop that computes the logits.
_MANY = 64


def _picked(logits: Any, targets: Any, k: int, ignore_index: int | None) -> Any:
    """The losses, from the logit of each target and its softmax's denominator."""
    at = expand_dims(targets, k)
    ignored = None if ignore_index is None else equal(at, ignore_index)
    safe = at if ignored is None else where(ignored, 0, at)
    largest = reduce.max(logits, k, keepdims=True)
    scale = log(sum(exp(sub(logits, largest)), k, keepdims=True))
    losses = sub(scale, sub(take_along_axis(logits, safe, axis=k), largest))
    losses = losses if ignored is None else where(ignored, 0, losses)
    return reshape(losses, reduced_shape("cross_entropy", logits.shape, k, False))


def _entropy_in_ops(
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    spec = Spec(logits.shape, logits.dtype)
    if not label_smoothing and logits.shape[axis] >= _MANY and target_spec(logits, targets, axis):
        losses = _picked(logits, targets, class_axis(logits, axis), ignore_index)
    else:
        p = distribution(targets, spec, axis, label_smoothing, ignore_index)
        # A probability of 0 contributes nothing, even where the logit is -inf.
        losses = neg(sum(where(equal(p, 0), 0, mul(p, log_softmax(logits, axis))), axis))
    if reduction == "none":
        return losses
    total = sum(losses)
    if reduction == "sum":
        return total
    return div(total, counted(targets, spec, axis, ignore_index, least=0))


def _slope_in_ops(
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    spec = Spec(logits.shape, logits.dtype)
    p = distribution(targets, spec, axis, label_smoothing, ignore_index)
    slope = sub(mul(softmax(logits, axis), sum(p, axis, keepdims=True)), p)
    if reduction != "mean":
        return slope
    return div(slope, counted(targets, spec, axis, ignore_index))


def _entropy_rule(
    g: Any,
    logits: Any,
    targets: Any,
    logits_spec: Spec,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
    residual: Any = None,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    slope = _slope(logits, targets, options, residual)
    return mul(broadcast_back(g, logits_spec, axis, False) if reduction == "none" else g, slope)


def _entropy_forward(
    t: Any,
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
    residual: Any = None,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    slope = _slope(logits, targets, options, residual)
    return sum(mul(t, slope), axis if reduction == "none" else None)


def _slope(logits: Any, targets: Any, options: tuple[Any, ...], residual: Any) -> Any:
    if residual is None:
        return softmax_cross_entropy_slope(logits, targets, *options)
    exponentials, sums, places = residual
    return slope_of(exponentials, sums, places, options[-1])


def _with_exponentials(
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> tuple[Any, Any] | None:
    """In the commonest case cross entropy, and what ``slope_of`` makes its derivative from."""
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is None:
        return None
    losses, residual = losses_of(logits, targets, starts)
    return folded_losses(losses, reduction), residual


_SAMPLES = (
    sample((4, 3), np.array([0, 2, 1, 1])),
    sample((4, 3), np.array([0, 2, -1, 1]), ignore_index=-1),
    sample((2, 3, 4), np.array([[0, 1, 2, 0], [2, 2, 1, 0]]), axis=1, reduction="sum"),
    sample((3,), np.array(1), reduction="none"),
    sample((2, 3), np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), label_smoothing=0.1),
    sample((2, 3), np.array([1, 0]), label_smoothing=0.2, reduction="none"),
    sample((3, 9), np.array([8, 0, 4]), reduction="sum"),
)
_REJECTS = (
    reject((4, 3), np.array([0, 1]), match="want class numbers of shape"),
    reject((2, 3), np.array([0, 3]), match="there are 3 classes"),
)
# What the loss and its slope have in common.
_ENTROPY: dict[str, Any] = {
    "real": True,
    "canonical": _spelled,
    "requires": lambda logits, targets, axis, label_smoothing, ignore_index, reduction: (
        classes_exist(logits, targets, axis, ignore_index)
    ),
    "kinks": "NaN where a logit is inf, or all are -inf, as the result is",
    "samples": _SAMPLES,
    "rejects": _REJECTS,
}


def _compiled(logits: Any, targets: Any, *options: Any) -> Any:
    found = compiled_losses(logits, targets, *options)
    return _entropy(logits, targets, *options) if found is None else found[0]


@op(
    with_residual=_with_exponentials,
    kernels=[
        Kernel(
            "a compiled loop over rows",
            _compiled,
            when=rows_of_classes,
            pays=rows_fill_vectors,
            with_residual=compiled_losses,
        )
    ],
    infer=_entropy_spec,
    decomposition=compute_in_float32(_entropy_in_ops),
    vjp={"logits": _entropy_rule},
    jvp={"logits": _entropy_forward},
    **_ENTROPY,
)
def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Cross entropy of class numbers or probabilities against the softmax of ``logits``."""
    return _entropy(logits, targets, axis, label_smoothing, ignore_index, reduction)


def _entropy(
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is not None:
        losses, _ = losses_of(logits, targets, starts)
        return folded_losses(losses, reduction)
    by_class = target_spec(logits, targets, axis)
    z = log_softmax_of(logits, axis)
    if by_class and number("cross_entropy", "label_smoothing", label_smoothing, "[0, 1]") == 0:
        k = class_axis(logits, axis)
        safe, ignored = checked_classes(targets, logits.shape[k], ignore_index)
        losses = -np.take_along_axis(z, np.expand_dims(safe, k), k).reshape(safe.shape)
        if ignored is not None:
            losses = np.where(ignored, losses.dtype.type(0), losses)
    else:
        p = target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
        # A probability of 0 contributes nothing, even where the logit is -inf.
        losses = -np.add.reduce(np.where(p == 0, p, p * z), axis)
    word("cross_entropy", "reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return losses
    if reduction == "sum":
        return np.add.reduce(losses, None)
    n = _counted(losses.size, targets, ignore_index, by_class)
    return mean_loss(losses, n) if n else losses.dtype.type(np.nan)


def _slope_spec(logits: Spec, targets: Spec, *options: Any) -> Spec:
    target_spec(logits, targets, options[0])
    return Spec(logits.shape, floating_dtype(logits.dtype))


def _slope_rule(
    g: Any,
    logits: Any,
    targets: Any,
    logits_spec: Spec,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    scale = softmax_cross_entropy_mass(targets, logits_spec, *options)
    s = softmax(logits, axis)
    return mul(scale, mul(s, sub(g, sum(mul(g, s), axis, keepdims=True))))


@op(
    infer=_slope_spec,
    decomposition=compute_in_float32(_slope_in_ops),
    vjp={"logits": _slope_rule},
    jvp={"logits": _slope_rule},
    **_ENTROPY,
)
def softmax_cross_entropy_slope(
    logits: Any,
    targets: Any,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Derivative of ``softmax_cross_entropy`` in the logits: softmax minus target, over n."""
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is not None:
        _, residual = losses_of(logits, targets, starts)
        return slope_of(*residual, reduction)
    s = softmax_of(logits, axis)
    by_class = target_spec(logits, targets, axis)
    n = _counted(s.size // max(s.shape[axis], 1), targets, ignore_index, by_class)
    p = target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
    s *= np.add.reduce(p, axis, keepdims=True)
    s -= p
    return divide_by_size(s, n) if reduction == "mean" and n else s


def _mass_spec(targets: Spec, logits_spec: Spec, axis: int, *options: Any) -> Spec:
    shape = reduced_shape("cross_entropy", logits_spec.shape, axis, True)
    return Spec(shape, logits_spec.dtype)


def _mass_in_ops(
    targets: Any,
    logits_spec: Spec,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    p = distribution(targets, logits_spec, axis, label_smoothing, ignore_index)
    mass = sum(p, axis, keepdims=True)
    if reduction != "mean":
        return mass
    return div(mass, counted(targets, logits_spec, axis, ignore_index))


_LOGITS = Spec((4, 3), np.dtype(np.float64))


@op(
    canonical=lambda targets, logits_spec, *options: (
        logits_spec,
        *_spelled(logits_spec, targets, *options),
    ),
    infer=_mass_spec,
    decomposition=_mass_in_ops,
    requires=lambda targets, logits_spec, axis, label_smoothing, ignore_index, reduction: (
        classes_exist(logits_spec, targets, axis, ignore_index)
    ),
    samples=[
        sample(np.array([0, 2, 1, 1]), logits_spec=_LOGITS),
        sample(np.array([0, 2, -1, 1]), logits_spec=_LOGITS, ignore_index=-1, reduction="sum"),
        sample(np.array([1, 0, 1]), logits_spec=_LOGITS, axis=0, label_smoothing=0.1),
        sample(np.full((4, 3), 0.25), logits_spec=_LOGITS),
    ],
)
def softmax_cross_entropy_mass(
    targets: Any,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Weight of each sample in ``softmax_cross_entropy``: its total target, over n for a mean."""
    targets = np.asarray(targets)
    by_class = target_spec(logits_spec, targets, axis)
    p = target_probabilities(logits_spec, targets, axis, label_smoothing, ignore_index)
    mass = np.add.reduce(p, axis, keepdims=True)
    n = _counted(mass.size, targets, ignore_index, by_class)
    return divide_by_size(mass, n) if reduction == "mean" and n else mass


publish(globals())
