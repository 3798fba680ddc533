"""Softmax cross entropy, fused, with its gradient as a separate row.

Both the VJP and the JVP use the gradient, softmax minus target; its derivative is that of the
softmax, so the loss can be differentiated to any order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_number
from odyssey.losses.class_targets import (
    check_class_indices,
    class_axis,
    class_index_conditions,
    has_class_indices,
    mean_denominator,
    target_distribution,
    target_probabilities,
)
from odyssey.losses.softmax_cross_entropy_rows import (
    compiled_row_losses,
    is_row_case,
    loop_pays,
    reduce_row_losses,
    row_losses,
    row_starts,
    slope_from_residual,
)
from odyssey.nn.activations.softmax import log_softmax, log_softmax_arrays, softmax, softmax_arrays
from odyssey.ops.elementwise.arithmetic import div, maximum, mul, neg, sub
from odyssey.ops.elementwise.choice import equal, not_equal, where
from odyssey.ops.elementwise.elementary import exp, log
from odyssey.ops.reductions import reduce
from odyssey.ops.reductions.broadcast_back import broadcast_back
from odyssey.ops.reductions.reduce import divide_by_size, mean_loss, sum
from odyssey.ops.structure.batching import (
    example_specs,
    flatten_examples,
    shift_axes,
    spread,
)
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.half_precision import (
    compute_in_float32,
    narrow_half,
    widen_half,
)
from odyssey.ops.structure.shape import astype, expand_dims, reshape
from odyssey.spec import Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype, reduced_shape


def _canonical_entropy_options(
    logits: Any, targets: Any, axis: int, smoothing: Any, ignore_index: Any, reduction: str
) -> tuple[Any, ...]:
    return class_axis(logits, axis), float(smoothing), ignore_index, reduction


def _count_samples(samples: int, targets: Any, ignore_index: int | None, by_class: bool) -> int:
    """Return the number of samples in a mean: those that are not ignored."""
    if by_class and ignore_index is not None:
        return int(np.count_nonzero(targets != ignore_index))
    return samples


def _cross_entropy_spec(
    logits: Spec, targets: Spec, axis: int, smoothing: float, ignore_index: Any, reduction: str
) -> Spec:
    has_class_indices(logits, targets, axis)
    shape = reduced_shape("cross_entropy", logits.shape, axis, False)
    return Spec(shape if reduction == "none" else (), floating_dtype(logits.dtype))


# From this many classes on the logit of the target is looked up; below, all classes are compared
# with the target in the loop that computes the logits.
_LOOKUP_CLASSES = 64


def _losses_by_lookup(logits: Any, targets: Any, k: int, ignore_index: int | None) -> Any:
    """Losses from the logit of each target and the denominator of the softmax."""
    indices = expand_dims(targets, k)
    ignored = None if ignore_index is None else equal(indices, ignore_index)
    safe = indices if ignored is None else where(ignored, 0, indices)
    largest = reduce.max(logits, k, keepdims=True)
    scale = log(sum(exp(sub(logits, largest)), k, keepdims=True))
    losses = sub(scale, sub(take_along_axis(logits, safe, axis=k), largest))
    losses = losses if ignored is None else where(ignored, 0, losses)
    return reshape(losses, reduced_shape("cross_entropy", logits.shape, k, False))


def _cross_entropy_decomposition(logits: Any, targets: Any, *options: Any) -> Any:
    axis, label_smoothing, ignore_index, reduction = options
    spec = Spec(logits.shape, logits.dtype)
    if (
        not label_smoothing
        and logits.shape[axis] >= _LOOKUP_CLASSES
        and has_class_indices(logits, targets, axis)
    ):
        losses = _losses_by_lookup(logits, targets, class_axis(logits, axis), ignore_index)
    else:
        p = target_distribution(targets, spec, axis, label_smoothing, ignore_index)
        # A probability of 0 contributes nothing, even where the logit is -inf.
        losses = neg(sum(where(equal(p, 0), 0, mul(p, log_softmax(logits, axis))), axis))
    if reduction == "none":
        return losses
    total = sum(losses)
    if reduction == "sum":
        return total
    return div(total, mean_denominator(targets, spec, axis, ignore_index, least=0))


def _slope_decomposition(logits: Any, targets: Any, *options: Any) -> Any:
    axis, label_smoothing, ignore_index, reduction = options
    spec = Spec(logits.shape, logits.dtype)
    p = target_distribution(targets, spec, axis, label_smoothing, ignore_index)
    slope = sub(mul(softmax(logits, axis), sum(p, axis, keepdims=True)), p)
    if reduction != "mean":
        return slope
    return div(slope, mean_denominator(targets, spec, axis, ignore_index))


# ------------------------------------------------------------------ batch rules


def _as_rows(
    batch: Batch, logits: Any, targets: Any, options: tuple[Any, ...]
) -> tuple[Any, Any, int]:
    """Return logits and targets of all examples, and the class axis.

    If the classes are last, and targets are class indices, the examples are more rows of a matrix.
    """
    specs = example_specs(batch, (logits, targets))
    by_class = has_class_indices(*[*specs, options[0]])
    logits, targets = spread(batch, 0, logits), spread(batch, 1, targets)
    axis = shift_axes(options[0], len(logits.shape) - 1)
    if not by_class or axis != len(logits.shape) - 1:
        return logits, targets, axis
    rows = math.prod(targets.shape)
    return reshape(logits, (rows, logits.shape[-1])), reshape(targets, (rows,)), 1


def _samples_of_examples(
    batch: Batch, logits: Any, targets: Any, axis: int, ignore_index: int | None, least: int
) -> Any:
    """Return the number of samples in the mean of each example: one number, or one of each."""
    specs = example_specs(batch, (logits, targets))
    if ignore_index is not None and has_class_indices(*[*specs, axis]):
        known = astype(not_equal(targets, ignore_index), floating_dtype(logits.dtype))
        known = widen_half(spread(batch, 1, known))
        return maximum(sum(flatten_examples(known), 1), least)
    return max(math.prod(reduced_shape("cross_entropy", specs[0].shape, axis, False)), least)


def _batch_cross_entropy(batch: Batch, logits: Any, targets: Any, *options: Any) -> Any:
    axis, smoothing, ignore_index, reduction = options
    rows, indices, class_axis = _as_rows(batch, logits, targets, options)
    losses = softmax_cross_entropy(rows, indices, class_axis, smoothing, ignore_index, "none")
    shape = reduced_shape(
        "cross_entropy", example_specs(batch, (logits, targets))[0].shape, axis, False
    )
    if reduction == "none":
        return reshape(losses, (batch.size, *shape))
    samples = math.prod(shape)
    if samples == 1 and ignore_index is None:
        return reshape(losses, (batch.size,))
    total = sum(widen_half(reshape(losses, (batch.size, samples))), 1)
    if reduction == "mean":
        counts = _samples_of_examples(batch, logits, targets, axis, ignore_index, 0)
        total = div(total, maximum(counts, 1))
        if samples == 0 or hasattr(counts, "shape"):  # of no samples NaN, without a warning
            total = where(equal(counts, 0), np.nan, total)
    return narrow_half(total, losses.dtype)


def _batch_slope(batch: Batch, logits: Any, targets: Any, *options: Any) -> Any:
    axis, smoothing, ignore_index, reduction = options
    shape = (batch.size, *example_specs(batch, (logits, targets))[0].shape)
    rows, indices, class_axis = _as_rows(batch, logits, targets, options)
    slope = softmax_cross_entropy_slope(rows, indices, class_axis, smoothing, ignore_index, "sum")
    slope = reshape(slope, shape)
    if reduction != "mean":
        return slope
    samples = _samples_of_examples(batch, logits, targets, axis, ignore_index, 1)
    return slope if type(samples) is int and samples == 1 else _divide_each(slope, samples)


def _divide_each(x: Any, counts: Any) -> Any:
    """Divide each example by its count, or all by one number."""
    if hasattr(counts, "shape"):
        counts = astype(reshape(counts, (*counts.shape, *(1,) * (len(x.shape) - 1))), x.dtype)
    return div(x, counts)


def _batch_mass(batch: Batch, targets: Any, logits_spec: Spec, *options: Any) -> Any:
    axis, smoothing, ignore_index, reduction = options
    whole = Spec((batch.size, *logits_spec.shape), logits_spec.dtype)
    along = shift_axes(axis, logits_spec.ndim)
    mass = softmax_cross_entropy_mass(targets, whole, along, smoothing, ignore_index, "sum")
    if reduction != "mean":
        return mass
    both = Batch(batch.size, (True, True))
    return _divide_each(mass, _samples_of_examples(both, whole, targets, axis, ignore_index, 1))


# ------------------------------------------------------------------ rules


def _cross_entropy_vjp(
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
    slope = _cross_entropy_slope(logits, targets, options, residual)
    return mul(broadcast_back(g, logits_spec, axis, False) if reduction == "none" else g, slope)


def _cross_entropy_jvp(
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
    slope = _cross_entropy_slope(logits, targets, options, residual)
    return sum(mul(t, slope), axis if reduction == "none" else None)


def _cross_entropy_slope(logits: Any, targets: Any, options: tuple[Any, ...], residual: Any) -> Any:
    if residual is None:
        return softmax_cross_entropy_slope(logits, targets, *options)
    exponentials, sums, positions = residual
    return slope_from_residual(exponentials, sums, positions, options[-1])


def _cross_entropy_with_residual(
    logits: Any, targets: Any, *options: Any
) -> tuple[Any, Any] | None:
    """Fast path: losses and the residual of ``slope_from_residual``; None if it does not apply."""
    axis, label_smoothing, ignore_index, reduction = options
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is None:
        return None
    losses, residual = row_losses(logits, targets, starts)
    return reduce_row_losses(losses, reduction), residual


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
# Columns shared by the loss and its gradient.
_ENTROPY: dict[str, Any] = {
    "real": True,
    "canonical": _canonical_entropy_options,
    "requires": lambda logits, targets, axis, label_smoothing, ignore_index, reduction: (
        class_index_conditions(logits, targets, axis, ignore_index)
    ),
    "kinks": "NaN where a logit is inf, or all are -inf, as the result is",
    "samples": _SAMPLES,
    "rejects": _REJECTS,
}


def _cross_entropy_compiled(logits: Any, targets: Any, *options: Any) -> Any:
    out = compiled_row_losses(logits, targets, *options)
    return _cross_entropy(logits, targets, *options) if out is None else out[0]


@op(
    with_residual=_cross_entropy_with_residual,
    kernels=[
        Kernel(
            "a compiled loop over rows",
            _cross_entropy_compiled,
            when=is_row_case,
            pays=loop_pays,
            with_residual=compiled_row_losses,
        )
    ],
    infer=_cross_entropy_spec,
    vmap=_batch_cross_entropy,
    decomposition=compute_in_float32(_cross_entropy_decomposition),
    vjp={"logits": _cross_entropy_vjp},
    jvp={"logits": _cross_entropy_jvp},
    **_ENTROPY,
    precision="wide",
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
    """Cross entropy of class indices or probabilities against the softmax of ``logits``."""
    return _cross_entropy(logits, targets, axis, label_smoothing, ignore_index, reduction)


def _cross_entropy(logits: Any, targets: Any, *options: Any) -> Any:
    axis, label_smoothing, ignore_index, reduction = options
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is not None:
        losses, _ = row_losses(logits, targets, starts)
        return reduce_row_losses(losses, reduction)
    by_class = has_class_indices(logits, targets, axis)
    z = log_softmax_arrays(logits, axis)
    if (
        by_class
        and check_number("cross_entropy", "label_smoothing", label_smoothing, "[0, 1]") == 0
    ):
        k = class_axis(logits, axis)
        safe, ignored = check_class_indices(targets, logits.shape[k], ignore_index)
        losses = -np.take_along_axis(z, np.expand_dims(safe, k), k).reshape(safe.shape)
        if ignored is not None:
            losses = np.where(ignored, losses.dtype.type(0), losses)
    else:
        p = target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
        # A probability of 0 contributes nothing, even where the logit is -inf.
        losses = -np.add.reduce(np.where(p == 0, p, p * z), axis)
    check_choice("cross_entropy", "reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return losses
    if reduction == "sum":
        return np.add.reduce(losses, None)
    n = _count_samples(losses.size, targets, ignore_index, by_class)
    return mean_loss(losses, n) if n else losses.dtype.type(np.nan)


def _slope_spec(logits: Spec, targets: Spec, *options: Any) -> Spec:
    has_class_indices(logits, targets, options[0])
    return Spec(logits.shape, floating_dtype(logits.dtype))


def _slope_vjp(
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
    vmap=_batch_slope,
    decomposition=compute_in_float32(_slope_decomposition),
    vjp={"logits": _slope_vjp},
    jvp={"logits": _slope_vjp},
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
    """Gradient of ``softmax_cross_entropy`` in the logits: softmax minus target, over n."""
    targets = np.asarray(targets)
    starts = row_starts(logits, targets, axis, label_smoothing, ignore_index)
    if starts is not None:
        _, residual = row_losses(logits, targets, starts)
        return slope_from_residual(*residual, reduction)
    s = softmax_arrays(logits, axis)
    by_class = has_class_indices(logits, targets, axis)
    n = _count_samples(s.size // max(s.shape[axis], 1), targets, ignore_index, by_class)
    p = target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
    s *= np.add.reduce(p, axis, keepdims=True)
    s -= p
    return divide_by_size(s, n) if reduction == "mean" and n else s


def _mass_spec(targets: Spec, logits_spec: Spec, axis: int, *options: Any) -> Spec:
    shape = reduced_shape("cross_entropy", logits_spec.shape, axis, True)
    return Spec(shape, logits_spec.dtype)


def _mass_decomposition(targets: Any, logits_spec: Spec, *options: Any) -> Any:
    axis, label_smoothing, ignore_index, reduction = options
    p = target_distribution(targets, logits_spec, axis, label_smoothing, ignore_index)
    mass = sum(p, axis, keepdims=True)
    if reduction != "mean":
        return mass
    return div(mass, mean_denominator(targets, logits_spec, axis, ignore_index))


_LOGITS = Spec((4, 3), np.dtype(np.float64))


@op(
    canonical=lambda targets, logits_spec, *options: (
        logits_spec,
        *_canonical_entropy_options(logits_spec, targets, *options),
    ),
    infer=_mass_spec,
    vmap=_batch_mass,
    decomposition=_mass_decomposition,
    requires=lambda targets, logits_spec, axis, label_smoothing, ignore_index, reduction: (
        class_index_conditions(logits_spec, targets, axis, ignore_index)
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
    by_class = has_class_indices(logits_spec, targets, axis)
    p = target_probabilities(logits_spec, targets, axis, label_smoothing, ignore_index)
    mass = np.add.reduce(p, axis, keepdims=True)
    n = _count_samples(mass.size, targets, ignore_index, by_class)
    return divide_by_size(mass, n) if reduction == "mean" and n else mass


publish(globals())
