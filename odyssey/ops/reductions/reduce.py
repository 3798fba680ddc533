"""Reductions: sum, mean, extremes and their indices, any, all, and sums to a shape."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_half
from odyssey.errors import OdysseyError, ShapeError
from odyssey.ops.elementwise.arithmetic import div, mul
from odyssey.ops.elementwise.choice import (
    equal,
    keep_where,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.reductions.broadcast_back import broadcast_back, reduction_size
from odyssey.ops.structure.half_precision import compute_in_float32, narrow_half, widen_half
from odyssey.ops.structure.shape import astype, broadcast_to, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import canonical_axes, one_axis
from odyssey.table.declare import op, publish
from odyssey.table.half_kernels import cast
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import reduced_shape, reduction_rule, result_dtype_of

# Argmax along long lines of more bytes is left to NumPy, which reads a line once; compiled code
# reads it twice. Below, the second reading is from the cache, and the host call takes longer: 37
# us for 50,257 elements of float32 and not 13, as long for 262,144, and 0.6 of it for a million.
# NumPy takes twice as long for halves of any size, and seven times as long for lines of ten.
_NUMPY_MINIMUM_BYTES, _NUMPY_MINIMUM_LENGTH = 1 << 21, 256


def guess_argextreme(x: Spec, axis: int | None, keepdims: bool) -> str:
    """Return the guessed way of ``argmax`` and ``argmin``."""
    length = x.size if axis is None or not x.ndim else x.shape[axis]
    long = (axis is None or axis == x.ndim - 1) and length >= _NUMPY_MINIMUM_LENGTH
    long = long and x.size * x.dtype.itemsize > _NUMPY_MINIMUM_BYTES
    return "called" if long and not is_half(x.dtype) else "compiled"


def lower_argextreme(how: str) -> Any:
    """Return the lowering of ``argmax`` or ``argmin``.

    Args:
        how: ``"max"`` or ``"min"``.
    """

    def lower(build: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        ndim, line = x.ndim, x
        if axis is None:
            line, axis = build.reshape(x, (x.size,)), 0
        found = equal(line, build.reduce(how, line, (axis,), True))
        if x.dtype.kind == "f":  # NaN is the extreme, if there is one
            found = logical_or(found, not_equal(line, line))
        # A vector holds twice as many 32-bit integers.
        short = np.int32 if line.shape[axis] < 2**31 else np.intp
        index = build.cast(build.index(line.shape, axis), short)
        places = where(found, index, line.shape[axis])
        first = build.cast(build.reduce("min", places, (axis,), keepdims), np.intp)
        return build.reshape(first, (1,) * ndim) if keepdims and line is not x else first

    return lower


_FOLDS = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample(()),
    sample((2, 3), axis=()),
)
_LONE = (sample((), axis=0), sample((), axis=-1, keepdims=True))
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")
_SUMMED = result_dtype_of(np.add.reduce)


@op(
    linear=True,
    kernel=lambda x, axis, keepdims: np.add.reduce(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lambda build, x, axis, keepdims: build.reduce(
        "sum", build.cast(x, _SUMMED(x.dtype)), axis, keepdims
    ),
    numpy=[np.sum],
    canonical=canonical_axes,
    infer=reduction_rule("sum", _SUMMED),
    vjp={"x": lambda g, x_spec, axis, keepdims: broadcast_back(g, x_spec, axis, keepdims)},
    vmap="along",
    samples=[*_FOLDS, *_LONE, sample((0, 3), axis=0), sample((0,))],
    rejects=[_NO_AXIS],
    precision="wide",
)
def sum(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over ``axis``, by default over all elements."""
    return np.add.reduce(x, axis, keepdims=keepdims)


# Below this count single precision is exact, so that the quotient is NumPy's to the bit.
_EXACT_COUNT = 1 << 24


def _mean(x: Any, axis: Any, keepdims: bool) -> Any:
    """Return ``np.mean``; over all axes or one axis without its Python code, which takes 2 us."""
    if type(x) is np.ndarray and x.dtype.char in "fd":
        if axis is None and not keepdims:
            n = x.size
        elif type(axis) is int and -x.ndim <= axis < x.ndim:
            n = x.shape[axis]
        else:
            n = 0
        if 0 < n < _EXACT_COUNT:
            return np.add.reduce(x, axis, keepdims=keepdims) / n
    return np.mean(x, axis, keepdims=keepdims)


