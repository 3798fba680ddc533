"""Normalization: arrays brought to a common size along some of their axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import number
from odyssey.errors import SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, square, sub
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.folds.reductions import sum
from odyssey.ops.structure.shape import astype
from odyssey.spec import Array, Shape, Spec
from odyssey.table.canonical import folded
from odyssey.table.declare import PASS, op, publish
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
            _check_fit(who, name, x.shape, getattr(array, "shape", ()))
            dtype = np.result_type(dtype, floating(getattr(array, "dtype", dtype)))
    return Spec(x.shape, dtype)


def _check_fit(who: str, name: str, shape: Shape, other: Shape) -> None:
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


def _options(who: str) -> Callable[..., tuple[Any, float]]:
    """A ``prepare`` for the options of a norm."""
    plain = real_options(who, "eps")

    def prepare(axis: Any, eps: Any) -> tuple[Any, float]:
        (static,) = plain(eps)
        return axis, number(who, "eps", static, "[0, inf)")

    return prepare


def wide(x: Any) -> Any:
    """``x`` in a precision that can hold squares: half in single, all else as it is."""
    return astype(x, np.float32) if x.dtype == np.float16 else x


# ------------------------------------------------------------------ by the root mean square


def _inverse(x: Any, axis: Any, eps: float) -> Any:
    """One over the root of the mean square, which half precision could not hold."""
    mean = div(sum(square(wide(x)), axis, keepdims=True), count_along(x, axis))
    inverse = div(1.0, sqrt(add(mean, eps)))
    return astype(inverse, x.dtype) if inverse.dtype != x.dtype else inverse


def _rms_slope(t: Any, x: Any, axis: Any, eps: float) -> Any:
    """The derivative of ``x`` over its size along ``t``: symmetric, so it serves both modes."""
    inverse = _inverse(x, axis, eps)
    unit = mul(x, inverse)
    along = div(sum(mul(t, unit), axis, keepdims=True), count_along(x, axis))
    return mul(inverse, sub(t, mul(unit, along)))


def _rms_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float) -> Any:
    return _rms_slope(g if weight is None else mul(g, weight), x, axis, eps)


def _rms_push(t: Any, x: Any, weight: Any, axis: Any, eps: float) -> Any:
    moved = _rms_slope(t, x, axis, eps)
    return moved if weight is None else mul(moved, weight)


def _rms_weighted(t: Any, x: Any, axis: Any, eps: float) -> Any:
    return mul(t, mul(x, _inverse(x, axis, eps)))


def _rms_in_ops(x: Any, weight: Any, axis: Any, eps: float) -> Any:
    normed = mul(x, _inverse(x, axis, eps))
    return normed if weight is None else mul(normed, weight)


def _rms_norm(x: Any, weight: Any, axis: Any, eps: float) -> Array:
    x = real_floating(x)
    axes = normalize_axes("rms_norm", axis, x.ndim)
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    mean = np.add.reduce(np.square(wide), axes, keepdims=True) / x.dtype.type(count_along(x, axis))
    out = x * (1 / np.sqrt(mean + x.dtype.type(eps))).astype(x.dtype)
    if weight is None:
        return out
    _check_fit("rms_norm", "weight", x.shape, np.shape(weight))
    return out * real_floating(weight)


@op(
    real=True,
    prepare=_options("rms_norm"),
    infer=lambda x, weight, axis, eps: _normed_spec("rms_norm", axis, x, weight=weight),
    equals=_rms_in_ops,
    canonical=lambda x, weight, axis, eps: folded(x, axis, eps),
    vjp={"x": _rms_rule, "weight": _rms_weighted},
    jvp={"x": _rms_push, "weight": _rms_weighted},
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
    return _rms_norm(x, weight, axis, eps)


# ------------------------------------------------------------------ by mean and variance


def standardized(x: Any, axis: Any, eps: float) -> tuple[Any, Any, Any, Any]:
    """``x`` less its mean, in units of its deviation; one over that; mean and variance.

    Two passes: the mean of the squares less the square of the mean would lose all digits where
    the mean is large.
    """
    x, n = wide(x), count_along(x, axis)
    mean = div(sum(x, axis, keepdims=True), n)
    centred = sub(x, mean)
    variance = div(sum(square(centred), axis, keepdims=True), n)
    inverse = div(1.0, sqrt(add(variance, eps)))
    return mul(centred, inverse), inverse, mean, variance


def _slope(t: Any, normed: Any, inverse: Any, axis: Any) -> Any:
    """The derivative of what is standardized along ``t``: symmetric, so it serves both modes.

    What moves all elements alike, or scales them, is taken out of ``t``.
    """
    n = count_along(normed, axis)
    mean = div(sum(t, axis, keepdims=True), n)
    along = div(sum(mul(t, normed), axis, keepdims=True), n)
    return mul(inverse, sub(sub(t, mean), mul(normed, along)))


def _pulled(g: Any, x: Any, weight: Any, axis: Any, eps: float) -> Any:
    normed, inverse, _, _ = standardized(x, axis, eps)
    return _slope(wide(g if weight is None else mul(g, weight)), normed, inverse, axis)


def _x_rule(g: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    if residual is None:
        return _pulled(g, x, weight, axis, eps)
    normed, inverse = residual
    return _slope(wide(g if weight is None else mul(g, weight)), normed, inverse, axis)


def _x_push(t: Any, x: Any, weight: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    moved = _x_rule(t, x, None, axis, eps, residual)
    return moved if weight is None else mul(moved, weight)


def _weighted(t: Any, x: Any, axis: Any, eps: float, residual: Any = None) -> Any:
    return mul(t, standardized(x, axis, eps)[0] if residual is None else residual[0])


def _layer_norm_in_ops(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> Any:
    out = standardized(x, axis, eps)[0]
    out = out if weight is None else mul(out, weight)
    out = out if bias is None else add(out, bias)
    return _settled(out, x, weight, bias)


def _settled(out: Any, *operands: Any) -> Any:
    """``out`` in the dtype of the result, which may be half."""
    dtype = np.result_type(*[floating(v.dtype) for v in operands if v is not None])
    return out if out.dtype == dtype else astype(out, dtype)


def _layer_norm_spec(x: Spec, weight: Spec | None, bias: Spec | None, axis: Any, eps: Any) -> Spec:
    return _normed_spec("layer_norm", axis, x, weight=weight, bias=bias)


# To keep what is standardized takes as much memory as x, and saves four passes over it.
_KEPT = 1 << 14


def _with_normed(x: Any, weight: Any, bias: Any, axis: Any, eps: float) -> Any:
    """The result, and what its derivatives are made of; None where that would be large."""
    if np.size(x) > _KEPT:
        return None
    normed, inverse, dtype = _standard("layer_norm", x, weight, bias, axis, eps)
    return _affine(normed, weight, bias, dtype), (normed, inverse)


def _standard(
    who: str, x: Any, weight: Any, bias: Any, axis: Any, eps: float
) -> tuple[Array, Array, np.dtype[Any]]:
    """For kernels: ``x`` standardized, one over its deviation, and the dtype of the result."""
    x = real_floating(x)
    dtype = x.dtype
    for name, array in (("weight", weight), ("bias", bias)):
        if array is not None:
            if np.shape(array) != x.shape[-1:]:
                _check_fit(who, name, x.shape, np.shape(array))
            if np.asarray(array).dtype != dtype:
                dtype = np.result_type(dtype, real_floating(array))
    x, n = (x.astype(np.float32) if x.dtype == np.float16 else x), count_along(x, axis)
    axes = normalize_axes(who, axis, x.ndim)
    normed = x - np.add.reduce(x, axes, keepdims=True) / n
    inverse = 1.0 / np.sqrt(np.add.reduce(np.square(normed), axes, keepdims=True) / n + eps)
    normed *= inverse
    return normed, inverse, dtype


def _affine(normed: Array, weight: Any, bias: Any, dtype: np.dtype[Any]) -> Array:
    out = normed if weight is None else normed * weight
    out = out if bias is None else out + bias
    return out.astype(dtype, copy=out is normed)


_AFFINE = [
    reject((2, 3), (2,), None, match=r"weight \(2,\) for x \(2, 3\)"),
    reject((2, 3), None, (2,), match=r"bias \(2,\) for x \(2, 3\)"),
    reject((3,), (2, 3), None, match="must broadcast to x"),
    reject((2, 3), None, None, axis=2, match="does not fit an array of 2 axes"),
    reject((3,), None, None, eps=-1.0, error=SettingError, match="must not be negative"),
]


@op(
    real=True,
    with_residual=_with_normed,
    prepare=_options("layer_norm"),
    infer=_layer_norm_spec,
    equals=_layer_norm_in_ops,
    canonical=lambda x, weight, bias, axis, eps: folded(x, axis, eps),
    vjp={"x": _x_rule, "weight": _weighted, "bias": PASS},
    jvp={"x": _x_push, "weight": _weighted, "bias": PASS},
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
    normed, _, dtype = _standard("layer_norm", x, weight, bias, axis, eps)
    return _affine(normed, weight, bias, dtype)


publish(globals())
