"""Average pooling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.pooling.window_plan import (
    MAX_SLICES,
    AxisStep,
    WindowPlan,
    plan_windows,
    pooled_shape,
    shapes_fit,
    window_options,
)
from odyssey.nn.spatial_families import with_spatial_terms
from odyssey.ops.elementwise.arithmetic import add, div
from odyssey.ops.elementwise.choice import where
from odyssey.ops.reductions.broadcast_back import broadcast_back
from odyssey.ops.reductions.reduce import divide_by_size, mean, sum
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.gathering import add_taken, take
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import broadcast_to, reshape
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.real_operands import real_dtype
from odyssey.table.samples import Sample, reject, sample
from odyssey.table.shape_rules import result_dtype_of

MEAN_DTYPE = result_dtype_of(np.mean)
"""Return the dtype of the mean of numbers of a dtype."""


def plan_average(
    who: str, x: Any, window: Shape, stride: Shape, padding: Shape, ceil_mode: bool
) -> WindowPlan:
    """Return the plan of windows over the last axes of an array or a spec."""
    return plan_windows(who, x, window, stride, padding, (1,) * len(window), ceil_mode)


def window_divisors(plan: WindowPlan, window: Shape, count_include_pad: bool) -> Any:
    """Return the divisor of the sums of windows: one number, or one for each window."""
    by_axis = plan.padded if count_include_pad else plan.filled
    if plan.block_shape or all((n == k).all() for n, k in zip(by_axis, window, strict=True)):
        return float(math.prod(window))
    counts: Any = 1.0
    for places in by_axis:
        counts = np.multiply.outer(counts, places)
    return counts


# Half precision is summed in single precision, as by NumPy.
_KNOWN_DTYPES = {
    np.dtype(c): (np.dtype(w), np.dtype(c)) for c, w in zip("efdFD", "ffdFD", strict=True)
}


def _sum_and_mean_dtype(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the dtype in which sums are computed, and the dtype of their means."""
    known = _KNOWN_DTYPES.get(dtype)
    return known or (MEAN_DTYPE(dtype), MEAN_DTYPE(dtype))


def average_windows(
    who: str,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    ceil_mode: bool,
) -> Array:
    """Return the mean of each window."""
    plan = plan_average(who, x, window, stride, padding, ceil_mode)
    wide, result = _sum_and_mean_dtype(x.dtype)
    for step in plan.steps:
        if step.full and len(step.keys) > 1:
            (_, first), (_, second), *others = step.keys
            sums = np.add(x[first], x[second], dtype=wide)
            for _, elements in others:
                np.add(sums, x[elements], out=sums)
        else:
            sums = np.zeros(step.reduced_shape(x.shape), wide)
            for windows, elements in step.keys:
                part = sums[windows]
                np.add(part, x[elements], out=part)
        x = sums
    counts = window_divisors(plan, window, count_include_pad)
    np.divide(x, counts, out=x, casting="same_kind")
    return x if result is wide else x.astype(result)


def average_pullback(
    g: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool,
) -> Array:
    """Spread each ``g`` evenly over its window."""
    plan = plan_average("avg_pool_pullback", spec, window, stride, padding, ceil_mode)
    if g.shape != spec.shape[: spec.ndim - len(window)] + plan.out:
        raise ValueError("g has another shape than the windows")
    wide, result = _sum_and_mean_dtype(g.dtype)
    counts = window_divisors(plan, window, count_include_pad)
    share = np.divide(g, counts, dtype=wide, casting="same_kind")
    if plan.block_shape and share.size:
        out = np.empty(spec.shape, result)
        out.reshape(plan.block_shape)[...] = share.reshape(plan.block_index_shape)
        return out
    for step in reversed(plan.steps):
        parts = np.zeros(step.expanded_shape(share.shape), wide)
        for windows, elements in step.keys:
            part = parts[elements]
            np.add(part, share[windows], out=part)
        share = parts
    return share if result is wide else share.astype(result)


