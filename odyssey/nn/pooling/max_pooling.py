"""Max pooling."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from odyssey.checks import check_flag
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.kernels.sizes import SIZES
from odyssey.nn.pooling.window_plan import (
    MAX_SLICES,
    WindowPlan,
    plan_windows,
    pooled_shape,
    shapes_fit,
    window_options,
)
from odyssey.nn.spatial_families import with_spatial_terms
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
from odyssey.ops.structure.batching import example_specs, spread
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.gathering import add_taken, take
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, op, publish, set_op_metadata
from odyssey.table.samples import Sample, reject, sample


def least_value(dtype: np.dtype[Any]) -> Any:
    """Return the least value of a dtype, the identity of the maximum."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _window_maxima(x: Any, plan: WindowPlan) -> Array:
    """Return the largest element of each window, reduced along one axis after another."""
    for step in plan.steps:
        if step.full and len(step.keys) > 1:
            (_, first), (_, second), *others = step.keys
            out = np.maximum(x[first], x[second])
            for _, elements in others:
                np.maximum(out, x[elements], out=out)
        else:
            out = np.full(step.reduced_shape(x.shape), least_value(x.dtype), x.dtype)
            for windows, elements in step.keys:
                part = out[windows]
                np.maximum(part, x[elements], out=part)
        x = out
    return x


def max_pool(who: str, x: Any, *options: Any) -> Array:
    """Return the largest element of each window."""
    return _window_maxima(x, plan_windows(who, x, *options))


def _maxima_masks(x: Array, peak: Array, plan: WindowPlan) -> tuple[list[Array], Array]:
    """Return masks of the maxima, by offset within a window, and their number in each window."""
    odd = x.dtype.kind == "f" and bool(np.isnan(peak).any())
    count, found = np.zeros(peak.shape, np.intp), []
    for windows, elements in plan.keys:
        hits: Array = x[elements] == peak[windows]
        if odd:
            hits |= np.isnan(x[elements]) & np.isnan(peak[windows])
        count[windows] += hits
        found.append(hits)
    return found, count


def spread_to_maxima(g: Any, x: Any, *options: Any, peak: Any = None) -> Array:
    """Share each ``g`` evenly among the largest elements of its window.

    ``peak`` is the largest element of each window, if known.
    """
    plan = plan_windows("max_pool_pullback", x, *options)
    if g.dtype != x.dtype:
        g = g.astype(result_type(g, x))
    if peak is None:
        peak = _window_maxima(x, plan)
    if g.shape != peak.shape:
        raise ValueError("the cotangent has another shape than the maxima")
    if plan.block_shape and x.size:
        hits = x.reshape(plan.block_shape) == peak.reshape(plan.block_index_shape)
        square = np.vdot(peak, peak)  # NaN if an element is, in half the time of np.isnan
        if np.count_nonzero(hits) == peak.size and square == square:  # no ties, and no NaN
            out = np.zeros(x.shape, g.dtype)
            np.copyto(out.reshape(plan.block_shape), g.reshape(plan.block_index_shape), where=hits)
            return out
    found, count = _maxima_masks(x, peak, plan)
    share, out = g / count.astype(g.dtype), np.zeros(x.shape, g.dtype)
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[elements]
        np.add(part, share[windows], out=part, where=hits)
    return out


def mean_at_maxima(t: Any, x: Any, *options: Any) -> Array:
    """Return the mean of ``t`` over the largest elements of each window."""
    if t.shape != x.shape:
        raise ValueError("t has another shape than x")
    plan = plan_windows("max_pool_pushforward", x, *options)
    peak = _window_maxima(x, plan)
    found, count = _maxima_masks(x, peak, plan)
    out = np.zeros(peak.shape, result_type(t, x))
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[windows]
        np.add(part, t[elements], out=part, where=hits)
    out /= count.astype(out.dtype)
    return out


