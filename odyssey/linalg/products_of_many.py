"""Products of more than two matrices, of vectors along an axis, and matrices made of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import whole
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.linalg.matrices import regular
from odyssey.linalg.products import matmul
from odyssey.linalg.solving import inv
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.creation import full_like
from odyssey.ops.structure.diagonals import _places
from odyssey.ops.structure.indexing import add_at
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.padding import pad
from odyssey.ops.structure.shape import (
    expand_dims,
    identity,
    matrix_transpose,
    moveaxis,
    reshape,
    shape_of,
)
from odyssey.spec import Spec
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


def _array(who: str, x: Any) -> Any:
    return x if hasattr(x, "dtype") else as_array(who, "an operand", x)


# ------------------------------------------------------------------ products


@composite(
    numpy=[np.linalg.multi_dot],
    samples=[
        sample([(2, 3), (3, 2)]),
        sample([(2, 4), (4, 3), (3, 2)]),
        sample([(3,), (3, 2), (2, 4), (4,)]),
        sample([(2, 0), (0, 3), (3, 2)]),
    ],
    rejects=[
        reject([np.ones((2, 3)), np.ones((2, 3))], match="inner sizes differ"),
        reject([np.ones((2, 3))], match="two arrays or more"),
        reject(
            [np.ones((2, 3)), np.ones(3), np.ones((3, 2))], match="between the first and the last"
        ),
    ],
)
def multi_dot(arrays: Sequence[Any], *, tape: Any = None) -> Any:
    """Product of matrices, in the order that takes the fewest multiplications.

    Args:
        arrays: Two matrices or more; the first may be a vector, a row, and the last a column.
        tape: The tape to record on.

    Raises:
        ShapeError: where lengths differ.

    >>> multi_dot([np.ones(3), np.ones((3, 4)), np.ones((4, 2))])
    array([12., 12.])
    """
    operands = [_array("multi_dot", x) for x in arrays]
    shapes = [shape_of(x) for x in operands]
    if len(operands) < 2:
        raise ShapeError(f"multi_dot: {len(operands)} came; pass a list of two arrays or more")
    if any(len(shape) != 2 for shape in shapes[1:-1]) or not all(
        len(shape) in (1, 2) for shape in (shapes[0], shapes[-1])
    ):
        raise ShapeError(
            f"multi_dot: shapes {shapes}; only matrices may stand between the first and the last, "
            "and these may be vectors"
        )
    rows = 1 if len(shapes[0]) == 1 else shapes[0][0]
    split = _splits([rows, *(shape[0] for shape in shapes[1:]), (*shapes[-1], 1)[1]])

    def product(i: int, j: int) -> Any:
        if i == j:
            return operands[i]
        k = split[i, j]
        return matmul(product(i, k), product(k + 1, j), tape=tape)

    return product(0, len(operands) - 1)


def _splits(lengths: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split a chain of matrices, ``i`` to ``j``, by dynamic programming."""
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    split = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            ends = lengths[i] * lengths[j + 1]
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + ends * lengths[k + 1], k) for k in range(i, j)
            )
    return split


@composite(
    numpy=[np.linalg.matrix_power],
    samples=[
        sample((2, 2), 5),
        sample((2, 2, 2), 3),
        sample((2, 2), -2, form=regular),
        sample((2, 2), 1),
        sample((0, 0), 2),
    ],
    rejects=[
        reject((2, 3), 2, match="square matrices"),
        reject((2, 2), 0.5, error=DTypeError, match="is not a whole number"),
    ],
)
def matrix_power(a: Any, n: int, *, tape: Any = None) -> Any:
    """Products of square matrices with themselves.

    Args:
        a: Square matrices.
        n: How many factors there are; below 0, of the inverses.
        tape: The tape to record on.

    Raises:
        LinAlgError: for a negative power of a singular matrix.

    >>> matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    array([[1., 5.],
           [0., 1.]])
    """
    a, n = _array("matrix_power", a), whole("matrix_power", "n", n)
    shape = shape_of(a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"matrix_power: a has shape {shape}; wanted are square matrices")
    if n == 0:
        return full_like(a, np.eye(shape[-1]))
    base, left = (inv(a, tape=tape), -n) if n < 0 else (a, n)
    if left == 1:
        return base if n < 0 else identity(a, tape=tape)
    out = None
    while left:
        left, odd = divmod(left, 2)
        if odd:
            out = base if out is None else matmul(out, base, tape=tape)
        base = matmul(base, base, tape=tape) if left else base
    return out


