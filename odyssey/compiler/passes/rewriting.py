"""Rewrites: named functions from one pattern of nodes to another, applied to a whole graph.

Called by ``pass_manager``, with the table of rewrites in ``simplify``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from odyssey.compiler.ir.nodes import IRBuilder, Node, rewrite, topological_order
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.ways.choices import Choices
from odyssey.compiler.ways.works import Work, format_spec

__all__ = ["Context", "Rewrite", "apply_rewrite", "product_work", "users_of"]


class Context:
    """Graph around the node that a rewrite may replace.

    Args:
        builder: Builder of new nodes.
        roots: Roots of the graph before the rewrite.
        choices: Ways of the works of the program.
    """

    def __init__(
        self, builder: IRBuilder, roots: Sequence[Node], choices: Choices | None = None
    ) -> None:
        self.builder = builder
        self.choices = Choices() if choices is None else choices
        self._roots = roots
        self._users: dict[int, list[Node]] | None = None
        self._products: list[int] | None = None

    @property
    def users(self) -> dict[int, list[Node]]:
        """Readers of each node, by number; a root counts as its own reader."""
        if self._users is None:  # a cached_property of Python 3.11 has a lock, also at a fork
            self._users = users_of(self._roots)
        return self._users

    def products_between(self, first: Node, last: Node) -> int:
        """Count the products between two nodes, in the order in which they were made."""
        if self._products is None:
            order = topological_order(self._roots)
            self._products = [node.id for node in order if node.kind == "product"]
        return bisect_left(self._products, last.id) - bisect_right(self._products, first.id)


class Rewrite(NamedTuple):
    """A row of the rewrite table.

    Attributes:
        name: Name of the rewrite.
        pattern: Nodes that it replaces, in words.
        replacement: Nodes that it replaces them with, in words.
        function: ``function(node, inputs, context)`` returns the replacement of a node with these
            new inputs, or None to keep the node.
    """

    name: str
    pattern: str
    replacement: str
    function: Callable[..., Node | None]


def apply_rewrite(
    row: Rewrite, builder: IRBuilder, roots: Sequence[Node], choices: Choices | None = None
) -> list[Node]:
    """Apply a rewrite to all nodes of a graph, inputs first; return the new roots."""
    context = Context(builder, roots, choices)
    return rewrite(builder, roots, partial(row.function, context=context))


def product_work(kind: str, operands: Sequence[Node], options: str = "") -> Callable[[], Work]:
    """Return a function that returns the work of a product, and holds no node.

    Args:
        kind: Kind of the product.
        operands: Its operands.
        options: What else tells it from others.
    """
    specs = [(node.shape, node.type) for node in operands]

    def describe() -> Work:
        texts = [format_spec(shape, dtype_of_code(type)) for shape, type in specs]
        return Work(kind, tuple(texts), options)

    return describe


def users_of(roots: Sequence[Node]) -> dict[int, list[Node]]:
    """Return the readers of each node, by number; a root counts as its own reader."""
    users: dict[int, list[Node]] = {}
    for node in topological_order(roots):
        for i in node.inputs:
            users.setdefault(i.id, []).append(node)
    for root in roots:
        users.setdefault(root.id, []).append(root)
    return users