def first_max_indices(who: str, x: Any, *options: Any) -> Array:
    """Return the index of the first largest element of each window; NaN counts as largest."""
    plan = plan_windows(who, x, *options)
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


def gather_windows(x: Any, plan: WindowPlan) -> tuple[Any, Array, Array]:
    """Return the elements of each window along axis -2, their indices, and which of them exist."""
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


# ------------------------------------------------------------------ decompositions


def _slices(x: Any, plan: WindowPlan) -> list[Any] | None:
    """Return the elements of all windows for each offset; None if some windows lack one."""
    if len(plan.keys) > MAX_SLICES or not all(step.full for step in plan.steps):
        return None
    return [getitem(x, elements) for _, elements in plan.keys]


def _slice_masks(parts: list[Any], dtype: Any) -> tuple[list[Any], Any]:
    """Return masks of the largest elements, by offset, and the number of them in each window."""
    peak = reduce(maximum, parts)
    hits = [logical_or(equal(part, peak), not_equal(part, part)) for part in parts]
    return hits, reduce(add, [astype(found, dtype) for found in hits])


def max_pool_decomposition(x: Any, *options: Any) -> Any:
    """Max pooling in ops, over as many axes as the options have numbers."""
    plan = plan_windows("max_pool", x, *options)
    parts = _slices(x, plan)
    if parts is not None:
        return reduce(maximum, parts)
    found, _, known = gather_windows(x, plan)
    out = max(where(known, found, least_value(x.dtype)), -2)
    return reshape(out, (*x.shape[: len(x.shape) - len(plan.out)], *plan.out))


def _gathered_masks(x: Any, plan: WindowPlan, dtype: Any) -> tuple[Any, Any, Array]:
    """Return a mask of the largest elements, the number of them in each window, and all indices."""
    found, places, known = gather_windows(x, plan)
    peak = max(where(known, found, least_value(x.dtype)), -2, keepdims=True)
    both_nan = logical_and(not_equal(found, found), not_equal(peak, peak))
    hits = logical_and(logical_or(equal(found, peak), both_nan), known)
    return hits, sum(astype(hits, dtype), -2, keepdims=True), places


def _pullback_decomposition(cotangent: Any, x: Any, *options: Any) -> Any:
    plan = plan_windows("max_pool", x, *options)
    dtype = result_type(cotangent.dtype, x.dtype)
    parts = _slices(x, plan)
    if parts is not None and plan.disjoint:
        found, count = _slice_masks(parts, dtype)
        share = div(cotangent, count)
        spread = [
            add_at(keep_where(share, hit), elements, Spec(x.shape, share.dtype))
            for hit, (_, elements) in zip(found, plan.keys, strict=True)
        ]
        return reduce(add, spread)
    hits, count, places = _gathered_masks(x, plan, dtype)
    parts = keep_where(div(reshape(cotangent, count.shape), count), hits)
    flat = (*count.shape[:-2], math.prod(x.shape[len(x.shape) - len(plan.out) :]))
    return reshape(add_taken(parts, places, axis=-1, spec=Spec(flat, parts.dtype)), x.shape)


def _pushforward_decomposition(t: Any, x: Any, *options: Any) -> Any:
    plan = plan_windows("max_pool", x, *options)
    dtype = result_type(t.dtype, x.dtype)
    parts, moved = _slices(x, plan), _slices(t, plan)
    if parts is not None and moved is not None:
        found, count = _slice_masks(parts, dtype)
        kept = [keep_where(part, hit) for part, hit in zip(moved, found, strict=True)]
        return div(reduce(add, kept), count)
    hits, count, _ = _gathered_masks(x, plan, dtype)
    out = div(sum(keep_where(gather_windows(t, plan)[0], hits), -2, keepdims=True), count)
    return reshape(out, (*x.shape[: len(x.shape) - len(plan.out)], *plan.out))


# ------------------------------------------------------------------ derivatives

