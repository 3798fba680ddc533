"""Layer norm and RMS norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.half_dtypes import has_half, is_floating, is_half
from odyssey.errors import DeviceError, DTypeError, OdysseyError, SettingError, ShapeError
from odyssey.kernels.sizes import SIZES
from odyssey.ops.elementwise.arithmetic import add, div, mul, square, sub
from odyssey.ops.elementwise.choice import less_equal, where
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.batching import align, axes_from_end, example_specs, spread
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import PASS, Kernel, op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.kernel_selection import SIZE_FACTOR, is_numba_avoided
from odyssey.table.real_operands import real_floating, real_options
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype, normalize_axes


def check_broadcast(who: str, name: str, shape: Shape, other: Shape) -> None:
    """Raise ShapeError unless the shape ``other`` broadcasts to ``shape``."""
    try:
        fits = np.broadcast_shapes(shape, other) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: {name} {other} for x {shape}; it must broadcast to x, by its last axes"
        )


def normalized_count(x: Any, axis: Any) -> int:
    """Return the number of elements that are normalized together; 1 if there are none."""
    return max(math.prod(x.shape[k] for k in normalize_axes("count", axis, x.ndim)), 1)


def at_least_float32(x: Any) -> Any:
    """Return ``x`` in a precision that can hold squares: half as single."""
    return astype(x, np.float32) if has_half(x) else x


# In a residual of the loops, instead of the standardized array.
FROM_LOOPS = 1

# Shorter runs do not vectorize: NumPy is faster.
_MIN_RUN = 8


# ------------------------------------------------------------------ calls that loops support


def _layout_of(x: Any, axis: Any) -> tuple[str, int]:
    """Return the layout of elements normalized together: rows after so many axes, or channels."""
    ndim = x.ndim
    if axis == -1 and ndim:
        return "rows", ndim - 1
    try:
        axes = normalize_axes("axis", axis, ndim)
    except OdysseyError:  # which the op reports, in its name
        return "", 0
    if axes and axes == tuple(range(axes[0], ndim)):
        # NumPy sums few numbers along several axes in another order than these loops.
        few = len(axes) > 1 and math.prod(x.shape[axes[0] :]) < _MIN_RUN
        return ("", 0) if few else ("rows", axes[0])
    if ndim > 2 and axes == (0, *range(2, ndim)) and math.prod(x.shape[2:]) >= _MIN_RUN:
        return "channels", 1
    return "", 0


def _fits_loops(x: Any, weights: tuple[Any, ...], axis: Any) -> bool:
    if x.dtype.char not in "fd" or any(v is not None and v.dtype != x.dtype for v in weights):
        return False
    how, _ = _layout_of(x, axis)
    return how == "rows" or (
        how == "channels" and all(v is None or _by_channel(x, v.shape) for v in weights)
    )


def _cotangents_fit(g: Any, x: Any, moments: tuple[Any, ...], axis: Any) -> bool:
    """Return whether cotangent and moments fit a call that fits: the loops do not check shapes."""
    wanted = x.dtype, _moments_shape(x, *_layout_of(x, axis))
    known = g.dtype == x.dtype and g.shape == x.shape
    return known and all(v is None or (v.dtype, v.shape) == wanted for v in moments)


def _by_channel(x: Any, shape: Shape) -> bool:
    """Return whether a weight of this shape has a number for each channel and nothing else."""
    return shape == (x.shape[1], *[1] * (x.ndim - 2))


def pullback_fits_loops(*given: Any) -> bool:
    """Return whether loops support a call of ``norm_pullback``."""
    g, x, inverse, mean, weight, axis = given
    if not _fits_loops(x, (weight,), axis) or not _cotangents_fit(g, x, (inverse, mean), axis):
        return False
    return mean is not None or _layout_of(x, axis)[0] == "rows"


def norm_fits(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> bool:
    """Return whether loops support a call of ``layer_norm``."""
    return _fits_loops(x, (weight, bias), axis)


def rms_fits(x: Any, weight: Any, axis: Any, eps: float) -> bool:
    """Return whether loops support a call of ``rms_norm``."""
    return _fits_loops(x, (weight,), axis) and _layout_of(x, axis)[0] == "rows"


def weight_pullback_fits_loops(*given: Any) -> bool:
    """Return whether loops support a call of ``norm_weight_pullback``."""
    g, x, inverse, mean, axis, shape = given
    if not _fits_loops(x, (), axis) or not _cotangents_fit(g, x, (inverse, mean), axis):
        return False
    if _layout_of(x, axis)[0] == "rows":
        return True
    return mean is not None and _by_channel(x, shape)


# ------------------------------------------------------------------ arrays in the layout of the
# loops


def _as_matrix(x: Array, lead: int) -> Array:
    if x.ndim == 2 and lead == 1:
        return x
    return x.reshape(math.prod(x.shape[:lead]), math.prod(x.shape[lead:]))


def _as_channels(x: Array) -> Array:
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _weight_rows(v: Any, x: Array, lead: int, fill: float) -> Array:
    """Return a weight as rows; row r of ``x`` has that of r modulo their number."""
    if v is None:
        return np.full((1, math.prod(x.shape[lead:])), fill, x.dtype)
    if v.shape == x.shape[lead:]:
        return v.reshape(1, v.size)
    first = min(x.ndim - v.ndim, lead)
    full = np.ascontiguousarray(np.broadcast_to(v, x.shape[first:]))
    return full.reshape(-1, math.prod(x.shape[lead:])) if full.size else full.reshape(1, -1)


def _weight_by_channel(v: Any, x: Array, fill: float) -> Array:
    return np.full(x.shape[1], fill, x.dtype) if v is None else np.ascontiguousarray(v).reshape(-1)


# Square roots of the largest numbers.
_SQRT_MAX = {"f": 1e19, "d": 1e154}


def _is_moderate(weight: Any) -> bool:
    """Return whether standardized numbers times, or plus, ``weight`` stay finite."""
    if weight is None or not weight.size:
        return True
    most = _SQRT_MAX[weight.dtype.char]
    return bool(weight.max() < most and weight.min() > -most)


def _moments_shape(x: Any, how: str, lead: int) -> Shape:
    if how == "rows":
        return (*x.shape[:lead], *[1] * (x.ndim - lead))
    return (1, x.shape[1], *[1] * (x.ndim - 2))


# ------------------------------------------------------------------ NumPy


def _element_count(x: Array, axes: tuple[int, ...]) -> int:
    """Return the number of elements reduced together; 1 if there are none."""
    return max(x.shape[axes[0]] if len(axes) == 1 else math.prod([x.shape[k] for k in axes]), 1)


# 0-d arrays: with Python numbers, NumPy calls on small arrays take twice as long.
@lru_cache(maxsize=256)
def _constants(n: int, eps: float, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
    return np.asarray(n, dtype), np.asarray(eps, dtype), np.asarray(1, dtype)


@lru_cache(maxsize=8)
def _mean_error(dtype: np.dtype[Any]) -> Array:
    """Return a bound of the relative error of a mean."""
    return np.asarray(128 * np.finfo(dtype).eps, dtype)


def standardized(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """Return ``x`` minus its mean over its deviation, one over the deviation, and the mean."""
    n, least, one = _constants(_element_count(x, axes), eps, x.dtype)
    mean = np.add.reduce(x, axes, keepdims=True)
    mean /= n
    unit = x - mean
    spread = np.add.reduce(np.square(unit), axes, keepdims=True)
    spread /= n
    shows = np.sqrt(spread) <= np.abs(mean * _mean_error(x.dtype))
    if True in shows.tobytes():  # as in ``_moments``; NumPy's ``any`` takes 2 to 9 us
        rest = np.add.reduce(unit, axes, keepdims=True)
        rest /= n
        mean = np.where(shows, mean + rest, mean)
        unit = x - mean
        spread = np.add.reduce(np.square(unit), axes, keepdims=True)
        spread /= n
    spread += least
    inverse = one / np.sqrt(spread)
    unit *= inverse
    return unit, inverse, mean


def rms_scaled(x: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Any]:
    """Return ``x`` over its root mean square, one over that, and no mean."""
    n, least, one = _constants(_element_count(x, axes), eps, x.dtype)
    spread = np.add.reduce(np.square(x), axes, keepdims=True)
    spread /= n
    spread += least
    inverse = one / np.sqrt(spread)
    return x * inverse, inverse, None


def norm_vjp_arrays(g: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any) -> Array:
    """Return the cotangent of ``x`` for that of the result, from its moments."""
    g, x = _array_at_least_float32(g), _array_at_least_float32(x)
    unit = (x if mean is None else x - mean) * inverse
    g = g if weight is None else g * _array_at_least_float32(weight)
    return standardized_vjp(
        g, unit, inverse, normalize_axes("axis", axis, x.ndim), mean is not None
    )


def _array_at_least_float32(v: Any) -> Any:
    return v.astype(np.float32) if is_half(v.dtype) else v


def standardized_vjp(
    g: Array, unit: Array, inverse: Array, axes: tuple[int, ...], centred: bool
) -> Array:
    """Return the cotangent of ``x`` for that of ``unit``, the standardized ``x``."""
    along = np.add.reduce(g * unit, axes, keepdims=True)
    n, _, _ = _constants(_element_count(unit, axes), 0.0, along.dtype)
    along /= n
    out = unit * along
    out = np.subtract(g, out, out) if out.ndim else g - out
    if centred:
        total = np.add.reduce(g, axes, keepdims=True)
        total /= n
        out -= total
    out *= inverse
    return out


# ------------------------------------------------------------------ loops


def norm_in_loops(
    x: Array, weight: Any, bias: Any, axis: Any, eps: float, centred: bool = True
) -> tuple[Array, tuple[Any, ...]]:
    """Run ``layer_norm`` in loops; return the result and the residual."""
    from odyssey.kernels import normalization

    x = np.ascontiguousarray(x)
    how, lead = _layout_of(x, axis)
    shape, dtype = _moments_shape(x, how, lead), x.dtype
    out, mean, inverse = np.empty(x.shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)
    ends, most = (mean.reshape(-1), inverse.reshape(-1)), _SQRT_MAX[dtype.char]
    if how == "rows":
        given = _weight_rows(weight, x, lead, 1.0), _weight_rows(bias, x, lead, 0.0), int(centred)
        usual = normalization.row_norm(
            _as_matrix(x, lead), *given, eps, most, _as_matrix(out, lead), *ends
        )
    else:
        numbers = _weight_by_channel(weight, x, 1.0), _weight_by_channel(bias, x, 0.0)
        usual = normalization.channel_norm(
            _as_channels(x), *numbers, eps, most, _as_channels(out), *ends
        )
    if not usual:
        tame = _is_moderate(weight) and _is_moderate(bias)
        axes = normalize_axes("axis", axis, x.ndim)
        unit, theirs, middle = (standardized if centred else rms_scaled)(x, axes, eps)
        unit = unit if weight is None else unit * weight
        # Recompute rows whose sums overflowed; or all, if rounding decides about infinity.
        lost = ~(np.isfinite(mean) & (inverse > 0) & tame)
        np.copyto(out, unit if bias is None else unit + bias, where=lost)
        np.copyto(inverse, theirs, where=lost)
        np.copyto(mean, 0 if middle is None else middle, where=lost)
    return out, (inverse, mean if centred else None, FROM_LOOPS)


def batch_moments(x: Any) -> tuple[Array, Array] | None:
    """Return means and variances of channels of a large batch by loops; None for NumPy's way."""
    from odyssey.kernels import normalization

    large = type(x) is np.ndarray and x.size >= SIZES["layer_norm"] * SIZE_FACTOR[0]
    large = large and not is_numba_avoided()
    if (
        not large
        or x.dtype.char not in "fd"
        or _layout_of(x, (0, *range(2, x.ndim)))[0] != "channels"
    ):
        return None
    mean, variance = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    try:
        normalization.channel_moments(_as_channels(np.ascontiguousarray(x)), mean, variance)
    except DeviceError:  # numba is not here
        return None
    return mean, variance


