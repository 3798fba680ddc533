"""Unfold (im2col) and fold (col2im)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import ShapeError
from odyssey.nn.convolution.im2col import col2im_accumulator, pad_images, single_block, window_view
from odyssey.nn.pooling.window_plan import MAX_SLICES
from odyssey.nn.sliding_windows import (
    WindowGrid,
    grid_options,
    image_shape,
    int_per_axis,
    window_grid,
)
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import where
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.gathering import add_taken
from odyssey.ops.structure.shape import reshape, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes


def _unfold_grid(x: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> WindowGrid:
    shape = image_shape("unfold", "x", x)
    return window_grid("unfold", shape[2:], window, stride, padding, dilation)


def _infer_unfold(x: Spec, window: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    grid = _unfold_grid(x, window, stride, padding, dilation)
    height = x.shape[1] * math.prod(grid.window)
    return Spec((x.shape[0], height, math.prod(grid.counts)), x.dtype)


def _read_size(who: str, size: Any) -> Shape:
    if not isinstance(size, (tuple, list)):
        raise ShapeError(
            f"{who}: size={format_value(size)}; pass the spatial size of the images, as (height, "
            "width)"
        )
    return int_per_axis(who, "size", size, len(size), 0)


def _fold_grid(
    x: Any, size: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Shape, WindowGrid]:
    """Return the shape of the images, and the grid of windows on them."""
    grid = window_grid("fold", _read_size("fold", size), window, stride, padding, dilation)
    shape: Shape = getattr(x, "shape", ())
    elements, places = math.prod(grid.window), math.prod(grid.counts)
    if len(shape) != 3 or shape[1] % elements or shape[2] != places:
        raise ShapeError(
            f"fold: x has shape {shape}; wanted is (samples, channels * {elements}, {places}), for "
            f"the {places} places of windows of {elements} elements on images of {grid.size}"
        )
    return (shape[0], shape[1] // elements, *grid.size), grid


def _infer_fold(x: Spec, size: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    shape, _ = _fold_grid(x, size, window, stride, padding, dilation)
    return Spec(shape, x.dtype)


def _canonical_unfold_options(x: Any, *options: Any) -> tuple[Any, ...]:
    grid = _unfold_grid(x, *options)
    return (grid.window, *grid_options(grid))


def _canonical_fold_options(x: Any, *options: Any) -> tuple[Any, ...]:
    _, grid = _fold_grid(x, *options)
    return (grid.size, grid.window, *grid_options(grid))


# ------------------------------------------------------------------ lowering


def _lower_unfold(build: Any, x: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    grid = _unfold_grid(x, window, stride, padding, dilation)
    padded = x
    if any(map(any, grid.pads)):
        sides = list(zip(grid.size, grid.pads, strict=True))
        inside = tuple(slice(before, before + n) for n, (before, _) in sides)
        full = tuple(before + n + behind for n, (before, behind) in sides)
        padded = build.join([(x, (..., *inside))], (*x.shape[:2], *full), x.dtype)
    found = build.windows(padded, grid.window, grid.stride, grid.dilation)
    height = x.shape[1] * math.prod(grid.window)
    return build.reshape(found, (x.shape[0], height, math.prod(grid.counts)))


def _lower_fold(build: Any, x: Any, size: Any, *options: Any) -> Any:
    """Sum, for each element of a window, its columns placed between zeros."""
    shape, grid = _fold_grid(x, size, *options)
    columns = build.reshape(x, (*shape[:2], *grid.window, *grid.counts))
    if math.prod(grid.window) > MAX_SLICES:
        return _fold_by_axes(columns, grid)
    inside, full = [], []
    for k, d, s, c, n, (before, behind) in zip(
        grid.window,
        grid.dilation,
        grid.stride,
        grid.counts,
        grid.size,
        grid.pads,
        strict=True,
    ):
        start = (k - 1) * d
        inside.append(slice(start, start + s * (c - 1) + 1, s))
        full.append(start + max(before + n + behind, s * (c - 1) + 1))
    whole = (*shape[:2], *grid.window, *full)
    wide = build.join([(columns, (..., *inside))], whole, x.dtype)
    total: Any = None
    for offsets in np.ndindex(*grid.window):
        key = []
        for o, k, d, n, (before, _) in zip(
            offsets, grid.window, grid.dilation, grid.size, grid.pads, strict=True
        ):
            start = (k - 1 - o) * d + before
            key.append(slice(start, start + n))
        seen = build.slice(wide, (slice(None), slice(None), *offsets, *key))
        total = seen if total is None else add(total, seen)
    return total


def _fold_by_axes(columns: Any, grid: WindowGrid) -> Any:
    """Sum windows along one axis after another."""
    dims = len(grid.size)
    pairs = [axis for k in range(dims) for axis in (2 + k, 2 + dims + k)]
    parts = transpose(columns, (0, 1, *pairs))
    for k in reversed(range(dims)):
        axis, length = 2 + 2 * k, grid.size[k]
        starts = np.arange(grid.counts[k]) * grid.stride[k] - grid.pads[k][0]
        places = np.add.outer(np.arange(grid.window[k]) * grid.dilation[k], starts)
        within = (places >= 0) & (places < length)
        if not within.all():
            behind = (1,) * (len(parts.shape) - axis - 2)
            parts = where(within.reshape(*places.shape, *behind), parts, 0)
        spec = Spec((*parts.shape[:axis], length, *parts.shape[axis + 2 :]), parts.dtype)
        parts = add_taken(parts, np.where(within, places, 0), axis=axis, spec=spec)
    return parts


# ------------------------------------------------------------------ batch rules


def _unfold_batch(
    batch: Batch, x: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    _infer_unfold(*example_specs(batch, [x], window, stride, padding, dilation))
    size, count, *rest = x.shape
    out = unfold(
        reshape(x, (size * count, *rest)),
        window=window,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )
    return reshape(out, (size, count, *out.shape[1:]))


def _fold_batch(
    batch: Batch, x: Any, size: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    _infer_fold(*example_specs(batch, [x], size, window, stride, padding, dilation))
    examples, count, *rest = x.shape
    out = fold(
        reshape(x, (examples * count, *rest)),
        size=size,
        window=window,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )
    return reshape(out, (examples, count, *out.shape[1:]))


# ------------------------------------------------------------------ ops

_WINDOW_REJECT = reject(
    (1, 1, 3, 3), window=(2, 2, 2), match=r"window=\(2, 2, 2\) for 2 spatial axes"
)


@op(
    primitive="gather",
    lowering=_lower_unfold,
    linear=True,
    infer=_infer_unfold,
    canonical=_canonical_unfold_options,
    vjp={
        "x": lambda g, x_spec, window, stride, padding, dilation: fold(
            g,
            size=x_spec.shape[2:],
            window=window,
            stride=stride,
            padding=padding,
            dilation=dilation,
        )
    },
    vmap=_unfold_batch,
    samples=[
        sample((2, 3, 4, 5), window=(2, 3)),
        sample((1, 2, 5, 4), window=2, stride=(2, 1), padding=1, dilation=(1, 2)),
        sample((2, 1, 6), window=3, padding=((2, 0),), stride=2),
        sample((1, 1, 2, 3, 2), window=2, padding="same"),
        sample((0, 2, 3, 3), window=2),
    ],
    rejects=[
        _WINDOW_REJECT,
        reject((3, 3), window=2, match=r"x has shape \(3, 3\)"),
        reject((1, 1, 3, 3), window=4, match="more than the 3 of the image"),
    ],
)
def unfold(x: Any, /, *, window: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """Unfold sliding windows of images into columns.

    Args:
        x: Images (samples, channels, then one to three spatial axes).
        window: The size of a window, an int or one for each spatial axis.
        stride: The distance between windows, likewise.
        padding: Zeros around the images: an int, one for each axis, a pair (before, after) for
            each axis, ``"valid"`` for none, or ``"same"`` for a window for each element.
        dilation: The distance between the elements of a window.

    Returns:
        An array (samples, channels * elements of a window, windows), as in PyTorch.

    >>> unfold(np.arange(6.0).reshape(1, 1, 2, 3), window=(2, 2))
    array([[[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]]])
    """
    grid = _unfold_grid(x, window, stride, padding, dilation)
    found = window_view(pad_images(x, grid), grid)
    height = x.shape[1] * math.prod(grid.window)
    return found.reshape(x.shape[0], height, math.prod(grid.counts))


@op(
    primitive="scatter",
    lowering=_lower_fold,
    linear=True,
    infer=_infer_fold,
    canonical=_canonical_fold_options,
    vjp={
        "x": lambda g, window, stride, padding, dilation: unfold(
            g, window=window, stride=stride, padding=padding, dilation=dilation
        )
    },
    vmap=_fold_batch,
    samples=[
        sample((2, 12, 9), size=(4, 4), window=2),
        sample((1, 8, 9), size=(5, 4), window=2, stride=(2, 1), padding=1, dilation=(2, 3)),
        sample((2, 3, 4), size=(6,), window=3, padding=((2, 1),), stride=2),
        sample((1, 40, 6), size=(7, 6), window=(5, 4), stride=2, padding=(1, 0)),
        sample((0, 4, 4), size=(3, 3), window=2),
    ],
    rejects=[
        reject((1, 4, 5), size=(3, 3), window=2, match="for the 4 places"),
        reject((1, 5, 4), size=(3, 3), window=2, match=r"channels \* 4"),
        reject((1, 4, 4), size=3, window=2, match="pass the spatial size"),
    ],
)
def fold(
    x: Any,
    /,
    *,
    size: Any,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> Any:
    """Sum columns of windows into images: the transpose of ``unfold``.

    Args:
        x: Columns (samples, channels * elements of a window, windows).
        size: The spatial size of the images.
        window: As for ``unfold``; so are the other options.
        stride: The distance between windows.
        padding: Zeros around the images, which are dropped.
        dilation: The distance between the elements of a window.

    Returns:
        Images (samples, channels, *size).

    >>> fold(np.ones((1, 4, 4)), size=(3, 3), window=2)
    array([[[[1., 2., 1.],
             [2., 4., 2.],
             [1., 2., 1.]]]])
    """
    shape, grid = _fold_grid(x, size, window, stride, padding, dilation)
    full = grid.to_3d()
    add, finish = col2im_accumulator((*shape[:2], *full.size), x.dtype, full)
    columns = x.reshape(shape[0], shape[1], *full.window, *full.counts)
    add(single_block(shape[0], full), columns.transpose(1, 2, 3, 4, 0, 5, 6, 7))
    return finish().reshape(shape)


publish(globals())
