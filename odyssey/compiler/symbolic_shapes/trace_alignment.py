"""Trace alignment: lower one function at several sizes to graphs that correspond node by node.

Called by ``sized_program``. The IR builder merges equal nodes, and two nodes may be equal at one
size only. So the graph at the first size decides which nodes are merged, and graphs at other sizes
follow it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.lowering import Lowered, lower
from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.symbolic_shapes.templates import TemplateMismatchError
from odyssey.compiler.ways.choices import Choices
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.compiler.ways.works import Work, varying_work
from odyssey.graph.graph import Graph

__all__ = ["TraceAlignment"]

# By number of a node, for each axis its lengths at the probe sizes; None if the length is fixed.
_Lengths = list[tuple[tuple[int, ...] | None, ...]]


class _AlignedBuilder(IRBuilder):
    """IR builder that records the node of each call, or repeats the record of another builder.

    Args:
        lead: Record of the first builder: numbers of nodes by call.
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
        """Return the recorded node: a new one, or an equal one."""
        inputs, shape = tuple(inputs), tuple(shape)
        lead, position = self._lead, len(self.order)
        if lead is None:
            node = super().make_node(kind, inputs, shape, type, detail, work)
        elif position >= len(lead) or lead[position] > len(self.nodes):
            raise TemplateMismatchError(f"its graph has more of {kind}")
        elif lead[position] == len(self.nodes):
            op = self.op or (inputs[0].op if inputs else "")
            node = Node(kind, inputs, shape, type, detail, work, len(self.nodes), op)
            self.nodes.append(node)
        else:
            node = self.nodes[lead[position]]
            own = node.kind, node.inputs, node.shape, node.type, node.detail
            if own != (kind, inputs, shape, type, detail):
                raise TemplateMismatchError(f"{node} of its graph is not {kind}{list(shape)}")
        self.order.append(node.id)
        return node

    def make_symbolic(self, lengths: _Lengths) -> None:
        """Replace lengths that vary by symbolic dimensions; later nodes follow no record."""
        self._lead = None
        self._unique = {}
        for node, probes in zip(self.nodes, lengths, strict=True):
            if any(probes):
                pairs = zip(node.shape, probes, strict=True)
                node.shape = tuple(SymbolicDim(n, p) if p else n for n, p in pairs)
                node.size = math.prod(node.shape)
            if node.kind == "view" and node.detail[0] in ("reshape", "broadcast"):
                node.detail = node.detail[0], node.shape
            ids = tuple([i.id for i in node.inputs])
            self._unique.setdefault((node.kind, ids, node.shape, node.type, node.detail), node)


class TraceAlignment:
    """Traces of one function at several sizes, aligned node by node.

    Args:
        graphs: Graphs of the function at the probe sizes.
        plan: Ways of works that are not computed as guessed. Lengths that vary are ``*`` in them.

    Attributes:
        lows: The lowered graphs, with symbolic dimensions.

    Raises:
        TemplateMismatchError: the graphs differ in more than sizes.
        PlanError: the plan names a way that a work does not have.
    """

    def __init__(self, graphs: Sequence[Graph], plan: Plan = NO_PLAN) -> None:
        self._plan = plan
        # By position among the choices for rows, the work at all sizes, and its way by the plan.
        self._works: dict[int, Work] = {}
        self._pinned: dict[int, tuple[Work, str]] = {}
        while True:
            self._align(graphs)
            notes = zip(*[low.choices.works_by_position() for low in self.lows], strict=True)
            self._works = {k: varying_work(works) for k, *works in map(_same_position, notes)}
            if not plan:
                break
            # The works behind one depend on its way, so one is pinned at a time.
            left = [(k, work) for k, work in self._works.items() if k not in self._pinned]
            found = [(k, (work, name)) for k, work in left if (name := plan.get(work)) is not None]
            if not found:
                break
            self._pinned = dict([*self._pinned.items(), found[0]])
        for low in self.lows:
            low.choices.rename(self._works)

    def _align(self, graphs: Sequence[Graph]) -> None:
        """Lower the graphs with the choices so far."""
        first = _AlignedBuilder()
        self.lows = [lower(graphs[0], first, self._choices())]
        self._order = list(first.order)
        self._outlines = list(map(_node_outline, first.nodes))
        self._shapes = [node.shape for node in first.nodes]
        self._result_ids = _result_ids(self.lows[0])
        self.lows += [self._follow(graph) for graph in graphs[1:]]
        rows = zip(*[[node.shape for node in low.builder.nodes] for low in self.lows], strict=True)
        self._lengths: _Lengths = [
            tuple(c if len(set(c)) > 1 else None for c in zip(*row, strict=True)) for row in rows
        ]
        for low in self.lows:
            self._make_symbolic(low)

    def follow(self, graph: Graph) -> Lowered:
        """Return the lowered graph at a further size, with the same dimensions symbolic.

        Raises:
            TemplateMismatchError: the graph differs in more than sizes.
        """
        low = self._follow(graph)
        for shape, node, probes in zip(self._shapes, low.builder.nodes, self._lengths, strict=True):
            pairs = zip(shape, node.shape, probes, strict=True)
            if any(p is None and m != n for m, n, p in pairs):
                raise TemplateMismatchError(f"{node} is of shape {shape} at another size")
        self._make_symbolic(low)
        low.choices.rename(self._works)
        return low

    def _choices(self) -> Choices:
        return Choices(self._plan, self._pinned)

    def _follow(self, graph: Graph) -> Lowered:
        low = lower(graph, _AlignedBuilder(self._order), self._choices())
        for node, outline in zip(low.builder.nodes, self._outlines, strict=False):
            if _node_outline(node) != outline:
                raise TemplateMismatchError(f"{node} differs at another size")
        if len(low.builder.nodes) != len(self._outlines) or _result_ids(low) != self._result_ids:
            raise TemplateMismatchError("it computes less, or returns other values")
        return low

    def _make_symbolic(self, low: Lowered) -> None:
        assert isinstance(low.builder, _AlignedBuilder)
        low.builder.make_symbolic(self._lengths)


def _same_position(notes: tuple[tuple[int, Work], ...]) -> tuple[Any, ...]:
    return (notes[0][0], *[work for _, work in notes])


def _node_outline(node: Node) -> tuple[Any, ...]:
    # A broadcast of one element to size 1 is another kind of view.
    view_kind = node.detail[0] if node.kind == "view" else None
    return node.kind, view_kind, node.type, len(node.shape), [i.id for i in node.inputs]


def _result_ids(low: Lowered) -> tuple[Any, ...]:
    return (
        [node and node.id for node in low.outputs],
        {k: node.id for k, node in low.updates.items()},
        [node.id for node in (*low.checks, *low.effects)],
        list(low.host_calls),
    )