def _axis_gather(step: AxisStep) -> tuple[Array, Array]:
    """Return the indices of the elements of each window of one axis, and which of them exist.

    Returns:
        Both of shape (window, windows), the second with an axis of length 1 for each later axis.
    """
    numbers = np.arange(step.length)
    places = np.zeros((len(step.keys), step.windows), np.intp)
    known = np.zeros(places.shape, bool)
    for k, ((_, windows, *_), (_, elements, *_)) in enumerate(step.keys):
        places[k][windows] = numbers[elements]
        known[k][windows] = True
    return places, known.reshape(*places.shape, *(1,) * (-1 - step.axis))


def _sum_by_axes(x: Any, plan: WindowPlan) -> Any:
    """Sum each window, along one axis after another.

    Used whether or not the windows cover the images, so that graphs of all sizes are equal.
    """
    for step in plan.steps:
        places, known = _axis_gather(step)
        axis = len(x.shape) + step.axis
        found = take(x, places, axis=axis)
        x = sum(found if known.all() else where(known, found, 0), axis)
    return x


def _scatter_by_axes(share: Any, plan: WindowPlan) -> Any:
    """Sum, for each element of the images, the shares of the windows that contain it."""
    for step in reversed(plan.steps):
        places, known = _axis_gather(step)
        axis = len(share.shape) + step.axis
        before, behind = share.shape[:axis], share.shape[axis:]
        parts = broadcast_back(
            share, Spec((*before, len(places), *behind), share.dtype), (axis,), False
        )
        kept = parts if known.all() else where(known, parts, 0)
        spec = Spec(tuple(step.expanded_shape(share.shape)), share.dtype)
        share = add_taken(kept, places, axis=axis, spec=spec)
    return share


def average_decomposition(x: Any, window: Shape, *others: Any) -> Any:
    """Average pooling in ops, over as many axes as the options have numbers."""
    stride, padding, count_include_pad, ceil_mode = others
    plan = plan_average("avg_pool", x, window, stride, padding, ceil_mode)
    counts = window_divisors(plan, window, count_include_pad)
    total: Any = None
    shape = (*x.shape[: len(x.shape) - len(window)], *plan.out)
    dtype = MEAN_DTYPE(np.dtype(x.dtype))
    if len(plan.keys) > MAX_SLICES:
        total = _sum_by_axes(div(x, 1), plan)
    else:
        for windows, elements in plan.keys:
            part = add_at(div(getitem(x, elements), 1), windows, spec=Spec(shape, dtype))
            total = part if total is None else add(total, part)
    return div(total, np.asarray(counts, real_dtype(dtype)))


def average_pullback_decomposition(g: Any, window: Shape, *others: Any) -> Any:
    """VJP of average pooling in ops."""
    stride, padding, count_include_pad, spec, ceil_mode = others
    plan = plan_average("avg_pool", spec, window, stride, padding, ceil_mode)
    dtype = MEAN_DTYPE(np.dtype(g.dtype))
    counts = np.asarray(window_divisors(plan, window, count_include_pad), real_dtype(dtype))
    share, total = div(g, counts), None
    covered = tuple([n * k for n, k in zip(plan.out, window, strict=True)])
    sizes = spec.shape[len(spec.shape) - len(window) :]
    fit = all(n <= size for n, size in zip(covered, sizes, strict=True))
    if fit and stride == window and not any(padding):
        # One pass, instead of a sum for each element of a window.
        blocks = _repeat_blocks(share, plan.out, window)
        return add_at(blocks, (..., *map(slice, covered)), spec=Spec(spec.shape, dtype))
    if len(plan.keys) > MAX_SLICES:
        return _scatter_by_axes(share, plan)
    for windows, elements in plan.keys:
        part = add_at(getitem(share, windows), elements, spec=Spec(spec.shape, dtype))
        total = part if total is None else add(total, part)
    return total


def _repeat_blocks(share: Any, windows: Shape, window: Shape) -> Any:
    """Return images in which each window, of those side by side, has one value."""
    images = share.shape[: len(share.shape) - len(window)]
    index = [n for pair in zip(windows, (1,) * len(window), strict=True) for n in pair]
    blocks = [n for pair in zip(windows, window, strict=True) for n in pair]
    covered = [n * k for n, k in zip(windows, window, strict=True)]
    spread = broadcast_to(reshape(share, (*images, *index)), (*images, *blocks))
    return reshape(spread, (*images, *covered))