@composite(
    numpy=[np.vecdot, np.linalg.vecdot],
    samples=[
        sample((2, 3), (3,)),
        sample((3, 1, 2), (3, 4, 1), axis=0),
        sample((3,), (3,)),
        sample((2, 0), (2, 0)),
    ],
    rejects=[reject((2, 3), (2,), match="differ"), reject((), (2,), match="does not fit")],
)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, tape: Any = None) -> Any:
    """Inner products of vectors along an axis, those of ``x1`` conjugated.

    Args:
        x1: Array of vectors.
        x2: Array of vectors of the same length.
        axis: Where the vectors stand, in both; the other axes broadcast.
        tape: The tape to record on.

    Raises:
        ShapeError: where lengths differ, or other axes do not broadcast.

    >>> vecdot(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([3.0, 4.0]))
    array([11.,  4.])
    """
    vectors = []
    for x in (x1, x2):
        x = _array("vecdot", x)
        normalize_axes("vecdot", axis, len(shape_of(x)))
        last = axis in (-1, len(shape_of(x)) - 1)
        vectors.append(x if last else moveaxis(x, axis, -1, tape=tape))
    left, right = vectors
    if left.dtype.kind == "c":  # the conjugate of a truth value would be a number
        left = conj(left, tape=tape)
    row, column = expand_dims(left, -2, tape=tape), expand_dims(right, -1, tape=tape)
    out = matmul(row, column, tape=tape)
    return reshape(out, shape_of(out)[:-2], tape=tape)


# ------------------------------------------------------------------ matrices of parts


@composite(
    aliases=["mH"],
    samples=[sample((2, 3)), sample((2, 3, 1)), sample((0, 2))],
    rejects=[reject((3,), match="two axes")],
)
def adjoint(x: Any, *, tape: Any = None) -> Any:
    """Conjugate transposes of matrices.

    Args:
        x: Array of two axes or more; the last two are the matrices'.
        tape: The tape to record on.

    Raises:
        ShapeError: for fewer axes.

    >>> adjoint(np.array([[1.0, 2j]]))
    array([[1.-0.j],
           [0.-2.j]])
    """
    turned = matrix_transpose(_array("adjoint", x), tape=tape)
    return conj(turned, tape=tape) if turned.dtype.kind == "c" else turned


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
def diag_embed(
    x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1, *, tape: Any = None
) -> Any:
    """Matrices of zeros that have the vectors of an array on a diagonal.

    Args:
        x: Array; its last axis is that of the vectors.
        offset: Which diagonal: above the main one where positive, below it where negative.
        axis1: Where the rows stand in the result.
        axis2: Where its columns stand.
        tape: The tape to record on.

    Raises:
        ShapeError: for a number, and for axes that do not fit.

    >>> diag_embed(np.array([1.0, 2.0]), 1)
    array([[0., 1., 0.],
           [0., 0., 2.],
           [0., 0., 0.]])
    """
    x, offset = _array("diag_embed", x), whole("diag_embed", "offset", offset)
    shape = shape_of(x)
    if not shape:
        raise ShapeError("diag_embed: x is a number; pass a vector, or an array of them")
    normalize_axes("diag_embed", (axis1, axis2), len(shape) + 1)
    n = shape[-1] + abs(offset)
    flat = Spec((*shape[:-1], n * n), x.dtype)
    made = add_at(x, (..., _places(n, n, offset)), flat, tape=tape)
    matrices = reshape(made, (*shape[:-1], n, n), tape=tape)
    ndim = len(shape) + 1
    if (axis1 % ndim, axis2 % ndim) == (ndim - 2, ndim - 1):
        return matrices
    return moveaxis(matrices, (-2, -1), (axis1, axis2), tape=tape)


@composite(
    samples=[
        sample((2, 3), (1, 2)),
        sample((2,), (), (2, 1)),
        sample((0, 2), (1, 1)),
        sample((2, 2)),
    ],
    rejects=[reject((2, 2, 2), match="at most two axes"), reject(match="no arrays came")],
)
def block_diag(*arrays: Any, tape: Any = None) -> Any:
    """The matrix that has matrices along its diagonal, and zeros elsewhere.

    Args:
        arrays: Matrices; a vector counts as a row, a number as a matrix of one element.
        tape: The tape to record on.

    Raises:
        ShapeError: for more axes, or without arrays.

    >>> block_diag(np.ones((1, 2)), np.array(5.0))
    array([[1., 1., 0.],
           [0., 0., 5.]])
    """
    if not arrays:
        raise ShapeError("block_diag: no arrays came; pass one or more")
    blocks = []
    for x in arrays:
        x = _array("block_diag", x)
        if len(shape_of(x)) > 2:
            raise ShapeError(f"block_diag: an array has shape {shape_of(x)}; at most two axes")
        blocks.append(reshape(x, (1, 1, *shape_of(x))[-2:], tape=tape))
    widths = [shape_of(x)[1] for x in blocks]
    before, whole_width = 0, sum(widths)
    rows = []
    for block, width in zip(blocks, widths, strict=True):
        after = whole_width - before - width
        rows.append(pad(block, ((0, 0), (before, after)), tape=tape))
        before += width
    return concatenate(rows, 0, tape=tape)


publish(globals())
