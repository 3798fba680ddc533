"""Normalization: arrays brought to a common size along some of their axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import number
from odyssey.errors import SettingError
from odyssey.nn.norm_kernels import (
    LOOPED,
    norm_fits,
    norm_in_loops,
    pulled,
    pulled_in_loops,
    rms_fits,
    rms_in_loops,
    scaled,
    standardized,
    weight_pulled_in_loops,
)
from odyssey.nn.norm_pullbacks import norm_pullback, norm_weight_pullback, normed
from odyssey.nn.norm_shapes import check_fit, count_along, wide
from odyssey.ops.elementwise.arithmetic import add, div, mul, square, sub
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array, Spec
from odyssey.table.canonical import folded
from odyssey.table.declare import PASS, Kernel, op, publish
from odyssey.table.operands import real_floating, real_options
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating, normalize_axes

# ------------------------------------------------------------------ shapes and options


def _normed_spec(who: str, axis: Any, x: Spec, **beside: Spec | None) -> Spec:
    """The spec of ``x`` brought to size, times or plus what broadcasts to it."""
    normalize_axes(who, axis, x.ndim)
    dtype = floating(x.dtype)
    for name, array in beside.items():
        if array is not None:
            check_fit(who, name, x.shape, getattr(array, "shape", ()))
            dtype = np.result_type(dtype, floating(getattr(array, "dtype", dtype)))
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
    return _in(dtype, out, unit), (inverse, None, unit if x.size <= _KEPT else None)


@op(
    real=True,
    prepare=_options("rms_norm"),
    infer=lambda x, weight, axis, eps: _normed_spec("rms_norm", axis, x, weight=weight),
    decomposition=_rms_in_ops,
    canonical=lambda x, weight, axis, eps: folded(x, axis, eps),
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


def _in(dtype: np.dtype[Any], out: Array, unit: Array) -> Array:
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
    dtype = np.result_type(*[floating(v.dtype) for v in operands if v is not None])
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
    return _in(dtype, out, unit), (inverse, mean, unit if x.size <= _KEPT else None)


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
    canonical=lambda x, weight, bias, axis, eps: folded(x, axis, eps),
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
