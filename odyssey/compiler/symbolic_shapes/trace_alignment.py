"""Graphs of nodes for several sizes, step for step alike: the first leads, the others follow.

Equal nodes are one, and at some sizes two nodes are equal that are not at others. So which of them
are one is said by who leads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.lowering import Lowered, lower
from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.symbolic_shapes.templates import TemplateMismatchError
from odyssey.graph.graph import Graph

__all__ = ["TraceAlignment"]

# By number of a node, what each of its axes is at several sizes; None where that is fixed.
_Lengths = list[tuple[tuple[int, ...] | None, ...]]


class _AlignedBuilder(IRBuilder):
    """Makes nodes, and notes for each call which it gave; or gives those that were noted.

    Args:
        lead: What another noted.
    """

    def __init__(self, lead: Sequence[int] | None = None) -> None:
        super().__init__()
        self.order: list[int] = []
        self._lead = lead

    def make_node(
        self,
        kind: str,
        inputs: Iterable[Node],
        shape: Iterable[int],
        type: str,
        detail: Any = None,
        work: Any = None,
    ) -> Node:
        """The node that was noted, which is a new one or equal to this."""
        inputs, shape = tuple(inputs), tuple(shape)
        lead, place = self._lead, len(self.order)
        if lead is None:
            made = super().make_node(kind, inputs, shape, type, detail, work)
        elif place >= len(lead) or lead[place] > len(self.nodes):
            raise TemplateMismatchError(f"its graph has more of {kind}")
        elif lead[place] == len(self.nodes):
            of = self.op or (inputs[0].op if inputs else "")
            made = Node(kind, inputs, shape, type, detail, work, len(self.nodes), of)
            self.nodes.append(made)
        else:
            made = self.nodes[lead[place]]
            own = made.kind, made.inputs, made.shape, made.type, made.detail
            if own != (kind, inputs, shape, type, detail):
                raise TemplateMismatchError(f"{made} of its graph is not {kind}{list(shape)}")
        self.order.append(made.id)
        return made

    def vary(self, lengths: _Lengths) -> None:
        """Let sizes vary, and nodes be made freely again."""
        self._lead = None
        self._unique = {}
        for node, seen in zip(self.nodes, lengths, strict=True):
            if any(seen):
                pairs = zip(node.shape, seen, strict=True)
                node.shape = tuple(SymbolicDim(n, s) if s else n for n, s in pairs)
                node.size = math.prod(node.shape)
            if node.kind == "view" and node.detail[0] in ("reshape", "broadcast"):
                node.detail = node.detail[0], node.shape
            ids = tuple([i.id for i in node.inputs])
            self._unique.setdefault((node.kind, ids, node.shape, node.type, node.detail), node)


class TraceAlignment:
    """Traces of one function at several sizes, aligned node by node.

    Args:
        graphs: Of one function, at several sizes.

    Attributes:
        lows: Their nodes, whose sizes vary.

    Raises:
        TemplateMismatchError: they differ in more than sizes.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        first = _AlignedBuilder()
        self.lows = [lower(graphs[0], first)]
        self._order = list(first.order)
        self._first = list(map(_node_outline, first.nodes))
        self._shapes = [node.shape for node in first.nodes]
        self._ends = _result_ids(self.lows[0])
        self.lows += [self._follow(graph) for graph in graphs[1:]]
        rows = zip(*[[node.shape for node in low.builder.nodes] for low in self.lows], strict=True)
        self._lengths: _Lengths = [
            tuple(c if len(set(c)) > 1 else None for c in zip(*row, strict=True)) for row in rows
        ]
        for low in self.lows:
            self._vary(low)

    def follow(self, graph: Graph) -> Lowered:
        """The nodes of a graph at a further size, which vary as the others do.

        Raises:
            TemplateMismatchError: it is another graph.
        """
        low = self._follow(graph)
        for shape, node, seen in zip(self._shapes, low.builder.nodes, self._lengths, strict=True):
            pairs = zip(shape, node.shape, seen, strict=True)
            if any(s is None and m != n for m, n, s in pairs):
                raise TemplateMismatchError(f"{node} is of shape {shape} elsewhere")
        self._vary(low)
        return low

    def _follow(self, graph: Graph) -> Lowered:
        low = lower(graph, _AlignedBuilder(self._order))
        for node, wanted in zip(low.builder.nodes, self._first, strict=False):
            if _node_outline(node) != wanted:
                raise TemplateMismatchError(f"{node} is another elsewhere")
        if len(low.builder.nodes) != len(self._first) or _result_ids(low) != self._ends:
            raise TemplateMismatchError("it computes less, or returns another part of it")
        return low

    def _vary(self, low: Lowered) -> None:
        assert isinstance(low.builder, _AlignedBuilder)
        low.builder.vary(self._lengths)


def _node_outline(node: Node) -> tuple[Any, ...]:
    # What repeats a number at other sizes is a view of another kind where it has one element.
    how = node.detail[0] if node.kind == "view" else None
    return node.kind, how, node.type, len(node.shape), [i.id for i in node.inputs]


def _result_ids(low: Lowered) -> tuple[Any, ...]:
    return (
        [node and node.id for node in low.outputs],
        {k: node.id for k, node in low.updates.items()},
        [node.id for node in (*low.checks, *low.effects)],
        list(low.host_calls),
    )
