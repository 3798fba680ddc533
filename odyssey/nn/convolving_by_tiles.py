"""Convolution by tiles of 2 by 2 results, see ``odyssey.kernels.window_tiles``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from odyssey.kernels.window_tiles import images_of_tiles, slopes_of_tiles, tiles_of_images
from odyssey.nn.sliding import Slide
from odyssey.spec import Array, Shape

__all__ = ["convolve_by_tiles", "pull_image_by_tiles", "pull_weight_by_tiles"]

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
