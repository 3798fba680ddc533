"""Segment reductions: sums, means, extremes and softmax of slices with equal segment ids."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_floating, is_half
from odyssey.errors import DTypeError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import add, div, maximum, mul, sub
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
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.structure.batching import example_specs, spread
from odyssey.ops.structure.gathering import add_taken, check_indices, take
from odyssey.ops.structure.half_precision import narrow_half, widen_half
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import as_operand, astype, moveaxis, reshape
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype
from odyssey.table.store import numbers_of
from odyssey.table.value import Symbol

_IDS = np.array([0, 2, 0, 2, 5])
_SPARE = np.array([1, -1, 1, 7, 3])

# ------------------------------------------------------------------ sums and means


def _segment_operands(who: str, data: Any, ids: Any, count: Any) -> tuple[Any, Any, int]:
    """Validate and return data, ids and the number of segments."""
    data, ids = as_operand(who, "data", data), as_operand(who, "segment_ids", ids)
    _check_ids(who, data, ids)
    if count is None:
        known = numbers_of(who, ids)
        if isinstance(known, Symbol):
            raise DTypeError(
                f"{who}: segment_ids have no values {known.graph.phase}; pass num_segments"
            )
        return data, ids, _required_segments(known)
    return data, ids, _num_segments_option(who, count)


def _required_segments(ids: Array) -> int:
    """Return the largest id plus one."""
    return max(int(ids.max()) + 1, 0) if ids.size else 0


def _check_ids(who: str, data: Any, ids: Any) -> None:
    check_indices(who, ids)
    shape: Any = getattr(ids, "shape", ())
    if len(shape) != 1 or not data.shape or data.shape[0] != shape[0]:
        raise ShapeError(
            f"{who}: segment_ids {shape} for data {data.shape}; each slice of data along its "
            "first axis needs one"
        )


def _num_segments_option(who: str, count: Any) -> int:
    try:
        count = operator.index(count)
    except TypeError:
        raise DTypeError(f"{who}: num_segments is {format_value(count)}; pass an int") from None
    if count < 0:
        raise ShapeError(f"{who}: num_segments is {count}; it must not be negative")
    if count > sys.maxsize:
        raise ShapeError(f"{who}: num_segments is {count}; an axis has at most {sys.maxsize} rows")
    return count


def _clamp_ids(ids: Any, count: int) -> Any:
    """Replace ids out of range by ``count``."""
    ids = astype(ids, np.intp)  # wide enough for the count
    own = logical_and(greater_equal(ids, 0), less(ids, count))
    return where(own, ids, count)


def _add_segments(data: Any, ids: Any, count: int) -> Any:
    spec = Spec((count + 1, *data.shape[1:]), data.dtype)
    sums = add_taken(data, _clamp_ids(ids, count), axis=0, spec=spec)
    return getitem(sums, slice(count))


_SEGMENTS = (
    sample((5, 2), _IDS),
    sample((5,), _SPARE, num_segments=4),
    sample((5, 2, 2), _IDS, num_segments=3),
    sample((0, 2), np.zeros(0, int), num_segments=2),
)
_NO_SEGMENTS = (
    reject((3, 2), np.array([0, 1]), match="needs one"),
    reject((3,), np.array([[0, 1, 2]]), match="needs one"),
    reject((3,), np.array([0, 1, 1]), num_segments=-1, match="must not be negative"),
    reject((3,), np.array([0, 1, 1]), num_segments=2**63, match="an axis has at most"),
    reject((3,), np.array([0.0, 1, 1]), error=DTypeError, match="pass integers"),
    reject((3,), np.array([0, 1, 1]), num_segments=1.5, error=DTypeError, match="pass an int"),
)


@composite(samples=_SEGMENTS, rejects=_NO_SEGMENTS)
def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Sum of the slices of each segment, as ``jax.ops.segment_sum``.

    Args:
        data: Array, whose slices along its first axis are summed.
        segment_ids: The segment id of each slice, in any order; slices with an id out of range are
            ignored.
        num_segments: Number of segments; by default the largest id plus one.

    Returns:
        One slice for each segment, in the dtype of ``data``; 0 for an empty segment. Slices are
        added in their order.

    Raises:
        ShapeError: if the number of ids and slices differ. DTypeError: if ids are not
            integers.

    >>> segment_sum(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([5., 0., 2.])
    """
    data, ids, count = _segment_operands("segment_sum", data, segment_ids, num_segments)
    return _add_segments(data, ids, count)


