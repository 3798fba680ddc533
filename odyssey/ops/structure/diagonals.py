"""Diagonals, traces and triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.errors import ShapeError
from odyssey.ops.elementwise.choice import keep_where, where
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.ops.structure.shape import astype, reshape, shape_of, transpose
from odyssey.spec import Spec
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

# ------------------------------------------------------------------ diagonals


def diagonal_indices(rows: int, columns: int, offset: int) -> slice:
    """Return the row-major indices of the elements on a diagonal."""
    start = offset if offset >= 0 else -offset * columns
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    if length <= 0:
        return slice(0, 0)
    return slice(start, start + (length - 1) * (columns + 1) + 1, columns + 1)


@composite(
    numpy=[np.diagonal],
    samples=[
        sample((3, 3)),
        sample((2, 4), offset=1),
        sample((4, 2), offset=-1),
        sample((2, 4, 3), axis1=-1, axis2=0),
        sample((2, 3), offset=9),
        sample((0, 3)),
    ],
    rejects=[reject((3,), match="two axes"), reject((2, 3), axis1=1, axis2=-1, match="distinct")],
)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Diagonal of each matrix spanned by two axes, on the last axis of the result.

    Args:
        a: Array with at least two axes.
        offset: Offset from the main diagonal: above it if positive, below it if negative.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Returns:
        A new array without both axes, and with the axis of the diagonal at the end.

    Raises:
        ShapeError: if ``a`` lacks an axis, or both axes are the same.

    >>> diagonal(np.array([[1, 2, 3], [4, 5, 6]]), 1)
    array([2, 6])
    """
    return _extract_diagonal("diagonal", a, offset, axis1, axis2)


def _extract_diagonal(who: str, a: Any, offset: Any, axis1: Any, axis2: Any) -> Any:
    shape, offset = shape_of(a), check_int(who, "offset", offset)
    if len(shape) < 2:
        raise ShapeError(f"{who}: needs two axes or more, a has shape {shape}; diag makes a matrix")
    normalize_axes(who, (axis1, axis2), len(shape))
    (i,), (j,) = (normalize_axes(who, k, len(shape)) for k in (axis1, axis2))
    if i > j:  # the matrices transposed
        i, j, offset = j, i, -offset
    if j > i + 1:
        order = [k for k in range(len(shape)) if k != j]
        order.insert(i + 1, j)
        a = transpose(a, tuple(order))
    before, after = shape[:i], shape[i + 1 : j] + shape[j + 1 :]
    flat = reshape(a, (*before, shape[i] * shape[j], *after))
    line = getitem(flat, (slice(None),) * i + (diagonal_indices(shape[i], shape[j], offset),))
    if not after:
        return line
    ndim = len(shape) - 1
    return transpose(line, (*range(i), *range(i + 1, ndim), i))


@composite(
    numpy=[np.diag],
    samples=[sample((2, 3)), sample((3, 3), k=-1), sample((3,)), sample((2,), k=2), sample((0,))],
    rejects=[reject((), match="vector or a matrix"), reject((1, 2, 2), match="vector or a matrix")],
)
def diag(v: Any, k: int = 0) -> Any:
    """Diagonal of a matrix, or matrix with a vector on its diagonal and zeros elsewhere.

    Args:
        v: Vector or matrix.
        k: The diagonal: above the main one if positive, below it if negative.

    Returns:
        A new array: a vector for a matrix, a square matrix for a vector.

    Raises:
        ShapeError: if ``v`` has neither one nor two axes.

    >>> diag(np.array([1, 2]), -1)
    array([[0, 0, 0],
           [1, 0, 0],
           [0, 2, 0]])
    """
    shape, k = shape_of(v), check_int("diag", "k", k)
    if len(shape) == 2:
        return _extract_diagonal("diag", v, k, 0, 1)
    if len(shape) != 1:
        raise ShapeError(f"diag: v has shape {shape}; pass a vector or a matrix")
    v = v if hasattr(v, "dtype") else as_array("diag", "v", v)
    n = shape[0] + abs(k)
    flat = add_at(v, diagonal_indices(n, n, k), Spec((n * n,), v.dtype))
    return reshape(flat, (n, n))


@composite(
    numpy=[np.trace],
    samples=[
        sample((3, 3)),
        sample((3, 2), offset=-1),
        sample((2, 3, 4), axis1=-1, axis2=1),
        sample((2, 3), offset=5),
    ],
    rejects=[reject((2, 3), axis2=2, match="does not fit")],
)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """Trace: sum along a diagonal of each matrix spanned by two axes.

    Args:
        a: Array with at least two axes.
        offset: Offset from the main diagonal: above it if positive, below it if negative.
        axis1: The axis of the rows.
        axis2: The axis of the columns.
        dtype: The dtype of the sum; by default that of ``sum``.

    Returns:
        A number for a matrix, else an array without both axes.

    Raises:
        ShapeError: if ``a`` lacks an axis, or both axes are the same.

    >>> float(trace(np.array([[1.0, 2.0], [3.0, 4.0]])))
    5.0
    """
    line = _extract_diagonal("trace", a, offset, axis1, axis2)
    if dtype is None:
        return sum(line, -1)
    # Sums of small integers have a wider dtype than the elements.
    total = sum(astype(line, dtype), -1)
    return total if total.dtype == dtype else astype(total, dtype)


# ------------------------------------------------------------------ triangles


def _keep_triangle(who: str, m: Any, k: Any, lower: bool) -> Any:
    shape = shape_of(m)
    k = check_int(who, "k", k) - (not lower)
    if not shape:
        raise ShapeError(f"{who}: m is a number; pass a matrix, or an array of them")
    rows, columns = (*shape, *shape)[-2:] if len(shape) == 1 else shape[-2:]
    inside = np.tri(rows, columns, k, bool) == lower
    m = m if hasattr(m, "dtype") else as_array(who, "m", m)
    if is_inexact(m.dtype):
        return keep_where(m, inside)
    return where(inside, m, np.zeros((), m.dtype))  # booleans stay booleans


@composite(
    numpy=[np.tril],
    samples=[
        sample((3, 3)),
        sample((2, 4), k=1),
        sample((2, 3, 2), k=-1),
        sample((3,)),
        sample((0, 3)),
    ],
    rejects=[reject((), match="m is a number")],
)
def tril(m: Any, k: int = 0) -> Any:
    """Lower triangles of matrices, with zeros above a diagonal, also in place of NaN.

    Args:
        m: Array with at least one axis; a vector stands for a matrix of equal rows.
        k: The last diagonal kept: above the main one if positive, below it if negative.

    Raises:
        ShapeError: if ``m`` has no axis.

    >>> tril(np.array([[1, 2], [3, 4]]))
    array([[1, 0],
           [3, 4]])
    """
    return _keep_triangle("tril", m, k, True)


@composite(
    numpy=[np.triu],
    samples=[
        sample((3, 3)),
        sample((4, 2), k=1),
        sample((2, 3, 2), k=-1),
        sample((3,)),
        sample((0, 3)),
    ],
    rejects=[reject((), match="m is a number")],
)
def triu(m: Any, k: int = 0) -> Any:
    """Upper triangles of matrices, with zeros below a diagonal, also in place of NaN.

    Args:
        m: Array with at least one axis; a vector stands for a matrix of equal rows.
        k: The first diagonal kept: above the main one if positive, below it if negative.

    Raises:
        ShapeError: if ``m`` has no axis.

    >>> triu(np.array([[1, 2], [3, 4]]), 1)
    array([[0, 2],
           [0, 0]])
    """
    return _keep_triangle("triu", m, k, False)


publish(globals())
