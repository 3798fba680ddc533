"""Products with windows: these are read where they lie, and no columns are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from odyssey.compiler.ir.nodes import IRBuilder, Node, rewrite
from odyssey.compiler.ir.views import View

__all__ = [
    "MAX_SUM_LENGTH",
    "VECTOR_STRIDES",
    "ProductAxes",
    "product_axes",
    "is_vectorizable",
    "window_products",
]

MAX_SUM_LENGTH = 512
"""So many are added to one sum; of more, sums are added, as BLAS does it."""

VECTOR_STRIDES = (1, 2)
"""How far elements may lie apart that are read in vectors."""

# Sums of more elements would leave BLAS's accuracy behind: those of so many sums are added.
_MOST = MAX_SUM_LENGTH**2

# A weight of more elements is in no cache near for each tile anew: 512 channels of 7 by 7, windows
# of 3 by 3, take 24 ms so and 8 as columns by BLAS; 128 channels of 16 by 16, 38 and 57.
_LARGEST = 160_000
# Every other element of a line takes two loads: 64 to 128 channels, 6.1 ms so, 4.2 as columns.
_LARGEST_APART = 16_000


class ProductAxes(NamedTuple):
    """How many axes of the operands of a product are summed up, and how many are columns."""

    inner: int
    columns: int


def product_axes(product: Node) -> ProductAxes | None:
    """The axes of a product of tensors; None for one of matrices."""
    return ProductAxes(*product.detail[2:]) if len(product.detail) > 2 else None


def window_products(nodes: IRBuilder, roots: Sequence[Node]) -> list[Node]:
    """Let products with windows as columns be products with the windows themselves."""

    def rule(node: Node, inputs: list[Node]) -> Node | None:
        if node.kind != "product" or node.detail not in (("=", 0.0), ("sum", 0.0)):
            return None
        a, b = inputs
        if node.type not in ("f4", "f8") or not node.size or not b.size:
            return None
        turned = _transposed_matrices(b)
        seen = _window_columns(nodes, turned or b)
        if seen is None:
            return None
        b, head, places, step = seen
        dims = len(b.shape)
        inner, columns = b.shape[head : dims - places], b.shape[dims - places :]
        if turned is not None:
            order = (*range(head), *range(dims - places, dims), *range(head, dims - places))
            b, inner, columns = nodes.transpose(b, order), columns, inner
        length = math.prod(inner) * (math.prod(a.shape[:-2]) if node.detail[0] == "sum" else 1)
        weight = a.shape[-2] * math.prod(columns if turned is not None else inner)
        if weight > (_LARGEST if step == 1 else _LARGEST_APART):
            return None
        if length > _MOST or (turned is None and max(inner) > MAX_SUM_LENGTH):
            return None
        a = nodes.reshape(a, (*a.shape[:-1], *inner))
        detail = (*node.detail, len(inner), len(columns))
        return nodes.make("product", [a, b], node.shape, node.type, detail)

    return rewrite(nodes, roots, rule)


def _transposed_matrices(node: Node) -> Node | None:
    """The matrices whose transposes are seen."""
    if node.kind == "view" and node.detail[0] == "transpose":
        n = len(node.shape)
        if node.detail[1] == (*range(n - 2), n - 1, n - 2):
            return node.inputs[0]
    return None


def _window_columns(nodes: IRBuilder, node: Node) -> tuple[Node, int, int, int] | None:
    """Windows as (batch, channels, elements of the window, places) that are seen as columns.

    Returns:
        With how many axes are the batch's, how many are places, and how far the last lie apart.
    """
    if node.kind != "view" or node.detail[0] != "reshape":
        return None
    seen = node.inputs[0]
    if seen.kind != "view" or seen.detail[0] != "windows":
        return None
    window, stride, _ = seen.detail[1]
    n = len(window)
    elements = math.prod(window)
    counts = seen.shape[-n:]
    *batch, height, places = node.shape
    if (
        elements == 1
        or stride[-1] not in VECTOR_STRIDES
        or places != math.prod(counts)
        or height % elements
    ):
        return None
    shape = (*batch, height // elements, *window, *counts)
    try:
        View.dense(seen.inputs[0].shape).windows(*seen.detail[1]).reshape(shape)
    except ValueError:
        return None
    return nodes.reshape(seen, shape), len(batch), n, stride[-1]


def is_vectorizable(a: View, b: View, axes: ProductAxes) -> bool:
    """Whether columns, or what is summed up, can be read in vectors."""
    inside = (
        _innermost_stride(a, -axes.inner, None),
        _innermost_stride(b, -sum(axes), -axes.columns),
    )
    across = _innermost_stride(b, -axes.columns, None) in VECTOR_STRIDES
    return across or (inside[0] == 1 and inside[1] in VECTOR_STRIDES)


def _innermost_stride(view: View, start: int, end: int | None) -> int:
    axes = list(zip(view.shape[start:end], view.strides[start:end], strict=True))
    return next((step for length, step in reversed(axes) if length > 1), 1)
