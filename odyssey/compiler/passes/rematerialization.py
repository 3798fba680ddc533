"""Values that are computed again where they are needed, so that a program takes less memory.

A value that lies in memory from its kernel to one far behind, through the moment when the program
holds most, gives way to a second computation of it for its late readers: of what is there then.
Maps and products are computed again, the cheapest for what they free first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.passes.flops import count_flops

__all__ = ["rematerialize"]

# Whose module imports this one.
_Plan = Any
# So many nodes may make up a value that is computed again.
_MOST = 40
# Each value that is tried takes another plan: so many values times nodes, which take some seconds.
_MOST_TRIED = 400_000


def rematerialize(
    made: _Plan, nodes: IRBuilder, tried: set[int], like: Callable[[Node, list[Node]], Node]
) -> dict[int, Node]:
    """What is to take the place of some nodes, by number, so that less is held at the peak.

    Args:
        made: The plan so far.
        nodes: What makes nodes.
        tried: Numbers of values that are not to be tried; the one that is gets among them.
        like: The same node of other inputs.

    Returns:
        Late readers of a value, which read another computation of it; empty where there is none.
    """
    if len(tried) * len(made.fused.order) > _MOST_TRIED:
        return {}
    peak = _peak_kernel(made)
    found = []
    for node in made.fused.order:
        home = made.homes.get(node.id)
        if node.id in tried or home is None or home.buffer.kind != "arena" or node.kind == "join":
            continue
        if not home.buffer.first < peak < home.buffer.last:
            continue
        late = [u for u in _readers(made, node) if _kernel_position(made, u) > peak]
        early = [u for u in _readers(made, node) if _kernel_position(made, u) == peak]
        if late and not early:
            copies = _Recomputation(made, nodes, min(_kernel_position(made, u) for u in late))
            if copies.cost(node) is not None:
                found.append((copies.flops / home.buffer.bytes, node.id, node, late, copies))
    if not found:
        return {}
    _, _, node, late, copies = min(found, key=lambda one: one[:2])
    tried.add(node.id)
    copy = copies.of(node)
    return {u.id: like(u, [copy if i is node else i for i in u.inputs]) for u in late}


def _peak_kernel(made: _Plan) -> int:
    """The place of the kernel while which most is held."""
    buffers = {id(h.buffer): h.buffer for h in made.homes.values() if h.buffer.kind == "arena"}
    held = [0] * (len(made.fused.kernels) + 2)
    for buffer in buffers.values():
        held[max(buffer.first, 0)] += buffer.bytes
        held[max(buffer.last, 0) + 1] -= buffer.bytes
    total, most, at = 0, -1, 0
    for place, change in enumerate(held):
        total += change
        if total > most:
            most, at = total, place
    return at


def _readers(made: _Plan, node: Node) -> list[Node]:
    """The nodes that read one, views of it among them."""
    found: list[Node] = made.fused.users[node.id]
    return found


def _kernel_position(made: _Plan, node: Node) -> int:
    """Where a node is computed; of a view or a number, where it is first read."""
    kernel = made.fused.kernel_of.get(node.id)
    if kernel is not None:
        place: int = kernel.place
        return place
    return min((_kernel_position(made, u) for u in made.fused.users[node.id]), default=-1)


class _Recomputation:
    """Computes a value again of what is there at a place."""

    def __init__(self, made: _Plan, nodes: IRBuilder, place: int) -> None:
        self._made, self._nodes, self._at = made, nodes, place
        self._known: dict[int, Node] = {}
        self.flops = 0
        self._count = 0

    def _is_there(self, node: Node) -> bool:
        if node.kind in ("leaf", "number", "index"):
            return True
        home = self._made.homes.get(node.id)
        return home is not None and home.buffer.last >= self._at

    def cost(self, node: Node) -> int | None:
        """Steps of arithmetic; None where something cannot be computed again."""
        self._count += 1
        if node.kind not in ("map", "product", "view") or self._count > _MOST:
            return None
        if node.kind == "product" and len(node.inputs) > 2:
            return None  # it is added to a state
        self.flops += count_flops(node)
        for i in node.inputs:
            if not self._is_there(i) and self.cost(i) is None:
                return None
        return self.flops

    def of(self, node: Node) -> Node:
        """The value, computed again."""
        known = self._known.get(node.id)
        if known is None:
            inputs = tuple(i if self._is_there(i) else self.of(i) for i in node.inputs)
            known = self._known[node.id] = _duplicate_node(self._nodes, node, inputs)
        return known


def _duplicate_node(nodes: IRBuilder, node: Node, inputs: tuple[Node, ...]) -> Node:
    """A node that is another one, although it may be equal."""
    shape, type, detail, id = node.shape, node.type, node.detail, len(nodes.all)
    made = Node(node.kind, inputs, shape, type, detail, node.work, id, node.of)
    made.late = True
    nodes.all.append(made)
    return made
