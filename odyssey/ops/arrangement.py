"""Turning, shifting, repeating and padding."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import shown, whole
from odyssey.devices.arrays import as_array
from odyssey.devices.ownership import apart
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.indexing import getitem, plain_key, setitem
from odyssey.ops.shape import (
    Axes,
    broadcast_to,
    moveaxis,
    normalize_axes,
    reshape,
    shape_of,
    swapaxes,
)
from odyssey.spec import Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ turning and shifting


@composite(numpy=[np.flip])
def flip(m: Any, axis: Axes = None, *, tape: Any = None) -> Any:
    """Elements in reverse order.

    Args:
        m: Array of any shape.
        axis: Along which axes; by default all.
        tape: The tape to record on.

    Returns:
        A new array.

    Raises:
        ShapeError: for an axis that ``m`` lacks.

    >>> flip(np.array([1, 2, 3]))
    array([3, 2, 1])
    """
    ndim = len(shape_of(m))
    turned = normalize_axes("flip", axis, ndim)
    key = tuple(slice(None, None, -1 if k in turned else None) for k in range(ndim))
    return getitem(m, key, tape=tape)


@composite(numpy=[np.flipud])
def flipud(m: Any, *, tape: Any = None) -> Any:
    """Rows in reverse order: the first axis.

    Args:
        m: Array with an axis or more.
        tape: The tape to record on.

    Returns:
        A new array.

    Raises:
        ShapeError: for a number.

    >>> flipud(np.array([[1, 2], [3, 4]]))
    array([[3, 4],
           [1, 2]])
    """
    if not shape_of(m):
        raise ShapeError("flipud: needs an axis, m is a number")
    return flip(m, 0, tape=tape)


@composite(numpy=[np.fliplr])
def fliplr(m: Any, *, tape: Any = None) -> Any:
    """Columns in reverse order: the second axis.

    Args:
        m: Array with two axes or more.
        tape: The tape to record on.

    Returns:
        A new array.

    Raises:
        ShapeError: for fewer axes.

    >>> fliplr(np.array([[1, 2], [3, 4]]))
    array([[2, 1],
           [4, 3]])
    """
    if len(shape_of(m)) < 2:
        raise ShapeError(f"fliplr: needs two axes or more, m has shape {shape_of(m)}; try flip")
    return flip(m, 1, tape=tape)


@composite(numpy=[np.rot90])
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1), *, tape: Any = None) -> Any:
    """Matrices turned by a quarter, so many times, from the first of two axes to the second.

    Args:
        m: Array with two axes or more.
        k: How often; the other way round where negative.
        axes: The axes of the plane in which to turn.
        tape: The tape to record on.

    Returns:
        A new array.

    Raises:
        ShapeError: for an axis that ``m`` lacks, or other than two of them.

    >>> rot90(np.array([[1, 2], [3, 4]]))
    array([[2, 4],
           [1, 3]])
    """
    ndim, quarters = len(shape_of(m)), whole("rot90", "k", k) % 4
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise ShapeError(f"rot90: axes={shown(axes)}; a plane has two axes")
    normalize_axes("rot90", tuple(axes), ndim)
    i, j = (operator.index(axis) % ndim for axis in axes)
    if quarters % 2 == 0:
        return flip(m, (i, j) if quarters else (), tape=tape)
    turned = swapaxes(m, i, j, tape=tape)
    return flip(turned, i if quarters == 1 else j, tape=tape)


@composite(numpy=[np.rollaxis])
def rollaxis(a: Any, axis: int, start: int = 0, *, tape: Any = None) -> Any:
    """One axis moved to before another; ``moveaxis`` says more clearly where to.

    Args:
        a: Array with an axis or more.
        axis: Which axis.
        start: Before which axis it comes; the number of axes for behind the last.
        tape: The tape to record on.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: for an axis that ``a`` lacks.

    >>> rollaxis(np.ones((2, 3, 4)), 2, 1).shape
    (2, 4, 3)
    """
    ndim = len(shape_of(a))
    (k,) = normalize_axes("rollaxis", axis, ndim)
    place = whole("rollaxis", "start", start)
    if not -ndim <= place <= ndim:
        raise ShapeError(f"rollaxis: start={place} for {ndim} axes; pass {-ndim} to {ndim}")
    place += ndim if place < 0 else 0
    return moveaxis(a, k, place - (k < place), tape=tape)


def _shifts(shift: Any, axis: Any) -> tuple[Any, Any]:
    """Shift and axis as ints, or tuples of them of one length."""
    try:
        if isinstance(shift, (tuple, list, np.ndarray)) or isinstance(axis, (tuple, list)):
            pairs = [(operator.index(s), operator.index(k)) for s, k in np.broadcast(shift, axis)]
            shifts, axes = tuple(s for s, _ in pairs), tuple(k for _, k in pairs)
            return shifts, axes
        return operator.index(shift), axis
    except (TypeError, ValueError):
        raise DTypeError(
            f"roll: shift={shift!r} with axis={axis!r}; pass an int, or as many as axes"
        ) from None


def _rolled_spec(x: Spec, shift: Any, axis: Any) -> Spec:
    for k in axis if isinstance(axis, tuple) else (axis,):
        normalize_axes("roll", k, x.ndim)
    return x


def _opposite(shift: Any) -> Any:
    return tuple(-s for s in shift) if isinstance(shift, tuple) else -shift


@op(
    linear=True,
    numpy=[np.roll],
    prepare=_shifts,
    infer=_rolled_spec,
    vjp={"x": lambda g, shift, axis: roll(g, _opposite(shift), axis)},
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
    """Elements shifted along ``axis``; what leaves at the end comes in at the start."""
    return np.roll(x, shift, axis)


# ------------------------------------------------------------------ repeating


@composite(numpy=[np.tile])
def tile(A: Any, reps: Any, *, tape: Any = None) -> Any:
    """The whole array repeated along its axes.

    Args:
        A: Array of any shape.
        reps: How often along each axis, the last axis last; or one number, for the last axis.
        tape: The tape to record on.

    Raises:
        ShapeError: for a negative number.

    >>> tile(np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    times = _counts("tile", reps)
    shape = shape_of(A)
    ndim = max(len(shape), len(times))
    times = (1,) * (ndim - len(times)) + times
    lengths = (1,) * (ndim - len(shape)) + shape
    between = tuple(m for n in lengths for m in (1, n))
    wide = tuple(m for pair in zip(times, lengths, strict=True) for m in pair)
    repeated = broadcast_to(reshape(A, between, tape=tape), wide, tape=tape)
    return _fresh(repeated, tuple(t * n for t, n in zip(times, lengths, strict=True)), tape)


def _counts(who: str, numbers: Any) -> tuple[int, ...]:
    try:
        counts = tuple(operator.index(n) for n in np.atleast_1d(plain_key(numbers)).tolist())
    except TypeError:
        raise DTypeError(f"{who}: {numbers!r} came where ints were wanted") from None
    if any(n < 0 for n in counts):
        raise ShapeError(f"{who}: {numbers!r} came; a count cannot be negative")
    return counts


def _fresh(x: Any, shape: tuple[int, ...], tape: Any) -> Any:
    """Under ``shape``, and no view of what was repeated, though nothing may have been."""
    return apart(reshape(x, shape, tape=tape))


@composite(numpy=[np.repeat])
def repeat(a: Any, repeats: Any, axis: int | None = None, *, tape: Any = None) -> Any:
    """Each element repeated in its place.

    Args:
        a: Array of any shape.
        repeats: How often each: one int, or one for each place on the axis.
        axis: Along which axis; by default the elements are put on one axis first.
        tape: The tape to record on.

    Raises:
        ShapeError: for a negative number, or a wrong number of them.

    >>> repeat(np.array([1, 2]), 2), repeat(np.array([1, 2]), [3, 1])
    (array([1, 1, 2, 2]), array([1, 1, 1, 2]))
    """
    counts = _counts("repeat", repeats)
    if axis is None:
        a, axis = reshape(a, -1, tape=tape), 0
    shape = shape_of(a)
    (k,) = normalize_axes("repeat", axis, len(shape))
    if len(counts) == 1:
        head, n, tail = shape[:k], shape[k], shape[k + 1 :]
        narrow = reshape(a, (*head, n, 1, *tail), tape=tape)
        wide = broadcast_to(narrow, (*head, n, counts[0], *tail), tape=tape)
        return _fresh(wide, (*head, n * counts[0], *tail), tape)
    if len(counts) != shape[k]:
        raise ShapeError(f"repeat: {len(counts)} repeats for {shape[k]} places on axis {k}")
    key = (slice(None),) * k + (np.repeat(np.arange(shape[k]), counts),)
    return getitem(a, key, tape=tape)


# ------------------------------------------------------------------ padding

_SELECTING = ("edge", "reflect", "symmetric", "wrap")


@composite(numpy=[np.pad])
def pad(
    array: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    tape: Any = None,
) -> Any:
    """Elements added before and after, along each axis.

    Args:
        array: Array of any shape.
        pad_width: How many: ``((before, after), ...)`` by axis, one pair for all, or a number.
        mode: ``"constant"``; or ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``, which
            repeat elements of the array.
        constant_values: The constants, in the same forms as ``pad_width``.
        tape: The tape to record on.

    Returns:
        A new array of the dtype of ``array``.

    Raises:
        ShapeError: for negative widths, or another mode.

    >>> pad(np.array([1, 2, 3]), (1, 2), mode="edge")
    array([1, 1, 2, 3, 3, 3])
    """
    shape = shape_of(array)
    widths = _widths(pad_width, len(shape))
    if mode in _SELECTING:
        for k, (width, n) in enumerate(zip(widths, shape, strict=True)):
            if any(width):
                places = _selected(n, width, mode)
                array = getitem(array, (slice(None),) * k + (places,), tape=tape)
        return array if any(map(any, widths)) else getitem(array, ..., tape=tape)
    if mode != "constant":
        raise ShapeError(f"pad: mode {mode!r} is not one of constant, {', '.join(_SELECTING)}")
    inside = tuple(slice(b, b + n) for (b, _), n in zip(widths, shape, strict=True))
    dtype = array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype
    if not isinstance(constant_values, dict):
        constant_values = as_array("pad", "constant_values", constant_values)
    around = np.pad(np.zeros(shape, dtype), widths, constant_values=constant_values)
    return setitem(around, array, inside, tape=tape)


def _widths(pad_width: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    try:
        if isinstance(pad_width, dict):
            given = [(0, 0)] * ndim
            for k, width in pad_width.items():
                given[k] = tuple(np.broadcast_to(width, 2).tolist())
            pad_width = given
        widths = np.broadcast_to(np.asarray(pad_width, dtype=None if ndim else np.intp), (ndim, 2))
    except (ValueError, IndexError):
        raise ShapeError(f"pad: pad_width {pad_width!r} does not fit {ndim} axes") from None
    if widths.dtype.kind not in "iu":
        raise DTypeError(f"pad: pad_width {pad_width!r} must hold ints only")
    if (widths < 0).any():
        raise ShapeError(f"pad: pad_width {pad_width!r} is negative; cut with an index instead")
    return tuple((int(before), int(after)) for before, after in widths)


def _selected(n: int, width: tuple[int, int], mode: Any) -> Any:
    """Which elements of an axis of ``n`` stand where, once it is padded."""
    try:
        places = np.pad(np.arange(n), width, mode)
    except ValueError as error:
        raise ShapeError(f"pad: {error}") from None
    return places


publish(globals())
