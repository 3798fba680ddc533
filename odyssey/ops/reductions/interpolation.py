"""Binary search and linear interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, format_value
from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.devices.half_dtypes import is_number_dtype, result_type
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, maximum, minimum, mul, neg, sub
from odyssey.ops.elementwise.choice import (
    equal,
    greater,
    isnan,
    keep_where,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.elementwise.rounding import mod
from odyssey.ops.structure.batching import example_specs, flatten_examples, spread
from odyssey.ops.structure.gathering import add_taken, take, take_along_axis
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, reshape
from odyssey.ops.structure.sorting import argsort
from odyssey.spec import Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.store import numbers_of, operand_of
from odyssey.table.value import NUMBERS, Symbol

# ------------------------------------------------------------------ binary search


def _side_option(side: Any) -> tuple[str]:
    return (check_choice("searchsorted", "side", side, ("left", "right")),)


def _searchsorted_spec(a: Spec, v: Any, side: str) -> Spec:
    if a.ndim != 1:
        raise ShapeError(f"searchsorted: a has shape {a.shape}; pass sorted numbers on one axis")
    return Spec(getattr(v, "shape", ()), np.dtype(np.intp))


def _sorts_before(a: Any, v: Any) -> Any:
    """Return whether a number precedes another in sorted order, where NaN comes last."""
    found = less(a, v)
    return logical_or(found, logical_and(equal(a, a), not_equal(v, v)))


def _lower_searchsorted(build: Any, a: Any, v: Any, side: str) -> Any:
    """Lower ``searchsorted`` to a binary search with a fixed number of halvings."""
    dtype = result_type(a.dtype, v.dtype if hasattr(v, "dtype") else np.asarray(v).dtype)
    a, v = build.cast(a, dtype), build.cast(v, dtype)
    place: Any = build.full(v.shape, np.int64)
    for step in reversed([1 << k for k in range(a.size.bit_length())]):
        ahead = add(place, step)
        seen = build.gather(a, [sub(ahead, 1)])
        before = _sorts_before(seen, v) if side == "left" else logical_not(_sorts_before(v, seen))
        place = where(logical_and(before, less_equal(ahead, a.size)), ahead, place)
    return place


def _searchsorted_batch(batch: Batch, a: Any, v: Any, side: str) -> Any:
    """Search each example's own ``a`` by halving, all at once, as the lowering does."""
    spec, _ = example_specs(batch, [a, v])
    if not batch.mapped[0]:
        return searchsorted(a, v, side)
    _searchsorted_spec(spec, v, side)
    v = spread(batch, 1, v)
    dtype = np.result_type(a.dtype, v.dtype)
    a, line = astype(a, dtype), flatten_examples(astype(v, dtype))
    place: Any = np.zeros(line.shape, np.intp)
    n = spec.size
    for step in reversed([1 << k for k in range(n.bit_length())]):
        ahead = add(place, step)
        seen = take_along_axis(a, sub(minimum(ahead, n), 1), 1)
        if side == "left":
            before = _sorts_before(seen, line)
        else:
            before = logical_not(_sorts_before(line, seen))
        place = where(logical_and(before, less_equal(ahead, n)), ahead, place)
    return reshape(place, v.shape)


@op(
    primitive="reduce",
    lowering=_lower_searchsorted,
    numpy=[np.searchsorted],
    prepare=_side_option,
    infer=_searchsorted_spec,
    vmap=_searchsorted_batch,
    samples=[
        sample(np.array([-1.0, 0.0, 0.5]), (2, 3)),
        sample(np.array([-1, 0, 2], np.int8), (), side="right"),
        sample(np.array([]), (2,)),
    ],
    rejects=[
        reject((2, 2), (2,), match="on one axis"),
        reject((2,), (2,), side="middle", error=SettingError, match="choose 'left'"),
    ],
)
def searchsorted(a: Any, v: Any, /, side: str = "left") -> Any:
    """Indices at which to insert ``v`` into the sorted ``a``; a constant."""
    return np.searchsorted(a, v, side)


# ------------------------------------------------------------------ linear interpolation


def _end_values_option(left: Any, right: Any) -> tuple[Any, Any]:
    return _python_number("left", left), _python_number("right", right)


def _python_number(name: str, number: Any) -> Any:
    """Return an option as a Python number, which promotes no dtype; None stays None."""
    if number is None or type(number) in NUMBERS:
        return number
    known = isinstance(number, ARRAY_LIKE) and not number.ndim
    if known and number.dtype.kind != "b" and is_number_dtype(number.dtype):
        return number.item()
    raise DTypeError(f"interp: {name} is {format_value(number)}; it is static, pass a number")


