"""Fusion: which nodes share one loop nest, and in which order kernels run.

Called by ``buffer_assignment`` at the start of planning. Kernels are a list; whatever a kernel
reads was computed by itself or by one before it. Nodes are placed one after another: each into the
kernel that computed the latest of its inputs, if one loop nest can do both; else into the latest
kernel with the same loops that reads one of its arrays; else into a new kernel at the end. So
fusion takes linear time in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odyssey.compiler.ir.nodes import (
    ITEM_SIZES,
    Node,
    is_expensive,
    random_access_inputs,
    topological_order,
)
from odyssey.compiler.llvm.types import HALVES
from odyssey.spec import Shape

__all__ = [
    "FusedGraph",
    "Kernel",
    "ScatterChain",
    "fuse",
    "loop_levels",
    "loop_role",
    "scatter_chain",
    "skip_reshapes",
]

# LLVM's time grows faster than a function, so a kernel has at most this many nodes.
_MAX_KERNEL_NODES = 200
# Delayed nodes that are placed together with the node that needs them.
_MAX_DELAYED = 100
# Scalars are recomputed in each kernel that needs them, unless they take more steps.
_MAX_SCALAR_STEPS = 40
# Loops over so few elements are fused though they share no array, since a call costs as much. Long
# loops of equal layers are one function: 80 layers compile in 0.62 s, and in 0.76 s with a limit of
# 4096 elements.
_SMALL_LOOP = 32
# Bytes of a row that a loop keeps on the stack.
_MAX_ROW_BYTES = 1 << 15
_LOOP_KINDS = ("map", "reduce", "gather", "scatter")
_UNFUSED_KINDS = ("product", "scan", "lapack", "call")
_MEMORY_READERS = (*_UNFUSED_KINDS, "join")


@dataclass(eq=False)
class Kernel:
    """A kernel: a loop nest over an iteration space, a product, a scan, LAPACK's, or a host call.

    Attributes:
        kind: ``loops``, ``product``, ``scan``, ``lapack`` or ``call``.
        position: Position in the order of kernels.
        nodes: Nodes that it computes, in topological order.
        space: Shape of the iteration space.
        reads: Numbers of the nodes whose memory it reads.
        checks: Its truth values that must hold for the program to go on.
    """

    kind: str
    position: int
    nodes: list[Node]
    space: Shape
    reads: set[int] = field(default_factory=set)
    checks: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class FusedGraph:
    """All kernels of a program, and which of their values are stored.

    Attributes:
        order: Live nodes, inputs first.
        users: By number of a node, the nodes that read it.
        kernels: Kernels in order.
        kernel_of: By number of a node, the kernel that computes it.
        stored: Numbers of the nodes that are written to memory.
        numbers: Numbers of the scalar nodes that are computed wherever they are needed.
        in_place: By number of the node of an update, the state's leaf that it is written over;
            also of the scatters that an update begins with.
    """

    order: list[Node]
    users: dict[int, list[Node]]
    kernels: list[Kernel] = field(default_factory=list)
    kernel_of: dict[int, Kernel] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    in_place: dict[int, Node] = field(default_factory=dict)


def _row_space(space: Shape) -> Shape:
    return (*space[:-1], 1) if space else ()


def loop_role(node: Node, space: Shape) -> str | None:
    """Return the role of a node in loops over ``space``.

    Returns:
        ``full``: computed at each element; ``row``: once for each row along the last axis;
        ``row_reduce``: reduced along each row; ``reduce``: reduced over elements; ``reduce_rows``:
        reduced over values that rows have once; ``scatter``: written somewhere at each element.
        None if the node does not fit into the loops.
    """
    if node.kind == "scatter":
        return "scatter" if node.inputs[1].shape == space else None
    if node.kind in ("map", "gather"):
        return "full" if node.shape == space else "row" if node.shape == _row_space(space) else None
    source = node.inputs[0].shape
    if source == space:
        along_row = node.detail[1] == (len(space) - 1,)
        return "row_reduce" if along_row else "reduce"
    return "reduce_rows" if source == _row_space(space) else None


def _loop_space(node: Node) -> Shape:
    """Return the iteration space of loops that compute a node."""
    if node.kind == "reduce":
        return node.inputs[0].shape
    return node.inputs[1].shape if node.kind == "scatter" else node.shape


def loop_levels(nodes: Sequence[Node], space: Shape) -> dict[int, int]:
    """Return in which of the loops along a row each node is first available, by its number.

    A reduction along a row is available after a loop; its readers come in the next loop.
    """
    levels: dict[int, int] = {}
    row_reductions = {n.id for n in nodes if loop_role(n, space) == "row_reduce"}
    for n in nodes:
        levels[n.id] = max(
            (levels[i.id] + (i.id in row_reductions) for i in n.inputs if i.id in levels),
            default=0,
        )
    return levels


class ScatterChain(NamedTuple):
    """Scatters into a state, one after another, of which the last is its update.

    Attributes:
        state: The state's leaf.
        scatters: The scatters; the base of each is the one before it, of the first the state.
    """

    state: Node
    scatters: tuple[Node, ...]


def scatter_chain(
    update: Node, state: Node, outputs: Container[int] = (), strided: bool = False
) -> ScatterChain | None:
    """Return the scatters that lead from a state to its update; None if it is another update.

    Args:
        update: The new value of the state.
        state: The state's leaf.
        outputs: Numbers of nodes that need memory of their own.
        strided: Whether the state is not contiguous, so that no reshape shows its memory.
    """
    scatters: list[Node] = []
    node = update
    while node.kind == "scatter" and not (scatters and node.id in outputs):
        scatters.append(node)
        base = skip_reshapes(node.inputs[0])
        if strided and (base is not node.inputs[0] or node.shape != state.shape):
            return None
        if base is state:
            return ScatterChain(state, tuple(reversed(scatters)))
        node = base
    return None


def skip_reshapes(node: Node) -> Node:
    """Return the node that reshapes show."""
    while node.kind == "view" and node.detail[0] == "reshape":
        node = node.inputs[0]
    return node


class _Fuser:
    """Fusion in progress.

    Args:
        order: Live nodes, inputs first.
        stored: Nodes that must be stored: results.
        updates: By number of a node, the leaf of the state that it updates.
        checks: Numbers of truth values that must hold.
        chains: By number of a node, the scatters that may be written over the state.
    """

    def __init__(
        self,
        order: list[Node],
        stored: Sequence[Node],
        updates: Mapping[int, Node],
        checks: set[int],
        chains: Mapping[int, ScatterChain],
    ) -> None:
        users: dict[int, list[Node]] = {n.id: [] for n in order}
        for n in order:
            for i in n.inputs:
                users[i.id].append(n)
        self.fused = FusedGraph(order, users)
        self._outputs = {n.owner.id for n in stored}
        # Nodes that must be stored although they may be scalars.
        self._memory_operands = {
            i.owner.id for n in order if n.kind in _MEMORY_READERS for i in n.inputs
        }
        self._updates, self._checks, self._chains = updates, checks, chains
        # By number of a scatter in a chain, the value that it would be written over.
        self._bases: dict[int, Node] = {}
        for chain in chains.values():
            before = (chain.state, *chain.scatters)
            self._bases |= {n.id: base for n, base in zip(chain.scatters, before, strict=False)}
        # Values in the memory of a state: leaves, and the scatters of chains.
        self._in_state = {base.id for base in self._bases.values()}
        # By number of a node, the position of the kernel after which its value is available.
        self._available: dict[int, int] = {}
        # By number of a leaf, the position of the last kernel that reads it. Scatters that others
        # are written over count as leaves here and in ``_leaves``.
        self._last_read: dict[int, int] = {}
        # By number of a node, the leaves that a use of it reads.
        self._leaves: dict[int, frozenset[int]] = {}
        self._scalar_steps: dict[int, int] = {}
        self._recent: dict[Shape, Kernel] = {}
        self._delayed: dict[int, Node] = {}
        # By number of a delayed node, all delayed nodes that it needs, itself included.
        self._delayed_inputs: dict[int, frozenset[int]] = {}
        # Position of the last kernel that can fail.
        self._last_fallible = -1
        # By position of a kernel, see ``_non_elementwise_reads``.
        self._read_cache: dict[int, tuple[dict[int, int], set[int]]] = {}

    def run(self) -> FusedGraph:
        for n in self.fused.order:
            if n.kind in _LOOP_KINDS and not self._is_inline_scalar(n):
                if self._can_delay(n):
                    self._delayed[n.id] = n
                    self._available[n.id] = -1
                else:
                    self._place_node(n)
            else:
                self._place_delayed(self._needed_delayed(n))
                if n.kind in _UNFUSED_KINDS:
                    self._record_reads(self._append_kernel(n.kind, n), n)
                else:
                    self._available[n.id] = max(
                        (self._available[i.id] for i in n.inputs), default=-1
                    )
            self._record_leaves(n)
        self._find_stored()
        for n in self.fused.order:
            if n.id in self._updates:
                self._update_in_place(n, self._updates[n.id])
        return self.fused

    # -------------------------------------------------------------- delayed nodes

    def _can_delay(self, n: Node) -> bool:
        """Return whether a map reads only leaves, so that it can be computed when it is needed."""
        if n.kind != "map" or n.id in self._outputs or n.id in self._updates:
            return False
        if n.id in self._checks:
            return False
        if not n.is_rematerialized and any(self._available[i.id] >= 0 for i in n.inputs):
            return False
        group = frozenset((n.id,)).union(*[self._delayed_inputs.get(i.id, ()) for i in n.inputs])
        self._delayed_inputs[n.id] = group
        return len(group) <= _MAX_DELAYED

    def _needed_delayed(self, n: Node) -> list[Node]:
        """Return the delayed nodes that ``n`` needs, inputs first."""
        needed: dict[int, Node] = {}
        stack = list(n.inputs)
        while stack:
            i = stack.pop()
            if i.id in self._delayed and i.id not in needed:
                needed[i.id] = i
                stack += i.inputs
        return [needed[k] for k in sorted(needed)]

    def _place_delayed(self, nodes: Sequence[Node]) -> None:
        for n in nodes:
            if self._delayed.pop(n.id, None) is not None:
                self._place_node(n)

    # -------------------------------------------------------------- placing nodes

    def _is_inline_scalar(self, n: Node) -> bool:
        """Return whether a scalar is cheap enough to be computed wherever it is needed."""
        if n.kind != "map" or n.size != 1 or n.id in self._outputs or n.id in self._updates:
            return False
        if n.id in self._memory_operands:
            return False
        steps = len(n.payload.steps) + sum(self._scalar_steps.get(i.id, 0) for i in n.inputs)
        if steps > _MAX_SCALAR_STEPS:
            return False
        self._scalar_steps[n.id] = steps
        self.fused.numbers.add(n.id)
        return True

    def _record_leaves(self, n: Node) -> None:
        """Record which leaves a use of ``n`` reads, if it is not stored."""
        if n.kind == "leaf" or n.id in self._in_state:
            self._leaves[n.id] = frozenset((n.id,))
        elif n.kind in ("view", "join") or n.id in self.fused.numbers or n.id in self._delayed:
            self._leaves[n.id] = frozenset().union(*[self._leaves[i.id] for i in n.inputs])
        else:
            self._leaves[n.id] = frozenset()

    def _append_kernel(self, kind: str, n: Node) -> Kernel:
        kernel = Kernel(kind, len(self.fused.kernels), [], n.shape)
        self.fused.kernels.append(kernel)
        if kind == "call":
            self._last_fallible = kernel.position
        self._add_node(kernel, n)
        return kernel

    def _add_node(self, kernel: Kernel, n: Node) -> None:
        kernel.nodes.append(n)
        self.fused.kernel_of[n.id] = kernel
        self._available[n.id] = kernel.position

    def _record_reads(self, kernel: Kernel, n: Node) -> None:
        for i in n.inputs:
            for leaf in self._leaves[i.owner.id]:
                self._last_read[leaf] = max(self._last_read.get(leaf, -1), kernel.position)
            kernel.reads.add(i.owner.id)

    def _place_node(self, n: Node) -> None:
        """Place a node, with the delayed nodes that it needs, into a kernel."""
        for complete in random_access_inputs(n):
            self._place_delayed([*self._needed_delayed(complete), complete])
        needed = self._needed_delayed(n)
        space = _loop_space(n)
        self._place_delayed([i for i in needed if loop_role(i, space) is None])
        needed = [i for i in needed if i.id in self._delayed]
        before = self._bases.get(n.id, self._updates.get(n.id))  # may be overwritten by n
        if before is not None:
            own = {i.id for i in needed}
            others = [i for i in self._delayed.values() if i.id not in own]
            self._place_delayed([i for i in others if before.id in self._leaves[i.id]])
        inputs = [i for m in (n, *needed) for i in m.inputs if i.id not in self._delayed]
        latest = max((self._available[i.id] for i in inputs), default=-1)
        if before is not None:
            last_read = self._last_read.get(before.id, -1)
            if n.id in self._bases:
                last_read += 1  # it writes elements that another iteration would still read
            latest = max(latest, last_read, self._last_fallible + 1)
        # Casts of half precision that are computed again, see ``passes.half_operands``.
        late = n.is_rematerialized and any(i.type in HALVES for i in inputs)
        kernel = None if late else self._fusable_kernel(n, latest, inputs)
        if kernel is None or not all(self._can_fuse(m, kernel) for m in needed):
            kernel = self._new_loop_kernel(n)
        for m in (*needed, n):
            self._delayed.pop(m.id, None)
            self._record_leaves(m)  # its readers read memory from now on, and no leaves
            self._add_node(kernel, m)
            self._record_reads(kernel, m)
        if n.id in self._checks:
            kernel.checks.append(n)
            self._last_fallible = max(self._last_fallible, kernel.position)

    def _new_loop_kernel(self, n: Node) -> Kernel:
        space = _loop_space(n)
        kernel = Kernel("loops", len(self.fused.kernels), [], space)
        self.fused.kernels.append(kernel)
        self._recent[space] = kernel
        return kernel

    def _fusable_kernel(self, n: Node, latest: int, inputs: Sequence[Node]) -> Kernel | None:
        """Return the kernel to fuse a node into; None for a new one.

        Args:
            n: The node.
            latest: Position of the kernel that computes the latest of its inputs.
            inputs: Inputs of the node and of the delayed nodes that it needs.
        """
        kernels = self.fused.kernels
        if 0 <= latest < len(kernels) and self._can_fuse(n, kernels[latest]):
            return kernels[latest]
        recent = self._recent.get(_loop_space(n))
        if recent is None or recent.position <= latest or not self._can_fuse(n, recent):
            return None
        shares = any(i.size > 1 and i.owner.id in recent.reads for i in inputs)
        return recent if shares or n.size <= _SMALL_LOOP else None

    def _can_fuse(self, n: Node, kernel: Kernel) -> bool:
        """Return whether a node fits into the loops of a kernel."""
        if kernel.kind != "loops" or len(kernel.nodes) >= _MAX_KERNEL_NODES:
            return False
        role = loop_role(n, kernel.space)
        if role is None:
            return False
        random_access = random_access_inputs(n)
        for i in n.inputs:
            if self._available[i.id] != kernel.position:
                continue
            if i in random_access:
                return False
            if self.fused.kernel_of.get(i.id) is not kernel:
                return False  # it reads the kernel's values through a view, at another index
            input_role = loop_role(i, kernel.space)
            if input_role not in ("full", "row", "row_reduce"):
                return False  # available only after all loops
            if (input_role == "full") != (i.shape == kernel.space):
                return False
            if input_role == "full" and role in ("row", "reduce_rows"):
                return False
        return True

    # -------------------------------------------------------------- memory

    def _find_stored(self) -> None:
        """Find the nodes that are written to memory."""
        fused = self.fused
        for n in fused.order:
            kernel = fused.kernel_of.get(n.id)
            if kernel is None:
                continue
            stored = n.id in self._outputs or n.id in self._updates or n.id in self._checks
            stored = stored or n.kind in (*_UNFUSED_KINDS, "scatter")
            stored = stored or loop_role(n, kernel.space) in ("reduce", "reduce_rows")
            for user in fused.users[n.id]:
                if stored:
                    break
                stored = fused.kernel_of.get(user.id) is not kernel
            if stored:
                fused.stored.add(n.id)
        for kernel in fused.kernels:
            if kernel.kind == "loops" and kernel.space:
                self._store_long_rows(kernel)

    def _store_long_rows(self, kernel: Kernel) -> None:
        """Store values that later loops along a row need if they are too long for the stack."""
        level = loop_levels(kernel.nodes, kernel.space)
        for n in kernel.nodes:
            long = kernel.space[-1] * ITEM_SIZES[n.type] > _MAX_ROW_BYTES
            if long and loop_role(n, kernel.space) == "full" and is_expensive(n):
                later = any(level.get(u.id, 0) > level[n.id] for u in self.fused.users[n.id])
                if later:
                    self.fused.stored.add(n.id)

    def _update_in_place(self, n: Node, state: Node) -> None:
        """Write an update over its state if nothing reads that later, or at another index."""
        chain = self._chains.get(n.id)
        if chain is not None:
            if all(map(self._may_overwrite_base, chain.scatters)):
                self.fused.in_place |= dict.fromkeys([m.id for m in chain.scatters], state)
            return
        kernel = self.fused.kernel_of.get(n.id)
        if kernel is None or kernel.position <= self._last_fallible:
            return
        last = self._last_read.get(state.id, -1)
        if last > kernel.position:
            return
        accumulates = kernel.kind == "product" and n.inputs[2:] == (state,)
        if last < kernel.position or accumulates or self._reads_state_elementwise(kernel, n, state):
            self.fused.in_place[n.id] = state

    def _may_overwrite_base(self, n: Node) -> bool:
        """Return whether a scatter of a chain may be written over the value that it updates."""
        kernel, base = self.fused.kernel_of[n.id], self._bases[n.id]
        if kernel.position <= self._last_fallible or self._last_read[base.id] > kernel.position:
            return False
        rest = [*n.inputs[1:], *[i for m in kernel.nodes if m is not n for i in m.inputs]]
        return all(base.id not in self._leaves[i.owner.id] for i in rest)

    def _reads_state_elementwise(self, kernel: Kernel, n: Node, state: Node) -> bool:
        """Return whether a kernel reads a state only where it writes it, and not afterwards."""
        if kernel.kind != "loops" or loop_role(n, kernel.space) != "full":
            return False
        cached = self._read_cache.get(kernel.position)
        if cached is None:
            cached = self._read_cache[kernel.position] = self._non_elementwise_reads(kernel)
        level, leaves = cached
        # Cheap values are recomputed in later loops along a row.
        return level[n.id] == max(level.values()) and state.id not in leaves

    def _non_elementwise_reads(self, kernel: Kernel) -> tuple[dict[int, int], set[int]]:
        """Return the levels of a kernel's nodes, and the leaves that it reads at another index."""
        own = {m.id for m in kernel.nodes}
        leaves: set[int] = set()
        for n in kernel.nodes:
            for i in random_access_inputs(n):
                leaves |= self._leaves[i.id]
            for i in n.inputs:
                if i.size == 1 or i.id in own:  # scalars are read before the loops
                    continue
                shown = i.inputs[0] if i.kind == "view" and i.detail[0] == "reshape" else i
                if shown.kind != "leaf" or i.shape != kernel.space:
                    leaves |= self._leaves[i.id]
        return loop_levels(kernel.nodes, kernel.space), leaves


