"""Windows as columns of a matrix, and the transpose of it: their sum where they came from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import ShapeError
from odyssey.nn.convolution.im2col import all_of, padded, scattered, windows
from odyssey.nn.pooling.window_plan import MAX_SLICES
from odyssey.nn.sliding_windows import Slide, images, ints, slide_of, spelled
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import where
from odyssey.ops.structure.gathering import add_taken
from odyssey.ops.structure.shape import transpose
from odyssey.spec import Shape, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes


def _unfolding(x: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Slide:
    shape = images("unfold", "x", x)
    return slide_of("unfold", shape[2:], window, stride, padding, dilation)


def _unfolded_spec(x: Spec, window: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    slide = _unfolding(x, window, stride, padding, dilation)
    height = x.shape[1] * math.prod(slide.window)
    return Spec((x.shape[0], height, math.prod(slide.counts)), x.dtype)


def _size_of(who: str, size: Any) -> Shape:
    if not isinstance(size, (tuple, list)):
        raise ShapeError(
            f"{who}: size={shown(size)}; pass the spatial size of the images, as (height, width)"
        )
    return ints(who, "size", size, len(size), 0)


def _folding(
    x: Any, size: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Shape, Slide]:
    """The shape of the images, and where windows stand on them."""
    slide = slide_of("fold", _size_of("fold", size), window, stride, padding, dilation)
    shape: Shape = getattr(x, "shape", ())
    elements, places = math.prod(slide.window), math.prod(slide.counts)
    if len(shape) != 3 or shape[1] % elements or shape[2] != places:
        raise ShapeError(
            f"fold: x has shape {shape}; wanted is (samples, channels * {elements}, {places}), for "
            f"the {places} places of windows of {elements} elements on images of {slide.size}"
        )
    return (shape[0], shape[1] // elements, *slide.size), slide


def _folded_spec(x: Spec, size: Any, window: Any, stride: Any, padding: Any, dilation: Any) -> Spec:
    shape, _ = _folding(x, size, window, stride, padding, dilation)
    return Spec(shape, x.dtype)


def _unfold_spelled(x: Any, *options: Any) -> tuple[Any, ...]:
    slide = _unfolding(x, *options)
    return (slide.window, *spelled(slide))


def _fold_spelled(x: Any, *options: Any) -> tuple[Any, ...]:
    _, slide = _folding(x, *options)
    return (slide.size, slide.window, *spelled(slide))


# ------------------------------------------------------------------ native code


def _unfolded_natively(
    build: Any, x: Any, window: Any, stride: Any, padding: Any, dilation: Any
) -> Any:
    slide = _unfolding(x, window, stride, padding, dilation)
    padded = x
    if any(map(any, slide.pads)):
        sides = list(zip(slide.size, slide.pads, strict=True))
        inside = tuple(slice(before, before + n) for n, (before, _) in sides)
        full = tuple(before + n + behind for n, (before, behind) in sides)
        padded = build.join([(x, (..., *inside))], (*x.shape[:2], *full), x.dtype)
    found = build.windows(padded, slide.window, slide.stride, slide.dilation)
    height = x.shape[1] * math.prod(slide.window)
    return build.reshape(found, (x.shape[0], height, math.prod(slide.counts)))


def _folded_natively(build: Any, x: Any, size: Any, *options: Any) -> Any:
    """The sum of the elements of windows, each shown where it belongs, with zeros around it."""
    shape, slide = _folding(x, size, *options)
    columns = build.reshape(x, (*shape[:2], *slide.window, *slide.counts))
    if math.prod(slide.window) > MAX_SLICES:
        return _folded_by_axes(columns, slide)
    inside, full = [], []
    for k, d, s, c, n, (before, behind) in zip(
        slide.window,
        slide.dilation,
        slide.stride,
        slide.counts,
        slide.size,
        slide.pads,
        strict=True,
    ):
        start = (k - 1) * d
        inside.append(slice(start, start + s * (c - 1) + 1, s))
        full.append(start + max(before + n + behind, s * (c - 1) + 1))
    whole = (*shape[:2], *slide.window, *full)
    wide = build.join([(columns, (..., *inside))], whole, x.dtype)
    total: Any = None
    for offsets in np.ndindex(*slide.window):
        key = []
        for o, k, d, n, (before, _) in zip(
            offsets, slide.window, slide.dilation, slide.size, slide.pads, strict=True
        ):
            start = (k - 1 - o) * d + before
            key.append(slice(start, start + n))
        seen = build.part(wide, (slice(None), slice(None), *offsets, *key))
        total = seen if total is None else add(total, seen)
    return total


def _folded_by_axes(columns: Any, slide: Slide) -> Any:
    """The same, added up along one axis after another."""
    dims = len(slide.size)
    pairs = [axis for k in range(dims) for axis in (2 + k, 2 + dims + k)]
    parts = transpose(columns, (0, 1, *pairs))
    for k in reversed(range(dims)):
        axis, length = 2 + 2 * k, slide.size[k]
        starts = np.arange(slide.counts[k]) * slide.stride[k] - slide.pads[k][0]
        places = np.add.outer(np.arange(slide.window[k]) * slide.dilation[k], starts)
        within = (places >= 0) & (places < length)
        if not within.all():
            behind = (1,) * (len(parts.shape) - axis - 2)
            parts = where(within.reshape(*places.shape, *behind), parts, 0)
        spec = Spec((*parts.shape[:axis], length, *parts.shape[axis + 2 :]), parts.dtype)
        parts = add_taken(parts, np.where(within, places, 0), axis=axis, spec=spec)
    return parts


# ------------------------------------------------------------------ rows

_RESTS = reject((1, 1, 3, 3), window=(2, 2, 2), match=r"window=\(2, 2, 2\) for 2 spatial axes")


@op(
    primitive="gather",
    lowering=_unfolded_natively,
    linear=True,
    infer=_unfolded_spec,
    canonical=_unfold_spelled,
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
    samples=[
        sample((2, 3, 4, 5), window=(2, 3)),
        sample((1, 2, 5, 4), window=2, stride=(2, 1), padding=1, dilation=(1, 2)),
        sample((2, 1, 6), window=3, padding=((2, 0),), stride=2),
        sample((1, 1, 2, 3, 2), window=2, padding="same"),
        sample((0, 2, 3, 3), window=2),
    ],
    rejects=[
        _RESTS,
        reject((3, 3), window=2, match=r"x has shape \(3, 3\)"),
        reject((1, 1, 3, 3), window=4, match="more than the 3 of the image"),
    ],
)
def unfold(x: Any, /, *, window: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """The windows that slide over images, each as a column.

    Args:
        x: Images (samples, channels, then one to three spatial axes).
        window: The size of a window, an int or one for each spatial axis.
        stride: The distance between windows, likewise.
        padding: Zeros around the images: an int, one for each axis, a pair (before, behind) for
            each axis, ``"valid"`` for none, or ``"same"`` for as many as give a window for each
            element.
        dilation: The distance between the elements of a window.

    Returns:
        An array (samples, channels * elements of a window, windows), as in PyTorch.

    >>> unfold(np.arange(6.0).reshape(1, 1, 2, 3), window=(2, 2))
    array([[[0., 1.],
            [1., 2.],
            [3., 4.],
            [4., 5.]]])
    """
    slide = _unfolding(x, window, stride, padding, dilation)
    found = windows(padded(x, slide), slide)
    height = x.shape[1] * math.prod(slide.window)
    return found.reshape(x.shape[0], height, math.prod(slide.counts))


@op(
    primitive="scatter",
    lowering=_folded_natively,
    linear=True,
    infer=_folded_spec,
    canonical=_fold_spelled,
    vjp={
        "x": lambda g, window, stride, padding, dilation: unfold(
            g, window=window, stride=stride, padding=padding, dilation=dilation
        )
    },
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
    """Images in which windows are summed, each given as a column: the transpose of ``unfold``.

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
    shape, slide = _folding(x, size, window, stride, padding, dilation)
    full = slide.lifted()
    add, finish = scattered((*shape[:2], *full.size), x.dtype, full)
    columns = x.reshape(shape[0], shape[1], *full.window, *full.counts)
    add(all_of(shape[0], full), columns.transpose(1, 2, 3, 4, 0, 5, 6, 7))
    return finish().reshape(shape)


publish(globals())
