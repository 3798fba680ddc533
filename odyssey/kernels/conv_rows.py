"""Convolution by shifted rows, for few channels.

For few channels matrix products are too thin. An image is stored with its padding, row after row:
one element of a window then reads at a fixed offset from the element of the result, and a whole
image is one long row, whose last elements of each line are computed in vain. The loops take four
channels of the result and a line of a window, of 3 or 5 elements, at a time. With a stride each
line is a row of its own, and the results between strides are computed in vain.

Indices are unsigned: numba would test signed ones for being negative, which prevents vectorization.
Zeros of the padding are multiplied as well, so that infinite weights give NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["conv_rows_weight_vjp", "conv_rows"]

_0, _1, _2, _3, _4 = map(np.uint64, range(5))
_8, _16 = np.uint64(8), np.uint64(16)

# Rows of this length, of four channels and of their inputs, stay in the L1 cache.
_LONG = np.uint64(1536)


@loop(reassociate=True)
def add_4x3(x: Any, b: Any, n: Any, w: Any, k: Any, step: Any, a: Any, size: Any, out: Any) -> None:
    """Add to four rows of sums, with three elements of a window."""
    k1, k2, k3 = k + step, k + step + step, k + step + step + step
    w00, w01, w02 = w[k], w[k + _1], w[k + _2]
    w10, w11, w12 = w[k1], w[k1 + _1], w[k1 + _2]
    w20, w21, w22 = w[k2], w[k2 + _1], w[k2 + _2]
    w30, w31, w32 = w[k3], w[k3 + _1], w[k3 + _2]
    a1, a2, a3 = a + size, a + size + size, a + size + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        out[a + f] += w00 * p + w01 * q + w02 * r
        out[a1 + f] += w10 * p + w11 * q + w12 * r
        out[a2 + f] += w20 * p + w21 * q + w22 * r
        out[a3 + f] += w30 * p + w31 * q + w32 * r


@loop(reassociate=True)
def add_4x5(x: Any, b: Any, n: Any, w: Any, k: Any, step: Any, a: Any, size: Any, out: Any) -> None:
    """Add to four rows of sums, with five elements of a window."""
    k1, k2, k3 = k + step, k + step + step, k + step + step + step
    w00, w01, w02, w03, w04 = w[k], w[k + _1], w[k + _2], w[k + _3], w[k + _4]
    w10, w11, w12, w13, w14 = w[k1], w[k1 + _1], w[k1 + _2], w[k1 + _3], w[k1 + _4]
    w20, w21, w22, w23, w24 = w[k2], w[k2 + _1], w[k2 + _2], w[k2 + _3], w[k2 + _4]
    w30, w31, w32, w33, w34 = w[k3], w[k3 + _1], w[k3 + _2], w[k3 + _3], w[k3 + _4]
    a1, a2, a3 = a + size, a + size + size, a + size + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        s, t = x[b + f + _3], x[b + f + _4]
        out[a + f] += w00 * p + w01 * q + w02 * r + w03 * s + w04 * t
        out[a1 + f] += w10 * p + w11 * q + w12 * r + w13 * s + w14 * t
        out[a2 + f] += w20 * p + w21 * q + w22 * r + w23 * s + w24 * t
        out[a3 + f] += w30 * p + w31 * q + w32 * r + w33 * s + w34 * t


@loop(reassociate=True)
def add_3x3(x: Any, b: Any, n: Any, w: Any, k: Any, step: Any, a: Any, size: Any, out: Any) -> None:
    """Add to three rows of sums, with three elements of a window."""
    k1, k2 = k + step, k + step + step
    w00, w01, w02 = w[k], w[k + _1], w[k + _2]
    w10, w11, w12 = w[k1], w[k1 + _1], w[k1 + _2]
    w20, w21, w22 = w[k2], w[k2 + _1], w[k2 + _2]
    a1, a2 = a + size, a + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        out[a + f] += w00 * p + w01 * q + w02 * r
        out[a1 + f] += w10 * p + w11 * q + w12 * r
        out[a2 + f] += w20 * p + w21 * q + w22 * r


@loop(reassociate=True)
def add_3x5(x: Any, b: Any, n: Any, w: Any, k: Any, step: Any, a: Any, size: Any, out: Any) -> None:
    """Add to three rows of sums, with five elements of a window."""
    k1, k2 = k + step, k + step + step
    w00, w01, w02, w03, w04 = w[k], w[k + _1], w[k + _2], w[k + _3], w[k + _4]
    w10, w11, w12, w13, w14 = w[k1], w[k1 + _1], w[k1 + _2], w[k1 + _3], w[k1 + _4]
    w20, w21, w22, w23, w24 = w[k2], w[k2 + _1], w[k2 + _2], w[k2 + _3], w[k2 + _4]
    a1, a2 = a + size, a + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        s, t = x[b + f + _3], x[b + f + _4]
        out[a + f] += w00 * p + w01 * q + w02 * r + w03 * s + w04 * t
        out[a1 + f] += w10 * p + w11 * q + w12 * r + w13 * s + w14 * t
        out[a2 + f] += w20 * p + w21 * q + w22 * r + w23 * s + w24 * t


@loop(reassociate=True)
def add_1x3(x: Any, b: Any, n: Any, w: Any, k: Any, a: Any, out: Any) -> None:
    """Add to one row of sums, with three elements of a window."""
    w0, w1, w2 = w[k], w[k + _1], w[k + _2]
    for f in range(n):
        out[a + f] += w0 * x[b + f] + w1 * x[b + f + _1] + w2 * x[b + f + _2]


@loop(reassociate=True)
def add_1x5(x: Any, b: Any, n: Any, w: Any, k: Any, a: Any, out: Any) -> None:
    """Add to one row of sums, with five elements of a window."""
    w0, w1, w2, w3, w4 = w[k], w[k + _1], w[k + _2], w[k + _3], w[k + _4]
    for f in range(n):
        total = w0 * x[b + f] + w1 * x[b + f + _1] + w2 * x[b + f + _2]
        out[a + f] += total + w3 * x[b + f + _3] + w4 * x[b + f + _4]


@loop(reassociate=True)
def put_3x3(
    x: Any, b: Any, pitch: Any, n: Any, w: Any, k: Any, start: Any, a: Any, out: Any
) -> None:
    """Write one row of sums of a 3 by 3 window, the only one of its result."""
    w0, w1, w2, w3, w4 = w[k], w[k + _1], w[k + _2], w[k + _3], w[k + _4]
    w5, w6, w7, w8 = w[k + _3 + _2], w[k + _3 + _3], w[k + _4 + _3], w[k + _8]
    c, d = b + pitch, b + pitch + pitch
    for f in range(n):
        above = w0 * x[b + f] + w1 * x[b + f + _1] + w2 * x[b + f + _2]
        along = w3 * x[c + f] + w4 * x[c + f + _1] + w5 * x[c + f + _2]
        below = w6 * x[d + f] + w7 * x[d + f + _1] + w8 * x[d + f + _2]
        out[a + f] = start + (above + along + below)


@loop(reassociate=True)
def times_zero(x: Any, b: Any, count: Any) -> Any:
    """Return 0 if ``count`` numbers are finite, else NaN."""
    total = x.dtype.type(0)
    for f in range(count):
        total += x[b + f] * x.dtype.type(0)
    return total


@loop(reassociate=True)
def dot_4x3(x: Any, b: Any, n: Any, g: Any, a: Any, size: Any, k: Any, step: Any, out: Any) -> None:
    """Dot products of four rows with one, at three offsets."""
    w00 = w01 = w02 = w10 = w11 = w12 = x.dtype.type(0)
    w20 = w21 = w22 = w30 = w31 = w32 = x.dtype.type(0)
    a1, a2, a3 = a + size, a + size + size, a + size + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        g0, g1, g2, g3 = g[a + f], g[a1 + f], g[a2 + f], g[a3 + f]
        w00, w01, w02 = w00 + g0 * p, w01 + g0 * q, w02 + g0 * r
        w10, w11, w12 = w10 + g1 * p, w11 + g1 * q, w12 + g1 * r
        w20, w21, w22 = w20 + g2 * p, w21 + g2 * q, w22 + g2 * r
        w30, w31, w32 = w30 + g3 * p, w31 + g3 * q, w32 + g3 * r
    k1, k2, k3 = k + step, k + step + step, k + step + step + step
    for j, v0, v1, v2, v3 in (
        (_0, w00, w10, w20, w30),
        (_1, w01, w11, w21, w31),
        (_2, w02, w12, w22, w32),
    ):
        out[k + j] += v0
        out[k1 + j] += v1
        out[k2 + j] += v2
        out[k3 + j] += v3


@loop(reassociate=True)
def dot_4x5(x: Any, b: Any, n: Any, g: Any, a: Any, size: Any, k: Any, step: Any, out: Any) -> None:
    """Dot products of four rows with one, at five offsets."""
    w00 = w01 = w02 = w03 = w04 = w10 = w11 = w12 = w13 = w14 = x.dtype.type(0)
    w20 = w21 = w22 = w23 = w24 = w30 = w31 = w32 = w33 = w34 = x.dtype.type(0)
    a1, a2, a3 = a + size, a + size + size, a + size + size + size
    for f in range(n):
        p, q, r = x[b + f], x[b + f + _1], x[b + f + _2]
        s, t = x[b + f + _3], x[b + f + _4]
        g0, g1, g2, g3 = g[a + f], g[a1 + f], g[a2 + f], g[a3 + f]
        w00, w01, w02, w03, w04 = (
            w00 + g0 * p, w01 + g0 * q, w02 + g0 * r, w03 + g0 * s, w04 + g0 * t
        )  # fmt: skip
        w10, w11, w12, w13, w14 = (
            w10 + g1 * p, w11 + g1 * q, w12 + g1 * r, w13 + g1 * s, w14 + g1 * t
        )  # fmt: skip
        w20, w21, w22, w23, w24 = (
            w20 + g2 * p, w21 + g2 * q, w22 + g2 * r, w23 + g2 * s, w24 + g2 * t
        )  # fmt: skip
        w30, w31, w32, w33, w34 = (
            w30 + g3 * p, w31 + g3 * q, w32 + g3 * r, w33 + g3 * s, w34 + g3 * t
        )  # fmt: skip
    k1, k2, k3 = k + step, k + step + step, k + step + step + step
    for j, v0, v1, v2, v3 in (
        (_0, w00, w10, w20, w30),
        (_1, w01, w11, w21, w31),
        (_2, w02, w12, w22, w32),
        (_3, w03, w13, w23, w33),
        (_4, w04, w14, w24, w34),
    ):
        out[k + j] += v0
        out[k1 + j] += v1
        out[k2 + j] += v2
        out[k3 + j] += v3


@loop(reassociate=True)
def dot_1x3(x: Any, b: Any, n: Any, g: Any, a: Any, k: Any, out: Any) -> None:
    """Dot products of two rows at three offsets."""
    w0 = w1 = w2 = x.dtype.type(0)
    for f in range(n):
        t = g[a + f]
        w0, w1, w2 = w0 + t * x[b + f], w1 + t * x[b + f + _1], w2 + t * x[b + f + _2]
    for v in (w0, w1, w2):
        out[k] += v
        k += _1


@loop(reassociate=True)
def dot_3x3(x: Any, b: Any, pitch: Any, n: Any, g: Any, a: Any, k: Any, out: Any) -> None:
    """Dot products of two rows at the offsets of a 3 by 3 window."""
    w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = w8 = x.dtype.type(0)
    c, d = b + pitch, b + pitch + pitch
    for f in range(n):
        t = g[a + f]
        w0, w1, w2 = w0 + t * x[b + f], w1 + t * x[b + f + _1], w2 + t * x[b + f + _2]
        w3, w4, w5 = w3 + t * x[c + f], w4 + t * x[c + f + _1], w5 + t * x[c + f + _2]
        w6, w7, w8 = w6 + t * x[d + f], w7 + t * x[d + f + _1], w8 + t * x[d + f + _2]
    for v in (w0, w1, w2, w3, w4, w5, w6, w7, w8):
        out[k] += v
        k += _1


@loop(reassociate=True)
def dot_1x5(x: Any, b: Any, n: Any, g: Any, a: Any, k: Any, out: Any) -> None:
    """Dot products of two rows at five offsets."""
    w0 = w1 = w2 = w3 = w4 = x.dtype.type(0)
    for f in range(n):
        t = g[a + f]
        w0, w1, w2 = w0 + t * x[b + f], w1 + t * x[b + f + _1], w2 + t * x[b + f + _2]
        w3, w4 = w3 + t * x[b + f + _3], w4 + t * x[b + f + _4]
    for v in (w0, w1, w2, w3, w4):
        out[k] += v
        k += _1


@loop
def lay_out(
    x: Any, first: Any, count: Any, top: Any, left: Any, down: Any, across: Any,
    rows: Any, pitch: Any, out: Any,
) -> None:  # fmt: skip
    """Copy channels of an image to rows of ``pitch`` elements; the padding stays zero."""
    height, width = np.uint64(x.shape[1]), np.uint64(x.shape[2])
    for c in range(count):
        for y in range(height):
            b = (c * rows + top + y * down) * pitch + left
            for r in range(width):
                out[b + r * across] = x[first + c, y, r]


@loop
def conv_rows(
    x: Any, w: Any, bias: Any, in_channels: Any, outs: Any, kh: Any, kw: Any, top: Any, left: Any,
    spread: Any, across: Any, stride: Any, rows: Any, pitch: Any, out_rows: Any, out_sums: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Convolve images.

    Args:
        x: (images, channels, height, width).
        w: The weight, flat: for each group ``outs`` channels, a multiple of 3 or 4, or 1 or 2.
        bias: A number for each channel of the result; empty for none.
        in_channels: Channels of the images in a group.
        outs: Channels of the result in a group, rounded up.
        kh: The height of windows.
        kw: The width of windows, 3 or 5.
        top: Lines of zeros above an image.
        left: Zeros before each line.
        spread: Distance between the lines of an image, with zeros between.
        across: Distance between the elements of a line.
        stride: Distance between windows, in both directions.
        rows: Lines of an image with its padding.
        pitch: Length of a line.
        out_rows: Zeros, room for a group of channels, and 32 elements more.
        out_sums: Zeros, room for 4 results of ``pitch`` elements in each line, and 16 more for
            each.
        out: (images, groups, channels of the result, height, width).

    Returns:
        0 if all results are finite; NaN otherwise, and possibly for numbers close to the largest.
    """
    nonfinite = out.dtype.type(0)
    single_3x3 = in_channels == _1 and outs < _4 and kh == _3 and kw == _3
    block = _3 if outs % _4 else _4
    images, groups, results = out.shape[0], np.uint64(out.shape[1]), np.uint64(out.shape[2])
    height, width = np.uint64(out.shape[3]), np.uint64(out.shape[4])
    size, step, span = height * pitch + _16, in_channels * kh * kw, (width - _1) * stride + _1
    lines = max(_LONG // pitch, _1) if stride == _1 else _1
    for n in range(images):
        for g in range(groups):
            lay_out(
                x[n], g * in_channels, in_channels, top, left, spread, across, rows, pitch, out_rows
            )
            for o in range(_0, outs, block):
                count = min(outs - o, block)
                for q in range(_0, height, lines):
                    # Whole vectors: the next lines overwrite the excess.
                    length = (min(height - q, lines) - _1) * pitch + span
                    length = (length + _16 - _1) // _16 * _16
                    for m in range(count):
                        start = x.dtype.type(0)
                        if bias.size and o + m < results:
                            start = bias[g * results + o + m]
                        to, at = m * size + q * pitch, (g * outs + o + m) * step
                        if single_3x3:
                            b = q * stride * pitch
                            put_3x3(out_rows, b, pitch, length, w, at, start, to, out_sums)
                        else:
                            for f in range(length):
                                out_sums[to + f] = start
                    for c in range(_0 if single_3x3 else in_channels):
                        for i in range(kh):
                            b = (c * rows + q * stride + i) * pitch
                            k = (g * outs + o) * step + (c * kh + i) * kw
                            a = q * pitch
                            if count == _4 and kw == _3:
                                add_4x3(out_rows, b, length, w, k, step, a, size, out_sums)
                            elif count == _4:
                                add_4x5(out_rows, b, length, w, k, step, a, size, out_sums)
                            elif count == _3 and kw == _3:
                                add_3x3(out_rows, b, length, w, k, step, a, size, out_sums)
                            elif count == _3:
                                add_3x5(out_rows, b, length, w, k, step, a, size, out_sums)
                            else:
                                for m in range(count):
                                    at, to = k + m * step, a + m * size
                                    if kw == _3:
                                        add_1x3(out_rows, b, length, w, at, to, out_sums)
                                    else:
                                        add_1x5(out_rows, b, length, w, at, to, out_sums)
                for m in range(min(count, results - o)):
                    for q in range(height):
                        a = m * size + q * pitch
                        for r in range(width):
                            out[n, g, o + m, q, r] = out_sums[a + r * stride]
                    nonfinite += times_zero(out_sums, m * size, height * pitch)
    return nonfinite


@loop
def conv_rows_weight_vjp(
    x: Any, y: Any, in_channels: Any, outs: Any, kh: Any, kw: Any, top: Any, left: Any,
    stride: Any, rows: Any, pitch: Any, others: Any, out_rows: Any, out_others: Any, out: Any,
) -> None:  # fmt: skip
    """Add the gradient of the weight of a convolution.

    Args:
        x: Images (images, channels, height, width).
        y: The cotangent of the result, likewise.
        in_channels: See ``conv_rows``, as for arguments not listed here.
        outs: Channels of the result in a group: a multiple of 4, or fewer.
        others: Lines of a channel of the cotangent, with 16 zeros or more after them.
        out_rows: Zeros, room for a group of channels, and 32 elements more.
        out_others: Zeros, room for the channels of the result, each of ``others`` lines of
            ``pitch``.
        out: The gradient, flat, which is added to.
    """
    images, results = x.shape[0], np.uint64(y.shape[1])
    height, width = np.uint64(y.shape[2]), np.uint64(y.shape[3])
    groups = np.uint64(x.shape[1]) // in_channels
    per_group = results // groups
    size, step, span = others * pitch, in_channels * kh * kw, (width - _1) * stride + _1
    lines = max(_LONG // pitch, _1) if stride == _1 else _1
    single_3x3 = in_channels == _1 and outs < _4 and kh == _3 and kw == _3
    for n in range(images):
        for g in range(groups):
            lay_out(x[n], g * in_channels, in_channels, top, left, _1, _1, rows, pitch, out_rows)
            lay_out(y[n], g * per_group, per_group, _0, _0, _1, stride, others, pitch, out_others)
            for o in range(_0, outs, _4):
                count = min(outs - o, _4)
                for q in range(_0, height, lines):
                    length = (min(height - q, lines) - _1) * pitch + span
                    even = (length + _16 - _1) // _16 * _16
                    # Each line is followed by zeros.
                    if even <= lines * pitch or height <= q + lines:
                        length = even
                    if single_3x3:
                        b = q * stride * pitch
                        for m in range(o, o + count):
                            at, to = (g * outs + m) * step, m * size + q * pitch
                            dot_3x3(out_rows, b, pitch, length, out_others, to, at, out)
                    for c in range(_0 if single_3x3 else in_channels):
                        for i in range(kh):
                            b = (c * rows + q * stride + i) * pitch
                            k = (g * outs + o) * step + (c * kh + i) * kw
                            a = o * size + q * pitch
                            if count == _4 and kw == _3:
                                dot_4x3(out_rows, b, length, out_others, a, size, k, step, out)
                            elif count == _4:
                                dot_4x5(out_rows, b, length, out_others, a, size, k, step, out)
                            else:
                                for m in range(count):
                                    at, to = k + m * step, a + m * size
                                    if kw == _3:
                                        dot_1x3(out_rows, b, length, out_others, to, at, out)
                                    else:
                                        dot_1x5(out_rows, b, length, out_others, to, at, out)
