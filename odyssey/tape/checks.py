"""The careful mode of a tape: source lines, checksums, and the first value that is not finite."""

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


def _finite(operand: Any) -> bool:
    """The same of any operand: a number of Python's, or one that was left out."""
    if isinstance(operand, ARRAY_LIKE):
        return _all_finite(operand)
    return not isinstance(operand, (float, complex)) or isfinite(operand)


def _of_operands(row: Any, operands: Sequence[Any] | None) -> str:
    """Which operands were not finite to begin with, where they are known."""
    if operands is None:
        return ""
    named = zip(row.arrays, operands, strict=True)
    given = [name for name, operand in named if not _finite(operand)]
    if not given:
        return "; its operands are finite"
    were = "was" if len(given) == 1 else "were"
    return f"; its operand{'s' * (len(given) > 1)} {', '.join(given)} {were} not finite before"


class NodeChecks:
    """What a recording notes about each node when it is checked.

    Keyed by the negative of the output id: an object of its own, so that pruning does not take a
    note for somebody who still needs the node.
    """

    __slots__ = ("lines", "sums")

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.sums: dict[int, list[tuple[int, int]]] = {}

    def check(self, node: Any, data: Any, operands: Sequence[Any] | None = None) -> None:
        """Note a new node; raise if its value is not finite."""
        row, id, _, kept, _ = node
        self.lines[-id] = user_line()
        self.sums[-id] = [
            (k, _checksum(value)) for k, value in enumerate(kept) if isinstance(value, ARRAYS)
        ]
        if isinstance(data, ARRAY_LIKE) and not _all_finite(data):
            raise NonFiniteError(
                f"{row.name} at {self.line(id)} gave the first value that is not finite"
                f"{_of_operands(row, operands)}"
            )

    def verify(self, nodes: Any) -> None:
        """Raise if an array that a node saved changed since."""
        for row, id, _, kept, _ in nodes:
            for k, before in self.sums.get(-id, ()):
                if _checksum(kept[k]) != before:
                    name = row.layout.kept[k]
                    raise MutationError(
                        f"{row.name} at {self.line(id)} saved {name}, which was written to since; "
                        "pass a copy, or sweep before writing"
                    )

    def line(self, id: int) -> str:
        """Where the node with this output was recorded."""
        return self.lines.get(-id, "an unknown line")

    def forget_all_but(self, nodes: Any) -> None:
        """Drop the notes on nodes that were pruned."""
        alive = {-node[1] for node in nodes}
        self.lines = {key: line for key, line in self.lines.items() if key in alive}
        self.sums = {key: sums for key, sums in self.sums.items() if key in alive}

    def check_gradient(self, row: Any, id: int, name: str, g: Any) -> None:
        """Raise if the gradient that a rule computed is not finite."""
        if isinstance(g, ARRAY_LIKE) and not _all_finite(g):
            raise NonFiniteError(
                f"the gradient of {row.name} at {self.line(id)} with respect to {name} is the "
                "first that is not finite"
            )
