"""Gradients of losses without a tape: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey import ops
from odyssey.checks import check_choice, check_flag, format_value
from odyssey.devices.arrays import ARRAYS, DEVICE_TYPES
from odyssey.devices.same_device import call_beside, ones_beside
from odyssey.errors import SettingError
from odyssey.losses.classification import binary_cross_entropy, cross_entropy
from odyssey.losses.reduction import REDUCTIONS, array_value, float_operand, require_same_shape
from odyssey.losses.regression import mean_squared_error
from odyssey.ops.structure.unbroadcast import unbroadcast
from odyssey.spec import Array, Spec
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import Symbol

__all__ = [
    "LossAndGrad",
    "bce_loss_and_grad",
    "ce_loss_and_grad",
    "compute_bce_gradient",
    "compute_ce_gradient",
    "compute_gradient",
    "compute_mse_gradient",
    "mse_loss_and_grad",
]


class LossAndGrad(NamedTuple):
    """A loss and its gradient with respect to the predictions."""

    loss: Any
    grad: Array


def compute_mse_gradient(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> Array:
    """Gradient of ``mean_squared_error`` with respect to the predictions, as an array.

    >>> compute_mse_gradient(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    array([ 0., -2.])
    """
    predictions, targets = (
        float_operand("compute_mse_gradient", array_value(predictions)),
        float_operand("compute_mse_gradient", array_value(targets)),
    )
    require_same_shape("compute_mse_gradient", predictions, targets)

    def compute() -> Array:
        scale = _gradient_scale("compute_mse_gradient", predictions, reduction, weights)
        # The rule of square gives the same in 20 percent more time.
        return _as_gradient(2 * (predictions - targets) * scale, predictions)

    return _compute_beside(predictions, compute)


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
    predictions, targets = (
        float_operand("compute_bce_gradient", array_value(predictions)),
        float_operand("compute_bce_gradient", array_value(targets)),
    )
    require_same_shape("compute_bce_gradient", predictions, targets)
    from_logits = check_flag("compute_bce_gradient", "from_logits", from_logits)
    row = ops.binary_entropy_with_logits if from_logits else ops.binary_entropy
    rule = next(iter(row.row.vjp.values()))  # type: ignore[attr-defined]

    def compute() -> Array:
        scale = _gradient_scale("compute_bce_gradient", predictions, reduction, weights)
        return _as_gradient(rule(scale, predictions, targets), predictions)

    return _compute_beside(predictions, compute)


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
    logits, targets = (
        float_operand("compute_ce_gradient", array_value(logits)),
        array_value(targets),
    )
    check_choice("compute_ce_gradient", "reduction", reduction, REDUCTIONS)
    slope = ops.softmax_cross_entropy_slope(
        logits, targets, axis, label_smoothing, ignore_index, reduction
    )
    if weights is not None:
        (class_axis,) = normalize_axes("compute_ce_gradient", axis, slope.ndim)
        wide = ops.broadcast_to(
            array_value(weights), slope.shape[:class_axis] + slope.shape[class_axis + 1 :]
        )
        slope = ops.multiply(slope, ops.expand_dims(wide, class_axis))
    return _compute_beside(logits, lambda: _as_gradient(slope, logits))


def compute_gradient(predictions: Any, targets: Any, loss: str = "mse") -> Array:
    """Gradient of a loss by name, ``"mse"``, ``"bce"`` or ``"ce"``, averaged over all elements."""
    functions: dict[str, Callable[..., Array]] = {
        "mse": compute_mse_gradient,
        "bce": compute_bce_gradient,
        "ce": compute_ce_gradient,
    }
    if not isinstance(loss, str) or loss not in functions:
        raise SettingError(
            f"compute_gradient: loss={format_value(loss)}; choose one of {', '.join(functions)}"
        )
    return functions[loss](predictions, targets)


def mse_loss_and_grad(
    predictions: Any, targets: Any, *, reduction: str = "mean", weights: Any = None
) -> LossAndGrad:
    """``mean_squared_error`` and its gradient; same options."""
    options: Any = {"reduction": reduction, "weights": weights}
    loss = mean_squared_error(array_value(predictions), array_value(targets), **options)
    return LossAndGrad(loss, compute_mse_gradient(predictions, targets, **options))


def bce_loss_and_grad(
    predictions: Any,
    targets: Any,
    *,
    from_logits: bool = False,
    reduction: str = "mean",
    weights: Any = None,
) -> LossAndGrad:
    """``binary_cross_entropy`` and its gradient; same options."""
    options: Any = {"from_logits": from_logits, "reduction": reduction, "weights": weights}
    loss = binary_cross_entropy(array_value(predictions), array_value(targets), **options)
    return LossAndGrad(loss, compute_bce_gradient(predictions, targets, **options))


def ce_loss_and_grad(
    logits: Any,
    targets: Any,
    *,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
    weights: Any = None,
) -> LossAndGrad:
    """``cross_entropy`` and its gradient; same options."""
    options: Any = {
        "axis": axis,
        "label_smoothing": label_smoothing,
        "ignore_index": ignore_index,
        "reduction": reduction,
        "weights": weights,
    }
    loss = cross_entropy(array_value(logits), array_value(targets), **options)
    return LossAndGrad(loss, compute_ce_gradient(logits, targets, **options))


# ------------------------------------------------------------------ helpers


def _compute_beside(x: Any, compute: Callable[[], Array]) -> Array:
    """Call a function of plain arithmetic on the device of an array."""
    made: Array = call_beside(x, compute) if DEVICE_TYPES else compute()
    return made


def _gradient_scale(who: str, predictions: Any, reduction: str, weights: Any) -> Any:
    """Return the factor of each elementwise derivative from reduction and weights."""
    check_choice(who, "reduction", reduction, REDUCTIONS)
    one = ones_beside(predictions, predictions)
    if reduction == "mean":
        one = one / max(predictions.size, 1)
    return one if weights is None else ops.multiply(one, array_value(weights))


def _as_gradient(g: Any, predictions: Any) -> Array:
    """Return a gradient as an array of the shape and dtype of the predictions, or a Symbol."""
    g = g if isinstance(g, (Symbol, *ARRAYS)) else np.asarray(g)
    answer: Array = unbroadcast(g, Spec(predictions.shape, predictions.dtype))
    return answer if isinstance(answer, (Symbol, *ARRAYS)) else np.asarray(answer)


def __dir__() -> list[str]:
    return sorted(__all__)
