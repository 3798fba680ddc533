"""Sums, means and extremes of slices that belong together, by the number that each bears."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import div, maximum
from odyssey.ops.elementwise.choice import (
    equal,
    greater_equal,
    keep_where,
    less,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from odyssey.ops.structure.gathering import add_taken, check_indices, take
from odyssey.ops.structure.half_precision import narrow_float16, widen_float16
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import as_operand, astype, reshape
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.store import numbers_of
from odyssey.table.value import Symbol

_IDS = np.array([0, 2, 0, 2, 5])
_SPARE = np.array([1, -1, 1, 7, 3])

# ------------------------------------------------------------------ segments


def _checked(who: str, data: Any, ids: Any, count: Any) -> tuple[Any, Any, int]:
    """Data, ids and how many segments there are."""
    data, ids = as_operand(who, "data", data), as_operand(who, "segment_ids", ids)
    _check_ids(who, data, ids)
    if count is None:
        known = numbers_of(who, ids)
        if isinstance(known, Symbol):
            raise DTypeError(
                f"{who}: segment_ids have no values while a graph is traced; pass num_segments"
            )
        return data, ids, _needed(known)
    return data, ids, _count(who, count)


def _needed(ids: Array) -> int:
    """How many segments the largest number asks for."""
    return max(int(ids.max()) + 1, 0) if ids.size else 0


def _check_ids(who: str, data: Any, ids: Any) -> None:
    check_indices(who, ids)
    shape: Any = getattr(ids, "shape", ())
    if len(shape) != 1 or not data.shape or data.shape[0] != shape[0]:
        raise ShapeError(
            f"{who}: segment_ids {shape} for data {data.shape}; each slice of data along its "
            "first axis needs one"
        )


def _count(who: str, count: Any) -> int:
    try:
        count = operator.index(count)
    except TypeError:
        raise DTypeError(f"{who}: num_segments is {shown(count)}; pass an int") from None
    if count < 0:
        raise ShapeError(f"{who}: num_segments is {count}; there cannot be fewer than none")
    return count


def _kept(ids: Any, count: int, tape: Any = None) -> Any:
    """The ids, with ``count`` in the place of those that no segment has."""
    ids = astype(ids, np.intp, tape=tape)  # in which the count has room
    own = logical_and(greater_equal(ids, 0, tape=tape), less(ids, count, tape=tape), tape=tape)
    return where(own, ids, count, tape=tape)


def _sums(data: Any, ids: Any, count: int, tape: Any = None) -> Any:
    spec = Spec((count + 1, *data.shape[1:]), data.dtype)
    sums = add_taken(data, _kept(ids, count, tape), axis=0, spec=spec, tape=tape)
    return getitem(sums, slice(count), tape=tape)


_SEGMENTS = (
    sample((5, 2), _IDS),
    sample((5,), _SPARE, num_segments=4),
    sample((5, 2, 2), _IDS, num_segments=3),
    sample((0, 2), np.zeros(0, int), num_segments=2),
)
_NO_SEGMENTS = (
    reject((3, 2), np.array([0, 1]), match="needs one"),
    reject((3,), np.array([[0, 1, 2]]), match="needs one"),
    reject((3,), np.array([0, 1, 1]), num_segments=-1, match="fewer than none"),
    reject((3,), np.array([0.0, 1, 1]), error=DTypeError, match="pass integers"),
    reject((3,), np.array([0, 1, 1]), num_segments=1.5, error=DTypeError, match="pass an int"),
)


@composite(samples=_SEGMENTS, rejects=_NO_SEGMENTS)
def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, *, tape: Any = None
) -> Any:
    """The sum of the slices of each segment, as ``jax.ops.segment_sum``.

    Args:
        data: Array, whose slices along its first axis are summed.
        segment_ids: For each slice the number of its segment, in any order; slices with a number
            that no segment has are left out.
        num_segments: How many there are; by default as many as the largest number asks for.
        tape: The tape to record on.

    Returns:
        One slice for each segment, in the dtype of ``data``; 0 for one without slices. What
        belongs together is summed in the order in which it came.

    Raises:
        ShapeError: where there is not one number for each slice. DTypeError: for numbers that are
            not integers.

    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([5., 0., 2.])
    """
    data, ids, count = _checked("segment_sum", data, segment_ids, num_segments)
    return _sums(data, ids, count, tape)


@composite(samples=_SEGMENTS, rejects=_NO_SEGMENTS)
def segment_mean(
    data: Any, segment_ids: Any, num_segments: int | None = None, *, tape: Any = None
) -> Any:
    """The mean of the slices of each segment; 0 for one without slices.

    Args:
        data: Array, of whose slices along its first axis the mean is taken.
        segment_ids: For each slice the number of its segment; see ``segment_sum``.
        num_segments: How many there are; by default as many as the largest number asks for.
        tape: The tape to record on.

    Raises:
        ShapeError: where there is not one number for each slice. DTypeError: for numbers that are
            not integers.

    >>> segment_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([2.5, 0. , 2. ])
    """
    data, ids, count = _checked("segment_mean", data, segment_ids, num_segments)
    if data.dtype.kind in "biu":
        data = astype(data, np.float64, tape=tape)
    ones = np.ones(data.shape[:1], np.float32 if data.dtype.char in "fFe" else np.float64)
    sizes = maximum(_sums(ones, ids, count, tape), 1, tape=tape)
    upright = reshape(sizes, (count, *(1,) * (len(data.shape) - 1)), tape=tape)
    half = data.dtype == np.float16  # whose sums stop growing at 2048
    sums = _sums(astype(data, np.float32, tape=tape) if half else data, ids, count, tape)
    return astype(div(sums, upright, tape=tape), data.dtype, tape=tape)


# ------------------------------------------------------------------ extremes


def _prepare(who: str) -> Any:
    return lambda num_segments: (
        num_segments if num_segments is None else _count(who, num_segments),
    )


def _infer(who: str) -> Any:
    def infer(data: Spec, segment_ids: Any, num_segments: int | None) -> Spec:
        _check_ids(who, data, segment_ids)
        if num_segments is None:
            raise DTypeError(
                f"{who}: segment_ids have no values while a graph is traced; pass num_segments"
            )
        return Spec((num_segments, *data.shape[1:]), data.dtype)

    return infer


def _start(largest: bool, dtype: np.dtype[Any]) -> Any:
    """The extreme of nothing."""
    if dtype.kind == "b":
        return not largest
    if dtype.kind == "f":
        return -np.inf if largest else np.inf
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


def _extremes(who: str, extreme: np.ufunc, largest: bool) -> Any:
    def run(data: Any, segment_ids: Any, num_segments: int | None) -> Any:
        data, ids = np.asarray(data), np.asarray(segment_ids)
        _check_ids(who, data, ids)
        ids = ids.astype(np.intp, copy=False)
        count = _needed(ids) if num_segments is None else num_segments
        out = np.full((count, *data.shape[1:]), _start(largest, data.dtype), data.dtype)
        own = ((ids >= 0) & (ids < count)).nonzero()[0]
        if own.size and data.size:
            order = own[ids[own].argsort(kind="stable")]
            ordered = ids[order]
            firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
            out[ordered[firsts]] = extreme.reduceat(data[order], firsts, 0)
        return out

    return run


def _natively(how: str) -> Any:
    def native(build: Any, data: Any, segment_ids: Any, num_segments: int) -> Any:
        shape = (num_segments + 1, *data.shape[1:])
        out = build.zeros(shape, data.dtype, _start(how == "max", data.dtype))
        kept = reshape(_kept(segment_ids, num_segments), (-1,) + (1,) * (data.ndim - 1))
        places = [kept, *(build.index(data.shape, k) for k in range(1, data.ndim))]
        return build.part(build.scatter(how, out, data, places), slice(0, num_segments))

    return native


_largest = _extremes("segment_max", np.maximum, True)
_smallest = _extremes("segment_min", np.minimum, False)


def _hits(data: Any, out: Any, ids: Any) -> tuple[Any, Any]:
    """Which elements are the extreme of their segment, and how many share it, slice by slice."""
    count = out.shape[0]
    kept = _kept(ids, count)
    own = reshape(less(kept, count), (-1,) + (1,) * (len(data.shape) - 1))
    peaks = take(out, kept, 0, mode="clip")
    both_nan = logical_and(not_equal(data, data), not_equal(peaks, peaks))
    hits = logical_and(own, logical_or(equal(data, peaks), both_nan))
    return hits, maximum(_sums(widen_float16(astype(hits, data.dtype)), ids, count), 1)


def _pull(g: Any, data: Any, segment_ids: Any, out: Any) -> Any:
    if not out.shape[0]:
        return np.zeros(data.shape, g.dtype)
    hits, sharing = _hits(data, out, segment_ids)
    spread = take(
        narrow_float16(div(g, sharing), data.dtype),
        _kept(segment_ids, out.shape[0]),
        0,
        mode="clip",
    )
    return keep_where(spread, hits)


def _push(t: Any, data: Any, segment_ids: Any, out: Any) -> Any:
    if not out.shape[0]:
        return np.zeros(out.shape, t.dtype)
    hits, sharing = _hits(data, out, segment_ids)
    total = _sums(widen_float16(keep_where(t, hits)), segment_ids, out.shape[0])
    return narrow_float16(div(total, sharing), data.dtype)


_ROW: dict[str, Any] = {
    "real": True,
    "selects": True,
    "primitive": "scatter",
    "canonical": lambda data, segment_ids, num_segments: (num_segments,),
    "vjp": {"data": _pull},
    "jvp": {"data": _push},
    "kinks": "ties share the gradient evenly; slices of no segment have 0",
    "samples": [
        # One without slices has an infinity, from which differences cannot be taken.
        sample((5, 2), np.array([0, 2, 0, 2, 1]), num_segments=3, spread=True),
        sample((5,), np.array([1, -1, 1, 7, 0]), num_segments=2, spread=True),
        sample((3, 2, 2), np.array([1, 0, 0]), num_segments=2, spread=True),
        sample((2,), np.array([0, 1]), num_segments=0),
    ],
    "rejects": list(_NO_SEGMENTS),
}


@op(
    kernel=_largest,
    lowering=_natively("max"),
    prepare=_prepare("segment_max"),
    infer=_infer("segment_max"),
    **_ROW,
)
def segment_max(data: Any, segment_ids: Any, /, num_segments: int | None = None) -> Any:
    """The largest number of each segment, see ``segment_sum``; -inf for one without slices.

    Integers have their least number there.

    >>> segment_max(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([  4., -inf,   2.])
    """
    return _largest(data, segment_ids, num_segments)


@op(
    kernel=_smallest,
    lowering=_natively("min"),
    prepare=_prepare("segment_min"),
    infer=_infer("segment_min"),
    **_ROW,
)
def segment_min(data: Any, segment_ids: Any, /, num_segments: int | None = None) -> Any:
    """The smallest number of each segment, see ``segment_sum``; inf for one without slices.

    Integers have their largest number there.

    >>> segment_min(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([ 1., inf,  2.])
    """
    return _smallest(data, segment_ids, num_segments)


publish(globals())