def rms_in_loops(x: Array, weight: Any, axis: Any, eps: float) -> tuple[Array, tuple[Any, ...]]:
    """Run ``rms_norm`` in loops; return the result and the residual."""
    return norm_in_loops(x, weight, None, axis, eps, centred=False)


def norm_vjp_loops(g: Array, x: Array, inverse: Array, mean: Any, weight: Any, axis: Any) -> Array:
    """Run ``norm_pullback`` in loops."""
    from odyssey.kernels import normalization

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    out, ends = np.empty(x.shape, x.dtype), _flat_moments(mean, inverse)
    how, lead = _layout_of(x, axis)
    if how == "rows":
        given = _weight_rows(weight, x, lead, 1.0), int(mean is not None), _as_matrix(out, lead)
        finite = normalization.row_pullback(_as_matrix(g, lead), _as_matrix(x, lead), *ends, *given)
    else:
        numbers = _weight_by_channel(weight, x, 1.0)
        finite = normalization.channel_pullback(
            _as_channels(g), _as_channels(x), *ends, numbers, _as_channels(out)
        )
    if not finite:
        lost = ~np.isfinite(out).all(normalize_axes("axis", axis, x.ndim), keepdims=True)
        np.copyto(out, norm_vjp_arrays(g, x, inverse, mean, weight, axis), where=lost)
    return out


