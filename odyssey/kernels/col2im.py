"""Col2im: columns of windows summed into images.

With NumPy, a call for each element of a window takes three to four times as long.
Indices are unsigned, as in ``conv_rows``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["col2im_loop"]

_0, _1 = map(np.uint64, range(2))


@loop
def col2im_loop(
    x: Any, channels: Any, size: Any, window: Any, images: Any, places: Any, stride: Any,
    dilation: Any, first: Any, start: Any, out: Any,
) -> None:  # fmt: skip
    """Add columns to images, by element of the window in order.

    Args:
        x: Columns, flat: (channels, *window, images, *places), of three spatial axes.
        channels: Channels of an image.
        size: Size of an image with its padding; three numbers, as for all options by axis.
        window: Size of a window.
        images: Number of images.
        places: Number of positions.
        stride: Distance between windows.
        dilation: Distance between elements of a window.
        first: The first image.
        start: The first position.
        out: Images with their padding, flat: (images, channels, *size).
    """
    at, step = _0, stride[2]
    for c in range(channels):
        for a in range(window[0]):
            for i in range(window[1]):
                for j in range(window[2]):
                    for n in range(first, first + images):
                        for p in range(places[0]):
                            z = (start[0] + p) * stride[0] + a * dilation[0]
                            plane = ((n * channels + c) * size[0] + z) * size[1]
                            for q in range(places[1]):
                                y = (start[1] + q) * stride[1] + i * dilation[1]
                                b = (plane + y) * size[2] + start[2] * step + j * dilation[2]
                                if step == _1:  # which vectorizes
                                    for f in range(places[2]):
                                        out[b + f] += x[at + f]
                                else:
                                    for f in range(places[2]):
                                        out[b + f * step] += x[at + f]
                                at += places[2]
