"""Products with one row or one column as sums of products along contiguous rows of a matrix.

Called by ``pass_manager``. A product with one row reads each element of the matrix once, so it
takes the time in which the matrix is read, and a loop that reads it in order is as fast as any
library. As nodes of loops it shares a kernel with what its elements are computed from and with what
is computed from them: casts of the matrix from half precision, a bias, a residual. Such a program
holds no float32 copy of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from odyssey.compiler.ir.nodes import (
    ITEM_SIZES,
    IRBuilder,
    Node,
    ScalarProgram,
    is_expensive,
    rewrite,
    scalar_program,
    topological_order,
)
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.types import HALVES
from odyssey.compiler.passes.layout_assignment import Roots, current_view, strided_leaves
from odyssey.compiler.passes.rewriting import product_work, users_of
from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.ways.products import row_product_ways

__all__ = ["MAX_ROWS", "fold_row_products"]

MAX_ROWS = 8
"""Most rows, or columns, of a product that reads its matrix as it lies."""
# Elements of a block of a matrix of half precision, which is 4 MB of float32; its rows or columns
# are a multiple of what the innermost loops of BLAS process at once.
_BLOCK, _BLOCK_LINES = 1 << 20, 32
# Longest sum.
_LONGEST = 1 << 20


def fold_row_products(roots: Roots) -> None:
    """Replace products with one row, whose matrix lies along the inner axis, by sums."""
    states = [n for n in topological_order(roots.nodes) if n.kind == "leaf"]
    states = [n for n in states if n.detail[0] == "state"]
    leaves = strided_leaves(states, roots.strides)
    folds: set[int] = set()

    def rule(node: Node, inputs: list[Node]) -> Node | None:
        if node.kind == "product":
            fold = _fold(roots, node, inputs, leaves)
            if fold is not None:
                folds.add(fold.id)
                return fold
            return _with_half(roots.builder, node, inputs)
        if node.kind == "view" and node.detail[0] == "reshape" and inputs[0].id in folds:
            view = roots.builder.reshape(inputs[0], node.shape)
            folds.add(view.id)
            return view
        if node.kind == "map" and any(i.id in folds for i in inputs):
            return _reader(roots.builder, node, inputs, folds)
        return None

    roots.nodes = rewrite(roots.builder, roots.nodes, rule)
    if roots.builder.multiplies_halves:
        users = users_of(roots.nodes)
        write = partial(_write_half, roots.builder, users)
        roots.nodes = rewrite(roots.builder, roots.nodes, write)


def _fold(roots: Roots, node: Node, inputs: list[Node], leaves: Mapping[int, View]) -> Node | None:
    """Return the sums that a product is; None if it is to stay a product."""
    builder = roots.builder
    if node.detail != ("=", 0.0) or node.type not in ("f4", "f8"):
        return None
    a, b = inputs
    if a.shape[-2] == 1:
        row, matrix = a, _swap_last_axes(builder, builder.half_source(b) or b)
    elif b.shape[-1] == 1:
        row, matrix = _swap_last_axes(builder, b), builder.half_source(a) or a
    else:
        return None
    batch, length = node.shape[:-2], matrix.shape[-1]
    if isinstance(length, SymbolicDim) or not 1 < length <= _LONGEST:
        return None
    if math.prod(matrix.shape[:-2]) != math.prod(batch):
        return None
    try:
        view = current_view(matrix, {}, leaves)
    except ValueError:
        return None
    if view.strides[-1] != 1:
        return None
    describe = product_work("row product", (row, matrix))
    is_single = math.prod(batch) == 1 and not isinstance(node.size, SymbolicDim)
    line = length * ITEM_SIZES[matrix.type] if is_single else None
    if roots.choices.choose(row_product_ways(node.size * length, line), describe) == "product":
        return None
    count = matrix.shape[-2]
    pad = (1,) * (len(batch) + 2 - len(matrix.shape))
    matrix = builder.reshape(matrix, (*pad, *matrix.shape[:-2], 1, count, length))
    row = builder.reshape(row, (*row.shape[:-1], 1, length))
    outer, builder.op = builder.op, node.op
    program = scalar_program(_multiply, 2, (), node.type)
    space = (*batch, 1, count, length)
    products = builder.map(program, [matrix, row], space, node.type)
    sums = builder.make_node(
        "reduce", [products], (*space[:-1], 1), node.type, ("sum", (len(space) - 1,))
    )
    builder.op = outer
    return builder.reshape(sums, node.shape)


def _with_half(builder: IRBuilder, node: Node, inputs: list[Node]) -> Node | None:
    """Return a product that reads matrices in half precision, as the target can."""
    if node.type != "f4" or len(node.detail) > 2:
        return None
    a, b = inputs[:2]
    if builder.multiplies_halves:
        left, right = builder.half_source(a), builder.half_source(b)
        if left is None or right is None or left.type != right.type:
            return None
        return builder.with_inputs(node, [left, right, *inputs[2:]])
    if node.detail[0] != "=":
        return None
    rows, columns = a.shape[-2], b.shape[-1]
    sources = [None, builder.half_source(b)] if rows <= columns else [builder.half_source(a), None]
    sizes = [n for i in (node, a, a.owner, b, b.owner) for n in i.shape]
    if any(isinstance(n, SymbolicDim) for n in sizes) or a.shape[-1] <= 1:
        return None
    if min(rows, columns) > MAX_ROWS:
        return _in_blocks(builder, node, inputs)
    if sources == [None, None]:
        return None
    pairs = zip(sources, inputs, strict=False)
    halves = [i if half is None else half for half, i in pairs]
    return builder.with_inputs(node, [*halves, *inputs[2:]])


def _write_half(
    builder: IRBuilder, users: Mapping[int, list[Node]], node: Node, inputs: list[Node]
) -> Node | None:
    """Return a product of halves that writes halves, for a cast that alone reads its result."""
    if node.kind != "map" or node.type not in HALVES or node.payload.steps or len(inputs) > 1:
        return None
    (product,) = inputs
    if product.kind != "product" or product.detail != ("=", 0.0) or product.shape != node.shape:
        return None
    if product.inputs[0].type != node.type or len(users[node.inputs[0].id]) > 1:
        return None
    return builder.make_node("product", product.inputs, node.shape, node.type, product.detail)


def _in_blocks(builder: IRBuilder, node: Node, inputs: list[Node]) -> Node | None:
    """Return products with blocks of a large matrix of half precision, each cast by itself."""
    half, turned = builder.half_source(inputs[1]), False
    if half is None or len(half.shape) > 2 or half.size <= _BLOCK:
        half, turned = builder.half_source(inputs[0]), True
    if half is None or len(half.shape) > 2 or half.size <= _BLOCK or node.detail[1]:
        return None
    # Lines of the matrix, each of which gives a column of the result, or a row if it is the left.
    lines = half if turned else _swap_last_axes(builder, half)
    along = lines.kind != "view" or lines.detail[0] != "transpose"
    count = lines.shape[0]
    blocks = -(-half.size // _BLOCK)
    size = -(-count // (blocks * _BLOCK_LINES)) * _BLOCK_LINES
    axes = len(node.shape)
    outer, builder.op = builder.op, node.op
    members = []
    for start in range(0, count, size):
        own = slice(start, min(start + size, count))
        if along:
            block = cast = builder.convert(builder.slice(lines, (own,)), "f4")
        else:  # cast in the order of memory
            columns = builder.slice(_swap_last_axes(builder, lines), (slice(None), own))
            cast = builder.convert(columns, "f4")
            block = _swap_last_axes(builder, cast)
        cast.is_rematerialized = True  # not in a loop with the other blocks
        operands = [block, inputs[1]] if turned else [inputs[0], _swap_last_axes(builder, block)]
        member = builder.matmul(*operands)
        key = (own, slice(None)) if turned else (slice(None), own)
        members.append((member, (*[slice(None)] * (axes - 2), *key)))
    joined = builder.join(members, node.shape, node.type)
    builder.op = outer
    return joined


def _multiply(x: Any, y: Any) -> Any:
    return x * y


def _swap_last_axes(builder: IRBuilder, node: Node) -> Node:
    n = len(node.shape)
    return builder.transpose(node, (*range(n - 2), n - 1, n - 2))


def _reader(builder: IRBuilder, node: Node, inputs: list[Node], folds: set[int]) -> Node | None:
    """Return a map of sums in their loops, with the unit axis that they have there."""
    if is_expensive(node) or not isinstance(node.detail, str):
        return None
    program = ScalarProgram(node.payload, node.detail)
    inputs = [builder.reshape(i, node.shape) if i.size == node.size else i for i in inputs]
    outer, builder.op = builder.op, node.op
    copy = builder.map(program, inputs, node.shape, node.type)
    builder.op = outer
    folds.add(copy.id)
    return copy
