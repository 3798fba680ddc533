"""Convolution by the compiled loops over shifted rows, for images with few channels in a group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.col2im import images_of_columns
from odyssey.kernels.conv_rows import row_slopes, row_sums
from odyssey.kernels.depthwise3x3_s1 import each_slopes, each_sums
from odyssey.kernels.depthwise3x3_s2 import halves_images, halves_slopes, halves_sums
from odyssey.kernels.winograd2x2_3x3 import images_of_tiles, slopes_of_tiles, tiles_of_images
from odyssey.nn.convolution import im2col
from odyssey.nn.convolution.im2col import mirrored
from odyssey.nn.sliding_windows import Slide, has_many_tiles
from odyssey.spec import Array, Shape

__all__ = [
    "convolve",
    "convolve_by_rows",
    "convolve_by_tiles",
    "fits_rows",
    "pull_image",
    "pull_image_by_rows",
    "pull_image_by_tiles",
    "pull_weight",
    "pull_weight_by_rows",
    "pull_weight_by_tiles",
]


# Images of so many elements, with what is computed of them, stay in the first cache.
_SMALL = 1 << 12


def fits_rows(slide: Slide) -> bool:
    """Whether the loops know windows that stand so, over three axes."""
    _, down, across = slide.stride
    flat = slide.size[0] == slide.window[0] == slide.counts[0] == 1
    near = all(d == 1 or k == 1 for d, k in zip(slide.dilation, slide.window, strict=True))
    return flat and near and down == across and slide.window[2] in (3, 5)


def _outs(results: int) -> int:
    """Channels of the result as the loops take them, three or four at a time."""
    return results if results < 3 else min(-(-results // 3) * 3, -(-results // 4) * 4)


def _fours(results: int) -> int:
    """The same, four at a time."""
    return results if results < 4 else -(-results // 4) * 4


def _filled(weight: Array, groups: int) -> Array:
    """A weight in groups of so many channels, flat."""
    each = len(weight) // groups
    full = weight.reshape(groups, each, -1)
    if _outs(each) != each:
        wide = np.zeros((groups, _outs(each), full.shape[2]), weight.dtype)
        wide[:, :each] = full
        full = wide
    return full.reshape(-1)


def _fits_each(slide: Slide, part: int, each: int) -> bool:
    """Whether small images are best read as they lie, each channel by itself."""
    alone = part == each == 1 and slide.window == (1, 3, 3) and slide.stride == (1, 1, 1)
    edges = slide.pads[1:] == ((1, 1), (1, 1))
    return alone and edges and math.prod(slide.size) <= _SMALL


def _fits_halves(slide: Slide, part: int, each: int) -> bool:
    """Whether windows that stand two apart read each channel by itself."""
    alone = part == each == 1 and slide.window == (1, 3, 3) and slide.stride[1:] == (2, 2)
    return alone and math.prod(slide.size) * math.prod(slide.counts) > 0


def _of_halves(slide: Slide, channels: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """What all loops over halves are told of a call; and room for the parts, and for lines."""
    (_, height, width), ((top, _), (left, _)) = slide.counts, slide.pads[1:]
    sizes = tuple(map(np.uint64, slide.size[1:])), (np.uint64(height), np.uint64(width))
    parts = np.zeros(4 * ((height + 1) * (width + 1) + 16), dtype)
    lines = np.zeros((height + 2) * (width + 1) + 17, dtype)
    return (np.uint64(channels), sizes, np.uint64(top), np.uint64(left)), parts, lines


def _room(slide: Slide, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """The width of images, where their lines begin and end, and room for one of them."""
    _, height, width = slide.size
    left, right = np.ones((2, height, width), dtype)
    left[:, 0] = right[:, -1] = 0
    room = np.zeros((height + 2) * width + 2, dtype)
    return np.uint64(width), left.reshape(-1), right.reshape(-1), room


def _pitch(width: int, pads: tuple[int, int], count: int, stride: int) -> int:
    """How long lines are laid out: what is behind one is before the next as well."""
    return max(width + max(pads), (count - 1) * stride + 1)


def _sums(
    x: Array, weight: Array, bias: Array, groups: int, spread: int, slide: Slide
) -> Array | None:
    """Sums of windows of images whose elements are ``spread`` apart; None if one is not finite."""
    (height, width), (kh, kw), counts = x.shape[-2:], slide.window[1:], slide.counts[1:]
    (top, below), (left, behind) = slide.pads[1:]
    stride, each, part = slide.stride[1], len(weight) // groups, weight.shape[1]
    if spread == 1 and _fits_each(slide, part, each):
        out, flat = np.empty(x.shape, x.dtype), weight.reshape(-1)
        given = bias, np.uint64(groups), *_room(slide, x.dtype)
        found = each_sums(x.reshape(-1), flat, *given, out.reshape(-1))
        return out if found == 0 else None
    rows = top + (height - 1) * spread + 1 + below
    pitch = _pitch((width - 1) * spread + 1, (left, behind), counts[1], stride)
    out = np.empty((len(x), groups, each, *counts), x.dtype)
    sizes = (part, _outs(each), kh, kw, top, left, spread, spread, stride, rows, pitch)
    room = np.zeros(part * rows * pitch + 32, x.dtype)
    sums = np.zeros(4 * (counts[0] * pitch + 16), x.dtype)
    images = x.reshape(*x.shape[:2], height, width)
    where = map(np.uint64, sizes)
    found = row_sums(images, _filled(weight, groups), bias, *where, room, sums, out)
    return out.reshape(len(x), len(weight), *slide.counts) if found == 0 else None


def convolve_by_rows(
    x: Array, weight: Array, bias: Array | None, slide: Slide, groups: int
) -> Array | None:
    """See ``convolving.convolve``; None where a result is not finite."""
    bias = np.empty(0, x.dtype) if bias is None else bias
    if _fits_halves(slide, weight.shape[1], len(weight) // groups):
        told, parts, lines = _of_halves(slide, groups, x.dtype)
        out = np.empty((len(x), groups, *slide.counts), x.dtype)
        given = x.reshape(-1), weight.reshape(-1), bias, *told, parts, lines
        return out if halves_sums(*given, out.reshape(-1)) == 0 else None
    return _sums(x, weight, bias, groups, 1, slide)


def pull_image_by_rows(g: Array, weight: Array, slide: Slide, groups: int) -> Array | None:
    """See ``convolving.pull_image``: a convolution of ``g`` with the weight mirrored.

    None where a result is not finite, and where images are padded by more than a window.
    """
    if _fits_halves(slide, weight.shape[1], len(weight) // groups):
        told, parts, lines = _of_halves(slide, groups, g.dtype)
        out = np.zeros((len(g), groups, *slide.size), g.dtype)
        given = g.reshape(-1), weight.reshape(-1), *told, lines, parts
        return out if halves_images(*given, out.reshape(-1)) == 0 else None
    back = slide.back()
    if back is None:
        return None
    turned = mirrored(weight, groups)
    return _sums(g, turned, np.empty(0, g.dtype), groups, slide.stride[1], back)


def pull_weight_by_rows(g: Array, x: Array, slide: Slide, groups: int) -> Array:
    """See ``convolving.pull_weight``."""
    (height, width), (kh, kw), counts = x.shape[-2:], slide.window[1:], slide.counts[1:]
    (top, below), (left, behind) = slide.pads[1:]
    each, part = g.shape[1] // groups, x.shape[1] // groups
    if _fits_each(slide, part, each):
        slopes = np.zeros(9 * groups, x.dtype)
        given = np.uint64(groups), *_room(slide, x.dtype)
        each_slopes(x.reshape(-1), g.reshape(-1), *given, slopes)
        return slopes.reshape(groups, 1, *slide.window)
    if _fits_halves(slide, part, each):
        told, halves, lines = _of_halves(slide, groups, x.dtype)
        slopes = np.zeros(9 * groups, x.dtype)
        halves_slopes(x.reshape(-1), g.reshape(-1), *told, halves, lines, slopes)
        return slopes.reshape(groups, 1, *slide.window)
    outs, rows = _fours(each), top + height + below
    pitch = _pitch(width, (left, behind), counts[1], slide.stride[1])
    lines = counts[0] + 16 // pitch + 1
    sizes = (part, outs, kh, kw, top, left, slide.stride[1], rows, pitch, lines)
    room = np.zeros(part * rows * pitch + 32, x.dtype)
    others = np.zeros(outs * lines * pitch, x.dtype)
    total = np.zeros((groups, outs, part * kh * kw), x.dtype)
    images = x.reshape(*x.shape[:2], height, width)
    parts = g.reshape(*g.shape[:2], *counts)
    row_slopes(images, parts, *map(np.uint64, sizes), room, others, total.reshape(-1))
    return total[:, :each].reshape(groups * each, part, *slide.window)


_G = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
_WINDOWS = np.kron(_G, _G)  # from the 9 elements of a window to the 16 of a tile

# Tiles of so many elements, 1 MB of float32, and so many at least, are taken at a time; for the
# weight, whose products are added up, as many as are fast to multiply.
_BLOCK = 1 << 18
_LEAST = 128
_LEAST_OF_WEIGHT = 256


class _Tiles:
    """Some images, or some rows of tiles of one."""

    def __init__(self, images: int, size: Shape, channels: int, least: int) -> None:
        height, width = size
        self.images = images
        self.rows, self.columns = (height + 1) // 2, (width + 1) // 2
        self.most = max(least, _BLOCK // (16 * max(channels, 1)))

    def blocks(self) -> Iterator[tuple[int, int, int, int]]:
        """The first image and the one behind the last, the first row and how many rows."""
        per_image = self.rows * self.columns
        if per_image <= self.most:
            step = self.most // per_image
            for first in range(0, self.images, step):
                yield first, min(first + step, self.images), 0, self.rows
            return
        step = max(1, self.most // self.columns)
        for image in range(self.images):
            for row in range(0, self.rows, step):
                yield image, image + 1, row, min(step, self.rows - row)

    def size(self, block: tuple[int, int, int, int]) -> int:
        """How many tiles a block has."""
        first, last, _, rows = block
        return (last - first) * rows * self.columns


class _Room:
    """Memory for tiles of up to 16 * (channels * size + 8) elements."""

    def __init__(self, dtype: Any) -> None:
        self.memory = np.empty(0, dtype)

    def of(self, channels: int, size: int) -> tuple[Array, Array, Any]:
        """Flat memory, the same as 16 matrices, and how far one of them is from the next."""
        behind = channels * size + 8
        if self.memory.size < 16 * behind:
            self.memory = np.empty(16 * behind, self.memory.dtype)
        flat = self.memory[: 16 * behind]
        matrices = flat.reshape(16, behind)[:, : channels * size].reshape(16, channels, size)
        return flat, matrices, np.uint64(behind)


def _numbers(block: tuple[int, int, int, int], columns: int) -> tuple[Any, ...]:
    return tuple(map(np.uint64, (*block, columns)))


def _lines(tiles: _Tiles, dtype: Any) -> Array:
    """Room for what is between images and tiles."""
    rows, columns = min(tiles.rows, tiles.most), tiles.columns
    return np.empty((12 * rows + 4) * (columns + 1) + 64, dtype)


def _products(weight: Array, windows: Array = _WINDOWS) -> Array:
    """The 16 matrices (out, channels) of a weight (out, channels, 3, 3)."""
    out, channels = weight.shape[:2]
    flat = weight.reshape(out * channels, 9)
    return (windows.astype(weight.dtype) @ flat.T).reshape(16, out, channels)


def _convolved(
    x: Array, u: Array, bias: Array, pads: tuple[int, int], counts: Shape
) -> Array | None:
    """Convolve images (images, channels, height, width) with a weight's 16 matrices.

    None where a result is not finite.
    """
    images, (_, results, channels) = len(x), u.shape
    out = np.empty((images, results, *counts), x.dtype)
    tiles = _Tiles(images, counts, channels + results, _LEAST)
    lines, of_x, of_out = _lines(tiles, x.dtype), _Room(x.dtype), _Room(x.dtype)
    edge = tuple(map(np.uint64, pads))
    for block in tiles.blocks():
        size, where = tiles.size(block), _numbers(block, tiles.columns)
        flat, matrices, behind = of_x.of(channels, size)
        tiles_of_images(x, *where, *edge, behind, lines, flat)
        products, made, behind = of_out.of(results, size)
        np.matmul(u, matrices, out=made)
        if images_of_tiles(products, bias, *where, behind, lines, out) != 0:
            return None
    return out


def convolve_by_tiles(x: Array, weight: Array, bias: Array | None, slide: Slide) -> Array | None:
    """See ``convolving.convolve``; None where a result is not finite."""
    bias = np.empty(0, x.dtype) if bias is None else bias
    (top, _), (left, _) = slide.pads[1:]
    out = _convolved(x[:, :, 0], _products(weight), bias, (top, left), slide.counts[1:])
    return None if out is None else out.reshape(*out.shape[:2], *slide.counts)


def pull_image_by_tiles(g: Array, weight: Array, slide: Slide) -> Array | None:
    """See ``convolving.pull_image``: a convolution of ``g`` with the weight mirrored.

    None where a result is not finite.
    """
    (top, _), (left, _) = slide.pads[1:]
    u = _products(weight, _WINDOWS[:, ::-1]).swapaxes(1, 2)
    none = np.empty(0, g.dtype)
    out = _convolved(g[:, :, 0], u, none, (2 - top, 2 - left), slide.size[1:])
    return None if out is None else out.reshape(*out.shape[:2], *slide.size)


def pull_weight_by_tiles(g: Array, x: Array, slide: Slide) -> Array:
    """See ``convolving.pull_weight``."""
    results, channels = g.shape[1], x.shape[1]
    (top, _), (left, _) = slide.pads[1:]
    tiles = _Tiles(len(x), slide.counts[1:], channels + results, _LEAST_OF_WEIGHT)
    lines, of_x, of_g = _lines(tiles, x.dtype), _Room(x.dtype), _Room(x.dtype)
    total = np.zeros((16, results, channels), x.dtype)
    images, parts, edge = x[:, :, 0], g[:, :, 0], (np.uint64(top), np.uint64(left))
    for block in tiles.blocks():
        size, where = tiles.size(block), _numbers(block, tiles.columns)
        flat, matrices, behind = of_x.of(channels, size)
        tiles_of_images(images, *where, *edge, behind, lines, flat)
        slopes, others, behind = of_g.of(results, size)
        slopes_of_tiles(parts, *where, behind, lines, slopes)
        total += others @ matrices.swapaxes(1, 2)
    back = _WINDOWS.T.astype(x.dtype) @ total.reshape(16, results * channels)
    return np.ascontiguousarray(back.T).reshape(results, channels, *slide.window)


# Products of channels in a group with those of its result up to which rows take less time than
# matrices: measured 0.66 of it for 6 * 16, 0.88 for 3 * 64; and from so many places of an image on:
# measured 1.4 for 16, 0.6 for 64.
_FEW_PAIRS, _MANY_PLACES = 256, 36

# Columns of so many elements a loop adds up in a third of the time of NumPy.
_MANY = 1 << 15


def _by_rows(slide: Slide, part: int, each: int) -> bool:
    alone = part < 4 and each < 4
    few = slide.stride == (1, 1, 1) and part * each <= _FEW_PAIRS
    few = few and math.prod(slide.counts) >= _MANY_PLACES
    return (alone or few) and part * each > 0 and fits_rows(slide)


@ignore_fp_errors()
def _finite(x: Array) -> bool:
    """Whether all numbers are finite; it may say no where they are very large."""
    flat = x.reshape(-1)
    return bool(np.isfinite(flat.dot(flat)))


def _add_columns(image: Array, slide: Slide, block: im2col.Block, columns: Array) -> None:
    """See ``convolving.add_columns``: the same bits."""
    if columns.size < _MANY:
        im2col.add_columns(image, slide, block, columns)
        return
    channels, *size = image.shape[1:]
    images, *places = columns.shape[4:]
    windows = images, places, slide.stride, slide.dilation, block.first, block.starts(slide)
    given = map(_unsigned, (channels, size, slide.window, *windows))
    images_of_columns(columns.reshape(-1), *given, image.reshape(-1))


def _unsigned(n: Any) -> Any:
    return np.uint64(n) if isinstance(n, int) else tuple(map(np.uint64, n))


def convolve(x: Array, weight: Array, bias: Array | None, slide: Slide, groups: int) -> Array:
    """See ``convolving.convolve``."""
    part, each = weight.shape[1], len(weight) // groups
    if x.dtype.char in "fd" and len(x):
        out = None
        if _by_rows(slide, part, each):
            out = convolve_by_rows(x, weight, bias, slide, groups)
        elif has_many_tiles(slide, len(x), part, each, groups):
            out = convolve_by_tiles(x, weight, bias, slide)
        if out is not None:
            return out
    return im2col.convolve(x, weight, bias, slide, groups)


def pull_image(g: Array, weight: Array, slide: Slide, groups: int) -> Array:
    """See ``convolving.pull_image``."""
    part, each = weight.shape[1], len(weight) // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _by_rows(slide, part, each):
            out = pull_image_by_rows(g, weight, slide, groups)
        elif has_many_tiles(slide, len(g), part, each, groups):
            out = pull_image_by_tiles(g, weight, slide)
        if out is not None:
            return out
        return im2col.pull_image(g, weight, slide, groups, _add_columns)
    return im2col.pull_image(g, weight, slide, groups)


def pull_weight(g: Array, x: Array, slide: Slide, groups: int) -> Array:
    """See ``convolving.pull_weight``."""
    part, each = x.shape[1] // groups, g.shape[1] // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _by_rows(slide, part, each):
            out = pull_weight_by_rows(g, x, slide, groups)
        elif has_many_tiles(slide, len(g), part, each, groups):
            out = pull_weight_by_tiles(g, x, slide)
        if out is not None and _finite(out):
            return out
    return im2col.pull_weight(g, x, slide, groups)
