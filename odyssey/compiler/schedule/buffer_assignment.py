"""Places in one piece of memory for what lives at different times."""

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
    assign_layouts,
    isolate_join_members,
    legalize_products,
    locate_member,
    strided_leaves,
)
from odyssey.compiler.passes.rematerialization import rematerialize
from odyssey.compiler.passes.simplify import batch_matmul_sum, gemm_accumulate, merge_joins
from odyssey.compiler.passes.windows import window_products
from odyssey.compiler.schedule.fusion import FusedGraph, Kernel, fuse, loop_levels, loop_role
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
    "plan",
]


ALIGNMENT = 64


@dataclass(slots=True, eq=False)
class Buffer:
    """A piece of memory.

    Attributes:
        kind: ``input``, ``state``, ``constant``, ``output``, ``call`` or ``arena``.
        index: Which.
        bytes: How long it is.
        offset: In the arena.
        first: The place of the kernel that writes to it first; -1 before all.
        last: The place of the last that reads or writes it.
    """

    kind: str
    index: int
    bytes: int
    offset: int = 0
    first: int = -1
    last: int = -1


def assign_offsets(buffers: Iterable[Buffer]) -> int:
    """Give buffers offsets, each the first gap among those that live at the same time.

    Returns:
        How many bytes all of them take.
    """
    whole = 0
    gaps: list[tuple[float, float]] = [(0, math.inf)]  # in order, none beside another
    alive: list[tuple[int, int, int]] = []  # until when, from where to where
    for buffer in sorted(buffers, key=lambda b: b.first):
        while alive and alive[0][0] < buffer.first:
            _, start, end = heappop(alive)
            _free_range(gaps, start, end)
        buffer.offset = 0
        if not buffer.bytes:
            continue
        k = next(k for k, (start, end) in enumerate(gaps) if buffer.bytes <= end - start)
        buffer.offset = at = int(gaps[k][0])
        whole = max(whole, at + buffer.bytes)
        behind = -(-(at + buffer.bytes) // ALIGNMENT) * ALIGNMENT
        gaps[k : k + 1] = [(behind, gaps[k][1])] if behind < gaps[k][1] else []
        heappush(alive, (buffer.last, at, behind))
    return whole


def _free_range(gaps: list[tuple[float, float]], start: float, end: float) -> None:
    """Add a gap, which becomes one with those beside it."""
    k = bisect(gaps, (start, end))
    if k < len(gaps) and gaps[k][0] == end:
        end = gaps.pop(k)[1]
    if k and gaps[k - 1][1] == start:
        k, start = k - 1, gaps.pop(k - 1)[0]
    gaps.insert(k, (start, end))


HELD_KINDS = ("output", "call", "constant")
"""What a program holds beside its arena: results, what calls gave, and what is known now."""


class Allocation(NamedTuple):
    """Where a node's elements lie."""

    buffer: Buffer
    view: View


@dataclass(eq=False)
class Plan:
    """A program before it is code.

    Attributes:
        outputs: What is returned, by place; None where the result is no array of the program.
        updates: By number of a state, what it becomes.
        checks: Numbers that must be true.
        fused: Kernels.
        homes: By number of a node that lies in memory, where.
        moves: What is copied into dense states at the end: number of the state, and of the node.
        arena: Bytes.
        varies: Whether sizes in it are ``Varying``.
        guarded: Whether no other thread of Python may run meanwhile.
    """

    outputs: list[Node | None]
    updates: dict[int, Node]
    checks: list[Node]
    fused: FusedGraph
    homes: dict[int, Allocation] = field(default_factory=dict)
    moves: list[tuple[int, Node]] = field(default_factory=list)
    arena: int = 0
    varies: bool = False
    guarded: bool = False

    def written(self) -> list[int]:
        """The places of results that the program writes; others are what a call gave."""
        return [k for k, n in enumerate(self.outputs) if n is not None and n.kind != "part"]

    def home(self, node: Node) -> Allocation:
        """Where a node lies, through views."""
        if node.kind != "view":
            return self.homes[node.id]
        base = self.home(node.inputs[0])
        return Allocation(base.buffer, apply_view(node, base.view))

    def read(self, kernel: Kernel) -> list[Node]:
        """The nodes in memory that a kernel reads, through numbers that it computes itself."""
        own = {n.id for n in kernel.nodes}
        found: dict[int, Node] = {}
        stack = [i for n in kernel.nodes for i in n.inputs]
        known = set()
        while stack:
            node = stack.pop()
            if node.id in known or node.id in own:
                continue
            known.add(node.id)
            owner = node.owner
            if owner.id in self.fused.numbers:
                stack += owner.inputs
            elif owner.id in self.homes and owner.id not in own:
                found[owner.id] = owner
        return list(found.values())


# ------------------------------------------------------------------ memory


def held_bytes(made: Plan) -> int:
    """Bytes of all that a program holds: its arena, results, constants, and what calls give."""
    found = {id(h.buffer): h.buffer for h in made.homes.values() if h.buffer.kind in HELD_KINDS}
    return made.arena + sum(buffer.bytes for buffer in found.values())


def plan(low: Lowered, strides: Mapping[int, Sequence[int]], budget: int | None = None) -> Plan:
    """Plan a program.

    Args:
        low: The graph as nodes.
        strides: By number of a state, its strides in elements, where it is not contiguous.
        budget: Bytes that the program is to hold at most: values are computed again until it does,
            or nothing more can be done.
    """
    roots = Roots(low, strides)
    roots.all = batch_matmul_sum(roots.nodes, merge_joins(roots.nodes, roots.all))
    roots.all = window_products(roots.nodes, roots.all)
    roots.own()
    roots.all = gemm_accumulate(roots.nodes, roots.all, roots.updated())
    roots.own()
    isolate_join_members(roots)
    roots.own()
    states = [
        n for n in topological_order(roots.all) if n.kind == "leaf" and n.detail[0] == "state"
    ]
    leaves = strided_leaves(states, strides)
    layout = assign_layouts(roots, leaves)
    roots.own()
    legalize_products(roots, leaves, layout)
    made, tried = _schedule(low, roots, layout, leaves), set[int]()
    while budget is not None and held_bytes(made) > budget:
        new = rematerialize(made, roots.nodes, tried, roots.nodes.like)
        if not new:
            break
        before, known = list(roots.all), dict(layout)
        roots.replace(new, layout)
        other = _schedule(low, roots, layout, leaves)
        if held_bytes(other) < held_bytes(made):
            made = other
        else:
            roots.all, layout = before, known
    return made


def _schedule(
    low: Lowered,
    roots: Roots,
    layout: dict[int, Sequence[int]],
    leaves: Mapping[int, View],
) -> Plan:
    """The plan for roots whose values all have a place that suits their readers."""
    ends = len(roots.outputs) + len(roots.states)
    outputs, updates, checks = (
        roots.all[: len(roots.outputs)],
        dict(zip(roots.states, roots.all[len(roots.outputs) : ends], strict=True)),
        roots.all[roots.truths],
    )
    by_state = {
        n.detail[1]: n for n in low.nodes.all if n.kind == "leaf" and n.detail[0] == "state"
    }
    for k, u in updates.items():  # a state that is written and never read
        if k not in by_state:
            by_state[k] = low.nodes.leaf("state", k, u.shape, u.type)
    leaves = {**leaves, **strided_leaves(by_state.values(), roots.strides)}
    order = topological_order(roots.all)
    writes = {u.id: by_state[k] for k, u in updates.items()}
    fused = fuse(order, [*outputs, *checks], writes, checks)
    placed: list[Node | None] = [None] * roots.count
    for k, node in zip(roots.outputs, outputs, strict=True):
        placed[k] = node
    made = Plan(placed, updates, checks, fused)
    for k, u in updates.items():
        if u.id not in fused.in_place and k in roots.strides:
            updates[k] = low.nodes.copy(u, ("state", k))
            _append_state_copy(fused, updates[k], by_state[k])
    _BufferAssigner(made, by_state, layout, leaves).run()
    return made


def _append_state_copy(fused: FusedGraph, copy: Node, state: Node) -> None:
    """Let a copy of an update be written over its state, element by element, after all else."""
    kernel = Kernel("loops", len(fused.kernels), [copy], copy.shape)
    fused.kernels.append(kernel)
    fused.kernel_of[copy.id] = kernel
    fused.order.append(copy)
    fused.users[copy.id] = []
    fused.users[copy.inputs[0].id].append(copy)
    fused.stored.add(copy.id)
    fused.in_place[copy.id] = state


class _BufferAssigner:
    def __init__(
        self,
        made: Plan,
        states: Mapping[int, Node],
        layout: Mapping[int, Sequence[int]],
        leaves: Mapping[int, View],
    ) -> None:
        self.plan, self.states, self.layout, self.leaves = made, states, layout, leaves

    def run(self) -> None:
        self._house_ends()
        fused, homes = self.plan.fused, self.plan.homes
        for n in fused.order:
            if n.kind == "join":
                if n.id not in homes:
                    self._new(n, "arena")
                for part, key in zip(n.inputs, n.work, strict=True):
                    self._house_part(
                        homes[n.id].buffer, *locate_member(homes[n.id].view, key, part)
                    )
        for n in fused.order:
            if n.id not in homes and n.id in fused.stored and n.kind != "call":
                self._new(n, "arena")
        self._settle_times()
        _reuse_operand_buffers(self.plan)
        arena = [h.buffer for h in self.plan.homes.values() if h.buffer.kind == "arena"]
        self.plan.arena = assign_offsets({id(buffer): buffer for buffer in arena}.values())

    def _house_ends(self) -> None:
        made = self.plan
        for n in [*made.fused.order, *self.states.values()]:
            if n.kind == "leaf" and n.id not in made.homes:
                self._new(n, n.detail[0], n.detail[1])
            elif n.kind == "part":
                self._new(n, "call", n.id)
        for k, u in made.updates.items():
            if u.id in made.fused.in_place:
                home = made.homes[self.states[k].id]
                same = u.shape == home.view.shape
                made.homes[u.id] = home if same else Allocation(home.buffer, View.dense(u.shape))
            else:
                made.moves.append((k, u))
        for place, node in enumerate(made.outputs):
            if node is not None and node.owner.id not in made.homes:
                self._new(node.owner, "output", place)

    def _new(self, n: Node, kind: str, index: int = 0) -> None:
        view = self.leaves.get(n.id)
        if view is None:
            view = View.dense(n.shape, self.layout.get(n.id))
        size = int(
            ITEM_SIZES.get(n.type, 0) * n.size
        )  # what overlaps is asked of numbers as they are
        self.plan.homes[n.id] = Allocation(Buffer(kind, index, size), view)

    def _house_part(self, buffer: Buffer, part: Node, view: View) -> None:
        if part.id in self.plan.homes:
            raise OdysseyError("compile: a part of a whole has a place of its own")
        self.plan.homes[part.id] = Allocation(buffer, view)

    def _settle_times(self) -> None:
        made = self.plan
        for kernel in made.fused.kernels:
            for node in made.read(kernel):
                made.homes[node.id].buffer.last = kernel.place
            for node in kernel.nodes:
                home = made.homes.get(node.id)
                if home is not None:
                    if home.buffer.first < 0:
                        home.buffer.first = kernel.place
                    home.buffer.last = max(home.buffer.last, kernel.place)
        end = len(made.fused.kernels)
        for _, node in made.moves:
            made.home(node).buffer.last = end
        for n in made.fused.order:  # what no part covers is set to 0 before all
            if n.kind == "join" and not is_fully_covered(n):
                made.homes[n.id].buffer.first = 0


# ------------------------------------------------------------------ in place


def _reuse_operand_buffers(made: Plan) -> None:
    """Let results be written over operands that nobody reads later.

    A kernel of loops reads all that it needs at an index before it writes what it computed there.
    So a result may lie where an operand lay, if that is read for the last time, at the same index
    and at no other, and takes as many bytes.
    """
    alone: dict[int, int] = {}  # by a buffer, how many nodes lie in it
    for one in made.homes.values():
        alone[id(one.buffer)] = alone.get(id(one.buffer), 0) + 1
    for kernel in made.fused.kernels:
        if kernel.kind != "loops":
            continue
        ending = {
            id(buffer): (node, buffer)
            for node in made.read(kernel)
            if (buffer := made.homes[node.id].buffer).kind == "arena"
            and buffer.last == kernel.place
            and buffer.first < kernel.place
        }
        for n in kernel.nodes if ending else ():
            home = made.homes.get(n.id)
            if home is None or home.buffer.kind != "arena" or home.buffer.first != kernel.place:
                continue
            if alone[id(home.buffer)] > 1:
                continue
            for operand, buffer in ending.values():
                if _can_reuse(made, kernel, n, operand, buffer):
                    buffer.last = home.buffer.last
                    made.homes[n.id] = home._replace(buffer=buffer)
                    del ending[id(buffer)]
                    break


def _can_reuse(made: Plan, kernel: Kernel, n: Node, operand: Node, buffer: Buffer) -> bool:
    """Whether ``n`` can take over the buffer that holds ``operand``."""
    home, place = made.homes[n.id], made.homes[operand.id]
    return (
        ITEM_SIZES[n.type] == ITEM_SIZES[operand.type]
        and home.view == place.view
        and home.buffer.bytes == buffer.bytes > 0
        and reads_elementwise(made, kernel, n, buffer)
    )


def reads_elementwise(made: Plan, kernel: Kernel, n: Node, buffer: Buffer) -> bool:
    """Whether a kernel reads a buffer only where it writes ``n``, and not after it did."""
    if loop_role(n, kernel.space) != "full" or n.shape != kernel.space or n.size < 2:
        return False
    level = loop_levels(kernel.nodes, kernel.space)
    if level[n.id] != max(level.values()):
        return False  # what is cheap is computed again in later loops along a row
    own = {m.id for m in kernel.nodes}
    view = made.homes[n.id].view
    stack = [(i, i in random_access_inputs(m)) for m in kernel.nodes for i in m.inputs]
    while stack:
        i, whole = stack.pop()
        if i.id in own:
            continue
        if i.owner.id in made.fused.numbers:
            stack += [(j, False) for j in i.owner.inputs]
        elif i.owner.id in made.homes:
            home = made.home(i)
            along = not whole and i.shape == kernel.space and home.view == view
            if home.buffer is buffer and not along:
                return False
    return True


# ------------------------------------------------------------------ small things


def is_fully_covered(join: Node) -> bool:
    """Whether the parts of a whole leave no place out."""
    return sum(part.size for part in join.inputs) == math.prod(join.shape)
