"""Reductions that ignore NaN, which gets no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.half_dtypes import is_floating, is_half, is_inexact
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, maximum, minimum, mul, square, sub
from odyssey.ops.elementwise.choice import greater, isnan, logical_not, where
from odyssey.ops.elementwise.complex_numbers import conj, real
from odyssey.ops.elementwise.rounding import floor, floor_divide
from odyssey.ops.reductions.cumulative import cumprod, cumsum
from odyssey.ops.reductions.product import prod
from odyssey.ops.reductions.quantiles import flatten_reduced_axes, static_quantiles
from odyssey.ops.reductions.reduce import any, max, min, sum
from odyssey.ops.reductions.variance import std_from_variance
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import as_operand, astype, reshape
from odyssey.ops.structure.sorting import sort
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import reduced_shape

_FOLDS = (
    sample((2, 3), low=0.5, spread=True),
    sample((3, 4), axis=0, spread=True),
    sample((2, 3, 2), axis=(0, -1), keepdims=True, spread=True),
)
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")


def _replace_nan(who: str, a: Any, number: float) -> Any:
    """Replace NaN by a number."""
    a = as_operand(who, "a", a)
    if not is_inexact(a.dtype):
        return a
    return where(isnan(a), number, a)


def _count_numbers(a: Any, axis: Any, keepdims: bool) -> Any:
    """Return how many elements are not NaN, in the dtype of a mean."""
    found = logical_not(isnan(a))
    dtype = np.zeros((), a.dtype).real.dtype if is_inexact(a.dtype) else np.dtype(float)
    # Float16 counts to 2048.
    wide = np.float32 if is_half(dtype) else dtype
    return sum(astype(found, wide), axis, keepdims=keepdims)


@composite(numpy=[np.nansum], samples=_FOLDS, rejects=[_NO_AXIS])
def nansum(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over ``axis``, ignoring NaN; 0 if nothing is left.

    Args:
        a: Array.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nansum(np.array([1.0, np.nan, 2.0])))
    3.0
    """
    return sum(_replace_nan("nansum", a, 0), axis, keepdims=keepdims)


@composite(numpy=[np.nanprod], samples=_FOLDS, rejects=[_NO_AXIS])
def nanprod(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Product over ``axis``, ignoring NaN; 1 if nothing is left.

    Args:
        a: Array.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanprod(np.array([3.0, np.nan, 2.0])))
    6.0
    """
    return prod(_replace_nan("nanprod", a, 1), axis, keepdims=keepdims)


_LINES = (
    sample((2, 3), spread=True),
    sample((3, 4), axis=0, spread=True),
    sample((2, 3, 2), axis=-2, spread=True),
)


@composite(numpy=[np.nancumsum], samples=_LINES, rejects=[_NO_AXIS])
def nancumsum(a: Any, axis: int | None = None) -> Any:
    """Cumulative sum along ``axis``, with NaN counted as 0.

    Args:
        a: Array.
        axis: The axis; by default all elements in row-major order.

    >>> nancumsum(np.array([1.0, np.nan, 2.0]))
    array([1., 1., 3.])
    """
    return cumsum(_replace_nan("nancumsum", a, 0), axis)


@composite(numpy=[np.nancumprod], samples=_LINES, rejects=[_NO_AXIS])
def nancumprod(a: Any, axis: int | None = None) -> Any:
    """Cumulative product along ``axis``, with NaN counted as 1.

    Args:
        a: Array.
        axis: The axis; by default all elements in row-major order.

    >>> nancumprod(np.array([3.0, np.nan, 2.0]))
    array([3., 3., 6.])
    """
    return cumprod(_replace_nan("nancumprod", a, 1), axis)


@composite(numpy=[np.nanmean], samples=_FOLDS, rejects=[_NO_AXIS])
def nanmean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Mean over ``axis``, ignoring NaN; NaN if nothing is left.

    Args:
        a: Array.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanmean(np.array([1.0, np.nan, 2.0])))
    1.5
    """
    a = as_operand("nanmean", "a", a)
    wide = astype(a, np.float32) if is_half(a.dtype) else a
    total = sum(_replace_nan("nanmean", wide, 0), axis, keepdims=keepdims)
    mean = div(total, _count_numbers(a, axis, keepdims))
    return astype(mean, a.dtype) if is_half(a.dtype) else mean