# ------------------------------------------------------------------ compiled


def _fits_2x2(x: Spec, window: Shape, stride: Shape, padding: Shape, *others: Any) -> bool:
    from odyssey.kernels.pooling import fits_2x2

    return fits_2x2(x, window, stride, padding)


def _mean_2x2(x: Array, *options: Any) -> Array:
    from odyssey.kernels.pooling import mean_pool_2x2

    return mean_pool_2x2(x, *options)


def _pullback_fits_2x2(g: Spec, *options: Any) -> bool:
    *windows, _, spec, ceil_mode = options
    # The loop does not check shapes.
    fits = shapes_fit(g.shape, spec.shape, *windows, (1,) * len(windows[0]), ceil_mode)
    return fits and _fits_2x2(Spec(spec.shape, g.dtype), *windows)


def _spread_2x2(g: Array, *options: Any) -> Array:
    from odyssey.kernels.pooling import spread_2x2

    return spread_2x2(g, options[-2])


def _average_on_cuda(x: Any, *options: Any) -> Any:
    from odyssey.kernels.pooling import cuda_mean_pool

    window, stride, padding, count_include_pad, ceil_mode = options
    once = (1,) * len(window)
    who = f"avg_pool{len(window)}d"
    plan = plan_average(who, spec_of(x), window, stride, padding, ceil_mode)
    pooled = x.shape[: x.ndim - len(window)] + plan.out
    divisors = window_divisors(plan, window, count_include_pad)
    return cuda_mean_pool(x, pooled, divisors, window, stride, padding, once)


def _pullback_on_cuda(g: Any, *options: Any) -> Any:
    from odyssey.kernels.pooling import cuda_mean_pullback

    window, stride, padding, count_include_pad, spec, ceil_mode = options
    once = (1,) * len(window)
    plan = plan_average("avg_pool_pullback", spec, window, stride, padding, ceil_mode)
    divisors = window_divisors(plan, window, count_include_pad)
    return cuda_mean_pullback(g, spec.shape, divisors, window, stride, padding, once)


