"""What kernels do, counted: which rows are in them, and how much they move and compute."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from odyssey.compiler.ir.nodes import ITEM_SIZES, Node
from odyssey.compiler.passes.flops import count_flops
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["KernelWork", "format_count", "kernel_work"]

_LONGEST = 60


class KernelWork(NamedTuple):
    """What a kernel does.

    Attributes:
        kind: ``loops``, ``product``, ``scan`` or ``call``.
        space: Over which indices it loops, as text.
        what: The rows whose work it does, each with how many parts of it.
        bytes: Of elements that it reads or writes in memory, each counted once.
        flops: Steps of arithmetic, a function such as ``exp`` counted as one; None where a library
            knows.
    """

    kind: str
    space: str
    what: str
    bytes: int
    flops: int | None


def kernel_work(plan: Plan, kernel: Kernel) -> KernelWork:
    """Count what a kernel of a plan does."""
    space = "x".join(map(str, kernel.space)) or "1"
    flops = None if kernel.kind == "call" else sum(map(count_flops, kernel.nodes))
    moved = _bytes_read(plan, kernel) + _bytes_written(plan, kernel)
    return KernelWork(kernel.kind, space, _kernel_rows(kernel), moved, flops)


def format_count(number: int | None) -> str:
    """A count as people read it; a dash for what nobody knows."""
    return "-" if number is None else f"{number:,}"


def _kernel_rows(kernel: Kernel) -> str:
    """The rows of a kernel in order: ``multiply, 2 add``."""
    if kernel.kind == "call":
        return str(kernel.nodes[0].payload.row.name)
    counts = Counter(n.op or "copy" for n in kernel.nodes)
    parts = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    text = ", ".join(parts)
    while len(text) > _LONGEST and len(parts) > 1:
        parts.pop()
        text = f"{', '.join(parts)} and {len(counts) - len(parts)} more"
    return text


def _bytes_read(plan: Plan, kernel: Kernel) -> int:
    """Bytes of what lies in memory and is read; of a view those that it shows."""
    own = {n.id for n in kernel.nodes}
    shown: dict[int, int] = {}
    for n in kernel.nodes:
        if kernel.kind == "product":
            given = n.inputs
        elif n.kind == "gather":
            given = n.inputs[1:]
            first = n.inputs[0].owner
            shown[first.id] = shown.get(first.id, 0) + min(n.size, n.inputs[0].size)
        else:
            given = n.inputs
        for i in given:
            if i.owner.id not in own:
                shown[i.owner.id] = shown.get(i.owner.id, 0) + _distinct_elements(plan, i)
    total = 0
    for node in plan.arrays_read(kernel):
        home = plan.allocations[node.id]
        size = ITEM_SIZES.get(node.type, 0)
        total += min(shown.get(node.id, 1), node.size) * size if home else 0
    return total


def _distinct_elements(plan: Plan, node: Node) -> int:
    """How many elements a node shows, each counted once."""
    if node.owner.id not in plan.allocations:
        return node.owner.size
    view = plan.allocation(node).view
    return math.prod(n for n, step in zip(view.shape, view.strides, strict=True) if step)


def _bytes_written(plan: Plan, kernel: Kernel) -> int:
    if kernel.kind == "call":  # whose results lie where they were made
        return sum(s.size * s.dtype.itemsize for s in kernel.nodes[0].payload.specs)
    homes = plan.allocations
    return sum(n.size * ITEM_SIZES.get(n.type, 0) for n in kernel.nodes if n.id in homes)
