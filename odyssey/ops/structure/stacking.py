"""At least so many axes; arrays beside one another, by the number of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import reshape, shape_of
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import NUMBERS

# ------------------------------------------------------------------ at least so many axes


def _one(shape: Shape) -> Shape:
    return shape or (1,)


def _two(shape: Shape) -> Shape:
    return (1,) * (2 - len(shape)) + shape


def _three(shape: Shape) -> Shape:
    return (*_two(shape), 1) if len(shape) < 3 else shape


def _widened(arrays: Any, to: Callable[[Shape], Shape], tape: Any) -> Any:
    wide = tuple(reshape(x, to(shape_of(x)), tape=tape) for x in arrays)
    return wide[0] if len(wide) == 1 else wide


@composite(
    numpy=[np.atleast_1d],
    samples=[sample(()), sample((2, 3)), sample((), (0,))],
)
def atleast_1d(*arrays: Any, tape: Any = None) -> Any:
    """The same elements, a number on one axis.

    Args:
        arrays: One array of any shape, or several.
        tape: The tape to record on.

    Returns:
        One for one array, a tuple for several.

    >>> atleast_1d(3.0)
    array([3.])
    """
    return _widened(arrays, _one, tape)


@composite(
    numpy=[np.atleast_2d],
    samples=[sample(()), sample((3,)), sample((2, 1, 3)), sample((), (0,))],
)
def atleast_2d(*arrays: Any, tape: Any = None) -> Any:
    """The same elements on two axes or more; vectors as rows.

    Args:
        arrays: One array of any shape, or several.
        tape: The tape to record on.

    Returns:
        One for one array, a tuple for several.

    >>> atleast_2d(np.array([1, 2]))
    array([[1, 2]])
    """
    return _widened(arrays, _two, tape)


@composite(
    numpy=[np.atleast_3d],
    samples=[sample(()), sample((3,)), sample((2, 3)), sample((2, 1, 3, 1)), sample((), (0,))],
)
def atleast_3d(*arrays: Any, tape: Any = None) -> Any:
    """The same elements on three axes or more; vectors along the second, matrices the first two.

    Args:
        arrays: One array of any shape, or several.
        tape: The tape to record on.

    Returns:
        One for one array, a tuple for several.

    >>> atleast_3d(np.ones(4)).shape, atleast_3d(np.ones((2, 3))).shape
    ((1, 4, 1), (2, 3, 1))
    """
    return _widened(arrays, _three, tape)


# ------------------------------------------------------------------ together


@composite(
    numpy=[np.append],
    samples=[
        sample((2, 3), (2,)),
        sample((2, 3), (1, 3), axis=-2),
        sample((), ()),
        sample((0,), (2,)),
    ],
    rejects=[reject((2, 3), (3,), axis=0, match="differ")],
)
def append(arr: Any, values: Any, axis: int | None = None, *, tape: Any = None) -> Any:
    """An array with values behind it.

    Args:
        arr: Array of any shape.
        values: What comes behind, which differs in length on ``axis`` only.
        axis: Along which axis; by default the elements of both are put on one axis.
        tape: The tape to record on.

    Returns:
        A new array of the common dtype.

    Raises:
        ShapeError: where the shapes do not fit.

    >>> append(np.array([1, 2]), [[3], [4]])
    array([1, 2, 3, 4])
    """
    parts = [np.asarray(part) if type(part) in NUMBERS else part for part in (arr, values)]
    return concatenate(parts, axis=axis, tape=tape)


@composite(
    numpy=[np.column_stack],
    samples=[
        sample([(3,), (3,)]),
        sample([(3, 2), (3,)]),
        sample([(), ()]),
        sample([(0,), (0, 2)]),
    ],
    rejects=[reject([], match="no arrays")],
)
def column_stack(tup: Any, *, tape: Any = None) -> Any:
    """Vectors beside one another as the columns of a matrix; matrices as they are.

    Args:
        tup: A sequence of vectors and matrices.
        tape: The tape to record on.

    Raises:
        ShapeError: where the lengths of columns differ, or there is no array.

    >>> column_stack([np.array([1, 2]), np.array([3, 4])])
    array([[1, 3],
           [2, 4]])
    """
    parts = [
        x if len(shape_of(x)) > 1 else reshape(x, (*_one(shape_of(x)), 1), tape=tape)
        for x in list(tup)
    ]
    return concatenate(parts, axis=1, tape=tape)


@composite(
    numpy=[np.dstack],
    samples=[sample([(3,), (3,)]), sample([(2, 3), (2, 3, 2)]), sample([()]), sample([(0,)])],
    rejects=[reject([], match="no arrays")],
)
def dstack(tup: Any, *, tape: Any = None) -> Any:
    """Arrays behind one another along the third axis, which matrices and vectors are given.

    Args:
        tup: A sequence of arrays.
        tape: The tape to record on.

    Raises:
        ShapeError: where the shapes differ on another axis, or there is no array.

    >>> dstack([np.array([1, 2]), np.array([3, 4])])
    array([[[1, 3],
            [2, 4]]])
    """
    parts = [reshape(x, _three(shape_of(x)), tape=tape) for x in list(tup)]
    return concatenate(parts, axis=2, tape=tape)


publish(globals())
