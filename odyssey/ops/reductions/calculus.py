"""Finite differences, numerical integration and numerical derivatives."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.same_device import place_as
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.choice import not_equal
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import Axes, as_operand, astype, broadcast_to, reshape, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.store import home_of
from odyssey.table.value import Symbol, Value


def _slice_axis(x: Any, axis: int, start: int | None, stop: int | None) -> Any:
    return getitem(x, (slice(None),) * axis + (slice(start, stop),))


def _one_axis(who: str, axis: Any, x: Any) -> int:
    axes = normalize_axes(who, axis, len(x.shape)) if axis is not None else ()
    if len(axes) != 1:
        raise ShapeError(
            f"{who}: axis is {format_value(axis)} for an array of shape {x.shape}; pass one axis"
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
        reject((3,), n=-1, error=SettingError, match="must not be negative"),
    ],
)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, taken ``n`` times.

    Args:
        a: Array of one axis or more; for booleans the result says where neighbours differ.
        n: The order of the difference.
        axis: The axis.
        prepend: Elements put before the array, an array or one number.
        append: Elements put after it.

    Returns:
        The differences, an array shorter by ``n`` along ``axis``.

    Raises:
        ShapeError: if ``a`` lacks the axis, or ``n`` is negative.

    >>> diff(np.array([1, 4, 9, 16]))
    array([3, 5, 7])
    """
    n = operator.index(n)
    if n < 0:
        raise SettingError(f"diff: n is {n}; it must not be negative")
    if n == 0:
        return a
    a = as_operand("diff", "a", a)
    k = _one_axis("diff", axis, a)
    ends = [("prepend", prepend), ("append", append)]
    before, after = (_boundary_operand(a, name, end, k) for name, end in ends)
    if before or after:
        a = concatenate([*before, a, *after], axis=k)
    for _ in range(min(n, a.shape[k])):  # further differences are empty
        apart = not_equal if a.dtype == bool else sub
        a = apart(_slice_axis(a, k, 1, None), _slice_axis(a, k, None, -1))
    return a


def _boundary_operand(a: Any, name: str, end: Any, axis: int) -> list[Any]:
    if end is None:
        return []
    end = as_operand("diff", name, end)
    if not end.shape:
        end = place_as("diff", name, end, home_of(a))
        end = broadcast_to(end, (*a.shape[:axis], 1, *a.shape[axis + 1 :]))
    return [end]


