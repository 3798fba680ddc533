"""What losses share: reading their arguments, weighing and folding."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import shown
from odyssey.devices.arrays import as_array
from odyssey.errors import SettingError, ShapeError
from odyssey.spec import Array
from odyssey.table.store import MEMORY, store
from odyssey.table.value import Symbol, Value

__all__ = [
    "REDUCTIONS",
    "alike",
    "arrays",
    "check_reduction",
    "counted",
    "floating",
    "known",
    "plain",
    "reduced",
    "same_shape",
]


REDUCTIONS = ("mean", "sum", "none")


def arrays(value: Any) -> Any:
    """Variables and Symbols as they are, the rest as arrays."""
    if isinstance(value, (Value, Symbol)):
        return value
    return as_array("a loss", "an argument", value)


def floating(value: Any) -> Any:
    """Floating numbers: integers and lists become float64, the rest passes."""
    value = arrays(value)
    dtype = value._spec.dtype if isinstance(value, Value) else value.dtype
    return value.astype(np.float64) if dtype.kind in "biu" else value


def alike(targets: Any, predictions: Any) -> Any:
    """Targets that are whole numbers or truth values, as numbers like the predictions."""
    targets = arrays(targets)
    return ops.astype(targets, predictions.dtype) if targets.dtype.kind in "biu" else targets


def plain(value: Any) -> Any:
    """The array of a Variable, or of anything like an array."""
    return as_array("a loss", "an argument", value.numpy() if isinstance(value, Value) else value)  # type: ignore[attr-defined]


def same_shape(who: str, predictions: Any, targets: Any) -> None:
    """Refuse predictions and targets that would broadcast."""
    if predictions.shape != targets.shape:
        raise ShapeError(
            f"{who}: predictions {predictions.shape} and targets {targets.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise SettingError(f"reduction={shown(reduction)}; choose 'mean', 'sum' or 'none'")


def reduced(losses: Any, reduction: str, weights: Any, count: Any = None) -> Any:
    """Weigh the losses and fold them; a mean divides by ``count``, by default by how many."""
    check_reduction(reduction)
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
    empty = ops.equal(count, 0)
    return ops.where(empty, np.nan, ops.divide(total, ops.where(empty, 1, count)))


def counted(targets: Any, ignore_index: int | None, like: Any) -> Any:
    """How many class numbers are not ignored; while a graph is traced, a number of that graph."""
    if ignore_index is None:
        return targets.size
    found = known(targets)
    if found is not None:
        return int(np.count_nonzero(found != ignore_index))
    return ops.sum(ops.astype(ops.not_equal(targets, ignore_index), like.dtype))


def known(value: Any) -> Array | None:
    """The array of a value, where it can be looked at: not while a graph is traced."""
    return plain(value) if store() is MEMORY else None
