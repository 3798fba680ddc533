"""Rematerialization: recompute values for late readers, to reduce peak memory.

Called by ``buffer_assignment`` if a plan exceeds the memory budget. A value whose live range spans
the moment of peak memory, but that nothing reads there, is replaced for its late readers by a
second computation from values that are live then. Maps and products are recomputed, the cheapest
per byte first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.passes.flops import count_flops

__all__ = ["rematerialize"]

# The type is ``schedule.buffer_assignment.Plan``, whose module imports this one.
_Plan = Any
# A value is recomputed by at most this many nodes.
_MAX_RECOMPUTED_NODES = 40
# Each candidate takes a new plan: at most this many candidates times nodes, some seconds.
_MAX_TRIED = 400_000


def rematerialize(
    plan: _Plan,
    builder: IRBuilder,
    tried: set[int],
    with_inputs: Callable[[Node, list[Node]], Node],
) -> dict[int, Node]:
    """Choose one value that is live at peak memory and recompute it for its late readers.

    Args:
        plan: The plan so far.
        builder: Builder of new nodes.
        tried: Numbers of values not to choose; the chosen one is added.
        with_inputs: Returns a copy of a node with other inputs.

    Returns:
        The replacements of late readers, by number; empty if no value can be chosen.
    """
    if len(tried) * len(plan.fused.order) > _MAX_TRIED:
        return {}
    peak = _peak_kernel(plan)
    candidates = []
    for node in plan.fused.order:
        allocation = plan.allocations.get(node.id)
        if (
            node.id in tried
            or allocation is None
            or allocation.buffer.kind != "arena"
            or node.kind == "join"
        ):
            continue
        if not allocation.buffer.first < peak < allocation.buffer.last:
            continue
        late = [u for u in plan.fused.users[node.id] if _kernel_position(plan, u) > peak]
        at_peak = [u for u in plan.fused.users[node.id] if _kernel_position(plan, u) == peak]
        if late and not at_peak:
            first_late = min(_kernel_position(plan, u) for u in late)
            recomputation = _Recomputation(plan, builder, first_late)
            if recomputation.cost(node) is not None:
                cost_per_byte = recomputation.flops / allocation.buffer.bytes
                candidates.append((cost_per_byte, node.id, node, late, recomputation))
    if not candidates:
        return {}
    _, _, node, late, recomputation = min(candidates, key=lambda one: one[:2])
    tried.add(node.id)
    copy = recomputation.recompute(node)
    return {u.id: with_inputs(u, [copy if i is node else i for i in u.inputs]) for u in late}


def _peak_kernel(plan: _Plan) -> int:
    """Return the position of the kernel during which most bytes are live."""
    buffers = {
        id(h.buffer): h.buffer for h in plan.allocations.values() if h.buffer.kind == "arena"
    }
    changes = [0] * (len(plan.fused.kernels) + 2)
    for buffer in buffers.values():
        changes[max(buffer.first, 0)] += buffer.bytes
        changes[max(buffer.last, 0) + 1] -= buffer.bytes
    total, largest, peak = 0, -1, 0
    for position, change in enumerate(changes):
        total += change
        if total > largest:
            largest, peak = total, position
    return peak


def _kernel_position(plan: _Plan, node: Node) -> int:
    """Return where a node is computed; for a view or a number, where it is first read."""
    kernel = plan.fused.kernel_of.get(node.id)
    if kernel is not None:
        position: int = kernel.position
        return position
    return min((_kernel_position(plan, u) for u in plan.fused.users[node.id]), default=-1)


class _Recomputation:
    """Recomputation of a value from values that are live at a position."""

    def __init__(self, plan: _Plan, builder: IRBuilder, position: int) -> None:
        self._plan, self._builder, self._position = plan, builder, position
        self._copies: dict[int, Node] = {}
        self.flops = 0
        self._count = 0

    def _is_live(self, node: Node) -> bool:
        if node.kind in ("leaf", "number", "index"):
            return True
        allocation = self._plan.allocations.get(node.id)
        return allocation is not None and allocation.buffer.last >= self._position

    def cost(self, node: Node) -> int | None:
        """Count the FLOPs of a recomputation; None if a node cannot be recomputed."""
        self._count += 1
        if node.kind not in ("map", "product", "view") or self._count > _MAX_RECOMPUTED_NODES:
            return None
        if node.kind == "product" and len(node.inputs) > 2:
            return None  # it accumulates into a state
        self.flops += count_flops(node)
        for i in node.inputs:
            if not self._is_live(i) and self.cost(i) is None:
                return None
        return self.flops

    def recompute(self, node: Node) -> Node:
        """Return a copy of a node, computed from live values."""
        copy = self._copies.get(node.id)
        if copy is None:
            inputs = tuple(i if self._is_live(i) else self.recompute(i) for i in node.inputs)
            copy = self._copies[node.id] = _duplicate_node(self._builder, node, inputs)
        return copy


def _duplicate_node(builder: IRBuilder, node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return a new node although an equal one may exist."""
    shape, type, detail, id = node.shape, node.type, node.detail, len(builder.nodes)
    copy = Node(node.kind, inputs, shape, type, detail, node.payload, id, node.op)
    copy.is_rematerialized = True
    builder.nodes.append(copy)
    return copy
