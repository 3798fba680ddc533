"""Argument checks, weighting and reduction of losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.autocasting import widened_half
from odyssey.checks import check_choice, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_floating
from odyssey.devices.same_device import host_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.spec import Array
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import Symbol, Value

__all__ = [
    "REDUCTIONS",
    "targets_like",
    "loss_operand",
    "count_targets",
    "float_operand",
    "concrete_array",
    "require_signs",
    "array_value",
    "reduce_losses",
    "require_same_shape",
]


REDUCTIONS = ("mean", "sum", "none")


def loss_operand(value: Any) -> Any:
    """Convert an array-like to an array; Variables and Symbols pass through."""
    if isinstance(value, (Value, Symbol)):
        return value
    return as_array("a loss", "an argument", value)


def float_operand(who: str, value: Any, real: bool = True) -> Any:
    """Convert to floating point, integers to float64; raise for complex if ``real``."""
    value = loss_operand(value)
    dtype = (value._spec if isinstance(value, Value) else value).dtype
    if is_floating(dtype) or (dtype.kind == "c" and not real):
        return widened_half(value)
    if dtype.kind == "c":
        raise DTypeError(
            f"{who}: complex numbers came, {format_value(value)}; this loss is of real ones: pass "
            "their real and imaginary parts one by one"
        )
    return value.astype(np.float64)


def targets_like(who: str, targets: Any, predictions: Any, real: bool = True) -> Any:
    """Cast integer or bool targets to the dtype of the predictions."""
    targets = loss_operand(targets)
    if targets.dtype.kind in "biu":
        return ops.astype(targets, predictions.dtype)
    return float_operand(who, targets, real)


def array_value(value: Any) -> Any:
    """Return the array of a Variable or array-like, or the Symbol of a traced value."""
    if isinstance(value, Value):
        value = value.data if store() is MEMORY else operand_of(value)  # type: ignore[attr-defined]
    return value if isinstance(value, Symbol) else as_array("a loss", "an argument", value)


def require_same_shape(who: str, predictions: Any, targets: Any) -> None:
    """Raise ShapeError if predictions and targets differ in shape."""
    if predictions.shape != targets.shape:
        raise ShapeError(
            f"{who}: predictions {predictions.shape} and targets {targets.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )


def reduce_losses(who: str, losses: Any, reduction: str, weights: Any, count: Any = None) -> Any:
    """Weight and reduce losses; a mean divides by ``count``, by default their number."""
    check_choice(who, "reduction", reduction, REDUCTIONS)
    if weights is not None:
        losses = _weigh_losses(who, losses, weights)
    if reduction == "none":
        return losses
    if reduction == "mean" and count is None:
        return ops.mean(losses)
    total = ops.sum(losses)
    if reduction == "sum":
        return total
    # A mean over no samples is NaN, but its gradient is 0.
    empty = ops.equal(count, 0)
    return ops.where(empty, np.nan, ops.divide(total, ops.where(empty, 1, count)))


def _weigh_losses(who: str, losses: Any, weights: Any) -> Any:
    try:
        return ops.multiply(losses, weights)
    except ShapeError:
        pass  # raised below, outside the except clause
    except DTypeError as error:
        raise DTypeError(f"{who}: weights: {error}") from None
    raise ShapeError(
        f"{who}: weights {np.shape(array_value(weights))} for losses {losses.shape}, with which "
        "they must broadcast; for weights of classes pass weights[targets]"
    )


def count_targets(targets: Any, ignore_index: int | None, like: Any) -> Any:
    """Return the number of class indices that are not ignored; a Symbol while tracing."""
    if ignore_index is None:
        return targets.size
    concrete = concrete_array(targets)
    if concrete is not None:
        return int(np.count_nonzero(concrete != ignore_index))
    return ops.sum(ops.astype(ops.not_equal(targets, ignore_index), like.dtype))


def concrete_array(value: Any) -> Array | None:
    """Return the values of an operand on the host, or None while tracing."""
    if store() is not MEMORY:
        return None
    numbers: Array = value.numpy() if isinstance(value, Value) else host_array(array_value(value))  # type: ignore[attr-defined]
    return numbers


def require_signs(who: str, targets: Any) -> Any:
    """Return targets unchanged; raise SettingError unless all are -1 or 1."""
    message = f"{who}: the targets must be -1 or 1; for 0 and 1 pass 2 * targets - 1"
    concrete = concrete_array(targets)
    if concrete is None:
        return demanded(targets, ops.equal(ops.absolute(targets), 1), message)
    if not np.all(np.abs(concrete) == 1):
        raise SettingError(message)
    return targets
