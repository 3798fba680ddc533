"""Work partition: which kernels are parallelized, and into which blocks (their grain size).

Called by code generation for each kernel. Blocks depend on shapes alone, and sums of blocks are
added in the order of the blocks. So results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from odyssey.compiler.ir.nodes import Node, is_expensive
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.symbolic.dims import SymbolicDim

__all__ = [
    "Tiling",
    "overwritten_scalars",
    "partition_loop",
    "partition_symbolic_loop",
    "gemm_block_size",
    "is_worth_threads",
    "lapack_work",
    "estimated_seconds",
    "has_symbolic_sizes",
]

# Kernels that take longer on one thread are parallelized: 100,000 elements of a sum of two arrays.
# To call a thread that spins takes 0.5 microseconds, and one that sleeps 8 to 25.
_MIN_PARALLEL_SECONDS = 12e-6

# Multiplications from which on one product is parallelized: 25 microseconds on one thread.
_MIN_PARALLEL_GEMM = 1 << 21
# From this many on a product has more blocks, twice as many for each eightfold. Each block packs a
# copy of one matrix: (256, 784) @ (784, 512) on one thread took 1.07 times as long in two blocks as
# in one, 1.12 times in four, 1.25 times in eight.
_GEMM_BLOCK_WORK = 1 << 25
# Rows or columns that the innermost loops of BLAS libraries process at once, or multiples.
_GEMM_TILE = 32

# Least seconds of a block; and most blocks, so that slower threads, or those that start later, take
# fewer of them.
_BLOCK_SECONDS = 6e-6
_MAX_BLOCKS = 64
# Most blocks if each is a slice of every row: longer slices are read faster.
_MAX_ROW_BLOCKS = 8
# Least contiguous elements of a block: elements of one byte fill a cache line.
_CACHE_LINE = 64

# Seconds of an element that is read and written, of a step of arithmetic, of a function like exp.
_ELEMENT_SECONDS, _STEP_SECONDS, _FUNCTION_SECONDS = 1e-10, 0.2e-10, 5e-10
_MULTIPLICATION_SECONDS = 1.2e-11


class Tiling(NamedTuple):
    """A loop that is partitioned into blocks.

    Attributes:
        depth: Depth of the loop in its nest, 0 for the outermost.
        length: Indices of a block; the last block may have fewer.
        blocks: Number of blocks.
    """

    depth: int
    length: int
    blocks: int


def estimated_seconds(kernel: Kernel) -> float:
    """Estimate the seconds of a kernel on one thread."""
    if kernel.kind == "product":
        node = kernel.nodes[0]
        return _multiplication_count(node) * _MULTIPLICATION_SECONDS
    if kernel.kind == "lapack":
        node = kernel.nodes[0]
        return lapack_work(node) * _MULTIPLICATION_SECONDS + node.size * _ELEMENT_SECONDS
    if kernel.kind == "scan":
        return kernel.nodes[0].size * (_ELEMENT_SECONDS + _FUNCTION_SECONDS)
    size = math.prod(kernel.space)
    if has_symbolic_sizes(kernel):
        functions = sum(map(is_expensive, kernel.nodes))
        steps = _STEP_SECONDS * len(kernel.nodes) + _FUNCTION_SECONDS * functions
        return (_ELEMENT_SECONDS + steps) * size
    # Values of a row, as the deviations of a normalization, are computed once a row.
    steps = 0.0
    for n in kernel.nodes:
        own = n.inputs[n.kind == "scatter"].size if n.kind in ("reduce", "scatter") else n.size
        steps += min(own, size) * (_STEP_SECONDS + _FUNCTION_SECONDS * is_expensive(n))
    return _ELEMENT_SECONDS * size + steps


def has_symbolic_sizes(kernel: Kernel) -> bool:
    """Return whether the loops, inputs or results of a kernel have a symbolic size."""
    shapes = [kernel.space, *[i.shape for n in kernel.nodes for i in (n, *n.inputs)]]
    return any(isinstance(length, SymbolicDim) for shape in shapes for length in shape)


def is_worth_threads(kernel: Kernel) -> bool:
    """Return whether a kernel is long enough for several threads."""
    return estimated_seconds(kernel) >= _MIN_PARALLEL_SECONDS


def lapack_work(node: Node) -> int:
    """Return about how many multiplications the matrices of a LAPACK node take."""
    name, n, (rows, columns) = node.detail[0], node.inputs[0].shape[-1], node.shape[-2:]
    per_matrix = {
        "potrf": n**3 // 6,
        "getrf": n**3 // 3,
        "getrs": rows * columns**2,
        "trtrs": rows**2 * columns // 2,
    }
    return math.prod(node.shape[:-2]) * per_matrix[name]


def _multiplication_count(product: Node) -> int:
    """Count the multiplications of a product, of matrices or tensors, with or without batch sum."""
    how, _, *axes = product.detail
    left = product.inputs[0].shape
    inner = axes[0] if axes else 1
    batch = math.prod(left[: -1 - inner]) if how == "sum" else 1
    return product.size * math.prod(left[-inner:]) * batch


def partition_loop(
    lengths: list[int], divisible: list[bool], seconds: float, step: int, outside: bool = False
) -> Tiling | None:
    """Partition the outermost divisible loop of a nest.

    Args:
        lengths: Lengths of the loops, the outermost first.
        divisible: Whether each loop's indices may be processed in any order.
        seconds: Estimate for the whole nest on one thread.
        step: The indices of a block of the innermost loop are a multiple of this.
        outside: Whether there is another loop around the nest.

    Returns:
        None if it does not pay, or no loop is divisible.
    """
    if seconds < _MIN_PARALLEL_SECONDS:
        return None
    for depth, length in enumerate(lengths):
        if not divisible[depth]:
            continue
        row_slices = outside or (depth and depth == len(lengths) - 1)
        most = min(
            _MAX_ROW_BLOCKS if row_slices else _MAX_BLOCKS, int(seconds / _BLOCK_SECONDS), length
        )
        block = -(-length // most)
        if depth == len(lengths) - 1:
            block = -(-block // max(step, _CACHE_LINE)) * max(step, _CACHE_LINE)
        if block < length:
            return Tiling(depth, block, -(-length // block))
    return None


def partition_symbolic_loop(length: int, seconds: float, innermost: bool) -> Tiling:
    """Partition a loop of symbolic length; a short one is a single block.

    Args:
        length: Length of the loop at this size.
        seconds: Estimate for the loop on one thread.
        innermost: Whether there is no loop inside.
    """
    length, step = int(length), _CACHE_LINE if innermost else 1
    most = (
        min(_MAX_BLOCKS, int(seconds / _BLOCK_SECONDS), length)
        if seconds >= _MIN_PARALLEL_SECONDS
        else 1
    )
    block = -(-length // max(most, 1))
    block = max(-(-block // step) * step, 1)
    return Tiling(0, block, max(-(-length // block), 1))


def gemm_block_size(m: int, n: int, k: int) -> int | None:
    """Return the size of blocks of a product's rows or columns, the longer; None for one block."""
    work, longer = m * n * k, max(m, n)
    if work < _MIN_PARALLEL_GEMM:
        return None
    blocks = 2
    while blocks < _MAX_BLOCKS and work > 2 * blocks**3 * _GEMM_BLOCK_WORK:
        blocks *= 2
    size = -(-longer // (blocks * _GEMM_TILE)) * _GEMM_TILE
    return size if size < longer else None


def overwritten_scalars(plan: Plan, kernel: Kernel) -> list[Node]:
    """Return the scalars that a kernel reads where it writes, which blocks would see changed."""
    own = {n.id for n in kernel.nodes}
    allocations = [plan.allocations[n.id] for n in kernel.nodes if n.id in plan.allocations]
    written = {id(allocation.buffer) for allocation in allocations}
    stack = [i for n in kernel.nodes for i in n.inputs if i.size == 1 and i.id not in own]
    visited: set[int] = set()
    found: list[Node] = []
    while stack:
        node = stack.pop()
        if node.id in visited:
            continue
        visited.add(node.id)
        owner = node.owner
        if owner.id in plan.fused.numbers:
            stack += owner.inputs
        elif owner.id in plan.allocations and id(plan.allocations[owner.id].buffer) in written:
            found.append(node)
    return found
