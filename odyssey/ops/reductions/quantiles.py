"""Medians, quantiles and percentiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.device_versions import on_host
from odyssey.devices.half_dtypes import is_floating, is_half
from odyssey.devices.same_device import host_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import (
    equal,
    isnan,
    keep_where,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.half_precision import narrow_half, widen_half
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, moveaxis, reshape, transpose
from odyssey.ops.structure.sorting import sort
from odyssey.spec import Shape, Spec
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import reduced_axes, reduced_shape, result_dtype_of
from odyssey.table.store import numbers_of
from odyssey.table.value import Symbol, Value, is_tracked


class QuantilePosition(NamedTuple):
    """Position of a quantile: the fraction ``share`` of the way from rank ``low`` to ``high``."""

    low: int
    high: int
    share: float


# ------------------------------------------------------------------ ranks along reduced axes


def flatten_reduced_axes(x: Any, axis: Any) -> Any:
    """Move the reduced axes to the end and flatten them into one."""
    folded = reduced_axes("median", axis, len(x.shape), lone=False)
    kept = [k for k in range(len(x.shape)) if k not in folded]
    order = (*kept, *folded)
    moved = x if order == tuple(range(len(order))) else transpose(x, order)
    return reshape(moved, (*(x.shape[k] for k in kept), axes_size(x.shape, folded)))


def axes_size(shape: Shape, axes: tuple[int, ...]) -> int:
    """Return the product of the lengths of some axes."""
    count = 1
    for k in axes:
        count *= shape[k]
    return count


def _restore_reduced_axes(line: Any, x_spec: Spec, axis: Any) -> Any:
    """Undo ``flatten_reduced_axes``."""
    folded = reduced_axes("median", axis, x_spec.ndim, lone=False)
    order = (*(k for k in range(x_spec.ndim) if k not in folded), *folded)
    back = tuple(order.index(k) for k in range(len(order)))
    return transpose(reshape(line, tuple(x_spec.shape[k] for k in order)), back)


def elements_at_ranks(line: Any, places: list[int]) -> list[Any]:
    """Return the elements of given ranks in sorted order; all NaN in a line that has a NaN."""
    n = line.shape[-1]
    if type(line) is np.ndarray:
        ordered = np.partition(line, sorted({*places, n - 1}), -1)
    else:
        ordered = sort(line, -1)
    last = take(ordered, np.array([n - 1]), -1)
    bad = isnan(last)
    return [where(bad, last, take(ordered, np.array([place]), -1)) for place in places]


def _equal_elements(line: Any, value: Any) -> tuple[Any, Any]:
    """Return a mask of the elements equal to a value, with NaN equal to NaN, and their count."""
    # Counts of float16 elements, and their sums, may exceed 65,504.
    dtype = np.dtype(np.float32) if is_half(line.dtype) else line.dtype
    if type(line) is np.ndarray and not np.isnan(value).any():
        found = line == value
        return found, np.count_nonzero(found, -1, keepdims=True).astype(dtype)
    both_nan = logical_and(not_equal(line, line), not_equal(value, value))
    found = logical_or(equal(line, value), both_nan)
    return found, sum(astype(found, dtype), -1, keepdims=True)


def _quantile_weights(
    line: Any, spots: list[QuantilePosition], values: Any = None
) -> Iterator[list[tuple[Any, Any, float]]]:
    """Yield for each position the mask of the elements at its ranks, their count and weight."""
    places = sorted({place for spot in spots for place in spot[:2]})
    found = dict(zip(places, values or elements_at_ranks(line, places), strict=True))
    hits = {place: _equal_elements(line, value) for place, value in found.items()}
    for low, high, share in spots:
        if low == high or share == 0:
            yield [(*hits[low], 1.0)]
        else:
            yield [(*hits[low], 1.0 - share), (*hits[high], share)]


def quantile_vjp(
    g: Any, x: Any, x_spec: Spec, axis: Any, spots: list[QuantilePosition], values: Any = None
) -> Any:
    """Return the cotangent of ``x``, from the cotangents of all positions on a last axis."""
    line, total = flatten_reduced_axes(x, axis), None
    for k, shares in enumerate(_quantile_weights(line, spots, values)):
        part = take(g, np.array([k]), -1)
        for hits, count, weight in shares:
            own = keep_where(div(part if weight == 1 else mul(part, weight), count), hits)
            total = own if total is None else add(total, own)
    total = mul(line, 0) if total is None else narrow_half(total, line.dtype)
    return _restore_reduced_axes(total, x_spec, axis)


def quantile_jvp(
    t: Any, x: Any, axis: Any, spots: list[QuantilePosition], values: Any = None
) -> Any:
    """Return the tangents of all positions, on a first axis."""
    line, moving, parts = (
        flatten_reduced_axes(x, axis),
        flatten_reduced_axes(widen_half(t), axis),
        [],
    )
    for shares in _quantile_weights(line, spots, values):
        total = None
        for hits, count, weight in shares:
            own = div(sum(keep_where(moving, hits), -1, keepdims=True), count)
            own = own if weight == 1 else mul(own, weight)
            total = own if total is None else add(total, own)
        parts.append(reshape(narrow_half(total, t.dtype), line.shape[:-1]))
    return stack(parts) if parts else np.zeros((0, *line.shape[:-1]), t.dtype)


# ------------------------------------------------------------------ median


MEAN = result_dtype_of(np.mean)


def _median_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return order_statistic_spec("median", x, axis, keepdims)


def order_statistic_spec(who: str, x: Spec, axis: Any, keepdims: bool, first: Shape = ()) -> Spec:
    """Return the spec of an order statistic: the dtype of a mean, with axes ``first`` in front."""
    shape = reduced_shape(who, x.shape, axis, keepdims)
    if not axes_size(x.shape, reduced_axes(who, axis, x.ndim, lone=False)):
        raise ShapeError(f"{who}: x {x.shape} has no elements over axis {axis!r} and so no {who}")
    return Spec((*first, *shape), MEAN(x.dtype))


def _median_positions(x: Any, axis: Any) -> list[QuantilePosition]:
    n = axes_size(x.shape, reduced_axes("median", axis, len(x.shape), lone=False))
    return [QuantilePosition((n - 1) // 2, n // 2, 0.0 if n % 2 else 0.5)]


def _median(x: Any, axis: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    _median_spec(Spec(x.shape, x.dtype), axis, keepdims)
    return np.median(x, axis, keepdims=keepdims)


def _median_with_middle(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any] | None:
    """Return the median and, as residual, the one or two middle elements."""
    if x.dtype.char not in "fd" or not x.ndim:
        return None
    shape = _median_spec(Spec(x.shape, x.dtype), axis, keepdims).shape
    low, high, share = _median_positions(x, axis)[0]
    values = elements_at_ranks(flatten_reduced_axes(x, axis), sorted({low, high}))
    middle = (values[0] + values[1]) / 2 if share else values[0]
    return middle.reshape(shape)[()], values


def _decompose_median(x: Any, axis: Any, keepdims: bool) -> Any:
    (low, high, _), dtype = _median_positions(x, axis)[0], MEAN(x.dtype)
    ends = [
        astype(end, dtype) for end in elements_at_ranks(flatten_reduced_axes(x, axis), [low, high])
    ]
    middle = div(add(*ends), 2)
    return reshape(middle, reduced_shape("median", x.shape, axis, keepdims))


def _median_rule(
    g: Any, x: Any, x_spec: Spec, axis: Any, keepdims: bool, residual: Any = None
) -> Any:
    kept = reduced_shape("median", x_spec.shape, axis, False)
    return quantile_vjp(
        reshape(g, (*kept, 1)), x, x_spec, axis, _median_positions(x, axis), residual
    )


def _median_forward(t: Any, x: Any, axis: Any, keepdims: bool, residual: Any = None) -> Any:
    moved = quantile_jvp(t, x, axis, _median_positions(x, axis), residual)
    return reshape(moved, reduced_shape("median", x.shape, axis, keepdims))


KINKS = "equal elements share the gradient evenly; a NaN has it where there is one"
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    selects=True,
    kernel=_median,
    with_residual=_median_with_middle,
    decomposition=_decompose_median,
    numpy=[np.median],
    canonical=canonical_axes,
    infer=_median_spec,
    vjp={"x": _median_rule},
    jvp={"x": _median_forward},
    kinks=KINKS,
    samples=[
        sample((2, 3), spread=True),
        sample((3, 4), axis=0, spread=True),
        sample((2, 3, 3), axis=(0, -1), keepdims=True, spread=True),
        sample(()),
        sample((0, 3), axis=1),
        sample((2, 1), axis=1),
    ],
    rejects=[_NO_AXIS, reject((0, 2), match="and so no median")],
)
def median(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Median over ``axis``: the middle element, or the mean of the two; NaN if one is NaN."""
    return np.median(x, axis, keepdims=keepdims)