@composite(
    numpy=[np.nanvar],
    samples=[*_FOLDS, sample((2, 3), axis=1, ddof=1, spread=True)],
    rejects=[_NO_AXIS],
)
def nanvar(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """Variance over ``axis``, ignoring NaN; NaN if no more than ``ddof`` elements are left.

    Args:
        a: Array.
        axis: One axis or several; by default all.
        ddof: Delta degrees of freedom: the divisor is the count less ``ddof``.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanvar(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return _nan_variance("nanvar", a, axis, ddof, keepdims)


def _nan_variance(who: str, a: Any, axis: Any, ddof: Any, keepdims: bool) -> Any:
    a = as_operand(who, "a", a)
    kind = a.dtype
    if kind.kind in "biu" or is_half(kind):
        a = astype(a, np.float32 if is_half(kind) else np.float64)
    away = sub(a, nanmean(a, axis, keepdims=True))
    away = where(isnan(a), 0, away)
    squares = real(mul(away, conj(away))) if kind.kind == "c" else square(away)
    count = _count_numbers(a, axis, keepdims)
    left = sub(count, ddof)
    left = where(greater(left, 0), left, np.nan)
    found = div(sum(squares, axis, keepdims=keepdims), left)
    return astype(found, kind) if is_half(kind) else found


@composite(
    numpy=[np.nanstd],
    samples=[*_FOLDS, sample((2, 3), axis=1, ddof=1, spread=True)],
    rejects=[_NO_AXIS],
)
def nanstd(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    """Standard deviation over ``axis``, ignoring NaN: the square root of ``nanvar``.

    The derivative is 0 where all elements are equal, as for ``std``.

    Args:
        a: Array.
        axis: One axis or several; by default all.
        ddof: Delta degrees of freedom: the divisor is the count less ``ddof``.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanstd(np.array([1.0, np.nan, 3.0])))
    1.0
    """
    return std_from_variance(_nan_variance("nanstd", a, axis, ddof, keepdims))


# ------------------------------------------------------------------ extremes


def _nan_extreme(who: str, fold: Any, a: Any, number: float, axis: Any, keepdims: bool) -> Any:
    a = as_operand(who, "a", a)
    if a.dtype.kind == "c":
        raise DTypeError(f"{who}: a is {a.dtype}; complex numbers have no order")
    if not is_floating(a.dtype):
        return fold(a, axis, keepdims=keepdims)
    out = fold(_replace_nan(who, a, number), axis, keepdims=keepdims)
    some = any(logical_not(isnan(a)), axis, keepdims=keepdims)
    return where(some, out, np.nan)


@composite(
    numpy=[np.nanmax], samples=_FOLDS, rejects=[_NO_AXIS, reject((0, 2), match="no elements")]
)
def nanmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Largest element over ``axis``, ignoring NaN; NaN if all elements are.

    Args:
        a: Array of real numbers.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanmax(np.array([1.0, np.nan, 2.0])))
    2.0
    """
    return _nan_extreme("nanmax", max, a, -np.inf, axis, keepdims)


