"""The means of windows over arrays: what the rows of average pooling run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.nn.pool_windows import Plan, plan_for
from odyssey.spec import Array, Shape, Spec
from odyssey.table.shape_rules import made_by

__all__ = ["MEAN", "averages", "divisors", "plan_over", "spread_back"]

MEAN = made_by(np.mean)
"""From the dtype of numbers to that of their mean."""


def plan_over(
    who: str, x: Any, window: Shape, stride: Shape, padding: Shape, ceil_mode: bool
) -> Plan:
    """The windows over the last axes of an array, or of a spec."""
    return plan_for(who, x, window, stride, padding, (1,) * len(window), ceil_mode)


def divisors(plan: Plan, window: Shape, count_include_pad: bool) -> Any:
    """What the sums of windows are divided by: one number, or one for each window."""
    by_axis = plan.padded if count_include_pad else plan.filled
    if plan.wide or all((n == k).all() for n, k in zip(by_axis, window, strict=True)):
        return float(math.prod(window))
    counts: Any = 1.0
    for places in by_axis:
        counts = np.multiply.outer(counts, places)
    return counts


# Half precision is summed in single, as NumPy does.
_KINDS = {np.dtype(c): (np.dtype(w), np.dtype(c)) for c, w in zip("efdFD", "ffdFD", strict=True)}


def _dtypes(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The dtype that sums are made in, and that of means."""
    known = _KINDS.get(dtype)
    return known or (MEAN(dtype), MEAN(dtype))


def averages(
    who: str,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    ceil_mode: bool,
) -> Array:
    """The mean of each window."""
    plan = plan_over(who, x, window, stride, padding, ceil_mode)
    wide, result = _dtypes(x.dtype)
    for step in plan.steps:
        if step.full and len(step.keys) > 1:
            (_, first), (_, second), *others = step.keys
            sums = np.add(x[first], x[second], dtype=wide)
            for _, elements in others:
                np.add(sums, x[elements], out=sums)
        else:
            sums = np.zeros(step.folded(x.shape), wide)
            for windows, elements in step.keys:
                part = sums[windows]
                np.add(part, x[elements], out=part)
        x = sums
    counts = divisors(plan, window, count_include_pad)
    np.divide(x, counts, out=x, casting="same_kind")
    return x if result is wide else x.astype(result)


def spread_back(
    g: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool,
) -> Array:
    """Each ``g`` spread evenly over its window."""
    plan = plan_over("avg_pool_pullback", spec, window, stride, padding, ceil_mode)
    if g.shape != spec.shape[: spec.ndim - len(window)] + plan.out:
        raise ValueError("g has another shape than the windows")
    wide, result = _dtypes(g.dtype)
    counts = divisors(plan, window, count_include_pad)
    share = np.divide(g, counts, dtype=wide, casting="same_kind")
    if plan.wide and share.size:
        out = np.empty(spec.shape, result)
        out.reshape(plan.wide)[...] = share.reshape(plan.narrow)
        return out
    for step in reversed(plan.steps):
        parts = np.zeros(step.spread(share.shape), wide)
        for windows, elements in step.keys:
            part = parts[elements]
            np.add(part, share[windows], out=part)
        share = parts
    return share if result is wide else share.astype(result)