def _fits_cuda_average(x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import fits_cuda_pool

    return fits_cuda_pool(x, window)


def _pullback_fits_cuda(g: Spec, *options: Any) -> bool:
    *windows, _, spec, ceil_mode = options
    fits = shapes_fit(g.shape, spec.shape, *windows, (1,) * len(windows[0]), ceil_mode)
    return fits and g.size > 0 and _fits_cuda_average(Spec(spec.shape, g.dtype), windows[0])


_CUDA_KERNEL = Kernel("a thread for each window", _average_on_cuda, "cuda", when=_fits_cuda_average)

# ------------------------------------------------------------------ rows


def _infer_pullback(g: Spec, *options: Any) -> Spec:
    *windows, _, spec, ceil_mode = options
    once = (1,) * len(windows[0])  # the dilation
    wanted = pooled_shape("avg_pool_pullback", spec.shape, *windows, once, ceil_mode)
    if g.shape != wanted:
        raise ShapeError(
            f"avg_pool_pullback: the cotangent has shape {g.shape}; the windows of {spec} give "
            f"{wanted}"
        )
    return Spec(spec.shape, MEAN_DTYPE(g.dtype))


def _batch_pullback(batch: Batch, cotangent: Any, *options: Any) -> Any:
    _infer_pullback(*example_specs(batch, (cotangent,)), *options)
    *windows, spec, ceil_mode = options
    whole = Spec((batch.size, *spec.shape), spec.dtype)
    return avg_pool_pullback(cotangent, *windows, whole, ceil_mode)


def _pullback_options(
    images: Shape, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool
) -> dict[str, Any]:
    """Return the options of the pullback for float64 images of a shape."""
    windows = {"window": window, "stride": stride, "padding": padding}
    spec = Spec(images, np.dtype(np.float64))
    return {**windows, "count_include_pad": count_include_pad, "spec": spec}


_OPTIONS = ("window", "stride", "padding", "count_include_pad", "ceil_mode")


def _average_pool(g: Any, window: Shape, *others: Any) -> Any:
    """Call the op over as many axes as the options have numbers."""
    pooled = (avg_pool1d, avg_pool2d, avg_pool3d)[len(window) - 1]
    return pooled(g, **dict(zip(_OPTIONS, (window, *others), strict=True)))


@op(
    linear=True,
    decomposition=compute_in_float32(average_pullback_decomposition),
    kernels=[
        Kernel("a loop over windows of four", _spread_2x2, when=_pullback_fits_2x2),
        Kernel("a thread for each element", _pullback_on_cuda, "cuda", when=_pullback_fits_cuda),
    ],
    infer=_infer_pullback,
    vmap=_batch_pullback,
    vjp={
        "cotangent": lambda g, window, stride, padding, count_include_pad, ceil_mode: _average_pool(
            g, window, stride, padding, count_include_pad, ceil_mode
        )
    },
    samples=[
        sample((2, 2, 2), **_pullback_options((2, 4, 4), (2, 2), (2, 2), (0, 0), True)),
        sample((1, 3), **_pullback_options((2, 6), (2, 2), (2, 2), (0, 0), False)),
        sample((2, 2, 2), **_pullback_options((2, 4, 5), (2, 2), (2, 2), (0, 0), True)),
        sample((2, 3, 3), **_pullback_options((2, 5, 4), (3, 2), (2, 1), (1, 0), False)),
        sample((4,), **_pullback_options((6,), (3,), (2,), (1,), True), ceil_mode=True),
        sample((2, 1, 2), **_pullback_options((2, 5, 10), (5, 5), (5, 5), (0, 0), True)),
        sample((3, 3), **_pullback_options((6, 7), (5, 4), (2, 2), (2, 1), False)),
        sample((0, 3), **_pullback_options((0, 4), (2,), (1,), (0,), True)),
    ],
    rejects=[
        reject(
            (2, 3),
            **_pullback_options((2, 4), (2,), (2,), (0,), True),
            match="the cotangent has shape",
        )
    ],
)
def avg_pool_pullback(
    cotangent: Any,
    /,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool = False,
) -> Any:
    """VJP of average pooling of an array of ``spec``: spread each cotangent over its window."""
    return average_pullback(cotangent, window, stride, padding, count_include_pad, spec, ceil_mode)


# ------------------------------------------------------------------ average pooling


def _declare_average_pool(
    n: int, samples: list[Sample], small: Shape, example: str = "", **columns: Any
) -> Any:
    """Declare average pooling over ``n`` spatial axes.

    Args:
        n: The number of spatial axes.
        samples: Cases to test it on.
        small: A shape on which windows of 2 fit, and windows of 9 do not.
        example: A doctest.
        columns: Columns of the table that the ops for other ``n`` lack.
    """
    who = f"avg_pool{n}d"

    def average_options(
        window: Any, stride: Any, padding: Any, count_include_pad: Any, ceil_mode: Any
    ) -> Any:
        *places, _, beyond = window_options(who, n, window, stride, padding, 1, ceil_mode)
        return *places, count_include_pad, beyond

    def infer(x: Spec, *options: Any) -> Spec:
        *windows, _, ceil_mode = options
        return Spec(pooled_shape(who, x.shape, *windows, (1,) * n, ceil_mode), MEAN_DTYPE(x.dtype))

    @op(
        linear=True,
        prepare=average_options,
        kernel=lambda x, *options: average_windows(who, x, *options),
        decomposition=compute_in_float32(average_decomposition),
        infer=infer,
        vmap="leading",
        vjp={
            "x": lambda g, x_spec, window, stride, padding, count_include_pad, ceil_mode: (
                avg_pool_pullback(g, window, stride, padding, count_include_pad, x_spec, ceil_mode)
            )
        },
        samples=[*samples, sample((0, *small), window=2)],
        rejects=[
            reject(small, window=9, match="does not fit"),
            reject(small, window=3, padding=2, match="half of the window"),
            reject((), window=2, match="wanted is"),
            reject(small, window=(2,) * 4, match="spatial axes"),
            reject(small, window=2, stride=0, error=SettingError, match="at least 1"),
            reject(small, window="2", error=DTypeError, match="whole number"),
            reject(small, window=2, ceil_mode="x", error=DTypeError, match="not a flag"),
        ],
        **columns,
    )
    @with_spatial_terms(who, n, example)
    def avg_pool_nd(
        x: Any,
        /,
        *,
        window: Any,
        stride: Any = None,
        padding: Any = 0,
        count_include_pad: bool = True,
        ceil_mode: bool = False,
    ) -> Any:
        """Mean of each window over the last {axes}.

        Args:
            x: {Images}, (..., {sizes}).
            window: The size of the windows, an int, or one for each axis; so are the two below.
            stride: The distance between windows; the window by default, so that they do not
                overlap.
            padding: The number of zeros on each side.
            count_include_pad: Whether the zeros count in the divisor.
            ceil_mode: Whether a last window may go beyond the padding, if it begins before its end;
                what is beyond does not count.

        Returns:
            {Images} with an element for each window.

        Raises:
            ShapeError: If no window fits, or the padding is more than half of the window.
        """
        return average_windows(who, x, window, stride, padding, count_include_pad, ceil_mode)

    return avg_pool_nd


avg_pool1d = _declare_average_pool(
    1,
    samples=[
        sample((2, 3, 6), window=2),
        sample((2, 7), window=3, stride=2, padding=1, count_include_pad=False),
        sample((5,), window=2, stride=1),
        sample((6,), window=3, stride=2, padding=1, ceil_mode=True),
        sample((2, 36), window=18),
    ],
    small=(2, 4),
    kernels=[_CUDA_KERNEL],
)
avg_pool2d = _declare_average_pool(
    2,
    samples=[
        sample((2, 1, 4, 4), window=2),
        sample((2, 6), window=2),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0)),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 1), count_include_pad=False),
        sample((1, 5, 5), window=2),
        sample((6, 5), window=(3, 2), stride=2, padding=(1, 0), ceil_mode=True),
        sample((6, 5), window=3, stride=2, padding=1, count_include_pad=False, ceil_mode=True),
        sample((2, 5, 10), window=5),
        sample((6, 7), window=(5, 4), stride=(2, 1), padding=2, count_include_pad=False),
    ],
    small=(2, 4, 4),
    example="""
    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), window=2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])
    """,
    aliases=["avgpool2d"],
    kernels=[
        Kernel("a loop over windows of four", _mean_2x2, when=_fits_2x2),
        _CUDA_KERNEL,
    ],
)
avg_pool3d = _declare_average_pool(
    3,
    samples=[
        sample((1, 2, 4, 2), window=2),
        sample((2, 3, 2, 3), window=2, stride=1, padding=(1, 0, 1), count_include_pad=False),
    ],
    small=(4, 4, 4),
)


