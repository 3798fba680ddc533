"""What of a program is worth several threads, and into which blocks it is cut.

Blocks follow from shapes alone. So what a block gives is the same whoever computes it, and sums
over blocks are added up in the blocks' order: results do not depend on how many threads there are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel, is_expensive
from odyssey.compiler.symbolic.dims import Varying

__all__ = [
    "Tiling",
    "reads_own_output",
    "partition_loop",
    "partition_symbolic_loop",
    "gemm_block_size",
    "is_worth_threads",
    "estimated_seconds",
    "has_symbolic_sizes",
]

# Seconds of one thread from which on a loop is shared: 100,000 elements of a sum of two arrays. To
# call a thread that looks for work takes .5 microseconds, and one that sleeps 8 to 25.
_WORTH = 12e-6

# Multiplications from which on one product is shared: 25 microseconds of one thread.
_LARGE = 1 << 21
# From so many on there are more parts, twice as many for each eightfold. Each packs a copy of one
# matrix: of (256, 784) @ (784, 512) in one thread two parts took 1.07 times as long as the whole,
# four 1.12, eight 1.25.
_PART = 1 << 25
# Rows or columns that the innermost loops of libraries take at once, or multiples.
_TILE = 32

# Seconds that a block takes at least; and how many there are at most, so that threads which are
# slower, or begin later, take fewer of them.
_SECONDS = 6e-6
_MOST = 64
# Where each block is a part of every row: longer parts are read faster.
_FEW = 8
# Elements side by side that a block has at least: of one byte they fill a line of a cache.
_LINE = 64

# Seconds of an element that is read and written, of a step of arithmetic, of a function like exp.
_ELEMENT, _STEP, _FUNCTION = 1e-10, 0.2e-10, 5e-10
_MULTIPLICATION = 1.2e-11


class Tiling(NamedTuple):
    """A loop in blocks.

    Attributes:
        depth: Which loop, from outside.
        length: Indices of a block; the last may have fewer.
        blocks: How many there are.
    """

    depth: int
    length: int
    blocks: int


def estimated_seconds(kernel: Kernel) -> float:
    """Seconds that one thread takes for a kernel, roughly, on a processor of today."""
    if kernel.kind == "product":
        node = kernel.nodes[0]
        return _multiplication_count(node) * _MULTIPLICATION
    if kernel.kind == "scan":
        return kernel.nodes[0].size * (_ELEMENT + _FUNCTION)
    costly = sum(map(is_expensive, kernel.nodes))
    each = _ELEMENT + _STEP * len(kernel.nodes) + _FUNCTION * costly
    return each * math.prod(kernel.space)


def has_symbolic_sizes(kernel: Kernel) -> bool:
    """Whether it loops over a size that varies, or reads or gives such ones."""
    shapes = [kernel.space, *[i.shape for n in kernel.nodes for i in (n, *n.inputs)]]
    return any(isinstance(length, Varying) for shape in shapes for length in shape)


def is_worth_threads(kernel: Kernel) -> bool:
    """Whether threads may be worth it."""
    return estimated_seconds(kernel) >= _WORTH


def _multiplication_count(product: Node) -> int:
    """Of a product, whose batch may be summed up, and which may be one of tensors."""
    how, _, *axes = product.detail
    left = product.inputs[0].shape
    inner = axes[0] if axes else 1
    batch = math.prod(left[: -1 - inner]) if how == "sum" else 1
    return product.size * math.prod(left[-inner:]) * batch


def partition_loop(
    lengths: list[int], free: list[bool], seconds: float, step: int, outside: bool = False
) -> Tiling | None:
    """Blocks of the outermost loop that can be cut.

    Args:
        lengths: Of the loops, the outermost first.
        free: Whether a loop's indices may be taken in any order.
        seconds: That all takes.
        step: Of which number the indices of a block are a multiple, where the innermost loop is
            cut.
        outside: Whether there is a loop around all.

    Returns:
        None where it does not pay, or no loop can be cut.
    """
    if seconds < _WORTH:
        return None
    for depth, length in enumerate(lengths):
        if not free[depth]:
            continue
        parts_of_rows = outside or (depth and depth == len(lengths) - 1)
        most = min(_FEW if parts_of_rows else _MOST, int(seconds / _SECONDS), length)
        block = -(-length // most)
        if depth == len(lengths) - 1:
            block = -(-block // max(step, _LINE)) * max(step, _LINE)
        if block < length:
            return Tiling(depth, block, -(-length // block))
    return None


def partition_symbolic_loop(length: int, seconds: float, innermost: bool) -> Tiling:
    """Blocks of a loop whose length varies: of a short one there is a single block.

    Args:
        length: Of the loop, here.
        seconds: That all takes.
        innermost: Whether there is no loop within it.
    """
    length, step = int(length), _LINE if innermost else 1
    most = min(_MOST, int(seconds / _SECONDS), length) if seconds >= _WORTH else 1
    block = -(-length // max(most, 1))
    block = max(-(-block // step) * step, 1)
    return Tiling(0, block, max(-(-length // block), 1))


def gemm_block_size(m: int, n: int, k: int) -> int | None:
    """Of how many rows or columns, whichever are more, a part has; None where it is not cut."""
    work, longer = m * n * k, max(m, n)
    if work < _LARGE:
        return None
    parts = 2
    while parts < _MOST and work > 2 * parts**3 * _PART:
        parts *= 2
    size = -(-longer // (parts * _TILE)) * _TILE
    return size if size < longer else None


def reads_own_output(plan: Plan, kernel: Kernel) -> bool:
    """Whether a kernel reads as a number what it writes over: the next block would read another."""
    own = {n.id for n in kernel.nodes}
    homes = [plan.homes[n.id] for n in kernel.nodes if n.id in plan.homes]
    written = {id(home.buffer) for home in homes}
    stack = [i for n in kernel.nodes for i in n.inputs if i.size == 1 and i.id not in own]
    known: set[int] = set()
    while stack:
        node = stack.pop()
        if node.id in known:
            continue
        known.add(node.id)
        owner = node.owner
        if owner.id in plan.fused.numbers:
            stack += owner.inputs
        elif id(_buffer_of(plan, owner)) in written:
            return True
    return False


def _buffer_of(plan: Plan, node: Node) -> object:
    home = plan.homes.get(node.id)
    return home and home.buffer
