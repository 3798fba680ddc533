"""Insertion and deletion, resizing, grids, and block arrays."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_flag, format_value
from odyssey.devices.device_versions import on_host
from odyssey.devices.ownership import copy_if_shared
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.structure.creation import refuse_imaginary_parts, zeros_like
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.indexing import known_positions, normalize_key
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import (
    as_operand,
    astype,
    broadcast_to,
    identity,
    moveaxis,
    reshape,
    shape_of,
)
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

# ------------------------------------------------------------------ insertion and deletion


def _operand_and_axis(who: str, x: Any, axis: Any) -> tuple[Any, int]:
    """Return the operand and the axis, flattened if ``axis`` is None."""
    x = as_operand(who, "arr", x)
    if axis is None:
        return reshape(x, -1), 0
    (k,) = normalize_axes(who, axis, len(x.shape))
    return x, k


@on_host
def _edit_indices(who: str, call: Any, *given: Any) -> Any:
    """Apply a NumPy function to indices, and translate its errors."""
    try:
        return call(*given)
    except (IndexError, ValueError) as error:
        raise ShapeError(f"{who}: {error}") from None


@composite(
    numpy=[np.delete],
    samples=[
        sample((4, 3), obj=1, axis=0),
        sample((4, 3), obj=slice(None, None, 2), axis=1),
        sample((4,), obj=[0, -1, 0]),
        sample((3,), obj=np.array([True, False, True])),
        sample((2, 3), obj=4),
    ],
    rejects=[
        reject((3,), obj=3, match="out of bounds"),
        reject((2, 3), obj=0, axis=2, match="does not fit"),
    ],
)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Delete slices along an axis.

    Args:
        arr: Array.
        obj: The slices: an int, a slice, or an array of ints or booleans; static.
        axis: The axis; by default the array is flattened first.

    Raises:
        ShapeError: if an index is out of range.

    >>> delete(np.array([1, 2, 3]), 1)
    array([1, 3])
    """
    line, k = _operand_and_axis("delete", arr, axis)
    left = _edit_indices(
        "delete", np.delete, np.arange(line.shape[k]), normalize_key(known_positions(obj))
    )
    return take(line, left, k)


