"""Compiled convolution: shifted rows, Winograd tiles and depthwise loops, or else im2col.

Loops over shifted rows are for few channels. Winograd tiles, for windows of 3 by 3, need fewer
products, and pay from so many tiles on that transforming the weight does not matter. Both multiply
zeros outside of windows and add in another order, so that infinities, NaN and the largest numbers
may reach results that they should not: then im2col computes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.col2im import col2im_loop
from odyssey.kernels.conv_rows import conv_rows, conv_rows_weight_vjp
from odyssey.kernels.depthwise3x3_s1 import depthwise_s1, depthwise_s1_weight_vjp
from odyssey.kernels.depthwise3x3_s2 import (
    depthwise_s2,
    depthwise_s2_input_vjp,
    depthwise_s2_weight_vjp,
)
from odyssey.kernels.winograd2x2_3x3 import cotangent_transform, input_transform, output_transform
from odyssey.nn.convolution import im2col
from odyssey.nn.convolution.im2col import flip_weight
from odyssey.nn.sliding_windows import WindowGrid, prefers_winograd
from odyssey.spec import Array, Shape

__all__ = [
    "convolve",
    "convolve_rows",
    "convolve_winograd",
    "fits_rows",
    "conv_input_vjp",
    "rows_input_vjp",
    "winograd_input_vjp",
    "conv_weight_vjp",
    "rows_weight_vjp",
    "winograd_weight_vjp",
]


# Images of this size and their results stay in the L1 cache.
_SMALL = 1 << 12


def fits_rows(grid: WindowGrid) -> bool:
    """Return whether the loops over rows support a grid of three axes."""
    _, down, across = grid.stride
    flat = grid.size[0] == grid.window[0] == grid.counts[0] == 1
    near = all(d == 1 or k == 1 for d, k in zip(grid.dilation, grid.window, strict=True))
    return flat and near and down == across and grid.window[2] in (3, 5)


def _padded_out_channels(results: int) -> int:
    """Return the channels of a result group, rounded up to a multiple of 3 or 4."""
    return results if results < 3 else min(-(-results // 3) * 3, -(-results // 4) * 4)


def _multiple_of_four(results: int) -> int:
    """Round up to a multiple of 4, from 4 on."""
    return results if results < 4 else -(-results // 4) * 4


def _padded_weight(weight: Array, groups: int) -> Array:
    """Return a weight, flat, whose groups are padded with zeros to the channels the loops take."""
    out_channels = len(weight) // groups
    full = weight.reshape(groups, out_channels, -1)
    if _padded_out_channels(out_channels) != out_channels:
        wide = np.zeros((groups, _padded_out_channels(out_channels), full.shape[2]), weight.dtype)
        wide[:, :out_channels] = full
        full = wide
    return full.reshape(-1)


def _fits_depthwise_s1(grid: WindowGrid, in_channels: int, out_channels: int) -> bool:
    """Return whether a call is depthwise, 3x3, with stride 1 and padding 1, on small images."""
    alone = (
        in_channels == out_channels == 1 and grid.window == (1, 3, 3) and grid.stride == (1, 1, 1)
    )
    edges = grid.pads[1:] == ((1, 1), (1, 1))
    return alone and edges and math.prod(grid.size) <= _SMALL


def _fits_depthwise_s2(grid: WindowGrid, in_channels: int, out_channels: int) -> bool:
    """Return whether a call is a depthwise 3x3 convolution with stride 2."""
    alone = (
        in_channels == out_channels == 1 and grid.window == (1, 3, 3) and grid.stride[1:] == (2, 2)
    )
    return alone and math.prod(grid.size) * math.prod(grid.counts) > 0


def _depthwise_s2_args(grid: WindowGrid, channels: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the arguments of all stride-2 loops: geometry, and buffers for parities and lines."""
    (_, height, width), ((top, _), (left, _)) = grid.counts, grid.pads[1:]
    sizes = tuple(map(np.uint64, grid.size[1:])), (np.uint64(height), np.uint64(width))
    parts = np.zeros(4 * ((height + 1) * (width + 1) + 16), dtype)
    lines = np.zeros((height + 2) * (width + 1) + 17, dtype)
    return (np.uint64(channels), sizes, np.uint64(top), np.uint64(left)), parts, lines


