"""Buffer assignment: a memory location for each value of a program, by its liveness.

Called by ``pipeline``; code generation and ``runtime`` read the plan. Arguments, states, constants,
results and the results of host calls have buffers of their own. All other stored values share one
arena, where values with disjoint live ranges may overlap, and a result may be written over an
operand that is read for the last time. Views need no memory; passes chose layouts for that before,
see ``passes.layout_assignment``.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, random_access_inputs, topological_order
from odyssey.compiler.ir.views import View
from odyssey.compiler.lowering import Lowered
from odyssey.compiler.passes.layout_assignment import (
    Roots,
    apply_view,
    locate_member,
    strided_leaves,
)
from odyssey.compiler.passes.rematerialization import rematerialize
from odyssey.compiler.schedule.fusion import (
    FusedGraph,
    Kernel,
    fuse,
    loop_levels,
    loop_role,
    scatter_chain,
    skip_reshapes,
)
from odyssey.compiler.ways.choices import Choices
from odyssey.errors import OdysseyError

__all__ = [
    "ALIGNMENT",
    "Buffer",
    "assign_offsets",
    "HELD_KINDS",
    "Allocation",
    "Plan",
    "is_fully_covered",
    "reads_elementwise",
    "assign_buffers",
]


ALIGNMENT = 64
"""Alignment of buffers in the arena, in bytes."""


@dataclass(slots=True, eq=False)
class Buffer:
    """A block of memory, with its live range.

    Attributes:
        kind: ``input``, ``state``, ``constant``, ``output``, ``call`` or ``arena``.
        index: Number among the buffers of this kind.
        bytes: Size.
        offset: Offset in the arena.
        first: Position of the kernel that first writes to it; -1 before all kernels.
        last: Position of the last kernel that reads or writes it.
    """

    kind: str
    index: int
    bytes: int
    offset: int = 0
    first: int = -1
    last: int = -1


def assign_offsets(buffers: Iterable[Buffer]) -> int:
    """Assign offsets in the arena: each buffer gets the first gap between live buffers (first fit).

    Returns:
        The size of the arena in bytes.
    """
    size = 0
    gaps: list[tuple[float, float]] = [(0, math.inf)]  # sorted, no two adjacent
    live: list[tuple[int, int, int]] = []  # end of live range, start and end offset
    for buffer in sorted(buffers, key=lambda b: b.first):
        while live and live[0][0] < buffer.first:
            _, start, end = heappop(live)
            _free_range(gaps, start, end)
        buffer.offset = 0
        if not buffer.bytes:
            continue
        k = next(k for k, (start, end) in enumerate(gaps) if buffer.bytes <= end - start)
        buffer.offset = at = int(gaps[k][0])
        size = max(size, at + buffer.bytes)
        behind = -(-(at + buffer.bytes) // ALIGNMENT) * ALIGNMENT
        gaps[k : k + 1] = [(behind, gaps[k][1])] if behind < gaps[k][1] else []
        heappush(live, (buffer.last, at, behind))
    return size


def _free_range(gaps: list[tuple[float, float]], start: float, end: float) -> None:
    """Add a gap, merged with adjacent ones."""
    k = bisect(gaps, (start, end))
    if k < len(gaps) and gaps[k][0] == end:
        end = gaps.pop(k)[1]
    if k and gaps[k - 1][1] == start:
        k, start = k - 1, gaps.pop(k - 1)[0]
    gaps.insert(k, (start, end))


HELD_KINDS = ("output", "call", "constant")
"""Kinds of buffers that a program holds besides its arena."""


class Allocation(NamedTuple):
    """Memory location of a node: buffer and view."""

    buffer: Buffer
    view: View


@dataclass(eq=False)
class Plan:
    """A program before code generation: kernels in order, and memory for their values.

    Attributes:
        outputs: By position in the result, its node; None if the result is no array of the program.
        updates: By number of a state, its new value.
        checks: Truth values that must hold.
        fused: Kernels.
        allocations: By number of a node in memory, its location.
        state_copies: States and nodes that are copied into them at the end.
        arena: Size of the arena in bytes.
        is_symbolic: Whether sizes are symbolic.
        holds_gil: Whether no other Python thread may run meanwhile.
        choices: Ways of the works.
    """

    outputs: list[Node | None]
    updates: dict[int, Node]
    checks: list[Node]
    fused: FusedGraph
    allocations: dict[int, Allocation] = field(default_factory=dict)
    state_copies: list[tuple[int, Node]] = field(default_factory=list)
    arena: int = 0
    is_symbolic: bool = False
    holds_gil: bool = False
    choices: Choices = field(default_factory=Choices)

    def written_outputs(self) -> list[int]:
        """Return the positions of outputs that the program writes; host calls return the others."""
        return [k for k, n in enumerate(self.outputs) if n is not None and n.kind != "result"]

    def overwritten_inputs(self) -> set[int]:
        """Return the numbers of the inputs that outputs at the same positions are written over."""
        homes = [(k, self.allocations.get(n.owner.id)) for k, n in enumerate(self.outputs) if n]
        own = {k: home.buffer for k, home in homes if home is not None}
        return {k for k, buffer in own.items() if (buffer.kind, buffer.index) == ("input", k)}

    def allocation(self, node: Node) -> Allocation:
        """Return the location of a node, which may be a view."""
        if node.kind != "view" or node.id in self.allocations:
            return self.allocations[node.id]
        base = self.allocation(node.inputs[0])
        return Allocation(base.buffer, apply_view(node, base.view))

    def is_over_base(self, n: Node) -> bool:
        """Return whether a node is a scatter that is written over the value that it updates."""
        if n.kind != "scatter" or n.id not in self.fused.in_place:
            return False
        base = n.inputs[0].owner
        held = self.allocations.get(base.id)
        return held is not None and held.buffer is self.allocations[n.id].buffer

    def arrays_read(self, kernel: Kernel) -> list[Node]:
        """Return the nodes in memory that a kernel reads, also for scalars that it computes."""
        own = {n.id for n in kernel.nodes}
        arrays: dict[int, Node] = {}
        stack = [i for n in kernel.nodes for i in n.inputs]
        visited = set()
        while stack:
            node = stack.pop()
            if node.id in visited or node.id in own:
                continue
            visited.add(node.id)
            owner = node.owner
            if owner.id in self.fused.numbers:
                stack += owner.inputs
            elif owner.id in self.allocations and owner.id not in own:
                arrays[owner.id] = owner
        return list(arrays.values())


def held_bytes(plan: Plan) -> int:
    """Return the bytes that a program holds: arena, results, constants and host call results."""
    held = {
        id(a.buffer): a.buffer for a in plan.allocations.values() if a.buffer.kind in HELD_KINDS
    }
    return plan.arena + sum(buffer.bytes for buffer in held.values())


# ------------------------------------------------------------------ assignment


def assign_buffers(low: Lowered, roots: Roots, budget: int | None = None, carries: int = 0) -> Plan:
    """Fuse optimized nodes into kernels, and assign a buffer to each stored value.

    Args:
        low: The lowered graph.
        roots: Its roots after all passes.
        budget: Most bytes that the program should hold: values are rematerialized until it does, or
            until nothing more can be done.
        carries: Number of the first inputs that the first outputs may be written over: the carries
            of a loop, which its steps update where they lie.
    """
    best, tried = _schedule(low, roots, carries), set[int]()
    while budget is not None and held_bytes(best) > budget:
        new = rematerialize(best, roots.builder, tried, roots.builder.with_inputs)
        if not new:
            break
        nodes, layout = list(roots.nodes), dict(roots.layout)
        roots.replace(new)
        candidate = _schedule(low, roots, carries)
        if held_bytes(candidate) < held_bytes(best):
            best = candidate
        else:
            roots.nodes, roots.layout = nodes, layout
    return best


def _schedule(low: Lowered, roots: Roots, carries: int = 0) -> Plan:
    """Fuse nodes into kernels and assign buffers, after all passes."""
    ends = len(roots.outputs) + len(roots.states)
    outputs, updates, checks = (
        roots.nodes[: len(roots.outputs)],
        dict(zip(roots.states, roots.nodes[len(roots.outputs) : ends], strict=True)),
        roots.nodes[roots.checks],
    )
    states = {
        n.detail[1]: n for n in low.builder.nodes if n.kind == "leaf" and n.detail[0] == "state"
    }
    for k, u in updates.items():  # a state that is written and never read
        if k not in states:
            states[k] = low.builder.leaf("state", k, u.shape, u.type)
    leaves = {**roots.leaves, **strided_leaves(states.values(), roots.strides)}
    order = topological_order(roots.nodes)
    writes = {u.id: states[k] for k, u in updates.items()}
    writes |= _carried_updates(order, roots, outputs, carries)
    strided = {states[k].id for k in roots.strides if k in states}
    fused = fuse(order, [*outputs, *checks], writes, checks, strided)
    all_outputs: list[Node | None] = [None] * roots.output_count
    for k, node in zip(roots.outputs, outputs, strict=True):
        all_outputs[k] = node
    plan = Plan(all_outputs, updates, checks, fused)
    for k, u in updates.items():
        if u.id not in fused.in_place and k in roots.strides:
            updates[k] = low.builder.copy(u, ("state", k))
            _append_state_copy(fused, updates[k], states[k])
    _BufferAssigner(plan, states, roots.layout, leaves).run()
    return plan


def _carried_updates(
    order: Sequence[Node], roots: Roots, outputs: Sequence[Node], carries: int
) -> dict[int, Node]:
    """Return the input that each output which begins with scatters into it may be written over.

    Args:
        order: Live nodes.
        roots: Roots of the graph.
        outputs: Its outputs, at the positions ``roots.outputs``.
        carries: Number of the inputs that may be overwritten.
    """
    inputs = {n.detail[1]: n for n in order if n.kind == "leaf" and n.detail[0] == "input"}
    found: dict[int, Node] = {}
    for position, node in zip(roots.outputs, outputs, strict=True):
        carry = inputs.get(position) if position < carries else None
        base = skip_reshapes(node)
        if carry is not None and base.id not in found and scatter_chain(base, carry) is not None:
            found[base.id] = carry
    return found


def _append_state_copy(fused: FusedGraph, copy: Node, state: Node) -> None:
    """Append a kernel that copies an update into its strided state, after all other kernels."""
    kernel = Kernel("loops", len(fused.kernels), [copy], copy.shape)
    fused.kernels.append(kernel)
    fused.kernel_of[copy.id] = kernel
    fused.order.append(copy)
    fused.users[copy.id] = []
    fused.users[copy.inputs[0].id].append(copy)
    fused.stored.add(copy.id)
    fused.in_place[copy.id] = state


class _BufferAssigner:
    """Assignment of buffers to the stored values of a plan.

    Args:
        plan: The plan, whose allocations are filled in.
        states: By number of a state, its leaf.
        layout: By number of a node, its axes from the largest to the smallest stride.
        leaves: By number of the leaf of a strided state, its view.
    """

    def __init__(
        self,
        plan: Plan,
        states: Mapping[int, Node],
        layout: Mapping[int, Sequence[int]],
        leaves: Mapping[int, View],
    ) -> None:
        self.plan, self.states, self.layout, self.leaves = plan, states, layout, leaves

    def run(self) -> None:
        self._assign_interface()
        fused, allocations = self.plan.fused, self.plan.allocations
        for n in fused.order:
            if n.kind == "join":
                if n.id not in allocations:
                    self._allocate(n, "arena")
                join = allocations[n.id]
                for member, key in zip(n.inputs, n.payload, strict=True):
                    self._assign_member(join.buffer, *locate_member(join.view, key, member))
        for n in fused.order:
            if n.id not in allocations and n.id in fused.stored and n.kind != "call":
                self._allocate(n, "arena")
        self._analyze_liveness()
        _reuse_operand_buffers(self.plan)
        arena = [a.buffer for a in allocations.values() if a.buffer.kind == "arena"]
        self.plan.arena = assign_offsets({id(buffer): buffer for buffer in arena}.values())

    def _assign_interface(self) -> None:
        """Assign leaves, results of host calls, updates of states and outputs."""
        plan = self.plan
        for n in [*plan.fused.order, *self.states.values()]:
            if n.kind == "leaf" and n.id not in plan.allocations:
                self._allocate(n, n.detail[0], n.detail[1])
            elif n.kind == "result":
                self._allocate(n, "call", n.id)
        for n in plan.fused.order:
            if n.id in plan.fused.in_place:
                state = plan.allocations[plan.fused.in_place[n.id].id]
                same = n.shape == state.view.shape
                plan.allocations[n.id] = (
                    state if same else Allocation(state.buffer, View.dense(n.shape))
                )
        for k, u in plan.updates.items():
            if u.id not in plan.fused.in_place:
                plan.state_copies.append((k, u))
        for position, node in enumerate(plan.outputs):
            if node is not None and node.owner.id not in plan.allocations:
                self._allocate(node.owner, "output", position)

    def _allocate(self, n: Node, kind: str, index: int = 0) -> None:
        view = self.leaves.get(n.id)
        if view is None:
            view = View.dense(n.shape, self.layout.get(n.id))
        size = int(ITEM_SIZES.get(n.type, 0) * n.size)  # a plain int, to compare live ranges with
        self.plan.allocations[n.id] = Allocation(Buffer(kind, index, size), view)

    def _assign_member(self, buffer: Buffer, member: Node, view: View) -> None:
        if member.id in self.plan.allocations:
            raise OdysseyError("compile: a member of a join has a buffer of its own")
        self.plan.allocations[member.id] = Allocation(buffer, view)

    def _analyze_liveness(self) -> None:
        plan = self.plan
        for kernel in plan.fused.kernels:
            for node in plan.arrays_read(kernel):
                plan.allocations[node.id].buffer.last = kernel.position
            for node in kernel.nodes:
                allocation = plan.allocations.get(node.id)
                if allocation is not None:
                    if allocation.buffer.first < 0:
                        allocation.buffer.first = kernel.position
                    allocation.buffer.last = max(allocation.buffer.last, kernel.position)
        end = len(plan.fused.kernels)
        for _, node in plan.state_copies:
            plan.allocation(node).buffer.last = end
        for n in plan.fused.order:  # joins with gaps are set to 0 before all kernels
            if n.kind == "join" and not is_fully_covered(n):
                plan.allocations[n.id].buffer.first = 0


# ------------------------------------------------------------------ in-place results


def _reuse_operand_buffers(plan: Plan) -> None:
    """Let results be written over operands that are read for the last time.

    A kernel of loops reads everything that it needs at an index before it writes the results there.
    So a result may reuse the buffer of an operand that is read for the last time, at the same index
    and at no other, and that has as many bytes. LAPACK overwrites its first operand.
    """
    node_counts: dict[int, int] = {}  # by buffer, how many nodes it holds
    for one in plan.allocations.values():
        node_counts[id(one.buffer)] = node_counts.get(id(one.buffer), 0) + 1
    for kernel in plan.fused.kernels:
        if kernel.kind not in ("loops", "lapack"):
            continue
        ending = {
            id(buffer): (node, buffer)
            for node in plan.arrays_read(kernel)
            if (buffer := plan.allocations[node.id].buffer).kind == "arena"
            and buffer.last == kernel.position
            and buffer.first < kernel.position
        }
        for n in kernel.nodes if ending else ():
            own = plan.allocations.get(n.id)
            if own is None or own.buffer.kind != "arena" or own.buffer.first != kernel.position:
                continue
            if node_counts[id(own.buffer)] > 1:
                continue
            for operand, buffer in ending.values():
                if _can_reuse(plan, kernel, n, operand, buffer):
                    buffer.last = own.buffer.last
                    plan.allocations[n.id] = own._replace(buffer=buffer)
                    del ending[id(buffer)]
                    break


def _can_reuse(plan: Plan, kernel: Kernel, n: Node, operand: Node, buffer: Buffer) -> bool:
    """Return whether ``n`` can be written over ``operand``, which is in ``buffer``."""
    own, other = plan.allocations[n.id], plan.allocations[operand.id]
    return (
        ITEM_SIZES[n.type] == ITEM_SIZES[operand.type]
        and own.view == other.view
        and own.buffer.bytes == buffer.bytes > 0
        and reads_elementwise(plan, kernel, n, buffer)
    )


def reads_elementwise(plan: Plan, kernel: Kernel, n: Node, buffer: Buffer) -> bool:
    """Return whether a kernel reads a buffer only where it writes ``n``, and not afterwards."""
    if n.kind == "lapack":
        overwritten, *others = (plan.allocation(i) for i in n.inputs)
        same = overwritten.buffer is buffer and overwritten.view == plan.allocations[n.id].view
        return same and all(other.buffer is not buffer for other in others)
    if loop_role(n, kernel.space) != "full" or n.shape != kernel.space or n.size < 2:
        return False
    level = loop_levels(kernel.nodes, kernel.space)
    if level[n.id] != max(level.values()):
        return False  # cheap values are recomputed in later loops along a row
    own = {m.id for m in kernel.nodes}
    view = plan.allocations[n.id].view
    stack = [(i, i in random_access_inputs(m)) for m in kernel.nodes for i in m.inputs]
    while stack:
        i, random_access = stack.pop()
        if i.id in own:
            continue
        if i.owner.id in plan.fused.numbers:
            stack += [(j, False) for j in i.owner.inputs]
        elif i.owner.id in plan.allocations:
            read = plan.allocation(i)
            elementwise = not random_access and i.shape == kernel.space and read.view == view
            if read.buffer is buffer and not elementwise:
                return False
    return True


def is_fully_covered(join: Node) -> bool:
    """Return whether the members of a join leave no gap, which would have to be set to 0."""
    return sum(member.size for member in join.inputs) == math.prod(join.shape)
