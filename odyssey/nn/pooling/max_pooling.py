"""The largest elements of windows over arrays: what the rows of max pooling run."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from odyssey.checks import flag
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.kernels.sizes import SIZES
from odyssey.nn.pooling.window_plan import FEW, Plan, plan_for, pooled_shape, prepared, shapes_fit
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
from odyssey.ops.structure.gathering import add_taken, take
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample


def lowest(dtype: np.dtype[Any]) -> Any:
    """What no element is below, to begin a maximum with."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _largest(x: Any, plan: Plan) -> Array:
    """The largest element of each window: along one axis after another, which takes less work."""
    for step in plan.steps:
        if step.full and len(step.keys) > 1:
            (_, first), (_, second), *others = step.keys
            out = np.maximum(x[first], x[second])
            for _, elements in others:
                np.maximum(out, x[elements], out=out)
        else:
            out = np.full(step.folded(x.shape), lowest(x.dtype), x.dtype)
            for windows, elements in step.keys:
                part = out[windows]
                np.maximum(part, x[elements], out=part)
        x = out
    return x


def max_pool(who: str, x: Any, *options: Any) -> Array:
    """The largest element of each window."""
    return _largest(x, plan_for(who, x, *options))


def _all_hits(x: Array, peak: Array, plan: Plan) -> tuple[list[Array], Array]:
    """Where elements are the largest, for each place within a window; how many of each window."""
    odd = x.dtype.kind == "f" and bool(np.isnan(peak).any())
    count, found = np.zeros(peak.shape, np.intp), []
    for windows, elements in plan.keys:
        hits: Array = x[elements] == peak[windows]
        if odd:
            hits |= np.isnan(x[elements]) & np.isnan(peak[windows])
        count[windows] += hits
        found.append(hits)
    return found, count


def pull(g: Any, x: Any, *options: Any, peak: Any = None) -> Array:
    """Each ``g`` shared by the elements that are the largest of its window.

    ``peak`` has the largest element of each window, if they are known.
    """
    plan = plan_for("max_pool_pullback", x, *options)
    if g.dtype != x.dtype:
        g = g.astype(np.result_type(g, x))
    if peak is None:
        peak = _largest(x, plan)
    if g.shape != peak.shape:
        raise ValueError("the cotangent has another shape than the maxima")
    if plan.wide and x.size:
        hits = x.reshape(plan.wide) == peak.reshape(plan.narrow)
        square = np.vdot(peak, peak)  # NaN only where there is one, in half the time of a search
        if np.count_nonzero(hits) == peak.size and square == square:  # no ties, and no NaN
            out = np.zeros(x.shape, g.dtype)
            np.copyto(out.reshape(plan.wide), g.reshape(plan.narrow), where=hits)
            return out
    found, count = _all_hits(x, peak, plan)
    share, out = g / count.astype(g.dtype), np.zeros(x.shape, g.dtype)
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[elements]
        np.add(part, share[windows], out=part, where=hits)
    return out


def push(t: Any, x: Any, *options: Any) -> Array:
    """The mean of ``t`` over the elements that are the largest of a window."""
    if t.shape != x.shape:
        raise ValueError("t has another shape than x")
    plan = plan_for("max_pool_pushforward", x, *options)
    peak = _largest(x, plan)
    found, count = _all_hits(x, peak, plan)
    out = np.zeros(peak.shape, np.result_type(t, x))
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[windows]
        np.add(part, t[elements], out=part, where=hits)
    out /= count.astype(out.dtype)
    return out


def first_places(who: str, x: Any, *options: Any) -> Array:
    """Where the first of the largest elements of each window stands, NaN before all others."""
    plan = plan_for(who, x, *options)
    dims = len(plan.out)
    shape = x.shape[: x.ndim - dims] + plan.out
    sizes = x.shape[x.ndim - dims :]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    best, out = np.empty(shape, x.dtype), np.full(shape, -1)
    for windows, elements in plan.keys:
        part, known, here = x[elements], best[windows], out[windows]
        better = (part > known) | (here < 0)
        if x.dtype.kind == "f":
            better |= np.isnan(part) & ~np.isnan(known)
        np.copyto(known, part, where=better)
        np.copyto(here, numbers[elements[1:]], where=better)
    return out


