"""Verbs of ``native`` for sums of many elements: folds, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odyssey.compiler.ir.nodes import Node, Nodes, meaning
from odyssey.compiler.llvm.types import PARTS
from odyssey.errors import DTypeError
from odyssey.kernels import T
from odyssey.table.value import Symbol

__all__ = ["Folding"]


class Folding:
    """Verbs that combine elements."""

    nodes: Nodes
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]
    elementwise: Callable[..., Symbol]

    def fold(self, how: str, x: Any, axes: Iterable[int], keepdims: bool = False) -> Symbol:
        """Combine elements along axes; ``how`` is one of ``FOLDS``.

        Raises:
            DTypeError: of complex numbers, whose parts have sums and no more.
        """
        node, axes = self.node(x), set(axes)
        if node.type in PARTS:
            if how != "sum":
                raise DTypeError(f"{how}: no native code for complex numbers")
            parts = [self.fold(how, p, axes, keepdims) for p in self._parts(x)]
            return self.elementwise(_joined, *parts, dtype=node.type)
        made = self.nodes.fold(how, node, axes)
        if not keepdims:
            made = self.nodes.reshape(made, [n for a, n in enumerate(node.shape) if a not in axes])
        return self.symbol(made)

    def _parts(self, x: Any) -> list[Symbol]:
        """The real and the imaginary parts of complex numbers."""
        node = self.node(x)
        found = []
        for scalar in (lambda x: x.real, lambda x: x.imag):
            means = meaning(scalar, 1, (), node.type)
            made = self.nodes.map(means, [node], node.shape, PARTS[node.type])
            found.append(self.symbol(made))
        return found

    def product(self, a: Any, b: Any) -> Symbol:
        """Products of matrices of one floating or complex dtype; leading axes broadcast."""
        left, right = self.node(a), self.node(b)
        if left.type == "f2":  # as NumPy does, which adds in single precision
            made = self.nodes.product(*(self.nodes.cast(n, "f4") for n in (left, right)))
            return self.symbol(self.nodes.cast(made, "f2"))
        return self.symbol(self.nodes.product(left, right))


def _joined(real: Any, imaginary: Any) -> Any:
    return T(real.real, imaginary.real)
