"""Tiling and repetition of elements."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.ownership import copy_if_shared
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.indexing import getitem, known_positions, normalize_key
from odyssey.ops.structure.shape import broadcast_to, reshape, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


@composite(
    numpy=[np.tile],
    samples=[
        sample((3,), reps=2),
        sample((2, 3), reps=(2, 1)),
        sample((3,), reps=(2, 1, 2)),
        sample((), reps=3),
        sample((2,), reps=0),
    ],
    rejects=[reject((2,), reps=-1, match="cannot be negative")],
)
def tile(A: Any, reps: Any) -> Any:
    """Repeat an array along its axes.

    Args:
        A: Array of any shape.
        reps: Number of repetitions along each axis, or one number for the last axis.

    Raises:
        ShapeError: if a number is negative.

    >>> tile(np.array([1, 2]), (2, 2))
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    times = _repeat_counts("tile", reps)
    shape = shape_of(A)
    ndim = max(len(shape), len(times))
    times = (1,) * (ndim - len(times)) + times
    lengths = (1,) * (ndim - len(shape)) + shape
    between = tuple(m for n in lengths for m in (1, n))
    wide = tuple(m for pair in zip(times, lengths, strict=True) for m in pair)
    repeated = broadcast_to(reshape(A, between), wide)
    return _reshape_copy(repeated, tuple(t * n for t, n in zip(times, lengths, strict=True)))


def _repeat_counts(who: str, numbers: Any) -> tuple[int, ...]:
    try:
        counts = tuple(
            operator.index(n)
            for n in np.atleast_1d(normalize_key(known_positions(numbers))).tolist()
        )
    except TypeError:
        raise DTypeError(f"{who}: {format_value(numbers)} came where ints were wanted") from None
    if any(n < 0 for n in counts):
        raise ShapeError(f"{who}: {format_value(numbers)} came; a count cannot be negative")
    return counts


def _reshape_copy(x: Any, shape: tuple[int, ...]) -> Any:
    """Reshape to a copy, even if nothing was repeated."""
    return copy_if_shared(reshape(x, shape))


@composite(
    numpy=[np.repeat],
    samples=[
        sample((2, 3), repeats=2),
        sample((2, 3), repeats=[1, 0, 2], axis=1),
        sample((), repeats=2),
        sample((0, 2), repeats=3, axis=0),
    ],
    rejects=[reject((2,), repeats=[1, 2, 3], axis=0, match="3 repeats for 2")],
)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element.

    Args:
        a: Array of any shape.
        repeats: Number of repetitions: one int, or one for each index of the axis.
        axis: The axis; by default the array is flattened first.

    Raises:
        ShapeError: if a number is negative, or their count is wrong.

    >>> repeat(np.array([1, 2]), 2), repeat(np.array([1, 2]), [3, 1])
    (array([1, 1, 2, 2]), array([1, 1, 1, 2]))
    """
    counts = _repeat_counts("repeat", repeats)
    if axis is None:
        a, axis = reshape(a, -1), 0
    shape = shape_of(a)
    (k,) = normalize_axes("repeat", axis, len(shape))
    if len(counts) == 1:
        head, n, tail = shape[:k], shape[k], shape[k + 1 :]
        narrow = reshape(a, (*head, n, 1, *tail))
        wide = broadcast_to(narrow, (*head, n, counts[0], *tail))
        return _reshape_copy(wide, (*head, n * counts[0], *tail))
    if len(counts) != shape[k]:
        raise ShapeError(f"repeat: {len(counts)} repeats for {shape[k]} places on axis {k}")
    key = (slice(None),) * k + (np.repeat(np.arange(shape[k]), counts),)
    return getitem(a, key)


publish(globals())
