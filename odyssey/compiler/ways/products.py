"""Ways of matrix products, which passes and code generation choose among."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.ways.alternatives import GENERATOR, Way
from odyssey.compiler.ways.works import Work, format_lengths, format_spec
from odyssey.spec import Shape

__all__ = ["matrix_product_work", "product_ways", "row_product_ways", "window_product_ways"]

# Below this many multiplications loops are faster than a BLAS call.
SMALL = 4096
# Loops with longer sums would be less accurate than BLAS.
LONGEST = 32
# From so large a matrix on a product of few rows is faster in loops that do not pack it.
_LEAST_FEW_ROWS = 1 << 12


def _with_guess(names: tuple[str, ...], guess: str) -> tuple[Way, ...]:
    return tuple([Way(name, None, (GENERATOR,)) for name in sorted(names, key=guess.__ne__)])


def window_product_ways(guess: str) -> tuple[Way, ...]:
    """Return the ways of a product with sliding windows: in register tiles, or as columns."""
    return _with_guess(("tiles", "columns"), guess)


def row_product_ways(guess: str) -> tuple[Way, ...]:
    """Return the ways of a product of one row: as a sum in loops, or as a product."""
    return _with_guess(("sum", "product"), guess)


def product_ways(
    m: int, n: int, k: int, has_blas: bool, is_few_rows: bool, has_half: bool
) -> tuple[Way, ...]:
    """Return the ways of a product (m, k) @ (k, n): loops, or a function of the BLAS library.

    Args:
        m: Rows of the left matrix.
        n: Columns of the right one.
        k: Length of the sums.
        has_blas: Whether the library takes such matrices.
        is_few_rows: Whether it has so few rows or columns that loops may read the matrix in place.
        has_half: Whether the matrix is of half precision, and can only be read so.
    """
    names: list[str] = []
    if has_half:
        names = ["rows"]
    elif has_blas and k > 1:
        names = ["vector", "library"] if min(m, n) == 1 else ["library"]
    if not names:
        names = ["loops"]
    elif not (has_half or isinstance(k, SymbolicDim)) and k <= LONGEST:
        names.insert(0 if m * n * k <= SMALL else len(names), "loops")
    if is_few_rows and not has_half:
        is_large = min(m, n) > 1 and k * max(m, n) >= _LEAST_FEW_ROWS
        names.insert(0 if is_large else len(names), "rows")
    return tuple([Way(name, None, (GENERATOR,)) for name in names])


def matrix_product_work(
    operands: Sequence[tuple[Any, Shape, tuple[int, ...]]], count: int, accumulates: bool
) -> Work:
    """Return the work of products of matrices.

    Args:
        operands: Dtypes, shapes and strides of the operands.
        count: Number of products.
        accumulates: Whether the product is added to what the result holds.
    """
    specs = []
    for dtype, shape, (row, column) in operands:
        is_transposed = row == 1 and column != 1 and 1 not in shape
        specs.append(format_spec(shape, dtype) + ".T" * is_transposed)
    options = [f"{format_lengths((count,))} times"] if count != 1 else []
    options += ["accumulates"] if accumulates else []
    return Work("product", tuple(specs), ", ".join(options))
