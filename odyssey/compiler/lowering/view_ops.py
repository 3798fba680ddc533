"""Verbs of ``native`` for the same elements, seen in another way or joined to a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import Node, Nodes, type_of
from odyssey.spec import Shape
from odyssey.table.value import Symbol

__all__ = ["Seeing"]


class Seeing:
    """Verbs that move elements, and compute nothing."""

    nodes: Nodes
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]

    def reshape(self, x: Any, shape: Shape) -> Symbol:
        """The elements in row-major order, in another shape."""
        return self.symbol(self.nodes.reshape(self.node(x), shape))

    def transpose(self, x: Any, axes: Iterable[int]) -> Symbol:
        """The axes in another order."""
        return self.symbol(self.nodes.transpose(self.node(x), axes))

    def broadcast(self, x: Any, shape: Shape) -> Symbol:
        """Repeated to a shape."""
        return self.symbol(self.nodes.broadcast(self.node(x), shape))

    def part(self, x: Any, key: Any) -> Symbol:
        """The elements at an index of slices, whole numbers, None and Ellipsis."""
        key = key if isinstance(key, tuple) else (key,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        return self.symbol(self.nodes.part(self.node(x), key))

    def windows(self, x: Any, window: Shape, stride: Shape, dilation: Shape) -> Symbol:
        """Windows that slide over the last axes: their elements, and then their places."""
        return self.symbol(self.nodes.windows(self.node(x), window, stride, dilation))

    def join(self, parts: Sequence[tuple[Any, Any]], shape: Shape, dtype: Any) -> Symbol:
        """An array of parts, each at a key of slices and whole numbers; 0 elsewhere.

        No place may be in two of them.
        """
        found = [
            (self.node(part), key if isinstance(key, tuple) else (key,)) for part, key in parts
        ]
        return self.symbol(self.nodes.join(found, shape, type_of(dtype)))

    def index(self, shape: Shape, axis: int) -> Symbol:
        """The index along an axis, at each element of a shape."""
        return self.symbol(self.nodes.index(shape, axis))
