"""Weighted means and ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.devices.half_dtypes import is_half, result_type
from odyssey.errors import SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import div, mul, sub
from odyssey.ops.elementwise.choice import not_equal
from odyssey.ops.reductions.reduce import max, mean, min, sum
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.ops.structure.shape import (
    Axes,
    as_operand,
    astype,
    broadcast_to,
    reshape,
    transpose,
)
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, reduced_axes

_FOLDS = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 2), axis=(0, -1), keepdims=True),
    sample((1,), axis=0),
)


@composite(
    numpy=[np.ptp],
    samples=[*_FOLDS, sample(())],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((0,), match="no elements"),
    ],
)
def ptp(a: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Range of values, ``max - min``, over axes.

    Equal largest values, and equal smallest ones, share the derivative evenly.

    Args:
        a: Real array with at least one element.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    Raises:
        ShapeError: if ``a`` lacks an axis or is empty.

    >>> ptp(np.array([[1.0, 4.0], [2.0, 2.0]]), axis=1)
    array([3., 0.])
    """
    a = as_operand("ptp", "a", a)
    axes = reduced_axes("ptp", axis, len(a.shape))
    if not all(a.shape[k] for k in axes):
        raise ShapeError(f"ptp: no elements over axis {axis} of shape {a.shape}")
    top = max(a, axis, keepdims=keepdims)
    return sub(top, min(a, axis, keepdims=keepdims))


# ------------------------------------------------------------------ means

_NOTHING = "average: the weights sum to 0, by which a mean divides; pass others"


@composite(
    numpy=[np.average],
    samples=[
        *_FOLDS,
        sample((2, 3), weights=np.array([0.5, 2.0, 1.5]), axis=1),
        sample((2, 3), weights=np.array([[1.0, 2.0, 0.0], [0.5, 1.0, 3.0]]), keepdims=True),
        sample((2, 3), None, np.array([[1, 2, 3], [4, 5, 6]]), returned=True),
        sample((2, 3), 0, (2,), low=0.5, returned=True),
        sample((2, 3), axis=0, returned=True),
    ],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((2, 3), weights=np.ones(3), match="weights"),
        reject((2, 3), weights=np.ones(2), axis=1, match="weights"),
        reject((2,), weights=np.array([1.0, -1.0]), error=SettingError, match="sum to 0"),
    ],
)
def average(
    a: Any,
    axis: Axes = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """Weighted mean over axes: ``sum(a * weights) / sum(weights)``.

    Args:
        a: Array of any shape.
        axis: One axis or several; by default all.
        weights: Weights in the shape of ``a``, or of its shape along ``axis``; by default all
            equal. The mean has a gradient in them, too.
        returned: Whether to return the sum of the weights as well.
        keepdims: Whether the reduced axes stay, with length 1.

    Returns:
        The mean, or a tuple of it and the sum of the weights, of one shape.

    Raises:
        ShapeError: for weights of another shape. SettingError: for those that sum to 0.

    >>> average(np.array([1.0, 2.0, 6.0]), weights=np.array([1.0, 1.0, 0.5])).item()
    2.4
    """
    a = as_operand("average", "a", a)
    if weights is None:
        found = mean(a, axis, keepdims=keepdims)
        if not returned:
            return found
        size = math.prod(a.shape) / np.maximum(math.prod(found.shape), 1)
        return found, np.full(found.shape, size, found.dtype)
    w = _broadcast_weights(a, axis, as_operand("average", "weights", weights))
    dtype = result_type(a.dtype, w.dtype, *([np.float64] if a.dtype.kind in "biu" else []))
    single = np.dtype(np.float32) if is_half(dtype) else dtype  # float16 sums stop growing at 2048
    if w.dtype != single:
        w = astype(w, single)
    total = sum(w, axis, keepdims=keepdims)
    total = demanded(total, not_equal(total, 0), _NOTHING)
    found = div(sum(mul(a, w), axis, keepdims=keepdims), total)
    if single != dtype:
        found = astype(found, dtype)
        total = astype(total, dtype) if returned else total
    if not returned:
        return found
    return found, total if total.shape == found.shape else broadcast_to(total, found.shape)


def _broadcast_weights(a: Any, axis: Any, w: Any) -> Any:
    """Return the weights in the shape of ``a``, or with length 1 along the other axes."""
    if w.shape == a.shape:
        return w
    if axis is None:
        raise ShapeError(
            f"average: weights {w.shape} for a {a.shape}; without an axis they must be alike"
        )
    ndim = len(a.shape)
    given = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    normalize_axes("average", tuple(given), ndim)
    places = [check_int("average", "axis", k) % ndim for k in given]
    wanted = tuple(a.shape[k] for k in places)
    if w.shape != wanted:
        raise ShapeError(
            f"average: weights {w.shape} for a {a.shape} over axis {axis}; pass {wanted} of them"
        )
    order = sorted(range(len(places)), key=places.__getitem__)
    turned = transpose(w, order) if len(order) > 1 else w
    shape = [n if k in places else 1 for k, n in enumerate(a.shape)]
    full = broadcast_to(reshape(turned, tuple(shape)), a.shape)
    return full


publish(globals())
