"""Convolution by matrix products: windows are copied into the columns of a matrix, and summed back.

Images have three spatial axes here, the first ones of length 1 where there are fewer. Columns are
made for a block of images, or of the places of one image, at a time, so that they stay in the
cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from odyssey.nn.sliding_windows import Slide
from odyssey.spec import Array, Shape

__all__ = [
    "Block",
    "add_columns",
    "all_of",
    "convolve",
    "mirrored",
    "padded",
    "pull_image",
    "pull_weight",
    "scattered",
    "windows",
]

# Columns of so many elements, 4 MB of float32: a fourth of it takes 1.05 of the time of products of
# 64 channels, a sixteenth 1.2.
_BLOCK = 1 << 20

# A weight of so many elements is copied in the time of a few calls.
_SMALL = 1 << 13

# To read so many elements takes less time than to add windows up, a call for each element of one.
_FEW_READ = 1 << 17

# Images of fewer places share a product, which would else be too thin to be fast.
_FEW = 256


class Block(NamedTuple):
    """Some images, all their places; or one image, and its rows from ``start`` to ``stop``.

    A row is what lies at one place along the first axis along which there are several.
    """

    first: int
    last: int
    start: int
    stop: int

    def starts(self, slide: Slide) -> list[int]:
        """Its first place along each axis."""
        axis = _row_axis(slide.counts)
        return [self.start if k == axis else 0 for k in range(len(slide.counts))]


Adding = Callable[[Array, Slide, Block, Array], None]


# ------------------------------------------------------------------ blocks


def _row_axis(count: Shape) -> int:
    """The axis along which the places of one image are divided."""
    return next((k for k, n in enumerate(count) if n > 1), 2)


def _blocks(images: int, slide: Slide, channels: int) -> Iterator[Block]:
    rows = slide.counts[_row_axis(slide.counts)]
    places = math.prod(slide.counts)
    height = max(1, channels * math.prod(slide.window))
    most = max(_BLOCK // height, _FEW)
    if places <= most:
        step = most // places if places < _FEW else 1
        for first in range(0, images, step):
            yield Block(first, min(first + step, images), 0, rows)
        return
    step = max(1, most // (places // rows))
    for image in range(images):
        for start in range(0, rows, step):
            yield Block(image, image + 1, start, min(start + step, rows))


def all_of(images: int, slide: Slide) -> Block:
    """The block of all places of so many images."""
    return Block(0, images, 0, slide.counts[_row_axis(slide.counts)])


def _places(slide: Slide, block: Block) -> Shape:
    """How many places a block has along each axis."""
    axis = _row_axis(slide.counts)
    return tuple([block.stop - block.start if k == axis else n for k, n in enumerate(slide.counts)])


class _Columns:
    """Memory for the columns of the blocks of one call, taken once."""

    def __init__(self, channels: int, slide: Slide, dtype: np.dtype[Any]) -> None:
        self.head = (channels, *slide.window)
        self.slide = slide
        self.dtype = dtype
        self.memory = np.empty(0, dtype)

    def of(self, block: Block) -> Array:
        """An array (channels, *window, images, *places)."""
        shape = (*self.head, block.last - block.first, *_places(self.slide, block))
        size = math.prod(shape)
        if self.memory.size < size:
            self.memory = np.empty(size, self.dtype)
        return self.memory[:size].reshape(shape)


# ------------------------------------------------------------------ NumPy


def padded(x: Array, slide: Slide) -> Array:
    """Images with zeros around them; themselves where none are wanted."""
    if not any(before or after for before, after in slide.pads):
        return x
    sizes = [b + n + a for n, (b, a) in zip(slide.size, slide.pads, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes), x.dtype)
    inner = [slice(b, b + n) for n, (b, _) in zip(slide.size, slide.pads, strict=True)]
    out[:, :, *inner] = x
    return out


def windows(x: Array, slide: Slide) -> Array:
    """The windows of padded images: a view (images, channels, *window, *places)."""
    n = len(slide.size)
    steps = [d * s for d, s in zip(slide.dilation, x.strides[-n:], strict=True)]
    jumps = [t * s for t, s in zip(slide.stride, x.strides[-n:], strict=True)]
    shape = (*x.shape[:2], *slide.window, *slide.counts)
    return as_strided(x, shape, (*x.strides[:2], *steps, *jumps), writeable=False)


def _gather(x: Array, slide: Slide) -> Callable[[Block, Array], None]:
    """What fills columns (channels, *window, images, *places) from images."""
    view = windows(padded(x, slide), slide).transpose(1, 2, 3, 4, 0, 5, 6, 7)
    axis = 5 + _row_axis(slide.counts)

    def fill(block: Block, columns: Array) -> None:
        part = view[:, :, :, :, block.first : block.last]
        columns[...] = part[(slice(None),) * axis + (slice(block.start, block.stop),)]

    return fill


def add_columns(image: Array, slide: Slide, block: Block, columns: Array) -> None:
    """Add the columns of a block to padded images, by an element of a window."""
    starts = block.starts(slide)
    for place in np.ndindex(*slide.window):
        cut = [
            slice((low := first * s + k * d), low + s * (n - 1) + 1, s)
            for first, s, k, d, n in zip(
                starts, slide.stride, place, slide.dilation, columns.shape[-3:], strict=True
            )
        ]
        part = image[block.first : block.last, :, *cut]
        part += columns[:, *place].swapaxes(0, 1)


def scattered(
    shape: Shape, dtype: np.dtype[Any], slide: Slide, adding: Adding = add_columns
) -> tuple[Callable[[Block, Array], None], Callable[[], Array]]:
    """What adds columns up in images of zeros, and what gives these."""
    sizes = [b + n + a for n, (b, a) in zip(slide.size, slide.pads, strict=True)]
    image = np.zeros((*shape[:2], *sizes), dtype)

    def finish() -> Array:
        if image.shape == shape:
            return image
        inner = [slice(b, b + n) for n, (b, _) in zip(slide.size, slide.pads, strict=True)]
        return np.ascontiguousarray(image[:, :, *inner])

    return partial(adding, image, slide), finish


# ------------------------------------------------------------------ the three products


def _is_pointwise(slide: Slide) -> bool:
    """Whether the columns are the images themselves."""
    unpadded = not any(before or after for before, after in slide.pads)
    return unpadded and slide.window == slide.stride == (1, 1, 1)


def convolve(x: Array, weight: Array, bias: Array | None, slide: Slide, groups: int) -> Array:
    """Sums of windows times a weight, for each group of channels.

    Args:
        x: (images, channels, three spatial axes).
        weight: (out, channels / groups, *window), of the dtype of ``x``.
        bias: (out,), added to each place; or None.
        slide: Where the windows stand.
        groups: How many.
    """
    images, channels = x.shape[:2]
    out = np.empty((images, len(weight), *slide.counts), x.dtype)
    if not out.size or not weight.size:
        out[...] = 0 if bias is None else bias.reshape(-1, 1, 1, 1)
        return out
    places = math.prod(slide.counts)
    rows = weight.reshape(groups, len(weight) // groups, -1)
    flat = out.reshape(images, groups, rows.shape[1], places)
    added = None if bias is None else bias.reshape(groups, -1, 1)
    if _is_pointwise(slide):
        parts = x.reshape(images, groups, -1, places)
        step = places if added is None else max(_FEW, _BLOCK // max(len(weight), 1))
        for start in range(0, places, step):  # a bias is added to what is still in the cache
            target = flat[..., start : start + step]
            np.matmul(rows, parts[..., start : start + step], out=target)
            if added is not None:
                target += added
        return out
    fill, memory = _gather(x, slide), _Columns(channels, slide, x.dtype)
    for block in _blocks(images, slide, channels):
        columns = memory.of(block)
        fill(block, columns)
        columns = columns.reshape(groups, rows.shape[2], -1)
        if block.last - block.first > 1:
            product = rows @ columns
            if added is not None:
                product += added
            target = flat[block.first : block.last].transpose(1, 2, 0, 3)
            target[...] = product.reshape(target.shape)
            continue
        per_row = places // slide.counts[_row_axis(slide.counts)]
        target = flat[block.first, :, :, block.start * per_row : block.stop * per_row]
        np.matmul(rows, columns, out=target)
        if added is not None:
            target += added
    return out


def _part(g: Array, slide: Slide, block: Block, groups: int) -> Array:
    """The cotangents of a block, (groups, out / groups, images * places)."""
    images, places = len(g), math.prod(slide.counts)
    per_row = places // slide.counts[_row_axis(slide.counts)]
    flat = g.reshape(images, groups, -1, places)
    part = flat[block.first : block.last, :, :, block.start * per_row : block.stop * per_row]
    if len(part) == 1:
        return part[0]
    return part.transpose(1, 2, 0, 3).reshape(groups, flat.shape[2], -1)


def pull_weight(g: Array, x: Array, slide: Slide, groups: int) -> Array:
    """The transpose of ``convolve`` in its weight, (out, channels / groups, *window)."""
    images, channels = x.shape[:2]
    shape = (g.shape[1], channels // groups, *slide.window)
    total = np.zeros(shape, x.dtype)
    if not total.size or not g.size:
        return total
    rows = total.reshape(groups, len(total) // groups, -1)
    if _is_pointwise(slide):
        places = math.prod(slide.counts)
        for one, image in zip(g, x, strict=True):
            part = one.reshape(groups, -1, places)
            rows += part @ image.reshape(groups, -1, places).swapaxes(1, 2)
        return total
    fill, memory = _gather(x, slide), _Columns(channels, slide, x.dtype)
    for block in _blocks(images, slide, channels):
        columns = memory.of(block)
        fill(block, columns)
        columns = columns.reshape(groups, rows.shape[2], -1)
        rows += _part(g, slide, block, groups) @ columns.swapaxes(1, 2)
    return total


def mirrored(weight: Array, groups: int) -> Array:
    """A weight whose convolution is the transpose in the images, (channels, out / groups, ...)."""
    parts = weight.reshape(groups, len(weight) // groups, *weight.shape[1:]).swapaxes(1, 2)
    return parts[..., ::-1, ::-1, ::-1].reshape(-1, parts.shape[2], *weight.shape[2:])


def pull_image(
    g: Array, weight: Array, slide: Slide, groups: int, adding: Adding = add_columns
) -> Array:
    """The transpose of ``convolve`` in the images, (images, channels, three spatial axes).

    ``adding`` is what adds columns up.
    """
    images, channels = len(g), weight.shape[1] * groups
    shape = (images, channels, *slide.size)
    if not g.size or not weight.size:
        return np.zeros(shape, g.dtype)
    across = weight.reshape(groups, len(weight) // groups, -1).swapaxes(1, 2)
    if _is_pointwise(slide):
        flat = g.reshape(images, groups, -1, math.prod(slide.counts))
        return np.matmul(across, flat).reshape(shape)
    back = slide.back()
    read = g.shape[1] * images * math.prod(slide.window) * math.prod(slide.size)
    small = weight.size <= max(g.size, _SMALL) and (len(weight) <= channels or read <= _FEW_READ)
    if back is not None and slide.stride == (1, 1, 1) and small:
        # To read windows of g takes less time than to add windows up, but the weight is copied.
        return convolve(g, mirrored(weight, groups), None, back, groups)
    add, finish = scattered(shape, g.dtype, slide, adding)
    memory = _Columns(channels, slide, g.dtype)
    for block in _blocks(images, slide, channels):
        columns = memory.of(block)
        product = columns.reshape(groups, across.shape[1], -1)
        np.matmul(across, _part(g, slide, block, groups), out=product)
        add(block, columns)
    return finish()
