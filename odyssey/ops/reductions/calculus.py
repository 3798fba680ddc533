"""Differences of neighbours, and what numerical calculus makes of them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.choice import not_equal
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import Axes, astype, broadcast_to, reshape, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import Symbol, Value


def _array(who: str, name: str, x: Any) -> Any:
    return x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)


def _cut(x: Any, axis: int, start: int | None, stop: int | None, tape: Any) -> Any:
    return getitem(x, (slice(None),) * axis + (slice(start, stop),), tape=tape)


def _one_axis(who: str, axis: Any, x: Any) -> int:
    axes = normalize_axes(who, axis, len(x.shape)) if axis is not None else ()
    if len(axes) != 1:
        raise ShapeError(
            f"{who}: axis is {shown(axis)} for an array of shape {x.shape}; pass one axis"
        )
    return axes[0]


@composite(
    numpy=[np.diff],
    samples=[
        sample((2, 4)),
        sample((4, 2), n=2, axis=0),
        sample((2, 3), prepend=0.5, append=np.ones((2, 2))),
        sample((3,), n=0),
        sample((2,), n=4),
        sample((0,)),
    ],
    rejects=[
        reject((), match="does not fit"),
        reject((3,), n=-1, error=SettingError, match="cannot be negative"),
    ],
)
def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None, *, tape: Any = None
) -> Any:
    """Differences of neighbours along an axis, taken ``n`` times.

    Args:
        a: Array of one axis or more; of truth values it tells where neighbours differ.
        n: How often.
        axis: Along which axis.
        prepend: What to put before the array, an array or one number for all lines.
        append: What to put behind it.
        tape: The tape to record on.

    Returns:
        An array that is shorter by ``n`` along ``axis``.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or a negative ``n``.

    >>> diff(np.array([1, 4, 9, 16]))
    array([3, 5, 7])
    """
    n = operator.index(n)
    if n < 0:
        raise SettingError(f"diff: n is {n}; how often cannot be negative")
    if n == 0:
        return a
    a = _array("diff", "a", a)
    k = _one_axis("diff", axis, a)
    ends = [("prepend", prepend), ("append", append)]
    before, after = (_end(a, name, end, k, tape) for name, end in ends)
    if before or after:
        a = concatenate([*before, a, *after], axis=k, tape=tape)
    for _ in range(min(n, a.shape[k])):  # after that many none are left
        apart = not_equal if a.dtype == bool else sub
        a = apart(_cut(a, k, 1, None, tape), _cut(a, k, None, -1, tape), tape=tape)
    return a


def _end(a: Any, name: str, end: Any, axis: int, tape: Any) -> list[Any]:
    if end is None:
        return []
    end = _array("diff", name, end)
    if not end.shape:
        end = broadcast_to(end, (*a.shape[:axis], 1, *a.shape[axis + 1 :]), tape=tape)
    return [end]


# ------------------------------------------------------------------ integral


@composite(
    numpy=[np.trapezoid],
    samples=[
        sample((2, 4)),
        sample((4, 2), (4,), axis=0),
        sample((2, 3), (2, 3)),
        sample((3,), dx=0.25),
        sample((2, 1)),
        sample((0,)),
    ],
    rejects=[reject((2, 3), axis=2, match="does not fit")],
)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1, *, tape: Any = None) -> Any:
    """The integral along an axis by the trapezoidal rule.

    Args:
        y: The values, an array of one axis or more.
        x: Where they are, on one axis or in the shape of ``y``; by default ``dx`` apart.
        dx: How far apart they are where there is no ``x``.
        axis: Along which axis.
        tape: The tape to record on.

    Returns:
        The integrals, with gradients in ``y``, ``x`` and ``dx``.

    Raises:
        ShapeError: for an axis that ``y`` lacks, or an ``x`` that does not fit.

    >>> float(trapezoid(np.array([1.0, 3.0, 5.0]), dx=0.5))
    3.0
    """
    y = _array("trapezoid", "y", y)
    k = _one_axis("trapezoid", axis, y)
    if x is None:
        widths = dx
    else:
        x = _array("trapezoid", "x", x)
        widths = diff(x, axis=-1 if len(x.shape) == 1 else axis, tape=tape)
        if len(x.shape) == 1:
            widths = reshape(widths, _upright(widths.shape[0], k, len(y.shape)), tape=tape)
    ends = add(_cut(y, k, 1, None, tape), _cut(y, k, None, -1, tape), tape=tape)
    return sum(div(mul(widths, ends, tape=tape), 2.0, tape=tape), k, tape=tape)


def _upright(length: int, axis: int, ndim: int) -> tuple[int, ...]:
    """The shape of a vector that stands along one of ``ndim`` axes."""
    return (1,) * axis + (length,) + (1,) * (ndim - axis - 1)


# ------------------------------------------------------------------ derivative


@composite(
    numpy=[np.gradient],
    samples=[
        sample((4, 3)),
        sample((4, 3), 0.5, axis=-1),
        sample((4, 3), (), 2.0, axis=(1, 0)),
        sample((4,), np.array([0.0, 1.0, 3.0, 4.5]), edge_order=2),
        sample((3,), (3,), low=0.5, spread=True),
        sample((2, 0), axis=0),
    ],
    rejects=[reject((1, 3), axis=0, match="too short"), reject((3,), (2,), match="pass 3")],
)
def gradient(
    f: Any, *varargs: Any, axis: Axes = None, edge_order: int = 1, tape: Any = None
) -> Any:
    """Slopes of sampled values, by central differences inside and one-sided ones at the ends.

    Not the gradient of a function, which is ``od.grad``.

    Args:
        f: The values, an array of one axis or more.
        varargs: How far apart they are: nothing for 1, a number for all axes, or for each axis a
            number or the places along it.
        axis: Along which axes; by default all.
        edge_order: Of how many points more the slopes at the ends are made, 1 or 2.
        tape: The tape to record on.

    Returns:
        An array of the shape of ``f``, or for several axes a tuple of them.

    Raises:
        ShapeError: for an axis that ``f`` lacks or is too short, or places that do not fit.

    >>> gradient(np.array([1.0, 2.0, 4.0, 7.0]))
    array([1. , 1.5, 2.5, 3. ])
    """
    f = _array("gradient", "f", f)
    axes = _axes_in_order(axis, len(f.shape))
    if edge_order not in (1, 2):
        raise SettingError(f"gradient: edge_order is {shown(edge_order)}; pass 1 or 2")
    if f.dtype.kind in "biu":
        f = astype(f, np.float64, tape=tape)
    for k in axes:
        if f.shape[k] < edge_order + 1:
            raise ShapeError(
                f"gradient: axis {k} of {f.shape} is too short; edge_order={edge_order} needs "
                f"{edge_order + 1} elements or more"
            )
    steps = _spacing(f, varargs, axes, tape)
    slopes = [_slopes(f, k, d, edge_order, tape) for k, d in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _axes_in_order(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    normalize_axes("gradient", axis, ndim)
    return [k % ndim for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]


def _spacing(f: Any, given: Any, axes: list[int], tape: Any) -> list[Any]:
    """For each axis one distance, or the distances between neighbours as a vector."""
    if not given:
        return [1.0] * len(axes)
    given = [
        d if isinstance(d, (int, float)) else _array("gradient", "a spacing", d) for d in given
    ]
    if len(given) == 1 and not shape_of(given[0]):
        given = given * len(axes)
    if len(given) != len(axes):
        raise DTypeError(f"gradient: {len(given)} spacings came for {len(axes)} axes")
    return [_distances(f, d, k, tape) for d, k in zip(given, axes, strict=True)]


def _distances(f: Any, given: Any, axis: int, tape: Any) -> Any:
    shape = shape_of(given)
    if not shape:
        return given
    if shape != (f.shape[axis],):
        raise ShapeError(
            f"gradient: the places along axis {axis} have shape {shape}; pass {f.shape[axis]} "
            "of them on one axis, or one distance"
        )
    if given.dtype.kind in "biu":
        given = astype(given, np.float64, tape=tape)
    steps = diff(given, tape=tape)
    # Where places may have a gradient, all of them matter, though they are evenly spaced.
    if isinstance(steps, (Value, Symbol)) or not (steps == steps[0]).all():
        return steps
    return steps[0]


def _slopes(f: Any, axis: int, step: Any, edge_order: int, tape: Any) -> Any:
    n = f.shape[axis]

    def part(start: int, length: int) -> Any:
        return _cut(f, axis, start, start + length, tape)

    def combined(start: int, weights: Any, length: int = 1) -> Any:
        total = None
        for k, weight in enumerate(weights):
            if weight is not None:
                term = mul(weight, part(start + k, length), tape=tape)
                total = term if total is None else add(total, term, tape=tape)
        return total

    if shape_of(step):
        inside, first, last = _uneven(step, axis, len(f.shape), edge_order, tape)
        middle = combined(0, inside, n - 2)
    else:
        first, last = _even(step, edge_order, tape)
        rise = sub(part(2, n - 2), part(0, n - 2), tape=tape)
        middle = div(rise, mul(2.0, step, tape=tape), tape=tape)
    if edge_order == 1:
        ends = [
            div(sub(part(k + 1, 1), part(k, 1), tape=tape), d, tape=tape)
            for k, d in ((0, first), (n - 2, last))
        ]
    else:
        ends = [combined(0, first), combined(n - 3, last)]
    joined = concatenate([ends[0], middle, ends[1]], axis=axis, tape=tape)
    return joined if joined.dtype == f.dtype else astype(joined, f.dtype, tape=tape)


def _even(step: Any, edge_order: int, tape: Any) -> tuple[Any, Any]:
    """What the slopes at both ends are made with: a distance, or three weights."""
    if edge_order == 1:
        return step, step
    first, last = (
        [div(c, step, tape=tape) for c in row] for row in ((-1.5, 2.0, -0.5), (0.5, -2.0, 1.5))
    )
    return first, last


def _uneven(step: Any, axis: int, ndim: int, edge_order: int, tape: Any) -> tuple[Any, Any, Any]:
    """Weights of three neighbours for the slopes inside, and what those at the ends are made of.

    They are those of the parabola through three points.
    """
    count = step.shape[0]

    def distances(start: int, length: int) -> Any:
        part = _cut(step, 0, start, start + length, tape)
        return reshape(part, _upright(length, axis, ndim), tape=tape)

    inside = _middle(distances(0, count - 1), distances(1, count - 1), tape)
    if edge_order == 1:
        return inside, distances(0, 1), distances(count - 1, 1)
    first = _border(distances(0, 1), distances(1, 1), tape)
    last = _border(distances(count - 1, 1), distances(count - 2, 1), tape)
    return inside, first, [neg(weight, tape=tape) for weight in reversed(last)]


def _middle(p: Any, q: Any, tape: Any) -> list[Any]:
    """Weights for the slope at the middle of three points, ``p`` and ``q`` apart."""
    both = add(p, q, tape=tape)
    return [
        neg(div(q, mul(p, both, tape=tape), tape=tape), tape=tape),
        div(sub(q, p, tape=tape), mul(p, q, tape=tape), tape=tape),
        div(p, mul(q, both, tape=tape), tape=tape),
    ]


def _border(p: Any, q: Any, tape: Any) -> list[Any]:
    """Weights for the slope at the first of three points, ``p`` and ``q`` apart."""
    both = add(p, q, tape=tape)
    return [
        neg(div(add(p, both, tape=tape), mul(p, both, tape=tape), tape=tape), tape=tape),
        div(both, mul(p, q, tape=tape), tape=tape),
        neg(div(p, mul(q, both, tape=tape), tape=tape), tape=tape),
    ]


publish(globals())
