"""Losses, and their gradients for loops without a tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey import ops
from odyssey.errors import OdysseyError, ShapeError
from odyssey.ops.fit import fit
from odyssey.ops.values import Value
from odyssey.spec import Array, Spec

__all__ = [
    "LossAndGrad",
    "bce_loss_and_grad",
    "binary_cross_entropy",
    "ce_loss_and_grad",
    "compute_bce_gradient",
    "compute_ce_gradient",
    "compute_gradient",
    "compute_mse_gradient",
    "cross_entropy",
    "mean_squared_error",
    "mse_loss_and_grad",
]


class LossAndGrad(NamedTuple):
    """A loss and its gradient with respect to the predictions."""

    loss: Any
    grad: Array


def mean_squared_error(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Any:
    """Mean of the squared differences, ``mean((predictions - targets)**2)``.

    Args:
        predictions: Real array or Variable of any shape.
        targets: Array or Variable of the same shape.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weights: Factors that broadcast against the unreduced loss.

    Raises:
        ShapeError: when the shapes differ.

    >>> float(mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    2.0
    """
    predictions, targets = _floating(predictions), _floating(targets)
    if reduction == "mean" and weights is None:
        return ops.squared_error_mean(predictions, targets)
    _same_shape("mean_squared_error", predictions, targets)
    losses = ops.square(ops.subtract(predictions, targets))
    return _reduced(losses, reduction, weights)


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
    predictions, targets = _floating(predictions), _floating(targets)
    _same_shape("binary_cross_entropy", predictions, targets)
    row = ops.binary_entropy_with_logits if from_logits else ops.binary_entropy
    return _reduced(row(predictions, targets), reduction, weights)


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
    logits, targets = _floating(logits), _arrays(targets)
    _check_reduction(reduction)
    options = (axis, label_smoothing, ignore_index)
    if weights is None:
        return ops.softmax_cross_entropy(logits, targets, *options, reduction)
    losses = ops.softmax_cross_entropy(logits, targets, *options, "none")
    count = losses.size
    if ignore_index is not None and targets.shape == losses.shape:
        plain = targets._data if isinstance(targets, Value) else targets
        count = int(np.count_nonzero(plain != ignore_index))
    return _reduced(losses, reduction, weights, count)


# ------------------------------------------------------------------ gradients without a tape


def compute_mse_gradient(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Array:
    """Gradient of ``mean_squared_error`` with respect to the predictions, as an array.

    >>> compute_mse_gradient(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array([ 0., -2.])
    """
    predictions, targets = _floating(_plain(predictions)), _floating(_plain(targets))
    _same_shape("compute_mse_gradient", predictions, targets)
    scale = _scale(predictions, reduction, weights)
    return _answer(2 * (predictions - targets) * scale, predictions)


def compute_bce_gradient(
    predictions: Any,
    targets: Any,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> Array:
    """Gradient of ``binary_cross_entropy`` with respect to the predictions, as an array.

    >>> compute_bce_gradient(np.array([0.5, 0.5]), np.array([0.0, 1.0]))
    array([ 1., -1.])
    """
    predictions, targets = _floating(_plain(predictions)), _floating(_plain(targets))
    _same_shape("compute_bce_gradient", predictions, targets)
    row = ops.binary_entropy_with_logits if from_logits else ops.binary_entropy
    rule = next(iter(row.row.vjp.values()))  # type: ignore[attr-defined]
    scale = _scale(predictions, reduction, weights)
    return _answer(rule(scale, predictions, targets), predictions)


def compute_ce_gradient(
    logits: Any,
    targets: Any,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Any = None,
) -> Array:
    """Gradient of ``cross_entropy`` with respect to the logits: softmax minus target.

    >>> compute_ce_gradient(np.zeros((1, 2)), np.array([1]))
    array([[ 0.5, -0.5]])
    """
    logits, targets = _floating(_plain(logits)), _plain(targets)
    _check_reduction(reduction)
    slope = ops.softmax_cross_entropy_slope(
        logits, targets, axis, label_smoothing, ignore_index, reduction
    )
    if weights is not None:
        slope = slope * np.expand_dims(np.broadcast_to(weights, _without(slope, axis)), axis)
    return _answer(slope, logits)


def compute_gradient(predictions: Any, targets: Any, loss: str = "mse") -> Array:
    """Gradient of a loss by name, ``"mse"``, ``"bce"`` or ``"ce"``, averaged over all elements."""
    functions: dict[str, Callable[..., Array]] = {
        "mse": compute_mse_gradient,
        "bce": compute_bce_gradient,
        "ce": compute_ce_gradient,
    }
    if loss not in functions:
        raise OdysseyError(f"compute_gradient: loss={loss!r}; choose one of {', '.join(functions)}")
    return functions[loss](predictions, targets)


def mse_loss_and_grad(predictions: Any, targets: Any, **options: Any) -> LossAndGrad:
    """``mean_squared_error`` and its gradient; same options."""
    loss = mean_squared_error(_plain(predictions), _plain(targets), **options)
    return LossAndGrad(loss, compute_mse_gradient(predictions, targets, **options))


def bce_loss_and_grad(predictions: Any, targets: Any, **options: Any) -> LossAndGrad:
    """``binary_cross_entropy`` and its gradient; same options."""
    loss = binary_cross_entropy(_plain(predictions), _plain(targets), **options)
    return LossAndGrad(loss, compute_bce_gradient(predictions, targets, **options))


def ce_loss_and_grad(logits: Any, targets: Any, **options: Any) -> LossAndGrad:
    """``cross_entropy`` and its gradient; same options."""
    loss = cross_entropy(_plain(logits), _plain(targets), **options)
    return LossAndGrad(loss, compute_ce_gradient(logits, targets, **options))


# ------------------------------------------------------------------ shared pieces


def _arrays(value: Any) -> Any:
    return value if hasattr(value, "dtype") else np.asarray(value)


def _floating(value: Any) -> Any:
    """Numbers with a point: integers and lists become float64, the rest passes."""
    value = _arrays(value)
    return value.astype(np.float64) if value.dtype.kind in "biu" else value


def _plain(value: Any) -> Any:
    return np.asarray(value.numpy() if isinstance(value, Value) else value)  # type: ignore[attr-defined]


def _same_shape(who: str, predictions: Any, targets: Any) -> None:
    if predictions.shape != targets.shape:
        raise ShapeError(
            f"{who}: predictions {predictions.shape} and targets {targets.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise OdysseyError(f"reduction={reduction!r}; choose 'mean', 'sum' or 'none'")


def _reduced(losses: Any, reduction: str, weights: Any, count: int | None = None) -> Any:
    _check_reduction(reduction)
    if weights is not None:
        losses = ops.multiply(losses, weights)
    if reduction == "none":
        return losses
    if reduction == "mean" and count is None:
        return ops.mean(losses)
    total = ops.sum(losses)
    if reduction == "sum":
        return total
    # A mean over nothing is NaN, but no element has a part in it: their gradient is 0.
    return ops.divide(total, count) if count else ops.add(ops.multiply(total, 0.0), np.nan)


def _scale(predictions: Any, reduction: str, weights: Any) -> Any:
    """What the reduction and the weights multiply each element's derivative by."""
    _check_reduction(reduction)
    one = np.ones(predictions.shape, predictions.dtype)
    if reduction == "mean":
        one = one / max(predictions.size, 1)
    return one if weights is None else one * weights


def _without(array: Any, axis: int) -> tuple[int, ...]:
    return tuple(n for k, n in enumerate(array.shape) if k != axis % array.ndim)


def _answer(g: Any, predictions: Any) -> Array:
    answer: Array = np.asarray(fit(np.asarray(g), Spec(predictions.shape, predictions.dtype)))
    return answer
