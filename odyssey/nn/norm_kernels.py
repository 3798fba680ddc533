"""The compiled loops of normalization, for arrays that lie in rows, or in channels of a batch.

Rows are normalized along their last axes, as by layer norm, group norm and instance norm; channels
along all axes but the second, as by batch norm.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.errors import DeviceError, OdysseyError
from odyssey.kernels.sizes import SIZES
from odyssey.spec import Array, Shape
from odyssey.table.choosing import FACTOR, is_brief
from odyssey.table.shape_rules import normalize_axes

__all__ = [
    "LOOPED",
    "batch_moments",
    "in_loops",
    "norm_fits",
    "norm_in_loops",
    "pulled",
    "pulled_from",
    "pulled_in_loops",
    "rms_fits",
    "rms_in_loops",
    "scaled",
    "standardized",
    "weight_in_loops",
    "weight_pulled_in_loops",
]

# What a residual of the loops has in the place of what was standardized.
LOOPED = 1

# Shorter runs do not vectorize, and NumPy is the faster.
_RUN = 8


# ------------------------------------------------------------------ which calls


def _lies(x: Any, axis: Any) -> tuple[str, int]:
    """How what is normalized together lies: in rows, behind so many axes, or in channels."""
    ndim = x.ndim
    if axis == -1 and ndim:
        return "rows", ndim - 1
    try:
        axes = normalize_axes("axis", axis, ndim)
    except OdysseyError:  # which the op reports, in its name
        return "", 0
    if axes and axes == tuple(range(axes[0], ndim)):
        # Few numbers along several axes NumPy sums in another order than these loops.
        few = len(axes) > 1 and math.prod(x.shape[axes[0] :]) < _RUN
        return ("", 0) if few else ("rows", axes[0])
    if ndim > 2 and axes == (0, *range(2, ndim)) and math.prod(x.shape[2:]) >= _RUN:
        return "channels", 1
    return "", 0


def _fits(x: Any, weights: tuple[Any, ...], axis: Any) -> bool:
    if x.dtype.char not in "fd" or any(v is not None and v.dtype != x.dtype for v in weights):
        return False
    how, _ = _lies(x, axis)
    return how == "rows" or (
        how == "channels" and all(v is None or _by_channel(x, v.shape) for v in weights)
    )


def _pullback_fits(g: Any, x: Any, moments: tuple[Any, ...], axis: Any) -> bool:
    """Whether what comes back fits a call that fits: the loops trust the shapes."""
    wanted = x.dtype, _shape_of_moments(x, *_lies(x, axis))
    known = g.dtype == x.dtype and g.shape == x.shape
    return known and all(v is None or (v.dtype, v.shape) == wanted for v in moments)


def _by_channel(x: Any, shape: Shape) -> bool:
    """Whether a weight of this shape has a number for each channel, and nothing else."""
    return shape == (x.shape[1], *[1] * (x.ndim - 2))


def in_loops(*given: Any) -> bool:
    """Whether loops take a call of ``norm_pullback``."""
    g, x, inverse, mean, weight, axis = given
    if not _fits(x, (weight,), axis) or not _pullback_fits(g, x, (inverse, mean), axis):
        return False
    return mean is not None or _lies(x, axis)[0] == "rows"


def norm_fits(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> bool:
    """Whether loops take a call of ``layer_norm``."""
    return _fits(x, (weight, bias), axis)


def rms_fits(x: Any, weight: Any, axis: Any, eps: float) -> bool:
    """Whether loops take a call of ``rms_norm``."""
    return _fits(x, (weight,), axis) and _lies(x, axis)[0] == "rows"


def weight_in_loops(*given: Any) -> bool:
    """Whether loops take a call of ``norm_weight_pullback``."""
    g, x, inverse, mean, axis, shape = given
    if not _fits(x, (), axis) or not _pullback_fits(g, x, (inverse, mean), axis):
        return False
    if _lies(x, axis)[0] == "rows":
        return True
    return mean is not None and _by_channel(x, shape)


# ------------------------------------------------------------------ as the loops take it


def _matrix(x: Array, lead: int) -> Array:
    if x.ndim == 2 and lead == 1:
        return x
    return x.reshape(math.prod(x.shape[:lead]), math.prod(x.shape[lead:]))


def _channels(x: Array) -> Array:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _rows_of(v: Any, x: Array, lead: int, fill: float) -> Array:
    """A weight as rows, of which row r of ``x`` has that of r modulo their number."""
    if v is None:
        return np.full((1, math.prod(x.shape[lead:])), fill, x.dtype)
    if v.shape == x.shape[lead:]:
        return v.reshape(1, v.size)
    first = min(x.ndim - v.ndim, lead)
    full = np.ascontiguousarray(np.broadcast_to(v, x.shape[first:]))
    return full.reshape(-1, math.prod(x.shape[lead:])) if full.size else full.reshape(1, -1)


def _numbers_of(v: Any, x: Array, fill: float) -> Array:
    return np.full(x.shape[1], fill, x.dtype) if v is None else np.ascontiguousarray(v).reshape(-1)


# Roots of the largest numbers.
_TAME = {"f": 1e19, "d": 1e154}


def _is_tame(weight: Any) -> bool:
    """Whether what is standardized stays finite, times ``weight`` or plus it."""
    if weight is None or not weight.size:
        return True
    most = _TAME[weight.dtype.char]
    return bool(weight.max() < most and weight.min() > -most)


def _shape_of_moments(x: Any, how: str, lead: int) -> Shape:
    if how == "rows":
        return (*x.shape[:lead], *[1] * (x.ndim - lead))
    return (1, x.shape[1], *[1] * (x.ndim - 2))


# ------------------------------------------------------------------ by NumPy


def _count(x: Array, axes: tuple[int, ...]) -> int:
    """How many elements are taken together; 1 where there are none."""
    return max(x.shape[axes[0]] if len(axes) == 1 else math.prod([x.shape[k] for k in axes]), 1)


# Arrays without axes: with numbers of Python calls of NumPy on small arrays take twice as long.
@lru_cache(maxsize=256)
def _numbers(n: int, eps: float, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
    return np.asarray(n, dtype), np.asarray(eps, dtype), np.asarray(1, dtype)


def standardized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """``x`` less its mean, over its deviation; one over that, and the mean."""
    n, least, one = _numbers(_count(x, axes), eps, x.dtype)
    mean = np.add.reduce(x, axes, keepdims=True)
    mean /= n
    unit = x - mean
    spread = np.add.reduce(np.square(unit), axes, keepdims=True)
    spread /= n
    spread += least
    inverse = one / np.sqrt(spread)
    unit *= inverse
    return unit, inverse, mean


def scaled(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Any]:
    """``x`` over the root of its mean square; one over that, and no mean."""
    n, least, one = _numbers(_count(x, axes), eps, x.dtype)
    spread = np.add.reduce(np.square(x), axes, keepdims=True)
    spread /= n
    spread += least
    inverse = one / np.sqrt(spread)
    return x * inverse, inverse, None


def pulled_from(g: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any) -> Array:
    """The cotangent of ``x`` for that of the result, from its moments."""
    g, x = _wide(g), _wide(x)
    unit = (x if mean is None else x - mean) * inverse
    g = g if weight is None else g * _wide(weight)
    return pulled(g, unit, inverse, normalize_axes("axis", axis, x.ndim), mean is not None)


def _wide(v: Any) -> Any:
    return v.astype(np.float32) if v.dtype == np.float16 else v


def pulled(g: Array, unit: Array, inverse: Array, axes: tuple[int, ...], centred: bool) -> Array:
    """The cotangent of ``x`` for that of ``unit``, which is ``x`` standardized."""
    along = np.add.reduce(g * unit, axes, keepdims=True)
    n, _, _ = _numbers(_count(unit, axes), 0.0, along.dtype)
    along /= n
    out = unit * along
    out = np.subtract(g, out, out) if out.ndim else g - out
    if centred:
        total = np.add.reduce(g, axes, keepdims=True)
        total /= n
        out -= total
    out *= inverse
    return out


# ------------------------------------------------------------------ in loops


def norm_in_loops(
    x: Array, weight: Any, bias: Any, axis: Any, eps: float, centred: bool = True
) -> tuple[Array, tuple[Any, ...]]:
    """The result of ``layer_norm``, and its residual."""
    from odyssey.kernels import norms

    x = np.ascontiguousarray(x)
    how, lead = _lies(x, axis)
    shape, dtype = _shape_of_moments(x, how, lead), x.dtype
    out, mean, inverse = np.empty(x.shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)
    ends, most = (mean.reshape(-1), inverse.reshape(-1)), _TAME[dtype.char]
    if how == "rows":
        given = _rows_of(weight, x, lead, 1.0), _rows_of(bias, x, lead, 0.0), int(centred)
        usual = norms.row_norm(_matrix(x, lead), *given, eps, most, _matrix(out, lead), *ends)
    else:
        numbers = _numbers_of(weight, x, 1.0), _numbers_of(bias, x, 0.0)
        usual = norms.channel_norm(_channels(x), *numbers, eps, most, _channels(out), *ends)
    if not usual:
        tame = _is_tame(weight) and _is_tame(bias)
        axes = normalize_axes("axis", axis, x.ndim)
        unit, theirs, middle = (standardized if centred else scaled)(x, axes, eps)
        unit = unit if weight is None else unit * weight
        # Squares, or numbers, without a sum; or all, where the last place decides of infinity.
        lost = ~(np.isfinite(mean) & (inverse > 0) & tame)
        np.copyto(out, unit if bias is None else unit + bias, where=lost)
        np.copyto(inverse, theirs, where=lost)
        np.copyto(mean, 0 if middle is None else middle, where=lost)
    return out, (inverse, mean if centred else None, LOOPED)


def batch_moments(x: Any) -> tuple[Array, Array] | None:
    """Means and variances of the channels of a large batch, in loops; None where NumPy is to."""
    from odyssey.kernels import norms

    large = type(x) is np.ndarray and x.size >= SIZES["layer_norm"] * FACTOR[0]
    large = large and not is_brief()
    if not large or x.dtype.char not in "fd" or _lies(x, (0, *range(2, x.ndim)))[0] != "channels":
        return None
    mean, variance = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    try:
        norms.channel_moments(_channels(np.ascontiguousarray(x)), mean, variance)
    except DeviceError:  # numba is not here
        return None
    return mean, variance


def rms_in_loops(x: Array, weight: Any, axis: Any, eps: float) -> tuple[Array, tuple[Any, ...]]:
    """The result of ``rms_norm``, and its residual."""
    return norm_in_loops(x, weight, None, axis, eps, centred=False)


def pulled_in_loops(g: Array, x: Array, inverse: Array, mean: Any, weight: Any, axis: Any) -> Array:
    """The same as ``norm_pullback``."""
    from odyssey.kernels import norms

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    out, ends = np.empty(x.shape, x.dtype), _ends(mean, inverse)
    how, lead = _lies(x, axis)
    if how == "rows":
        given = _rows_of(weight, x, lead, 1.0), int(mean is not None), _matrix(out, lead)
        finite = norms.row_pullback(_matrix(g, lead), _matrix(x, lead), *ends, *given)
    else:
        numbers = _numbers_of(weight, x, 1.0)
        finite = norms.channel_pullback(_channels(g), _channels(x), *ends, numbers, _channels(out))
    if not finite:
        lost = ~np.isfinite(out).all(normalize_axes("axis", axis, x.ndim), keepdims=True)
        np.copyto(out, pulled_from(g, x, inverse, mean, weight, axis), where=lost)
    return out


def weight_pulled_in_loops(
    g: Array, x: Array, inverse: Array, mean: Any, axis: Any, shape: Shape
) -> Array:
    """The same as ``norm_weight_pullback``."""
    from odyssey.kernels import norms

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    how, lead = _lies(x, axis)
    ends = _ends(mean, inverse)
    if how == "channels":
        out = np.empty(x.shape[1], x.dtype)
        norms.channel_weight_pullback(_channels(g), _channels(x), *ends, out)
        return out.reshape(shape)
    first = min(x.ndim - len(shape), lead)
    full = x.shape[first:]
    count = math.prod(x.shape[first:lead])
    sums = np.zeros((count, math.prod(x.shape[lead:])))
    if x.size:
        norms.row_weight_pullback(_matrix(g, lead), _matrix(x, lead), *ends, sums)
    axes = tuple(k for k, n in enumerate((1,) * (len(full) - len(shape)) + shape) if n != full[k])
    folded = np.add.reduce(sums.reshape(full), axes, keepdims=True) if axes else sums
    return folded.reshape(shape).astype(x.dtype)


def _ends(mean: Any, inverse: Array) -> tuple[Array, Array]:
    inverse = inverse.reshape(-1)
    return (np.zeros_like(inverse) if mean is None else mean.reshape(-1)), inverse