@composite(
    numpy=[np.nanmin], samples=_FOLDS, rejects=[_NO_AXIS, reject((0, 2), match="no elements")]
)
def nanmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Smallest element over ``axis``, ignoring NaN; NaN if all elements are.

    Args:
        a: Array of real numbers.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanmin(np.array([1.0, np.nan, 2.0])))
    1.0
    """
    return _nan_extreme("nanmin", min, a, np.inf, axis, keepdims)


# ------------------------------------------------------------------ medians and quantiles


def _sorted_lines(who: str, a: Any, axis: Any) -> tuple[Any, Any]:
    """Return the sorted elements on a last axis, NaN last, and the index of the last number."""
    a = as_operand(who, "a", a)
    if a.dtype.kind == "c":
        raise DTypeError(f"{who}: a is {a.dtype}; complex numbers have no order")
    if not is_floating(a.dtype):
        a = astype(a, np.float64)
    lines = flatten_reduced_axes(a, axis)
    if not lines.shape[-1]:
        raise ShapeError(f"{who}: a {a.shape} has no elements over axis {axis!r}")
    line = sort(lines, -1)
    count = sum(logical_not(isnan(line)), -1, keepdims=True)
    return line, maximum(sub(count, 1), 0)


@composite(
    numpy=[np.nanmedian], samples=_FOLDS, rejects=[_NO_AXIS, reject((0, 2), match="no elements")]
)
def nanmedian(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Median over ``axis``, ignoring NaN; NaN if all elements are.

    Args:
        a: Array of real numbers.
        axis: One axis or several; by default all.
        keepdims: Whether the reduced axes stay, with length 1.

    Returns:
        The median. Of equal elements the one that sorting puts in the middle has the gradient.

    >>> float(nanmedian(np.array([1.0, np.nan, 2.0, 4.0])))
    2.0
    """
    line, last = _sorted_lines("nanmedian", a, axis)
    low = floor_divide(last, 2)
    ends = [take_along_axis(line, k, -1) for k in (low, sub(last, low))]
    found = div(add(*ends), 2)
    return reshape(found, reduced_shape("nanmedian", np.shape(a), axis, keepdims))


def _nan_quantile(who: str, a: Any, shares: Any, axis: Any, method: Any, keepdims: bool) -> Any:
    check_choice(who, "method", method, ("linear",))
    line, last = _sorted_lines(who, a, axis)
    parts = []
    for share in shares.reshape(-1).tolist():
        place = mul(last, share)
        low = floor(place)
        high = minimum(add(low, 1), last)
        whole_places = (astype(k, np.intp) for k in (low, high))
        start, end = (take_along_axis(line, k, -1) for k in whole_places)
        way = astype(sub(place, low), line.dtype)
        gap = mul(sub(end, start), way)
        moved = where(greater(way, 0), gap, 0)  # inf - inf is NaN
        parts.append(add(start, moved))
    shape = reduced_shape(who, np.shape(a), axis, keepdims)
    if not parts:
        return np.zeros((*shares.shape, *shape), line.dtype)
    return reshape(stack(parts), (*shares.shape, *shape))


@composite(
    numpy=[np.nanquantile],
    samples=[
        sample((2, 3), q=0.3, spread=True),
        sample((4, 3), q=0.8, axis=0, spread=True),
        sample((2, 3, 2), q=1.0, axis=(0, -1), keepdims=True, spread=True),
    ],
    rejects=[
        reject((2, 3), q=0.5, axis=2, match="does not fit an array of 2 axes"),
        reject((2,), q=1.5, error=SettingError, match="between 0 and 1"),
    ],
)
def nanquantile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Quantiles over ``axis``, ignoring NaN; NaN if all elements are.

    Args:
        a: Array of real numbers.
        q: A number from 0 to 1, or several, whose axes come first in the result; static.
        axis: One axis or several; by default all.
        method: ``"linear"``; ``quantile`` has the others.
        keepdims: Whether the reduced axes stay, with length 1.

    Returns:
        The quantiles. Of equal elements the one that sorting puts there has the gradient.

    >>> float(nanquantile(np.array([1.0, np.nan, 2.0, 4.0]), 0.75))
    3.0
    """
    return _nan_quantile(
        "nanquantile", a, static_quantiles("nanquantile", q, 1), axis, method, keepdims
    )


@composite(
    numpy=[np.nanpercentile],
    samples=[sample((2, 3), q=30, spread=True), sample((4, 3), q=80.0, axis=0, spread=True)],
    rejects=[reject((2,), q=150, error=SettingError, match="between 0 and 100")],
)
def nanpercentile(
    a: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Percentiles over ``axis``, ignoring NaN: ``nanquantile`` with ``q`` from 0 to 100.

    Args:
        a: Array of real numbers.
        q: A number from 0 to 100, or several, whose axes come first in the result; static.
        axis: One axis or several; by default all.
        method: ``"linear"``; ``percentile`` has the others.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(nanpercentile(np.array([1.0, np.nan, 2.0, 4.0]), 75))
    3.0
    """
    shares = static_quantiles("nanpercentile", q, 100) / 100
    return _nan_quantile("nanpercentile", a, shares, axis, method, keepdims)


publish(globals())
