"""Chained matrix products and matrix powers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.linalg.linear_systems import inv
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import well_conditioned
from odyssey.ops.structure.creation import full_like
from odyssey.ops.structure.shape import (
    identity,
    shape_of,
)
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample


def _matrix_operand(who: str, x: Any) -> Any:
    """Convert an array-like without a dtype to an array."""
    return x if hasattr(x, "dtype") else as_array(who, "an operand", x)


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
def multi_dot(arrays: Sequence[Any]) -> Any:
    """Product of several matrices in the order with the fewest multiplications.

    Args:
        arrays: Two or more matrices; the first may be a row vector and the last a column vector.

    Raises:
        ShapeError: if inner lengths differ.

    >>> multi_dot([np.ones(3), np.ones((3, 4)), np.ones((4, 2))])
    array([12., 12.])
    """
    operands = [_matrix_operand("multi_dot", x) for x in arrays]
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
    split = _chain_splits([rows, *(shape[0] for shape in shapes[1:]), (*shapes[-1], 1)[1]])
    return _chain_product(operands, split, 0, len(operands) - 1)


def _chain_product(
    operands: Sequence[Any], split: dict[tuple[int, int], int], i: int, j: int
) -> Any:
    """Product of the operands ``i`` to ``j``, by the optimal splits."""
    if i == j:
        return operands[i]
    k = split[i, j]
    left = _chain_product(operands, split, i, k)
    return matmul(left, _chain_product(operands, split, k + 1, j))


def _chain_splits(lengths: Sequence[int]) -> dict[tuple[int, int], int]:
    """Optimal split of each subchain ``i`` to ``j``, by dynamic programming."""
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
        sample((2, 2), -2, form=well_conditioned),
        sample((2, 2), 1),
        sample((0, 0), 2),
    ],
    rejects=[
        reject((2, 3), 2, match="square matrices"),
        reject((2, 2), 0.5, error=DTypeError, match="is not a whole number"),
    ],
)
def matrix_power(a: Any, n: int) -> Any:
    """Powers of square matrices.

    Args:
        a: Square matrices.
        n: The exponent, an int; negative for powers of the inverse.

    Raises:
        LinAlgError: for a negative power of a singular matrix.

    >>> matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    array([[1., 5.],
           [0., 1.]])
    """
    a, n = _matrix_operand("matrix_power", a), check_int("matrix_power", "n", n)
    shape = shape_of(a)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"matrix_power: a has shape {shape}; wanted are square matrices")
    if n == 0:
        return full_like(a, np.eye(shape[-1]))
    base, left = (inv(a), -n) if n < 0 else (a, n)
    if left == 1:
        return base if n < 0 else identity(a)
    out = None
    while left:
        left, odd = divmod(left, 2)
        if odd:
            out = base if out is None else matmul(out, base)
        base = matmul(base, base) if left else base
    return out


publish(globals())
