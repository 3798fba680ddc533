"""Variance and standard deviation, also of numbers whose squares or sums overflow."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.half_dtypes import finfo
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import div, mul, neg, square, sub
from odyssey.ops.elementwise.choice import equal, greater, isfinite, where
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.complex_numbers import absolute, conj, real
from odyssey.ops.elementwise.elementary import exp2, log2, sqrt
from odyssey.ops.elementwise.rounding import floor
from odyssey.ops.reductions.broadcast_back import broadcast_back, reduction_size
from odyssey.ops.reductions.reduce import mean, sum
from odyssey.ops.structure.half_precision import compute_in_float32, narrow_half, widen_half
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Spec
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample
from odyssey.table.shape_rules import reduced_shape, reduction_rule
from odyssey.table.store import operand_of
from odyssey.table.value import Value

_FOLDS = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample((4, 1), axis=0),
)
NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")
NO_NUMBER = reject((2, 3), correction=1j, error=DTypeError, match="correction=1j is not a number")

# ------------------------------------------------------------------ variance


def ddof_option(who: str) -> Any:
    """Return a ``prepare`` that merges ``correction``, NumPy's other name, into ``ddof``."""

    def prepare_moment(axis: Any, ddof: Any, keepdims: bool, correction: Any) -> tuple[Any, ...]:
        name, given = ("ddof", ddof) if correction is None else ("correction", correction)
        if correction is not None and type(ddof) in (int, float) and ddof:
            raise DTypeError(f"{who}: ddof and correction are two names of one number; pass one")
        if type(given) is not int:
            given = check_number(who, name, given, "NaN")
        return axis, given, keepdims, None

    return prepare_moment


def canonical_moment(x: Any, axis: Any, ddof: Any, keepdims: bool, correction: None) -> Any:
    """Return axes in canonical form, and an integral ``ddof`` as an int."""
    ddof = int(ddof) if float(ddof).is_integer() else ddof
    return *canonical_axes(x, axis), ddof, keepdims, None


def _real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.kind in "biu" else np.zeros((), dtype).real.dtype


def moment_spec_rule(name: str) -> Any:
    """Return the shape rule of ``var`` or ``std``."""
    infer = reduction_rule(name, _real_dtype, lone=False)
    return lambda x, axis, ddof, keepdims, correction: infer(x, axis, keepdims)


def _var_derivative(x: Any, axis: Any, ddof: float) -> Any:
    """Return the derivative of the variance, ``2 (x - mean) / (n - ddof)``."""
    return mul(_conjugate_deviation(x, axis), 2.0 * reciprocal_freedom(x, axis, ddof))


def _conjugate_deviation(x: Any, axis: Any) -> Any:
    away = sub(x, mean(x, axis, keepdims=True))
    return conj(away) if x.dtype.kind == "c" else away


def reciprocal_freedom(x: Any, axis: Any, ddof: float, without: float = np.nan) -> float:
    """Return ``1 / (count - ddof)``, or ``without`` if no degree of freedom is left."""
    left = reduction_size(x, axis) - ddof
    return 1.0 / left if left > 0 else without


def _var_rule(g: Any, x: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool) -> Any:
    return mul(broadcast_back(g, x_spec, axis, keepdims), _var_derivative(x, axis, ddof))


