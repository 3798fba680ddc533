"""What losses share: reading their arguments, weighing and folding."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import shown, word
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.spec import Array
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import Symbol, Value

__all__ = [
    "REDUCTIONS",
    "alike",
    "arrays",
    "counted",
    "floating",
    "known",
    "marked",
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


def floating(who: str, value: Any, real: bool = True) -> Any:
    """Floating numbers: whole ones become float64; complex ones are refused where ``real``."""
    value = arrays(value)
    kind = (value._spec if isinstance(value, Value) else value).dtype.kind
    if kind == "f" or (kind == "c" and not real):
        return value
    if kind == "c":
        raise DTypeError(
            f"{who}: complex numbers came, {shown(value)}; this loss is of real ones: pass their "
            "real and imaginary parts one by one"
        )
    return value.astype(np.float64)


def alike(who: str, targets: Any, predictions: Any, real: bool = True) -> Any:
    """Targets that are whole numbers or truth values, as numbers like the predictions."""
    targets = arrays(targets)
    if targets.dtype.kind in "biu":
        return ops.astype(targets, predictions.dtype)
    return floating(who, targets, real)


def plain(value: Any) -> Any:
    """The array of a Variable, or of anything like an array; of what is traced, a Symbol."""
    if isinstance(value, Value):
        value = value.numpy() if store() is MEMORY else operand_of(value)  # type: ignore[attr-defined]
    return value if isinstance(value, Symbol) else as_array("a loss", "an argument", value)


def same_shape(who: str, predictions: Any, targets: Any) -> None:
    """Refuse predictions and targets that would broadcast."""
    if predictions.shape != targets.shape:
        raise ShapeError(
            f"{who}: predictions {predictions.shape} and targets {targets.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )


def reduced(who: str, losses: Any, reduction: str, weights: Any, count: Any = None) -> Any:
    """Weigh the losses and fold them; a mean divides by ``count``, by default by how many."""
    word(who, "reduction", reduction, REDUCTIONS)
    if weights is not None:
        losses = _weighted(who, losses, weights)
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


def _weighted(who: str, losses: Any, weights: Any) -> Any:
    try:
        return ops.multiply(losses, weights)
    except ShapeError:
        pass  # told below, behind the clause
    except DTypeError as error:
        raise DTypeError(f"{who}: weights: {error}") from None
    raise ShapeError(
        f"{who}: weights {np.shape(plain(weights))} for losses {losses.shape}, with which they "
        "must broadcast; for weights of classes pass weights[targets]"
    )


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


def marked(who: str, targets: Any) -> Any:
    """Targets that are -1 or 1, as they came; refuse others."""
    message = f"{who}: the targets must be -1 or 1; for 0 and 1 pass 2 * targets - 1"
    found = known(targets)
    if found is None:
        return demanded(targets, ops.equal(ops.absolute(targets), 1), message)
    if not np.all(np.abs(found) == 1):
        raise SettingError(message)
    return targets