# ------------------------------------------------------------------ integration


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
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integral along an axis by the trapezoidal rule.

    Args:
        y: The values, an array of one axis or more.
        x: The sample points, on one axis or in the shape of ``y``; by default ``dx`` apart.
        dx: The spacing, where no ``x`` is given.
        axis: The axis.

    Returns:
        The integrals, with gradients in ``y``, ``x`` and ``dx``.

    Raises:
        ShapeError: if ``y`` lacks the axis, or ``x`` does not fit.

    >>> float(trapezoid(np.array([1.0, 3.0, 5.0]), dx=0.5))
    3.0
    """
    y = as_operand("trapezoid", "y", y)
    k = _one_axis("trapezoid", axis, y)
    if x is None:
        widths = dx
    else:
        x = as_operand("trapezoid", "x", x)
        widths = diff(x, axis=-1 if len(x.shape) == 1 else axis)
        if len(x.shape) == 1:
            widths = reshape(widths, _vector_shape(widths.shape[0], k, len(y.shape)))
    ends = add(_slice_axis(y, k, 1, None), _slice_axis(y, k, None, -1))
    return sum(div(mul(widths, ends), 2.0), k)


def _vector_shape(length: int, axis: int, ndim: int) -> tuple[int, ...]:
    """Return the shape that broadcasts a vector along one of ``ndim`` axes."""
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
def gradient(f: Any, *varargs: Any, axis: Axes = None, edge_order: int = 1) -> Any:
    """Numerical gradient of sampled values: central differences, one-sided at the ends.

    For the gradient of a function see ``od.grad``.

    Args:
        f: The values, an array of one axis or more.
        varargs: The spacing: nothing for 1, a number for all axes, or for each axis a number
            or the coordinates along it.
        axis: One axis or several; by default all.
        edge_order: Order of accuracy at the ends, 1 or 2.

    Returns:
        An array of the shape of ``f``, or for several axes a tuple of them.

    Raises:
        ShapeError: if ``f`` lacks an axis or has too few points, or coordinates do not fit.

    >>> gradient(np.array([1.0, 2.0, 4.0, 7.0]))
    array([1. , 1.5, 2.5, 3. ])
    """
    f = as_operand("gradient", "f", f)
    axes = _gradient_axes(axis, len(f.shape))
    if edge_order not in (1, 2):
        raise SettingError(f"gradient: edge_order is {format_value(edge_order)}; pass 1 or 2")
    if f.dtype.kind in "biu":
        f = astype(f, np.float64)
    for k in axes:
        if f.shape[k] < edge_order + 1:
            raise ShapeError(
                f"gradient: axis {k} of {f.shape} is too short; edge_order={edge_order} needs "
                f"{edge_order + 1} elements or more"
            )
    steps = _grid_spacings(f, varargs, axes)
    slopes = [_axis_gradient(f, k, d, edge_order) for k, d in zip(axes, steps, strict=True)]
    return slopes[0] if len(slopes) == 1 else tuple(slopes)


def _gradient_axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    normalize_axes("gradient", axis, ndim)
    return [k % ndim for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]


def _grid_spacings(f: Any, given: Any, axes: list[int]) -> list[Any]:
    """Return for each axis one spacing, or a vector of the spacings between neighbours."""
    if not given:
        return [1.0] * len(axes)
    given = [
        d if isinstance(d, (int, float)) else as_operand("gradient", "a spacing", d) for d in given
    ]
    if len(given) == 1 and not shape_of(given[0]):
        given = given * len(axes)
    if len(given) != len(axes):
        raise DTypeError(f"gradient: {len(given)} spacings came for {len(axes)} axes")
    return [_axis_spacing(f, d, k) for d, k in zip(given, axes, strict=True)]


def _axis_spacing(f: Any, given: Any, axis: int) -> Any:
    shape = shape_of(given)
    if not shape:
        return given
    if shape != (f.shape[axis],):
        raise ShapeError(
            f"gradient: the places along axis {axis} have shape {shape}; pass {f.shape[axis]} "
            "of them on one axis, or one distance"
        )
    if given.dtype.kind in "biu":
        given = astype(given, np.float64)
    steps = diff(given)
    # Coordinates that may have a gradient stay a vector, even if they are evenly spaced.
    if isinstance(steps, (Value, Symbol)) or not (steps == steps[0]).all():
        return steps
    return steps[0]


def _axis_gradient(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    n = f.shape[axis]

    def window(start: int, length: int) -> Any:
        return _slice_axis(f, axis, start, start + length)

    def weighted_sum(start: int, weights: Any, length: int = 1) -> Any:
        total = None
        for k, weight in enumerate(weights):
            if weight is not None:
                term = mul(weight, window(start + k, length))
                total = term if total is None else add(total, term)
        return total

    if shape_of(step):
        inside, first, last = _uneven_weights(step, axis, len(f.shape), edge_order)
        middle = weighted_sum(0, inside, n - 2)
    else:
        first, last = _even_edge_weights(step, edge_order)
        rise = sub(window(2, n - 2), window(0, n - 2))
        middle = div(rise, mul(2.0, step))
    if edge_order == 1:
        ends = [div(sub(window(k + 1, 1), window(k, 1)), d) for k, d in ((0, first), (n - 2, last))]
    else:
        ends = [weighted_sum(0, first), weighted_sum(n - 3, last)]
    slopes = concatenate([ends[0], middle, ends[1]], axis=axis)
    return slopes if slopes.dtype == f.dtype else astype(slopes, f.dtype)


def _even_edge_weights(step: Any, edge_order: int) -> tuple[Any, Any]:
    """Return for either end the spacing, or three weights, of an even grid."""
    if edge_order == 1:
        return step, step
    first, last = ([div(c, step) for c in row] for row in ((-1.5, 2.0, -0.5), (0.5, -2.0, 1.5)))
    return first, last


def _uneven_weights(step: Any, axis: int, ndim: int, edge_order: int) -> tuple[Any, Any, Any]:
    """Return the weights of three neighbours inside and at both ends, for an uneven grid.

    They are those of the parabola through three points.
    """
    count = step.shape[0]

    def distances(start: int, length: int) -> Any:
        window = _slice_axis(step, 0, start, start + length)
        return reshape(window, _vector_shape(length, axis, ndim))

    inside = _central_weights(distances(0, count - 1), distances(1, count - 1))
    if edge_order == 1:
        return inside, distances(0, 1), distances(count - 1, 1)
    first = _edge_weights(distances(0, 1), distances(1, 1))
    last = _edge_weights(distances(count - 1, 1), distances(count - 2, 1))
    return inside, first, [neg(weight) for weight in reversed(last)]


def _central_weights(p: Any, q: Any) -> list[Any]:
    """Return the weights of the slope at the middle of three points with spacings p and q."""
    both = add(p, q)
    return [
        neg(div(q, mul(p, both))),
        div(sub(q, p), mul(p, q)),
        div(p, mul(q, both)),
    ]


def _edge_weights(p: Any, q: Any) -> list[Any]:
    """Return the weights of the slope at the first of three points with spacings p and q."""
    both = add(p, q)
    return [
        neg(div(add(p, both), mul(p, both))),
        div(both, mul(p, q)),
        neg(div(p, mul(q, both))),
    ]


publish(globals())
