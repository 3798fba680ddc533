"""Depthwise 3 by 3 convolution with stride 1 and padding 1, for small images.

A channel is one row, with a line of zeros above and below, and an element of a window reads at a
fixed offset. The end of a line is followed by the next line instead of zeros: what a window reads
there is multiplied by 0. So infinities give NaN, which the caller detects.

Indices are unsigned, as in ``conv_rows``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["depthwise_s1_weight_vjp", "depthwise_s1"]

_0, _1, _2, _3, _4 = map(np.uint64, range(5))
_5, _6, _7, _8, _9 = map(np.uint64, range(5, 10))


@loop
def _copy_row(x: Any, b: Any, n: Any, out: Any, a: Any) -> None:
    for f in range(n):
        out[a + f] = x[b + f]


@loop(reassociate=True)
def _conv_channel(
    x: Any, n: Any, width: Any, w: Any, k: Any, start: Any, left: Any, right: Any, out: Any, a: Any
) -> Any:
    """Convolve one channel; return 0 if the results are finite, else NaN."""
    w0, w1, w2, w3, w4 = w[k], w[k + _1], w[k + _2], w[k + _3], w[k + _4]
    w5, w6, w7, w8 = w[k + _5], w[k + _6], w[k + _7], w[k + _8]
    c, d = width, width + width
    nonfinite = x.dtype.type(0)
    for f in range(n):
        before = w0 * x[f] + w3 * x[c + f] + w6 * x[d + f]
        middle = w1 * x[f + _1] + w4 * x[c + f + _1] + w7 * x[d + f + _1]
        behind = w2 * x[f + _2] + w5 * x[c + f + _2] + w8 * x[d + f + _2]
        total = start + (before * left[f] + middle + behind * right[f])
        out[a + f] = total
        nonfinite += total * x.dtype.type(0)
    return nonfinite


@loop
def depthwise_s1(
    x: Any, w: Any, bias: Any, channels: Any, width: Any, left: Any, right: Any,
    out_room: Any, out: Any,
) -> Any:  # fmt: skip
    """Convolve each channel with its own window, with a line of zeros around.

    Args:
        x: Images, flat.
        w: Nine elements for each channel, flat.
        bias: A number for each channel; empty for none.
        channels: Channels of an image.
        width: Width of images.
        left: For each element of an image 0 if it is the first of its line, else 1.
        right: For each element of an image 0 if it is the last of its line, else 1.
        out_room: Zeros, room for a channel and two lines, and 2 elements more.
        out: As many elements as ``x``.

    Returns:
        0 if all results are finite, else NaN.
    """
    size = np.uint64(left.size)
    nonfinite, start = out.dtype.type(0), out.dtype.type(0)
    for m in range(np.uint64(x.size) // size):
        _copy_row(x, m * size, size, out_room, width + _1)
        c = m % channels
        if bias.size:
            start = bias[c]
        nonfinite += _conv_channel(
            out_room, size, width, w, c * _9, start, left, right, out, m * size
        )
    return nonfinite


@loop(reassociate=True)
def _weight_vjp_channel(
    x: Any, n: Any, width: Any, g: Any, b: Any, left: Any, right: Any, out: Any, k: Any
) -> None:
    """Add the gradient of one window, for one image."""
    w0 = w1 = w2 = w3 = w4 = w5 = w6 = w7 = w8 = x.dtype.type(0)
    c, d = width, width + width
    for f in range(n):
        middle = g[b + f]
        before, behind = middle * left[f], middle * right[f]
        w0 += before * x[f]
        w1 += middle * x[f + _1]
        w2 += behind * x[f + _2]
        w3 += before * x[c + f]
        w4 += middle * x[c + f + _1]
        w5 += behind * x[c + f + _2]
        w6 += before * x[d + f]
        w7 += middle * x[d + f + _1]
        w8 += behind * x[d + f + _2]
    out[k] += w0
    out[k + _1] += w1
    out[k + _2] += w2
    out[k + _3] += w3
    out[k + _4] += w4
    out[k + _5] += w5
    out[k + _6] += w6
    out[k + _7] += w7
    out[k + _8] += w8


@loop
def depthwise_s1_weight_vjp(
    x: Any, g: Any, channels: Any, width: Any, left: Any, right: Any, out_room: Any, out: Any
) -> None:
    """Add the gradient of the windows of ``depthwise_s1``.

    Args:
        x: Images, flat.
        g: The cotangent of the result, likewise.
        channels: See ``depthwise_s1``, as for the next ones.
        width: Width of images.
        left: Mask of line starts.
        right: Mask of line ends.
        out_room: Zeros, room for a channel and two lines, and 2 elements more.
        out: Nine elements for each channel, which are added to.
    """
    size = np.uint64(left.size)
    for m in range(np.uint64(x.size) // size):
        _copy_row(x, m * size, size, out_room, width + _1)
        _weight_vjp_channel(out_room, size, width, g, m * size, left, right, out, m % channels * _9)