@composite(samples=_SEGMENTS, rejects=_NO_SEGMENTS)
def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Mean of the slices of each segment; 0 for an empty segment.

    Args:
        data: Array, whose slices along its first axis are averaged.
        segment_ids: The segment id of each slice; see ``segment_sum``.
        num_segments: Number of segments; by default the largest id plus one.

    Raises:
        ShapeError: if the number of ids and slices differ. DTypeError: if ids are not
            integers.

    >>> segment_mean(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([2.5, 0. , 2. ])
    """
    data, ids, count = _segment_operands("segment_mean", data, segment_ids, num_segments)
    if data.dtype.kind in "biu":
        data = astype(data, np.float64)
    ones = np.ones(data.shape[:1], np.float32 if data.dtype.char in "fFe" else np.float64)
    sizes = maximum(_add_segments(ones, ids, count), 1)
    upright = reshape(sizes, (count, *(1,) * (len(data.shape) - 1)))
    half = is_half(data.dtype)  # float16 sums stop growing at 2048
    sums = _add_segments(astype(data, np.float32) if half else data, ids, count)
    return astype(div(sums, upright), data.dtype)


# ------------------------------------------------------------------ extremes


def _prepare_segments(who: str) -> Any:
    return lambda num_segments: (
        num_segments if num_segments is None else _num_segments_option(who, num_segments),
    )


def _segment_extreme_infer(who: str) -> Any:
    def infer(data: Spec, segment_ids: Any, num_segments: int | None) -> Spec:
        _check_ids(who, data, segment_ids)
        if num_segments is None:
            raise DTypeError(
                f"{who}: segment_ids have no values while a graph is traced, and in a function "
                "that vmap runs; pass num_segments"
            )
        return Spec((num_segments, *data.shape[1:]), data.dtype)

    return infer


def _extreme_identity(largest: bool, dtype: np.dtype[Any]) -> Any:
    """Return the extreme of an empty segment."""
    if dtype.kind == "b":
        return not largest
    if is_floating(dtype):
        return -np.inf if largest else np.inf
    return np.iinfo(dtype).min if largest else np.iinfo(dtype).max


def _segment_extreme(who: str, extreme: np.ufunc, largest: bool) -> Any:
    def run(data: Any, segment_ids: Any, num_segments: int | None) -> Any:
        data, ids = np.asarray(data), np.asarray(segment_ids)
        _check_ids(who, data, ids)
        ids = ids.astype(np.intp, copy=False)
        count = _required_segments(ids) if num_segments is None else num_segments
        out = np.full((count, *data.shape[1:]), _extreme_identity(largest, data.dtype), data.dtype)
        own = ((ids >= 0) & (ids < count)).nonzero()[0]
        if own.size and data.size:
            order = own[ids[own].argsort(kind="stable")]
            ordered = ids[order]
            firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
            out[ordered[firsts]] = extreme.reduceat(data[order], firsts, 0)
        return out

    return run


def _segment_extreme_lowering(how: str) -> Any:
    def lower_segment_extreme(build: Any, data: Any, segment_ids: Any, num_segments: int) -> Any:
        shape = (num_segments + 1, *data.shape[1:])
        out = build.full(shape, data.dtype, _extreme_identity(how == "max", data.dtype))
        kept = reshape(_clamp_ids(segment_ids, num_segments), (-1,) + (1,) * (data.ndim - 1))
        places = [kept, *(build.index(data.shape, k) for k in range(1, data.ndim))]
        return build.slice(build.scatter(how, out, data, places), slice(0, num_segments))

    return lower_segment_extreme


_largest = _segment_extreme("segment_max", np.maximum, True)
_smallest = _segment_extreme("segment_min", np.minimum, False)


def _extreme_mask(data: Any, out: Any, ids: Any) -> tuple[Any, Any]:
    """Return a mask of the elements equal to the extreme of their segment, and their count."""
    count = out.shape[0]
    kept = _clamp_ids(ids, count)
    own = reshape(less(kept, count), (-1,) + (1,) * (len(data.shape) - 1))
    peaks = take(out, kept, 0, mode="clip")
    both_nan = logical_and(not_equal(data, data), not_equal(peaks, peaks))
    hits = logical_and(own, logical_or(equal(data, peaks), both_nan))
    return hits, maximum(_add_segments(widen_half(astype(hits, data.dtype)), ids, count), 1)


def _segment_extreme_vjp(g: Any, data: Any, segment_ids: Any, out: Any) -> Any:
    if not out.shape[0]:
        return np.zeros(data.shape, g.dtype)
    hits, sharing = _extreme_mask(data, out, segment_ids)
    spread = take(
        narrow_half(div(g, sharing), data.dtype),
        _clamp_ids(segment_ids, out.shape[0]),
        0,
        mode="clip",
    )
    return keep_where(spread, hits)


def _segment_extreme_jvp(t: Any, data: Any, segment_ids: Any, out: Any) -> Any:
    if not out.shape[0]:
        return np.zeros(out.shape, t.dtype)
    hits, sharing = _extreme_mask(data, out, segment_ids)
    total = _add_segments(widen_half(keep_where(t, hits)), segment_ids, out.shape[0])
    return narrow_half(div(total, sharing), data.dtype)


def _segment_batch(row_call: Callable[[], Any], returns_slices: bool = False) -> Any:
    """Return the batch rule of an op on segments.

    Args:
        row_call: Returns the op, which is declared after its rule.
        returns_slices: Whether the result has one slice for each of ``data``, not each segment.
    """

    def rule(batch: Batch, data: Any, segment_ids: Any, num_segments: int | None) -> Any:
        call = row_call()
        specs = example_specs(batch, [data, segment_ids])
        if not batch.mapped[1]:
            _check_ids(call.row.name, *specs)
            return moveaxis(call(moveaxis(data, 0, 1), segment_ids, num_segments), 1, 0)
        call.row.infer(*specs, num_segments)
        assert num_segments is not None  # infer refuses it
        # The segments of all examples, one after another.
        starts = (np.arange(batch.size) * num_segments)[:, None]
        ids = astype(segment_ids, np.intp)
        own = logical_and(greater_equal(ids, 0), less(ids, num_segments))
        ids = reshape(where(own, add(ids, starts), -1), -1)
        data = spread(batch, 0, data)
        flat = reshape(data, (ids.shape[0], *data.shape[2:]))
        out = call(flat, ids, batch.size * num_segments)
        return reshape(
            out, data.shape if returns_slices else (batch.size, num_segments, *data.shape[2:])
        )

    return rule


_ROW: dict[str, Any] = {
    "real": True,
    "selects": True,
    "primitive": "scatter",
    "canonical": lambda data, segment_ids, num_segments: (num_segments,),
    "vjp": {"data": _segment_extreme_vjp},
    "jvp": {"data": _segment_extreme_jvp},
    "kinks": "ties share the gradient evenly; slices of no segment have 0",
    "samples": [
        # An empty segment has an infinity, whose finite differences are NaN.
        sample((5, 2), np.array([0, 2, 0, 2, 1]), num_segments=3, spread=True),
        sample((5,), np.array([1, -1, 1, 7, 0]), num_segments=2, spread=True),
        sample((3, 2, 2), np.array([1, 0, 0]), num_segments=2, spread=True),
        sample((2,), np.array([0, 1]), num_segments=0),
    ],
    "rejects": list(_NO_SEGMENTS),
}


@op(
    kernel=_largest,
    lowering=_segment_extreme_lowering("max"),
    prepare=_prepare_segments("segment_max"),
    infer=_segment_extreme_infer("segment_max"),
    vmap=_segment_batch(lambda: segment_max),
    **_ROW,
)
def segment_max(data: Any, segment_ids: Any, /, num_segments: int | None = None) -> Any:
    """Maximum of each segment, see ``segment_sum``; -inf for an empty one.

    An empty segment of integers has the smallest integer.

    >>> segment_max(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([  4., -inf,   2.])
    """
    return _largest(data, segment_ids, num_segments)


@op(
    kernel=_smallest,
    lowering=_segment_extreme_lowering("min"),
    prepare=_prepare_segments("segment_min"),
    infer=_segment_extreme_infer("segment_min"),
    vmap=_segment_batch(lambda: segment_min),
    **_ROW,
)
def segment_min(data: Any, segment_ids: Any, /, num_segments: int | None = None) -> Any:
    """Minimum of each segment, see ``segment_sum``; inf for an empty one.

    An empty segment of integers has the largest integer.

    >>> segment_min(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 0]))
    array([ 1., inf,  2.])
    """
    return _smallest(data, segment_ids, num_segments)


# ------------------------------------------------------------------ softmax


def _softmax_infer(data: Spec, segment_ids: Any, num_segments: int | None) -> Spec:
    _segment_extreme_infer("segment_softmax")(data, segment_ids, num_segments)
    return Spec(data.shape, floating_dtype(data.dtype))


@ignore_fp_errors("invalid", "under")
def _softmax_kernel(data: Any, segment_ids: Any, num_segments: int | None) -> Any:
    data, ids = np.asarray(data), np.asarray(segment_ids)
    _check_ids("segment_softmax", data, ids)
    dtype = floating_dtype(data.dtype)
    wide = data.astype(np.float32 if is_half(dtype) else dtype)
    ids = ids.astype(np.intp, copy=False)
    count = _required_segments(ids) if num_segments is None else num_segments
    out = np.zeros(wide.shape, wide.dtype)
    own = ((ids >= 0) & (ids < count)).nonzero()[0]
    if own.size and data.size:
        order = own[ids[own].argsort(kind="stable")]
        firsts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        counts = np.diff(firsts, append=order.size)
        parts = wide[order]
        parts -= np.repeat(np.maximum.reduceat(parts, firsts, 0), counts, 0)
        np.exp(parts, out=parts)
        parts /= np.repeat(np.add.reduceat(parts, firsts, 0), counts, 0)
        out[order] = parts
    return out.astype(dtype, copy=False)


def _decompose_softmax(data: Any, segment_ids: Any, num_segments: int) -> Any:
    data = data if is_floating(data.dtype) else astype(data, np.float64)
    if not num_segments:
        return keep_where(data, np.zeros(data.shape, bool))
    wide = widen_half(data)
    kept = _clamp_ids(segment_ids, num_segments)
    peaks = segment_max(wide, segment_ids, num_segments)
    parts = exp(sub(wide, take(peaks, kept, 0, mode="clip")))
    own = reshape(less(kept, num_segments), (-1,) + (1,) * (len(data.shape) - 1))
    parts = keep_where(parts, own)
    sums = take(_add_segments(parts, segment_ids, num_segments), kept, 0, mode="clip")
    return narrow_half(keep_where(div(parts, sums), own), data.dtype)


def _softmax_rule(g: Any, out: Any, segment_ids: Any, num_segments: int | None) -> Any:
    """Return ``out * (g - the sum of g * out over the segment)``, in either mode."""
    if num_segments is None:
        num_segments = _required_segments(numbers_of("segment_softmax", segment_ids))
    if not num_segments:
        return np.zeros(g.shape, g.dtype)
    wide, weights = widen_half(g), widen_half(out)
    sums = _add_segments(mul(wide, weights), segment_ids, num_segments)
    spread = take(sums, _clamp_ids(segment_ids, num_segments), 0, mode="clip")
    return narrow_half(mul(weights, sub(wide, spread)), g.dtype)


@op(
    real=True,
    kernel=_softmax_kernel,
    decomposition=_decompose_softmax,
    prepare=_prepare_segments("segment_softmax"),
    canonical=lambda data, segment_ids, num_segments: (num_segments,),
    infer=_softmax_infer,
    vjp={"data": _softmax_rule},
    jvp={
        "data": lambda t, out, segment_ids, num_segments: _softmax_rule(
            t, out, segment_ids, num_segments
        )
    },
    vmap=_segment_batch(lambda: segment_softmax, returns_slices=True),
    samples=[
        sample((5, 2), np.array([0, 2, 0, 2, 1]), num_segments=3),
        sample((5,), np.array([1, -1, 1, 7, 0]), num_segments=2),
        sample((3, 2, 2), np.array([1, 0, 0]), num_segments=2),
        sample((2,), np.array([0, 1]), num_segments=0),
        sample((0, 2), np.zeros(0, int), num_segments=2),
    ],
    rejects=list(_NO_SEGMENTS),
    precision="wide",
)
def segment_softmax(data: Any, segment_ids: Any, /, num_segments: int | None = None) -> Any:
    """Softmax over the slices of each segment, as the attention of a graph's nodes over edges.

    The result has the shape of the data. Slices with an id out of range are 0.

    >>> segment_softmax(np.array([0.0, 1.0, 0.0]), np.array([0, 2, 0]))
    array([0.5, 1. , 0.5])
    """
    return _softmax_kernel(data, segment_ids, num_segments)


publish(globals())
