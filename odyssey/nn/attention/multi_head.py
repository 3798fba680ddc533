"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.errors import ShapeError
from odyssey.nn.attention.scaled_dot_product import scaled_dot_product_attention
from odyssey.nn.linear_layers import linear
from odyssey.nn.shared import as_floating
from odyssey.ops.structure.shape import reshape, shape_of, swapaxes
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample


def _split_heads(x: Any, dim: int) -> Any:
    """Reshape (..., length, heads * dim) to (..., heads, length, dim)."""
    shape = shape_of(x)
    split = reshape(x, (*shape[:-1], shape[-1] // dim, dim))
    return swapaxes(split, -3, -2)


def _project(x: Any, weight: Any, bias: Any) -> Any:
    x, weight, bias = (as_floating(v) for v in (x, weight, bias))
    return linear(x, weight, bias)


@composite(
    samples=[
        sample((2, 3, 4), (2, 3, 4), (2, 3, 4), (4, 4), (4, 4), (4, 4), (4, 4), heads=2),
        sample(
            *[(3, 4), (5, 2), (5, 3), (4, 4), (2, 2), (2, 3), (3, 4), (4,), (2,), (2,), (3,)],
            heads=2,
            causal=True,
        ),
        sample(
            *[(2, 3, 2), (2, 3, 2), (2, 3, 2), (2, 2), (2, 2), (2, 2), (2, 2)],
            heads=1,
            mask=np.tri(3, dtype=bool),
        ),
    ],
    rejects=[
        reject(*[(3, 4)] * 3, *[(4, 4)] * 4, heads=3, match="3 heads"),
        reject(*[(3, 4)] * 3, (4, 4), (3, 4), (4, 4), (4, 4), heads=2, match=r"w_k \(3, 4\)"),
        reject(*[(3, 4)] * 3, (4, 4), (4, 4), (2, 4), (4, 4), heads=2, match=r"w_v \(2, 4\)"),
        reject(*[(3, 4)] * 3, *[(4, 4)] * 3, (4, 3), heads=2, match=r"w_o \(4, 3\)"),
        reject((3, 4), (3, 4), (3, 4), *[(4, 4)] * 3, (4,), heads=2, match=r"w_o \(4,\)"),
    ],
)
def multi_head_attention(
    q: Any,
    k: Any,
    v: Any,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: Any = None,
    causal: bool = False,
) -> Any:
    """Multi-head attention with projections, as in a transformer.

    A. Vaswani et al., Attention Is All You Need, 2017. Weights are laid out as for ``linear``; they
    are the thirds of PyTorch's ``in_proj_weight``, and its ``out_proj.weight``.

    Args:
        q: The input of the queries, (..., length, in).
        k: The input of the keys, (..., other length, in).
        v: The input of the values, (..., other length, in).
        w_q: (heads * dim, in).
        w_k: (heads * dim, in); or fewer heads of this dim, each for a group of query heads.
        w_v: (key heads * width, in).
        w_o: (out, heads * width).
        b_q: (heads * dim,), or None.
        b_k: As long as ``w_k``, or None.
        b_v: As long as ``w_v``, or None.
        b_o: (out,), or None.
        heads: The number of query heads.
        mask: See ``scaled_dot_product_attention``; it broadcasts to (..., heads, length, other).
        causal: See ``scaled_dot_product_attention``.

    Returns:
        (..., length, out).

    Raises:
        ShapeError: If shapes do not fit, or cannot be divided into heads.

    >>> x, w = np.ones((5, 4)), np.eye(4)
    >>> multi_head_attention(x, x, x, w, w, w, w, heads=2, causal=True).shape
    (5, 4)
    """
    heads = check_int("multi_head_attention", "heads", heads, 1)
    dim, width = _head_sizes(heads, *map(shape_of, (w_q, w_k, w_v, w_o)))
    queries = _split_heads(_project(q, w_q, b_q), dim)
    keys = _split_heads(_project(k, w_k, b_k), dim)
    values = _split_heads(_project(v, w_v, b_v), width)
    out = scaled_dot_product_attention(queries, keys, values, mask, causal=causal)
    shape = shape_of(out)
    joined = reshape(swapaxes(out, -3, -2), (*shape[:-3], shape[-2], shape[-3] * shape[-1]))
    return _project(joined, w_o, b_o)


def _head_sizes(heads: int, w_q: Any, w_k: Any, w_v: Any, w_o: Any) -> tuple[int, int]:
    """Return the dim of a head and the width of a value."""
    came = f"w_q {w_q}, w_k {w_k}, w_v {w_v}, w_o {w_o} for {heads} heads"
    if any(len(shape) != 2 for shape in (w_q, w_k, w_v, w_o)):
        raise ShapeError(f"multi_head_attention: {came}; each must be (out, in)")
    dim = w_q[0] // heads
    shared = w_k[0] // dim if dim else 0
    width = w_v[0] // shared if shared else 0
    divide = dim * heads == w_q[0] and shared * dim == w_k[0] and shared * width == w_v[0]
    if not (divide and shared and heads % shared == 0 and w_o[1] == heads * width):
        raise ShapeError(
            f"multi_head_attention: {came}; wanted are w_q (heads * dim, in), w_k and w_v of as "
            "many heads or a part of them, and w_o (out, heads * width)"
        )
    return dim, width


publish(globals())