@op(
    linear=True,
    kernel=_mean,
    decomposition=compute_in_float32(
        lambda x, axis, keepdims: div(
            sum(x, axis, keepdims=keepdims), reduction_size(Spec(x.shape, x.dtype), axis)
        )
    ),
    numpy=[np.mean],
    canonical=canonical_axes,
    infer=reduction_rule("mean", result_dtype_of(np.mean), lone=False),
    vjp={
        "x": lambda g, x_spec, axis, keepdims: broadcast_back(
            divide_by_size(g, at_least_one(reduction_size(x_spec, axis))), x_spec, axis, keepdims
        )
    },
    vmap="along",
    samples=_FOLDS,
    rejects=[_NO_AXIS],
    precision="wide",
)
def mean(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Arithmetic mean over ``axis``, by default over all elements."""
    return np.mean(x, axis, keepdims=keepdims)


def divide_by_size(g: Any, n: int) -> Any:
    """Return ``g / n``, also for an ``n`` beyond the range of float16."""
    return div(g, n) if n <= 65504 else mul(g, 1 / n)


def mean_loss(losses: Any, n: int) -> Any:
    """Return the sum of an array divided by ``n``, for kernels; float16 is summed in float32."""
    kind = losses.dtype.char
    if kind == "e":
        return (np.add.reduce(losses, None, np.float32) / n).astype(np.float16)
    if losses.ndim == 1 and losses.size <= 128 and kind in "fd":  # see row_sums
        return losses.dot(_ones(losses.size, losses.dtype)) / n
    return np.add.reduce(losses, None) / n


def at_least_one(n: int) -> int:
    """Return ``n``, or 1 for 0: the gradient of an empty mean is empty, not a division by zero."""
    return n or 1


def _extremum_mask(x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> tuple[Any, Any]:
    """Return a mask of the elements equal to the extremum, NaN included, and their count."""
    peak = broadcast_back(out, x_spec, axis, keepdims)
    both_nan = logical_and(not_equal(x, x), not_equal(peak, peak))
    hits = logical_or(equal(x, peak), both_nan)
    return hits, sum(widen_half(astype(hits, x_spec.dtype)), axis, keepdims=keepdims)


def _extremum_rule(g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    hits, sharing = _extremum_mask(x, out, x_spec, axis, keepdims)
    share = narrow_half(div(g, sharing), x_spec.dtype)
    return keep_where(broadcast_back(share, x_spec, axis, keepdims), hits)


def _extremum_forward(t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    hits, sharing = _extremum_mask(x, out, x_spec, axis, keepdims)
    total = sum(widen_half(keep_where(t, hits)), axis, keepdims=keepdims)
    return narrow_half(div(total, sharing), x_spec.dtype)


def _extremum_infer(name: str) -> Any:
    def infer(x: Spec, axis: Any, keepdims: bool) -> Spec:
        shape = reduced_shape(name, x.shape, axis, keepdims, lone=True)
        if reduction_size(x, axis) == 0:
            raise ShapeError(
                f"{name}: x {x.shape} has no elements over axis {axis!r} and so no {name}"
            )
        return Spec(shape, x.dtype)

    return infer


_EXTREMA: dict[str, Any] = {
    "selects": True,
    "vjp": {"x": _extremum_rule},
    "jvp": {"x": _extremum_forward},
    "vmap": "along",
    "kinks": "ties share the gradient evenly",
    "samples": [*(sample(*s.operands, spread=True, **s.options) for s in _FOLDS[:-1]), *_LONE],
}


@op(
    real=True,
    kernel=lambda x, axis, keepdims: np.maximum.reduce(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lambda build, x, axis, keepdims: build.reduce("max", x, axis, keepdims),
    numpy=[np.max, np.amax],
    canonical=canonical_axes,
    infer=_extremum_infer("max"),
    rejects=[_NO_AXIS, reject((0, 2), match="and so no max")],
    **_EXTREMA,
)
def max(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Largest element over ``axis``, by default of all elements; NaN if one is NaN."""
    return np.maximum.reduce(x, axis, keepdims=keepdims)


@op(
    real=True,
    kernel=lambda x, axis, keepdims: np.minimum.reduce(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lambda build, x, axis, keepdims: build.reduce("min", x, axis, keepdims),
    numpy=[np.min, np.amin],
    canonical=canonical_axes,
    infer=_extremum_infer("min"),
    rejects=[_NO_AXIS, reject((0, 2), match="and so no min")],
    **_EXTREMA,
)
def min(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Smallest element over ``axis``, by default of all elements; NaN if one is NaN."""
    return np.minimum.reduce(x, axis, keepdims=keepdims)


# ------------------------------------------------------------------ indices of extremes, any, all


def _argextreme_infer(name: str) -> Any:
    def infer(x: Spec, axis: Any, keepdims: bool) -> Spec:
        if isinstance(axis, (tuple, list)):
            raise ShapeError(
                f"{name}: axis is {format_value(axis)}; pass one int, or None for all elements"
            )
        _extremum_infer(name)(x, axis, keepdims)
        shape = reduced_shape(name, x.shape, axis, keepdims, lone=True)
        return Spec(shape, np.dtype(np.intp))

    return infer


def _canonical_axis_option(x: Any, axis: Any, keepdims: bool) -> tuple[Any, ...]:
    return one_axis(axis, x.ndim), keepdims


_ARG_SAMPLES = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 4), axis=-2, keepdims=True),
    sample(()),
    sample((2, 0), axis=0),
    *_LONE,
)


@op(
    kernel=lambda x, axis, keepdims: np.argmax(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lower_argextreme("max"),
    guess=guess_argextreme,
    numpy=[np.argmax],
    canonical=_canonical_axis_option,
    infer=_argextreme_infer("argmax"),
    vmap="along",
    samples=_ARG_SAMPLES,
    rejects=[
        _NO_AXIS,
        reject((0, 2), match="and so no argmax"),
        reject((2, 3), axis=(0, 1), error=OdysseyError, match="pass one int"),
    ],
)
def argmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Index of the first largest element over ``axis``, in row-major order by default."""
    return np.argmax(x, axis, keepdims=keepdims)


@op(
    kernel=lambda x, axis, keepdims: np.argmin(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lower_argextreme("min"),
    guess=guess_argextreme,
    numpy=[np.argmin],
    canonical=_canonical_axis_option,
    infer=_argextreme_infer("argmin"),
    vmap="along",
    samples=_ARG_SAMPLES,
    rejects=[_NO_AXIS, reject((0, 2), match="and so no argmin")],
)
def argmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Index of the first smallest element over ``axis``, in row-major order by default."""
    return np.argmin(x, axis, keepdims=keepdims)


@op(
    kernel=lambda x, axis, keepdims: np.any(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lambda build, x, axis, keepdims: build.reduce(
        "any", build.cast(x, bool), axis, keepdims
    ),
    numpy=[np.any],
    canonical=canonical_axes,
    infer=reduction_rule("any", result_dtype_of(np.any)),
    vmap="along",
    samples=[*_FOLDS, *_LONE, sample((0, 3), axis=0)],
    rejects=[_NO_AXIS],
)
def any(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Logical or over ``axis``: True if any element is not 0; a constant."""
    return np.any(x, axis, keepdims=keepdims)


@op(
    kernel=lambda x, axis, keepdims: np.all(x, axis, keepdims=keepdims),
    primitive="reduce",
    lowering=lambda build, x, axis, keepdims: build.reduce(
        "all", build.cast(x, bool), axis, keepdims
    ),
    numpy=[np.all],
    canonical=canonical_axes,
    infer=reduction_rule("all", result_dtype_of(np.all)),
    vmap="along",
    samples=[*_FOLDS, *_LONE, sample((0, 3), axis=0)],
    rejects=[_NO_AXIS],
)
def all(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Logical and over ``axis``: True if no element is 0; a constant."""
    return np.all(x, axis, keepdims=keepdims)


# ------------------------------------------------------------------ sums to a shape


def _broadcast_axes(x_shape: Shape, shape: Shape) -> tuple[int, ...]:
    """Return the axes of ``x_shape`` that ``shape`` lacks or has with length 1."""
    extra = len(x_shape) - len(shape)
    axes = []
    for k, n in enumerate(x_shape):
        if k < extra or (shape[k - extra] == 1 and n != 1):
            axes.append(k)
        elif extra < 0 or n != shape[k - extra]:
            break
    else:
        if extra >= 0:
            return tuple(axes)
    raise ShapeError(f"sum_to: the shape {shape} does not broadcast to that of x, {x_shape}")


def _sum_half(x: Any, axes: Any) -> Any:
    """Sum a half in float32: sums in float16 stop growing at 2048 equal numbers."""
    return np.add.reduce(cast(x, _FLOAT32), axes).astype(x.dtype)


_FLOAT32 = np.dtype(np.float32)


@lru_cache(maxsize=64)
def _column_sum_function(n: int, dtype: Any) -> Any:
    """Return a function that sums columns of ``n`` elements; None where NumPy is fastest."""
    if is_half(dtype):
        return partial(_sum_half, axes=0)
    return _ones(n, dtype).dot if n <= 4096 and dtype.char in "fd" else None


@lru_cache(maxsize=64)
def _ones(n: int, dtype: Any) -> Any:
    return np.ones(n, dtype)


# A product with ones takes a third of the time of a sum. Along rows it is as accurate as NumPy to
# 128 elements, where NumPy starts pairwise summation; along columns it is more accurate.


def row_sums(x: Any) -> Any:
    """Return the sum of each row of a matrix, for kernels."""
    n = x.shape[1]
    short = n <= 128 and x.dtype.char in "fd"
    return x.dot(_ones(n, x.dtype)) if short else np.add.reduce(x, 1)


def column_sums(x: Any) -> Any:
    """Return the sum of each column of a matrix, for kernels."""
    sums = _column_sum_function(len(x), x.dtype)
    return np.add.reduce(x, 0) if sums is None else sums(x)


def _sum_to(x: Any, shape: Shape) -> Any:
    if x.ndim == 2 and x.shape[1:] == shape:
        return column_sums(x)
    axes = _broadcast_axes(x.shape, shape)
    if not axes:
        return x.copy()
    sums = _sum_half(x, axes) if x.dtype.char == "e" else np.add.reduce(x, axes)
    return sums.reshape(shape)


def _shape_option(shape: Any) -> tuple[Shape]:
    return (tuple(shape) if isinstance(shape, (tuple, list)) else (shape,),)


def _sum_to_spec(x: Spec, shape: Shape) -> Spec:
    axes = _broadcast_axes(x.shape, shape)
    return Spec(shape, _SUMMED(x.dtype) if axes else x.dtype)


def _sum_to_batch(batch: Batch, x: Any, shape: Shape) -> Any:
    missing = len(x.shape) - 1 - len(shape)
    sums = sum_to(x, (batch.size, *(1,) * missing, *shape))
    return reshape(sums, (batch.size, *shape)) if missing else sums


@op(
    linear=True,
    kernel=_sum_to,
    prepare=_shape_option,
    canonical=lambda x, shape: (shape,),
    decomposition=lambda x, shape: reshape(sum(x, _broadcast_axes(x.shape, shape)), shape),
    infer=_sum_to_spec,
    vjp={"x": lambda g, x_spec: broadcast_to(g, x_spec.shape)},
    vmap=_sum_to_batch,
    samples=[
        sample((4, 3), shape=(3,)),
        sample((4, 3), shape=()),
        sample((2, 4, 3), shape=(4, 1)),
        sample((4, 3), shape=(4, 3)),
        sample((0, 3), shape=(3,)),
        sample((), shape=()),
    ],
    rejects=[
        reject((4, 3), shape=(4,), match="does not broadcast"),
        reject((3,), shape=(1, 3), match="does not broadcast"),
    ],
)
def sum_to(x: Any, /, shape: Any) -> Any:
    """Sum to a shape that broadcasts to that of ``x``: the transpose of ``broadcast_to``."""
    return _sum_to(x, shape)


publish(globals())