def _var_forward(t: Any, x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    moved = sum(mul(t, _var_derivative(widen_half(x), axis, ddof)), axis, keepdims=keepdims)
    return real(moved) if x.dtype.kind == "c" else narrow_half(moved, x.dtype)


MOMENTS = (
    *_FOLDS[:3],
    sample((2, 3), axis=1, ddof=1),
    sample((3, 2), axis=0, correction=0.5),
)


def decompose_var(x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    """Return the variance in terms of other ops."""
    return sum_squares_over_freedom(sub(x, mean(x, axis, keepdims=True)), axis, ddof, keepdims)


def sum_squares_over_freedom(away: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    """Return the sum of squares divided by the count less ``ddof``."""
    squares = real(mul(away, conj(away))) if away.dtype.kind == "c" else square(away)
    # Without freedom NumPy divides by 0, which is NaN only for a sum of 0.
    share = reciprocal_freedom(away, axis, ddof, np.inf)
    return mul(sum(squares, axis, keepdims=keepdims), share)


def _var(x: Any, axis: Any, ddof: float, keepdims: bool, correction: None) -> Any:
    if (
        getattr(x, "dtype", None) == np.float16
    ):  # squares overflow at 65,504, and sums stop growing at 2048
        return np.var(x, axis, np.float32, ddof=ddof, keepdims=keepdims).astype(np.float16)
    return np.var(x, axis, ddof=ddof, keepdims=keepdims)


@op(
    kernel=_var,
    decomposition=compute_in_float32(
        lambda x, axis, ddof, keepdims, correction: decompose_var(x, axis, ddof, keepdims)
    ),
    numpy=[np.var],
    prepare=ddof_option("var"),
    canonical=canonical_moment,
    infer=moment_spec_rule("var"),
    vjp={"x": _var_rule},
    jvp={"x": _var_forward},
    vmap="along",
    samples=[*MOMENTS, sample(())],
    rejects=[NO_AXIS, NO_NUMBER],
    precision="wide",
)
def var(
    x: Any,
    /,
    axis: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
) -> Any:
    """Variance over ``axis``: the sum of ``|x - mean|**2`` over the count less ``ddof``."""
    return np.var(x, axis, ddof=ddof, keepdims=keepdims)


def std_from_variance(variance: Any) -> Any:
    """Return the square root of a variance, with derivative 0 at 0, as in ``std``."""
    none = equal(variance, 0)
    return where(none, 0, sqrt(where(none, 1, variance)))


_divide = ignore_fp_errors("invalid")(np.divide)


def _safe_quotient(x: Any, length: Any) -> Any:
    if np.all(length):
        return np.divide(x, length)
    out = _divide(x, length)
    return np.where(np.equal(x, 0) & np.equal(length, 0), out.dtype.type(0), out)[()]


@op(
    elementwise=True,
    kernel=_safe_quotient,
    decomposition=lambda x, length: div(x, length),
    scalar=lambda x, length: select((x == T(0)) & (length == T(0)), T(0), x / length),
    vjp={
        "x": lambda g, length: div(g, length),
        "length": lambda g, length, out: neg(div(mul(g, out), length)),
    },
    kinks="at (0, 0) inf in x, NaN in length",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[NO_BROADCAST],
)
def over_length(x: Any, length: Any, /) -> Any:
    """Elementwise ``x / length`` for ``|x| <= length``; 0 where both are 0."""
    return _safe_quotient(x, length)


_SMALL = 2.0**-64


def _overflow_safe_mean(x: Any, axis: Any) -> Any:
    """Return the mean, also of numbers whose sum overflows."""
    middle = mean(x, axis, keepdims=True)
    if _holds_for_known_values(middle, np.isfinite):
        return middle
    small = mean(mul(x, _SMALL), axis, keepdims=True)
    return where(isfinite(middle), middle, div(small, _SMALL))


def _holds_for_known_values(x: Any, holds: Any) -> bool:
    """Return whether a predicate holds for all values; False in a graph, where they are unknown."""
    known = operand_of(x) if isinstance(x, Value) else x
    return isinstance(known, (np.ndarray, np.generic)) and bool(holds(known).all())


def _std_derivative(x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool) -> Any:
    """Return the derivative of the deviation, ``(x - mean) / (n - ddof) / out``."""
    if reduction_size(x, axis) == 1:  # constant: all derivatives of x - x are 0
        away = sub(x, x)
        return mul(conj(away) if x.dtype.kind == "c" else away, reciprocal_freedom(x, axis, ddof))
    length, middle = broadcast_back(out, x_spec, axis, keepdims), _overflow_safe_mean(x, axis)
    # No deviation exceeds out times the square root of the count.
    most = finfo(x.dtype).max / 4.0 / max(reduction_size(x, axis), 1) ** 0.5
    if not _holds_for_known_values(out, lambda known: known <= most):
        dtype = out.dtype
        part = where(greater(length, float(most)), np.array(0.25, dtype), np.array(1, dtype))
        x, middle, length = mul(x, part), mul(middle, part), mul(length, part)
    away = sub(x, middle)
    away = conj(away) if x.dtype.kind == "c" else away
    return mul(over_length(away, length), reciprocal_freedom(x, axis, ddof))


def _std_rule(
    g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool
) -> Any:
    slope = _std_derivative(x, out, x_spec, axis, ddof, keepdims)
    return mul(broadcast_back(g, x_spec, axis, keepdims), slope)


def _std_forward(
    t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool
) -> Any:
    slope = _std_derivative(widen_half(x), out, x_spec, axis, ddof, keepdims)
    moved = sum(mul(t, slope), axis, keepdims=keepdims)
    return real(moved) if x.dtype.kind == "c" else narrow_half(moved, x.dtype)


def _std(x: Any, axis: Any, ddof: float, keepdims: bool, correction: None) -> Any:
    if getattr(x, "dtype", None) == np.float16:
        return np.std(x, axis, np.float32, ddof=ddof, keepdims=keepdims).astype(np.float16)
    out = np.std(x, axis, ddof=ddof, keepdims=keepdims)
    limits = np.finfo(out.dtype)
    low = (limits.tiny / limits.eps) ** 0.5
    # Without a degree of freedom the result is infinite or NaN.
    if (
        not out.size
        or reduction_size(x, axis) <= ddof
        or (out.min() > low and out.max() <= limits.max)
    ):
        return out
    # Squares of numbers this small or large underflow or overflow.
    size = np.abs(x)
    peak = np.max(size, axis, keepdims=True, initial=0)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, peak.dtype.type(1))
    scaled = _scaled_std(x, scale, axis, ddof)
    return scaled.reshape(np.shape(out)).astype(out.dtype)[()]


def _decompose_std(x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    if x.dtype.kind in "biu" or not reduction_size(x, axis):
        return sqrt(decompose_var(x, axis, ddof, keepdims))
    # Scaling by a power of two is exact, and squares then neither underflow nor overflow.
    middle = _overflow_safe_mean(x, axis)
    size = sum(absolute(x), axis, keepdims=True)  # fused with the mean
    most = finfo(x.dtype).maxexp - 4.0  # the reciprocal of the power must be finite, too
    power = clip(floor(log2(where(greater(size, 0), size, 1))), -most, most)
    scale = exp2(neg(power))
    away = sub(mul(x, scale), mul(middle, scale))
    root = sqrt(sum_squares_over_freedom(away, axis, ddof, True))
    shape = reduced_shape("std", x.shape, axis, keepdims)
    return reshape(mul(root, exp2(power)), shape)


@ignore_fp_errors("invalid")
def _scaled_std(x: Any, scale: Any, axis: Any, ddof: float) -> Any:
    return np.std(x / scale, axis, ddof=ddof, keepdims=True) * scale


@op(
    kernel=_std,
    decomposition=compute_in_float32(
        lambda x, axis, ddof, keepdims, correction: _decompose_std(x, axis, ddof, keepdims)
    ),
    numpy=[np.std],
    prepare=ddof_option("std"),
    canonical=canonical_moment,
    infer=moment_spec_rule("std"),
    vjp={"x": _std_rule},
    jvp={"x": _std_forward},
    vmap="along",
    kinks="0 where all elements are equal, the second derivatives there NaN, and 0 of one element",
    samples=MOMENTS,
    rejects=[NO_AXIS, NO_NUMBER],
    precision="wide",
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
    """Standard deviation over ``axis``: the square root of the variance."""
    return np.std(x, axis, ddof=ddof, keepdims=keepdims)


publish(globals())
