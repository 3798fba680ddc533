"""Columns of windows added up in images, as the transpose of what copies windows into columns.

NumPy takes a call for each element of a window, over all places: three to four times as long.
Indices are unsigned, as in ``conv_rows``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["images_of_columns"]

_0, _1 = map(np.uint64, range(2))


@loop
def images_of_columns(
    x: Any, channels: Any, size: Any, window: Any, images: Any, places: Any, stride: Any,
    dilation: Any, first: Any, start: Any, out: Any,
) -> None:  # fmt: skip
    """Add columns to images, for each element of these in the order of a window's elements.

    Args:
        x: Columns, flat: (channels, *window, images, *places), of three spatial axes.
        channels: How many an image has.
        size: Of an image with its padding, three numbers as all that have an axis each.
        window: Of a window.
        images: How many images the columns have.
        places: How many places they have.
        stride: From a window to the next.
        dilation: From an element of a window to the next.
        first: The first image.
        start: The first place.
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
