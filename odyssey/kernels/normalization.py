"""Normalization of rows and of channels, and its pullbacks.

Blocks are summed in their own dtype and their sums in float64: more exact than pairwise sums. Sums
may be reordered, all else is computed as written. Functions return whether all sums were finite:
reordered sums may overflow. ``centred`` is 1 if the mean is subtracted, else 0. Row r of a matrix
has the weights ``weight[r % len(weight)]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = [
    "channel_moments",
    "channel_norm",
    "channel_pullback",
    "channel_weight_pullback",
    "row_norm",
    "row_pullback",
    "row_weight_pullback",
]

_BLOCK = 512


# NumPy sums fewer numbers than this in order; these loops do so too, to the bit.
_FEW = 8


@loop
def _row_total_of_few(x: Any) -> Any:
    total = x.dtype.type(0)
    for j in range(x.size):
        total += x[j]
    return np.float64(total)


@loop
def _squared_deviations_of_few(x: Any, mean: Any) -> Any:
    total = x.dtype.type(0)
    for j in range(x.size):
        total += (x[j] - mean) * (x[j] - mean)
    return np.float64(total)


@loop(reassociate=True)
def _row_total(x: Any) -> Any:
    if x.size < _FEW:
        return _row_total_of_few(x)
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, block_sum = x[start : start + _BLOCK], x.dtype.type(0)
        for j in range(block.size):
            block_sum += block[j]
        total += block_sum
    return total


@loop(reassociate=True)
def _squared_deviations(x: Any, mean: Any) -> Any:
    """Return the sum of the squares of ``x - mean``."""
    if x.size < _FEW:
        return _squared_deviations_of_few(x, mean)
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, block_sum = x[start : start + _BLOCK], x.dtype.type(0)
        for j in range(block.size):
            block_sum += (block[j] - mean) * (block[j] - mean)
        total += block_sum
    return total


@loop(reassociate=True)
def _deviation_total(x: Any, mean: Any) -> Any:
    """Return the sum of ``x - mean``."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, block_sum = x[start : start + _BLOCK], x.dtype.type(0)
        for j in range(block.size):
            block_sum += block[j] - mean
        total += block_sum
    return total


@loop
def _mean_error_shows(x: Any, mean: Any, squares: Any, n: Any) -> Any:
    """Return whether deviations are so small that the rounding of the mean is part of them."""
    error = mean * (1.5e-5 if x.itemsize == 4 else 2.8e-14)  # 128 units in the last place
    return squares <= n * error * error


@loop(reassociate=True)
def _dot_standardized(g: Any, x: Any, mean: Any, scale: Any) -> Any:
    """Return the sum of ``g * (x - mean) * scale``."""
    total = 0.0
    for start in range(0, x.size, _BLOCK):
        block, h, block_sum = x[start : start + _BLOCK], g[start : start + _BLOCK], x.dtype.type(0)
        for j in range(block.size):
            block_sum += h[j] * ((block[j] - mean) * scale)
        total += block_sum
    return total


@loop
def _all_below(x: Any, most: Any) -> Any:
    """Return whether all elements are smaller in size than ``most``; NaN is not."""
    small, bound = True, x.dtype.type(most)
    for j in range(x.size):
        small &= abs(x[j]) < bound
    return small


@loop
def row_norm(
    x: Any,
    weight: Any,
    bias: Any,
    centred: Any,
    eps: Any,
    most: Any,
    out: Any,
    out_mean: Any,
    out_inverse: Any,
) -> Any:
    """Write rows minus their mean, over their deviation, times ``weight``, plus ``bias``.

    Returns:
        Whether sums were finite, and weight and bias below ``most``.
    """
    n, finite = max(x.shape[1], 1), True
    for k in range(weight.shape[0]):
        finite &= _all_below(weight[k], most)
    for k in range(bias.shape[0]):
        finite &= _all_below(bias[k], most)
    for r in range(x.shape[0]):
        row, to = x[r], out[r]
        w, b = weight[r % weight.shape[0]], bias[r % bias.shape[0]]
        mean = x.dtype.type(_row_total(row) / n if centred else 0.0)
        squares = _squared_deviations(row, mean)
        if centred and _mean_error_shows(row, mean, squares, n):
            mean = x.dtype.type(mean + _deviation_total(row, mean) / n)
            squares = _squared_deviations(row, mean)
        finite &= np.isfinite(mean) and np.isfinite(squares)
        inverse = x.dtype.type(1.0 / np.sqrt(squares / n + eps))
        for j in range(row.size):
            to[j] = (row[j] - mean) * inverse * w[j] + b[j]
        out_mean[r], out_inverse[r] = mean, inverse
    return finite


@loop(reassociate=True)
def _weighted_sums(g: Any, x: Any, mean: Any, scale: Any, weight: Any) -> Any:
    """Return the sum of ``g * weight``, and of its products with ``(x - mean) * scale``."""
    total = dot = 0.0
    for start in range(0, x.size, _BLOCK):
        end = start + _BLOCK
        block, cotangent, w = x[start:end], g[start:end], weight[start:end]
        block_sum = slope = x.dtype.type(0)
        for j in range(block.size):
            h = cotangent[j] * w[j]
            block_sum += h
            slope += h * ((block[j] - mean) * scale)
        total += block_sum
        dot += slope
    return total, dot


