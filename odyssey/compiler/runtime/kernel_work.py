"""Work of kernels: the rows they compute, the bytes they move, and their flops.

Called by ``profile`` and ``explain``, for reports.
"""

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
    """Work of one kernel.

    Attributes:
        kind: ``loops``, ``product``, ``scan``, ``lapack`` or ``call``.
        space: Iteration space, as text.
        what: Rows that it computes, with the number of nodes of each.
        bytes: Bytes of the elements that it reads or writes, each counted once.
        flops: Arithmetic operations, where a function such as ``exp`` counts as one; None if a
            library computes.
    """

    kind: str
    space: str
    what: str
    bytes: int
    flops: int | None


def kernel_work(plan: Plan, kernel: Kernel) -> KernelWork:
    """Count the work of a kernel."""
    space = "x".join(map(str, kernel.space)) or "1"
    flops = None if kernel.kind in ("call", "lapack") else sum(map(count_flops, kernel.nodes))
    moved = _bytes_read(plan, kernel) + _bytes_written(plan, kernel)
    return KernelWork(kernel.kind, space, _kernel_rows(kernel), moved, flops)


def format_count(number: int | None) -> str:
    """Format a count for people; a dash if it is unknown."""
    return "-" if number is None else f"{number:,}"


def _kernel_rows(kernel: Kernel) -> str:
    """Return the rows of a kernel in order: ``multiply, 2 add``."""
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
    """Return the bytes that a kernel reads; of a view, those that it shows."""
    own = {n.id for n in kernel.nodes}
    shown: dict[int, int] = {}
    for n in kernel.nodes:
        if kernel.kind in ("product", "lapack"):
            given = n.inputs
        elif n.kind == "gather":
            given = n.inputs[1:]
            first = n.inputs[0].owner
            shown[first.id] = shown.get(first.id, 0) + min(n.size, n.inputs[0].size)
        else:
            given = n.inputs[plan.is_over_base(n) :]
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
    """Return the number of distinct elements of a node."""
    if node.owner.id not in plan.allocations:
        return node.owner.size
    view = plan.allocation(node).view
    return math.prod(n for n, step in zip(view.shape, view.strides, strict=True) if step)


def _bytes_written(plan: Plan, kernel: Kernel) -> int:
    """Return the bytes that a kernel writes."""
    if kernel.kind == "call":  # results stay in the arrays that the call returned
        return sum(s.size * s.dtype.itemsize for s in kernel.nodes[0].payload.specs)
    homes = plan.allocations
    return sum(
        (n.inputs[1] if plan.is_over_base(n) else n).size * ITEM_SIZES.get(n.type, 0)
        for n in kernel.nodes
        if n.id in homes
    )
