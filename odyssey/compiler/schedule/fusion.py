"""Which nodes are computed together, in one nest of loops, and in which order nests run.

Kernels stand in a list; whatever a kernel reads was computed by itself or by one before it. Nodes
are placed one after another: each into the kernel that computed the latest of its inputs, if one
loop can do both; else into the latest kernel with the same loop that reads the same array; else
into a new one at the end. So fusing takes time in proportion to the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, random_access_inputs
from odyssey.spec import Shape

__all__ = ["FusedGraph", "Kernel", "fuse", "is_expensive", "loop_levels", "loop_role"]

# LLVM's time grows faster than a function.
_MOST_NODES = 200
# So many nodes wait for one that needs them; they all become part of its kernel.
_MOST_WAITING = 100
# Numbers are computed in each kernel that needs them; those that take more steps, once.
_MOST_STEPS = 40
# Loops over so few elements are joined where they share nothing: to call them costs as much. Larger
# ones of equal layers are one function: 80 layers compile in .62 s, and in .76 with 4096 elements.
_FEW = 32
# What a row of a loop keeps on the stack.
_STACK = 1 << 15
_IN_LOOPS = ("map", "fold", "gather", "scatter")
_ALONE = ("product", "scan", "call")
_IN_MEMORY = (*_ALONE, "join")


@dataclass(eq=False)
class Kernel:
    """A nest of loops over a space, a product, or a call.

    Attributes:
        kind: ``loops``, ``product``, ``scan`` or ``call``.
        place: In the order of kernels.
        nodes: What it computes, in order.
        space: Over which indices it loops.
        checks: Truths of it that must hold for the program to go on.
    """

    kind: str
    place: int
    nodes: list[Node]
    space: Shape
    reads: set[int] = field(default_factory=set)
    checks: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class FusedGraph:
    """All kernels of a program, and what of their values lies in memory.

    Attributes:
        order: The nodes that are needed, inputs first.
        users: By number of a node, the nodes that read it.
        kernels: In order.
        kernel_of: By number of a node, what computes it.
        stored: Numbers of nodes that are written to memory.
        numbers: Numbers of nodes that are computed wherever they are needed.
        in_place: By number of an update's node, the leaf that it is written over.
    """

    order: list[Node]
    users: dict[int, list[Node]]
    kernels: list[Kernel] = field(default_factory=list)
    kernel_of: dict[int, Kernel] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    in_place: dict[int, Node] = field(default_factory=dict)


def is_expensive(node: Node) -> bool:
    """Whether it pays to keep what a map computed, for a second use."""
    steps = node.work.steps if node.kind == "map" else ()
    return any(name.startswith("math.") or name in ("truediv", "pow") for name, _ in steps)


def _row_space(space: Shape) -> Shape:
    return (*space[:-1], 1) if space else ()


def loop_role(node: Node, space: Shape) -> str | None:
    """What a node is in loops over ``space``.

    Returns:
        ``full``, computed at each element; ``row``, once for each row along the last axis;
        ``rowfold``, folded along each row; ``fold`` and ``foldrows``, folded over elements, or over
        what rows have; ``scatter``, put somewhere at each element; None where it has no place.
    """
    if node.kind == "scatter":
        return "scatter" if node.inputs[1].shape == space else None
    if node.kind in ("map", "gather"):
        return "full" if node.shape == space else "row" if node.shape == _row_space(space) else None
    source = node.inputs[0].shape
    if source == space:
        alone = node.detail[1] == (len(space) - 1,)
        return "rowfold" if alone else "fold"
    return "foldrows" if source == _row_space(space) else None


def _loop_space(node: Node) -> Shape:
    """What loops go over that compute a node."""
    if node.kind == "fold":
        return node.inputs[0].shape
    return node.inputs[1].shape if node.kind == "scatter" else node.shape


def loop_levels(nodes: Sequence[Node], space: Shape) -> dict[int, int]:
    """By number of a node, in which of the loops along a row it is first known.

    What a row is folded to is known when a loop is over; what needs it comes in the next.
    """
    found: dict[int, int] = {}
    folded = {n.id for n in nodes if loop_role(n, space) == "rowfold"}
    for n in nodes:
        found[n.id] = max(
            (found[i.id] + (i.id in folded) for i in n.inputs if i.id in found), default=0
        )
    return found


class _Fuser:
    def __init__(
        self, order: list[Node], kept: Sequence[Node], updates: Mapping[int, Node], checks: set[int]
    ) -> None:
        users: dict[int, list[Node]] = {n.id: [] for n in order}
        for n in order:
            for i in n.inputs:
                users[i.id].append(n)
        self.made = FusedGraph(order, users)
        self._kept = {n.owner.id for n in kept}
        # What must lie in memory, though it may be one number.
        self._read_there = {i.owner.id for n in order if n.kind in _IN_MEMORY for i in n.inputs}
        self._updates, self._checks = updates, checks
        # By number of a node, the place after which its value is known.
        self._place: dict[int, int] = {}
        # By number of a leaf, the latest place that reads it.
        self._read: dict[int, int] = {}
        # By number of a node, the leaves that are read where it is computed as a number.
        self._leaves: dict[int, frozenset[int]] = {}
        self._steps: dict[int, int] = {}
        self._recent: dict[Shape, Kernel] = {}
        self._waiting: dict[int, Node] = {}
        # By number of a node that waited, those that it waited with.
        self._behind: dict[int, frozenset[int]] = {}
        self._barrier = -1
        # By place of a kernel, see ``_read_elsewhere``.
        self._misread: dict[int, tuple[dict[int, int], set[int]]] = {}

    def run(self) -> FusedGraph:
        for n in self.made.order:
            if n.kind in _IN_LOOPS and not self._is_number(n):
                if self._can_wait(n):
                    self._waiting[n.id] = n
                    self._place[n.id] = -1
                else:
                    self._put(n)
            else:
                self._put_all(self._before(n))
                if n.kind in _ALONE:
                    self._read_by(self._append(n.kind, n), n)
                else:
                    self._place[n.id] = max((self._place[i.id] for i in n.inputs), default=-1)
            self._note(n)
        self._find_stored()
        for n in self.made.order:
            if n.id in self._updates:
                self._settle_update(n, self._updates[n.id])
        return self.made

    # -------------------------------------------------------------- nodes that wait

    def _can_wait(self, n: Node) -> bool:
        """Whether a map reads arrays alone, and so may be computed as late as it is needed."""
        if n.kind != "map" or n.id in self._kept or n.id in self._updates or n.id in self._checks:
            return False
        if not n.late and any(self._place[i.id] >= 0 for i in n.inputs):
            return False
        behind = frozenset((n.id,)).union(*[self._behind.get(i.id, ()) for i in n.inputs])
        self._behind[n.id] = behind
        return len(behind) <= _MOST_WAITING

    def _before(self, n: Node) -> list[Node]:
        """The nodes that wait and are needed for ``n``, inputs first."""
        found: dict[int, Node] = {}
        stack = list(n.inputs)
        while stack:
            i = stack.pop()
            if i.id in self._waiting and i.id not in found:
                found[i.id] = i
                stack += i.inputs
        return [found[k] for k in sorted(found)]

    def _put_all(self, nodes: Sequence[Node]) -> None:
        for n in nodes:
            if self._waiting.pop(n.id, None) is not None:
                self._put(n)

    # -------------------------------------------------------------- places

    def _is_number(self, n: Node) -> bool:
        if n.kind != "map" or n.size != 1 or n.id in self._kept or n.id in self._updates:
            return False
        if n.id in self._read_there:
            return False
        steps = len(n.work.steps) + sum(self._steps.get(i.id, 0) for i in n.inputs)
        if steps > _MOST_STEPS:
            return False
        self._steps[n.id] = steps
        self.made.numbers.add(n.id)
        return True

    def _note(self, n: Node) -> None:
        """Which leaves a use of ``n`` reads, where it is a view or a number."""
        if n.kind == "leaf":
            self._leaves[n.id] = frozenset((n.id,))
        elif n.kind in ("view", "join") or n.id in self.made.numbers or n.id in self._waiting:
            self._leaves[n.id] = frozenset().union(*[self._leaves[i.id] for i in n.inputs])
        else:
            self._leaves[n.id] = frozenset()

    def _append(self, kind: str, n: Node) -> Kernel:
        kernel = Kernel(kind, len(self.made.kernels), [], n.shape)
        self.made.kernels.append(kernel)
        if kind == "call":
            self._barrier = kernel.place
        self._enter(kernel, n)
        return kernel

    def _enter(self, kernel: Kernel, n: Node) -> None:
        kernel.nodes.append(n)
        self.made.kernel_of[n.id] = kernel
        self._place[n.id] = kernel.place

    def _read_by(self, kernel: Kernel, n: Node) -> None:
        for i in n.inputs:
            for leaf in self._leaves[i.id]:
                self._read[leaf] = max(self._read.get(leaf, -1), kernel.place)
            kernel.reads.add(i.owner.id)

    def _put(self, n: Node) -> None:
        space = _loop_space(n)
        for whole in random_access_inputs(n):
            self._put_all([*self._before(whole), whole])
        before = self._before(n)
        self._put_all([i for i in before if loop_role(i, space) is None])
        before = [i for i in before if i.id in self._waiting]
        if n.id in self._updates:
            own = {i.id for i in before}
            state = self._updates[n.id].id
            others = [i for i in self._waiting.values() if i.id not in own]
            self._put_all([i for i in others if state in self._leaves[i.id]])
        inputs = [i for m in (n, *before) for i in m.inputs if i.id not in self._waiting]
        latest = max((self._place[i.id] for i in inputs), default=-1)
        if n.id in self._updates:
            latest = max(latest, self._read.get(self._updates[n.id].id, -1), self._barrier + 1)
        kernel = self._find(n, latest, inputs)
        if kernel is None or not all(self._fits(m, kernel) for m in before):
            kernel = self._open(n)
        for m in (*before, n):
            self._waiting.pop(m.id, None)
            self._enter(kernel, m)
            self._read_by(kernel, m)
        if n.id in self._checks:
            kernel.checks.append(n)
            self._barrier = max(self._barrier, kernel.place)

    def _open(self, n: Node) -> Kernel:
        """A new kernel at the end."""
        space = _loop_space(n)
        kernel = Kernel("loops", len(self.made.kernels), [], space)
        self.made.kernels.append(kernel)
        self._recent[space] = kernel
        return kernel

    def _find(self, n: Node, latest: int, inputs: Sequence[Node]) -> Kernel | None:
        kernels = self.made.kernels
        if 0 <= latest < len(kernels) and self._fits(n, kernels[latest]):
            return kernels[latest]
        space = _loop_space(n)
        recent = self._recent.get(space)
        if recent is None or recent.place <= latest or not self._fits(n, recent):
            return None
        shares = any(i.size > 1 and i.owner.id in recent.reads for i in inputs)
        return recent if shares or n.size <= _FEW else None

    def _fits(self, n: Node, kernel: Kernel) -> bool:
        if kernel.kind != "loops" or len(kernel.nodes) >= _MOST_NODES:
            return False
        found = loop_role(n, kernel.space)
        if found is None:
            return False
        whole = random_access_inputs(n)
        for i in n.inputs:
            if self._place[i.id] != kernel.place:
                continue
            if i in whole:
                return False
            if self.made.kernel_of.get(i.id) is not kernel:
                return False  # of it through a view: at another index
            inner = loop_role(i, kernel.space)
            if inner not in ("full", "row", "rowfold"):
                return False  # known when all loops are over
            if (inner == "full") != (i.shape == kernel.space):
                return False
            if inner == "full" and found in ("row", "foldrows"):
                return False
        return True

    # -------------------------------------------------------------- memory

    def _find_stored(self) -> None:
        made = self.made
        for n in made.order:
            kernel = made.kernel_of.get(n.id)
            if kernel is None:
                continue
            keep = n.id in self._kept or n.id in self._updates or n.id in self._checks
            keep = keep or n.kind in (*_ALONE, "scatter")
            keep = keep or loop_role(n, kernel.space) in ("fold", "foldrows")
            for user in made.users[n.id]:
                if keep:
                    break
                keep = made.kernel_of.get(user.id) is not kernel
            if keep:
                made.stored.add(n.id)
        for kernel in made.kernels:
            if kernel.kind == "loops" and kernel.space:
                self._keep_long_rows(kernel)

    def _keep_long_rows(self, kernel: Kernel) -> None:
        """Store what later loops along a row need again, where the stack has no room for it."""
        level = loop_levels(kernel.nodes, kernel.space)
        for n in kernel.nodes:
            long = kernel.space[-1] * ITEM_SIZES[n.type] > _STACK
            if long and loop_role(n, kernel.space) == "full" and is_expensive(n):
                later = any(level.get(u.id, 0) > level[n.id] for u in self.made.users[n.id])
                if later:
                    self.made.stored.add(n.id)

    def _settle_update(self, n: Node, state: Node) -> None:
        """Write an update over its state where nobody reads that later, nor at another index."""
        kernel = self.made.kernel_of.get(n.id)
        if kernel is None or kernel.place <= self._barrier:
            return
        last = self._read.get(state.id, -1)
        if last > kernel.place:
            return
        alone = kernel.kind == "product" and n.inputs[2:] == (state,)
        if last == kernel.place and not alone and not self._reads_along(kernel, n, state):
            return
        self.made.in_place[n.id] = state

    def _reads_along(self, kernel: Kernel, n: Node, state: Node) -> bool:
        """Whether a kernel reads a state only where it writes it, and not after it did."""
        if kernel.kind != "loops" or loop_role(n, kernel.space) != "full":
            return False
        known = self._misread.get(kernel.place)
        if known is None:
            known = self._misread[kernel.place] = self._read_elsewhere(kernel)
        level, astray = known
        # What is cheap is computed again in later loops along a row.
        return level[n.id] == max(level.values()) and state.id not in astray

    def _read_elsewhere(self, kernel: Kernel) -> tuple[dict[int, int], set[int]]:
        """The levels of a kernel's nodes, and the leaves that it reads at another index."""
        own = {m.id for m in kernel.nodes}
        astray: set[int] = set()
        for n in kernel.nodes:
            for i in random_access_inputs(n):
                astray |= self._leaves[i.id]
            for i in n.inputs:
                if i.size == 1 or i.id in own:  # numbers are read before the loops
                    continue
                shown = i.inputs[0] if i.kind == "view" and i.detail[0] == "reshape" else i
                if shown.kind != "leaf" or i.shape != kernel.space:
                    astray |= self._leaves[i.id]
        return loop_levels(kernel.nodes, kernel.space), astray


def fuse(
    order: list[Node], kept: Sequence[Node], updates: Mapping[int, Node], checks: Sequence[Node]
) -> FusedGraph:
    """Make kernels.

    Args:
        order: Nodes, inputs first.
        kept: Those that must lie in memory: results.
        updates: By number of a node, the leaf of the state that it becomes; the node is a map, a
            fold or a product that nothing else claims.
        checks: Truths, each one number: a kernel that computes one is told of it.
    """
    return _Fuser(order, kept, updates, {n.id for n in checks}).run()
