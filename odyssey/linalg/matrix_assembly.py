"""Matrices assembled from arrays: adjoints, diagonal matrices and block-diagonal matrices."""

from __future__ import annotations

from typing import Any

from odyssey.checks import check_int
from odyssey.errors import ShapeError
from odyssey.linalg.matrix_powers import _matrix_operand
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.diagonals import diagonal_indices
from odyssey.ops.structure.indexing import add_at
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.padding import pad
from odyssey.ops.structure.shape import (
    matrix_transpose,
    moveaxis,
    reshape,
    shape_of,
)
from odyssey.spec import Spec
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


@composite(
    aliases=["mH"],
    samples=[sample((2, 3)), sample((2, 3, 1)), sample((0, 2))],
    rejects=[reject((3,), match="two axes")],
)
def adjoint(x: Any) -> Any:
    """Conjugate transpose of matrices.

    Args:
        x: Array of two or more axes; the last two are transposed.

    Raises:
        ShapeError: for fewer than two axes.

    >>> adjoint(np.array([[1.0, 2j]]))
    array([[1.-0.j],
           [0.-2.j]])
    """
    turned = matrix_transpose(_matrix_operand("adjoint", x))
    return conj(turned) if turned.dtype.kind == "c" else turned


@composite(
    samples=[
        sample((2, 3)),
        sample((2, 3), offset=-1),
        sample((2, 2), offset=1, axis1=0, axis2=-1),
        sample((2, 2), axis1=2, axis2=0),
        sample((0,)),
    ],
    rejects=[
        reject((), match="x is a number"),
        reject((2,), axis1=1, axis2=-1, match="distinct"),
    ],
)
def diag_embed(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Matrices with the vectors of an array on a diagonal and zeros elsewhere.

    Args:
        x: Array of vectors along the last axis.
        offset: The diagonal: above the main one if positive, below it if negative.
        axis1: Axis of the rows in the result.
        axis2: Axis of the columns in the result.

    Raises:
        ShapeError: for a number, or axes that do not fit.

    >>> diag_embed(np.array([1.0, 2.0]), 1)
    array([[0., 1., 0.],
           [0., 0., 2.],
           [0., 0., 0.]])
    """
    x, offset = _matrix_operand("diag_embed", x), check_int("diag_embed", "offset", offset)
    shape = shape_of(x)
    if not shape:
        raise ShapeError("diag_embed: x is a number; pass a vector, or an array of them")
    normalize_axes("diag_embed", (axis1, axis2), len(shape) + 1)
    n = shape[-1] + abs(offset)
    flat = Spec((*shape[:-1], n * n), x.dtype)
    flat_matrices = add_at(x, (..., diagonal_indices(n, n, offset)), flat)
    matrices = reshape(flat_matrices, (*shape[:-1], n, n))
    ndim = len(shape) + 1
    if (axis1 % ndim, axis2 % ndim) == (ndim - 2, ndim - 1):
        return matrices
    return moveaxis(matrices, (-2, -1), (axis1, axis2))


@composite(
    samples=[
        sample((2, 3), (1, 2)),
        sample((2,), (), (2, 1)),
        sample((0, 2), (1, 1)),
        sample((2, 2)),
    ],
    rejects=[reject((2, 2, 2), match="at most two axes"), reject(match="no arrays came")],
)
def block_diag(*arrays: Any) -> Any:
    """Block-diagonal matrix of the given matrices.

    Args:
        arrays: Matrices; a vector is taken as a row, a number as a 1 by 1 matrix.

    Raises:
        ShapeError: for more than two axes, or no arrays.

    >>> block_diag(np.ones((1, 2)), np.array(5.0))
    array([[1., 1., 0.],
           [0., 0., 5.]])
    """
    if not arrays:
        raise ShapeError("block_diag: no arrays came; pass one or more")
    blocks = []
    for x in arrays:
        x = _matrix_operand("block_diag", x)
        if len(shape_of(x)) > 2:
            raise ShapeError(f"block_diag: an array has shape {shape_of(x)}; at most two axes")
        blocks.append(reshape(x, (1, 1, *shape_of(x))[-2:]))
    widths = [shape_of(x)[1] for x in blocks]
    before, total_width = 0, sum(widths)
    rows = []
    for block, width in zip(blocks, widths, strict=True):
        after = total_width - before - width
        rows.append(pad(block, ((0, 0), (before, after))))
        before += width
    return concatenate(rows, 0)


publish(globals())