def norm_weight_vjp_loops(
    g: Array, x: Array, inverse: Array, mean: Any, axis: Any, shape: Shape
) -> Array:
    """Run ``norm_weight_pullback`` in loops."""
    from odyssey.kernels import normalization

    x, g = np.ascontiguousarray(x), np.ascontiguousarray(g)
    how, lead = _layout_of(x, axis)
    ends = _flat_moments(mean, inverse)
    if how == "channels":
        out = np.empty(x.shape[1], x.dtype)
        normalization.channel_weight_pullback(_as_channels(g), _as_channels(x), *ends, out)
        return out.reshape(shape)
    first = min(x.ndim - len(shape), lead)
    full = x.shape[first:]
    count = math.prod(x.shape[first:lead])
    sums = np.zeros((count, math.prod(x.shape[lead:])))
    if x.size:
        normalization.row_weight_pullback(_as_matrix(g, lead), _as_matrix(x, lead), *ends, sums)
    axes = tuple(k for k, n in enumerate((1,) * (len(full) - len(shape)) + shape) if n != full[k])
    folded = np.add.reduce(sums.reshape(full), axes, keepdims=True) if axes else sums
    return folded.reshape(shape).astype(x.dtype)


def _flat_moments(mean: Any, inverse: Array) -> tuple[Array, Array]:
    inverse = inverse.reshape(-1)
    return (np.zeros_like(inverse) if mean is None else mean.reshape(-1)), inverse