def fuse(
    order: list[Node],
    stored: Sequence[Node],
    updates: Mapping[int, Node],
    checks: Sequence[Node],
    strided: Container[int] = (),
) -> FusedGraph:
    """Fuse nodes into kernels.

    Args:
        order: Live nodes, inputs first.
        stored: Nodes that must be stored: results.
        updates: By number of a node, the leaf of the state that it updates; the node is a map, a
            reduction or a product of which nothing else is the owner. Or the leaf of an input that
            it may be written over, which it begins with.
        checks: Truth values, one element each, that must hold; they are listed in their kernels.
        strided: Numbers of the leaves of states that are not contiguous.
    """
    outputs = {n.owner.id for n in stored} | set(updates)
    chains: dict[int, ScatterChain] = {}
    for n in order:
        if n.id in updates and n.kind == "scatter":
            state = updates[n.id]
            chain = scatter_chain(n, state, outputs, state.id in strided)
            if chain is not None:
                chains[n.id] = chain
    if chains:
        order, chains = _with_scatters_last(order, checks, chains)
    return _Fuser(order, stored, updates, {n.id for n in checks}, chains).run()


def _with_scatters_last(
    order: list[Node], checks: Sequence[Node], chains: Mapping[int, ScatterChain]
) -> tuple[list[Node], dict[int, ScatterChain]]:
    """Return nodes in an order in which scatters into states come last, and these scatters.

    A state may be written in place only after everything that can fail, and after everything that
    reads its old value. An update of few rows of a large table is worth it: otherwise the program
    would copy the table. A state whose new value is needed by a check or a host call is copied.
    """
    fallible = topological_order([*checks, *[n for n in order if n.kind == "call"]])
    first = {n.id for n in fallible}
    late = {k: c for k, c in chains.items() if not any(n.id in first for n in c.scatters)}
    dependent = {chain.scatters[0].id for chain in late.values()}
    before: list[Node] = []
    after: list[Node] = []
    for n in order:
        if n.id in first:
            continue
        if n.id in dependent or any(i.id in dependent for i in n.inputs):
            dependent.add(n.id)
            after.append(n)
        else:
            before.append(n)
    return [*fallible, *before, *after], late
