"""Which values of a trace show the array of a leaf, and so what is written to that later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from odyssey.devices.ownership import copy_with_layout, is_referenced_elsewhere
from odyssey.graph.traced_array import TracedArray
from odyssey.table.value import Symbol

__all__ = ["VIEWS", "AliasAnalysis"]

VIEWS = frozenset({"reshape", "transpose", "matrix_transpose", "broadcast_to"})
"""Rows whose result may lie in the memory of their operand; all others make arrays."""


class _AliasedArray:
    """Array that a leaf holds in a run: its name, and its number of writes."""

    __slots__ = ("label", "writes")

    def __init__(self, label: str) -> None:
        self.label, self.writes = label, 0


class AliasAnalysis:
    """The part of a trace that knows whose array a value is, or a view of."""

    only_eagerly: Callable[[str], None]
    read: Callable[[Any], Any]
    _current: dict[int, Any]
    _constants: dict[Any, tuple[Any, Any]]

    def _begin_showing(self) -> None:
        # By id of a value, itself, the array that it shows, and what was written to that before.
        self._shown: dict[int, tuple[Any, _AliasedArray, int]] = {}
        self._held: dict[int, _AliasedArray] = {}  # by id of a leaf

    def copied(self, variable: Any) -> Any:
        """Return an equal value that aliases no Variable."""
        data, trace = self.read(variable), cast(Any, self)
        symbol = isinstance(data, Symbol)
        return TracedArray(data.spec, trace, data.id) if symbol else copy_with_layout(data)

    def _hold(self, leaf: Any, value: Any, label: str) -> None:
        """Note that a value shows what a leaf holds, if nothing is known of it."""
        if isinstance(value, Symbol) and id(value) not in self._shown:
            array = self._held.setdefault(leaf._id, _AliasedArray(label))
            self._shown[id(value)] = value, array, array.writes

    def _hold_another(self, leaf: Any) -> bool:
        """Note that a leaf gets another array; return whether that of before was written to.

        Who shows the one of before sees nothing of what is written to the other.
        """
        array = self._held.pop(leaf._id, None)
        return array is not None and array.writes > 0

    def _write_over(self, leaf: Any) -> None:
        """Note a write to what a leaf holds, which all see that show it."""
        array = self._held.get(leaf._id)
        if array is not None:
            array.writes += 1
        box = [self._current.get(leaf._id, leaf._array)]
        # Known numbers: who has them, or a view of them, is not asked again.
        known = sum(one is box[0] for one, _ in self._constants.values())
        if is_referenced_elsewhere(box, 0, 1 + known):
            self.only_eagerly("it writes to an array that it has, or has a view of")

    def _show_too(self, operands: Iterable[Any], result: Any) -> None:
        """Note that a result shows what an operand does."""
        for value in operands:
            known = self._shown.get(id(value))
            if known is not None:
                self._shown[id(result)] = result, *known[1:]

    def _look_back(self, values: Iterable[Any]) -> None:
        """Note where a value is used behind a write to what it shows: a run finds new numbers."""
        for value in values:
            known = self._shown.get(id(value))
            if known is not None and known[1].writes != known[2]:
                self.only_eagerly(
                    f"it writes to {known[1].label}, of which it took the data before"
                )