# ------------------------------------------------------------------ shapes and options


def _check_moments(who: str, cotangent: Any, x: Any, axis: Any, **moments: Any) -> None:
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
        if v is not None and not is_floating(v.dtype):
            raise DTypeError(f"{who}: {v.dtype} numbers came; pass real floating ones")


def _check_pullback(
    cotangent: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any
) -> np.dtype[Any]:
    """Check a call of ``norm_pullback`` and return its dtype."""
    _check_moments("norm_pullback", cotangent, x, axis, inverse=inverse, mean=mean)
    if weight is not None:
        check_broadcast("norm_pullback", "weight", x.shape, weight.shape)
    return _common_dtype(cotangent, x, inverse, mean, weight)


def _check_weight(
    cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape
) -> np.dtype[Any]:
    """Check a call of ``norm_weight_pullback`` and return its dtype."""
    _check_moments("norm_weight_pullback", cotangent, x, axis, inverse=inverse, mean=mean)
    check_broadcast("norm_weight_pullback", "weight", x.shape, shape)
    return _common_dtype(cotangent, x, inverse, mean)


def _common_dtype(*operands: Any) -> np.dtype[Any]:
    return np.result_type(*[getattr(v, "dtype", v) for v in operands if v is not None])


def _cast_to(dtype: np.dtype[Any], out: Any) -> Any:
    return out if out.dtype == dtype else astype(out, dtype)


def _optional_array(v: Any) -> Any:
    return v if v is None else np.asarray(v)


def _canonical_axis(x: Any, axis: Any) -> tuple[int, ...]:
    return normalize_axes("axis", axis, x.ndim)


# ------------------------------------------------------------------ decompositions


