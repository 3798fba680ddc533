"""Medians and quantiles: numbers that stand at given places once the elements are in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul
from odyssey.ops.elementwise.choice import (
    equal,
    isnan,
    keep_where,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.folds.reductions import sum
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.precision import halved, wide
from odyssey.ops.structure.shape import astype, reshape, transpose
from odyssey.ops.structure.sorting import sort
from odyssey.spec import Shape, Spec
from odyssey.table.canonical import folded
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import folded_axes, made_by, reduced_shape


class Between(NamedTuple):
    """Where a quantile lies: ``share`` of the way from one place to the next."""

    low: int
    high: int
    share: float


# ------------------------------------------------------------------ lines of elements


def as_lines(x: Any, axis: Any, tape: Any = None) -> Any:
    """The elements that are folded into one along the last axis, the other axes before it."""
    folded = folded_axes("median", axis, len(x.shape), lone=False)
    kept = [k for k in range(len(x.shape)) if k not in folded]
    order = (*kept, *folded)
    moved = x if order == tuple(range(len(order))) else transpose(x, order, tape=tape)
    return reshape(moved, (*(x.shape[k] for k in kept), count_of(x.shape, folded)), tape=tape)


def count_of(shape: Shape, axes: tuple[int, ...]) -> int:
    """How many elements some axes hold."""
    count = 1
    for k in axes:
        count *= shape[k]
    return count


def _from_lines(line: Any, x_spec: Spec, axis: Any) -> Any:
    """The transpose of ``as_lines``."""
    folded = folded_axes("median", axis, x_spec.ndim, lone=False)
    order = (*(k for k in range(x_spec.ndim) if k not in folded), *folded)
    back = tuple(order.index(k) for k in range(len(order)))
    return transpose(reshape(line, tuple(x_spec.shape[k] for k in order)), back)


def standing_at(line: Any, places: list[int]) -> list[Any]:
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
    line: Any, spots: list[Between], values: Any = None
) -> Iterator[list[tuple[Any, Any, float]]]:
    """For each spot: which elements are at its places, how many those are, and the weight."""
    places = sorted({place for spot in spots for place in spot[:2]})
    found = dict(zip(places, values or standing_at(line, places), strict=True))
    hits = {place: _hits(line, value) for place, value in found.items()}
    for low, high, share in spots:
        if low == high or share == 0:
            yield [(*hits[low], 1.0)]
        else:
            yield [(*hits[low], 1.0 - share), (*hits[high], share)]


def pulled(
    g: Any, x: Any, x_spec: Spec, axis: Any, spots: list[Between], values: Any = None
) -> Any:
    """The gradient, of the cotangents of all spots on a last axis."""
    line, total = as_lines(x, axis), None
    for k, shares in enumerate(_shares(line, spots, values)):
        part = take(g, np.array([k]), -1)
        for hits, count, weight in shares:
            own = keep_where(div(part if weight == 1 else mul(part, weight), count), hits)
            total = own if total is None else add(total, own)
    total = mul(line, 0) if total is None else halved(total, line.dtype)
    return _from_lines(total, x_spec, axis)


def pushed(t: Any, x: Any, axis: Any, spots: list[Between], values: Any = None) -> Any:
    """The tangents at all spots, on a first axis."""
    line, moving, parts = as_lines(x, axis), as_lines(wide(t), axis), []
    for shares in _shares(line, spots, values):
        total = None
        for hits, count, weight in shares:
            own = div(sum(keep_where(moving, hits), -1, keepdims=True), count)
            own = own if weight == 1 else mul(own, weight)
            total = own if total is None else add(total, own)
        parts.append(reshape(halved(total, t.dtype), line.shape[:-1]))
    return stack(parts) if parts else np.zeros((0, *line.shape[:-1]), t.dtype)


# ------------------------------------------------------------------ median


MEAN = made_by(np.mean)


def _median_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    return folded_spec("median", x, axis, keepdims)


def folded_spec(who: str, x: Spec, axis: Any, keepdims: bool, first: Shape = ()) -> Spec:
    """What an order statistic gives: in the dtype of a mean, with axes before the others."""
    shape = reduced_shape(who, x.shape, axis, keepdims)
    if not count_of(x.shape, folded_axes(who, axis, x.ndim, lone=False)):
        raise ShapeError(f"{who}: x {x.shape} has no elements over axis {axis!r} and so no {who}")
    return Spec((*first, *shape), MEAN(x.dtype))


def _middle(x: Any, axis: Any) -> list[Between]:
    n = count_of(x.shape, folded_axes("median", axis, len(x.shape), lone=False))
    return [Between((n - 1) // 2, n // 2, 0.0 if n % 2 else 0.5)]


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
    values = standing_at(as_lines(x, axis), sorted({low, high}))
    middle = (values[0] + values[1]) / 2 if share else values[0]
    return middle.reshape(shape)[()], values


def _median_in_ops(x: Any, axis: Any, keepdims: bool) -> Any:
    (low, high, _), dtype = _middle(x, axis)[0], MEAN(x.dtype)
    ends = [astype(end, dtype) for end in standing_at(as_lines(x, axis), [low, high])]
    middle = div(add(*ends), 2)
    return reshape(middle, reduced_shape("median", x.shape, axis, keepdims))


def _median_rule(
    g: Any, x: Any, x_spec: Spec, axis: Any, keepdims: bool, residual: Any = None
) -> Any:
    kept = reduced_shape("median", x_spec.shape, axis, False)
    return pulled(reshape(g, (*kept, 1)), x, x_spec, axis, _middle(x, axis), residual)


def _median_forward(t: Any, x: Any, axis: Any, keepdims: bool, residual: Any = None) -> Any:
    moved = pushed(t, x, axis, _middle(x, axis), residual)
    return reshape(moved, reduced_shape("median", x.shape, axis, keepdims))


KINKS = "equal elements share the gradient evenly; a NaN has it where there is one"
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    masks=True,
    kernel=_median,
    with_residual=_median_with_middle,
    equals=_median_in_ops,
    numpy=[np.median],
    canonical=folded,
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


publish(globals())