# ------------------------------------------------------------------ global average pooling


def _infer_global(x: Spec) -> Spec:
    if x.ndim < 2:
        raise ShapeError(f"global_avg_pool2d: x has shape {x.shape}; wanted is (..., H, W)")
    return Spec((*x.shape[:-2], 1, 1), MEAN_DTYPE(x.dtype))


def _global_mean(x: Any) -> Any:
    if np.ndim(x) < 2:
        raise ValueError("x has no images")
    return np.mean(x, (-2, -1), keepdims=True)


@op(
    linear=True,
    aliases=["global_avgpool2d"],
    kernel=_global_mean,
    decomposition=lambda x: mean(x, (-2, -1), keepdims=True),
    infer=_infer_global,
    vjp={
        "x": lambda g, x_spec: broadcast_back(
            divide_by_size(g, x_spec.shape[-2] * x_spec.shape[-1] or 1), x_spec, (-2, -1), True
        )
    },
    samples=[sample((2, 3, 4, 2)), sample((3, 2)), sample((0, 2, 2)), sample((1, 2, 1, 1))],
    rejects=[reject((3,), match=r"wanted is \(..., H, W\)")],
)
def global_avg_pool2d(x: Any, /) -> Any:
    """Mean of each image over its last two axes, which are kept at length 1.

    >>> global_avg_pool2d(np.arange(8.0).reshape(1, 2, 2, 2))
    array([[[[1.5]],
    <BLANKLINE>
            [[5.5]]]])
    """
    return _global_mean(x)


publish(globals())
