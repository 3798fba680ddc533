"""Batches of examples, as the batch rules of rows see them.

A batch rule of a row is ``rule(batch, *arrays, *options)``. Each operand that ``batch.mapped``
names has the batch on axis 0, in front of the axes of one example; the others are those of all
examples. The rule returns the result of all examples, with the batch on axis 0; of an op with
several results a tuple of them. It is written with ops, so it is differentiated, traced and batched
as any function of ops. A rule of an op with a decomposition may return NotImplemented: the
decomposition then runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odyssey.table.value import NUMBERS

__all__ = ["BATCH_RULES", "Batch", "shift_axes"]

BATCH_RULES = ("leading", "along", "loop")
"""The names of batch rules that are derived; see ``vmap`` of ``op``."""


class Batch(NamedTuple):
    """The examples that a batch rule computes at once.

    Attributes:
        size: The number of examples.
        mapped: For each operand, whether it has the batch on axis 0.
    """

    size: int
    mapped: Sequence[bool]

    def ndim(self, k: int, x: Any) -> int:
        """Return the number of axes that operand ``k`` has in one example."""
        return 0 if x is None or type(x) in NUMBERS else len(x.shape) - self.mapped[k]


def shift_axes(axis: Any, ndim: int) -> Any:
    """Return axes of one example, with ``ndim`` axes, as axes behind the batch."""
    if isinstance(axis, (tuple, list)):
        return tuple([shift_axes(a, ndim) for a in axis])
    if not -ndim <= axis < ndim:
        return axis + 1 if axis >= 0 else axis - ndim - 1  # the op will name the example's axes
    return axis % ndim + 1