def normalize_by_moments(x: Any, inverse: Any, mean: Any) -> Any:
    """Return ``x`` minus its mean, if there is one, over its deviation."""
    return mul(at_least_float32(x) if mean is None else sub(at_least_float32(x), mean), inverse)


def _pullback_decomposition(
    cotangent: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any
) -> Any:
    n, unit = normalized_count(x, axis), normalize_by_moments(x, inverse, mean)
    g = (
        at_least_float32(cotangent)
        if weight is None
        else mul(at_least_float32(cotangent), at_least_float32(weight))
    )
    along = div(sum(mul(g, unit), axis, keepdims=True), n)
    out = sub(g, mul(unit, along))
    if mean is not None:
        out = sub(out, div(sum(g, axis, keepdims=True), n))
    out = mul(out, inverse)
    return _cast_to(_common_dtype(cotangent, x, inverse, mean, weight), out)


def _weight_pullback_decomposition(
    cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape
) -> Any:
    out = sum_to(mul(at_least_float32(cotangent), normalize_by_moments(x, inverse, mean)), shape)
    return _cast_to(_common_dtype(cotangent, x, inverse, mean), out)


# ------------------------------------------------------------------ batch rules


def _batch_pullback(
    batch: Batch, cotangent: Any, x: Any, inverse: Any, mean: Any, weight: Any, axis: Any
) -> Any:
    _check_pullback(*example_specs(batch, (cotangent, x, inverse, mean, weight), axis))
    arrays = [spread(batch, k, v) for k, v in enumerate((cotangent, x, inverse, mean))]
    weight = _aligned_weight(batch, 4, weight, arrays[1])
    return norm_pullback(*arrays, weight, axis=axes_from_end(axis, arrays[1].ndim - 1))


def _aligned_weight(batch: Batch, k: int, weight: Any, x: Any) -> Any:
    """Return operand ``k``, which broadcasts to the examples of ``x``."""
    return None if weight is None else align(weight, batch.mapped[k], x.ndim - 1)


def _batch_weight_pullback(
    batch: Batch, cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape
) -> Any:
    _check_weight(*example_specs(batch, (cotangent, x, inverse, mean), axis, shape))
    arrays = [spread(batch, k, v) for k, v in enumerate((cotangent, x, inverse, mean))]
    ndim = arrays[1].ndim - 1
    wide = (batch.size, *(1,) * (ndim - len(shape)), *shape)
    out = norm_weight_pullback(*arrays, axis=axes_from_end(axis, ndim), shape=wide)
    return reshape(out, (batch.size, *shape))


# ------------------------------------------------------------------ rows

