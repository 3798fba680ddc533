"""Where the largest elements of windows stand, and the derivatives of max pooling, as ops."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.nn.max_windows import first_places, lowest, pull, push
from odyssey.nn.pool_windows import FEW, Plan, plan_for, pooled_shape, shapes_fit
from odyssey.nn.windows_in_ops import in_windows
from odyssey.ops.elementwise.arithmetic import add, div, maximum
from odyssey.ops.elementwise.choice import (
    equal,
    keep_where,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.gathering import add_taken
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ in ops


def _as_parts(x: Any, plan: Plan) -> list[Any] | None:
    """For each place within a window the elements of all windows; None where some have none."""
    if len(plan.keys) > FEW or not all(step.full for step in plan.steps):
        return None
    return [getitem(x, elements) for _, elements in plan.keys]


def _hits_of(parts: list[Any], dtype: Any) -> tuple[list[Any], Any]:
    """Which elements are the largest of their windows, for each place, and how many of each."""
    peak = reduce(maximum, parts)
    hits = [logical_or(equal(part, peak), not_equal(part, part)) for part in parts]
    return hits, reduce(add, [astype(found, dtype) for found in hits])


def max_pool_in_ops(
    x: Any, window: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Any:
    """Max pooling, over as many axes as the options have numbers."""
    plan = plan_for("max_pool", x, window, stride, padding, dilation, ceil_mode)
    parts = _as_parts(x, plan)
    if parts is not None:
        return reduce(maximum, parts)
    found, _, known = in_windows(x, plan)
    out = max(where(known, found, lowest(x.dtype)), -2)
    return reshape(out, (*x.shape[: len(x.shape) - len(plan.out)], *plan.out))


def _hits_in_ops(x: Any, plan: Plan, dtype: Any) -> tuple[Any, Any, Array]:
    """Which elements of the windows are the largest, how many of each, and all numbers."""
    found, places, known = in_windows(x, plan)
    peak = max(where(known, found, lowest(x.dtype)), -2, keepdims=True)
    both_nan = logical_and(not_equal(found, found), not_equal(peak, peak))
    hits = logical_and(logical_or(equal(found, peak), both_nan), known)
    return hits, sum(astype(hits, dtype), -2, keepdims=True), places


def _pull_in_ops(
    cotangent: Any,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
) -> Any:
    plan = plan_for("max_pool", x, window, stride, padding, dilation, ceil_mode)
    dtype = np.result_type(cotangent.dtype, x.dtype)
    parts = _as_parts(x, plan)
    if parts is not None and plan.apart:
        found, count = _hits_of(parts, dtype)
        share = div(cotangent, count)
        spread = [
            add_at(keep_where(share, hit), elements, Spec(x.shape, share.dtype))
            for hit, (_, elements) in zip(found, plan.keys, strict=True)
        ]
        return reduce(add, spread)
    hits, count, places = _hits_in_ops(x, plan, dtype)
    parts = keep_where(div(reshape(cotangent, count.shape), count), hits)
    flat = (*count.shape[:-2], math.prod(x.shape[len(x.shape) - len(window) :]))
    return reshape(add_taken(parts, places, axis=-1, spec=Spec(flat, parts.dtype)), x.shape)


def _push_in_ops(
    t: Any, x: Any, window: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Any:
    plan = plan_for("max_pool", x, window, stride, padding, dilation, ceil_mode)
    dtype = np.result_type(t.dtype, x.dtype)
    parts, moved = _as_parts(x, plan), _as_parts(t, plan)
    if parts is not None and moved is not None:
        found, count = _hits_of(parts, dtype)
        kept = [keep_where(part, hit) for part, hit in zip(moved, found, strict=True)]
        return div(reduce(add, kept), count)
    hits, count, _ = _hits_in_ops(x, plan, dtype)
    out = div(sum(keep_where(in_windows(t, plan)[0], hits), -2, keepdims=True), count)
    return reshape(out, (*x.shape[: len(x.shape) - len(plan.out)], *plan.out))


# ------------------------------------------------------------------ the way back, and forward

_TIES = (
    "elements that share the largest value of a window share its gradient evenly; NaN is largest"
)
_ONE: dict[str, Any] = {"window": (2,), "stride": (2,), "padding": (0,), "dilation": (1,)}
_TWO: dict[str, Any] = {"window": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
_CLOSE: dict[str, Any] = {"window": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
# Small integers, with ties, which leave the dtype to the other operand.
_SHUFFLED = (np.arange(40) * 7 % 11).astype(np.int8)


def _compiled_pull(cotangent: Array, x: Array, *all_options: Any) -> Array:
    from odyssey.kernels import pooling

    *options, _ = all_options
    x = x.astype(cotangent.dtype, copy=False)
    if pooling.in_fours(spec_of(x), *options):
        return pooling.to_largest_of_four(cotangent, x)
    peak = pooling.largest(x, cotangent.shape, *options)
    return pooling.to_largest(cotangent, x, peak, *options)


def _takes(cotangent: Spec, x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import takes

    if options[-1]:  # ceil_mode
        return False
    # The loop trusts the shapes.
    fits = shapes_fit(cotangent.shape, x.shape, window, *options)
    safe = np.can_cast(x.dtype, cotangent.dtype)
    return safe and takes(Spec(x.shape, cotangent.dtype), window) and fits


def _pulled_spec(
    cotangent: Spec,
    x: Spec,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
) -> Spec:
    wanted = pooled_shape(
        "max_pool_pullback", x.shape, window, stride, padding, dilation, ceil_mode
    )
    if cotangent.shape != wanted:
        raise ShapeError(
            f"max_pool_pullback: the cotangent has shape {cotangent.shape}; "
            f"the windows of x {x.shape} give {wanted}"
        )
    return Spec(x.shape, np.result_type(cotangent.dtype, x.dtype))


def _pushed_spec(
    t: Spec, x: Spec, window: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil_mode: bool
) -> Spec:
    shape = pooled_shape(
        "max_pool_pushforward", x.shape, window, stride, padding, dilation, ceil_mode
    )
    if t.shape != x.shape:
        raise ShapeError(
            f"max_pool_pushforward: t has shape {t.shape}; wanted is that of x, {x.shape}"
        )
    return Spec(shape, np.result_type(t.dtype, x.dtype))


@op(
    real=True,
    selects=True,
    decomposition=_pull_in_ops,
    kernels=[Kernel("a loop over windows", _compiled_pull, when=_takes)],
    infer=_pulled_spec,
    vjp={
        "cotangent": lambda g, x, window, stride, padding, dilation, ceil_mode: (
            max_pool_pushforward(g, x, window, stride, padding, dilation, ceil_mode)
        ),
        "x": lambda g: zeros_like(g),
    },
    jvp={
        "cotangent": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pullback(
            t, x, window, stride, padding, dilation, ceil_mode
        ),
        "x": lambda t: zeros_like(t),
    },
    kinks=f"{_TIES}; 0 in x",
    samples=[
        sample((2, 1, 2, 2), _SHUFFLED[:32].reshape(2, 1, 4, 4), **_TWO),
        sample((1, 3), _SHUFFLED[:12].reshape(2, 6), **_TWO),
        sample((2, 3, 2), _SHUFFLED.reshape(2, 5, 4), **_CLOSE),
        sample((8, 2), _SHUFFLED.reshape(8, 5), **_ONE),
        sample((8, 3), _SHUFFLED.reshape(8, 5), **_ONE, ceil_mode=True),
        sample((0, 2), _SHUFFLED[:0].reshape(0, 5), **_ONE),
    ],
    rejects=[reject((2, 3), (2, 5), match="the windows of x", **_ONE)],
)
def max_pool_pullback(
    cotangent: Any,
    x: Any,
    /,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool = False,
) -> Any:
    """Gradient of a maximum over windows: each shared evenly by those that have the maximum."""
    return pull(cotangent, x, window, stride, padding, dilation, ceil_mode)


@op(
    real=True,
    selects=True,
    decomposition=_push_in_ops,
    infer=_pushed_spec,
    vjp={
        "t": lambda g, x, window, stride, padding, dilation, ceil_mode: max_pool_pullback(
            g, x, window, stride, padding, dilation, ceil_mode
        ),
        "x": lambda g, x: zeros_like(x),
    },
    jvp={
        "t": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pushforward(
            t, x, window, stride, padding, dilation, ceil_mode
        ),
        "x": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pushforward(
            zeros_like(t), x, window, stride, padding, dilation, ceil_mode
        ),
    },
    kinks=f"{_TIES}; 0 in x",
    samples=[
        sample((2, 1, 4, 4), _SHUFFLED[:32].reshape(2, 1, 4, 4), **_TWO),
        sample((2, 5, 4), _SHUFFLED.reshape(2, 5, 4), **_CLOSE),
        sample((8, 5), _SHUFFLED.reshape(8, 5), **_ONE),
        sample((8, 5), _SHUFFLED.reshape(8, 5), **_ONE, ceil_mode=True),
        sample((0, 5), _SHUFFLED[:0].reshape(0, 5), **_ONE),
    ],
    rejects=[reject((2, 3), (2, 5), match="wanted is that of x", **_ONE)],
)
def max_pool_pushforward(
    t: Any,
    x: Any,
    /,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool = False,
) -> Any:
    """Mean of ``t`` over the elements that have the maximum of a window of ``x``."""
    return push(t, x, window, stride, padding, dilation, ceil_mode)


@op(
    real=True,
    primitive="reduce",
    infer=lambda x, *options: Spec(
        pooled_shape("max_pool_indices", x.shape, *options), np.dtype(np.intp)
    ),
    samples=[
        sample((2, 1, 4, 4), spread=True, **_TWO),
        sample((2, 5, 4), spread=True, **_CLOSE),
        sample(np.array([[1.0, 1.0, np.nan, 2.0, 3.0]]), **_ONE),
        sample((5,), spread=True, **_ONE, ceil_mode=True),
    ],
    rejects=[reject((), match="wanted is", **_ONE)],
)
def max_pool_indices(
    x: Any,
    /,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool = False,
) -> Any:
    """Number, among all elements of an image, of the first maximum of each window; a constant."""
    return first_places("max_pool_indices", x, window, stride, padding, dilation, ceil_mode)


publish(globals())
