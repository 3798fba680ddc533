"""Convolution by the compiled loops over shifted rows, for images with few channels in a group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels.window_each import each_slopes, each_sums
from odyssey.kernels.window_halves import halves_images, halves_slopes, halves_sums
from odyssey.kernels.window_rows import row_slopes, row_sums
from odyssey.nn.convolving import mirrored
from odyssey.nn.sliding import Slide
from odyssey.spec import Array

__all__ = [
    "convolve_by_rows",
    "fits_rows",
    "pull_image_by_rows",
    "pull_weight_by_rows",
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
