"""Normalization: arrays brought to a common size along some of their axes."""

from __future__ import annotations

import math
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
from odyssey.table.declare import op, publish
from odyssey.table.operands import real_floating, real_options
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating, normalize_axes

# ------------------------------------------------------------------ shapes


def _rms_spec(x: Spec, weight: Spec | None, axis: Any, epsilon: float) -> Spec:
    normalize_axes("rms_norm", axis, x.ndim)
    dtype = floating(x.dtype)
    if weight is None:
        return Spec(x.shape, dtype)
    _check_weight(x.shape, getattr(weight, "shape", ()))
    return Spec(x.shape, np.result_type(dtype, floating(weight.dtype)))


def _check_weight(shape: Shape, weight: Shape) -> None:
    try:
        fits = np.broadcast_shapes(shape, weight) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"rms_norm: weight {weight} for x {shape}; it must broadcast to x, by its last axes"
        )


def _count(x: Any, axis: Any) -> int:
    """How many elements are normalized together; 1 where there are none."""
    return max(math.prod(x.shape[k] for k in normalize_axes("rms_norm", axis, x.ndim)), 1)


# ------------------------------------------------------------------ rules


def _inverse(x: Any, axis: Any, epsilon: float) -> Any:
    """One over the root of the mean square, which half precision could not hold."""
    wide = astype(x, np.float32) if x.dtype == np.float16 else x
    mean = div(sum(square(wide), axis, keepdims=True), _count(x, axis))
    inverse = div(1.0, sqrt(add(mean, epsilon)))
    return astype(inverse, x.dtype) if inverse.dtype != x.dtype else inverse


def _normed(t: Any, x: Any, axis: Any, epsilon: float) -> Any:
    """The derivative of ``x`` over its size along ``t``: symmetric, so it serves both modes."""
    inverse = _inverse(x, axis, epsilon)
    unit = mul(x, inverse)
    along = div(sum(mul(t, unit), axis, keepdims=True), _count(x, axis))
    return mul(inverse, sub(t, mul(unit, along)))


def _x_rule(g: Any, x: Any, weight: Any, axis: Any, epsilon: float) -> Any:
    return _normed(g if weight is None else mul(g, weight), x, axis, epsilon)


def _x_push(t: Any, x: Any, weight: Any, axis: Any, epsilon: float) -> Any:
    moved = _normed(t, x, axis, epsilon)
    return moved if weight is None else mul(moved, weight)


def _weighted(t: Any, x: Any, axis: Any, epsilon: float) -> Any:
    return mul(t, mul(x, _inverse(x, axis, epsilon)))


def _equals(x: Any, weight: Any, axis: Any, epsilon: float) -> Any:
    normed = mul(x, _inverse(x, axis, epsilon))
    return normed if weight is None else mul(normed, weight)


# ------------------------------------------------------------------ rows

_epsilon = real_options("rms_norm", "epsilon")


def _options(axis: Any, epsilon: Any) -> tuple[Any, float]:
    (static,) = _epsilon(epsilon)
    return axis, number("rms_norm", "epsilon", static, "[0, inf)")


def _rms_norm(x: Any, weight: Any, axis: Any, epsilon: float) -> Array:
    x = real_floating(x)
    axes = normalize_axes("rms_norm", axis, x.ndim)
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    mean = np.add.reduce(np.square(wide), axes, keepdims=True) / x.dtype.type(_count(x, axis))
    out = x * (1 / np.sqrt(mean + x.dtype.type(epsilon))).astype(x.dtype)
    if weight is None:
        return out
    _check_weight(x.shape, np.shape(weight))
    return out * real_floating(weight)


@op(
    real=True,
    prepare=_options,
    infer=_rms_spec,
    equals=_equals,
    canonical=lambda x, weight, axis, epsilon: folded(x, axis, epsilon),
    vjp={"x": _x_rule, "weight": _weighted},
    jvp={"x": _x_push, "weight": _weighted},
    samples=[
        sample((2, 3), None),
        sample((2, 3), None, axis=0),
        sample((2, 3), (3,)),
        sample((4, 2, 3), (2, 3), axis=(-2, -1), epsilon=0.5),
        sample((2, 3), (2, 1), axis=(0, 1)),
        sample((0, 3), (3,)),
        sample((2, 0), (0,)),
    ],
    rejects=[
        reject((2, 3), (2,), match=r"weight \(2,\) for x \(2, 3\)"),
        reject((3,), (2, 3), match="must broadcast to x"),
        reject((2, 3), None, axis=2, match="does not fit an array of 2 axes"),
        reject((3,), None, epsilon=-1.0, error=SettingError, match="must not be negative"),
    ],
)
def rms_norm(x: Any, weight: Any = None, /, *, axis: Any = -1, epsilon: float = 1e-6) -> Any:
    """``x`` over the root of its mean square along ``axis``, times ``weight`` if there is one.

    The mean of the squares, to which ``epsilon`` is added, must be a number: it is infinite from
    the root of the largest number on, and what is so large becomes 0.
    """
    return _rms_norm(x, weight, axis, epsilon)


publish(globals())
