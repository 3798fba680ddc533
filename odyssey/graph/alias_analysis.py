"""Alias analysis: which values of a trace show the array of a leaf, and writes to that array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odyssey.graph.graph import Graph
from odyssey.table.value import Symbol

__all__ = ["VIEWS", "AliasAnalysis"]

VIEWS = frozenset({"reshape", "transpose", "matrix_transpose", "broadcast_to"})
"""Rows whose result may be a view of their operand; the results of all others are new arrays."""


class _AliasedArray:
    """Array that a leaf holds in a run: the label of the leaf, and the number of writes to it."""

    __slots__ = ("label", "writes")

    def __init__(self, label: str) -> None:
        self.label, self.writes = label, 0


class AliasAnalysis:
    """Record of the values that are, or are views of, the array of a leaf.

    A trace gives each value the numbers that it has when it is computed. A program may compute it
    later, or find it overwritten, so a value that is read after a write to its array is refused.
    """

    def __init__(self, graph: Graph) -> None:
        """Start without values.

        Args:
            graph: Its ``eager_reason`` is set where a value is read after a write to its array.
        """
        self._graph = graph
        # By id of a value: the value, the array that it shows, and the writes before it.
        self._shown: dict[int, tuple[Any, _AliasedArray, int]] = {}
        self._arrays: dict[int, _AliasedArray] = {}  # by id of a leaf

    def note(self, leaf: Any, value: Any, label: str) -> None:
        """Record that a value is the array of a leaf, if nothing is recorded of it."""
        if isinstance(value, Symbol) and id(value) not in self._shown:
            array = self._arrays.setdefault(leaf._id, _AliasedArray(label))
            self._shown[id(value)] = value, array, array.writes

    def rebind(self, leaf: Any) -> None:
        """Record that a leaf gets a new array.

        Values that show the old array are not affected by writes to the new one.
        """
        self._arrays.pop(leaf._id, None)

    def write(self, leaf: Any) -> None:
        """Record a write to the array of a leaf, which affects all values that show it."""
        array = self._arrays.get(leaf._id)
        if array is not None:
            array.writes += 1

    def propagate(self, operands: Iterable[Any], result: Any) -> None:
        """Record that a result is a view of its operands."""
        for value in operands:
            shown = self._shown.get(id(value))
            if shown is not None:
                self._shown[id(result)] = result, *shown[1:]

    def check_reads(self, values: Iterable[Any]) -> None:
        """Note a value that is read after a write to its array: a run would read new numbers."""
        for value in values:
            shown = self._shown.get(id(value))
            if shown is not None and shown[1].writes != shown[2]:
                self._graph.eager_reason = self._graph.eager_reason or (
                    f"it writes to {shown[1].label}, of which it took the data before"
                )

    def clear(self) -> None:
        """Release the values."""
        self._shown.clear()