METHODS = (
    *("linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "inverted_cdf"),
    *("averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf"),
    *("median_unbiased", "normal_unbiased"),
)


# Methods that select an element.
_ELEMENTS = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")


def _quantile_dtype(x: Any, method: str) -> np.dtype[Any]:
    """Return the dtype of a mean; that of ``x`` where an integer element is selected."""
    return x.dtype if x.dtype.kind in "iu" and method in _ELEMENTS else MEAN(x.dtype)


def _quantile_spec(who: str, x: Spec, q: Any, axis: Any, method: str, keepdims: bool) -> Spec:
    return Spec(
        order_statistic_spec(who, x, axis, keepdims, np.shape(q)).shape, _quantile_dtype(x, method)
    )


def _quantile_options(who: str, most: float) -> Callable[..., tuple[Any, ...]]:
    """Return a ``prepare`` function that makes ``q`` a number or nested tuples of numbers."""

    def prepare_quantile(q: Any, axis: Any, method: Any, keepdims: bool) -> tuple[Any, ...]:
        if method not in METHODS:
            raise SettingError(
                f"{who}: method={format_value(method)}; choose one of {', '.join(METHODS)}"
            )
        return _nested_tuples(static_quantiles(who, q, most).tolist()), axis, method, keepdims

    return prepare_quantile


def static_quantiles(who: str, q: Any, most: float) -> Any:
    """Validate static quantiles and return them as a float64 array, from 0 to ``most``."""
    if isinstance(q, Symbol) or is_tracked(q):
        raise DTypeError(f"{who}: q is {format_value(q)}, but it is static; pass numbers")
    given = host_array(numbers_of(who, q) if isinstance(q, Value) else as_array(who, "q", q))
    if not (given.dtype.kind in "iu" or is_floating(given.dtype)):
        raise DTypeError(f"{who}: q has dtype {given.dtype}; pass real numbers")
    if not ((given >= 0) & (given <= most)).all():
        raise SettingError(f"{who}: q={format_value(q)}; it must lie between 0 and {most:g}")
    return given.astype(np.float64)


def _nested_tuples(numbers: Any) -> Any:
    return tuple(map(_nested_tuples, numbers)) if isinstance(numbers, list) else numbers


def _quantile_infer(who: str) -> Callable[..., Spec]:
    return lambda x, q, axis, method, keepdims: _quantile_spec(who, x, q, axis, method, keepdims)


@on_host
@lru_cache(maxsize=64)
def _quantile_positions(n: int, q: Any, method: str) -> list[QuantilePosition]:
    """Return the positions of quantiles of ``n`` elements: NumPy's quantiles of ``arange(n)``."""
    found = np.quantile(np.arange(n, dtype=np.float64), np.ravel(q), method=method)
    return [QuantilePosition(int(v), min(int(v) + 1, n - 1), v % 1.0) for v in found.tolist()]


@ignore_fp_errors("invalid")
def _quantile(
    who: str, of: Any, scale: float, x: Any, q: Any, axis: Any, method: str, keepdims: bool
) -> Any:
    x = np.asarray(x)
    spec = _quantile_spec(who, Spec(x.shape, x.dtype), q, axis, method, keepdims)
    # NumPy subtracts integers in their dtype, where differences wrap.
    dtype = _quantile_dtype(x, method)
    if x.dtype.kind in "biu":
        x = x.astype(dtype if dtype.kind == "f" else np.int8 if x.dtype.kind == "b" else x.dtype)
    # NumPy computes ranks in the dtype of a scalar q and the array: float16 ends at 65504.
    alone = np.ndim(q) == 0 and not is_half(x.dtype)
    found = of(x, q if alone else np.array(q), axis, method=method, keepdims=keepdims)
    if x.dtype.kind == "f" and np.isnan(found).any() and np.isinf(x).any():
        # NumPy interpolates to an infinite element by 0 * inf, which is NaN.
        found = _decompose_quantile(x, _percent_to_fraction(q, scale), axis, method, keepdims)
    return np.asarray(found).astype(spec.dtype, copy=False)[()]


def _interpolate(low: Any, high: Any, share: float) -> Any:
    """Interpolate from the nearer of two numbers, so that the ends are exact."""
    if share == 0:
        return low
    gap = sub(high, low)
    return add(low, mul(gap, share)) if share < 0.5 else sub(high, mul(gap, 1.0 - share))


def _decompose_quantile(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
    line = flatten_reduced_axes(astype(x, _quantile_dtype(x, method)), axis)
    spots = _quantile_positions(line.shape[-1], q, method)
    places = sorted({place for spot in spots for place in spot[:2]})
    values = dict(zip(places, elements_at_ranks(line, places), strict=True))
    parts = [_interpolate(values[spot.low], values[spot.high], spot.share) for spot in spots]
    kept = reduced_shape("quantile", x.shape, axis, keepdims)
    if not parts:
        return np.zeros((*np.shape(q), *kept), line.dtype)
    return reshape(stack(parts), (*np.shape(q), *kept))


def _quantile_rule(scale: float) -> Callable[..., Any]:
    def rule(g: Any, x: Any, x_spec: Spec, q: Any, axis: Any, method: str) -> Any:
        spots = _positions_of(x, q, axis, method, scale)
        kept = reduced_shape("quantile", x_spec.shape, axis, False)
        lines = moveaxis(reshape(g, (len(spots), *kept)), 0, -1)
        return quantile_vjp(lines, x, x_spec, axis, spots)

    return rule


def _quantile_forward(scale: float) -> Callable[..., Any]:
    def rule(t: Any, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
        moved = quantile_jvp(t, x, axis, _positions_of(x, q, axis, method, scale))
        kept = reduced_shape("quantile", x.shape, axis, keepdims)
        return reshape(moved, (*np.shape(q), *kept))

    return rule


def _positions_of(x: Any, q: Any, axis: Any, method: str, scale: float) -> list[QuantilePosition]:
    n = axes_size(x.shape, reduced_axes("quantile", axis, len(x.shape), lone=False))
    return _quantile_positions(n, _percent_to_fraction(q, scale), method)


def _percent_to_fraction(q: Any, scale: float) -> Any:
    """Convert percentages to fractions."""
    return q if scale == 1 else _nested_tuples((np.asarray(q) / scale).tolist())


def _canonical_quantile(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> tuple[Any, ...]:
    return q, *canonical_axes(x, axis), method, keepdims


def _quantile_row(who: str, scale: float, **more: Any) -> dict[str, Any]:
    """Return the columns that ``quantile`` and ``percentile`` share."""
    cases = [
        sample((2, 3), q=0.3 * scale, spread=True),
        sample((3, 4), q=(0.0, 0.25 * scale, scale), axis=0, spread=True),
        sample(
            (2, 3, 3), q=[[0.1 * scale], [0.8 * scale]], axis=(0, -1), keepdims=True, spread=True
        ),
        sample((5, 2), q=0.7 * scale, axis=0, method="hazen", spread=True),
        sample((5,), q=0.4 * scale, method="averaged_inverted_cdf", spread=True),
        sample((), q=0.5 * scale),
        sample((0, 3), q=0.5 * scale, axis=1),
    ]
    return {
        "real": True,
        "selects": True,
        "canonical": _canonical_quantile,
        "prepare": _quantile_options(who, scale),
        "infer": _quantile_infer(who),
        "vjp": {"x": _quantile_rule(scale)},
        "jvp": {"x": _quantile_forward(scale)},
        "kinks": KINKS,
        "samples": cases,
        "rejects": [
            reject((2, 3), q=0.5, axis=2, match="does not fit an array of 2 axes"),
            reject((0, 2), q=0.5, match=f"and so no {who}"),
            reject((2,), q=scale * 1.5, error=SettingError, match="must lie between"),
            reject((2,), q=0.5, method="best", error=SettingError, match="choose one of linear"),
            reject((2,), q=0.5j, error=DTypeError, match="pass real numbers"),
        ],
        **more,
    }


@op(
    kernel=lambda *given: _quantile("quantile", np.quantile, 1.0, *given),
    numpy=[np.quantile],
    decomposition=_decompose_quantile,
    **_quantile_row("quantile", 1.0),
    precision="wide",
)
def quantile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Quantile ``q`` over ``axis``; NaN if an element is NaN.

    Args:
        x: Array of real numbers.
        q: A number from 0 to 1, or several, whose axes come first in the result; static.
        axis: One axis or several; by default all.
        method: Interpolation between two elements, one of NumPy's thirteen methods.
        keepdims: Whether the reduced axes stay, with length 1.

    >>> float(quantile(np.array([1.0, 2.0, 4.0]), 0.75))
    3.0
    """
    return np.quantile(x, q, axis, method=method, keepdims=keepdims)


@op(
    kernel=lambda *given: _quantile("percentile", np.percentile, 100.0, *given),
    numpy=[np.percentile],
    decomposition=lambda x, q, axis, method, keepdims: quantile(
        x, _percent_to_fraction(q, 100.0), axis, method=method, keepdims=keepdims
    ),
    **_quantile_row("percentile", 100.0),
    precision="wide",
)
def percentile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """Percentile ``q`` over ``axis``: ``quantile`` with ``q`` from 0 to 100."""
    return np.percentile(x, q, axis, method=method, keepdims=keepdims)


publish(globals())
