"""Summary of a tree: a table of its arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.table.value import Value, is_trainable
from odyssey.tree import paths

__all__ = ["Summary", "SummaryRow", "summary"]


class SummaryRow(NamedTuple):
    """One array of a tree."""

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    trainable: bool


class Summary(tuple[SummaryRow, ...]):
    """The arrays of a tree, as a tuple of rows that prints a table.

    Attributes:
        size: The number of elements of all arrays.
        bytes: Their memory; an array that stands in several positions counts once.
        trainable: The number of elements of trainable Variables.
    """

    size: int
    bytes: int
    trainable: int

    def __repr__(self) -> str:
        head = ("", "shape", "dtype", "elements", "bytes", "")
        lines = [
            (
                row.path + (f" {row.name}" if row.name else ""),
                str(row.shape),
                row.dtype,
                f"{math.prod(row.shape):,}",
                f"{row.bytes:,}",
                "" if row.trainable else "constant",
            )
            for row in self
        ]
        total = ("total", "", "", f"{self.size:,}", f"{self.bytes:,}", "")
        rows = [head, *lines, total]
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        text = [
            "  ".join(
                cell.rjust(width) if k in (3, 4) else cell.ljust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*text, f"{self.trainable:,} elements are trainable"])


def summary(tree: Any) -> Summary:
    """Summarize the arrays of a tree: names, shapes, dtypes and bytes.

    Args:
        tree: Variables and arrays in any tree; other leaves are left out.

    Returns:
        A tuple of ``SummaryRow``, in order, that prints a table.

    >>> import numpy as np
    >>> import odyssey as od
    >>> w = od.Variable(np.zeros((3, 2)), requires_grad=True, name="weight")
    >>> od.summary({"w": w, "mean": np.zeros(2, np.float32)})
                  shape   dtype    elements  bytes
    ['w'] weight  (3, 2)  float64         6     48
    ['mean']      (2,)    float32         2      8  constant
    total                                 8     56
    6 elements are trainable
    """
    rows, sizes, own = [], {}, 0
    for path, leaf in paths(tree):
        if not isinstance(leaf, (Value, *ARRAY_LIKE)):
            continue
        moves = isinstance(leaf, Value) and is_trainable(leaf)
        name = getattr(leaf, "name", None) if isinstance(leaf, Value) else None
        count = math.prod(leaf.shape)
        memory = count * leaf.dtype.itemsize
        row = SummaryRow(
            path or "tree", name or "", tuple(leaf.shape), str(leaf.dtype), memory, moves
        )
        rows.append(row)
        if id(leaf) not in sizes:
            own += count if moves else 0
        sizes[id(leaf)] = count, memory
    found = Summary(rows)
    found.size = sum(count for count, _ in sizes.values())
    found.bytes = sum(memory for _, memory in sizes.values())
    found.trainable = own
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
