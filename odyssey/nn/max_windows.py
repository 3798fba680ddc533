"""The largest elements of windows over arrays: what the rows of max pooling run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.nn.pool_windows import Plan, plan_for
from odyssey.spec import Array

__all__ = ["first_places", "lowest", "max_pool", "pull", "push"]


def lowest(dtype: np.dtype[Any]) -> Any:
    """What no element is below, to begin a maximum with."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _largest(x: Any, plan: Plan) -> Array:
    """The largest element of each window: along one axis after another, which takes less work."""
    for step in plan.steps:
        if step.full and len(step.keys) > 1:
            (_, first), (_, second), *others = step.keys
            out = np.maximum(x[first], x[second])
            for _, elements in others:
                np.maximum(out, x[elements], out=out)
        else:
            out = np.full(step.folded(x.shape), lowest(x.dtype), x.dtype)
            for windows, elements in step.keys:
                part = out[windows]
                np.maximum(part, x[elements], out=part)
        x = out
    return x


def max_pool(who: str, x: Any, *options: Any) -> Array:
    """The largest element of each window."""
    return _largest(x, plan_for(who, x, *options))


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


def pull(g: Any, x: Any, *options: Any, peak: Any = None) -> Array:
    """Each ``g`` shared by the elements that are the largest of its window.

    ``peak`` has the largest element of each window, if they are known.
    """
    plan = plan_for("max_pool_pullback", x, *options)
    if g.dtype != x.dtype:
        g = g.astype(np.result_type(g, x))
    if peak is None:
        peak = _largest(x, plan)
    if g.shape != peak.shape:
        raise ValueError("the cotangent has another shape than the maxima")
    if plan.wide and x.size:
        hits = x.reshape(plan.wide) == peak.reshape(plan.narrow)
        square = np.vdot(peak, peak)  # NaN only where there is one, in half the time of a search
        if np.count_nonzero(hits) == peak.size and square == square:  # no ties, and no NaN
            out = np.zeros(x.shape, g.dtype)
            np.copyto(out.reshape(plan.wide), g.reshape(plan.narrow), where=hits)
            return out
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
