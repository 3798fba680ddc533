"""The standard deviation, also of numbers whose squares or sums are beyond their dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import div, mul, neg, sub
from odyssey.ops.elementwise.choice import greater, isfinite, where
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.complex_numbers import absolute, conj, real
from odyssey.ops.elementwise.elementary import exp2, log2, sqrt
from odyssey.ops.elementwise.rounding import floor
from odyssey.ops.folds.reductions import mean, sum
from odyssey.ops.folds.spreading import count, spread
from odyssey.ops.folds.statistics import (
    MOMENTS,
    NO_AXIS,
    NO_NUMBER,
    freedom,
    mean_square,
    moment_infer,
    share_of,
    spelled_moment,
    var_in_ops,
)
from odyssey.ops.structure.precision import halved, in_single, wide
from odyssey.ops.structure.shape import reshape
from odyssey.quiet import unwarned
from odyssey.spec import Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import APART, PAIRS, sample
from odyssey.table.shape_rules import reduced_shape
from odyssey.table.store import operand_of
from odyssey.table.value import Value

_divide = unwarned("invalid")(np.divide)


def _over_length(x: Any, length: Any) -> Any:
    if np.all(length):
        return np.divide(x, length)
    out = _divide(x, length)
    return np.where(np.equal(x, 0) & np.equal(length, 0), out.dtype.type(0), out)[()]


@op(
    elementwise=True,
    kernel=_over_length,
    equals=lambda x, length: div(x, length),
    scalar=lambda x, length: select((x == T(0)) & (length == T(0)), T(0), x / length),
    vjp={
        "x": lambda g, length: div(g, length),
        "length": lambda g, length, out: neg(div(mul(g, out), length)),
    },
    kinks="at (0, 0) inf in x, NaN in length",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[APART],
)
def over_length(x: Any, length: Any, /) -> Any:
    """Elementwise ``x / length``, for what is at most as long: 0 where both are 0."""
    return _over_length(x, length)


_SMALL = 2.0**-64


def _middle(x: Any, axis: Any) -> Any:
    """The mean, of numbers too whose sum is beyond their dtype."""
    middle = mean(x, axis, keepdims=True)
    if _all_known(middle, np.isfinite):
        return middle
    small = mean(mul(x, _SMALL), axis, keepdims=True)
    return where(isfinite(middle), middle, div(small, _SMALL))


def _all_known(x: Any, holds: Any) -> bool:
    """Whether something holds of all numbers, which are known: in a graph they are not."""
    known = operand_of(x) if isinstance(x, Value) else x
    return isinstance(known, (np.ndarray, np.generic)) and bool(holds(known).all())


def _pull_of_std(x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool) -> Any:
    """The derivative of the deviation, ``(x - mean) / (n - ddof) / out``."""
    length, middle = spread(out, x_spec, axis, keepdims), _middle(x, axis)
    # No number is farther from the mean than the root of their count allows.
    most = np.finfo(x.dtype).max / 4.0 / max(count(x, axis), 1) ** 0.5
    if not _all_known(out, lambda known: known <= most):
        dtype = out.dtype
        part = where(greater(length, float(most)), np.array(0.25, dtype), np.array(1, dtype))
        x, middle, length = mul(x, part), mul(middle, part), mul(length, part)
    away = sub(x, middle)
    away = conj(away) if x.dtype.kind == "c" else away
    return mul(over_length(away, length), share_of(x, axis, ddof))


def _std_rule(
    g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool
) -> Any:
    slope = _pull_of_std(x, out, x_spec, axis, ddof, keepdims)
    return mul(spread(g, x_spec, axis, keepdims), slope)


def _std_forward(
    t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool
) -> Any:
    slope = _pull_of_std(wide(x), out, x_spec, axis, ddof, keepdims)
    moved = sum(mul(t, slope), axis, keepdims=keepdims)
    return real(moved) if x.dtype.kind == "c" else halved(moved, x.dtype)


def _std(x: Any, axis: Any, ddof: float, keepdims: bool, correction: None) -> Any:
    if getattr(x, "dtype", None) == np.float16:
        return np.std(x, axis, np.float32, ddof=ddof, keepdims=keepdims).astype(np.float16)
    out = np.std(x, axis, ddof=ddof, keepdims=keepdims)
    limits = np.finfo(out.dtype)
    low = (limits.tiny / limits.eps) ** 0.5
    # Without a degree of freedom it is infinite or NaN.
    if not out.size or count(x, axis) <= ddof or (out.min() > low and out.max() <= limits.max):
        return out
    # The squares of numbers so small or so large are 0 or infinite.
    size = np.abs(x)
    peak = np.max(size, axis, keepdims=True, initial=0)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, peak.dtype.type(1))
    scaled = _std_scaled(x, scale, axis, ddof)
    return scaled.reshape(np.shape(out)).astype(out.dtype)[()]


def _std_in_ops(x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    if x.dtype.kind in "biu" or not count(x, axis):
        return sqrt(var_in_ops(x, axis, ddof, keepdims))
    # A power of two changes no digit, and then squares are neither 0 nor infinite.
    middle = _middle(x, axis)
    size = sum(absolute(x), axis, keepdims=True)  # in the pass that finds the mean
    most = np.finfo(x.dtype).maxexp - 4.0  # of a power whose reciprocal is a number, too
    power = clip(floor(log2(where(greater(size, 0), size, 1))), -most, most)
    scale = exp2(neg(power))
    away = sub(mul(x, scale), mul(middle, scale))
    root = sqrt(mean_square(away, axis, ddof, True))
    shape = reduced_shape("std", x.shape, axis, keepdims)
    return reshape(mul(root, exp2(power)), shape)


@unwarned("invalid")
def _std_scaled(x: Any, scale: Any, axis: Any, ddof: float) -> Any:
    return np.std(x / scale, axis, ddof=ddof, keepdims=True) * scale


@op(
    kernel=_std,
    equals=in_single(
        lambda x, axis, ddof, keepdims, correction: _std_in_ops(x, axis, ddof, keepdims)
    ),
    numpy=[np.std],
    prepare=freedom("std"),
    canonical=spelled_moment,
    infer=moment_infer("std"),
    vjp={"x": _std_rule},
    jvp={"x": _std_forward},
    kinks="0 where all elements are equal, the second derivatives there NaN",
    samples=MOMENTS,
    rejects=[NO_AXIS, NO_NUMBER],
)
def std(
    x: Any,
    /,
    axis: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
) -> Any:
    """Standard deviation over ``axis``, the root of the variance."""
    return np.std(x, axis, ddof=ddof, keepdims=keepdims)


publish(globals())
