"""Convolution and its transposes written in other ops: windows as columns, and their products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.linalg.matrix_products import matmul
from odyssey.nn.convolution_shapes import fitting, fitting_image, fitting_weight
from odyssey.nn.sliding import Slide, has_many_tiles, spelled
from odyssey.nn.unfolding import fold, unfold
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import isfinite
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.indexing import add_at
from odyssey.ops.structure.shape import matrix_transpose, reshape, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.choosing import are_kernels_compiled

__all__ = [
    "bias_rule",
    "convolution_in_ops",
    "convolved_natively",
    "input_in_ops",
    "input_natively",
    "over_places",
    "weight_in_ops",
    "weight_natively",
]

# A convolution of so few products for each result multiplies zeros rather than summing windows.
_FEW = 64


def convolution_in_ops(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What a convolution equals."""
    slide, groups = fitting("convolution", x, weight, bias, (stride, padding, dilation, groups))
    height = math.prod(weight.shape[1:])
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    columns = _columns(x, slide, groups)
    out = reshape(matmul(rows, columns), (x.shape[0], weight.shape[0], *slide.counts))
    return out if bias is None else add(out, over_places(bias, x.ndim - 2))


def convolved_natively(build: Any, x: Any, weight: Any, bias: Any, *options: Any) -> Any:
    """The same, unless its kernel takes the fewer products."""
    slide, groups = fitting("convolution", x, weight, bias, options)
    if _in_tiles(slide, x.shape[0], weight.shape, groups, x, weight):
        return NotImplemented
    return convolution_in_ops(x, weight, bias, *options)


def _in_tiles(slide: Slide, samples: int, weight: Shape, groups: int, *operands: Any) -> bool:
    """Whether a kernel computes tiles, of which a program knows nothing."""
    if {operand.dtype.char for operand in operands} not in ({"f"}, {"d"}):
        return False
    part, each = weight[1], weight[0] // groups
    return has_many_tiles(slide.lifted(), samples, part, each, groups) and are_kernels_compiled()


def over_places(bias: Any, n: int) -> Any:
    """A number for each channel in the shape in which it meets images."""
    return reshape(bias, (-1, *(1,) * n))


def _columns(x: Any, slide: Slide, groups: int) -> Any:
    stride, pads, dilation = spelled(slide)
    found = unfold(x, window=slide.window, stride=stride, padding=pads, dilation=dilation)
    height = x.shape[1] // groups * math.prod(slide.window)
    return reshape(found, (x.shape[0], groups, height, math.prod(slide.counts)))


def input_in_ops(
    y: Any, weight: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What its transpose in the images equals."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_image("convolution_input", y, weight, size, options)
    height, places = math.prod(weight.shape[1:]), math.prod(slide.counts)
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, height))
    parts = reshape(y, (shape[0], groups, weight.shape[0] // groups, places))
    columns = reshape(matmul(matrix_transpose(rows), parts), (shape[0], groups * height, places))
    stride, pads, dilation = spelled(slide)
    return fold(
        columns,
        size=slide.size,
        window=slide.window,
        stride=stride,
        padding=pads,
        dilation=dilation,
    )


def input_natively(
    build: Any,
    y: Any,
    weight: Any,
    size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
) -> Any:
    """The same, as a convolution with zeros around the results, and between few of them."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_image("convolution_input", y, weight, size, options)
    if _in_tiles(slide, shape[0], weight.shape, groups, y, weight):
        return NotImplemented
    few = weight.shape[0] // groups * math.prod(slide.window) <= _FEW
    back = slide.back() if few or set(slide.stride) == {1} else None
    if back is None:
        return input_in_ops(y, weight, size, *options)
    # What is infinite would make NaN of the zeros around and between.
    build.require(isfinite(weight))
    return _turned(_spread(y, slide.stride), weight, back, groups, shape)


def _spread(y: Any, stride: Shape) -> Any:
    """The results with zeros between them, as many as a window goes further."""
    if set(stride) == {1} or not y.size:
        return y
    size = [(n - 1) * s + 1 for n, s in zip(y.shape[2:], stride, strict=True)]
    key = (..., *(slice(None, None, s) for s in stride))
    return add_at(y, key, Spec((*y.shape[:2], *size), y.dtype))


def _turned(y: Any, weight: Any, back: Slide, groups: int, shape: Shape) -> Any:
    """The transpose in the images, as the convolution with the mirrored weight that it is."""
    out, channels, *window = weight.shape
    axes = tuple(range(3, 3 + len(window)))
    parts = flip(reshape(weight, (groups, out // groups, channels, *window)), axes)
    rows = reshape(
        transpose(parts, (0, 2, 1, *axes)), (1, groups, channels, out // groups * math.prod(window))
    )
    return reshape(matmul(rows, _columns(y, back, groups)), shape)


def weight_in_ops(
    y: Any, x: Any, window: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Any:
    """What its transpose in the weight equals."""
    options = (stride, padding, dilation, groups)
    slide, groups, shape = fitting_weight("convolution_weight", y, x, window, options)
    parts = reshape(y, (x.shape[0], groups, shape[0] // groups, math.prod(slide.counts)))
    columns = matrix_transpose(_columns(x, slide, groups))
    return reshape(sum(matmul(parts, columns), 0), shape)


def weight_natively(build: Any, y: Any, x: Any, window: Any, *options: Any) -> Any:
    """The same, unless its kernel takes the fewer products."""
    slide, groups, shape = fitting_weight("convolution_weight", y, x, window, options)
    if _in_tiles(slide, x.shape[0], shape, groups, y, x):
        return NotImplemented
    return weight_in_ops(y, x, window, *options)


def bias_rule(g: Any) -> Any:
    """The cotangent of its bias."""
    if g.dtype.char == "e" or not g.size:
        return sum(g, (0, *range(2, g.ndim)))
    # A product takes a quarter of the time of a sum over axes that are not side by side.
    images, results, *counts = g.shape
    places = math.prod(counts)
    rows = matmul(reshape(g, (images * results, places)), np.ones(places, g.dtype))
    return sum(reshape(rows, (images, results)), 0)
