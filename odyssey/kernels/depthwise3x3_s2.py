"""Windows of 3 by 3, two apart, over each channel by itself, as loops over what lies side by side.

Even and odd lines of an image, and their even and odd elements, are put apart in four parts, with
lines of one length. Then one element of a window reads, for all places, one long row of one of the
parts. Behind each line one place more is computed in vain. What no window reaches is left out.

Indices are unsigned, as in ``conv_rows``; images and results are flat, and ``sizes`` are the
height and width of an image, and of what is computed of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["halves_images", "halves_slopes", "halves_sums"]

_0, _1, _2, _9, _16 = map(np.uint64, (0, 1, 2, 9, 16))


@loop
def _put_apart(
    x: Any, b: Any, size: Any, top: Any, left: Any, rows: Any, pitch: Any, apart: Any, out: Any
) -> None:
    """An image in four parts: even lines and odd ones, of each first the even elements."""
    height, width = size
    odd, first = left % _2, (left + _1) // _2
    for y in range(height):
        line = (y + top) // _2
        if line < rows:
            at, c = (y + top) % _2 * (apart + apart) + line * pitch, b + y * width
            if odd and first <= pitch:
                out[at + apart + first - _1] = x[c]
            count = min((width - odd) // _2, pitch - min(first, pitch))
            to, c = at + first, c + odd
            for f in range(count):
                out[to + f] = x[c + f + f]
                out[to + apart + f] = x[c + f + f + _1]
            if (width - odd) % _2 and first + count < pitch:
                out[to + count] = x[c + count + count]


@loop
def _put_together(
    x: Any, b: Any, size: Any, top: Any, left: Any, rows: Any, pitch: Any, apart: Any, out: Any
) -> None:
    """The way back; what the parts lack is not written."""
    height, width = size
    odd, first = left % _2, (left + _1) // _2
    for y in range(height):
        line = (y + top) // _2
        if line < rows:
            at, c = (y + top) % _2 * (apart + apart) + line * pitch, b + y * width
            if odd and first <= pitch:
                out[c] = x[at + apart + first - _1]
            count = min((width - odd) // _2, pitch - min(first, pitch))
            to, c = at + first, c + odd
            for f in range(count):
                out[c + f + f] = x[to + f]
                out[c + f + f + _1] = x[to + apart + f]
            if (width - odd) % _2 and first + count < pitch:
                out[c + count + count] = x[to + count]


@loop(reassociate=True)
def _sums(x: Any, n: Any, pitch: Any, apart: Any, w: Any, k: Any, start: Any, out: Any) -> Any:
    """Sums of windows, and 0 where all are finite, else NaN."""
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[k : k + _9]
    c, d, e = apart, apart + apart, apart + apart + apart
    found = x.dtype.type(0)
    for f in range(n):
        above = w0 * x[f] + w1 * x[c + f] + w2 * x[f + _1]
        along = w3 * x[d + f] + w4 * x[e + f] + w5 * x[d + f + _1]
        below = w6 * x[pitch + f] + w7 * x[c + pitch + f] + w8 * x[pitch + f + _1]
        total = start + (above + along + below)
        out[f] = total
        found += total * x.dtype.type(0)
    return found


@loop
def halves_sums(
    x: Any, w: Any, bias: Any, channels: Any, sizes: Any, top: Any, left: Any, out_parts: Any,
    out_sums: Any, out: Any,
) -> Any:  # fmt: skip
    """Convolve images.

    Args:
        x: Images, flat.
        w: The weight, flat.
        bias: A number for each channel; empty for none.
        channels: How many an image has.
        sizes: Height and width of an image, and of a result.
        top: How many lines of zeros are above an image.
        left: How many zeros are before each line.
        out_parts: Zeros, four times a result with a line and a column more, and 16 elements more.
        out_sums: Room for a result with a column more, and 16 elements.
        out: Results, flat.

    Returns:
        0 where all results are finite, else, and perhaps where they are close to the largest
        numbers, NaN.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    apart, found = rows * pitch + _16, out.dtype.type(0)
    n = (height * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(x.size) // (size[0] * size[1])):
        c = m % channels
        _put_apart(x, m * size[0] * size[1], size, top, left, rows, pitch, apart, out_parts)
        start = bias[c] if bias.size else x.dtype.type(0)
        found += _sums(out_parts, n, pitch, apart, w, c * _9, start, out_sums)
        to = m * height * width
        for q in range(height):
            for r in range(width):
                out[to + q * width + r] = out_sums[q * pitch + r]
    return found


@loop(reassociate=True)
def _slopes(x: Any, n: Any, pitch: Any, apart: Any, g: Any, k: Any, out: Any) -> None:
    """Add the gradient of one window, of one image."""
    w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = w8 = x.dtype.type(0)
    c, d, e = apart, apart + apart, apart + apart + apart
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
def halves_slopes(
    x: Any, g: Any, channels: Any, sizes: Any, top: Any, left: Any, out_parts: Any, out_lines: Any,
    out: Any,
) -> None:  # fmt: skip
    """Add up the gradient of the weight.

    Args:
        x: Images, flat.
        g: The cotangent of the result, likewise.
        channels: See ``halves_sums``, as for those that are not here.
        out_lines: Zeros, room for a result with a column more, and 16 elements.
        out: Nine elements for each channel, to which it is added.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    apart, n = rows * pitch + _16, (height * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(x.size) // (size[0] * size[1])):
        _put_apart(x, m * size[0] * size[1], size, top, left, rows, pitch, apart, out_parts)
        b = m * height * width
        for q in range(height):
            for r in range(width):
                out_lines[q * pitch + r] = g[b + q * width + r]
        _slopes(out_parts, n, pitch, apart, out_lines, m % channels * _9, out)


@loop(reassociate=True)
def _spread(g: Any, n: Any, pitch: Any, w: Any, k: Any, apart: Any, out: Any) -> Any:
    """What windows read, in four parts, and 0 where all is finite, else NaN."""
    w0, w1, w2, w3, w4, w5, w6, w7, w8 = w[k : k + _9]
    c, d, e = apart, apart + apart, apart + apart + apart
    found = g.dtype.type(0)
    for f in range(n):
        r, s = g[f], g[f + _1]  # of the line above
        t, u = g[f + pitch], g[f + pitch + _1]
        first, second = w0 * u + w2 * t + w6 * s + w8 * r, w1 * u + w7 * s
        third, fourth = w3 * u + w5 * t, w4 * u
        out[f], out[c + f], out[d + f], out[e + f] = first, second, third, fourth
        found += (first + second + third + fourth) * g.dtype.type(0)
    return found


@loop
def halves_images(
    g: Any, w: Any, channels: Any, sizes: Any, top: Any, left: Any, out_lines: Any, out_parts: Any,
    out: Any,
) -> Any:  # fmt: skip
    """The cotangent of the images, where it is not zero.

    Args:
        g: The cotangent of the result, flat.
        w: The weight, flat.
        channels: See ``halves_sums``, as for those that are not here.
        out_lines: Zeros, room for a result with two lines and a column more, and 17 elements.
        out_parts: Room for four times a result with a line and a column more, and 16 elements more.
        out: Zeros, images, flat.

    Returns:
        See ``halves_sums``.
    """
    size, (height, width) = sizes
    rows, pitch = height + _1, width + _1
    apart, found = rows * pitch + _16, out.dtype.type(0)
    n = (rows * pitch + _16 - _1) // _16 * _16
    for m in range(np.uint64(g.size) // (height * width)):
        b = m * height * width
        for q in range(height):
            for r in range(width):
                out_lines[(q + _1) * pitch + _1 + r] = g[b + q * width + r]
        found += _spread(out_lines, n, pitch, w, m % channels * _9, apart, out_parts)
        at = m * size[0] * size[1]
        _put_together(out_parts, at, size, top, left, rows, pitch, apart, out)
    return found