def in_windows(x: Any, plan: Plan) -> tuple[Any, Array, Array]:
    """The elements of each window along axis -2; their numbers, and where there are any."""
    dims = len(plan.out)
    head, sizes = x.shape[: len(x.shape) - dims], x.shape[len(x.shape) - dims :]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    places = np.zeros((len(plan.keys), *plan.out), np.intp)
    known = np.zeros(places.shape, bool)
    for k, (windows, elements) in enumerate(plan.keys):
        places[k][windows] = numbers[elements]
        known[k][windows] = True
    places, known = places.reshape(len(places), -1), known.reshape(len(places), -1)
    return take(reshape(x, (*head, numbers.size)), places, axis=-1), places, known


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


def _fits_pullback_loop(cotangent: Spec, x: Spec, window: Shape, *options: Any) -> bool:
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
    kernels=[Kernel("a loop over windows", _compiled_pull, when=_fits_pullback_loop)],
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


TIES = "elements that share the largest value of a window share its gradient evenly; NaN is largest"

# ------------------------------------------------------------------ rows


def _fits_forward_loop(x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import in_fours, takes

    if options[-1]:  # ceil_mode: the loops know no windows that go beyond
        return False

    # NumPy is as fast with few places within a window, unless windows lie side by side.
    few = math.prod(window) <= 4
    return takes(x, window) and (not few or in_fours(x, window, *options))


def _compiled(x: Array, *all_options: Any) -> Array:
    from odyssey.kernels import pooling

    *options, _ = all_options
    if pooling.in_fours(spec_of(x), *options):
        return pooling.largest_of_four(x, *options)
    return pooling.largest(x, pooled_shape("max_pool2d", x.shape, *options), *options)


# Of fewer elements no loop runs on the way back, and the result is kept for it, to search no more.
_KEPT = SIZES["max_pool_pullback"]


def _rule(
    g: Any,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    residual: Any = None,
) -> Any:
    """The cotangent of ``x``; the residual is the result."""
    options = window, stride, padding, dilation, ceil_mode
    if residual is None:
        return max_pool_pullback(g, x, *options)
    return pull(g, x, *options, peak=residual)


def _row(dims: int, *samples: Any, small: Any) -> dict[str, Any]:
    """What the rows of so many spatial axes are declared with."""
    who = f"max_pool{dims}d"

    def infer(x: Spec, *options: Any) -> Spec:
        return Spec(pooled_shape(who, x.shape, *options), x.dtype)

    def leaving(x: Any, *options: Any) -> tuple[Any, Any] | None:
        if x.size >= _KEPT or x.dtype.kind != "f":
            return None
        out = max_pool(who, x, *options)
        return out, out

    return {
        "real": True,
        "selects": True,
        "with_residual": leaving,
        "prepare": lambda *options: prepared(who, dims, *options),
        "kernel": lambda x, *options: max_pool(who, x, *options),
        "decomposition": max_pool_in_ops,
        "infer": infer,
        "vjp": {"x": _rule},
        "jvp": {
            "x": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pushforward(
                t, x, window, stride, padding, dilation, ceil_mode
            )
        },
        "kinks": TIES,
        "samples": [*samples, sample((0, *small), window=2)],
        "rejects": [
            reject(small, window=9, match="does not fit"),
            reject(small, window=3, padding=2, match="half of the window"),
            reject((), window=2, match="wanted is"),
            reject(small, window=(2,) * 4, match="spatial axes"),
            reject(small, window=0, error=SettingError, match="at least 1"),
            reject(small, window=2.5, error=DTypeError, match="whole number"),
            reject(small, window=2, ceil_mode="x", error=DTypeError, match="not a flag"),
        ],
    }


def _signature(
    x: Any,
    /,
    *,
    window: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """How max pooling is called."""


def _or_indices(pooled: Any) -> Any:
    """The op, which also gives the places of what it found where ``return_indices`` says so.

    A row has one result or several, whatever its options are; so this is asked before it.
    """
    row = pooled.row

    def call(*args: Any, **named: Any) -> Any:
        if "return_indices" not in named:
            return pooled(*args, **named)
        wanted = flag(row.name, "return_indices", named.pop("return_indices"))
        out = pooled(*args, **named)
        if not wanted:
            return out
        tape = named.pop("tape", None)
        operands, options = row.bind(args, named)
        return out, max_pool_indices(*operands, *options, tape=tape)

    call.__name__ = call.__qualname__ = row.name
    call.__module__, call.__doc__ = row.module, row.doc
    call.__wrapped__ = _signature  # type: ignore[attr-defined]
    call.row = row  # type: ignore[attr-defined]
    row.call = call
    return call


@_or_indices
@op(
    **_row(
        1,
        sample((2, 3, 6), window=2, spread=True),
        sample((2, 7), window=3, stride=2, padding=1, spread=True),
        sample((5,), window=2, stride=1, dilation=2, spread=True),
        sample((6,), window=3, stride=2, ceil_mode=True, spread=True),
        small=(2, 4),
    )
)
def max_pool1d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last axis; NaN if one is NaN.

    As ``max_pool2d``, over one spatial axis.
    """
    return max_pool("max_pool1d", x, window, stride, padding, dilation, ceil_mode)


@_or_indices
@op(
    aliases=["maxpool2d"],
    kernels=[Kernel("a loop over windows", _compiled, when=_fits_forward_loop)],
    **_row(
        2,
        sample((2, 1, 4, 4), window=2, spread=True),
        sample((2, 6), window=2, spread=True),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0), spread=True),
        sample((2, 5, 6), window=2, stride=1, dilation=(1, 3), spread=True),
        sample((1, 5, 5), window=2, spread=True),
        sample((1, 6, 5), window=(3, 2), stride=2, padding=(1, 0), ceil_mode=True, spread=True),
        small=(2, 4, 4),
    ),
)
def max_pool2d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last two axes; NaN if one is NaN.

    Args:
        x: Images, (..., height, width).
        window: Height and width of the windows, or a number for both.
        stride: From window to window; by default the window, so that they lie side by side.
        padding: So many elements on each side that are below all others.
        dilation: From place to place within a window.
        ceil_mode: Whether a last window may go beyond the padding, if it begins before.
        return_indices: Return a pair: the result, and the number of the first largest element of
            each window, among all elements of its image in row-major order, as integers.

    Returns:
        Images of as many elements as there are windows, or the pair.

    Raises:
        ShapeError: where no window fits, or the padding is more than half of the window.

    >>> x = np.arange(16.0).reshape(1, 4, 4)
    >>> max_pool2d(x, window=2)
    array([[[ 5.,  7.],
            [13., 15.]]])
    >>> max_pool2d(x, window=2, return_indices=True)[1]
    array([[[ 5,  7],
            [13, 15]]])
    """
    return max_pool("max_pool2d", x, window, stride, padding, dilation, ceil_mode)


@_or_indices
@op(
    **_row(
        3,
        sample((1, 2, 4, 2), window=2, spread=True),
        sample((2, 3, 2, 3), window=2, stride=1, padding=(1, 0, 1), spread=True),
        sample((3, 2, 3), window=2, ceil_mode=True, spread=True),
        small=(4, 4, 4),
    )
)
def max_pool3d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last three axes; NaN if one is NaN.

    As ``max_pool2d``, over three spatial axes.
    """
    return max_pool("max_pool3d", x, window, stride, padding, dilation, ceil_mode)


publish(globals())
