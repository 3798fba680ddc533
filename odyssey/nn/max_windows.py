"""The largest elements of windows over arrays: what the rows of max pooling run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.nn.pool_windows import Places, Plan, along, plan_for
from odyssey.spec import Array, Shape

__all__ = ["first_places", "lowest", "max_pool", "pull", "push"]


def lowest(dtype: np.dtype[Any]) -> Any:
    """What no element is below, to begin a maximum with."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _largest(x: Any, plan: Plan) -> Array:
    """The largest element of each window: along one axis after another, which takes less work."""
    dims = len(plan.axes)
    for k in reversed(range(dims)):
        axis = plan.axes[k]
        parts = [(along(k, dims, w), along(k, dims, e)) for w, e in axis.reads]
        full = [e for (w, e), (of, _) in zip(parts, axis.reads, strict=True) if _all(of, axis)]
        if len(full) == len(parts) > 1:
            out = np.maximum(x[full[0]], x[full[1]])
            for e in full[2:]:
                np.maximum(out, x[e], out=out)
        else:
            shape = list(x.shape)
            shape[k - dims] = axis.windows
            out = np.full(shape, lowest(x.dtype), x.dtype)
            for w, e in parts:
                part = out[w]
                np.maximum(part, x[e], out=part)
        x = out
    return x


def _all(windows: slice, axis: Places) -> bool:
    return windows == slice(0, axis.windows)


def max_pool(who: str, x: Any, *options: Shape) -> Array:
    """The largest element of each window."""
    return _largest(x, plan_for(who, x, *options))


def _tile(shape: Shape, plan: Plan, one: bool) -> Shape:
    """``shape`` with an axis for the windows and one for their places, or of length 1."""
    dims = len(plan.out)
    head, sizes = shape[: len(shape) - dims], shape[len(shape) - dims :]
    pairs = [(m, 1 if one else n // m) for n, m in zip(sizes, plan.out, strict=True)]
    return head + tuple([length for pair in pairs for length in pair])


def _all_hits(x: Array, peak: Array, plan: Plan) -> tuple[list[Array], Array]:
    """Where elements are the largest, for each place within a window; how many of each window."""
    odd = x.dtype.kind == "f" and bool(np.isnan(peak).any())
    count, found = np.zeros(peak.shape, np.intp), []
    for windows, elements in plan.keys:
        hits: Array = x[elements] == peak[windows]
        if odd:
            hits |= np.isnan(x[elements]) & np.isnan(peak[windows])
        count[windows] += hits
        found.append(hits)
    return found, count


def pull(g: Any, x: Any, *options: Any) -> Array:
    """Each ``g`` shared by the elements that are the largest of its window."""
    plan = plan_for("max_pool_pullback", x, *options)
    if g.dtype != x.dtype:
        g = g.astype(np.result_type(g, x))
    peak = _largest(x, plan)
    if g.shape != peak.shape:
        raise ValueError("the cotangent has another shape than the maxima")
    if plan.tiles and x.size:
        narrow = _tile(peak.shape, plan, one=True)
        hits = x.reshape(_tile(x.shape, plan, one=False)) == peak.reshape(narrow)
        top = np.maximum.reduce(peak, None)
        if np.count_nonzero(hits) == peak.size and top == top:  # no ties, and no NaN
            return np.where(hits, g.reshape(narrow), g.dtype.type(0)).reshape(x.shape)
    found, count = _all_hits(x, peak, plan)
    share, out = g / count.astype(g.dtype), np.zeros(x.shape, g.dtype)
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[elements]
        np.add(part, share[windows], out=part, where=hits)
    return out


def push(t: Any, x: Any, *options: Any) -> Array:
    """The mean of ``t`` over the elements that are the largest of a window."""
    if t.shape != x.shape:
        raise ValueError("t has another shape than x")
    plan = plan_for("max_pool_pushforward", x, *options)
    peak = _largest(x, plan)
    found, count = _all_hits(x, peak, plan)
    out = np.zeros(peak.shape, np.result_type(t, x))
    for (windows, elements), hits in zip(plan.keys, found, strict=True):
        part = out[windows]
        np.add(part, t[elements], out=part, where=hits)
    out /= count.astype(out.dtype)
    return out


def first_places(who: str, x: Any, *options: Any) -> Array:
    """Where the first of the largest elements of each window stands, NaN before all others."""
    plan = plan_for(who, x, *options)
    dims = len(plan.out)
    shape = x.shape[: x.ndim - dims] + plan.out
    sizes = x.shape[x.ndim - dims :]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    best, out = np.empty(shape, x.dtype), np.full(shape, -1)
    for windows, elements in plan.keys:
        part, known, here = x[elements], best[windows], out[windows]
        better = (part > known) | (here < 0)
        if x.dtype.kind == "f":
            better |= np.isnan(part) & ~np.isnan(known)
        np.copyto(known, part, where=better)
        np.copyto(here, numbers[elements[1:]], where=better)
    return out
