"""Ways of matrix products, which passes and code generation choose among."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.ways.alternatives import GENERATOR, Way
from odyssey.compiler.ways.works import Work, format_lengths, format_spec
from odyssey.spec import Shape

__all__ = [
    "MAX_SHORT_LINE",
    "MAX_SHORT_SUM",
    "FewRowsShape",
    "matrix_product_work",
    "product_ways",
    "row_product_ways",
    "window_product_ways",
]

# Below this many multiplications loops are faster than a BLAS call.
SMALL = 4096
# Loops with longer sums would be less accurate than BLAS.
LONGEST = 32

MAX_SHORT_SUM, MAX_SHORT_LINE = 8, 64
"""Longest sums, and longest rows or columns, of products in loops that hold a sum in a register:
4096 rows of 4 elements times 16 columns take 11 us, and 37 us in a BLAS call."""

# From so large a matrix on, a product of few rows takes less time in loops that do not pack it, if
# its sums are long enough, or the rows of the matrix where its columns are contiguous. With more
# rows than `_FEW` they must be four times as long.
_LEAST_FEW_ROWS, _LEAST_SUM, _LEAST_LINE, _FEW = 1 << 12, 16, 16, 4
# Largest matrix of each single row of a batch: 12 times (1, 64) @ (64, 64) take 4.0 us, and 6.5 us
# in calls for vectors.
_MOST_OF_ROW = 1 << 14


class FewRowsShape(NamedTuple):
    """A product of few rows and a matrix, or of the transpose of a matrix and few columns.

    Attributes:
        rows: Few rows.
        columns: Columns of the matrix.
        inner: Length of the sums.
        is_along: Whether the inner axis of the matrix is contiguous.
        fits: Whether that of the rows is, or they fit on the stack.
    """

    rows: int
    columns: int
    inner: int
    is_along: bool
    fits: bool

    def pays(self, count: int) -> bool:
        """Return whether loops that read the matrix once should take less time than BLAS."""
        size, factor = self.inner * self.columns, 1 if self.rows <= _FEW else 4
        if self.rows == 1 and self.is_along:  # shorter ones are sums
            return count == 1 and self.fits and self.inner >= _LONG_LINE // 8
        if self.rows == 1:  # others are calls for vectors
            small = count > 1 and not self.is_along and size <= _MOST_OF_ROW
            return small and self.columns >= _LEAST_LINE
        if size < _LEAST_FEW_ROWS:
            return False
        if self.is_along:
            return self.fits and self.inner >= factor * _LEAST_SUM
        return self.columns >= factor * _LEAST_LINE


# A product of one row of fewer multiplications is left to other loops.
_LEAST_ROW_PRODUCT = 1 << 9
# A product reads four contiguous rows of the matrix at once, and a sum one. From so many bytes in a
# row on that is faster, (1, 3072) and (768, 3072) of float32 take 0.62 ms and 0.90 ms from memory;
# below it is not: 16384 rows of 768 of float16 take 5.3 ms and 3.4 ms.
_LONG_LINE = 8192
# Each tile reads the full weight, and a larger one does not fit into a near cache: 512 channels of
# 7 by 7 with 3 by 3 windows take 24 ms in tiles and 8 ms as columns with BLAS; 128 channels of
# 16 by 16 take 38 ms and 57 ms.
_MAX_WEIGHT = 160_000
# With stride 2 a vector takes two loads: 64 to 128 channels take 6.1 ms in tiles and 4.2 ms as
# columns.
_MAX_WEIGHT_STRIDED = 16_000


def _with_guess(names: tuple[str, ...], guess: str) -> tuple[Way, ...]:
    return tuple([Way(name, None, (GENERATOR,)) for name in sorted(names, key=guess.__ne__)])


def window_product_ways(weight: int, step: int) -> tuple[Way, ...]:
    """Return the ways of a product with sliding windows: in register tiles, or as columns.

    Args:
        weight: Elements of the weight.
        step: Stride of the windows along the last axis.
    """
    most = _MAX_WEIGHT if step == 1 else _MAX_WEIGHT_STRIDED
    return _with_guess(("tiles", "columns"), "tiles" if weight <= most else "columns")


def row_product_ways(work: int, line: int | None) -> tuple[Way, ...]:
    """Return the ways of a product of one row: as a sum in loops, or as a product.

    Args:
        work: Number of multiplications.
        line: Bytes of a contiguous row of the matrix; None for a batch, or sizes that vary.
    """
    is_product = work < _LEAST_ROW_PRODUCT or (line is not None and line >= _LONG_LINE)
    return _with_guess(("sum", "product"), "product" if is_product else "sum")


def product_ways(
    sizes: tuple[int, int, int],
    count: int,
    has_blas: bool,
    has_half: bool,
    few: FewRowsShape | None,
    short: tuple[bool, bool],
) -> tuple[Way, ...]:
    """Return the ways of a product (m, k) @ (k, n): loops, or a function of the BLAS library.

    Args:
        sizes: m, n and k.
        count: Number of products.
        has_blas: Whether the library takes such matrices.
        has_half: Whether the matrix is of half precision, and can only be read so.
        few: Its shape if it has so few rows or columns that loops may read the matrix in place.
        short: Whether sums may be held in registers, and whether they read along vectors.
    """
    (m, n, k), names = sizes, list[str]()
    if has_half:
        names = ["rows"]
    elif has_blas and k > 1:
        names = ["vector", "library"] if min(m, n) == 1 else ["library"]
    if not names:
        names = ["loops"]
    elif not (has_half or isinstance(k, SymbolicDim)) and k <= LONGEST:
        names.insert(0 if m * n * k <= SMALL else len(names), "loops")
    if few is not None and not has_half:
        names.insert(0 if few.pays(count) else len(names), "rows")
    if short[0]:
        is_guess = short[1] and min(m, n) > 1 and m * n * k > SMALL
        names.insert(0 if is_guess else len(names), "short")
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