@loop
def row_pullback(
    g: Any, x: Any, mean: Any, inverse: Any, weight: Any, centred: Any, out: Any
) -> Any:
    """Write the cotangent of ``x`` for that of ``row_norm``."""
    n, finite = max(x.shape[1], 1), True
    for r in range(x.shape[0]):
        row, cotangent, to, w = x[r], g[r], out[r], weight[r % weight.shape[0]]
        m, scale = mean[r], inverse[r]
        total, dot = _weighted_sums(cotangent, row, m, scale, w)
        shift, slope = x.dtype.type(centred * total / n), x.dtype.type(dot / n)
        for j in range(row.size):
            # Computed again: storing the products of ``_weighted_sums`` would cost more.
            to[j] = (cotangent[j] * w[j] - (row[j] - m) * scale * slope - shift) * scale
        finite &= np.isfinite(total) and np.isfinite(dot)
    return finite


@loop
def row_weight_pullback(g: Any, x: Any, mean: Any, inverse: Any, out: Any) -> None:
    """Add the cotangent of ``weight``; ``out`` has float64 zeros."""
    for r in range(x.shape[0]):
        row, cotangent, to, m, scale = x[r], g[r], out[r % out.shape[0]], mean[r], inverse[r]
        for j in range(row.size):
            to[j] += cotangent[j] * ((row[j] - m) * scale)


@loop
def _channel_sums(x: Any, c: Any, n: Any) -> Any:
    """Return the mean of a channel, and the sum of squared deviations from it."""
    total = squares = 0.0
    for k in range(x.shape[0]):
        total += _row_total(x[k, c])
    mean = x.dtype.type(total / n)
    for k in range(x.shape[0]):
        squares += _squared_deviations(x[k, c], mean)
    if _mean_error_shows(x[0, c], mean, squares, n):
        total = squares = 0.0
        for k in range(x.shape[0]):
            total += _deviation_total(x[k, c], mean)
        mean = x.dtype.type(mean + total / n)
        for k in range(x.shape[0]):
            squares += _squared_deviations(x[k, c], mean)
    return mean, squares


@loop
def channel_moments(x: Any, out_mean: Any, out_variance: Any) -> None:
    """Write mean and variance of channels on axis 1 of three."""
    n = max(x.shape[0] * x.shape[2], 1)
    for c in range(x.shape[1]):
        mean, squares = _channel_sums(x, c, n)
        out_mean[c], out_variance[c] = mean, squares / n


@loop
def channel_norm(
    x: Any, weight: Any, bias: Any, eps: Any, most: Any, out: Any, out_mean: Any, out_inverse: Any
) -> Any:
    """Write channels, on axis 1 of three, minus their mean and over their deviation in the batch.

    Returns:
        Whether sums were finite, and weight and bias below ``most``.
    """
    n = max(x.shape[0] * x.shape[2], 1)
    finite = _all_below(weight, most) and _all_below(bias, most)
    for c in range(x.shape[1]):
        mean, squares = _channel_sums(x, c, n)
        inverse = x.dtype.type(1.0 / np.sqrt(squares / n + eps))
        scale = inverse * weight[c]
        for k in range(x.shape[0]):
            plane, to = x[k, c], out[k, c]
            for j in range(plane.size):
                to[j] = (plane[j] - mean) * scale + bias[c]
        out_mean[c], out_inverse[c] = mean, inverse
        finite &= np.isfinite(mean) and np.isfinite(squares)
    return finite


@loop
def channel_pullback(g: Any, x: Any, mean: Any, inverse: Any, weight: Any, out: Any) -> Any:
    """Write the cotangent of ``x`` for that of ``channel_norm``."""
    n, finite = max(x.shape[0] * x.shape[2], 1), True
    for c in range(x.shape[1]):
        total = dot = 0.0
        for k in range(x.shape[0]):
            total += _row_total(g[k, c])
            dot += _dot_standardized(g[k, c], x[k, c], mean[c], inverse[c])
        scale = inverse[c] * weight[c]
        shift, slope = x.dtype.type(total / n), x.dtype.type(dot / n)
        for k in range(x.shape[0]):
            plane, cotangent, to = x[k, c], g[k, c], out[k, c]
            for j in range(plane.size):
                to[j] = (cotangent[j] - (plane[j] - mean[c]) * inverse[c] * slope - shift) * scale
        finite &= np.isfinite(total) and np.isfinite(dot)
    return finite


@loop
def channel_weight_pullback(g: Any, x: Any, mean: Any, inverse: Any, out: Any) -> None:
    """Write the cotangent of ``weight``."""
    for c in range(x.shape[1]):
        dot = 0.0
        for k in range(x.shape[0]):
            dot += _dot_standardized(g[k, c], x[k, c], mean[c], inverse[c])
        out[c] = dot
