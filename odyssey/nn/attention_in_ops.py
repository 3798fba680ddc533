"""Attention written in other ops, with all scores at once: what its rows mean.

Of a long causal call they are computed in a few parts of the queries, each with the keys that these
may attend to: of the scores above the diagonal most are never made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from odyssey.linalg.matrix_products import matmul
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.reductions.reduce import max as largest
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Shape
from odyssey.table.shape_rules import floating

__all__ = [
    "dtype_of",
    "in_ops",
    "per_head",
    "pullback_in_ops",
    "scale_of",
    "softmax_moved",
    "weights_of",
]


def dtype_of(mask: Any) -> np.dtype[Any]:
    """Of a spec, an array, or a number, which is an array without axes."""
    return np.dtype(getattr(mask, "dtype", type(mask)))


def scale_of(q: Any, scale: float | None) -> float:
    """What scores are multiplied by, where it is not said."""
    return 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale


def _real(x: Any) -> Any:
    return x if x.dtype.kind == "f" else astype(x, floating(x.dtype))


def per_head(x: Any, q: Any) -> Any:
    """Keys or values with a copy for each query head, where these are grouped."""
    if len(q.shape) < 3 or len(x.shape) < 3:
        return x
    heads, own = q.shape[-3], x.shape[-3]
    if own == heads or 1 in (own, heads):
        return x
    return take(x, np.arange(heads) // (heads // own), axis=-3)


def _onto(total: Any, x: Any) -> Any:
    """The transpose of ``per_head``: a cotangent summed over what ``x`` was repeated for."""
    if len(x.shape) > 2 and 1 < x.shape[-3] < total.shape[-3]:
        own, each = x.shape[-3], total.shape[-3] // x.shape[-3]
        total = sum(reshape(total, (*total.shape[:-3], own, each, *total.shape[-2:])), -3)
    return sum_to(total, x.shape)


def weights_of(q: Any, k: Any, mask: Any, causal: bool, scale: float | None, first: int = 0) -> Any:
    """The softmax of the scores; 0 where a row has no key to attend to.

    Args:
        q: Queries, of which the first is number ``first`` of all of them.
        k: Keys.
        mask: Of these queries and keys.
        causal: Whether later keys are left out.
        scale: What products are multiplied by.
        first: See ``q``.
    """
    scores = mul(matmul(q, matrix_transpose(per_head(k, q))), scale_of(q, scale))
    allowed = np.tri(q.shape[-2], k.shape[-2], first, dtype=bool) if causal else None
    if mask is not None and dtype_of(mask).kind == "b":
        allowed = mask if allowed is None else logical_and(allowed, mask)
    elif mask is not None:
        scores = add(scores, mask)
    if not k.shape[-2]:
        return scores
    if allowed is not None:
        scores = where(allowed, scores, -np.inf)
    top = largest(scores, -1, keepdims=True)
    powers = exp(sub(scores, where(equal(top, -np.inf), 0, top)))
    total = sum(powers, -1, keepdims=True)
    return div(powers, where(equal(total, 0), 1, total))


def in_ops(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """What ``scaled_dot_product_attention`` equals."""
    q, k, v = map(_real, (q, k, v))
    k, v, mask = _reached(q, k, v, mask, causal)
    made = []
    for part in _parts(q, k, v, mask, causal):
        weights = weights_of(part.q, part.k, part.mask, causal, scale, part.rows.start)
        made.append(matmul(weights, per_head(part.v, q)))
    return made[0] if len(made) == 1 else concatenate(made, -2)


def pullback_in_ops(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    operand: str,
) -> Any:
    """What ``attention_pullback`` equals."""
    whole = {"k": k, "v": v, "mask": mask}.get(operand)
    q, k, v = map(_real, (q, k, v))
    k, v, mask = _reached(q, k, v, mask, causal)
    made: Any = None
    for part in reversed(list(_parts(q, k, v, mask, causal and operand != "mask"))):
        moved = _cut(cotangent, -2, part.rows) if part.cut else cotangent
        found = _pulled(moved, part, causal, scale, operand)
        made = found if made is None else _joined(found, made, operand)
    return made if whole is None else _with_unreached(made, shape_of(whole))


def _joined(found: Any, behind: Any, operand: str) -> Any:
    """The cotangent of an operand, of a part of the queries and of those behind it."""
    if operand == "q":
        return concatenate([found, behind], -2)
    if found.shape == behind.shape:
        return add(found, behind)
    count = found.shape[-2]
    both = add(found, _cut(behind, -2, slice(count)))
    return concatenate([both, _cut(behind, -2, slice(count, behind.shape[-2]))], -2)


class _Part(NamedTuple):
    """Some queries, and the keys that they may attend to; ``cut`` unless it is all there is."""

    rows: slice
    q: Any
    k: Any
    v: Any
    mask: Any
    cut: bool


# Scores of one head from which on a causal call is computed in parts, and how many these are: each
# has kernels of its own, which take their time to compile.
_PARTS = {1 << 18: 4, 1 << 20: 8}


def _parts(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Iterator[_Part]:
    count, keys = q.shape[-2], k.shape[-2]
    number = max([parts for least, parts in _PARTS.items() if count * keys >= least], default=1)
    # A program for all sizes does the same at each.
    fixed = getattr(getattr(q, "graph", None), "fixed", True)
    if not causal or not fixed or not 1 < number <= count:
        yield _Part(slice(0, count), q, k, v, mask, False)
        return
    ends = [count * (n + 1) // number for n in range(number)]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        rows, reach = slice(first, last), slice(min(last, keys))
        part = _cut(_cut(mask, -2, rows), -1, reach)
        yield _Part(rows, _cut(q, -2, rows), _cut(k, -2, reach), _cut(v, -2, reach), part, True)


def _cut(x: Any, axis: int, part: slice) -> Any:
    """A part of an operand along an axis, where it has that and does not repeat one element."""
    shape = shape_of(x)
    if len(shape) < -axis or shape[axis] == 1:
        return x
    return getitem(x, (..., part, *(slice(None),) * (-1 - axis)))


def _reached(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> tuple[Any, Any, Any]:
    """Keys, values and mask without the keys behind the last query, which may be of any value."""
    count, keys = q.shape[-2], k.shape[-2]
    if not causal or keys <= count:
        return k, v, mask
    if shape_of(mask)[-1:] == (keys,):
        mask = getitem(mask, (..., slice(count)))
    return (*(getitem(x, (..., slice(count), slice(None))) for x in (k, v)), mask)


def _with_unreached(made: Any, shape: Shape) -> Any:
    """A cotangent of what ``_reached`` left, with 0 for what it left out."""
    for axis in (-2, -1):
        if made.shape != shape and made.shape[axis] != shape[axis]:
            rest = list(made.shape)
            rest[axis] = shape[axis] - made.shape[axis]
            made = concatenate([made, np.zeros(rest, made.dtype)], axis)
    return made


def _pulled(cotangent: Any, part: _Part, causal: bool, scale: float | None, operand: str) -> Any:
    _, q, k, v, mask, _ = part
    weights = weights_of(q, k, mask, causal, scale, part.rows.start)
    if operand == "v":
        return _onto(matmul(matrix_transpose(weights), cotangent), v)
    moved = softmax_moved(matmul(cotangent, matrix_transpose(per_head(v, q))), weights)
    if operand == "mask":
        return sum_to(moved, shape_of(mask))
    if operand == "q":
        made = sum_to(matmul(moved, per_head(k, q)), q.shape)
    else:
        made = _onto(matmul(matrix_transpose(moved), q), k)
    return mul(made, scale_of(q, scale))


def softmax_moved(t: Any, weights: Any) -> Any:
    """The derivative of the softmax, which is symmetric and so serves both modes."""
    return mul(weights, sub(t, sum(mul(t, weights), -1, keepdims=True)))
