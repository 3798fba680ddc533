"""Verbs of ``native`` for what reads, writes and goes along axes by indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.compiler.ir.nodes import Node, Nodes, meaning
from odyssey.kernels import T, select
from odyssey.spec import Shape
from odyssey.table.value import Symbol

__all__ = ["Placing"]


def _wrapped(i: Any, n: Any) -> Any:
    return select(i < T(0), i + n, i)


class Placing:
    """Verbs that read and write at places."""

    nodes: Nodes
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]
    require: Callable[[Any], None]
    cast: Callable[[Any, Any], Symbol]
    elementwise: Callable[..., Symbol]
    index: Callable[[Shape, int], Symbol]

    def place(self, index: Any, length: int, mode: str = "wrap") -> Any:
        """An index along an axis as a number from 0 to ``length`` - 1, of int64.

        Args:
            index: Whole numbers of any dtype.
            length: Of the axis.
            mode: What is wanted of the numbers. ``wrap``, that there are such places, where
                negative ones count from the end; ``front``, that there are, and none is negative;
                ``clip`` and ``remainder`` take any number, to the nearest and around.
        """
        node = self.node(index)
        if not node.size:
            return self.cast(index, np.int64)
        known = node.work if node.kind == "leaf" and node.detail[0] == "constant" else None
        if known is not None and mode == "wrap" and -length <= known.min() <= known.max() < length:
            # What is known now needs no look when the program runs.
            known = known.astype(np.int64)
            return self.symbol(self.node(np.where(known < 0, known + length, known)))
        if mode in ("wrap", "front"):
            self._require_within(node, 0 if mode == "front" else -length, length)
        found = self.cast(index, np.int64)
        if mode == "wrap" and node.type[0] == "i":
            return self.elementwise(_wrapped, found, length)
        if mode == "clip":
            return self.elementwise(
                lambda i, n: select(i < T(0), T(0), select(i < n, i, n - T(1))), found, length
            )
        return self.elementwise(lambda i, n: i % n, found, length) if mode == "remainder" else found

    def _require_within(self, node: Node, low: int, high: int) -> None:
        """Let a program run only where whole numbers are from ``low`` to below ``high``."""
        kind = "u8" if node.type == "u8" else "i8"
        x = self.nodes.cast(node, kind)
        least, most = (self.nodes.number(n, kind) for n in (0 if kind == "u8" else low, high))
        means = meaning(lambda x, low, high: (x >= low) & (x < high), 3, (), kind)
        self.require(self.symbol(self.nodes.map(means, [x, least, most], x.shape, "b1")))

    def gather(self, x: Any, places: Sequence[Any]) -> Symbol:
        """The elements at places along each axis, which broadcast to the shape of the result.

        Args:
            x: An array.
            places: For each of its axes what ``place`` or ``index`` gives.
        """
        return self.symbol(self.nodes.gather(self.node(x), [self.node(p) for p in places]))

    def scatter(self, how: str, base: Any, x: Any, places: Sequence[Any]) -> Symbol:
        """``base`` with the elements of ``x`` put at places, in row-major order.

        Args:
            how: ``set``, or one of ``FOLDS``, by which an element meets what is there.
            base: An array, of the dtype of the result.
            x: The elements, of the same dtype.
            places: For each axis of ``base`` what ``place`` or ``index`` gives; they broadcast to
                the shape of ``x``.
        """
        found = [self.node(p) for p in places]
        return self.symbol(self.nodes.scatter(how, self.node(base), self.node(x), found))

    def scan(self, scalar: Callable[..., Any], x: Any, *steps: Any, axis: int) -> Symbol:
        """The first element along an axis, then a scalar of the result before and the element.

        Args:
            scalar: ``scalar(before, element, *steps)``.
            x: An array.
            steps: Arrays of its dtype, one shorter along the axis: what leads to the second
                element, to the third and so on.
            axis: Along which.
        """
        inputs = [self.node(a) for a in (x, *steps)]
        means = meaning(scalar, len(inputs) + 1, (), inputs[0].type)
        return self.symbol(self.nodes.scan(means, inputs, axis))

    def zeros(self, shape: Shape, dtype: Any, value: Any = 0) -> Symbol:
        """An array of one number."""
        number = self.node(np.asarray(value, dtype))
        return self.symbol(self.nodes.broadcast(number, shape))
