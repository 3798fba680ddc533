"""What normalization asks of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.checks import number
from odyssey.errors import DeviceError, DTypeError, OdysseyError, SettingError, ShapeError
from odyssey.kernels.sizes import SIZES
from odyssey.ops.elementwise.arithmetic import add, div, mul, square, sub
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array, Shape, Spec
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import PASS, Kernel, op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.kernel_selection import SIZE_FACTOR, is_numba_avoided
from odyssey.table.real_operands import real_floating, real_options
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype, normalize_axes


def check_fit(who: str, name: str, shape: Shape, other: Shape) -> None:
    """Raise unless what has the shape ``other`` broadcasts to ``shape``."""
    try:
        fits = np.broadcast_shapes(shape, other) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: {name} {other} for x {shape}; it must broadcast to x, by its last axes"
        )


def count_along(x: Any, axis: Any) -> int:
    """How many elements are normalized together; 1 where there are none."""
    return max(math.prod(x.shape[k] for k in normalize_axes("count", axis, x.ndim)), 1)


def wide(x: Any) -> Any:
    """``x`` in a precision that can hold squares: half in single, all else as it is."""
    return astype(x, np.float32) if getattr(x, "dtype", None) == np.float16 else x


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
    from odyssey.kernels import normalization

    x = np.ascontiguousarray(x)
    how, lead = _lies(x, axis)
    shape, dtype = _shape_of_moments(x, how, lead), x.dtype
    out, mean, inverse = np.empty(x.shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)
    ends, most = (mean.reshape(-1), inverse.reshape(-1)), _TAME[dtype.char]
    if how == "rows":
        given = _rows_of(weight, x, lead, 1.0), _rows_of(bias, x, lead, 0.0), int(centred)
        usual = normalization.row_norm(
            _matrix(x, lead), *given, eps, most, _matrix(out, lead), *ends
        )
    else:
        numbers = _numbers_of(weight, x, 1.0), _numbers_of(bias, x, 0.0)
        usual = normalization.channel_norm(_channels(x), *numbers, eps, most, _channels(out), *ends)
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
    from odyssey.kernels import normalization

    large = type(x) is np.ndarray and x.size >= SIZES["layer_norm"] * SIZE_FACTOR[0]
    large = large and not is_numba_avoided()
    if not large or x.dtype.char not in "fd" or _lies(x, (0, *range(2, x.ndim)))[0] != "channels":
        return None
    mean, variance = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    try:
        normalization.channel_moments(_channels(np.ascontiguousarray(x)), mean, variance)
    except DeviceError:  # numba is not here
        return None
    return mean, variance


def rms_in_loops(x: Array, weight: Any, axis: Any, eps: float) -> tuple[Array, tuple[Any, ...]]:
    """The result of ``rms_norm``, and its residual."""
    return norm_in_loops(x, weight, None, axis, eps, centred=False)


def pulled_in_loops(g: Array, x: Array, inverse: Array, mean: Any, weight: Any, axis: Any) -> Array:
    """The same as ``norm_pullback``."""
    from odyssey.kernels import normalization

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    out, ends = np.empty(x.shape, x.dtype), _ends(mean, inverse)
    how, lead = _lies(x, axis)
    if how == "rows":
        given = _rows_of(weight, x, lead, 1.0), int(mean is not None), _matrix(out, lead)
        finite = normalization.row_pullback(_matrix(g, lead), _matrix(x, lead), *ends, *given)
    else:
        numbers = _numbers_of(weight, x, 1.0)
        finite = normalization.channel_pullback(
            _channels(g), _channels(x), *ends, numbers, _channels(out)
        )
    if not finite:
        lost = ~np.isfinite(out).all(normalize_axes("axis", axis, x.ndim), keepdims=True)
        np.copyto(out, pulled_from(g, x, inverse, mean, weight, axis), where=lost)
    return out


def weight_pulled_in_loops(
    g: Array, x: Array, inverse: Array, mean: Any, axis: Any, shape: Shape
) -> Array:
    """The same as ``norm_weight_pullback``."""
    from odyssey.kernels import normalization

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    how, lead = _lies(x, axis)
    ends = _ends(mean, inverse)
    if how == "channels":
        out = np.empty(x.shape[1], x.dtype)
        normalization.channel_weight_pullback(_channels(g), _channels(x), *ends, out)
        return out.reshape(shape)
    first = min(x.ndim - len(shape), lead)
    full = x.shape[first:]
    count = math.prod(x.shape[first:lead])
    sums = np.zeros((count, math.prod(x.shape[lead:])))
    if x.size:
        normalization.row_weight_pullback(_matrix(g, lead), _matrix(x, lead), *ends, sums)
    axes = tuple(k for k, n in enumerate((1,) * (len(full) - len(shape)) + shape) if n != full[k])
    folded = np.add.reduce(sums.reshape(full), axes, keepdims=True) if axes else sums
    return folded.reshape(shape).astype(x.dtype)


def _ends(mean: Any, inverse: Array) -> tuple[Array, Array]:
    inverse = inverse.reshape(-1)
    return (np.zeros_like(inverse) if mean is None else mean.reshape(-1)), inverse


# ------------------------------------------------------------------ shapes and options


def _check(who: str, cotangent: Any, x: Any, axis: Any, **moments: Any) -> None:
    axes = normalize_axes(who, axis, x.ndim)
    wanted = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    for name, v in moments.items():
        if v is not None and v.shape != wanted:
            raise ShapeError(f"{who}: {name} {v.shape} for x {x.shape}; wanted is {wanted}")
    if cotangent.shape != x.shape:
        raise ShapeError(
            f"{who}: cotangent {cotangent.shape} for x {x.shape}; they must be of one shape"
        )
    for v in (cotangent, x, *moments.values()):
        if v is not None and v.dtype.kind != "f":
            raise DTypeError(f"{who}: {v.dtype} numbers came; pass real floating ones")


def _check_pullback(
    cotangent: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any
) -> np.dtype[Any]:
    """The dtype of a call that is right."""
    _check("norm_pullback", cotangent, x, axis, inverse=inverse, mean=mean)
    if weight is not None:
        check_fit("norm_pullback", "weight", x.shape, weight.shape)
    return _dtype_of(cotangent, x, inverse, mean, weight)


def _check_weight(
    cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape
) -> np.dtype[Any]:
    """The dtype of a call that is right."""
    _check("norm_weight_pullback", cotangent, x, axis, inverse=inverse, mean=mean)
    check_fit("norm_weight_pullback", "weight", x.shape, shape)
    return _dtype_of(cotangent, x, inverse, mean)


def _dtype_of(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*[getattr(v, "dtype", v) for v in operands if v is not None])


def _cast_to(dtype: np.dtype[Any], out: Any) -> Any:
    return out if out.dtype == dtype else astype(out, dtype)


def _array(v: Any) -> Any:
    return v if v is None else np.asarray(v)


def _spelled(x: Any, axis: Any) -> tuple[int, ...]:
    return normalize_axes("axis", axis, x.ndim)


# ------------------------------------------------------------------ in ops


def normed(x: Any, inverse: Any, mean: Any) -> Any:
    """``x`` less its mean, if one is taken off, over its deviation."""
    return mul(wide(x) if mean is None else sub(wide(x), mean), inverse)


def _pullback_in_ops(
    cotangent: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any
) -> Any:
    n, unit = count_along(x, axis), normed(x, inverse, mean)
    g = wide(cotangent) if weight is None else mul(wide(cotangent), wide(weight))
    along = div(sum(mul(g, unit), axis, keepdims=True), n)
    out = sub(g, mul(unit, along))
    if mean is not None:
        out = sub(out, div(sum(g, axis, keepdims=True), n))
    out = mul(out, inverse)
    return _cast_to(_dtype_of(cotangent, x, inverse, mean, weight), out)


def _weight_in_ops(cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape) -> Any:
    out = sum_to(mul(wide(cotangent), normed(x, inverse, mean)), shape)
    return _cast_to(_dtype_of(cotangent, x, inverse, mean), out)


# ------------------------------------------------------------------ rows

_AXIS = reject((2, 3), (2, 3), (2, 1), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    decomposition=_pullback_in_ops,
    infer=lambda *given: Spec(given[1].shape, _check_pullback(*given)),
    canonical=lambda cotangent, x, inverse, mean, weight, axis: (_spelled(x, axis),),
    kernels=[Kernel("loops over rows or channels", pulled_in_loops, when=in_loops)],
    **derive_rules(_pullback_in_ops, "cotangent", "x", "inverse", "mean", "weight"),
    samples=[
        sample((2, 4), (2, 4), (2, 1), (2, 1), (4,)),
        sample((2, 4), (2, 4), (2, 1), None, None),
        sample((2, 3, 2), (2, 3, 2), (1, 3, 1), (1, 3, 1), (3, 1), axis=(0, 2)),
        sample((0, 3), (0, 3), (0, 1), (0, 1), None),
    ],
    rejects=[
        reject((2, 3), (2, 3), (2,), match=r"inverse \(2,\) for x \(2, 3\); wanted is \(2, 1\)"),
        reject((2,), (2, 3), (2, 1), match=r"cotangent \(2,\) for x"),
        reject((2, 3), (2, 3), (2, 1), None, (2,), match=r"weight \(2,\) for x \(2, 3\)"),
        _AXIS,
    ],
)
def norm_pullback(
    cotangent: Any, x: Any, inverse: Any, mean: Any = None, weight: Any = None, /, *, axis: Any = -1
) -> Any:
    """The cotangent of ``x`` for that of ``weight * (x - mean) * inverse``, by way of both.

    ``mean`` and ``inverse``, one over the deviation, are those of ``x`` along ``axis``; without a
    mean none is taken off, and the deviation is the root of the mean square. The derivative in
    ``x`` is symmetric, so that it serves both modes; half precision is computed in single.
    """
    cotangent, x, inverse, mean, weight = map(_array, (cotangent, x, inverse, mean, weight))
    dtype = _check_pullback(cotangent, x, inverse, mean, weight, axis)
    out = pulled_from(cotangent, x, inverse, mean, weight, axis)
    return out.astype(dtype, copy=False)


@op(
    real=True,
    decomposition=_weight_in_ops,
    infer=lambda *given: Spec(given[-1], _check_weight(*given)),
    canonical=lambda cotangent, x, inverse, mean, axis, shape: (_spelled(x, axis), shape),
    kernels=[
        Kernel(
            "loops over rows or channels",
            weight_pulled_in_loops,
            when=weight_in_loops,
            error_bound=2e-7,  # of what cancels, whose terms are rounded as NumPy's
        )
    ],
    **derive_rules(_weight_in_ops, "cotangent", "x", "inverse", "mean"),
    samples=[
        sample((2, 4), (2, 4), (2, 1), (2, 1), shape=(4,)),
        sample((2, 4), (2, 4), (2, 1), None, shape=(2, 1)),
        sample((2, 3, 2), (2, 3, 2), (1, 3, 1), (1, 3, 1), axis=(0, 2), shape=(3, 1)),
        sample((0, 3), (0, 3), (0, 1), None, shape=(3,)),
    ],
    rejects=[
        reject((2, 3), (2, 3), (2, 1), (3,), shape=(3,), match=r"mean \(3,\) for x \(2, 3\)"),
        reject((2, 3), (2, 3), (2, 1), shape=(2,), match=r"weight \(2,\) for x \(2, 3\)"),
        reject((2, 3), (2, 3), (2, 1), axis=2, shape=(3,), match="does not fit an array"),
    ],
)
def norm_weight_pullback(
    cotangent: Any, x: Any, inverse: Any, mean: Any = None, /, *, axis: Any = -1, shape: Shape
) -> Any:
    """The cotangent of ``weight``, of ``shape``, for that of ``weight * (x - mean) * inverse``."""
    cotangent, x, inverse, mean = map(_array, (cotangent, x, inverse, mean))
    _check_weight(cotangent, x, inverse, mean, axis, shape)
    return _weight_in_ops(cotangent, x, inverse, mean, axis, shape)


publish(globals())


# ------------------------------------------------------------------ shapes and options


def _normed_spec(who: str, axis: Any, x: Spec, **beside: Spec | None) -> Spec:
    """The spec of ``x`` brought to size, times or plus what broadcasts to it."""
    normalize_axes(who, axis, x.ndim)
    dtype = floating_dtype(x.dtype)
    for name, array in beside.items():
        if array is not None:
            check_fit(who, name, x.shape, getattr(array, "shape", ()))
            dtype = np.result_type(dtype, floating_dtype(getattr(array, "dtype", dtype)))
    return Spec(x.shape, dtype)


def _options(who: str) -> Callable[..., tuple[Any, float]]:
    """A ``prepare`` for the options of a norm."""
    plain = real_options(who, "eps")

    def prepare(axis: Any, eps: Any) -> tuple[Any, float]:
        if type(eps) is float and 0.0 <= eps < math.inf:
            return axis, eps
        (static,) = plain(eps)
        return axis, number(who, "eps", static, "[0, inf)")

    return prepare


# ------------------------------------------------------------------ by the root mean square


def _rms_inverse(x: Any, axis: Any, eps: float) -> Any:
    """One over the root of the mean square."""
    mean = div(sum(square(wide(x)), axis, keepdims=True), count_along(x, axis))
    return div(1.0, sqrt(add(mean, eps)))


def _rms_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _pulled_by(residual, g, x, weight, axis)
    return norm_pullback(g, x, _rms_inverse(x, axis, eps), None, weight, axis=axis)


def _rms_push(t: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    moved = _rms_rule(t, x, None, axis, eps, residual)
    return moved if weight is None else mul(moved, weight)


def _rms_weighted(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _weighted_by(residual, g, x, weight, axis)
    inverse = _rms_inverse(x, axis, eps)
    return norm_weight_pullback(g, x, inverse, None, axis=axis, shape=np.shape(weight))


def _rms_weighted_push(t: Any, x: Any, axis: Any, eps: float) -> Any:
    return mul(t, normed(x, _rms_inverse(x, axis, eps), None))


def _rms_in_ops(x: Any, weight: Any, axis: Any, eps: float) -> Any:
    out = normed(x, _rms_inverse(x, axis, eps), None)
    return _settled(out if weight is None else mul(out, weight), x, weight)


def _rms_norm(x: Any, weight: Any, axis: Any, eps: float) -> tuple[Array, tuple[Any, ...]]:
    x = real_floating(x)
    axes = normalize_axes("rms_norm", axis, x.ndim)
    dtype = x.dtype
    if weight is not None:
        check_fit("rms_norm", "weight", x.shape, np.shape(weight))
        dtype = np.result_type(dtype, real_floating(weight))
    x = x.astype(np.float32) if x.dtype == np.float16 else x
    unit, inverse, _ = scaled(x, axes, eps)
    out = unit if weight is None else unit * weight
    return _cast_result(dtype, out, unit), (inverse, None, unit if x.size <= _KEPT else None)


@op(
    real=True,
    prepare=_options("rms_norm"),
    infer=lambda x, weight, axis, eps: _normed_spec("rms_norm", axis, x, weight=weight),
    decomposition=_rms_in_ops,
    canonical=lambda x, weight, axis, eps: canonical_axes(x, axis, eps),
    with_residual=_rms_norm,
    kernels=[
        Kernel(
            "loops over rows",
            lambda *given: rms_in_loops(*given)[0],
            when=rms_fits,
            with_residual=rms_in_loops,
        )
    ],
    vjp={"x": _rms_rule, "weight": _rms_weighted},
    jvp={"x": _rms_push, "weight": _rms_weighted_push},
    samples=[
        sample((2, 3), None),
        sample((2, 3), None, axis=0),
        sample((2, 3), (3,)),
        sample((4, 2, 3), (2, 3), axis=(-2, -1), eps=0.5),
        sample((2, 3), (2, 1), axis=(0, 1)),
        sample((0, 3), (3,)),
        sample((2, 0), (0,)),
    ],
    rejects=[
        reject((2, 3), (2,), match=r"weight \(2,\) for x \(2, 3\)"),
        reject((3,), (2, 3), match="must broadcast to x"),
        reject((2, 3), None, axis=2, match="does not fit an array of 2 axes"),
        reject((3,), None, eps=-1.0, error=SettingError, match="must not be negative"),
    ],
)
def rms_norm(x: Any, weight: Any = None, /, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """``x`` over the root of its mean square along ``axis``, times ``weight`` if there is one.

    The mean of the squares, to which ``eps`` is added, must be a number: it is infinite from
    the root of the largest number on, and what is so large becomes 0.
    """
    return _rms_norm(x, weight, axis, eps)[0]


# ------------------------------------------------------------------ by mean and variance


def _moments(x: Any, axis: Any, eps: float) -> tuple[Any, Any]:
    """One over the deviation, and the mean.

    Two passes: the mean of the squares less the square of the mean would lose all digits where
    the mean is large.
    """
    x, n = wide(x), count_along(x, axis)
    mean = div(sum(x, axis, keepdims=True), n)
    variance = div(sum(square(sub(x, mean)), axis, keepdims=True), n)
    return div(1.0, sqrt(add(variance, eps))), mean


def _x_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _pulled_by(residual, g, x, weight, axis)
    inverse, mean = _moments(x, axis, eps)
    return norm_pullback(g, x, inverse, mean, weight, axis=axis)


def _x_push(t: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    moved = _x_rule(t, x, None, axis, eps, residual)
    return moved if weight is None else mul(moved, weight)


def _weighted(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _weighted_by(residual, g, x, weight, axis)
    inverse, mean = _moments(x, axis, eps)
    return norm_weight_pullback(g, x, inverse, mean, axis=axis, shape=np.shape(weight))


def _weighted_push(t: Any, x: Any, axis: Any, eps: float) -> Any:
    return mul(t, normed(x, *_moments(x, axis, eps)))


def _layer_norm_in_ops(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> Any:
    out = normed(x, *_moments(x, axis, eps))
    out = out if weight is None else mul(out, weight)
    out = out if bias is None else add(out, bias)
    return _settled(out, x, weight, bias)


# Of so many elements what is standardized is kept for rules, which saves them to make it again.
_KEPT = 1 << 14


def _cast_result(dtype: np.dtype[Any], out: Array, unit: Array) -> Array:
    """A result in its dtype, and not in the memory of ``unit``."""
    return out if out is not unit and out.dtype == dtype else out.astype(dtype)


def _pulled_by(residual: Any, g: Any, x: Any, weight: Any, axis: Any) -> Any:
    inverse, mean, unit = residual
    if unit is LOOPED and g.dtype == x.dtype:
        return pulled_in_loops(g, x, inverse, mean, weight, axis)
    if unit is None or unit is LOOPED:
        return norm_pullback(g, x, inverse, mean, weight, axis=axis)
    g = g.astype(unit.dtype) if g.dtype == np.float16 else g
    g = g if weight is None else g * weight
    return pulled(g, unit, inverse, normalize_axes("axis", axis, x.ndim), mean is not None)


def _weighted_by(residual: Any, g: Any, x: Any, weight: Any, axis: Any) -> Any:
    inverse, mean, unit = residual
    if unit is LOOPED and g.dtype == x.dtype:
        return weight_pulled_in_loops(g, x, inverse, mean, axis, weight.shape)
    if unit is None or unit is LOOPED:
        return norm_weight_pullback(g, x, inverse, mean, axis=axis, shape=np.shape(weight))
    return g * unit


def _settled(out: Any, *operands: Any) -> Any:
    """``out`` in the dtype of the result, which may be half."""
    dtype = np.result_type(*[floating_dtype(v.dtype) for v in operands if v is not None])
    return out if out.dtype == dtype else astype(out, dtype)


def _layer_norm_spec(x: Spec, weight: Spec | None, bias: Spec | None, axis: Any, eps: Any) -> Spec:
    return _normed_spec("layer_norm", axis, x, weight=weight, bias=bias)


def _layer_norm(
    x: Any, weight: Any, bias: Any, axis: Any, eps: float
) -> tuple[Array, tuple[Any, ...]]:
    """The result, and the residual."""
    x = real_floating(x)
    dtype = x.dtype
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None:
            v = np.asarray(v)
            if v.shape != x.shape[-1:]:
                check_fit("layer_norm", name, x.shape, v.shape)
            if v.dtype != dtype:
                dtype = np.result_type(dtype, real_floating(v))
    x = x.astype(np.float32) if x.dtype == np.float16 else x
    axes = normalize_axes("layer_norm", axis, x.ndim)
    unit, inverse, mean = standardized(x, axes, eps)
    out = unit if weight is None else unit * weight
    out = out if bias is None else out + bias
    return _cast_result(dtype, out, unit), (inverse, mean, unit if x.size <= _KEPT else None)


_AFFINE = [
    reject((2, 3), (2,), None, match=r"weight \(2,\) for x \(2, 3\)"),
    reject((2, 3), None, (2,), match=r"bias \(2,\) for x \(2, 3\)"),
    reject((3,), (2, 3), None, match="must broadcast to x"),
    reject((2, 3), None, None, axis=2, match="does not fit an array of 2 axes"),
    reject((3,), None, None, eps=-1.0, error=SettingError, match="must not be negative"),
]


@op(
    real=True,
    with_residual=_layer_norm,
    kernels=[
        Kernel(
            "loops over rows or channels",
            lambda *given: norm_in_loops(*given)[0],
            when=norm_fits,
            with_residual=norm_in_loops,
        )
    ],
    prepare=_options("layer_norm"),
    infer=_layer_norm_spec,
    decomposition=_layer_norm_in_ops,
    canonical=lambda x, weight, bias, axis, eps: canonical_axes(x, axis, eps),
    vjp={"x": _x_rule, "weight": _weighted, "bias": PASS},
    jvp={"x": _x_push, "weight": _weighted_push, "bias": PASS},
    kinks="NaN, as the result, where all elements are equal and eps is 0",
    samples=[
        sample((2, 4), None, None),
        sample((2, 4), (4,), (4,)),
        sample((4, 3), (4, 1), None, axis=0, eps=0.5),
        sample((3, 2, 3), (2, 3), (2, 3), axis=(-2, -1)),
        sample((2, 3), None, (1, 3), axis=None),
        sample((0, 3), (3,), (3,)),
        sample((2, 0), (0,), (0,)),
    ],
    rejects=_AFFINE,
)
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, /, *, axis: Any = -1, eps: float = 1e-5
) -> Any:
    """``x`` less its mean, over its deviation along ``axis``; times ``weight``, plus ``bias``.

    Half precision is computed in single. Elements that are all equal become the bias.

    Args:
        x: Real numbers.
        weight: What broadcasts to ``x``, of the shape of the normalized axes as a rule; or None.
        bias: Likewise.
        axis: The axis or axes that are normalized together, the last one by default; None for all.
        eps: Added to the variance, not negative.

    Returns:
        An array of the shape of ``x``.

    >>> layer_norm(np.array([[1.0, 3.0], [5.0, 5.0]]), eps=0.0001).round(3)
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    return _layer_norm(x, weight, bias, axis, eps)[0]


publish(globals())
