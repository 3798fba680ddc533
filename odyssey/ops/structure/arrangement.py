"""Reversal, rotation and circular shifts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import Axes, moveaxis, reshape, shape_of, swapaxes
from odyssey.spec import Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


@composite(
    numpy=[np.flip],
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=-1),
        sample((2, 3, 4), axis=(0, 2)),
        sample(()),
        sample((0, 3), axis=1),
    ],
    rejects=[reject((2, 3), axis=2, match="does not fit")],
)
def flip(m: Any, axis: Axes = None) -> Any:
    """Reverse the order of elements along axes.

    Args:
        m: Array of any shape.
        axis: One axis or several; by default all.

    Returns:
        A new array.

    Raises:
        ShapeError: if ``m`` lacks an axis.

    >>> flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    ndim = len(shape_of(m))
    turned = normalize_axes("flip", axis, ndim)
    key = tuple(slice(None, None, -1 if k in turned else None) for k in range(ndim))
    return getitem(m, key)


@composite(
    numpy=[np.flipud],
    samples=[sample((2, 3)), sample((3,)), sample((0, 2))],
    rejects=[reject((), match="needs an axis")],
)
def flipud(m: Any) -> Any:
    """Reverse the order of rows, along the first axis.

    Args:
        m: Array with at least one axis.

    Returns:
        A new array.

    Raises:
        ShapeError: if ``m`` has no axis.

    >>> flipud(np.array([[1, 2], [3, 4]]))
    array([[3, 4],
           [1, 2]])
    """
    if not shape_of(m):
        raise ShapeError("flipud: needs an axis, m is a number")
    return flip(m, 0)


@composite(
    numpy=[np.fliplr],
    samples=[sample((2, 3)), sample((2, 3, 2)), sample((2, 0))],
    rejects=[reject((3,), match="two axes or more")],
)
def fliplr(m: Any) -> Any:
    """Reverse the order of columns, along the second axis.

    Args:
        m: Array with at least two axes.

    Returns:
        A new array.

    Raises:
        ShapeError: if ``m`` has fewer axes.

    >>> fliplr(np.array([[1, 2], [3, 4]]))
    array([[2, 1],
           [4, 3]])
    """
    if len(shape_of(m)) < 2:
        raise ShapeError(f"fliplr: needs two axes or more, m has shape {shape_of(m)}; try flip")
    return flip(m, 1)


