"""Products with a large matrix of half precision, which is cast to float32 in blocks.

Called by ``table.half_kernels`` for eager products. A float32 copy of the matrix would take twice
its memory, and more time than the product of few rows itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import is_half
from odyssey.kernels.half_casts import narrow, widen
from odyssey.spec import Array

__all__ = ["product_in_blocks"]

# Elements of a block: 1 MB of float32, so that it is multiplied while it is in the cache; for many
# rows, with which a library copies both operands for each block, 4 MB.
_BLOCK, _BLOCK_OF_MANY = 1 << 18, 1 << 20
_FEW_ROWS = 32
# Least lines of a block.
_LEAST_LINES = 8


def product_in_blocks(
    name: str, operands: Sequence[Any], dtype: np.dtype[Any], loops: bool
) -> Array | None:
    """Return a product with a large matrix of half precision; None for other products.

    Args:
        name: ``matmul`` or ``linear``.
        operands: Operands of that op.
        dtype: Dtype of the result, float32 or a half.
        loops: Whether compiled loops may be used.
    """
    x, matrix, *rest = operands
    bias = rest[0] if rest else None
    if name == "linear" and getattr(matrix, "ndim", 0) == 2:
        matrix = matrix.T
    if _is_large_half(matrix):
        rows, columns, is_left = x, matrix, False
    elif name == "matmul" and _is_large_half(x) and getattr(matrix, "ndim", 0) in (1, 2):
        # The transpose of a product is the product of the transposes.
        rows, columns, is_left = matrix.T, x.T, True
    else:
        return None
    if not getattr(rows, "ndim", 0) or rows.shape[-1] != columns.shape[0]:
        return None
    length, count = columns.shape
    if bias is not None and getattr(bias, "shape", None) != (count,):
        return None
    wide = widen(rows, loops) if is_half(rows.dtype) else rows
    shape = (*rows.shape[:-1], count)
    out = np.empty(shape[::-1] if is_left else shape, dtype)
    wide, target = wide.reshape(-1, length), (out.T if is_left else out).reshape(-1, count)
    added = bias if bias is None or not is_half(bias.dtype) else widen(bias)
    is_few = len(wide) <= _FEW_ROWS
    if is_few and columns.flags.c_contiguous:
        total = _sum_of_blocks(wide, columns, loops)
        if added is not None:
            total += added
        target[...] = total if dtype == np.float32 else narrow(total, dtype, loops)
        return out
    size = max((_BLOCK if is_few else _BLOCK_OF_MANY) // length, _LEAST_LINES)
    for start in range(0, count, size):
        own = slice(start, min(start + size, count))
        product = np.matmul(wide, _cast_columns(columns[:, own], loops))
        if added is not None:
            product += added[own]
        target[:, own] = product if dtype == np.float32 else narrow(product, dtype, loops)
    return out


def _sum_of_blocks(rows: Array, matrix: Array, loops: bool) -> Array:
    """Return the product of few rows and a matrix whose rows are contiguous, as a sum of blocks."""
    length, count = matrix.shape
    size = max(_BLOCK // count, _LEAST_LINES)
    total = np.matmul(rows[:, :size], widen(matrix[:size], loops))
    for start in range(size, length, size):
        own = slice(start, start + size)
        total += np.matmul(rows[:, own], widen(matrix[own], loops))
    return total  # type: ignore[no-any-return]


def _is_large_half(x: Any) -> bool:
    return type(x) is np.ndarray and x.ndim == 2 and is_half(x.dtype) and x.size > 2 * _BLOCK


def _cast_columns(block: Array, loops: bool) -> Array:
    """Return columns of a matrix in float32, cast in the order in which they lie in memory."""
    if block.T.flags.c_contiguous:
        return widen(block.T, loops).T  # type: ignore[no-any-return]
    # NumPy copies bfloat16, which is not its own, element by element.
    copy = np.ascontiguousarray(block.view(np.uint16)).view(block.dtype)
    return widen(copy, loops)  # type: ignore[no-any-return]
