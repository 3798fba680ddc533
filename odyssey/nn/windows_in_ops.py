"""The windows of pooling as ops, for graphs: read at once, and added back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.nn.average_windows import MEAN, divisors, plan_over
from odyssey.nn.pool_windows import FEW, Plan, Step
from odyssey.ops.elementwise.arithmetic import add, div
from odyssey.ops.elementwise.choice import where
from odyssey.ops.reductions.broadcast_back import spread
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.gathering import add_taken, take
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Array, Shape, Spec
from odyssey.table.operands import real_dtype

__all__ = ["averages_in_ops", "in_windows", "spread_in_ops"]


def in_windows(x: Any, plan: Plan) -> tuple[Any, Array, Array]:
    """The elements of each window along axis -2; their numbers, and where there are any."""
    dims = len(plan.out)
    head, sizes = x.shape[: len(x.shape) - dims], x.shape[len(x.shape) - dims :]
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    places = np.zeros((len(plan.keys), *plan.out), np.intp)
    known = np.zeros(places.shape, bool)
    for k, (windows, elements) in enumerate(plan.keys):
        places[k][windows] = numbers[elements]
        known[k][windows] = True
    places, known = places.reshape(len(places), -1), known.reshape(len(places), -1)
    return take(reshape(x, (*head, numbers.size)), places, axis=-1), places, known


def _along(step: Step) -> tuple[Array, Array]:
    """The numbers of the elements of each window of one axis; and where there are any.

    Returns:
        Both of shape (places within a window, windows), the second with an axis of length 1 for
        each axis behind.
    """
    numbers = np.arange(step.length)
    places = np.zeros((len(step.keys), step.windows), np.intp)
    known = np.zeros(places.shape, bool)
    for k, ((_, windows, *_), (_, elements, *_)) in enumerate(step.keys):
        places[k][windows] = numbers[elements]
        known[k][windows] = True
    return places, known.reshape(*places.shape, *(1,) * (-1 - step.axis))


def _sums(x: Any, plan: Plan) -> Any:
    """The sum of each window: along one axis after another.

    Whether windows cover the images or not, so that graphs of all sizes are alike.
    """
    for step in plan.steps:
        places, known = _along(step)
        axis = len(x.shape) + step.axis
        found = take(x, places, axis=axis)
        x = sum(found if known.all() else where(known, found, 0), axis)
    return x


def _added_back(share: Any, plan: Plan) -> Any:
    """For each element of the images the sum of the shares of the windows that have it."""
    for step in reversed(plan.steps):
        places, known = _along(step)
        axis = len(share.shape) + step.axis
        before, behind = share.shape[:axis], share.shape[axis:]
        parts = spread(share, Spec((*before, len(places), *behind), share.dtype), (axis,), False)
        kept = parts if known.all() else where(known, parts, 0)
        spec = Spec(tuple(step.spread(share.shape)), share.dtype)
        share = add_taken(kept, places, axis=axis, spec=spec)
    return share


def averages_in_ops(
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    ceil_mode: bool,
) -> Any:
    """What average pooling equals, over as many axes as the options have numbers."""
    plan = plan_over("avg_pool", x, window, stride, padding, ceil_mode)
    counts = divisors(plan, window, count_include_pad)
    total: Any = None
    shape = (*x.shape[: len(x.shape) - len(window)], *plan.out)
    dtype = MEAN(np.dtype(x.dtype))
    if len(plan.keys) > FEW:
        total = _sums(div(x, 1), plan)
    else:
        for windows, elements in plan.keys:
            part = add_at(div(getitem(x, elements), 1), windows, spec=Spec(shape, dtype))
            total = part if total is None else add(total, part)
    return div(total, np.asarray(counts, real_dtype(dtype)))


def spread_in_ops(
    g: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool,
) -> Any:
    """What the way back equals."""
    plan = plan_over("avg_pool", spec, window, stride, padding, ceil_mode)
    dtype = MEAN(np.dtype(g.dtype))
    counts = np.asarray(divisors(plan, window, count_include_pad), real_dtype(dtype))
    share, total = div(g, counts), None
    if len(plan.keys) > FEW:
        return _added_back(share, plan)
    for windows, elements in plan.keys:
        part = add_at(getitem(share, windows), elements, spec=Spec(spec.shape, dtype))
        total = part if total is None else add(total, part)
    return total