@composite(
    numpy=[np.rot90],
    samples=[
        sample((2, 3)),
        sample((2, 3, 4), k=-1, axes=(0, -1)),
        sample((2, 3), k=2),
        sample((2, 3), k=4),
        sample((0, 2)),
    ],
    rejects=[reject((2, 3), axes=(0, -2), match="distinct"), reject((3,), match="does not fit")],
)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Rotate matrices by 90 degrees ``k`` times, from the first of two axes towards the second.

    Args:
        m: Array with at least two axes.
        k: Number of rotations; in the other direction if negative.
        axes: The axes of the plane of rotation.

    Returns:
        A new array.

    Raises:
        ShapeError: if ``m`` lacks an axis, or ``axes`` are not two.

    >>> rot90(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    ndim, quarters = len(shape_of(m)), check_int("rot90", "k", k) % 4
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ShapeError(f"rot90: axes={format_value(axes)}; a plane has two axes")
    normalize_axes("rot90", tuple(axes), ndim)
    i, j = (operator.index(axis) % ndim for axis in axes)
    if quarters % 2 == 0:
        return flip(m, (i, j) if quarters else ())
    turned = swapaxes(m, i, j)
    return flip(turned, i if quarters == 1 else j)


@composite(
    numpy=[np.rollaxis],
    samples=[
        sample((2, 3, 4), axis=2),
        sample((2, 3, 4), axis=0, start=3),
        sample((2, 0), axis=-1, start=-2),
    ],
    rejects=[reject((2, 3), axis=0, start=3, match="start=3")],
)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Move one axis to before another; ``moveaxis`` is clearer.

    Args:
        a: Array with at least one axis.
        axis: The axis to move.
        start: The axis to move it before; the number of axes for the end.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: if ``a`` lacks an axis.

    >>> rollaxis(np.ones((2, 3, 4)), 2, 1).shape
    (2, 4, 3)
    """
    ndim = len(shape_of(a))
    (k,) = normalize_axes("rollaxis", axis, ndim)
    place = check_int("rollaxis", "start", start)
    if not -ndim <= place <= ndim:
        raise ShapeError(f"rollaxis: start={place} for {ndim} axes; pass {-ndim} to {ndim}")
    place += ndim if place < 0 else 0
    return moveaxis(a, k, place - (k < place))


def _shift_options(shift: Any, axis: Any) -> tuple[Any, Any]:
    """Return shift and axis as ints, or as tuples of one length."""
    try:
        if isinstance(shift, (tuple, list, np.ndarray)) or isinstance(axis, (tuple, list)):
            pairs = [(operator.index(s), operator.index(k)) for s, k in np.broadcast(shift, axis)]
            shifts, axes = tuple(s for s, _ in pairs), tuple(k for _, k in pairs)
            return shifts, axes
        return operator.index(shift), axis
    except (TypeError, ValueError):
        raise DTypeError(
            f"roll: shift={format_value(shift)} with axis={format_value(axis)}; pass an int, or as "
            "many as axes"
        ) from None


def _roll_spec(x: Spec, shift: Any, axis: Any) -> Spec:
    for k in axis if isinstance(axis, tuple) else (axis,):
        normalize_axes("roll", k, x.ndim)
    return x


def _canonical_shifts(x: Any, shift: Any, axis: Any) -> tuple[Any, Any]:
    """Return shifts modulo the lengths, one for each axis that moves, in order."""
    if axis is None and x.ndim != 1:
        total = sum(shift) if isinstance(shift, tuple) else shift
        return total % max(x.size, 1), None
    steps = [0] * x.ndim
    shifts, axes = (v if isinstance(v, tuple) else (v,) for v in (shift, axis or 0))
    for s, k in np.broadcast(shifts, axes):
        steps[k] = (steps[k] + int(s)) % max(x.shape[k], 1)
    moving = tuple(k for k, s in enumerate(steps) if s)
    return tuple(steps[k] for k in moving), moving


def _decompose_roll(x: Any, shift: Any, axis: Any) -> Any:
    out, pairs = x, [(shift, axis)]
    if axis is None:
        out, pairs = reshape(x, -1), [(shift, 0)]
    elif isinstance(axis, tuple):
        pairs = list(zip(shift, axis, strict=True))
    for by, k in pairs:
        n, before = out.shape[k], (slice(None),) * (k % len(out.shape))
        end = n - by % (n or 1)
        last, first = (getitem(out, (*before, part)) for part in (slice(end, n), slice(0, end)))
        out = concatenate([last, first], k)
    return reshape(out, x.shape)


def _negate_shift(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, tuple) else -shift


@op(
    linear=True,
    decomposition=_decompose_roll,
    numpy=[np.roll],
    prepare=_shift_options,
    canonical=_canonical_shifts,
    infer=_roll_spec,
    vjp={"x": lambda g, shift, axis: roll(g, _negate_shift(shift), axis)},
    vmap="along",
    samples=[
        sample((2, 3), shift=2),
        sample((2, 3), shift=-1, axis=1),
        sample((2, 3, 4), shift=(1, 7), axis=(0, -1)),
        sample((2, 3), shift=1, axis=(0, 1)),
        sample((), shift=3),
        sample((0, 3), shift=1, axis=1),
    ],
    rejects=[
        reject((2, 3), shift=1, axis=2, match="does not fit"),
        reject((2, 3), shift=0.5, error=DTypeError, match="pass an int"),
    ],
)
def roll(x: Any, /, shift: Any, axis: Any = None) -> Any:
    """Shift elements circularly along ``axis``, by default in row-major order."""
    return np.roll(x, shift, axis)


publish(globals())
