"""Medians and quantiles: numbers that stand at given places once the elements are in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import as_array
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
from odyssey.ops.structure.half_precision import narrow_float16, widen_float16
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
    """Where a quantile lies: ``share`` of the way from one place to the next."""

    low: int
    high: int
    share: float


# ------------------------------------------------------------------ lines of elements


def flatten_reduced_axes(x: Any, axis: Any, tape: Any = None) -> Any:
    """The elements that are folded into one along the last axis, the other axes before it."""
    folded = reduced_axes("median", axis, len(x.shape), lone=False)
    kept = [k for k in range(len(x.shape)) if k not in folded]
    order = (*kept, *folded)
    moved = x if order == tuple(range(len(order))) else transpose(x, order, tape=tape)
    return reshape(moved, (*(x.shape[k] for k in kept), axes_size(x.shape, folded)), tape=tape)


def axes_size(shape: Shape, axes: tuple[int, ...]) -> int:
    """How many elements some axes hold."""
    count = 1
    for k in axes:
        count *= shape[k]
    return count


def _from_lines(line: Any, x_spec: Spec, axis: Any) -> Any:
    """The transpose of ``as_lines``."""
    folded = reduced_axes("median", axis, x_spec.ndim, lone=False)
    order = (*(k for k in range(x_spec.ndim) if k not in folded), *folded)
    back = tuple(order.index(k) for k in range(len(order)))
    return transpose(reshape(line, tuple(x_spec.shape[k] for k in order)), back)


def elements_at_ranks(line: Any, places: list[int]) -> list[Any]:
    """What stands at each of some places in order; NaN at all in a line that has one."""
    n = line.shape[-1]
    if type(line) is np.ndarray:
        ordered = np.partition(line, sorted({*places, n - 1}), -1)
    else:
        ordered = sort(line, -1)
    last = take(ordered, np.array([n - 1]), -1)
    bad = isnan(last)
    return [where(bad, last, take(ordered, np.array([place]), -1)) for place in places]


def _hits(line: Any, value: Any) -> tuple[Any, Any]:
    """Which elements are a number, a NaN where it is one, and how many those are."""
    # A count of halves, and the sums of which it makes a mean, may be beyond 65,504.
    dtype = np.dtype(np.float32) if line.dtype == np.float16 else line.dtype
    if type(line) is np.ndarray and not np.isnan(value).any():
        found = line == value
        return found, np.count_nonzero(found, -1, keepdims=True).astype(dtype)
    both_nan = logical_and(not_equal(line, line), not_equal(value, value))
    found = logical_or(equal(line, value), both_nan)
    return found, sum(astype(found, dtype), -1, keepdims=True)


def _shares(
    line: Any, spots: list[QuantilePosition], values: Any = None
) -> Iterator[list[tuple[Any, Any, float]]]:
    """For each spot: which elements are at its places, how many those are, and the weight."""
    places = sorted({place for spot in spots for place in spot[:2]})
    found = dict(zip(places, values or elements_at_ranks(line, places), strict=True))
    hits = {place: _hits(line, value) for place, value in found.items()}
    for low, high, share in spots:
        if low == high or share == 0:
            yield [(*hits[low], 1.0)]
        else:
            yield [(*hits[low], 1.0 - share), (*hits[high], share)]


def quantile_vjp(
    g: Any, x: Any, x_spec: Spec, axis: Any, spots: list[QuantilePosition], values: Any = None
) -> Any:
    """The gradient, of the cotangents of all spots on a last axis."""
    line, total = flatten_reduced_axes(x, axis), None
    for k, shares in enumerate(_shares(line, spots, values)):
        part = take(g, np.array([k]), -1)
        for hits, count, weight in shares:
            own = keep_where(div(part if weight == 1 else mul(part, weight), count), hits)
            total = own if total is None else add(total, own)
    total = mul(line, 0) if total is None else narrow_float16(total, line.dtype)
    return _from_lines(total, x_spec, axis)


def quantile_jvp(
    t: Any, x: Any, axis: Any, spots: list[QuantilePosition], values: Any = None
) -> Any:
    """The tangents at all spots, on a first axis."""
    line, moving, parts = (
        flatten_reduced_axes(x, axis),
        flatten_reduced_axes(widen_float16(t), axis),
        [],
    )
    for shares in _shares(line, spots, values):
        total = None
        for hits, count, weight in shares:
            own = div(sum(keep_where(moving, hits), -1, keepdims=True), count)
            own = own if weight == 1 else mul(own, weight)
            total = own if total is None else add(total, own)
        parts.append(reshape(narrow_float16(total, t.dtype), line.shape[:-1]))
    return stack(parts) if parts else np.zeros((0, *line.shape[:-1]), t.dtype)


# ------------------------------------------------------------------ median


MEAN = result_dtype_of(np.mean)


def _median_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return order_statistic_spec("median", x, axis, keepdims)


def order_statistic_spec(who: str, x: Spec, axis: Any, keepdims: bool, first: Shape = ()) -> Spec:
    """What an order statistic gives: in the dtype of a mean, with axes before the others."""
    shape = reduced_shape(who, x.shape, axis, keepdims)
    if not axes_size(x.shape, reduced_axes(who, axis, x.ndim, lone=False)):
        raise ShapeError(f"{who}: x {x.shape} has no elements over axis {axis!r} and so no {who}")
    return Spec((*first, *shape), MEAN(x.dtype))


def _middle(x: Any, axis: Any) -> list[QuantilePosition]:
    n = axes_size(x.shape, reduced_axes("median", axis, len(x.shape), lone=False))
    return [QuantilePosition((n - 1) // 2, n // 2, 0.0 if n % 2 else 0.5)]


def _median(x: Any, axis: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    _median_spec(Spec(x.shape, x.dtype), axis, keepdims)
    return np.median(x, axis, keepdims=keepdims)


def _median_with_middle(x: Any, axis: Any, keepdims: bool) -> tuple[Any, Any] | None:
    """The median, and the one or two elements in the middle, which the rules look for."""
    if x.dtype.char not in "fd" or not x.ndim:
        return None
    shape = _median_spec(Spec(x.shape, x.dtype), axis, keepdims).shape
    low, high, share = _middle(x, axis)[0]
    values = elements_at_ranks(flatten_reduced_axes(x, axis), sorted({low, high}))
    middle = (values[0] + values[1]) / 2 if share else values[0]
    return middle.reshape(shape)[()], values


def _median_in_ops(x: Any, axis: Any, keepdims: bool) -> Any:
    (low, high, _), dtype = _middle(x, axis)[0], MEAN(x.dtype)
    ends = [
        astype(end, dtype) for end in elements_at_ranks(flatten_reduced_axes(x, axis), [low, high])
    ]
    middle = div(add(*ends), 2)
    return reshape(middle, reduced_shape("median", x.shape, axis, keepdims))


def _median_rule(
    g: Any, x: Any, x_spec: Spec, axis: Any, keepdims: bool, residual: Any = None
) -> Any:
    kept = reduced_shape("median", x_spec.shape, axis, False)
    return quantile_vjp(reshape(g, (*kept, 1)), x, x_spec, axis, _middle(x, axis), residual)


def _median_forward(t: Any, x: Any, axis: Any, keepdims: bool, residual: Any = None) -> Any:
    moved = quantile_jvp(t, x, axis, _middle(x, axis), residual)
    return reshape(moved, reduced_shape("median", x.shape, axis, keepdims))


KINKS = "equal elements share the gradient evenly; a NaN has it where there is one"
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    selects=True,
    kernel=_median,
    with_residual=_median_with_middle,
    decomposition=_median_in_ops,
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
    """The element in the middle over ``axis``, or the mean of the two there; NaN if one is NaN."""
    return np.median(x, axis, keepdims=keepdims)


METHODS = (
    *("linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "inverted_cdf"),
    *("averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf"),
    *("median_unbiased", "normal_unbiased"),
)


# Those that choose an element.
_ELEMENTS = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")


def _dtype(x: Any, method: str) -> np.dtype[Any]:
    """That of a mean; but that of the elements where a quantile is one of them."""
    return x.dtype if x.dtype.kind in "iu" and method in _ELEMENTS else MEAN(x.dtype)


def _spec(who: str, x: Spec, q: Any, axis: Any, method: str, keepdims: bool) -> Spec:
    return Spec(order_statistic_spec(who, x, axis, keepdims, np.shape(q)).shape, _dtype(x, method))


def _options(who: str, most: float) -> Callable[..., tuple[Any, ...]]:
    """A ``prepare``: the quantiles as numbers, in tuples where they are on axes."""

    def prepare(q: Any, axis: Any, method: Any, keepdims: bool) -> tuple[Any, ...]:
        if method not in METHODS:
            raise SettingError(f"{who}: method={shown(method)}; choose one of {', '.join(METHODS)}")
        return _nested(static_quantiles(who, q, most).tolist()), axis, method, keepdims

    return prepare


def static_quantiles(who: str, q: Any, most: float) -> Any:
    """Which quantiles are asked for, as an array of float64 from 0 to ``most``."""
    if isinstance(q, Symbol) or is_tracked(q):
        raise DTypeError(f"{who}: q is {shown(q)}, but it is static; pass numbers")
    given = numbers_of(who, q) if isinstance(q, Value) else as_array(who, "q", q)
    if given.dtype.kind not in "iuf":
        raise DTypeError(f"{who}: q has dtype {given.dtype}; pass real numbers")
    if not ((given >= 0) & (given <= most)).all():
        raise SettingError(f"{who}: q={shown(q)}; it must lie between 0 and {most:g}")
    return given.astype(np.float64)


def _nested(numbers: Any) -> Any:
    return tuple(map(_nested, numbers)) if isinstance(numbers, list) else numbers


def _quantile_infer(who: str) -> Callable[..., Spec]:
    return lambda x, q, axis, method, keepdims: _spec(who, x, q, axis, method, keepdims)


@lru_cache(maxsize=64)
def _spots(n: int, q: Any, method: str) -> list[QuantilePosition]:
    """Where quantiles of ``n`` elements lie, as NumPy says of elements that are their places."""
    found = np.quantile(np.arange(n, dtype=np.float64), np.ravel(q), method=method)
    return [QuantilePosition(int(v), min(int(v) + 1, n - 1), v % 1.0) for v in found.tolist()]


@ignore_fp_errors("invalid")
def _quantile(
    who: str, of: Any, scale: float, x: Any, q: Any, axis: Any, method: str, keepdims: bool
) -> Any:
    x = np.asarray(x)
    spec = _spec(who, Spec(x.shape, x.dtype), q, axis, method, keepdims)
    if x.dtype.kind == "b":
        x = x.astype(np.int8)
    # NumPy takes numbers in the array's dtype, and counts places in it: halves end at 65504.
    alone = np.ndim(q) == 0 and x.dtype != np.float16
    found = of(x, q if alone else np.array(q), axis, method=method, keepdims=keepdims)
    if x.dtype.kind == "f" and np.isnan(found).any() and np.isinf(x).any():
        # NumPy goes no way from an element to an infinite one, 0 * inf.
        found = _quantile_in_ops(x, _scaled(q, scale), axis, method, keepdims)
    return np.asarray(found).astype(spec.dtype, copy=False)[()]


def _between(low: Any, high: Any, share: float) -> Any:
    """From one number to the next, from the nearer one: at the end it is the end."""
    if share == 0:
        return low
    way = sub(high, low)
    return add(low, mul(way, share)) if share < 0.5 else sub(high, mul(way, 1.0 - share))


def _quantile_in_ops(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
    line = flatten_reduced_axes(astype(x, _dtype(x, method)), axis)
    spots = _spots(line.shape[-1], q, method)
    places = sorted({place for spot in spots for place in spot[:2]})
    values = dict(zip(places, elements_at_ranks(line, places), strict=True))
    parts = [_between(values[spot.low], values[spot.high], spot.share) for spot in spots]
    kept = reduced_shape("quantile", x.shape, axis, keepdims)
    if not parts:
        return np.zeros((*np.shape(q), *kept), line.dtype)
    return reshape(stack(parts), (*np.shape(q), *kept))


def _quantile_rule(scale: float) -> Callable[..., Any]:
    def rule(g: Any, x: Any, x_spec: Spec, q: Any, axis: Any, method: str) -> Any:
        spots = _spots_of(x, q, axis, method, scale)
        kept = reduced_shape("quantile", x_spec.shape, axis, False)
        lines = moveaxis(reshape(g, (len(spots), *kept)), 0, -1)
        return quantile_vjp(lines, x, x_spec, axis, spots)

    return rule


def _quantile_forward(scale: float) -> Callable[..., Any]:
    def rule(t: Any, x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> Any:
        moved = quantile_jvp(t, x, axis, _spots_of(x, q, axis, method, scale))
        kept = reduced_shape("quantile", x.shape, axis, keepdims)
        return reshape(moved, (*np.shape(q), *kept))

    return rule


def _spots_of(x: Any, q: Any, axis: Any, method: str, scale: float) -> list[QuantilePosition]:
    n = axes_size(x.shape, reduced_axes("quantile", axis, len(x.shape), lone=False))
    return _spots(n, _scaled(q, scale), method)


def _scaled(q: Any, scale: float) -> Any:
    """Percents as shares."""
    return q if scale == 1 else _nested((np.asarray(q) / scale).tolist())


def _spelled(x: Any, q: Any, axis: Any, method: str, keepdims: bool) -> tuple[Any, ...]:
    return q, *canonical_axes(x, axis), method, keepdims


def _row(who: str, scale: float, **more: Any) -> dict[str, Any]:
    """What quantiles and percentiles share."""
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
        "canonical": _spelled,
        "prepare": _options(who, scale),
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
    decomposition=_quantile_in_ops,
    **_row("quantile", 1.0),
)
def quantile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """The number below which a share ``q`` of the elements lies over ``axis``; NaN if one is.

    Args:
        x: Array of real numbers.
        q: A number from 0 to 1, or several, whose axes come first in the result; static.
        axis: An axis, or several; by default all.
        method: What to take between two elements, one of NumPy's thirteen.
        keepdims: Whether the folded axes stay, with length 1.

    >>> float(quantile(np.array([1.0, 2.0, 4.0]), 0.75))
    3.0
    """
    return np.quantile(x, q, axis, method=method, keepdims=keepdims)


@op(
    kernel=lambda *given: _quantile("percentile", np.percentile, 100.0, *given),
    numpy=[np.percentile],
    decomposition=lambda x, q, axis, method, keepdims: quantile(
        x, _scaled(q, 100.0), axis, method=method, keepdims=keepdims
    ),
    **_row("percentile", 100.0),
)
def percentile(
    x: Any, /, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False
) -> Any:
    """``quantile`` with ``q`` in percent, from 0 to 100."""
    return np.percentile(x, q, axis, method=method, keepdims=keepdims)


publish(globals())
