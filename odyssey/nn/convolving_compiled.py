"""Convolution by compiled loops where these are the faster, else by NumPy, as ``convolving``.

Loops over shifted rows are for few channels; tiles, for windows of 3 by 3, have fewer products than
matrices of windows do, from so many tiles on that those of the weight do not matter. Both multiply
zeros that are not part of any window, and add in another order, so infinities, NaN and the largest
numbers may reach more of what they compute than they should: then it is computed again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels.window_columns import images_of_columns
from odyssey.nn import convolving
from odyssey.nn.convolving_by_rows import (
    convolve_by_rows,
    fits_rows,
    pull_image_by_rows,
    pull_weight_by_rows,
)
from odyssey.nn.convolving_by_tiles import (
    convolve_by_tiles,
    pull_image_by_tiles,
    pull_weight_by_tiles,
)
from odyssey.nn.sliding import Slide, has_many_tiles
from odyssey.quiet import unwarned
from odyssey.spec import Array

__all__ = ["convolve", "pull_image", "pull_weight"]

# Products of channels in a group with those of its result up to which rows take less time than
# matrices: measured 0.66 of it for 6 * 16, 0.88 for 3 * 64; and from so many places of an image on:
# measured 1.4 for 16, 0.6 for 64.
_FEW_PAIRS, _MANY_PLACES = 256, 36

# Columns of so many elements a loop adds up in a third of the time of NumPy.
_MANY = 1 << 15


def _by_rows(slide: Slide, part: int, each: int) -> bool:
    alone = part < 4 and each < 4
    few = slide.stride == (1, 1, 1) and part * each <= _FEW_PAIRS
    few = few and math.prod(slide.counts) >= _MANY_PLACES
    return (alone or few) and part * each > 0 and fits_rows(slide)


@unwarned()
def _finite(x: Array) -> bool:
    """Whether all numbers are finite; it may say no where they are very large."""
    flat = x.reshape(-1)
    return bool(np.isfinite(flat.dot(flat)))


def _add_columns(image: Array, slide: Slide, block: convolving.Block, columns: Array) -> None:
    """See ``convolving.add_columns``: the same bits."""
    if columns.size < _MANY:
        convolving.add_columns(image, slide, block, columns)
        return
    channels, *size = image.shape[1:]
    images, *places = columns.shape[4:]
    windows = images, places, slide.stride, slide.dilation, block.first, block.starts(slide)
    given = map(_unsigned, (channels, size, slide.window, *windows))
    images_of_columns(columns.reshape(-1), *given, image.reshape(-1))


def _unsigned(n: Any) -> Any:
    return np.uint64(n) if isinstance(n, int) else tuple(map(np.uint64, n))


def convolve(x: Array, weight: Array, bias: Array | None, slide: Slide, groups: int) -> Array:
    """See ``convolving.convolve``."""
    part, each = weight.shape[1], len(weight) // groups
    if x.dtype.char in "fd" and len(x):
        out = None
        if _by_rows(slide, part, each):
            out = convolve_by_rows(x, weight, bias, slide, groups)
        elif has_many_tiles(slide, len(x), part, each, groups):
            out = convolve_by_tiles(x, weight, bias, slide)
        if out is not None:
            return out
    return convolving.convolve(x, weight, bias, slide, groups)


def pull_image(g: Array, weight: Array, slide: Slide, groups: int) -> Array:
    """See ``convolving.pull_image``."""
    part, each = weight.shape[1], len(weight) // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _by_rows(slide, part, each):
            out = pull_image_by_rows(g, weight, slide, groups)
        elif has_many_tiles(slide, len(g), part, each, groups):
            out = pull_image_by_tiles(g, weight, slide)
        if out is not None:
            return out
        return convolving.pull_image(g, weight, slide, groups, _add_columns)
    return convolving.pull_image(g, weight, slide, groups)


def pull_weight(g: Array, x: Array, slide: Slide, groups: int) -> Array:
    """See ``convolving.pull_weight``."""
    part, each = x.shape[1] // groups, g.shape[1] // groups
    if g.dtype.char in "fd" and len(g):
        out = None
        if _by_rows(slide, part, each):
            out = pull_weight_by_rows(g, x, slide, groups)
        elif has_many_tiles(slide, len(g), part, each, groups):
            out = pull_weight_by_tiles(g, x, slide)
        if out is not None and _finite(out):
            return out
    return convolving.pull_weight(g, x, slide, groups)
