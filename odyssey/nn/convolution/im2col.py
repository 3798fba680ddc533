"""Convolution by im2col: windows are copied into columns of a matrix, and multiplied.

Images have three spatial axes here, the first ones of length 1 if there are fewer. Columns are made
for a block of images, or of rows of one image, at a time, so that they stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from odyssey.nn.sliding_windows import WindowGrid
from odyssey.spec import Array, Shape

__all__ = [
    "ImageBlock",
    "col2im",
    "single_block",
    "convolve",
    "flip_weight",
    "pad_images",
    "conv_input_vjp",
    "conv_weight_vjp",
    "col2im_accumulator",
    "window_view",
]

# The size of columns, 4 MB of float32: with a fourth of it products of 64 channels take 1.05 times
# as long, with a sixteenth 1.2 times.
_BLOCK = 1 << 20

# A weight of this size is copied in the time of a few calls.
_SMALL = 1 << 13

# Reading so many elements takes less time than col2im, a call for each element of the window.
_FEW_READ = 1 << 17

# Images of fewer positions share a matrix product, which would else be too thin to be fast.
_FEW = 256


class ImageBlock(NamedTuple):
    """Some images at all positions, or the rows ``start`` to ``stop`` of one image.

    A row is one position along the first axis that has several.
    """

    first: int
    last: int
    start: int
    stop: int

    def starts(self, grid: WindowGrid) -> list[int]:
        """Return the first position along each axis."""
        axis = _row_axis(grid.counts)
        return [self.start if k == axis else 0 for k in range(len(grid.counts))]


AddColumns = Callable[[Array, WindowGrid, ImageBlock, Array], None]


# ------------------------------------------------------------------ blocks


def _row_axis(count: Shape) -> int:
    """Return the axis along which the positions of one image are divided."""
    return next((k for k, n in enumerate(count) if n > 1), 2)


def _image_blocks(images: int, grid: WindowGrid, channels: int) -> Iterator[ImageBlock]:
    """Yield the blocks of images whose columns fit the cache."""
    rows = grid.counts[_row_axis(grid.counts)]
    places = math.prod(grid.counts)
    height = max(1, channels * math.prod(grid.window))
    most = max(_BLOCK // height, _FEW)
    if places <= most:
        step = most // places if places < _FEW else 1
        for first in range(0, images, step):
            yield ImageBlock(first, min(first + step, images), 0, rows)
        return
    step = max(1, most // (places // rows))
    for image in range(images):
        for start in range(0, rows, step):
            yield ImageBlock(image, image + 1, start, min(start + step, rows))


def single_block(images: int, grid: WindowGrid) -> ImageBlock:
    """Return the block of all positions of ``images`` images."""
    return ImageBlock(0, images, 0, grid.counts[_row_axis(grid.counts)])


def _block_counts(grid: WindowGrid, block: ImageBlock) -> Shape:
    """Return the number of positions of a block along each axis."""
    axis = _row_axis(grid.counts)
    return tuple([block.stop - block.start if k == axis else n for k, n in enumerate(grid.counts)])


class _ColumnBuffer:
    """Memory for the columns of all blocks of one call, allocated once."""

    def __init__(self, channels: int, grid: WindowGrid, dtype: np.dtype[Any]) -> None:
        self.head = (channels, *grid.window)
        self.grid = grid
        self.dtype = dtype
        self.memory = np.empty(0, dtype)

    def array_for(self, block: ImageBlock) -> Array:
        """Return an array (channels, *window, images, *counts) for a block."""
        shape = (*self.head, block.last - block.first, *_block_counts(self.grid, block))
        size = math.prod(shape)
        if self.memory.size < size:
            self.memory = np.empty(size, self.dtype)
        return self.memory[:size].reshape(shape)


# ------------------------------------------------------------------ im2col and col2im


def pad_images(x: Array, grid: WindowGrid) -> Array:
    """Return images with zeros around them, or the images themselves if no padding is wanted."""
    if not any(before or after for before, after in grid.pads):
        return x
    sizes = [b + n + a for n, (b, a) in zip(grid.size, grid.pads, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes), x.dtype)
    inner = [slice(b, b + n) for n, (b, _) in zip(grid.size, grid.pads, strict=True)]
    out[:, :, *inner] = x
    return out


def window_view(x: Array, grid: WindowGrid) -> Array:
    """Return the windows of padded images as a view (images, channels, *window, *counts)."""
    n = len(grid.size)
    steps = [d * s for d, s in zip(grid.dilation, x.strides[-n:], strict=True)]
    jumps = [t * s for t, s in zip(grid.stride, x.strides[-n:], strict=True)]
    shape = (*x.shape[:2], *grid.window, *grid.counts)
    return as_strided(x, shape, (*x.strides[:2], *steps, *jumps), writeable=False)


def _column_filler(x: Array, grid: WindowGrid) -> Callable[[ImageBlock, Array], None]:
    """Return a function that fills columns (channels, *window, images, *counts) from images."""
    view = window_view(pad_images(x, grid), grid).transpose(1, 2, 3, 4, 0, 5, 6, 7)
    axis = 5 + _row_axis(grid.counts)

    def fill_columns(block: ImageBlock, columns: Array) -> None:
        part = view[:, :, :, :, block.first : block.last]
        columns[...] = part[(slice(None),) * axis + (slice(block.start, block.stop),)]

    return fill_columns


def col2im(image: Array, grid: WindowGrid, block: ImageBlock, columns: Array) -> None:
    """Add the columns of a block to padded images, by one element of the window at a time."""
    starts = block.starts(grid)
    for place in np.ndindex(*grid.window):
        cut = [
            slice((low := first * s + k * d), low + s * (n - 1) + 1, s)
            for first, s, k, d, n in zip(
                starts, grid.stride, place, grid.dilation, columns.shape[-3:], strict=True
            )
        ]
        part = image[block.first : block.last, :, *cut]
        part += columns[:, *place].swapaxes(0, 1)


def col2im_accumulator(
    shape: Shape, dtype: np.dtype[Any], grid: WindowGrid, adding: AddColumns = col2im
) -> tuple[Callable[[ImageBlock, Array], None], Callable[[], Array]]:
    """Return a function that adds columns to zero images, and one that returns the images."""
    sizes = [b + n + a for n, (b, a) in zip(grid.size, grid.pads, strict=True)]
    image = np.zeros((*shape[:2], *sizes), dtype)

    def crop() -> Array:
        if image.shape == shape:
            return image
        inner = [slice(b, b + n) for n, (b, _) in zip(grid.size, grid.pads, strict=True)]
        return np.ascontiguousarray(image[:, :, *inner])

    return partial(adding, image, grid), crop


# ------------------------------------------------------------------ convolution and its transposes


def _is_pointwise(grid: WindowGrid) -> bool:
    """Return whether the columns are the images themselves."""
    unpadded = not any(before or after for before, after in grid.pads)
    return unpadded and grid.window == grid.stride == (1, 1, 1)


def convolve(x: Array, weight: Array, bias: Array | None, grid: WindowGrid, groups: int) -> Array:
    """Sum windows times a weight, for each group of channels.

    Args:
        x: (images, channels, three spatial axes).
        weight: (out, channels / groups, *window), of the dtype of ``x``.
        bias: (out,), added at each position; or None.
        grid: The positions of the windows.
        groups: The number of groups.
    """
    images, channels = x.shape[:2]
    out = np.empty((images, len(weight), *grid.counts), x.dtype)
    if not out.size or not weight.size:
        out[...] = 0 if bias is None else bias.reshape(-1, 1, 1, 1)
        return out
    places = math.prod(grid.counts)
    rows = weight.reshape(groups, len(weight) // groups, -1)
    flat = out.reshape(images, groups, rows.shape[1], places)
    added = None if bias is None else bias.reshape(groups, -1, 1)
    if _is_pointwise(grid):
        parts = x.reshape(images, groups, -1, places)
        step = places if added is None else max(_FEW, _BLOCK // max(len(weight), 1))
        for start in range(0, places, step):  # a bias is added to what is still in the cache
            target = flat[..., start : start + step]
            np.matmul(rows, parts[..., start : start + step], out=target)
            if added is not None:
                target += added
        return out
    fill, memory = _column_filler(x, grid), _ColumnBuffer(channels, grid, x.dtype)
    for block in _image_blocks(images, grid, channels):
        columns = memory.array_for(block)
        fill(block, columns)
        columns = columns.reshape(groups, rows.shape[2], -1)
        if block.last - block.first > 1:
            product = rows @ columns
            if added is not None:
                product += added
            target = flat[block.first : block.last].transpose(1, 2, 0, 3)
            target[...] = product.reshape(target.shape)
            continue
        per_row = places // grid.counts[_row_axis(grid.counts)]
        target = flat[block.first, :, :, block.start * per_row : block.stop * per_row]
        np.matmul(rows, columns, out=target)
        if added is not None:
            target += added
    return out


def _block_cotangent(g: Array, grid: WindowGrid, block: ImageBlock, groups: int) -> Array:
    """Return the cotangents of a block, (groups, out / groups, images * positions)."""
    images, places = len(g), math.prod(grid.counts)
    per_row = places // grid.counts[_row_axis(grid.counts)]
    flat = g.reshape(images, groups, -1, places)
    part = flat[block.first : block.last, :, :, block.start * per_row : block.stop * per_row]
    if len(part) == 1:
        return part[0]
    return part.transpose(1, 2, 0, 3).reshape(groups, flat.shape[2], -1)


def conv_weight_vjp(g: Array, x: Array, grid: WindowGrid, groups: int) -> Array:
    """Transpose of ``convolve`` in its weight, (out, channels / groups, *window)."""
    images, channels = x.shape[:2]
    shape = (g.shape[1], channels // groups, *grid.window)
    total = np.zeros(shape, x.dtype)
    if not total.size or not g.size:
        return total
    rows = total.reshape(groups, len(total) // groups, -1)
    if _is_pointwise(grid):
        places = math.prod(grid.counts)
        for one, image in zip(g, x, strict=True):
            part = one.reshape(groups, -1, places)
            rows += part @ image.reshape(groups, -1, places).swapaxes(1, 2)
        return total
    fill, memory = _column_filler(x, grid), _ColumnBuffer(channels, grid, x.dtype)
    for block in _image_blocks(images, grid, channels):
        columns = memory.array_for(block)
        fill(block, columns)
        columns = columns.reshape(groups, rows.shape[2], -1)
        rows += _block_cotangent(g, grid, block, groups) @ columns.swapaxes(1, 2)
    return total


def flip_weight(weight: Array, groups: int) -> Array:
    """Return the weight, (channels, out / groups, ...), of the transposed convolution."""
    parts = weight.reshape(groups, len(weight) // groups, *weight.shape[1:]).swapaxes(1, 2)
    return parts[..., ::-1, ::-1, ::-1].reshape(-1, parts.shape[2], *weight.shape[2:])


def conv_input_vjp(
    g: Array, weight: Array, grid: WindowGrid, groups: int, adding: AddColumns = col2im
) -> Array:
    """Transpose of ``convolve`` in the images, (images, channels, three spatial axes).

    ``adding`` adds columns to images, as ``col2im`` does.
    """
    images, channels = len(g), weight.shape[1] * groups
    shape = (images, channels, *grid.size)
    if not g.size or not weight.size:
        return np.zeros(shape, g.dtype)
    across = weight.reshape(groups, len(weight) // groups, -1).swapaxes(1, 2)
    if _is_pointwise(grid):
        flat = g.reshape(images, groups, -1, math.prod(grid.counts))
        return np.matmul(across, flat).reshape(shape)
    back = grid.transposed()
    read = g.shape[1] * images * math.prod(grid.window) * math.prod(grid.size)
    small = weight.size <= max(g.size, _SMALL) and (len(weight) <= channels or read <= _FEW_READ)
    if back is not None and grid.stride == (1, 1, 1) and small:
        # Reading windows of g takes less time than col2im, but the weight is copied.
        return convolve(g, flip_weight(weight, groups), None, back, groups)
    add, finish = col2im_accumulator(shape, g.dtype, grid, adding)
    memory = _ColumnBuffer(channels, grid, g.dtype)
    for block in _image_blocks(images, grid, channels):
        columns = memory.array_for(block)
        product = columns.reshape(groups, across.shape[1], -1)
        np.matmul(across, _block_cotangent(g, grid, block, groups), out=product)
        add(block, columns)
    return finish()
