"""Pooling over windows of images, and the way back: one window after another."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = [
    "in_fours",
    "largest",
    "largest_of_four",
    "mean_of_four",
    "takes",
    "to_fours",
    "to_largest",
    "to_largest_of_four",
]


@loop
def _larger(v, u):  # type: ignore[no-untyped-def]
    """The larger of two numbers; NaN where one is."""
    return v if (v > u) | (v != v) else u


@loop
def _four_largest(x, out):  # type: ignore[no-untyped-def]
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                upper = _larger(x[n, i, 0, j, 0], x[n, i, 0, j, 1])
                lower = _larger(x[n, i, 1, j, 0], x[n, i, 1, j, 1])
                out[n, i, j] = _larger(upper, lower)


@loop
def _largest(x, window, stride, padding, dilation, rows, out_row, out):  # type: ignore[no-untyped-def]
    """A row of windows at a time: the largest of each column, and then of these.

    ``rows``: where windows begin, and how many rows of the image they have there.
    """
    width, places = x.shape[2], window[1]
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            out_row[:] = -np.inf
            inside, peak = out_row[padding[1] : padding[1] + width], out[n, i]
            for a in range(rows[i, 1]):
                line = x[n, rows[i, 0] + a * dilation[0]]
                for c in range(width):
                    inside[c] = _larger(inside[c], line[c])
            for b in range(places):
                part = out_row[b * dilation[1] :]
                for j in range(peak.size):
                    v = part[j * stride[1]]
                    peak[j] = v if b == 0 else _larger(peak[j], v)


@loop
def _four_back(g, x, out):  # type: ignore[no-untyped-def]
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                a, b = x[n, i, 0, j, 0], x[n, i, 0, j, 1]
                c, d = x[n, i, 1, j, 0], x[n, i, 1, j, 1]
                m = _larger(_larger(a, b), _larger(c, d))
                # Without a branch, which would keep it from taking several windows at once. A
                # number that is NaN is a largest one.
                p, q = (a == m) | (a != a), (b == m) | (b != b)
                r, s = (c == m) | (c != c), (d == m) | (d != d)
                count = (one if p else zero) + (one if q else zero)
                count += (one if r else zero) + (one if s else zero)
                share = g[n, i, j] / count
                out[n, i, 0, j, 0] = share if p else zero
                out[n, i, 0, j, 1] = share if q else zero
                out[n, i, 1, j, 0] = share if r else zero
                out[n, i, 1, j, 1] = share if s else zero


@loop
def _back(g, x, peak, width, rows, columns, dh, dw, out):  # type: ignore[no-untyped-def]
    """``rows`` and ``columns``: where windows begin, and how many places they have there."""
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                first = rows[i, 0] * width + columns[j, 0]
                high, wide = rows[i, 1], columns[j, 1]
                m, count, where = peak[n, i, j], 0, first
                for a in range(high):
                    for b in range(wide):
                        at = first + a * dh * width + b * dw
                        v = x[n, at]
                        hit = (v == m) | (v != v)
                        count += hit
                        where = at if hit else where
                share = g[n, i, j] / x.dtype.type(count)
                if count == 1:
                    out[n, where] += share
                    continue
                for a in range(high):
                    for b in range(wide):
                        at = first + a * dh * width + b * dw
                        if (x[n, at] == m) | (x[n, at] != x[n, at]):
                            out[n, at] += share


@loop
def _four_means(x, out):  # type: ignore[no-untyped-def]
    quarter = x.dtype.type(0.25)
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                # Columns first, as NumPy's kernel adds them.
                upper = x[n, i, 0, j, 0] + x[n, i, 0, j, 1]
                lower = x[n, i, 1, j, 0] + x[n, i, 1, j, 1]
                out[n, i, j] = (upper + lower) * quarter


@loop
def _four_spread(g, out):  # type: ignore[no-untyped-def]
    quarter = g.dtype.type(0.25)
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for a in range(2):
                for j in range(g.shape[2]):
                    share = g[n, i, j] * quarter
                    out[n, i, a, j, 0] = share
                    out[n, i, a, j, 1] = share


@lru_cache(maxsize=128)
def _ranges(length: int, window: int, stride: int, padding: int, dilation: int) -> Array:
    """For each window over an axis its first element, and how many it has, without padding."""
    count = (length + 2 * padding - (window - 1) * dilation - 1) // stride + 1
    starts = np.arange(count) * stride - padding
    skipped = np.maximum(-(starts // dilation), 0)
    ends = np.minimum((length - 1 - starts) // dilation + 1, window)
    return np.stack([starts + skipped * dilation, ends - skipped], axis=1)


def takes(x: Spec, window: Shape) -> bool:
    """Whether a loop runs a call: on single or double precision, over one or two axes."""
    return x.dtype.char in "fd" and len(window) <= min(x.ndim, 2) and x.size > 0


def in_fours(
    x: Spec, window: Shape, stride: Shape, padding: Shape, dilation: Shape = (1, 1), *others: Any
) -> bool:
    """Whether the windows are 2 by 2, side by side, and cover all."""
    side_by_side = window == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1)
    return side_by_side and takes(x, window) and x.shape[-1] % 2 == x.shape[-2] % 2 == 0


def _fours(x: Array) -> Array:
    return x.reshape(-1, x.shape[-2] // 2, 2, x.shape[-1] // 2, 2)


def _images(x: Array, dims: int) -> Array:
    """As images, those of one spatial axis of height 1."""
    return x.reshape(-1, x.shape[-2] if dims == 2 else 1, x.shape[-1])


def _of_two(options: tuple[Shape, ...]) -> Any:
    """Options for two spatial axes, of which there may be one."""
    if len(options[0]) == 2:
        return options
    return [(n, *o) for n, o in zip((1, 1, 0, 1), options, strict=True)]


def _quarter(x: Array) -> Array:
    return np.empty((*x.shape[:-2], x.shape[-2] // 2, x.shape[-1] // 2), x.dtype)


def largest_of_four(x: Array, *options: Shape) -> Array:
    """The largest element of each window of four."""
    out = _quarter(x)
    _four_largest(_fours(x), _images(out, 2))
    return out


def largest(x: Array, shape: Shape, *options: Shape) -> Array:
    """The largest element of each window, in an array of ``shape``."""
    dims = len(options[0])
    window, stride, padding, dilation = _of_two(options)
    images, out = _images(x, dims), np.empty(shape, x.dtype)
    rows = _ranges(images.shape[1], window[0], stride[0], padding[0], dilation[0])
    row = np.empty(images.shape[2] + 2 * padding[1], x.dtype)
    _largest(images, window, stride, padding, dilation, rows, row, _images(out, dims))
    return out


def mean_of_four(x: Array, *options: Any) -> Array:
    """The mean of each window of four."""
    out = _quarter(x)
    _four_means(_fours(x), _images(out, 2))
    return out


def to_fours(g: Array, spec: Spec) -> Array:
    """Each ``g`` spread evenly over its window of four."""
    out = np.empty(spec.shape, g.dtype)
    _four_spread(_images(g, 2), _fours(out))
    return out


def to_largest_of_four(g: Array, x: Array) -> Array:
    """Each ``g`` shared evenly by the elements that are the largest of its window of four."""
    out = np.empty(x.shape, x.dtype)
    _four_back(_images(g, 2), _fours(x), _fours(out))
    return out


def to_largest(g: Array, x: Array, peak: Array, *options: Shape) -> Array:
    """The same for any windows, whose largest elements are ``peak``."""
    dims = len(options[0])
    two = _of_two(options)
    images, out = _images(x, dims), np.zeros(x.shape, x.dtype)
    flat, width = (len(images), images[0].size), images.shape[2]
    rows, columns = itertools.starmap(_ranges, zip(images.shape[1:], *two, strict=True))
    given, peaks = _images(g, dims), _images(peak, dims)
    _back(given, x.reshape(flat), peaks, width, rows, columns, *two[3], out.reshape(flat))
    return out
