"""Depthwise 3 by 3 convolution with stride 2.

The even and odd lines of an image, and their even and odd elements, are split into four parities,
with lines of one length. One element of a window then reads, for all positions, one long row of one
parity. One position after each line is computed in vain. What no window reads is left out.

Indices are unsigned, as in ``conv_rows``; images and results are flat; ``sizes`` are height and
width of an image, and of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["depthwise_s2_input_vjp", "depthwise_s2_weight_vjp", "depthwise_s2"]

_0, _1, _2, _9, _16 = map(np.uint64, (0, 1, 2, 9, 16))


@loop
def _split_parity(
    x: Any, b: Any, size: Any, top: Any, left: Any, rows: Any, pitch: Any, offset: Any, out: Any
) -> None:
    """Split an image into four parities: even lines, odd lines, of each even elements first."""
    height, width = size
    odd, first = left % _2, (left + _1) // _2
    for y in range(height):
        line = (y + top) // _2
        if line < rows:
            at, c = (y + top) % _2 * (offset + offset) + line * pitch, b + y * width
            if odd and first <= pitch:
                out[at + offset + first - _1] = x[c]
            count = min((width - odd) // _2, pitch - min(first, pitch))
            to, c = at + first, c + odd
            for f in range(count):
                out[to + f] = x[c + f + f]
                out[to + offset + f] = x[c + f + f + _1]
            if (width - odd) % _2 and first + count < pitch:
                out[to + count] = x[c + count + count]


@loop
def _merge_parity(
    x: Any, b: Any, size: Any, top: Any, left: Any, rows: Any, pitch: Any, offset: Any, out: Any
) -> None:
    """Merge four parities into an image; elements that they lack are not written."""
    height, width = size
    odd, first = left % _2, (left + _1) // _2
    for y in range(height):
        line = (y + top) // _2
        if line < rows:
            at, c = (y + top) % _2 * (offset + offset) + line * pitch, b + y * width
            if odd and first <= pitch:
                out[c] = x[at + offset + first - _1]
            count = min((width - odd) // _2, pitch - min(first, pitch))
            to, c = at + first, c + odd
            for f in range(count):
                out[c + f + f] = x[to + f]
                out[c + f + f + _1] = x[to + offset + f]
            if (width - odd) % _2 and first + count < pitch:
                out[c + count + count] = x[to + count]


@loop(reassociate=True)
def _conv_channel(
    x: Any, n: Any, pitch: Any, offset: Any, w: Any, k: Any, start: Any, out: Any
) -> Any:
    """Convolve one channel; return 0 if the results are finite, else NaN."""
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[k : k + _9]
    c, d, e = offset, offset + offset, offset + offset + offset
    nonfinite = x.dtype.type(0)
    for f in range(n):
        above = w0 * x[f] + w1 * x[c + f] + w2 * x[f + _1]
        middle = w3 * x[d + f] + w4 * x[e + f] + w5 * x[d + f + _1]
        below = w6 * x[pitch + f] + w7 * x[c + pitch + f] + w8 * x[pitch + f + _1]
        total = start + (above + middle + below)
        out[f] = total
        nonfinite += total * x.dtype.type(0)
    return nonfinite


@loop
def depthwise_s2(
    x: Any, w: Any, bias: Any, channels: Any, sizes: Any, top: Any, left: Any, out_parts: Any,
    out_sums: Any, out: Any,
) -> Any:  # fmt: skip
    """Convolve images.

    Args:
        x: Images, flat.
        w: The weight, flat.
        bias: A number for each channel; empty for none.
        channels: Channels of an image.
        sizes: Height and width of an image, and of a result.
        top: Lines of zeros above an image.
        left: Zeros before each line.
        out_parts: Zeros, four times a result with a line and a column more, and 16 elements more.
        out_sums: Room for a result with a column more, and 16 elements.
        out: Results, flat.

    Returns:
        0 if all results are finite; NaN otherwise, and possibly for numbers close to the largest.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    offset, nonfinite = rows * pitch + _16, out.dtype.type(0)
    n = (height * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(x.size) // (size[0] * size[1])):
        c = m % channels
        _split_parity(x, m * size[0] * size[1], size, top, left, rows, pitch, offset, out_parts)
        start = bias[c] if bias.size else x.dtype.type(0)
        nonfinite += _conv_channel(out_parts, n, pitch, offset, w, c * _9, start, out_sums)
        to = m * height * width
        for q in range(height):
            for r in range(width):
                out[to + q * width + r] = out_sums[q * pitch + r]
    return nonfinite


@loop(reassociate=True)
def _weight_vjp_channel(x: Any, n: Any, pitch: Any, offset: Any, g: Any, k: Any, out: Any) -> None:
    """Add the gradient of one window, for one image."""
    w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = w8 = x.dtype.type(0)
    c, d, e = offset, offset + offset, offset + offset + offset
    for f in range(n):
        t = g[f]
        w0, w1, w2 = w0 + t * x[f], w1 + t * x[c + f], w2 + t * x[f + _1]
        w3, w4, w5 = w3 + t * x[d + f], w4 + t * x[e + f], w5 + t * x[d + f + _1]
        w6, w7 = w6 + t * x[pitch + f], w7 + t * x[c + pitch + f]
        w8 += t * x[pitch + f + _1]
    for v in (w0, w1, w2, w3, w4, w5, w6, w7, w8):
        out[k] += v
        k += _1


@loop
def depthwise_s2_weight_vjp(
    x: Any, g: Any, channels: Any, sizes: Any, top: Any, left: Any, out_parts: Any, out_lines: Any,
    out: Any,
) -> None:  # fmt: skip
    """Add the gradient of the weight.

    Args:
        x: Images, flat.
        g: The cotangent of the result, likewise.
        channels: See ``depthwise_s2``, as for arguments not listed here.
        out_lines: Zeros, room for a result with a column more, and 16 elements.
        out: Nine elements for each channel, which are added to.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    offset, n = rows * pitch + _16, (height * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(x.size) // (size[0] * size[1])):
        _split_parity(x, m * size[0] * size[1], size, top, left, rows, pitch, offset, out_parts)
        b = m * height * width
        for q in range(height):
            for r in range(width):
                out_lines[q * pitch + r] = g[b + q * width + r]
        _weight_vjp_channel(out_parts, n, pitch, offset, out_lines, m % channels * _9, out)


@loop(reassociate=True)
def _input_vjp_channel(g: Any, n: Any, pitch: Any, w: Any, k: Any, offset: Any, out: Any) -> Any:
    """Write the cotangent of one channel in four parities; return 0 if finite, else NaN."""
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[k : k + _9]
    c, d, e = offset, offset + offset, offset + offset + offset
    nonfinite = g.dtype.type(0)
    for f in range(n):
        r, s = g[f], g[f + _1]  # from the line above
        t, u = g[f + pitch], g[f + pitch + _1]
        first, second = w0 * u + w2 * t + w6 * s + w8 * r, w1 * u + w7 * s
        third, fourth = w3 * u + w5 * t, w4 * u
        out[f], out[c + f], out[d + f], out[e + f] = first, second, third, fourth
        nonfinite += (first + second + third + fourth) * g.dtype.type(0)
    return nonfinite


@loop
def depthwise_s2_input_vjp(
    g: Any, w: Any, channels: Any, sizes: Any, top: Any, left: Any, out_lines: Any, out_parts: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Write the cotangent of the images where it is not zero.

    Args:
        g: The cotangent of the result, flat.
        w: The weight, flat.
        channels: See ``depthwise_s2``, as for arguments not listed here.
        out_lines: Zeros, room for a result with two lines and a column more, and 17 elements.
        out_parts: Room for four times a result with a line and a column more, and 16 elements more.
        out: Zeros, images, flat.

    Returns:
        See ``depthwise_s2``.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    offset, nonfinite = rows * pitch + _16, out.dtype.type(0)
    n = (rows * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(g.size) // (height * width)):
        b = m * height * width
        for q in range(height):
            for r in range(width):
                out_lines[(q + _1) * pitch + _1 + r] = g[b + q * width + r]
        nonfinite += _input_vjp_channel(
            out_lines, n, pitch, w, m % channels * _9, offset, out_parts
        )
        at = m * size[0] * size[1]
        _merge_parity(out_parts, at, size, top, left, rows, pitch, offset, out)
    return nonfinite
