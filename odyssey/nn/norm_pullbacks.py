"""What pulls cotangents back through normalization, from its means and deviations."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, ShapeError
from odyssey.nn.norm_kernels import (
    in_loops,
    pulled_from,
    pulled_in_loops,
    weight_in_loops,
    weight_pulled_in_loops,
)
from odyssey.nn.norm_shapes import check_fit, count_along, wide
from odyssey.ops.elementwise.arithmetic import div, mul, sub
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.shape import astype
from odyssey.spec import Shape, Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.derived import derived
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

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


def _in(dtype: np.dtype[Any], out: Any) -> Any:
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
    return _in(_dtype_of(cotangent, x, inverse, mean, weight), out)


def _weight_in_ops(cotangent: Any, x: Any, inverse: Any, mean: Any, axis: Any, shape: Shape) -> Any:
    out = sum_to(mul(wide(cotangent), normed(x, inverse, mean)), shape)
    return _in(_dtype_of(cotangent, x, inverse, mean), out)


# ------------------------------------------------------------------ rows

_AXIS = reject((2, 3), (2, 3), (2, 1), axis=2, match="does not fit an array of 2 axes")


@op(
    real=True,
    decomposition=_pullback_in_ops,
    infer=lambda *given: Spec(given[1].shape, _check_pullback(*given)),
    canonical=lambda cotangent, x, inverse, mean, weight, axis: (_spelled(x, axis),),
    kernels=[Kernel("loops over rows or channels", pulled_in_loops, when=in_loops)],
    **derived(_pullback_in_ops, "cotangent", "x", "inverse", "mean", "weight"),
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
    **derived(_weight_in_ops, "cotangent", "x", "inverse", "mean"),
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