@composite(
    numpy=[np.insert],
    samples=[
        sample((4,), 1, ()),
        sample((2, 3), 1, (2,), axis=1),
        sample((2, 3), [2, 0, 2], (2, 3), axis=1),
        sample((2, 3), -1, (3,), axis=0),
        sample((2, 3), slice(0, 2), (2, 3), axis=0),
        sample((2, 3), [1], (2, 2), axis=1),
    ],
    rejects=[
        reject((3,), 5, 0.0, match="out of bounds"),
        reject((2, 3), 0, np.zeros(4), axis=0, match="do not fit"),
        reject((3,), 1, 1.0 + 2.0j, error=DTypeError, match="imaginary parts"),
        reject((3,), [1], np.array([1.0 + 2.0j]), error=DTypeError, match="imaginary parts"),
    ],
)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Insert values before given indices along an axis.

    Args:
        arr: Array.
        obj: The indices: an int, a slice, or several ints; static.
        values: The values, cast to the dtype of ``arr`` and broadcast to the inserted shape.
        axis: The axis; by default the array is flattened first.

    Raises:
        ShapeError: if an index is out of range, or the values do not broadcast.
        DTypeError: for complex values in a real array.

    >>> insert(np.array([1, 2, 3]), 1, 9)
    array([1, 9, 2, 3])
    """
    line, k = _operand_and_axis("insert", arr, axis)
    values = as_operand("insert", "values", values)
    refuse_imaginary_parts("insert", "values are", values.dtype, line.dtype)
    places = normalize_key(known_positions(obj))
    n, ndim = line.shape[k], len(line.shape)
    if isinstance(places, slice):
        places = np.arange(n)[places]
    places = np.asarray(places)
    missing = ndim - len(values.shape)
    if missing > 0:
        values = reshape(values, (1,) * missing + values.shape)
    if not places.ndim:
        values = moveaxis(values, 0, k)
    count = values.shape[k] if places.size == 1 and len(values.shape) == ndim else places.size
    shape = (*line.shape[:k], count, *line.shape[k + 1 :])
    try:
        values = broadcast_to(astype(values, line.dtype), shape)
    except ShapeError:
        raise ShapeError(f"insert: values {values.shape} do not fit into {shape}") from None
    new = np.arange(n, n + count)
    order = _edit_indices("insert", np.insert, np.arange(n), places, new)
    return take(concatenate([line, values], k), order, k)


@composite(
    numpy=[np.resize],
    samples=[
        sample((2, 3), new_shape=(3, 4)),
        sample((4,), new_shape=2),
        sample((), new_shape=(2, 1)),
        sample((3,), new_shape=(0, 2)),
    ],
    rejects=[reject((3,), new_shape=-1, match="negative")],
)
def resize(a: Any, new_shape: Any) -> Any:
    """Resize to a shape, repeating the elements from the first one on if necessary.

    Args:
        a: Array.
        new_shape: The shape, or a length.

    Raises:
        ShapeError: if a length is negative.

    >>> resize(np.array([1, 2, 3]), (2, 2))
    array([[1, 2],
           [3, 1]])
    """
    a = as_operand("resize", "a", a)
    lengths = new_shape if isinstance(new_shape, (tuple, list)) else (new_shape,)
    shape, size, count = tuple(map(operator.index, lengths)), 1, 1
    for n in shape:
        size *= n
        if n < 0:
            raise ShapeError(
                f"resize: new_shape is {format_value(new_shape)}; a length cannot be negative"
            )
    for n in a.shape:
        count *= n
    if not count:
        return zeros_like(a, shape=shape)
    return reshape(take(a, np.arange(size) % count), shape)


# ------------------------------------------------------------------ broadcasting and grids


@composite(
    numpy=[np.broadcast_arrays],
    samples=[sample((2, 1), (3,)), sample((), (2, 2), (2,)), sample((3,))],
    rejects=[reject((2,), (3,), match="do not broadcast")],
)
def broadcast_arrays(*args: Any) -> Any:
    """Broadcast arrays to their common shape.

    Args:
        args: Arrays whose shapes broadcast.

    Returns:
        A tuple of arrays.

    Raises:
        ShapeError: if the shapes do not broadcast.

    >>> broadcast_arrays(np.array([1, 2]), np.array([[3]]))
    (array([[1, 2]]), array([[3, 3]]))
    """
    arrays = [as_operand("broadcast_arrays", "an array", x) for x in args]
    shapes = [x.shape for x in arrays]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"broadcast_arrays: shapes {shapes} do not broadcast") from None
    return tuple(copy_if_shared(broadcast_to(x, shape)) for x in arrays)


@composite(
    numpy=[np.meshgrid],
    samples=[
        sample((3,), (2,)),
        sample((3,), (2,), (4,), indexing="ij"),
        sample((3,), (), sparse=True),
        sample((2,)),
    ],
    rejects=[
        reject((2, 2), (3,), match="on one axis"),
        reject((2,), (3,), indexing="yx", error=SettingError, match="indexing"),
    ],
)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Coordinate arrays of a grid, from the coordinates along its axes.

    Args:
        xi: Coordinates along each axis.
        copy: Ignored: results share no memory.
        sparse: Whether to leave axes of length 1 instead of repeating along them.
        indexing: ``"xy"``, where the first coordinates vary along the second axis, or ``"ij"``.

    Returns:
        A tuple with an array for each axis.

    Raises:
        ShapeError: if coordinates have more than one axis.

    >>> meshgrid(np.array([1, 2]), np.array([3, 4]))
    (array([[1, 2],
           [1, 2]]), array([[3, 3],
           [4, 4]]))
    """
    check_flag("meshgrid", "copy", copy)
    check_choice("meshgrid", "indexing", indexing, ("xy", "ij"))
    lines = [as_operand("meshgrid", "the numbers along an axis", x) for x in xi]
    if any(len(x.shape) > 1 for x in lines):
        came = [x.shape for x in lines]
        raise ShapeError(f"meshgrid: came {came}; pass the numbers along each axis on one axis")
    order = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        order[:2] = [1, 0]
    upright = []
    for k, line in zip(order, lines, strict=True):
        shape = tuple(-1 if j == k else 1 for j in range(len(lines)))
        upright.append(reshape(line, shape))
    return tuple(map(copy_if_shared, upright)) if sparse else broadcast_arrays(*upright)


# ------------------------------------------------------------------ blocks


@composite(
    numpy=[np.block],
    samples=[
        sample([[(2, 2), (2, 1)], [(1, 2), (1, 1)]]),
        sample([(2,), (), (3,)]),
        sample([[(2, 2)], [(2,)]]),
        sample((2, 2)),
    ],
    rejects=[
        reject([np.ones((2, 2)), np.ones((3, 2))], match="differ"),
        reject([[np.ones(2)], np.ones(2)], match="equally deep"),
        reject([], match="empty list"),
    ],
)
def block(arrays: Any) -> Any:
    """Join nested lists of arrays: the innermost lists along the last axis, and so on outwards.

    Args:
        arrays: Nested lists of arrays, equally deep.

    Raises:
        ShapeError: if shapes do not fit, or lists are empty or not equally deep.

    >>> block([[np.eye(2, dtype=int), np.array([[7], [8]])]])
    array([[1, 0, 7],
           [0, 1, 8]])
    """
    depth = _nesting_depth(arrays)
    ndim = max(depth, _max_ndim(arrays))
    joined = _join_blocks(arrays, ndim - depth, ndim)
    return identity(joined) if joined is arrays else copy_if_shared(joined)


def _nesting_depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_nesting_depth(part) for part in arrays}
    if not depths:
        raise ShapeError("block: an empty list came; pass arrays in it")
    if len(depths) > 1:
        raise ShapeError(f"block: lists are not equally deep: {sorted(depths)}")
    return 1 + depths.pop()


def _max_ndim(arrays: Any) -> int:
    if isinstance(arrays, list):
        return max(map(_max_ndim, arrays))
    return len(shape_of(arrays))


def _join_blocks(arrays: Any, axis: int, ndim: int) -> Any:
    if isinstance(arrays, list):
        return concatenate([_join_blocks(p, axis + 1, ndim) for p in arrays], axis)
    x = as_operand("block", "an array", arrays)
    missing = ndim - len(x.shape)
    return reshape(x, (1,) * missing + x.shape) if missing else x


publish(globals())