def _depthwise_s1_args(grid: WindowGrid, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the arguments of the stride-1 loops: width, masks of line ends, and a buffer."""
    _, height, width = grid.size
    left, right = np.ones((2, height, width), dtype)
    left[:, 0] = right[:, -1] = 0
    room = np.zeros((height + 2) * width + 2, dtype)
    return np.uint64(width), left.reshape(-1), right.reshape(-1), room


def _row_pitch(width: int, pads: tuple[int, int], count: int, stride: int) -> int:
    """Return the distance between lines, which share the padding between them."""
    return max(width + max(pads), (count - 1) * stride + 1)


def _conv_by_rows(
    x: Array, weight: Array, bias: Array, groups: int, spread: int, grid: WindowGrid
) -> Array | None:
    """Convolve images dilated by ``spread``; None if a result is not finite."""
    (height, width), (kh, kw), counts = x.shape[-2:], grid.window[1:], grid.counts[1:]
    (top, below), (left, behind) = grid.pads[1:]
    stride, out_channels, in_channels = grid.stride[1], len(weight) // groups, weight.shape[1]
    if spread == 1 and _fits_depthwise_s1(grid, in_channels, out_channels):
        out, flat = np.empty(x.shape, x.dtype), weight.reshape(-1)
        given = bias, np.uint64(groups), *_depthwise_s1_args(grid, x.dtype)
        found = depthwise_s1(x.reshape(-1), flat, *given, out.reshape(-1))
        return out if found == 0 else None
    rows = top + (height - 1) * spread + 1 + below
    pitch = _row_pitch((width - 1) * spread + 1, (left, behind), counts[1], stride)
    out = np.empty((len(x), groups, out_channels, *counts), x.dtype)
    sizes = (
        in_channels,
        _padded_out_channels(out_channels),
        kh,
        kw,
        top,
        left,
        spread,
        spread,
        stride,
        rows,
        pitch,
    )
    room = np.zeros(in_channels * rows * pitch + 32, x.dtype)
    sums = np.zeros(4 * (counts[0] * pitch + 16), x.dtype)
    images = x.reshape(*x.shape[:2], height, width)
    where = map(np.uint64, sizes)
    found = conv_rows(images, _padded_weight(weight, groups), bias, *where, room, sums, out)
    return out.reshape(len(x), len(weight), *grid.counts) if found == 0 else None


def convolve_rows(
    x: Array, weight: Array, bias: Array | None, grid: WindowGrid, groups: int
) -> Array | None:
    """Convolve by rows, see ``im2col.convolve``; None if a result is not finite."""
    bias = np.empty(0, x.dtype) if bias is None else bias
    if _fits_depthwise_s2(grid, weight.shape[1], len(weight) // groups):
        args, parities, lines = _depthwise_s2_args(grid, groups, x.dtype)
        out = np.empty((len(x), groups, *grid.counts), x.dtype)
        given = x.reshape(-1), weight.reshape(-1), bias, *args, parities, lines
        return out if depthwise_s2(*given, out.reshape(-1)) == 0 else None
    return _conv_by_rows(x, weight, bias, groups, 1, grid)


def rows_input_vjp(g: Array, weight: Array, grid: WindowGrid, groups: int) -> Array | None:
    """Transpose in the images by rows: a convolution of ``g`` with the flipped weight.

    None if a result is not finite, or if images are padded by more than a window.
    """
    if _fits_depthwise_s2(grid, weight.shape[1], len(weight) // groups):
        args, parities, lines = _depthwise_s2_args(grid, groups, g.dtype)
        out = np.zeros((len(g), groups, *grid.size), g.dtype)
        given = g.reshape(-1), weight.reshape(-1), *args, lines, parities
        return out if depthwise_s2_input_vjp(*given, out.reshape(-1)) == 0 else None
    back = grid.transposed()
    if back is None:
        return None
    turned = flip_weight(weight, groups)
    return _conv_by_rows(g, turned, np.empty(0, g.dtype), groups, grid.stride[1], back)


def rows_weight_vjp(g: Array, x: Array, grid: WindowGrid, groups: int) -> Array:
    """Transpose in the weight by rows, see ``im2col.conv_weight_vjp``."""
    (height, width), (kh, kw), counts = x.shape[-2:], grid.window[1:], grid.counts[1:]
    (top, below), (left, behind) = grid.pads[1:]
    out_channels, in_channels = g.shape[1] // groups, x.shape[1] // groups
    if _fits_depthwise_s1(grid, in_channels, out_channels):
        slopes = np.zeros(9 * groups, x.dtype)
        given = np.uint64(groups), *_depthwise_s1_args(grid, x.dtype)
        depthwise_s1_weight_vjp(x.reshape(-1), g.reshape(-1), *given, slopes)
        return slopes.reshape(groups, 1, *grid.window)
    if _fits_depthwise_s2(grid, in_channels, out_channels):
        args, parities, lines = _depthwise_s2_args(grid, groups, x.dtype)
        slopes = np.zeros(9 * groups, x.dtype)
        depthwise_s2_weight_vjp(x.reshape(-1), g.reshape(-1), *args, parities, lines, slopes)
        return slopes.reshape(groups, 1, *grid.window)
    outs, rows = _multiple_of_four(out_channels), top + height + below
    pitch = _row_pitch(width, (left, behind), counts[1], grid.stride[1])
    lines = counts[0] + 16 // pitch + 1
    sizes = (in_channels, outs, kh, kw, top, left, grid.stride[1], rows, pitch, lines)
    room = np.zeros(in_channels * rows * pitch + 32, x.dtype)
    others = np.zeros(outs * lines * pitch, x.dtype)
    total = np.zeros((groups, outs, in_channels * kh * kw), x.dtype)
    images = x.reshape(*x.shape[:2], height, width)
    parts = g.reshape(*g.shape[:2], *counts)
    conv_rows_weight_vjp(images, parts, *map(np.uint64, sizes), room, others, total.reshape(-1))
    return total[:, :out_channels].reshape(groups * out_channels, in_channels, *grid.window)


_G = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
_WINDOW_TO_TILE = np.kron(_G, _G)  # maps the 9 elements of a window to the 16 of a tile
_TILE_MAPS = {
    char: (_WINDOW_TO_TILE.astype(char), _WINDOW_TO_TILE[:, ::-1].astype(char)) for char in "fd"
}

# The size of a block of tiles, 1 MB of float32, and the least number of tiles of a block: for the
# transpose in the weight, whose products are summed, as many as are fast to multiply.
_BLOCK = 1 << 18
_LEAST = 128
_LEAST_OF_WEIGHT = 256

# Images of up to so many columns of tiles are transformed together: so many, or as many as have so
# many tiles, if more. Transforms of 64 images of 4 by 4 take a fifth of the time then.
_NARROW = 8
_LANES, _LANE_TILES = 8, 128


class _TileGrid:
    """Tiles of 2 by 2 results of some images, or of some rows of one image."""

    def __init__(self, images: int, size: Shape, channels: int, least: int) -> None:
        height, width = size
        self.images = images
        self.rows, self.columns = (height + 1) // 2, (width + 1) // 2
        self.most = max(least, _BLOCK // (16 * max(channels, 1)))

        self.lanes = 1
        per_image = self.rows * self.columns
        if self.columns <= _NARROW and self.most >= 2 * per_image and images > 1:
            most = min(self.most // per_image, max(_LANES, _LANE_TILES // per_image))
            self.lanes = -(-images // -(-images // most))

    def blocks(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield blocks (first image, last image + 1, lanes, first row, number of rows)."""
        per_image, lanes = self.rows * self.columns, self.lanes
        if per_image <= self.most:
            step = self.most // per_image // lanes * lanes
            for first in range(0, self.images, step):
                last = min(first + step, self.images)
                even = last - (last - first) % lanes
                if even > first:
                    yield first, even, lanes, 0, self.rows
                if last > even:
                    yield even, last, last - even, 0, self.rows
            return
        step = max(1, self.most // self.columns)
        for image in range(self.images):
            for row in range(0, self.rows, step):
                yield image, image + 1, 1, row, min(step, self.rows - row)

    def tile_count(self, block: tuple[int, int, int, int, int]) -> int:
        """Return the number of tiles of a block."""
        first, last, _, _, rows = block
        return (last - first) * rows * self.columns


class _TileBuffer:
    """Memory for tiles of up to 16 * (channels * size + 8) elements."""

    def __init__(self, dtype: Any) -> None:
        self.memory = np.empty(0, dtype)

    def matrices_for(self, channels: int, size: int) -> tuple[Array, Array, Any]:
        """Return flat memory, the memory as 16 matrices, and the distance between them."""
        behind = channels * size + 8
        if self.memory.size < 16 * behind:
            self.memory = np.empty(16 * behind, self.memory.dtype)
        flat = self.memory[: 16 * behind]
        matrices = flat.reshape(16, behind)[:, : channels * size].reshape(16, channels, size)
        return flat, matrices, np.uint64(behind)


def _unsigned_block(block: tuple[int, int, int, int, int], columns: int) -> tuple[Any, ...]:
    """Return a block and the number of columns as unsigned ints."""
    return tuple(map(np.uint64, (*block, columns)))


def _line_buffers(tiles: _TileGrid, dtype: Any) -> tuple[Array, Array]:
    """Return the buffers between images and tiles: places of elements, and lines."""
    rows, columns = min(tiles.rows, tiles.most), tiles.columns
    places = np.empty(4 * (rows + 1) * (columns + 1) if tiles.lanes > 1 else 0, np.uint64)
    return places, np.empty((12 * rows + 4) * ((columns + 1) * tiles.lanes + 8) + 64, dtype)


def _tile_weight(weight: Array, flipped: bool = False) -> Array:
    """Return the 16 matrices (out, channels) of a weight (out, channels, 3, 3)."""
    out, channels = weight.shape[:2]
    flat = weight.reshape(out * channels, 9)
    return (_TILE_MAPS[weight.dtype.char][flipped] @ flat.T).reshape(16, out, channels)


def _winograd(
    x: Array, u: Array, bias: Array, pads: tuple[int, int], counts: Shape
) -> Array | None:
    """Convolve images (images, channels, height, width) with the 16 matrices of a weight.

    None if a result is not finite.
    """
    images, (_, results, channels) = len(x), u.shape
    out = np.empty((images, results, *counts), x.dtype)
    tiles = _TileGrid(images, counts, channels + results, _LEAST)
    lines, of_x, of_out = _line_buffers(tiles, x.dtype), _TileBuffer(x.dtype), _TileBuffer(x.dtype)
    edge = tuple(map(np.uint64, pads))
    for block in tiles.blocks():
        size, where = tiles.tile_count(block), _unsigned_block(block, tiles.columns)
        flat, matrices, behind = of_x.matrices_for(channels, size)
        input_transform(x, *where, *edge, behind, *lines, flat)
        products, made, behind = of_out.matrices_for(results, size)
        np.matmul(u, matrices, out=made)
        if output_transform(products, bias, *where, behind, *lines, out) != 0:
            return None
    return out


def convolve_winograd(
    x: Array, weight: Array, bias: Array | None, grid: WindowGrid
) -> Array | None:
    """Convolve by Winograd tiles, see ``im2col.convolve``; None if a result is not finite."""
    bias = np.empty(0, x.dtype) if bias is None else bias
    (top, _), (left, _) = grid.pads[1:]
    out = _winograd(x[:, :, 0], _tile_weight(weight), bias, (top, left), grid.counts[1:])
    return None if out is None else out.reshape(*out.shape[:2], *grid.counts)


def winograd_input_vjp(g: Array, weight: Array, grid: WindowGrid) -> Array | None:
    """Transpose in the images by Winograd tiles: a convolution with the flipped weight.

    None if a result is not finite.
    """
    (top, _), (left, _) = grid.pads[1:]
    u = _tile_weight(weight, flipped=True).swapaxes(1, 2)
    none = np.empty(0, g.dtype)
    out = _winograd(g[:, :, 0], u, none, (2 - top, 2 - left), grid.size[1:])
    return None if out is None else out.reshape(*out.shape[:2], *grid.size)


def winograd_weight_vjp(g: Array, x: Array, grid: WindowGrid) -> Array:
    """Transpose in the weight by Winograd tiles, see ``im2col.conv_weight_vjp``."""
    results, channels = g.shape[1], x.shape[1]
    (top, _), (left, _) = grid.pads[1:]
    tiles = _TileGrid(len(x), grid.counts[1:], channels + results, _LEAST_OF_WEIGHT)
    lines, of_x, of_g = _line_buffers(tiles, x.dtype), _TileBuffer(x.dtype), _TileBuffer(x.dtype)
    total = np.zeros((16, results, channels), x.dtype)
    images, parts, edge = x[:, :, 0], g[:, :, 0], (np.uint64(top), np.uint64(left))
    for block in tiles.blocks():
        size, where = tiles.tile_count(block), _unsigned_block(block, tiles.columns)
        flat, matrices, behind = of_x.matrices_for(channels, size)
        input_transform(images, *where, *edge, behind, *lines, flat)
        slopes, others, behind = of_g.matrices_for(results, size)
        cotangent_transform(parts, *where, behind, *lines, slopes)
        total += others @ matrices.swapaxes(1, 2)
    back = _TILE_MAPS[x.dtype.char][0].T @ total.reshape(16, results * channels)
    return np.ascontiguousarray(back.T).reshape(results, channels, *grid.window)


# Rows are faster than matrix products up to so many pairs of channels, of images and of results, in
# a group: 0.66 of the time for 6 * 16, 0.88 for 3 * 64; and from so many positions of an image on:
# 1.4 for 16, 0.6 for 64.
_FEW_PAIRS, _MANY_PLACES = 256, 36

# From so many elements on a loop adds columns in a third of the time of NumPy.
_MANY = 1 << 15


def _prefers_rows(grid: WindowGrid, in_channels: int, out_channels: int) -> bool:
    """Return whether loops over rows are the fastest convolution."""
    alone = in_channels < 4 and out_channels < 4
    few = grid.stride == (1, 1, 1) and in_channels * out_channels <= _FEW_PAIRS
    few = few and math.prod(grid.counts) >= _MANY_PLACES
    return (alone or few) and in_channels * out_channels > 0 and fits_rows(grid)


@ignore_fp_errors()
def _all_finite(x: Array) -> bool:
    """Return whether all numbers are finite; False is possible for very large ones."""
    flat = x.reshape(-1)
    return bool(np.isfinite(flat.dot(flat)))


def _col2im(image: Array, grid: WindowGrid, block: im2col.ImageBlock, columns: Array) -> None:
    """Add columns to images by a loop, bit for bit as ``im2col.col2im``."""
    if columns.size < _MANY:
        im2col.col2im(image, grid, block, columns)
        return
    channels, *size = image.shape[1:]
    images, *places = columns.shape[4:]
    windows = images, places, grid.stride, grid.dilation, block.first, block.starts(grid)
    given = map(_unsigned, (channels, size, grid.window, *windows))
    col2im_loop(columns.reshape(-1), *given, image.reshape(-1))


def _unsigned(n: Any) -> Any:
    """Return ints as unsigned ints, which the loops take."""
    return np.uint64(n) if isinstance(n, int) else tuple(map(np.uint64, n))


def convolve(x: Array, weight: Array, bias: Array | None, grid: WindowGrid, groups: int) -> Array:
    """Convolve by the fastest loops, see ``im2col.convolve``."""
    in_channels, out_channels = weight.shape[1], len(weight) // groups
    if x.dtype.char in "fd" and len(x):
        out = None
        if _prefers_rows(grid, in_channels, out_channels):
            out = convolve_rows(x, weight, bias, grid, groups)
        elif prefers_winograd(grid, len(x), in_channels, out_channels, groups):
            out = convolve_winograd(x, weight, bias, grid)
        if out is not None:
            return out
    return im2col.convolve(x, weight, bias, grid, groups)


def conv_input_vjp(g: Array, weight: Array, grid: WindowGrid, groups: int) -> Array:
    """Transpose in the images by the fastest loops, see ``im2col.conv_input_vjp``."""
    in_channels, out_channels = weight.shape[1], len(weight) // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _prefers_rows(grid, in_channels, out_channels):
            out = rows_input_vjp(g, weight, grid, groups)
        elif prefers_winograd(grid, len(g), in_channels, out_channels, groups):
            out = winograd_input_vjp(g, weight, grid)
        if out is not None:
            return out
        return im2col.conv_input_vjp(g, weight, grid, groups, _col2im)
    return im2col.conv_input_vjp(g, weight, grid, groups)


def conv_weight_vjp(g: Array, x: Array, grid: WindowGrid, groups: int) -> Array:
    """Transpose in the weight by the fastest loops, see ``im2col.conv_weight_vjp``."""
    in_channels, out_channels = x.shape[1] // groups, g.shape[1] // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _prefers_rows(grid, in_channels, out_channels):
            out = rows_weight_vjp(g, x, grid, groups)
        elif prefers_winograd(grid, len(g), in_channels, out_channels, groups):
            out = winograd_weight_vjp(g, x, grid)
        if out is not None and _all_finite(out):
            return out
    return im2col.conv_weight_vjp(g, x, grid, groups)
