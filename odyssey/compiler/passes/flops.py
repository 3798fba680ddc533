"""FLOP counts: floating-point operations of a node.

Called by ``rematerialization`` for costs, and by ``runtime.kernel_work`` for reports.
"""

from __future__ import annotations

import math

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.passes.windows import product_axes

__all__ = ["count_flops"]

# Steps of scalar programs that are no arithmetic.
_FREE = ("T", "select")


def count_flops(node: Node) -> int:
    """Return the number of arithmetic operations of a node."""
    if node.kind in ("map", "scan"):
        return node.size * sum(name not in _FREE for name, _ in node.payload.steps)
    if node.kind == "reduce":
        return node.inputs[0].size - node.size
    if node.kind == "scatter":
        return 0 if node.detail == "set" else node.inputs[1].size
    if node.kind != "product":
        return 0
    a, b = node.inputs[:2]
    added = node.size if node.detail[1] else 0
    axes, sums_batch = product_axes(node), node.detail[0] == "sum"
    if axes is not None:
        batch = a.shape[: -1 - axes.inner] if sums_batch else ()
        return 2 * node.size * math.prod((*batch, *a.shape[-axes.inner :])) + 2 * added
    matrices = math.prod(_broadcast_shape(a.shape[:-2], b.shape[:-2]))
    return 2 * matrices * a.shape[-2] * a.shape[-1] * b.shape[-1] + 2 * added


def _broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    extra = max(len(a), len(b))
    pairs = zip((1,) * (extra - len(a)) + a, (1,) * (extra - len(b)) + b, strict=True)
    return tuple(m if n == 1 else n for m, n in pairs)
