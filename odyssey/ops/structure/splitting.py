"""Splitting arrays."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.devices.arrays import refuse_non_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

# ------------------------------------------------------------------ splitting along an axis


@composite(
    numpy=[np.array_split],
    samples=[
        sample((5, 2), indices_or_sections=3),
        sample((2, 3), indices_or_sections=[1, 2], axis=-1),
        sample((0, 2), indices_or_sections=2),
    ],
    rejects=[
        reject((3,), indices_or_sections=0, match="0 parts"),
        reject((3,), indices_or_sections=1.5, error=DTypeError, match="not a whole number"),
        reject((3,), indices_or_sections=[1, 1.5], error=DTypeError, match="1.5 is not a whole"),
        reject((), indices_or_sections=1, match="does not fit"),
    ],
)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split into nearly equal sections along an axis; the first ones are longer.

    Args:
        ary: Array with at least one axis.
        indices_or_sections: The number of sections, or the indices to split at.
        axis: The axis.

    Returns:
        A list of new arrays.

    Raises:
        ShapeError: if ``ary`` lacks the axis, or there is no section.

    >>> array_split(np.arange(5), 2)
    [array([0, 1, 2]), array([3, 4])]
    """
    return _split_along("array_split", ary, indices_or_sections, axis, False)


@composite(
    numpy=[np.split],
    samples=[
        sample((4, 2), indices_or_sections=2),
        sample((2, 3), indices_or_sections=[1, -1, 9], axis=1),
        sample((0,), indices_or_sections=1),
    ],
    rejects=[
        reject((3,), indices_or_sections=2, match="not 2 equal parts"),
        reject((3,), indices_or_sections="ab", error=DTypeError, match="is not a whole number"),
    ],
)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split along an axis into equal sections, or at given indices.

    Args:
        ary: Array with at least one axis.
        indices_or_sections: The number of sections, or the indices to split at.
        axis: The axis.

    Returns:
        A list of new arrays.

    Raises:
        ShapeError: if equal sections are impossible.

    >>> split(np.arange(6), [1, 4])
    [array([0]), array([1, 2, 3]), array([4, 5])]
    """
    return _split_along("split", ary, indices_or_sections, axis, True)


def _split_along(who: str, ary: Any, given: Any, axis: int, equal: bool) -> list[Any]:
    shape = shape_of(ary)
    (k,) = normalize_axes(who, axis, len(shape))
    places = _sections_option(who, given)
    if isinstance(places, int):
        if equal and (places < 1 or shape[k] % places):
            raise ShapeError(
                f"{who}: axis {axis} of {shape} has length {shape[k]}, which is not "
                f"{places} equal parts; array_split makes unequal ones"
            )
        if places < 1:
            raise ShapeError(f"{who}: {places} parts came; at least one is needed")
        each, longer = divmod(shape[k], places)
        places = list(accumulate([each + 1] * longer + [each] * (places - longer)))[:-1]
    ends = zip([0, *places], [*places, shape[k]], strict=True)
    keys = [(slice(None),) * k + (slice(start, end),) for start, end in ends]
    return [getitem(ary, key) for key in keys]


def _sections_option(who: str, given: Any) -> int | list[int]:
    """Return the number of sections, or the indices to split at."""
    refuse_non_array(who, "indices_or_sections", given)
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    if several and getattr(given, "shape", True) != ():
        return [check_int(who, "an index in indices_or_sections", place) for place in given]
    return check_int(who, "indices_or_sections", given)


_UNSTACK = [np.unstack] if hasattr(np, "unstack") else []  # exists from NumPy 2.1 on


@composite(
    numpy=_UNSTACK,
    samples=[sample((2, 3)), sample((2, 3), axis=-1), sample((3,)), sample((2, 0))],
    rejects=[reject((), match="does not fit")],
)
def unstack(x: Any, *, axis: int = 0) -> tuple[Any, ...]:
    """Split an array into its slices along an axis, without that axis.

    Args:
        x: Array with at least one axis.
        axis: The axis.

    >>> unstack(np.array([[1, 2], [3, 4]]), axis=1)
    (array([1, 3]), array([2, 4]))
    """
    shape = shape_of(x)
    (k,) = normalize_axes("unstack", axis, len(shape))
    return tuple(getitem(x, (slice(None),) * k + (i,)) for i in range(shape[k]))


# ------------------------------------------------------------------ splitting along a fixed axis


def _split_checked(who: str, ary: Any, places: Any, axis: int, least: int) -> list[Any]:
    shape = shape_of(ary)
    if len(shape) < least:
        raise ShapeError(
            f"{who}: needs {least} axes or more, ary has shape {shape}; "
            "split cuts along any axis that is there"
        )
    return _split_along(who, ary, places, axis, True)


@composite(
    numpy=[np.hsplit],
    samples=[sample((2, 4), indices_or_sections=2), sample((4,), indices_or_sections=[1, 9])],
    rejects=[reject((), indices_or_sections=1, match="needs 1 axes")],
)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split horizontally: along the second axis, a vector along its only one.

    Args:
        ary: Array with at least one axis.
        indices_or_sections: The number of equal sections, or the indices to split at.

    Returns:
        A list of new arrays.

    Raises:
        ShapeError: if equal sections are impossible, or ``ary`` has no axis.

    >>> hsplit(np.array([[1, 2], [3, 4]]), 2)[1]
    array([[2],
           [4]])
    """
    along = 1 if len(shape_of(ary)) > 1 else 0
    return _split_checked("hsplit", ary, indices_or_sections, along, 1)


@composite(
    numpy=[np.vsplit],
    samples=[sample((4, 2), indices_or_sections=[-1]), sample((0, 2), indices_or_sections=2)],
    rejects=[reject((3,), indices_or_sections=1, match="needs 2 axes")],
)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split vertically, along the first axis.

    Args:
        ary: Array with at least two axes.
        indices_or_sections: The number of equal sections, or the indices to split at.

    Returns:
        A list of new arrays.

    Raises:
        ShapeError: if equal sections are impossible, or ``ary`` has fewer axes.

    >>> vsplit(np.array([[1, 2], [3, 4]]), 2)[1]
    array([[3, 4]])
    """
    return _split_checked("vsplit", ary, indices_or_sections, 0, 2)


@composite(
    numpy=[np.dsplit],
    samples=[sample((1, 2, 4), indices_or_sections=2), sample((2, 0, 1), indices_or_sections=1)],
    rejects=[reject((2, 3), indices_or_sections=1, match="needs 3 axes")],
)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the third axis.

    Args:
        ary: Array with at least three axes.
        indices_or_sections: The number of equal sections, or the indices to split at.

    Returns:
        A list of new arrays.

    Raises:
        ShapeError: if equal sections are impossible, or ``ary`` has fewer axes.

    >>> dsplit(np.arange(4).reshape(1, 2, 2), 2)[1].tolist()
    [[[1], [3]]]
    """
    return _split_checked("dsplit", ary, indices_or_sections, 2, 3)


publish(globals())
