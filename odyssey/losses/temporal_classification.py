"""Losses of sequences whose labels have no places yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import flag, shown, whole
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.losses.declare import loss
from odyssey.losses.reduction import arrays, floating, known, plain, reduced
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.table.samples import reject, sample
from odyssey.table.value import Symbol

__all__ = ["ctc"]

_LABELS = np.array([[1, 2], [2, 2], [1, 0]])
_FEWER: dict[str, Any] = {
    "input_lengths": np.array([4, 3, 2]),
    "target_lengths": np.array([2, 2, 1]),
}


@loss(
    samples=[
        sample((4, 3, 3), _LABELS, reduction="none", **_FEWER),
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
    """Mean of minus the logarithm of how likely labels are, however they lie in time.

    A. Graves et al., Connectionist Temporal Classification, 2006: the sum over all ways to write
    the labels with repetitions and blanks between them, by a recursion in logarithms.

    Args:
        log_probs: Logarithms of the probabilities of classes, (times, samples, classes), as of
            ``log_softmax``; (times, classes) for one sample.
        targets: Numbers of the labels, (samples, labels), of which those beyond a sample's length
            count for nothing; or the labels of all samples one after the other, on one axis.
        input_lengths: How many times each sample has; by default all.
        target_lengths: How many labels each has; by default all.
        blank: The class that stands for no label.
        zero_infinity: Whether 0 stands for an infinite loss, that of more labels than fit.
        reduction: ``"mean"`` of the losses over their numbers of labels, at least 1; ``"sum"`` or
            ``"none"``.
        weights: Factors of the samples.

    Returns:
        The loss; infinite where labels do not fit, with a gradient of 0. Gradients are those of the
        loss in ``log_probs``, whatever they add up to; PyTorch's suppose a ``log_softmax`` before.

    Raises:
        ShapeError: for shapes, lengths and labels that do not fit. DTypeError: for labels and
        lengths that are no integers. SettingError: for a label that is the blank.

    >>> x = np.log(np.full((2, 1, 2), 0.5))
    >>> float(ctc(x, np.array([[1]])).round(6))  # three of four ways: 11, 01 and 10
    0.287682
    """
    x = floating("ctc", log_probs)
    lone = len(x.shape) == 2
    if len(x.shape) not in (2, 3):
        raise ShapeError(
            f"ctc: log_probs has shape {x.shape}; wanted are times, samples and classes, or times "
            "and classes"
        )
    if lone:
        x = ops.expand_dims(x, 1)
    times, samples, classes = x.shape
    blank = whole("ctc", "blank", blank)
    if not 0 <= blank < classes:
        raise ShapeError(f"ctc: blank={blank}, there are {classes} classes")
    flag("ctc", "zero_infinity", zero_infinity)
    given = _lengths("target_lengths", target_lengths, samples)
    labels, counts = _labels(targets, given, samples, lone, blank)
    labels = _own_labels(labels, counts, classes, blank)
    lasting = _lengths("input_lengths", input_lengths, samples)
    if lasting is not None:
        lasting = _up_to("input_lengths", lasting, times)
    losses = _negative_logarithms(x, labels, counts, lasting, blank)
    if zero_infinity:
        losses = ops.where(ops.isinf(losses), 0, losses)
    if isinstance(reduction, str) and reduction == "mean":
        most = labels.shape[1] if counts is None else counts
        losses = ops.divide(losses, ops.astype(ops.maximum(most, 1), x.dtype))
    return reduced("ctc", ops.reshape(losses, ()) if lone else losses, reduction, weights)


# ------------------------------------------------------------------ what came


def _whole_numbers(name: str, value: Any) -> Any:
    value = arrays(value)
    if value.dtype.kind not in "iu":
        raise DTypeError(f"ctc: {name} of {value.dtype}; pass integers")
    return value


def _lengths(name: str, value: Any, samples: int) -> Any:
    """A length for each sample, or None."""
    if value is None:
        return None
    value = _whole_numbers(name, value)
    if value.shape not in [(samples,), ()] or (value.shape == () and samples != 1):
        raise ShapeError(f"ctc: {name} of shape {value.shape} for {samples} samples; pass one each")
    return ops.reshape(value, (samples,))


def _up_to(name: str, value: Any, most: int) -> Any:
    """The same lengths, refused where one is negative or above the most."""
    found = known(value)
    if found is None:
        fits = ops.logical_and(ops.greater_equal(value, 0), ops.less_equal(value, most))
        return demanded(value, fits, f"ctc: {name} are not all from 0 to {most}")
    if found.size and (found.min() < 0 or found.max() > most):
        raise ShapeError(
            f"ctc: {name} lie in [{found.min()}, {found.max()}]; wanted are 0 to {most}"
        )
    return value


def _labels(targets: Any, counts: Any, samples: int, lone: bool, blank: int) -> tuple[Any, Any]:
    """The labels of each sample in a row, and how many are its own, or None for all."""
    targets = _whole_numbers("targets", targets)
    if lone and len(targets.shape) == 1:
        targets = ops.expand_dims(targets, 0)
    if len(targets.shape) == 1:
        targets = _parted(targets, counts, samples, blank)
    if len(targets.shape) != 2 or targets.shape[0] != samples:
        raise ShapeError(
            f"ctc: targets have shape {targets.shape} for {samples} samples; pass a row of labels "
            "for each"
        )
    if counts is not None:
        counts = _up_to("target_lengths", counts, targets.shape[1])
    return targets, counts


def _parted(targets: Any, counts: Any, samples: int, blank: int) -> Any:
    """Labels that came one after the other in rows, of which the ends are blank."""
    lengths = None if counts is None else plain(counts)
    if lengths is None or isinstance(lengths, Symbol):
        raise ShapeError(
            "ctc: labels of all samples on one axis want target_lengths, static in a graph; pass "
            "these, or a row of labels for each sample"
        )
    if lengths.min(initial=0) < 0 or lengths.sum() != targets.shape[0]:
        raise ShapeError(
            f"ctc: target_lengths {shown(lengths)} for {targets.shape[0]} labels on one axis; they "
            "add up to as many"
        )
    width = int(lengths.max(initial=0))
    own = np.arange(width) < lengths[:, None]
    places = np.where(own, np.cumsum(own).reshape(own.shape) - 1, 0)
    if not targets.shape[0]:
        return np.full((samples, width), blank)
    return ops.where(own, ops.take(targets, places), blank)


def _own_labels(labels: Any, counts: Any, classes: int, blank: int) -> Any:
    """The labels of each sample, blank beyond its length, refused where one is no class."""
    own: Any = np.ones(labels.shape, bool)
    if counts is not None:
        own = ops.less(np.arange(labels.shape[1]), ops.expand_dims(counts, 1))
    found = known(labels)
    if found is None:
        fits = ops.logical_and(ops.greater_equal(labels, 0), ops.less(labels, classes))
        fits = ops.logical_and(fits, ops.not_equal(labels, blank))
        message = f"ctc: a label is the blank, {blank}, or not one of {classes} classes"
        labels = demanded(labels, ops.logical_or(fits, ops.logical_not(own)), message)
        return ops.where(own, labels, blank)
    found = found[plain(own)]
    if found.size and (found.min() < 0 or found.max() >= classes):
        raise ShapeError(
            f"ctc: labels lie in [{found.min()}, {found.max()}], there are {classes} classes"
        )
    if (found == blank).any():
        raise SettingError(f"ctc: a label is {blank}, which is the blank; pass another blank=")
    return ops.where(own, labels, blank)


# ------------------------------------------------------------------ the recursion


def _negative_logarithms(x: Any, labels: Any, counts: Any, lasting: Any, blank: int) -> Any:
    """A loss for each sample: of paths through its labels, with blanks around each."""
    samples, most = labels.shape
    blanks = np.full((samples, most), blank, labels.dtype)
    pairs = ops.reshape(ops.stack([blanks, labels], axis=-1), (samples, 2 * most))
    signs = ops.concatenate([pairs, np.full((samples, 1), blank, labels.dtype)], axis=1)
    reached = _forward(x, signs, lasting, blank)
    if counts is None:
        ends = ops.getitem(reached, (slice(None), slice(-2, None)))
    else:
        last = ops.expand_dims(ops.multiply(counts, 2), 1)
        both = ops.concatenate([ops.maximum(ops.subtract(last, 1), 0), last], axis=1)
        ends = ops.take_along_axis(reached, both, axis=1)
        # Of no labels there is but one end, which would count twice.
        ends = ops.where(
            ops.logical_or(np.array([False, True]), ops.greater(last, 0)), ends, -np.inf
        )
    return ops.negative(ops.logsumexp(ends, 1))


def _forward(x: Any, signs: Any, lasting: Any, blank: int) -> Any:
    """For each sample and sign the logarithm of the sum over all ways to it, at its last time."""
    times, samples, _ = x.shape
    width = signs.shape[1]
    none = np.full((samples, 2), -np.inf, x.dtype)
    emitted = ops.take_along_axis(x, ops.expand_dims(signs, 0), axis=2)
    # Before the first time one stands before the first sign, or on it of no times.
    start = np.where(np.arange(width) == 0, 0.0, -np.inf).astype(x.dtype)
    reached: Any = np.broadcast_to(start, (samples, width))
    # A label may follow a label at once, but not one that is alike.
    far = ops.concatenate([np.full((samples, 2), blank, signs.dtype), signs], axis=1)
    far = ops.getitem(far, (slice(None), slice(0, width)))
    skips = ops.logical_and(ops.not_equal(signs, blank), ops.not_equal(signs, far))
    for t in range(times):
        behind = ops.getitem(ops.concatenate([none, reached], axis=1), (slice(None), slice(0, -1)))
        one = ops.getitem(behind, (slice(None), slice(1, None)))
        ways = [reached, one]
        if t:  # a label may follow at once; the first one has none before it
            ways.append(ops.where(skips, ops.getitem(behind, (slice(None), slice(0, -1))), -np.inf))
        total = ops.logsumexp(ops.stack(ways), 0)
        further = ops.add(total, ops.getitem(emitted, t))
        if lasting is not None:
            further = ops.where(ops.expand_dims(ops.greater(lasting, t), 1), further, reached)
        reached = further
    return reached
