"""Cumulative maximum, minimum and log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.half_dtypes import is_half
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.extreme import running_argextreme
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import equal, logical_or, not_equal, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.reductions.cumulative import linear_recurrence
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.half_precision import narrow_half, widen_half
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import as_operand
from odyssey.spec import Spec
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import axis_rule, floating_dtype, normalize_axes

_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")
_LINES = (
    sample((2, 4), spread=True),
    sample((4, 2), axis=0, spread=True),
    sample((2, 3, 2), axis=-2, spread=True),
    sample((0, 3), axis=0),
    sample((1,)),
)

# ------------------------------------------------------------------ cumulative extremes


class Running(NamedTuple):
    """Cumulative extremes and their indices."""

    values: Any
    indices: Any


def _check_order(x: Any) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(f"cummax, cummin: x is {x.dtype}; complex numbers have no order")


def _running_argextreme_spec(who: str) -> Callable[..., Spec]:
    infer = axis_rule(who, lambda dtype: np.dtype(np.intp))

    def with_order(x: Spec, axis: int) -> Spec:
        _check_order(x)
        return infer(x, axis)

    return with_order


def _running_argextreme(who: str, extreme: np.ufunc) -> Callable[..., Any]:
    """Return a kernel for the index of the extreme so far: the last of equal ones, the last NaN."""

    def run(x: Any, axis: int) -> Any:
        x = np.asarray(x)
        _check_order(x)
        (k,) = normalize_axes(who, axis, x.ndim)
        found = (x == extreme.accumulate(x, k)) | (x != x)
        places = np.arange(x.shape[k]).reshape((-1,) + (1,) * (x.ndim - 1 - k))
        return np.maximum.accumulate(np.where(found, places, 0), k)

    return run


_running_argmax = _running_argextreme("running_argmax", np.maximum)
_running_argmin = _running_argextreme("running_argmin", np.minimum)


def _running_argextreme_lowering(largest: bool) -> Callable[..., Any]:
    def lower_argextreme_scan(build: Any, x: Any, axis: int) -> Any:
        extreme = _propagate_max if largest else _propagate_min
        found = equal(x, build.scan(extreme, x, axis=axis))
        if x.dtype.kind == "f":
            found = logical_or(found, not_equal(x, x))
        places = where(found, build.index(x.shape, axis), 0)
        return build.scan(_propagate_max, places, axis=axis)

    return lower_argextreme_scan


def _propagate_max(x: Any, y: Any) -> Any:
    """Return the larger of two numbers, NaN if either is."""
    return select((x >= y) | (x != x), x, y)


def _propagate_min(x: Any, y: Any) -> Any:
    return select((x <= y) | (x != x), x, y)


def _argextreme_kernel(who: str, largest: bool) -> Kernel:
    def run(x: Any, axis: int) -> Any:
        (k,) = normalize_axes(who, axis, x.ndim)
        return running_argextreme(x, k, largest)

    return Kernel("one pass", run, when=lambda x, axis: x.dtype.char in "fd" and x.ndim > 0)


def _canonical_axis(x: Any, axis: Any) -> tuple[Any]:
    return (one_axis(axis, x.ndim),)


@op(
    primitive="scan",
    lowering=_running_argextreme_lowering(largest=True),
    kernel=_running_argmax,
    kernels=[_argextreme_kernel("running_argmax", largest=True)],
    canonical=_canonical_axis,
    infer=_running_argextreme_spec("running_argmax"),
    vmap="along",
    samples=[*_LINES, sample(np.array([1.0, 3.0, np.nan, 2.0, 3.0]))],
    rejects=[_NO_AXIS],
)
def running_argmax(x: Any, /, axis: int = -1) -> Any:
    """Index of the largest element so far, the last of equal ones; a constant."""
    return _running_argmax(x, axis)


@op(
    primitive="scan",
    lowering=_running_argextreme_lowering(largest=False),
    kernel=_running_argmin,
    kernels=[_argextreme_kernel("running_argmin", largest=False)],
    canonical=_canonical_axis,
    infer=_running_argextreme_spec("running_argmin"),
    vmap="along",
    samples=[*_LINES, sample(np.array([3.0, 1.0, np.nan, 2.0, 1.0]))],
    rejects=[_NO_AXIS],
)
def running_argmin(x: Any, /, axis: int = -1) -> Any:
    """Index of the smallest element so far, the last of equal ones; a constant."""
    return _running_argmin(x, axis)


@composite(samples=_LINES, rejects=[_NO_AXIS])
def cummax(x: Any, axis: int = -1) -> Any:
    """Cumulative maximum along an axis, and its indices, as ``torch.cummax``.

    Args:
        x: Array of real numbers.
        axis: The axis.

    Returns:
        ``values`` and ``indices``. Of equal elements the last is chosen, and has the gradient;
        from a NaN on, all values are NaN.

    Raises:
        ShapeError: if ``x`` lacks the axis. DTypeError: for complex numbers.

    >>> cummax(np.array([1.0, 3.0, 2.0])).values
    array([1., 3., 3.])
    """
    x = as_operand("cummax", "x", x)
    indices = running_argmax(x, axis)
    return Running(take_along_axis(x, indices, axis), indices)


@composite(samples=_LINES, rejects=[_NO_AXIS])
def cummin(x: Any, axis: int = -1) -> Any:
    """Cumulative minimum along an axis, and its indices, as ``torch.cummin``.

    Args:
        x: Array of real numbers.
        axis: The axis.

    Returns:
        ``values`` and ``indices``. Of equal elements the last is chosen, and has the gradient;
        from a NaN on, all values are NaN.

    Raises:
        ShapeError: if ``x`` lacks the axis. DTypeError: for complex numbers.

    >>> cummin(np.array([2.0, 3.0, 1.0])).indices
    array([0, 0, 2])
    """
    x = as_operand("cummin", "x", x)
    indices = running_argmin(x, axis)
    return Running(take_along_axis(x, indices, axis), indices)


# ------------------------------------------------------------------ cumulative log-sum-exp


def _logcumsumexp(x: Any, axis: int) -> Any:
    x = np.asarray(x)
    normalize_axes("logcumsumexp", axis, x.ndim)
    if x.dtype.kind in "biu":
        x = x.astype(floating_dtype(x.dtype))
    if is_half(x.dtype):  # where a large sum no longer grows by one element
        return np.logaddexp.accumulate(x.astype(np.float32), axis).astype(np.float16)
    return np.logaddexp.accumulate(x, axis)


def _lower_logcumsumexp(build: Any, x: Any, axis: int) -> Any:
    dtype = floating_dtype(x.dtype)
    single = np.dtype(np.float32) if is_half(dtype) else dtype
    sums = build.scan(_logaddexp_scalar, build.cast(x, single), axis=axis)
    return sums if single == dtype else build.cast(sums, dtype)


def _logaddexp_scalar(x: Any, y: Any) -> Any:
    """Return ``logaddexp(x, y)``, for scalar kernels."""
    far = select(x > y, x, y) + math.log1p(math.exp(-abs(x - y)))
    return select(x == y, x + T(0.6931471805599453), far)


def _axis_slice(x: Any, axis: int, part: slice) -> Any:
    return getitem(x, (slice(None),) * (axis % len(x.shape)) + (part,))


def _logcumsumexp_weights(x: Any, out: Any, axis: int) -> tuple[Any, Any]:
    """Return the share of each element in its own sum, and of each sum in the next one.

    Sums never decrease: nothing overflows, and there is no division.
    """
    finite = where(equal(out, -np.inf), 0, out)  # -inf - -inf would be NaN
    own = exp(sub(x, finite))
    if not x.shape[axis]:
        return own, own
    before = _axis_slice(out, axis, slice(0, -1))
    lengths = list(x.shape)
    lengths[axis] = 1
    kept = exp(sub(before, _axis_slice(finite, axis, slice(1, None))))
    return own, concatenate([np.zeros(lengths, out.dtype), kept], axis)


def _logcumsumexp_vjp(g: Any, x: Any, out: Any, axis: int) -> Any:
    own, kept = _logcumsumexp_weights(widen_half(x), widen_half(out), axis)
    slope = mul(own, linear_recurrence(widen_half(g), kept, axis=axis, reverse=True))
    return narrow_half(slope, out.dtype)


def _logcumsumexp_jvp(t: Any, x: Any, out: Any, axis: int) -> Any:
    own, kept = _logcumsumexp_weights(widen_half(x), widen_half(out), axis)
    return narrow_half(linear_recurrence(mul(t, own), kept, axis=axis), out.dtype)


def _logcumsumexp_spec(x: Spec, axis: int) -> Spec:
    normalize_axes("logcumsumexp", axis, x.ndim)
    return Spec(x.shape, floating_dtype(x.dtype))


@op(
    real=True,
    primitive="scan",
    lowering=_lower_logcumsumexp,
    kernel=_logcumsumexp,
    canonical=_canonical_axis,
    infer=_logcumsumexp_spec,
    vjp={"x": _logcumsumexp_vjp},
    jvp={"x": _logcumsumexp_jvp},
    vmap="along",
    kinks="0 where all elements so far are -inf; NaN where one is inf",
    samples=[
        sample((2, 4)),
        sample((4, 2), axis=0),
        sample((2, 3, 2), axis=-2),
        sample((0, 3), axis=0),
        sample((1,)),
    ],
    rejects=[_NO_AXIS, reject((), match="does not fit")],
    precision="wide",
)
def logcumsumexp(x: Any, /, axis: int = -1) -> Any:
    """Logarithm of the cumulative sum of exponentials along ``axis``, without overflow."""
    return _logcumsumexp(x, axis)


publish(globals())
