"""Checks of ``GradientTape(check=True)``: source lines, checksums, first nonfinite value."""

from __future__ import annotations

import zlib
from cmath import isfinite
from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import user_line
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.errors import MutationError, NonFiniteError

__all__ = ["NodeChecks"]


def _checksum(array: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)


def _all_finite(array: Any) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def _is_finite(operand: Any) -> bool:
    """True if an operand is finite: an array, a Python number, or None for an absent one."""
    if isinstance(operand, ARRAY_LIKE):
        return _all_finite(operand)
    return not isinstance(operand, (float, complex)) or isfinite(operand)


def _nonfinite_operands(row: Any, operands: Sequence[Any] | None) -> str:
    """Describe which operands were not finite before the op, where they are known."""
    if operands is None:
        return ""
    named = zip(row.arrays, operands, strict=True)
    nonfinite = [name for name, operand in named if not _is_finite(operand)]
    if not nonfinite:
        return "; its operands are finite"
    were = "was" if len(nonfinite) == 1 else "were"
    return (
        f"; its operand{'s' * (len(nonfinite) > 1)} {', '.join(nonfinite)} {were} not finite before"
    )


class NodeChecks:
    """Notes on each node of a checked recording: its source line and checksums of its arrays.

    The keys are negated output ids. These are separate int objects, so a note does not count as a
    reference that keeps its node from being pruned.
    """

    __slots__ = ("lines", "sums")

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.sums: dict[int, list[tuple[int, int]]] = {}

    def check_node(self, node: Any, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Note a new node; raise NonFiniteError if its value is not finite."""
        row, id, _, kept, _ = node
        self.lines[-id] = user_line()
        self.sums[-id] = [
            (k, _checksum(value)) for k, value in enumerate(kept) if isinstance(value, ARRAYS)
        ]
        if isinstance(data, ARRAY_LIKE) and not _all_finite(data):
            raise NonFiniteError(
                f"{row.name} at {self.source_line(id)} gave the first value that is not finite"
                f"{_nonfinite_operands(row, operands)}"
            )

    def verify(self, nodes: Any) -> None:
        """Raise MutationError if an array that a node saved has changed."""
        for row, id, _, kept, _ in nodes:
            for k, before in self.sums.get(-id, ()):
                if _checksum(kept[k]) != before:
                    name = row.layout.kept[k]
                    raise MutationError(
                        f"{row.name} at {self.source_line(id)} saved {name}, which was written to "
                        "since; pass a copy, or sweep before writing"
                    )

    def source_line(self, id: int) -> str:
        """Return the source line at which the node with this output was recorded."""
        return self.lines.get(-id, "an unknown line")

    def keep_only(self, nodes: Any) -> None:
        """Drop the notes on nodes that were pruned."""
        alive = {-node[1] for node in nodes}
        self.lines = {key: line for key, line in self.lines.items() if key in alive}
        self.sums = {key: sums for key, sums in self.sums.items() if key in alive}

    def check_gradient(self, row: Any, id: int, name: str, g: Any) -> None:
        """Raise NonFiniteError if the gradient that a rule computed is not finite."""
        if isinstance(g, ARRAY_LIKE) and not _all_finite(g):
            raise NonFiniteError(
                f"the gradient of {row.name} at {self.source_line(id)} with respect to {name} is "
                "the first that is not finite"
            )
