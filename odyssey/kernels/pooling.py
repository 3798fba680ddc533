"""Pooling: max and average pooling of images, and their pullbacks, on the CPU and on the GPU.

A thread of the GPU computes one window, or, in a pullback, adds the shares of all windows that hold
one element, in their order: no atomics, so equal inputs give equal bits.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels import cuda as device
from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = [
    "cuda_max_pool",
    "cuda_max_pullback",
    "cuda_mean_pool",
    "cuda_mean_pullback",
    "fits_cuda_pool",
    "fits_2x2",
    "fits_loop",
    "max_pool_2x2",
    "max_pool_loop",
    "max_pullback_2x2",
    "max_pullback_loop",
    "mean_pool_2x2",
    "spread_2x2",
]

# Free names of the GPU kernels, to which ``bind_kernel`` gives their values.
cuda: Any = None
T: Any = None
C: Any = None
LARGEST = False


@loop
def _nan_max(v, u):  # type: ignore[no-untyped-def]
    """Return the larger of two numbers; NaN if one is NaN."""
    return v if (v > u) | (v != v) else u


@loop
def _max_2x2(x, out):  # type: ignore[no-untyped-def]
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                upper = _nan_max(x[n, i, 0, j, 0], x[n, i, 0, j, 1])
                lower = _nan_max(x[n, i, 1, j, 0], x[n, i, 1, j, 1])
                out[n, i, j] = _nan_max(upper, lower)


@loop
def _max_rows(x, window, stride, padding, dilation, rows, out_row, out):  # type: ignore[no-untyped-def]
    """Max pooling of a row of windows at a time: the maximum of each column, then of the columns.

    ``rows``: the first row of each window, and the number of its rows in the image.
    """
    width, window_width = x.shape[2], window[1]
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            out_row[:] = -np.inf
            inside, peak = out_row[padding[1] : padding[1] + width], out[n, i]
            for a in range(rows[i, 1]):
                line = x[n, rows[i, 0] + a * dilation[0]]
                for c in range(width):
                    inside[c] = _nan_max(inside[c], line[c])
            for b in range(window_width):
                shifted = out_row[b * dilation[1] :]
                for j in range(peak.size):
                    v = shifted[j * stride[1]]
                    peak[j] = v if b == 0 else _nan_max(peak[j], v)


@loop
def _max_pullback_2x2(g, x, out):  # type: ignore[no-untyped-def]
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                a, b = x[n, i, 0, j, 0], x[n, i, 0, j, 1]
                c, d = x[n, i, 1, j, 0], x[n, i, 1, j, 1]
                m = _nan_max(_nan_max(a, b), _nan_max(c, d))
                # No branch, so that the loop vectorizes. NaN counts as a maximum.
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
def _max_pullback(g, x, peak, width, rows, columns, dh, dw, out):  # type: ignore[no-untyped-def]
    """Add the shares of cotangents; ``rows``, ``columns``: start and length of each window."""
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for j in range(g.shape[2]):
                first = rows[i, 0] * width + columns[j, 0]
                high, wide = rows[i, 1], columns[j, 1]
                m, count, position = peak[n, i, j], 0, first
                for a in range(high):
                    for b in range(wide):
                        at = first + a * dh * width + b * dw
                        v = x[n, at]
                        hit = (v == m) | (v != v)
                        count += hit
                        position = at if hit else position
                share = g[n, i, j] / x.dtype.type(count)
                if count == 1:
                    out[n, position] += share
                    continue
                for a in range(high):
                    for b in range(wide):
                        at = first + a * dh * width + b * dw
                        if (x[n, at] == m) | (x[n, at] != x[n, at]):
                            out[n, at] += share


@loop
def _mean_2x2(x, out):  # type: ignore[no-untyped-def]
    quarter = x.dtype.type(0.25)
    for n in range(out.shape[0]):
        for i in range(out.shape[1]):
            for j in range(out.shape[2]):
                # In the order of NumPy's kernel: along columns first.
                upper = x[n, i, 0, j, 0] + x[n, i, 0, j, 1]
                lower = x[n, i, 1, j, 0] + x[n, i, 1, j, 1]
                out[n, i, j] = (upper + lower) * quarter


@loop
def _spread_2x2(g, out):  # type: ignore[no-untyped-def]
    quarter = g.dtype.type(0.25)
    for n in range(g.shape[0]):
        for i in range(g.shape[1]):
            for a in range(2):
                for j in range(g.shape[2]):
                    share = g[n, i, j] * quarter
                    out[n, i, a, j, 0] = share
                    out[n, i, a, j, 1] = share


@lru_cache(maxsize=128)
def _window_ranges(length: int, window: int, stride: int, padding: int, dilation: int) -> Array:
    """Return for each window over an axis its first element and its length, without padding."""
    count = (length + 2 * padding - (window - 1) * dilation - 1) // stride + 1
    starts = np.arange(count) * stride - padding
    skipped = np.maximum(-(starts // dilation), 0)
    ends = np.minimum((length - 1 - starts) // dilation + 1, window)
    return np.stack([starts + skipped * dilation, ends - skipped], axis=1)


def fits_loop(x: Spec, window: Shape) -> bool:
    """Return whether the loops take a call: single or double precision, one or two spatial axes."""
    return x.dtype.char in "fd" and len(window) <= min(x.ndim, 2) and x.size > 0


def fits_2x2(
    x: Spec, window: Shape, stride: Shape, padding: Shape, dilation: Shape = (1, 1), *others: Any
) -> bool:
    """Return whether windows are 2 by 2, do not overlap, and cover the image."""
    side_by_side = window == stride == (2, 2) and padding == (0, 0) and dilation == (1, 1)
    return side_by_side and fits_loop(x, window) and x.shape[-1] % 2 == x.shape[-2] % 2 == 0


def _as_2x2(x: Array) -> Array:
    return x.reshape(-1, x.shape[-2] // 2, 2, x.shape[-1] // 2, 2)


def _as_images(x: Array, dims: int) -> Array:
    """Reshape to images; those of one spatial axis get height 1."""
    return x.reshape(-1, x.shape[-2] if dims == 2 else 1, x.shape[-1])


def _two_axes(options: tuple[Shape, ...]) -> Any:
    """Return options for two spatial axes, from those for one or two."""
    if len(options[0]) == 2:
        return options
    return [(n, *o) for n, o in zip((1, 1, 0, 1), options, strict=True)]


def _empty_half_size(x: Array) -> Array:
    return np.empty((*x.shape[:-2], x.shape[-2] // 2, x.shape[-1] // 2), x.dtype)


def max_pool_2x2(x: Array, *options: Shape) -> Array:
    """Return the largest element of each 2 by 2 block."""
    out = _empty_half_size(x)
    _max_2x2(_as_2x2(x), _as_images(out, 2))
    return out


def max_pool_loop(x: Array, shape: Shape, *options: Shape) -> Array:
    """Return the largest element of each window, in an array of ``shape``."""
    dims = len(options[0])
    window, stride, padding, dilation = _two_axes(options)
    images, out = _as_images(x, dims), np.empty(shape, x.dtype)
    rows = _window_ranges(images.shape[1], window[0], stride[0], padding[0], dilation[0])
    row = np.empty(images.shape[2] + 2 * padding[1], x.dtype)
    _max_rows(images, window, stride, padding, dilation, rows, row, _as_images(out, dims))
    return out


def mean_pool_2x2(x: Array, *options: Any) -> Array:
    """Return the mean of each 2 by 2 block."""
    out = _empty_half_size(x)
    _mean_2x2(_as_2x2(x), _as_images(out, 2))
    return out


def spread_2x2(g: Array, spec: Spec) -> Array:
    """Spread each ``g`` evenly over its 2 by 2 block."""
    out = np.empty(spec.shape, g.dtype)
    _spread_2x2(_as_images(g, 2), _as_2x2(out))
    return out


def max_pullback_2x2(g: Array, x: Array) -> Array:
    """Share each ``g`` evenly among the largest elements of its 2 by 2 block."""
    out = np.empty(x.shape, x.dtype)
    _max_pullback_2x2(_as_images(g, 2), _as_2x2(x), _as_2x2(out))
    return out


def max_pullback_loop(g: Array, x: Array, peak: Array, *options: Shape) -> Array:
    """Share each ``g`` evenly among the largest elements of its window, which are ``peak``."""
    dims = len(options[0])
    two_axes = _two_axes(options)
    images, out = _as_images(x, dims), np.zeros(x.shape, x.dtype)
    flat, width = (len(images), images[0].size), images.shape[2]
    rows, columns = itertools.starmap(_window_ranges, zip(images.shape[1:], *two_axes, strict=True))
    cotangents, peaks = _as_images(g, dims), _as_images(peak, dims)
    _max_pullback(
        cotangents, x.reshape(flat), peaks, width, rows, columns, *two_axes[3], out.reshape(flat)
    )
    return out


# ------------------------------------------------------------------ GPU kernels


# LARGEST: whether a window gives its maximum, else its mean. ``sizes``: height and width of images,
# rows and columns of windows; ``options``: window, stride, padding and dilation, each along both
# axes. ``counts``: how many elements of a window have its maximum; ``divisors``: for each window of
# an image.


def _cuda_windows(
    x: Any, divisors: Any, out: Any, out_counts: Any, sizes: Any, options: Any
) -> None:
    """Write the maximum of each window, and how many elements have it; or its mean."""
    height, width, down, across = sizes
    window_h, window_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w = options
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        top = (i // across) % down * stride_h - padding_h
        left = i % across * stride_w - padding_w
        start = i // (across * down) * height * width
        total = C(-math.inf) if LARGEST else C(0)
        count = 0
        for a in range(window_h):
            row = top + a * dilation_h
            for b in range(window_w):
                column = left + b * dilation_w
                if 0 <= row < height and 0 <= column < width:
                    value = C(x[start + row * width + column])
                    if LARGEST:
                        # NaN is the largest number, and all NaNs count as equal.
                        if value > total or (value != value and total == total):
                            total = value
                            count = 1
                        elif value == total or value != value:
                            count += 1
                    else:
                        total += value
        if LARGEST:
            out_counts[i] = count
        else:
            total /= C(divisors[i % (down * across)])
        out[i] = T(total)


def _cuda_shares(
    g: Any, x: Any, peaks: Any, counts: Any, divisors: Any, out: Any, sizes: Any, options: Any
) -> None:
    """Add for each element the shares of the windows that hold it, or whose maximum it is."""
    height, width, down, across = sizes
    window_h, window_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w = options
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        row = (i // width) % height + padding_h
        column = i % width + padding_w
        start = i // (width * height) * down * across
        value = C(x[i]) if LARGEST else C(0)
        total = C(0)
        for a in range(window_h - 1, -1, -1):  # so that windows come in their order
            y = row - a * dilation_h
            if y >= 0 and y % stride_h == 0 and y // stride_h < down:
                for b in range(window_w - 1, -1, -1):
                    z = column - b * dilation_w
                    if z >= 0 and z % stride_w == 0 and z // stride_w < across:
                        k = y // stride_h * across + z // stride_w
                        if LARGEST:
                            if value == C(peaks[start + k]) or value != value:
                                total += C(g[start + k]) / C(counts[start + k])
                        else:
                            total += C(g[start + k]) / C(divisors[k])
        out[i] = T(total)


@lru_cache(maxsize=16)
def _cuda_kernel(kernel: Any, dtype: np.dtype[Any], largest: bool) -> Any:
    return device.build(device.bind_kernel(kernel, dtype, LARGEST=largest))


def fits_cuda_pool(x: Spec, window: Shape) -> bool:
    """Return whether the GPU kernels take a call: floating images of one or two spatial axes."""
    return x.dtype.char in "efd" and len(window) <= min(x.ndim, 2) and x.size > 0


def _launch_pool(
    kernel: Any,
    largest: bool,
    inputs: list[Any],
    outs: Any,
    shape: Shape,
    pooled: Shape,
    options: Any,
) -> None:
    """Launch a kernel with a thread for each element of its first output."""
    high, down = (shape[-2], pooled[-2]) if len(options[0]) == 2 else (1, 1)
    sizes = (high, shape[-1], down, pooled[-1])
    numbers = tuple([n for pair in _two_axes(options) for n in pair])
    first = outs[0] if type(outs) is tuple else outs
    blocks = -(-first.size // device.threads_per_block())
    built = _cuda_kernel(kernel, first.dtype, largest)
    device.launch(built, blocks, list(map(device.contiguous, inputs)), outs, (sizes, numbers))


def _cuda_peaks(x: Any, pooled: Shape, options: Any) -> tuple[Any, Any]:
    size = math.prod(pooled)
    peaks, counts = device.new_array(x, size, x.dtype), device.new_array(x, size, np.int32)
    if size:
        _launch_pool(_cuda_windows, True, [x, x], (peaks, counts), x.shape, pooled, options)
    return peaks, counts


def cuda_max_pool(x: Any, pooled: Shape, *options: Shape) -> Any:
    """Return the largest element of each window, in an array of the shape ``pooled``, on the GPU.

    Args:
        x: Images.
        pooled: The shape of the result.
        *options: Window, stride, padding and dilation, for one or two spatial axes.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    return _cuda_peaks(x, pooled, options)[0].reshape(pooled)