_AXIS = reject((2, 3), (2, 3), (2, 1), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    decomposition=_pullback_decomposition,
    infer=lambda *given: Spec(given[1].shape, _check_pullback(*given)),
    vmap=_batch_pullback,
    canonical=lambda cotangent, x, inverse, mean, weight, axis: (_canonical_axis(x, axis),),
    kernels=[Kernel("loops over rows or channels", norm_vjp_loops, when=pullback_fits_loops)],
    **derive_rules(_pullback_decomposition, "cotangent", "x", "inverse", "mean", "weight"),
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
    """VJP of ``weight * (x - mean) * inverse`` in ``x``, including through both moments.

    ``mean`` and ``inverse``, one over the deviation, are those of ``x`` along ``axis``; without a
    mean none is subtracted, and the deviation is the root mean square. The derivative in ``x`` is
    symmetric, so it serves both modes; half precision is computed in single.
    """
    cotangent, x, inverse, mean, weight = map(
        _optional_array, (cotangent, x, inverse, mean, weight)
    )
    dtype = _check_pullback(cotangent, x, inverse, mean, weight, axis)
    out = norm_vjp_arrays(cotangent, x, inverse, mean, weight, axis)
    return out.astype(dtype, copy=False)


@op(
    real=True,
    decomposition=_weight_pullback_decomposition,
    infer=lambda *given: Spec(given[-1], _check_weight(*given)),
    vmap=_batch_weight_pullback,
    canonical=lambda cotangent, x, inverse, mean, axis, shape: (_canonical_axis(x, axis), shape),
    kernels=[
        Kernel(
            "loops over rows or channels",
            norm_weight_vjp_loops,
            when=weight_pullback_fits_loops,
            error_bound=2e-7,  # for sums that cancel, whose terms are rounded as by NumPy
        )
    ],
    **derive_rules(_weight_pullback_decomposition, "cotangent", "x", "inverse", "mean"),
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
    """VJP of ``weight * (x - mean) * inverse`` in ``weight``, of ``shape``."""
    cotangent, x, inverse, mean = map(_optional_array, (cotangent, x, inverse, mean))
    _check_weight(cotangent, x, inverse, mean, axis, shape)
    return _weight_pullback_decomposition(cotangent, x, inverse, mean, axis, shape)


publish(globals())


# ------------------------------------------------------------------ shapes and options


def _infer_norm(who: str, axis: Any, x: Spec, **beside: Spec | None) -> Spec:
    """Return the spec of ``x`` normalized, with operands that broadcast to it."""
    normalize_axes(who, axis, x.ndim)
    dtype = floating_dtype(x.dtype)
    for name, array in beside.items():
        if array is not None:
            check_broadcast(who, name, x.shape, getattr(array, "shape", ()))
            dtype = np.result_type(dtype, floating_dtype(getattr(array, "dtype", dtype)))
    return Spec(x.shape, dtype)


def _batch_norm(norm: Any, batch: Batch, x: Any, *others: Any) -> Any:
    """Batch rule of ``norm(x, *weights, axis=, eps=)``."""
    *weights, axis, eps = others
    norm.row.infer(*example_specs(batch, (x, *weights), axis, eps))
    x = spread(batch, 0, x)
    aligned = [_aligned_weight(batch, k, v, x) for k, v in enumerate(weights, 1)]
    return norm(x, *aligned, axis=axes_from_end(axis, x.ndim - 1), eps=eps)


def _norm_options(who: str) -> Callable[..., tuple[Any, float]]:
    """Return a function that checks the options of a norm."""
    plain = real_options(who, "eps")

    def check_options(axis: Any, eps: Any) -> tuple[Any, float]:
        if type(eps) is float and 0.0 <= eps < math.inf:
            return axis, eps
        (static,) = plain(eps)
        return axis, check_number(who, "eps", static, "[0, inf)")

    return check_options


# ------------------------------------------------------------------ RMS norm


def _rms_inverse(x: Any, axis: Any, eps: float) -> Any:
    """Return one over the root mean square."""
    mean = div(sum(square(at_least_float32(x)), axis, keepdims=True), normalized_count(x, axis))
    return div(1.0, sqrt(add(mean, eps)))


def _rms_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _x_vjp_from_residual(residual, g, x, weight, axis)
    return norm_pullback(g, x, _rms_inverse(x, axis, eps), None, weight, axis=axis)


def _rms_jvp(t: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    moved = _rms_rule(t, x, None, axis, eps, residual)
    return moved if weight is None else mul(moved, weight)


def _rms_weight_rule(
    g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None
) -> Any:
    if residual is not None:
        return _weight_vjp_from_residual(residual, g, x, weight, axis)
    inverse = _rms_inverse(x, axis, eps)
    return norm_weight_pullback(g, x, inverse, None, axis=axis, shape=np.shape(weight))


def _rms_weight_jvp(t: Any, x: Any, axis: Any, eps: float) -> Any:
    return mul(t, normalize_by_moments(x, _rms_inverse(x, axis, eps), None))


def _rms_decomposition(x: Any, weight: Any, axis: Any, eps: float) -> Any:
    out = normalize_by_moments(x, _rms_inverse(x, axis, eps), None)
    return _cast_to_result(out if weight is None else mul(out, weight), x, weight)


def _rms_norm(x: Any, weight: Any, axis: Any, eps: float) -> tuple[Array, tuple[Any, ...]]:
    x = real_floating(x)
    axes = normalize_axes("rms_norm", axis, x.ndim)
    dtype = x.dtype
    if weight is not None:
        check_broadcast("rms_norm", "weight", x.shape, np.shape(weight))
        dtype = np.result_type(dtype, real_floating(weight))
    x = x.astype(np.float32) if is_half(x.dtype) else x
    unit, inverse, _ = rms_scaled(x, axes, eps)
    out = unit if weight is None else unit * weight
    return _cast_result(dtype, out, unit), (
        inverse,
        None,
        unit if x.size <= _RESIDUAL_SIZE else None,
    )


@op(
    real=True,
    prepare=_norm_options("rms_norm"),
    infer=lambda x, weight, axis, eps: _infer_norm("rms_norm", axis, x, weight=weight),
    vmap=lambda batch, x, weight, axis, eps: _batch_norm(rms_norm, batch, x, weight, axis, eps),
    decomposition=_rms_decomposition,
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
    vjp={"x": _rms_rule, "weight": _rms_weight_rule},
    jvp={"x": _rms_jvp, "weight": _rms_weight_jvp},
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
    precision="wide",
)
def rms_norm(x: Any, weight: Any = None, /, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """RMS norm: ``x`` over its root mean square along ``axis``, times ``weight`` if given.

    The mean of squares, to which ``eps`` is added, must be finite: it overflows from the root of
    the largest number on, and elements that large become 0.
    """
    return _rms_norm(x, weight, axis, eps)[0]


# ------------------------------------------------------------------ layer norm


def _moments(x: Any, axis: Any, eps: float) -> tuple[Any, Any]:
    """Return one over the deviation, and the mean.

    Two passes: the mean of squares minus the square of the mean loses all digits if the mean is
    large. Where its rounding shows in the deviations, the second pass corrects it: elements that
    are equal are then equal to their mean.
    """
    x, n = at_least_float32(x), normalized_count(x, axis)
    mean = div(sum(x, axis, keepdims=True), n)
    away = sub(x, mean)
    rest = div(sum(away, axis, keepdims=True), n)
    variance = div(sum(square(away), axis, keepdims=True), n)
    # Squares, since a root that the comparison drops would have a tangent of 0 / 0.
    shows = less_equal(variance, square(mul(mean, float(_mean_error(x.dtype)))))
    rest = where(shows, rest, 0)
    excess = square(rest)
    variance = where(less_equal(variance, excess), 0, sub(variance, excess))
    return div(1.0, sqrt(add(variance, eps))), add(mean, rest)


def _x_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _x_vjp_from_residual(residual, g, x, weight, axis)
    inverse, mean = _moments(x, axis, eps)
    return norm_pullback(g, x, inverse, mean, weight, axis=axis)


def _x_jvp(t: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    moved = _x_rule(t, x, None, axis, eps, residual)
    return moved if weight is None else mul(moved, weight)


def _weight_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is not None:
        return _weight_vjp_from_residual(residual, g, x, weight, axis)
    inverse, mean = _moments(x, axis, eps)
    return norm_weight_pullback(g, x, inverse, mean, axis=axis, shape=np.shape(weight))


def _weight_jvp(t: Any, x: Any, axis: Any, eps: float) -> Any:
    return mul(t, normalize_by_moments(x, *_moments(x, axis, eps)))


def _layer_norm_decomposition(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> Any:
    rows = _as_rows(x, weight, bias, axis)
    if rows is not None:
        out = _layer_norm_decomposition(*rows, -1, eps)
        return reshape(out, x.shape)
    out = normalize_by_moments(x, *_moments(x, axis, eps))
    out = out if weight is None else mul(out, weight)
    out = out if bias is None else add(out, bias)
    return _cast_to_result(out, x, weight, bias)


def _as_rows(x: Any, weight: Any, bias: Any, axis: Any) -> tuple[Any, Any, Any] | None:
    """Return the operands with the last axes made one, or None where that is not to be done.

    A program then has one loop along each row, in place of one along each part of its last axis.
    """
    axes = normalize_axes("layer_norm", axis, x.ndim)
    lead = x.ndim - len(axes)
    if len(axes) < 2 or axes[0] != lead or not all(type(n) is int for n in x.shape):
        return None
    found = [reshape(x, (*x.shape[:lead], math.prod(x.shape[lead:])))]
    for v in (weight, bias):
        if v is not None:
            inner = v.shape[max(v.ndim - len(axes), 0) :]
            if v.ndim < len(axes) or inner not in ((1,) * len(axes), x.shape[lead:]):
                return None
            v = reshape(v, (*v.shape[: v.ndim - len(axes)], math.prod(inner)))
        found.append(v)
    return found[0], found[1], found[2]


# Up to this size the standardized array is a residual, which saves the rules to recompute it.
_RESIDUAL_SIZE = 1 << 14


def _cast_result(dtype: np.dtype[Any], out: Array, unit: Array) -> Array:
    """Return a result in its dtype, and not in the memory of ``unit``."""
    return out if out is not unit and out.dtype == dtype else out.astype(dtype)


def _x_vjp_from_residual(residual: Any, g: Any, x: Any, weight: Any, axis: Any) -> Any:
    inverse, mean, unit = residual
    if unit is FROM_LOOPS and g.dtype == x.dtype:
        return norm_vjp_loops(g, x, inverse, mean, weight, axis)
    if unit is None or unit is FROM_LOOPS:
        return norm_pullback(g, x, inverse, mean, weight, axis=axis)
    g = g.astype(unit.dtype) if is_half(g.dtype) else g
    g = g if weight is None else g * weight
    return standardized_vjp(
        g, unit, inverse, normalize_axes("axis", axis, x.ndim), mean is not None
    )


def _weight_vjp_from_residual(residual: Any, g: Any, x: Any, weight: Any, axis: Any) -> Any:
    inverse, mean, unit = residual
    if unit is FROM_LOOPS and g.dtype == x.dtype:
        return norm_weight_vjp_loops(g, x, inverse, mean, axis, weight.shape)
    if unit is None or unit is FROM_LOOPS:
        return norm_weight_pullback(g, x, inverse, mean, axis=axis, shape=np.shape(weight))
    return g * unit


def _cast_to_result(out: Any, *operands: Any) -> Any:
    """Return ``out`` in the dtype of the result, which may be half."""
    dtype = np.result_type(*[floating_dtype(v.dtype) for v in operands if v is not None])
    return out if out.dtype == dtype else astype(out, dtype)


def _infer_layer_norm(x: Spec, weight: Spec | None, bias: Spec | None, axis: Any, eps: Any) -> Spec:
    return _infer_norm("layer_norm", axis, x, weight=weight, bias=bias)


def _layer_norm(
    x: Any, weight: Any, bias: Any, axis: Any, eps: float
) -> tuple[Array, tuple[Any, ...]]:
    """Return the result and the residual."""
    x = real_floating(x)
    dtype = x.dtype
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None:
            v = np.asarray(v)
            if v.shape != x.shape[-1:]:
                check_broadcast("layer_norm", name, x.shape, v.shape)
            if v.dtype != dtype:
                dtype = np.result_type(dtype, real_floating(v))
    x = x.astype(np.float32) if is_half(x.dtype) else x
    axes = normalize_axes("layer_norm", axis, x.ndim)
    unit, inverse, mean = standardized(x, axes, eps)
    out = unit if weight is None else unit * weight
    out = out if bias is None else out + bias
    return _cast_result(dtype, out, unit), (
        inverse,
        mean,
        unit if x.size <= _RESIDUAL_SIZE else None,
    )


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
    prepare=_norm_options("layer_norm"),
    infer=_infer_layer_norm,
    vmap=lambda batch, x, weight, bias, axis, eps: _batch_norm(
        layer_norm, batch, x, weight, bias, axis, eps
    ),
    decomposition=_layer_norm_decomposition,
    canonical=lambda x, weight, bias, axis, eps: canonical_axes(x, axis, eps),
    vjp={"x": _x_rule, "weight": _weight_rule, "bias": PASS},
    jvp={"x": _x_jvp, "weight": _weight_jvp, "bias": PASS},
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
    precision="wide",
)
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, /, *, axis: Any = -1, eps: float = 1e-5
) -> Any:
    """Layer norm: ``(x - mean) / deviation`` along ``axis``, times ``weight``, plus ``bias``.

    Half precision is computed in single. Elements that are all equal become the bias.

    Args:
        x: Real numbers.
        weight: A factor that broadcasts to ``x``, usually of the shape of the normalized axes; or
            None.
        bias: A summand that broadcasts to ``x``, or None.
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
