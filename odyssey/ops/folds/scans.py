"""Products and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.folds.reductions import count, spread, sum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import reshape, transpose
from odyssey.spec import Spec
from odyssey.table.canonical import folded, one_axis
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import folded_axes, made_by, reduced, running

_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")

# ------------------------------------------------------------------ running sum


def _sums_from_the_end(g: Any, axis: int) -> Any:
    """The running sum along an axis of an array, from its end to its begin, without a copy."""
    out = np.empty_like(g, order="C")
    back = (slice(None),) * (axis % g.ndim) + (slice(None, None, -1),)
    np.add.accumulate(g[back], axis, out=out[back])
    return out


def _cumsum_rule(g: Any, x_spec: Spec, axis: int | None) -> Any:
    along = 0 if axis is None else axis
    if type(g) is np.ndarray:
        back = _sums_from_the_end(g, along)
    else:
        back = flip(cumsum(flip(g, along), along), along)
    return back if back.shape == x_spec.shape else reshape(back, x_spec.shape)


@op(
    primitive="scan",
    linear=True,
    numpy=[np.cumsum],
    canonical=lambda x, axis: (one_axis(axis, x.ndim),),
    infer=running("cumsum", made_by(np.add.reduce)),
    vjp={"x": _cumsum_rule},
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=0),
        sample((2, 3, 2), axis=-2),
        sample(()),
        sample((), axis=0),
        sample((0, 3), axis=0),
    ],
    rejects=[_NO_AXIS],
)
def cumsum(x: Any, /, axis: int | None = None) -> Any:
    """Running sum along ``axis``, by default of all elements in row-major order."""
    return np.cumsum(x, axis)


# ------------------------------------------------------------------ product


def _others(x: Any) -> Any:
    """For each element the product of the others on the first axis, without a division.

    Each element of the first half is multiplied with its partner in the second, and so on down to
    one product; on the way back each takes what its pair takes from the others times its partner.
    Along the first axis halves are blocks of memory: three times as fast as along the last.
    """
    n = x.shape[0]
    if n < 2:
        return np.ones(x.shape, x.dtype)
    if type(x) is np.ndarray:
        return _others_of_array(x)
    half, last = n // 2, slice(n - n % 2, n)
    left, right = getitem(x, slice(half)), getitem(x, slice(half, 2 * half))
    above = _others(concatenate([mul(left, right), getitem(x, last)], 0))
    by_pair, alone = getitem(above, slice(half)), getitem(above, slice(half, half + n % 2))
    return concatenate([mul(by_pair, right), mul(by_pair, left), alone], 0)


def _others_of_array(x: Any) -> Any:
    """The same, written to where it belongs: half the time, and half the memory."""
    n = x.shape[0]
    if n < 2:
        return np.ones(x.shape, x.dtype)
    half, end = n // 2, n - n % 2
    left, right = x[:half], x[half:end]
    pairs = np.empty((n - half, *x.shape[1:]), x.dtype)
    np.multiply(left, right, pairs[:half])
    pairs[half:] = x[end:]
    above = _others_of_array(pairs)
    out = np.empty_like(x)
    np.multiply(above[:half], right, out[:half])
    np.multiply(above[:half], left, out[half:end])
    out[end:] = above[half:]
    return out


def _prod_slopes(x: Any, axis: Any) -> Any:
    folded = folded_axes("prod", axis, len(x.shape))
    kept = tuple(k for k in range(len(x.shape)) if k not in folded)
    order = (*folded, *kept)
    shape = tuple(x.shape[k] for k in order)
    flat = reshape(transpose(x, order), (count(x, folded), *shape[len(folded) :]))
    back = tuple(order.index(k) for k in range(len(order)))
    return transpose(reshape(_others(flat), shape), back)


def _prod_dtype(dtype: Any) -> Any:
    return np.multiply.reduce(np.ones(1, dtype)).dtype


@op(
    primitive="reduce",
    kernel=lambda x, axis, keepdims: np.multiply.reduce(x, axis, keepdims=keepdims),
    numpy=[np.prod],
    canonical=folded,
    infer=reduced("prod", _prod_dtype),
    vjp={
        "x": lambda g, x, x_spec, axis, keepdims: mul(
            spread(g, x_spec, axis, keepdims), _prod_slopes(x, axis)
        )
    },
    jvp={
        "x": lambda t, x, axis, keepdims: sum(
            mul(t, _prod_slopes(x, axis)), axis, keepdims=keepdims
        )
    },
    kinks="exact where elements are 0",
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=1),
        sample((2, 3, 4), axis=(0, -1), keepdims=True),
        sample((3, 2), axis=()),
        sample((4, 1), axis=0),
        sample(()),
        sample((), axis=0),
        sample((), axis=-1, keepdims=True),
        sample((0, 3), axis=0),
    ],
    rejects=[_NO_AXIS],
)
def prod(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over ``axis``, by default of all elements; 1 of nothing."""
    return np.multiply.reduce(x, axis, keepdims=keepdims)


publish(globals())
