"""Products and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.arithmetic import mul
from odyssey.ops.arrangement import flip
from odyssey.ops.indexing import getitem
from odyssey.ops.joining import concatenate, stack
from odyssey.ops.reductions import count, folded_axes, reduced_shape, spread, sum
from odyssey.ops.shape import reshape, transpose
from odyssey.spec import Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")

# ------------------------------------------------------------------ running sum


def _cumsum_spec(x: Spec, axis: int | None) -> Spec:
    dtype = np.add.reduce(np.ones(1, x.dtype)).dtype
    if axis is not None:
        folded_axes("cumsum", axis, x.ndim)
    # A number without axes gets one, whichever it is.
    return Spec((x.size,) if axis is None or not x.ndim else x.shape, dtype)


def _cumsum_rule(g: Any, x_spec: Spec, axis: int | None) -> Any:
    along = 0 if axis is None else axis
    back = flip(cumsum(flip(g, along), along), along)
    return reshape(back, x_spec.shape) if axis is None or not x_spec.shape else back


@op(
    linear=True,
    numpy=[np.cumsum],
    infer=_cumsum_spec,
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
    """For each element the product of the others on the last axis, without a division.

    Neighbours are multiplied in pairs, and pairs of pairs, up to one product; on the way back
    each takes what its pair takes from the others times its partner.
    """
    n = x.shape[-1]
    if n < 2:
        return np.ones(x.shape, x.dtype)
    if n % 2:
        x = concatenate([x, np.ones((*x.shape[:-1], 1), x.dtype)], -1)
    left, right = getitem(x, (..., slice(0, None, 2))), getitem(x, (..., slice(1, None, 2)))
    above = _others(mul(left, right))
    both = reshape(stack([mul(above, right), mul(above, left)], -1), x.shape)
    return getitem(both, (..., slice(0, n))) if n % 2 else both


def _prod_slopes(x: Any, axis: Any) -> Any:
    folded = folded_axes("prod", axis, len(x.shape))
    kept = tuple(k for k in range(len(x.shape)) if k not in folded)
    order = (*kept, *folded)
    shape = tuple(x.shape[k] for k in order)
    flat = reshape(transpose(x, order), (*shape[: len(kept)], count(x, folded)))
    back = tuple(order.index(k) for k in range(len(order)))
    return transpose(reshape(_others(flat), shape), back)


def _prod_dtype(dtype: Any) -> Any:
    return np.multiply.reduce(np.ones(1, dtype)).dtype


def _prod_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    shape = reduced_shape("prod", x.shape, axis, keepdims, lone=True)
    return Spec(shape, _prod_dtype(x.dtype))


@op(
    kernel=lambda x, axis, keepdims: np.multiply.reduce(x, axis, keepdims=keepdims),
    numpy=[np.prod],
    infer=_prod_spec,
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