_TIES = (
    "elements that share the largest value of a window share its gradient evenly; NaN is largest"
)
_ONE: dict[str, Any] = {"window": (2,), "stride": (2,), "padding": (0,), "dilation": (1,)}
_TWO: dict[str, Any] = {"window": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
_CLOSE: dict[str, Any] = {"window": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
# Small integers, with ties, which leave the dtype to the other operand.
_SHUFFLED = (np.arange(40) * 7 % 11).astype(np.int8)


def _compiled_pullback(cotangent: Array, x: Array, *all_options: Any) -> Array:
    from odyssey.kernels import pooling

    *options, _ = all_options
    x = x.astype(cotangent.dtype, copy=False)
    if pooling.fits_2x2(spec_of(x), *options):
        return pooling.max_pullback_2x2(cotangent, x)
    peak = pooling.max_pool_loop(x, cotangent.shape, *options)
    return pooling.max_pullback_loop(cotangent, x, peak, *options)


def _fits_pullback_loop(cotangent: Spec, x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import fits_loop

    if options[-1]:  # ceil_mode
        return False
    # The loop does not check shapes.
    fits = shapes_fit(cotangent.shape, x.shape, window, *options)
    safe = np.can_cast(x.dtype, cotangent.dtype)
    return safe and fits_loop(Spec(x.shape, cotangent.dtype), window) and fits


def _pullback_on_cuda(cotangent: Any, x: Any, *options: Any) -> Any:
    from odyssey.kernels.pooling import cuda_max_pullback

    return cuda_max_pullback(cotangent, x, *options[:-1])


def _pullback_fits_cuda(cotangent: Spec, x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import fits_cuda_pool

    fits = cotangent.dtype == x.dtype and fits_cuda_pool(x, window)
    return fits and shapes_fit(cotangent.shape, x.shape, window, *options)


def _infer_pullback(cotangent: Spec, x: Spec, *options: Any) -> Spec:
    wanted = pooled_shape("max_pool_pullback", x.shape, *options)
    if cotangent.shape != wanted:
        raise ShapeError(
            f"max_pool_pullback: the cotangent has shape {cotangent.shape}; "
            f"the windows of x {x.shape} give {wanted}"
        )
    return Spec(x.shape, result_type(cotangent.dtype, x.dtype))


def _infer_pushforward(t: Spec, x: Spec, *options: Any) -> Spec:
    shape = pooled_shape("max_pool_pushforward", x.shape, *options)
    if t.shape != x.shape:
        raise ShapeError(
            f"max_pool_pushforward: t has shape {t.shape}; wanted is that of x, {x.shape}"
        )
    return Spec(shape, result_type(t.dtype, x.dtype))


def _batch_pair(
    function: Any, infer: Any, batch: Batch, first: Any, x: Any, options: tuple[Any, ...]
) -> Any:
    """Batch rule of a derivative of max pooling, whose operands have equal leading axes."""
    infer(*example_specs(batch, (first, x)), *options)
    return function(spread(batch, 0, first), spread(batch, 1, x), *options)


@op(
    real=True,
    selects=True,
    decomposition=_pullback_decomposition,
    kernels=[
        Kernel("a loop over windows", _compiled_pullback, when=_fits_pullback_loop),
        Kernel("a thread for each element", _pullback_on_cuda, "cuda", when=_pullback_fits_cuda),
    ],
    infer=_infer_pullback,
    vmap=lambda batch, cotangent, x, *options: _batch_pair(
        max_pool_pullback, _infer_pullback, batch, cotangent, x, options
    ),
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
    """VJP of max pooling: share each cotangent evenly among the maxima of its window."""
    return spread_to_maxima(cotangent, x, window, stride, padding, dilation, ceil_mode)


@op(
    real=True,
    selects=True,
    decomposition=_pushforward_decomposition,
    infer=_infer_pushforward,
    vmap=lambda batch, t, x, *options: _batch_pair(
        max_pool_pushforward, _infer_pushforward, batch, t, x, options
    ),
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
    """JVP of max pooling: mean of ``t`` over the maxima of each window of ``x``."""
    return mean_at_maxima(t, x, window, stride, padding, dilation, ceil_mode)


@op(
    real=True,
    primitive="reduce",
    vmap="leading",
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
    """Index of the first maximum of each window in its flattened image; a constant."""
    return first_max_indices("max_pool_indices", x, window, stride, padding, dilation, ceil_mode)


# ------------------------------------------------------------------ max pooling


def _fits_forward_loop(x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import fits_2x2, fits_loop

    if options[-1]:  # ceil_mode: the loops do not support windows beyond the padding
        return False

    # NumPy is as fast for windows of few elements, unless they tile the image.
    few = math.prod(window) <= 4
    return fits_loop(x, window) and (not few or fits_2x2(x, window, *options))


def _compiled_max_pool(x: Array, *all_options: Any) -> Array:
    from odyssey.kernels import pooling

    *options, _ = all_options
    if pooling.fits_2x2(spec_of(x), *options):
        return pooling.max_pool_2x2(x, *options)
    return pooling.max_pool_loop(x, pooled_shape("max_pool2d", x.shape, *options), *options)


def _max_pool_on_cuda(x: Any, *options: Any) -> Any:
    from odyssey.kernels.pooling import cuda_max_pool

    pooled = pooled_shape(f"max_pool{len(options[0])}d", x.shape, *options)
    return cuda_max_pool(x, pooled, *options[:-1])


def _fits_cuda_maximum(x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import fits_cuda_pool

    return fits_cuda_pool(x, window)


_CUDA_KERNEL = Kernel(
    "a thread for each window", _max_pool_on_cuda, "cuda", when=_fits_cuda_maximum
)


# Below this size the pullback runs no loop, and keeps the maxima as residual instead of computing
# them again.
_RESIDUAL_SIZE = SIZES["max_pool_pullback"]


def _x_rule(
    g: Any,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    residual: Any = None,
) -> Any:
    """VJP in ``x``; the residual is the result."""
    options = window, stride, padding, dilation, ceil_mode
    if residual is None:
        return max_pool_pullback(g, x, *options)
    return spread_to_maxima(g, x, *options, peak=residual)


def _max_pool_signature(
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
    """Signature of max pooling."""


def _with_indices_option(pooled: Any) -> Any:
    """Wrap the op of max pooling so that it takes ``return_indices``.

    The number of results of a row does not depend on its options, so a wrapper handles this one.
    """
    row = pooled.row

    def call(*args: Any, **named: Any) -> Any:
        if "return_indices" not in named:
            return pooled(*args, **named)
        wanted = check_flag(row.name, "return_indices", named.pop("return_indices"))
        out = pooled(*args, **named)
        if not wanted:
            return out
        tape = named.pop("tape", None)
        operands, options = row.bind_arguments(args, named)
        return out, max_pool_indices(*operands, *options, tape=tape)

    row.call = set_op_metadata(call, row)
    row.call.__wrapped__ = _max_pool_signature
    return row.call


def _declare_max_pool(
    n: int, samples: list[Sample], small: Shape, example: str = "", **columns: Any
) -> Any:
    """Declare max pooling over ``n`` spatial axes.

    Args:
        n: The number of spatial axes.
        samples: Cases to test it on.
        small: A shape on which windows of 2 fit, and windows of 9 do not.
        example: A doctest.
        columns: Columns of the table that the ops for other ``n`` lack.
    """
    who = f"max_pool{n}d"

    def infer(x: Spec, *options: Any) -> Spec:
        return Spec(pooled_shape(who, x.shape, *options), x.dtype)

    def with_residual(x: Any, *options: Any) -> tuple[Any, Any] | None:
        if x.size >= _RESIDUAL_SIZE or x.dtype.kind != "f":
            return None
        out = max_pool(who, x, *options)
        return out, out

    @_with_indices_option
    @op(
        real=True,
        selects=True,
        with_residual=with_residual,
        prepare=lambda *options: window_options(who, n, *options),
        kernel=lambda x, *options: max_pool(who, x, *options),
        decomposition=max_pool_decomposition,
        infer=infer,
        vmap="leading",
        vjp={"x": _x_rule},
        jvp={
            "x": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pushforward(
                t, x, window, stride, padding, dilation, ceil_mode
            )
        },
        kinks=_TIES,
        samples=[*samples, sample((0, *small), window=2)],
        rejects=[
            reject(small, window=9, match="does not fit"),
            reject(small, window=3, padding=2, match="half of the window"),
            reject((), window=2, match="wanted is"),
            reject(small, window=(2,) * 4, match="spatial axes"),
            reject(small, window=0, error=SettingError, match="at least 1"),
            reject(small, window=2.5, error=DTypeError, match="whole number"),
            reject(small, window=2, ceil_mode="x", error=DTypeError, match="not a flag"),
        ],
        **columns,
    )
    @with_spatial_terms(who, n, example)
    def max_pool_nd(
        x: Any,
        /,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        """Largest element of each window over the last {axes}; NaN if one is NaN.

        Args:
            x: {Images}, (..., {sizes}).
            window: The size of the windows, an int, or one for each axis; so are the three below.
            stride: The distance between windows; the window by default, so that they do not
                overlap.
            padding: The number of elements of value -inf on each side.
            dilation: The distance between elements of a window.
            ceil_mode: Whether a last window may go beyond the padding, if it begins before its end.
            return_indices: Return a pair: the result, and the index of the first largest element of
                each window in its {image}, flattened in row-major order.

        Returns:
            {Images} with an element for each window, or the pair.

        Raises:
            ShapeError: If no window fits, or the padding is more than half of the window.
        """
        return max_pool(who, x, window, stride, padding, dilation, ceil_mode)

    return max_pool_nd


max_pool1d = _declare_max_pool(
    1,
    samples=[
        sample((2, 3, 6), window=2, spread=True),
        sample((2, 7), window=3, stride=2, padding=1, spread=True),
        sample((5,), window=2, stride=1, dilation=2, spread=True),
        sample((6,), window=3, stride=2, ceil_mode=True, spread=True),
    ],
    small=(2, 4),
    kernels=[_CUDA_KERNEL],
)
max_pool2d = _declare_max_pool(
    2,
    samples=[
        sample((2, 1, 4, 4), window=2, spread=True),
        sample((2, 6), window=2, spread=True),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0), spread=True),
        sample((2, 5, 6), window=2, stride=1, dilation=(1, 3), spread=True),
        sample((1, 5, 5), window=2, spread=True),
        sample((1, 6, 5), window=(3, 2), stride=2, padding=(1, 0), ceil_mode=True, spread=True),
    ],
    small=(2, 4, 4),
    example="""
    >>> x = np.arange(16.0).reshape(1, 4, 4)
    >>> max_pool2d(x, window=2)
    array([[[ 5.,  7.],
            [13., 15.]]])
    >>> max_pool2d(x, window=2, return_indices=True)[1]
    array([[[ 5,  7],
            [13, 15]]])
    """,
    aliases=["maxpool2d"],
    kernels=[
        Kernel("a loop over windows", _compiled_max_pool, when=_fits_forward_loop),
        _CUDA_KERNEL,
    ],
)
max_pool3d = _declare_max_pool(
    3,
    samples=[
        sample((1, 2, 4, 2), window=2, spread=True),
        sample((2, 3, 2, 3), window=2, stride=1, padding=(1, 0, 1), spread=True),
        sample((3, 2, 3), window=2, ceil_mode=True, spread=True),
    ],
    small=(4, 4, 4),
)

publish(globals())
