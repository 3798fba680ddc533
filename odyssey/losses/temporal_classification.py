"""Connectionist temporal classification (CTC), Graves et al. 2006."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import check_flag, check_int, format_value
from odyssey.devices.same_device import full_beside, host_array, new_beside, place_as, place_beside
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import (
    array_value,
    concrete_array,
    float_operand,
    loss_operand,
    reduce_losses,
)
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.table.samples import reject, sample
from odyssey.table.store import home_of
from odyssey.table.value import Symbol

__all__ = ["ctc"]

_LABELS = np.array([[1, 2], [2, 2], [1, 0]])
_LENGTHS: dict[str, Any] = {
    "input_lengths": np.array([4, 3, 2]),
    "target_lengths": np.array([2, 2, 1]),
}


@loss(
    samples=[
        sample((4, 3, 3), _LABELS, reduction="none", **_LENGTHS),
        sample((4, 2, 4), np.array([[3, 1], [1, 1]]), reduction="sum", blank=2),
        sample(
            (3, 3, 3),
            np.array([1, 2, 2]),
            reduction="none",
            target_lengths=np.array([2, 0, 1]),
            weights=np.array([0.5, 2.0, 1.0]),
        ),
        sample((3, 4), np.array([1, 1]), reduction="sum"),
        sample((2, 0, 3), np.zeros((0, 1), int), reduction="sum"),
    ],
    rejects=[
        reject((3,), np.array([1]), match="wanted are"),
        reject((3, 2, 4), np.array([[1], [1], [1]]), match="2 samples"),
        reject((3, 2, 4), np.array([[1.0], [1.0]]), error=DTypeError, match="integers"),
        reject((3, 1, 4), np.array([[4]]), match="there are 4"),
        reject((3, 1, 4), np.array([[0]]), error=SettingError, match="blank"),
        reject((3, 1, 4), np.array([[1]]), blank=4, match="there are 4"),
        reject((3, 1, 4), np.array([[1]]), input_lengths=[4], match="input_lengths"),
        reject((3, 1, 4), np.array([[1]]), target_lengths=[2], match="target_lengths"),
        reject((3, 2, 4), np.array([1, 2]), match="target_lengths"),
        reject((3, 2, 4), np.array([1, 2]), target_lengths=[1, 2], match="for 2 labels"),
    ],
)
def ctc(
    log_probs: Any,
    targets: Any,
    *,
    input_lengths: Any = None,
    target_lengths: Any = None,
    blank: int = 0,
    zero_infinity: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> Any:
    """Connectionist temporal classification loss: negative log-likelihood of unaligned labels.

    The likelihood sums over all alignments, in which labels may repeat and blanks may separate
    them, by the forward recursion in logarithms (A. Graves et al., Connectionist Temporal
    Classification, 2006).

    Args:
        log_probs: Logarithms of the probabilities of classes, (times, samples, classes), as of
            ``log_softmax``; (times, classes) for one sample.
        targets: Labels as class indices, (samples, labels), ignored beyond a sample's length; or
            the concatenated labels of all samples, on one axis.
        input_lengths: How many times each sample has; by default all.
        target_lengths: How many labels each has; by default all.
        blank: Class index of the blank.
        zero_infinity: Whether to replace infinite losses, of more labels than fit, by 0.
        reduction: ``"mean"`` of the losses over their numbers of labels, at least 1; ``"sum"`` or
            ``"none"``.
        weights: Factors of the samples.

    Returns:
        The loss; infinite if labels do not fit, with a gradient of 0. The gradient is that in
        ``log_probs`` itself; PyTorch's assumes a ``log_softmax`` before.

    Raises:
        ShapeError: for shapes, lengths and labels that do not fit. DTypeError: for labels and
        lengths that are no integers. SettingError: for a label that is the blank.

    >>> x = np.log(np.full((2, 1, 2), 0.5))
    >>> float(ctc(x, np.array([[1]])).round(6))  # three of four paths: 11, 01 and 10
    0.287682
    """
    x = float_operand("ctc", log_probs)
    single = len(x.shape) == 2
    if len(x.shape) not in (2, 3):
        raise ShapeError(
            f"ctc: log_probs has shape {x.shape}; wanted are times, samples and classes, or times "
            "and classes"
        )
    if single:
        x = ops.expand_dims(x, 1)
    times, samples, classes = x.shape
    blank = check_int("ctc", "blank", blank)
    if not 0 <= blank < classes:
        raise ShapeError(f"ctc: blank={blank}, there are {classes} classes")
    check_flag("ctc", "zero_infinity", zero_infinity)
    label_counts = _sample_lengths("target_lengths", target_lengths, x)
    labels, counts = _label_rows(targets, label_counts, samples, single, blank)
    labels = _mask_labels(labels, counts, classes, blank)
    input_steps = _sample_lengths("input_lengths", input_lengths, x)
    if input_steps is not None:
        input_steps = _check_lengths("input_lengths", input_steps, times)
    losses = _ctc_losses(x, labels, counts, input_steps, blank)
    if zero_infinity:
        losses = ops.where(ops.isinf(losses), 0, losses)
    if isinstance(reduction, str) and reduction == "mean":
        limit = labels.shape[1] if counts is None else counts
        losses = ops.divide(losses, ops.astype(ops.maximum(limit, 1), x.dtype))
    return reduce_losses("ctc", ops.reshape(losses, ()) if single else losses, reduction, weights)


# ------------------------------------------------------------------ arguments


def _integer_operand(name: str, value: Any) -> Any:
    value = loss_operand(value)
    if value.dtype.kind not in "iu":
        raise DTypeError(f"ctc: {name} of {value.dtype}; pass integers")
    return value


def _sample_lengths(name: str, value: Any, x: Any) -> Any:
    """Return a length for each sample, on the device of ``x``, or None."""
    if value is None:
        return None
    samples = x.shape[1]
    value = place_as("ctc", name, _integer_operand(name, value), home_of(x))
    if value.shape not in [(samples,), ()] or (value.shape == () and samples != 1):
        raise ShapeError(f"ctc: {name} of shape {value.shape} for {samples} samples; pass one each")
    return ops.reshape(value, (samples,))


def _check_lengths(name: str, value: Any, limit: int) -> Any:
    """Return lengths; raise ShapeError unless all lie in ``[0, limit]``."""
    found = concrete_array(value)
    if found is None:
        fits = ops.logical_and(ops.greater_equal(value, 0), ops.less_equal(value, limit))
        return demanded(value, fits, f"ctc: {name} are not all from 0 to {limit}")
    if found.size and (found.min() < 0 or found.max() > limit):
        raise ShapeError(
            f"ctc: {name} lie in [{found.min()}, {found.max()}]; wanted are 0 to {limit}"
        )
    return value


def _label_rows(
    targets: Any, counts: Any, samples: int, single: bool, blank: int
) -> tuple[Any, Any]:
    """Return a row of labels for each sample and the label counts, None for all."""
    targets = _integer_operand("targets", targets)
    if single and len(targets.shape) == 1:
        targets = ops.expand_dims(targets, 0)
    if len(targets.shape) == 1:
        targets = _split_labels(targets, counts, samples, blank)
    if len(targets.shape) != 2 or targets.shape[0] != samples:
        raise ShapeError(
            f"ctc: targets have shape {targets.shape} for {samples} samples; pass a row of labels "
            "for each"
        )
    if counts is not None:
        counts = _check_lengths("target_lengths", counts, targets.shape[1])
    return targets, counts


def _split_labels(targets: Any, counts: Any, samples: int, blank: int) -> Any:
    """Split concatenated labels into rows, padded with blanks."""
    lengths = None if counts is None else array_value(counts)
    if lengths is None or isinstance(lengths, Symbol):
        raise ShapeError(
            "ctc: labels of all samples on one axis want target_lengths, static in a graph; pass "
            "these, or a row of labels for each sample"
        )
    lengths = host_array(lengths)
    if lengths.min(initial=0) < 0 or lengths.sum() != targets.shape[0]:
        raise ShapeError(
            f"ctc: target_lengths {format_value(lengths)} for {targets.shape[0]} labels on one "
            "axis; they add up to as many"
        )
    width = int(lengths.max(initial=0))
    own = np.arange(width) < lengths[:, None]
    places = np.where(own, np.cumsum(own).reshape(own.shape) - 1, 0)
    if not targets.shape[0]:
        return new_beside((home_of(targets),), "full", (samples, width), blank)
    home = home_of(targets)
    own, places = place_beside(own, home), place_beside(places, home)
    return ops.where(own, ops.take(targets, places), blank)


def _mask_labels(labels: Any, counts: Any, classes: int, blank: int) -> Any:
    """Replace labels beyond each length by blanks; raise if one is no class or the blank."""
    home = (home_of(labels),)
    own: Any = new_beside(home, "ones", labels.shape, bool)
    if counts is not None:
        numbers = new_beside(home, "arange", labels.shape[1])
        own = ops.less(numbers, ops.expand_dims(counts, 1))
    found = concrete_array(labels)
    if found is None:
        fits = ops.logical_and(ops.greater_equal(labels, 0), ops.less(labels, classes))
        fits = ops.logical_and(fits, ops.not_equal(labels, blank))
        message = f"ctc: a label is the blank, {blank}, or not one of {classes} classes"
        labels = demanded(labels, ops.logical_or(fits, ops.logical_not(own)), message)
        return ops.where(own, labels, blank)
    found = found[host_array(array_value(own))]
    if found.size and (found.min() < 0 or found.max() >= classes):
        raise ShapeError(
            f"ctc: labels lie in [{found.min()}, {found.max()}], there are {classes} classes"
        )
    if (found == blank).any():
        raise SettingError(f"ctc: a label is {blank}, which is the blank; pass another blank=")
    return ops.where(own, labels, blank)


# ------------------------------------------------------------------ forward recursion


def _ctc_losses(x: Any, labels: Any, counts: Any, input_steps: Any, blank: int) -> Any:
    """Loss of each sample, over paths through its labels with blanks around each."""
    samples, limit = labels.shape
    home = home_of(labels)
    blanks = full_beside((samples, limit), blank, labels.dtype, home)
    pairs = ops.reshape(ops.stack([blanks, labels], axis=-1), (samples, 2 * limit))
    end = full_beside((samples, 1), blank, labels.dtype, home)
    symbols = ops.concatenate([pairs, end], axis=1)
    reached = _forward_log_probabilities(x, symbols, input_steps, blank)
    if counts is None:
        ends = ops.getitem(reached, (slice(None), slice(-2, None)))
    else:
        last = ops.expand_dims(ops.multiply(counts, 2), 1)
        both = ops.concatenate([ops.maximum(ops.subtract(last, 1), 0), last], axis=1)
        ends = ops.take_along_axis(reached, both, axis=1)
        # Without labels both ends coincide and would count twice.
        second = place_beside(np.array([False, True]), home)
        ends = ops.where(ops.logical_or(second, ops.greater(last, 0)), ends, -np.inf)
    return ops.negative(ops.logsumexp(ends, 1))


def _forward_log_probabilities(x: Any, symbols: Any, input_steps: Any, blank: int) -> Any:
    """Log of the forward variable of each sample and symbol at its last time step."""
    times, samples, _ = x.shape
    width = symbols.shape[1]
    home = home_of(x)
    none = full_beside((samples, 2), -np.inf, x.dtype, home)
    emitted = ops.take_along_axis(x, ops.expand_dims(symbols, 0), axis=2)
    # Initial state: before the first symbol.
    start = np.where(np.arange(width) == 0, 0.0, -np.inf).astype(x.dtype)
    reached: Any = ops.broadcast_to(place_beside(start, home), (samples, width))
    # A label may directly follow a different label.
    far = ops.concatenate([full_beside((samples, 2), blank, symbols.dtype, home), symbols], axis=1)
    far = ops.getitem(far, (slice(None), slice(0, width)))
    may_skip = ops.logical_and(ops.not_equal(symbols, blank), ops.not_equal(symbols, far))
    for t in range(times):
        previous = ops.getitem(
            ops.concatenate([none, reached], axis=1), (slice(None), slice(0, -1))
        )
        one = ops.getitem(previous, (slice(None), slice(1, None)))
        paths = [reached, one]
        if t:  # skipping a blank needs a previous symbol
            paths.append(
                ops.where(may_skip, ops.getitem(previous, (slice(None), slice(0, -1))), -np.inf)
            )
        total = ops.logsumexp(ops.stack(paths), 0)
        advanced = ops.add(total, ops.getitem(emitted, t))
        if input_steps is not None:
            advanced = ops.where(ops.expand_dims(ops.greater(input_steps, t), 1), advanced, reached)
        reached = advanced
    return reached