def cuda_max_pullback(g: Any, x: Any, *options: Shape) -> Any:
    """Share each ``g`` evenly among the largest elements of its window, on the GPU.

    Args:
        g: The cotangent of ``cuda_max_pool``.
        x: Images of the same dtype.
        *options: See ``cuda_max_pool``.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    peaks, counts = _cuda_peaks(x, g.shape, options)
    out = device.new_array(x, x.shape, x.dtype)
    arrays = [g, x, peaks, counts, peaks]
    _launch_pool(_cuda_shares, True, arrays, out.reshape(out.size), x.shape, g.shape, options)
    return out


def _divisors_beside(array: Any, divisors: Any, pooled: Shape, dims: int) -> Any:
    """Return a divisor for each window of an image, in the memory that holds an array."""
    dtype = device.computing_dtype(array.dtype)
    full = np.broadcast_to(np.asarray(divisors, dtype), pooled[len(pooled) - dims :]).reshape(-1)
    return device.copy_beside(array, np.ascontiguousarray(full))


def cuda_mean_pool(x: Any, pooled: Shape, divisors: Any, *options: Shape) -> Any:
    """Return the sum of each window over its divisor, on the GPU.

    Args:
        x: Images.
        pooled: The shape of the result.
        divisors: A number on the host, or one for each window.
        *options: Window, stride, padding and dilation, for one or two spatial axes.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    out = device.new_array(x, pooled, x.dtype)
    if out.size:
        arrays = [x, _divisors_beside(x, divisors, pooled, len(options[0]))]
        outs = out.reshape(out.size), device.new_array(x, 1, np.int32)
        _launch_pool(_cuda_windows, False, arrays, outs, x.shape, pooled, options)
    return out


def cuda_mean_pullback(g: Any, shape: Shape, divisors: Any, *options: Shape) -> Any:
    """Spread each ``g`` over its window, divided by the divisor, on the GPU.

    Args:
        g: The cotangent of ``cuda_mean_pool``.
        shape: The shape of the images.
        divisors: See ``cuda_mean_pool``.
        *options: See ``cuda_mean_pool``.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    out = device.new_array(g, shape, g.dtype)
    arrays = [g, g, g, g, _divisors_beside(g, divisors, g.shape, len(options[0]))]
    _launch_pool(_cuda_shares, False, arrays, out.reshape(out.size), shape, g.shape, options)
    return out
