"""Running extremes, and the running logarithm of a sum of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.extreme import latest
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import equal, logical_or, not_equal, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.reductions.cumulative import linear_recurrence
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.half_precision import halved, wide
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.placing import operand
from odyssey.spec import Spec
from odyssey.table.canonical import one_axis
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import along, floating, normalize_axes

_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")
_LINES = (
    sample((2, 4), spread=True),
    sample((4, 2), axis=0, spread=True),
    sample((2, 3, 2), axis=-2, spread=True),
    sample((0, 3), axis=0),
    sample((1,)),
)

# ------------------------------------------------------------------ running extremes


class Running(NamedTuple):
    """Running extremes, and where they stand."""

    values: Any
    indices: Any


def _check_order(x: Any) -> None:
    if x.dtype.kind == "c":
        raise DTypeError(f"cummax, cummin: x is {x.dtype}; complex numbers have no order")


def _latest_spec(who: str) -> Callable[..., Spec]:
    infer = along(who, lambda dtype: np.dtype(np.intp))

    def with_order(x: Spec, axis: int) -> Spec:
        _check_order(x)
        return infer(x, axis)

    return with_order


def _latest(who: str, extreme: np.ufunc) -> Callable[..., Any]:
    """Where the extreme of the elements so far stands, the latest of equal ones; the first NaNs."""

    def run(x: Any, axis: int) -> Any:
        x = np.asarray(x)
        _check_order(x)
        (k,) = normalize_axes(who, axis, x.ndim)
        found = (x == extreme.accumulate(x, k)) | (x != x)
        places = np.arange(x.shape[k]).reshape((-1,) + (1,) * (x.ndim - 1 - k))
        return np.maximum.accumulate(np.where(found, places, 0), k)

    return run


_latest_largest = _latest("running_argmax", np.maximum)
_latest_smallest = _latest("running_argmin", np.minimum)


def _latest_natively(largest: bool) -> Callable[..., Any]:
    def native(build: Any, x: Any, axis: int) -> Any:
        extreme = _larger if largest else _smaller
        found = equal(x, build.scan(extreme, x, axis=axis))
        if x.dtype.kind == "f":
            found = logical_or(found, not_equal(x, x))
        places = where(found, build.index(x.shape, axis), 0)
        return build.scan(_larger, places, axis=axis)

    return native


def _larger(x: Any, y: Any) -> Any:
    """The larger of two numbers, NaN if one is."""
    return select((x >= y) | (x != x), x, y)


def _smaller(x: Any, y: Any) -> Any:
    return select((x <= y) | (x != x), x, y)


def _loop(who: str, largest: bool) -> Kernel:
    def run(x: Any, axis: int) -> Any:
        (k,) = normalize_axes(who, axis, x.ndim)
        return latest(x, k, largest)

    return Kernel("one pass", run, when=lambda x, axis: x.dtype.char in "fd" and x.ndim > 0)


def _place(x: Any, axis: Any) -> tuple[Any]:
    return (one_axis(axis, x.ndim),)


@op(
    primitive="scan",
    lowering=_latest_natively(largest=True),
    kernel=_latest_largest,
    kernels=[_loop("running_argmax", largest=True)],
    canonical=_place,
    infer=_latest_spec("running_argmax"),
    samples=[*_LINES, sample(np.array([1.0, 3.0, np.nan, 2.0, 3.0]))],
    rejects=[_NO_AXIS],
)
def running_argmax(x: Any, /, axis: int = -1) -> Any:
    """Where the largest element so far stands, the latest of equal ones; a constant."""
    return _latest_largest(x, axis)


@op(
    primitive="scan",
    lowering=_latest_natively(largest=False),
    kernel=_latest_smallest,
    kernels=[_loop("running_argmin", largest=False)],
    canonical=_place,
    infer=_latest_spec("running_argmin"),
    samples=[*_LINES, sample(np.array([3.0, 1.0, np.nan, 2.0, 1.0]))],
    rejects=[_NO_AXIS],
)
def running_argmin(x: Any, /, axis: int = -1) -> Any:
    """Where the smallest element so far stands, the latest of equal ones; a constant."""
    return _latest_smallest(x, axis)


@composite(samples=_LINES, rejects=[_NO_AXIS])
def cummax(x: Any, axis: int = -1, *, tape: Any = None) -> Any:
    """The largest element so far along an axis, and where it stands, as ``torch.cummax``.

    Args:
        x: Array of real numbers.
        axis: Along which.
        tape: The tape to record on.

    Returns:
        ``values`` and ``indices``. Of equal elements the latest counts, which has the gradient;
        from a NaN on, all is NaN.

    Raises:
        ShapeError: where there is no such axis. DTypeError: for complex numbers.

    >>> cummax(np.array([1.0, 3.0, 2.0])).values
    array([1., 3., 3.])
    """
    x = operand("cummax", "x", x)
    indices = running_argmax(x, axis, tape=tape)
    return Running(take_along_axis(x, indices, axis, tape=tape), indices)


@composite(samples=_LINES, rejects=[_NO_AXIS])
def cummin(x: Any, axis: int = -1, *, tape: Any = None) -> Any:
    """The smallest element so far along an axis, and where it stands, as ``torch.cummin``.

    Args:
        x: Array of real numbers.
        axis: Along which.
        tape: The tape to record on.

    Returns:
        ``values`` and ``indices``. Of equal elements the latest counts, which has the gradient;
        from a NaN on, all is NaN.

    Raises:
        ShapeError: where there is no such axis. DTypeError: for complex numbers.

    >>> cummin(np.array([2.0, 3.0, 1.0])).indices
    array([0, 0, 2])
    """
    x = operand("cummin", "x", x)
    indices = running_argmin(x, axis, tape=tape)
    return Running(take_along_axis(x, indices, axis, tape=tape), indices)


# ------------------------------------------------------------------ running logsumexp


def _log_sums(x: Any, axis: int) -> Any:
    x = np.asarray(x)
    normalize_axes("logcumsumexp", axis, x.ndim)
    if x.dtype.kind in "biu":
        x = x.astype(floating(x.dtype))
    if x.dtype == np.float16:  # in which a sum of many does not grow by one of them
        return np.logaddexp.accumulate(x.astype(np.float32), axis).astype(np.float16)
    return np.logaddexp.accumulate(x, axis)


def _native_log_sums(build: Any, x: Any, axis: int) -> Any:
    dtype = floating(x.dtype)
    single = np.dtype(np.float32) if dtype == np.float16 else dtype
    sums = build.scan(_log_of_two, build.cast(x, single), axis=axis)
    return sums if single == dtype else build.cast(sums, dtype)


def _log_of_two(x: Any, y: Any) -> Any:
    """What ``logaddexp`` gives."""
    far = select(x > y, x, y) + math.log1p(math.exp(-abs(x - y)))
    return select(x == y, x + T(0.6931471805599453), far)


def _cut(x: Any, axis: int, part: slice) -> Any:
    return getitem(x, (slice(None),) * (axis % len(x.shape)) + (part,))


def _weights(x: Any, out: Any, axis: int) -> tuple[Any, Any]:
    """The share of an element in the sum that it ends, and that of each sum in the next.

    No sum is smaller than the one before it: nothing overflows, and there is no division.
    """
    finite = where(equal(out, -np.inf), 0, out)  # -inf - -inf would be NaN
    own = exp(sub(x, finite))
    if not x.shape[axis]:
        return own, own
    before = _cut(out, axis, slice(0, -1))
    lengths = list(x.shape)
    lengths[axis] = 1
    kept = exp(sub(before, _cut(finite, axis, slice(1, None))))
    return own, concatenate([np.zeros(lengths, out.dtype), kept], axis)


def _pull(g: Any, x: Any, out: Any, axis: int) -> Any:
    own, kept = _weights(wide(x), wide(out), axis)
    slope = mul(own, linear_recurrence(wide(g), kept, axis=axis, reverse=True))
    return halved(slope, out.dtype)


def _push(t: Any, x: Any, out: Any, axis: int) -> Any:
    own, kept = _weights(wide(x), wide(out), axis)
    return halved(linear_recurrence(mul(t, own), kept, axis=axis), out.dtype)


def _log_sums_spec(x: Spec, axis: int) -> Spec:
    normalize_axes("logcumsumexp", axis, x.ndim)
    return Spec(x.shape, floating(x.dtype))


@op(
    real=True,
    primitive="scan",
    lowering=_native_log_sums,
    kernel=_log_sums,
    canonical=_place,
    infer=_log_sums_spec,
    vjp={"x": _pull},
    jvp={"x": _push},
    kinks="0 where all elements so far are -inf; NaN where one is inf",
    samples=[
        sample((2, 4)),
        sample((4, 2), axis=0),
        sample((2, 3, 2), axis=-2),
        sample((0, 3), axis=0),
        sample((1,)),
    ],
    rejects=[_NO_AXIS, reject((), match="does not fit")],
)
def logcumsumexp(x: Any, /, axis: int = -1) -> Any:
    """Logarithm of the sum of the exponentials so far along ``axis``, without overflow."""
    return _log_sums(x, axis)


publish(globals())
