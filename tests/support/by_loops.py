"""Convolution by loops over every element, from its definition: what the tests compare with."""

import itertools

import numpy as np


def per_axis(value, n):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


def pairs(padding, window, dilation):
    """The zeros before and behind each axis."""
    if padding == "valid":
        return [(0, 0)] * len(window)
    if padding == "same":
        spans = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    given = per_axis(padding, len(window))
    return [p if isinstance(p, (tuple, list)) else (p, p) for p in given]


def taps(count, window, stride, dilation, pads):
    """Each place of a result with each element of a window, and where on the image that is."""
    for place in np.ndindex(*count):
        for tap in np.ndindex(*window):
            at = [
                p * s + k * d - before
                for p, s, k, d, (before, _) in zip(place, stride, tap, dilation, pads, strict=True)
            ]
            yield place, tap, tuple(at)


def links(shape, weight_shape, count, groups, **options):
    """Every product in a convolution: the indices of its result, its image and its weight."""
    samples, channels, *size = shape
    out, part, *window = weight_shape
    for n, (place, tap, at) in itertools.product(
        range(samples), list(taps(count, window, **options))
    ):
        if any(not 0 <= a < length for a, length in zip(at, size, strict=True)):
            continue
        for o, c in itertools.product(range(out), range(part)):
            channel = o // (out // groups) * (channels // groups) + c
            yield (n, o, *place), (n, channel, *at), (o, c, *tap)


def convolution(x, weight, bias=None, *, stride=1, padding=0, dilation=1, groups=1):
    """What ``conv1d``, ``conv2d`` and ``conv3d`` mean."""
    size, window = x.shape[2:], weight.shape[2:]
    stride, dilation = per_axis(stride, len(size)), per_axis(dilation, len(size))
    pads = pairs(padding, window, dilation)
    count = [
        (before + n + after - d * (k - 1) - 1) // s + 1
        for n, k, s, d, (before, after) in zip(size, window, stride, dilation, pads, strict=True)
    ]
    operands = [v for v in (x, weight, bias) if v is not None]
    out = np.zeros((len(x), len(weight), *count), wide(operands))
    options = {"stride": stride, "dilation": dilation, "pads": pads}
    for r, i, w in links(x.shape, weight.shape, count, groups, **options):
        out[r] += out.dtype.type(x[i]) * out.dtype.type(weight[w])
    return biased(out, bias, operands)


def transposed(
    x, weight, bias=None, *, stride=1, padding=0, output_padding=0, dilation=1, groups=1
):
    """What ``conv_transpose1d`` and its kin mean."""
    count, window = x.shape[2:], weight.shape[2:]
    n = len(count)
    stride, dilation = per_axis(stride, n), per_axis(dilation, n)
    pads = pairs(padding, window, dilation)
    size = [
        (c - 1) * s - before - after + d * (k - 1) + more + 1
        for c, k, s, d, (before, after), more in zip(
            count, window, stride, dilation, pads, per_axis(output_padding, n), strict=True
        )
    ]
    operands = [v for v in (x, weight, bias) if v is not None]
    out = np.zeros((len(x), weight.shape[1] * groups, *size), wide(operands))
    options = {"stride": stride, "dilation": dilation, "pads": pads}
    for r, i, w in links(out.shape, weight.shape, count, groups, **options):
        out[i] += out.dtype.type(x[r]) * out.dtype.type(weight[w])
    return biased(out, bias, operands)


def wide(operands):
    """In twice the digits where there are such, and truth values as numbers."""
    return np.result_type(*operands, np.int64 if operands[0].dtype.kind == "b" else np.float64)


def biased(out, bias, operands):
    if bias is not None:
        out = out + bias.reshape(-1, *(1,) * (out.ndim - 2))
    return out.astype(np.result_type(*operands))


FORMULAS = {f"conv_transpose{n}d": transposed for n in (1, 2, 3)}
