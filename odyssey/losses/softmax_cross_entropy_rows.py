"""Cross entropy in the commonest case: rows of logits, and for each row the number of its class."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.checks import word
from odyssey.ops.reductions.reduce import divide_by_size, mean_loss, row_sums
from odyssey.spec import Spec

__all__ = [
    "compiled_losses",
    "folded_losses",
    "losses_of",
    "row_starts",
    "rows_fill_vectors",
    "rows_of_classes",
    "slope_of",
]


def row_starts(
    logits: Any, targets: Any, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """In the commonest case where the rows of ``logits`` start in memory, in all others None.

    That is a matrix of logits with one class number for each row, and nothing else.
    """
    if (
        smoothing != 0
        or ignore_index is not None
        or getattr(logits, "ndim", 0) != 2
        or targets.ndim != 1
        or (axis != -1 and axis != 1)
        or logits.dtype.char not in "efd"
        or targets.dtype != np.int64
        or not logits.flags.c_contiguous
    ):
        return None
    rows, classes = logits.shape
    if not rows == len(targets) > 0:
        return None
    # As unsigned numbers negative ones are too large as well: one search finds both. Looking up
    # where the largest is takes half the time of asking for it.
    numbers = targets.view(np.uint64)
    if numbers.item(numbers.argmax()) >= classes:
        return None
    return (_starts if rows <= 4096 else _starts.__wrapped__)(rows, classes)


@lru_cache(maxsize=64)
def _starts(rows: int, classes: int) -> Any:
    return np.arange(rows) * classes


def losses_of(logits: Any, targets: Any, starts: Any) -> tuple[Any, tuple[Any, Any, Any]]:
    """The loss of each row; and exponentials, their sums, and where the targets lie among them."""
    # Looking the largest up by its index takes a third of the time of np.max along short rows.
    largest = logits.ravel()[starts + logits.argmax(1)]
    z = logits - largest.reshape(-1, 1)
    places = starts + targets
    chosen = z.ravel()[places]
    if z.dtype.char == "e":  # whose sums stop growing at 2048, and end at 65504
        sums = np.add.reduce(np.exp(z, z), 1, np.float32)
        return (np.log(sums) - chosen).astype(z.dtype), (z, sums, places)
    sums = row_sums(np.exp(z, z))
    return np.log(sums) - chosen, (z, sums, places)


def rows_of_classes(
    logits: Spec, targets: Spec, axis: int, smoothing: float, ignore_index: Any, reduction: str
) -> bool:
    """Whether ``row_starts`` may find the commonest case, in a dtype that loops know."""
    plain = smoothing == 0 and ignore_index is None and axis in (-1, 1)
    shapes = len(logits.shape) == 2 and targets.shape == logits.shape[:1] and logits.size > 0
    return plain and shapes and logits.dtype.char in "fd" and targets.dtype == np.int64


def rows_fill_vectors(logits: Spec, *_: Any) -> bool:
    """Whether loops over rows of so many classes are faster than NumPy.

    Of few, it takes .5 to .9 of their time within the caches, and for the fewest beyond them.
    """
    classes, within = logits.shape[1], logits.size < 1 << 18
    return classes >= (32 if logits.dtype.char == "d" else 16) or (classes >= 8 and not within)


def compiled_losses(
    logits: Any, targets: Any, axis: int, smoothing: float, ignore_index: Any, reduction: str
) -> tuple[Any, Any] | None:
    """``_with_exponentials`` by a loop over rows; None where a class number is none."""
    from odyssey.kernels.softmax_rows import cross_entropy_rows

    logits = np.ascontiguousarray(logits)
    starts = row_starts(logits, targets, axis, smoothing, ignore_index)
    if starts is None:
        return None
    exponentials = np.empty_like(logits)
    sums, losses = np.empty((2, len(logits)), logits.dtype)
    cross_entropy_rows(logits, targets, exponentials, sums, losses)
    return folded_losses(losses, reduction), (exponentials, sums, starts + targets)


def folded_losses(losses: Any, reduction: str) -> Any:
    """The losses of all rows, summed or averaged where that is meant."""
    if reduction == "mean":
        return mean_loss(losses, len(losses))
    word("cross_entropy", "reduction", reduction, ("mean", "sum", "none"))
    return losses if reduction == "none" else np.add.reduce(losses)


def slope_of(exponentials: Any, sums: Any, places: Any, reduction: str) -> Any:
    """Softmax less the target's 1 at flat places, over the number of rows for a mean."""
    n = len(sums) if reduction == "mean" else 1
    if exponentials.dtype.char == "e":  # which may not have so large a number as sums * n
        slope = divide_by_size(exponentials / sums.reshape(-1, 1), n).astype(exponentials.dtype)
    else:
        slope = exponentials / (sums * n).reshape(-1, 1)
    flat = slope.ravel()
    flat.put(places, flat[places] - 1 / n)
    return slope
