"""Window products: products that read sliding windows in place, without im2col columns.

Called by ``simplify`` as a rewrite, and by code generation to read the windows of a product.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.passes.rewriting import Context, product_work
from odyssey.compiler.ways.products import window_product_ways

__all__ = [
    "MAX_SUM_LENGTH",
    "VECTOR_STRIDES",
    "ProductAxes",
    "product_axes",
    "is_vectorizable",
    "window_product",
]

MAX_SUM_LENGTH = 512
"""Longest plain sum; longer ones are sums of partial sums, as in BLAS."""

VECTOR_STRIDES = (1, 2)
"""Strides with which elements can be read in vectors."""

# Longer sums, of this many partial sums, would be less accurate than BLAS.
_MAX_TERMS = MAX_SUM_LENGTH**2


class ProductAxes(NamedTuple):
    """Numbers of inner axes and of column axes of a tensor product."""

    inner: int
    columns: int


def product_axes(product: Node) -> ProductAxes | None:
    """Return the axes of a tensor product; None for a matrix product."""
    return ProductAxes(*product.detail[2:]) if len(product.detail) > 2 else None


def window_product(node: Node, inputs: list[Node], context: Context) -> Node | None:
    """Replace a product with window columns by one that reads the windows themselves."""
    builder = context.builder
    if node.kind != "product" or node.detail not in (("=", 0.0), ("sum", 0.0)):
        return None
    a, b = inputs
    if node.type not in ("f4", "f8") or not node.size or not b.size:
        return None
    transposed = _transposed_matrices(b)
    windows = _window_columns(builder, transposed or b)
    if windows is None:
        return None
    b, head, tail, step = windows
    dims = len(b.shape)
    inner, columns = b.shape[head : dims - tail], b.shape[dims - tail :]
    if transposed is not None:
        order = (*range(head), *range(dims - tail, dims), *range(head, dims - tail))
        b, inner, columns = builder.transpose(b, order), columns, inner
    length = math.prod(inner) * (math.prod(a.shape[:-2]) if node.detail[0] == "sum" else 1)
    weight = a.shape[-2] * math.prod(columns if transposed is not None else inner)
    if length > _MAX_TERMS or (transposed is None and max(inner) > MAX_SUM_LENGTH):
        return None

    window, stride, dilation = (transposed or inputs[1]).inputs[0].detail[1]
    options = f"window={window}, stride={stride}, dilation={dilation}"
    if node.detail[0] == "sum":
        options += ", sum of the batch"
    describe = product_work("window product", (a, inputs[1]), options)
    if context.choices.choose(window_product_ways(weight, step), describe) == "columns":
        return None
    a = builder.reshape(a, (*a.shape[:-1], *inner))
    detail = (*node.detail, len(inner), len(columns))
    return builder.make_node("product", [a, b], node.shape, node.type, detail)


def _transposed_matrices(node: Node) -> Node | None:
    """Return the operand of a transpose of the last two axes; None for another node."""
    if node.kind == "view" and node.detail[0] == "transpose":
        n = len(node.shape)
        if node.detail[1] == (*range(n - 2), n - 1, n - 2):
            return node.inputs[0]
    return None


def _window_columns(builder: IRBuilder, node: Node) -> tuple[Node, int, int, int] | None:
    """Return the windows that a node shows as im2col columns; None for another node.

    Returns:
        Windows of shape (batch, channels, window elements, positions), the number of batch axes,
        the number of position axes, and the stride of the last one.
    """
    if node.kind != "view" or node.detail[0] != "reshape":
        return None
    windows = node.inputs[0]
    if windows.kind != "view" or windows.detail[0] != "windows":
        return None
    window, stride, _ = windows.detail[1]
    n = len(window)
    elements = math.prod(window)
    counts = windows.shape[-n:]
    *batch, height, positions = node.shape
    if (
        elements == 1
        or stride[-1] not in VECTOR_STRIDES
        or positions != math.prod(counts)
        or height % elements
    ):
        return None
    shape = (*batch, height // elements, *window, *counts)
    try:
        View.dense(windows.inputs[0].shape).windows(*windows.detail[1]).reshape(shape)
    except ValueError:
        return None
    return builder.reshape(windows, shape), len(batch), n, stride[-1]


def is_vectorizable(a: View, b: View, axes: ProductAxes) -> bool:
    """Return whether columns, or the inner axis of both operands, can be read in vectors."""
    inside = (
        _innermost_stride(a, -axes.inner, None),
        _innermost_stride(b, -sum(axes), -axes.columns),
    )
    across = _innermost_stride(b, -axes.columns, None) in VECTOR_STRIDES
    return across or (inside[0] == 1 and inside[1] in VECTOR_STRIDES)


def _innermost_stride(view: View, start: int, end: int | None) -> int:
    axes = list(zip(view.shape[start:end], view.strides[start:end], strict=True))
    return next((step for length, step in reversed(axes) if length > 1), 1)