def _interp_spec(x: Spec, xp: Spec, fp: Spec, left: Any, right: Any) -> Spec:
    if len(xp.shape) != 1 or xp.shape != fp.shape or not xp.size:
        raise ShapeError(
            f"interp: xp {xp.shape} and fp {fp.shape}; pass as many values as positions, on one "
            "axis"
        )
    if x.dtype.kind == "c" or xp.dtype.kind == "c":
        raise DTypeError(f"interp: x is {x.dtype} and xp {xp.dtype}; places are real numbers")
    return Spec(x.shape, result_type(x.dtype, xp.dtype, fp.dtype, np.float16))


def _interp_array(x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    x, xp, fp = np.asarray(x), np.asarray(xp), np.asarray(fp)
    x_spec, xp_spec, fp_spec = (Spec(v.shape, v.dtype) for v in (x, xp, fp))
    spec = _interp_spec(x_spec, xp_spec, fp_spec, left, right)
    return np.asarray(np.interp(x, xp, fp, left, right)).astype(spec.dtype, copy=False)[()]


def _bracketing_indices(x: Any, xp: Any) -> tuple[Any, Any]:
    """Return the indices of the points around ``x``; at a point, that point and the next one."""
    last = xp.shape[0] - 1
    after = maximum(minimum(searchsorted(xp, x, side="right"), last), min(1, last))
    return maximum(sub(after, 1), 0), after


def _outside(x: Any, xp: Any) -> tuple[Any, Any]:
    return less(x, take(xp, 0)), greater(x, take(xp, xp.shape[0] - 1))


def _slope_times(g: Any, x: Any, xp: Any, fp: Any) -> Any:
    """Return ``g`` times the slope of the segment around ``x``; 0 outside."""
    if xp.shape[0] == 1:
        return keep_where(g, False)
    before, after = _bracketing_indices(x, xp)
    rise = sub(take(fp, after), take(fp, before))
    slope = div(rise, sub(take(xp, after), take(xp, before)))
    slope = where(isnan(x), np.nan, slope)
    return keep_where(mul(g, slope), logical_not(logical_or(*_outside(x, xp))))


def _right_weight(x: Any, xp: Any) -> Any:
    """Return the weight of the point to the right of ``x``."""
    if xp.shape[0] == 1:
        return 1.0
    before, after = _bracketing_indices(x, xp)
    start = take(xp, before)
    run = sub(take(xp, after), start)
    # The last two points may have equal x, where the last one has the value.
    share = where(equal(run, 0), 1, div(sub(x, start), where(equal(run, 0), 1, run)))
    below, above = _outside(x, xp)
    return where(below, 0, where(above, 1, share))


def _xp_vjp(g: Any, x: Any, xp: Any, spec: Spec) -> Any:
    before, after = _bracketing_indices(x, xp)
    share = _right_weight(x, xp)
    first = add_taken(mul(g, sub(1, share)), before, spec=spec)
    return add(first, add_taken(mul(g, share), after, spec=spec))


def _fp_vjp(g: Any, x: Any, xp: Any, fp_spec: Spec, left: Any, right: Any) -> Any:
    below, above = _outside(x, xp)
    if left is not None:
        g = keep_where(g, logical_not(below))
    if right is not None:
        g = keep_where(g, logical_not(above))
    return _xp_vjp(g, x, xp, fp_spec)


def _fp_jvp(t: Any, x: Any, xp: Any, left: Any, right: Any) -> Any:
    ends = [None if end is None else 0.0 for end in (left, right)]
    return piecewise_linear(x, xp, t, left=ends[0], right=ends[1])


def _interpolate_inside(x: Any, xp: Any, fp: Any) -> Any:
    """Interpolate as NumPy: the value at a point; from the other end where one end gives NaN."""
    before, after = _bracketing_indices(x, xp)
    start, low = take(xp, before), take(fp, before)
    end, high = take(xp, after), take(fp, after)
    slope = div(sub(high, low), sub(end, start))
    inner = add(mul(slope, sub(x, start)), low)
    if inner.dtype.kind != "c":
        other = add(mul(slope, sub(x, end)), high)
        other = where(logical_and(isnan(other), equal(low, high)), low, other)
        inner = where(isnan(inner), other, inner)
    inner = where(
        equal(x, end), high, where(equal(x, start), low, inner)
    )  # the last of equal points
    return where(isnan(x), x, inner)


def _decompose_interp(x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    x, xp, fp = (  # truth values have no differences
        astype(v, np.int8) if getattr(v, "dtype", None) == np.bool_ else v for v in (x, xp, fp)
    )
    first, last = take(fp, 0), take(fp, xp.shape[0] - 1)
    inner = add(first, mul(0.0, sub(x, take(xp, 0))))
    if xp.shape[0] > 1:
        inner = _interpolate_inside(x, xp, fp)
    below, above = _outside(x, xp)
    inner = where(below, first if left is None else left, inner)
    return where(above, last if right is None else right, inner)


_POINTS = np.array([-1.5, -0.5, 0.25, 1.25], np.float16)


def _interp_batch(batch: Batch, x: Any, xp: Any, fp: Any, left: Any, right: Any) -> Any:
    if batch.mapped[1] or batch.mapped[2]:
        return NotImplemented
    return piecewise_linear(x, xp, fp, left=left, right=right)


@op(
    kernel=_interp_array,
    decomposition=_decompose_interp,
    prepare=_end_values_option,
    canonical=lambda x, xp, fp, *ends: tuple(float(v) if type(v) is int else v for v in ends),
    infer=_interp_spec,
    vjp={
        "x": _slope_times,
        "xp": lambda g, x, xp, fp, xp_spec: neg(
            _xp_vjp(_slope_times(g, x, xp, fp), x, xp, xp_spec)
        ),
        "fp": _fp_vjp,
    },
    jvp={
        "x": lambda t, x, xp, fp: _slope_times(t, x, xp, fp),
        "xp": lambda t, x, xp, fp: neg(_slope_times(piecewise_linear(x, xp, t), x, xp, fp)),
        "fp": _fp_jvp,
    },
    vmap=_interp_batch,
    kinks="at a point the slope of the line to its right, at the last that of the last line; "
    "0 outside",
    samples=[
        sample((7,), _POINTS, (4,)),
        sample((2, 3), _POINTS, (4,), left=-1.0),
        sample((), _POINTS, (4,), right=2),
        sample((2,), np.zeros(1, np.float16), (1,)),
        sample((0,), _POINTS, (4,)),
    ],
    rejects=[
        reject((3,), (2,), (3,), match="as many values as positions"),
        reject((3,), (0,), (0,), match="as many values as positions"),
        reject(np.array([1j]), (2,), (2,), error=DTypeError, match="places are real"),
        reject((3,), (2,), (2,), left="0", error=DTypeError, match="pass a number"),
    ],
)
def piecewise_linear(
    x: Any, xp: Any, fp: Any, /, *, left: float | None = None, right: float | None = None
) -> Any:
    """Linear interpolation of the points ``(xp, fp)`` at ``x``; outside them the end values."""
    return _interp_array(x, xp, fp, left, right)


@composite(
    numpy=[np.interp],
    samples=[
        sample((2, 3), np.array([-1.0, 0.1, 1.0]), (3,)),
        sample((4,), np.array([-1.0, 1.0]), (2,), left=0.5, right=3),
        sample((), np.array([0.3, -0.2, 2.1]), (3,), period=1.5),
        sample((0,), np.array([0.0]), (1,)),
    ],
    rejects=[reject((2,), (3,), (2,), match="as many|fit")],
)
def interp(
    x: Any,
    xp: Any,
    fp: Any,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
) -> Any:
    """Linear interpolation between points, in double precision as ``np.interp``.

    Args:
        x: Where to interpolate, an array of any shape.
        xp: The x-coordinates of the points, increasing unless there is a ``period``.
        fp: The values at the points, real or complex.
        left: The value below the first point; by default the first value.
        right: The value above the last point, likewise.
        period: Period of the x-coordinates; ``left`` and ``right`` are then ignored.

    Returns:
        The values at ``x``, in its shape, with gradients in ``x``, ``xp`` and ``fp``.

    Raises:
        ShapeError: if ``xp`` and ``fp`` differ in length. DTypeError: for complex coordinates.

    >>> interp(np.array([0.5, 3.0]), np.array([0.0, 1.0]), np.array([2.0, 4.0]))
    array([3., 4.])
    """
    x, xp, fp = (_to_float64(v) for v in (x, xp, fp))
    if period is None:
        return piecewise_linear(x, xp, fp, left=left, right=right)
    period = abs(_python_number("period", period))
    if not period:
        raise ShapeError("interp: period is 0, by which it divides; pass another number")
    x, xp = mod(x, period), mod(xp, period)
    order = _sort_order(xp)
    xp, fp = take(xp, order), take(fp, order)
    first, last = np.array([0]), np.array([xp.shape[0] - 1])
    before = sub(take(xp, last), period)
    after = add(take(xp, first), period)
    values = [take(fp, last), fp, take(fp, first)]
    places = concatenate([before, xp, after])
    return piecewise_linear(x, places, concatenate(values))


def _sort_order(xp: Any) -> Any:
    data = operand_of(xp)
    return argsort(data) if isinstance(data, Symbol) else np.argsort(numbers_of("interp", xp))


def _to_float64(v: Any) -> Any:
    v = v if hasattr(v, "dtype") else np.asarray(v)
    double = np.dtype(np.complex128 if v.dtype.kind == "c" else np.float64)
    return v if v.dtype == double else astype(v, double)


publish(globals())
