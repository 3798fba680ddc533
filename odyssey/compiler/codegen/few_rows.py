"""Products of few rows with a matrix that is read once, as it lies, also of half precision.

A library packs a matrix before it multiplies, which takes longer than the product of few rows
itself. Here each element of the matrix is loaded once, cast to the type of the sums, and multiplied
with all rows. ``emit_dots`` is for a matrix whose inner axis is contiguous: a tile of columns has
one sum for each row and column. ``emit_stream`` is for one whose columns are contiguous: some rows
of the matrix at a time are added to sums of all columns, which stay in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.ir.nodes import ITEM_SIZES
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import LLVM

__all__ = ["FewRows", "Strided", "fits_stack"]

# Rows of a tile, and columns by rows: 12 sums, 3 vectors of the matrix and one of a row fill the 16
# vector registers of AVX2.
_TILE_ROWS = 4
_TILE_COLUMNS = {1: 4, 2: 4, 3: 4, 4: 3}
# Elements of a partial sum: of 8 lanes each adds 256.
_PARTIAL = 2048
# Rows of the matrix that are added at a time, by rows of a tile.
_DEPTHS = {1: 8, 2: 4, 3: 4, 4: 4}
# Bytes on the stack of sums, or of a copy of the rows, which stay in the nearest cache.
_STACK_BYTES = 1 << 15


class Strided(NamedTuple):
    """An operand or result in memory: type, pointer to its first element, strides of both axes."""

    type: str
    at: str
    rows: int
    columns: int


class FewRows:
    """Generator of products of few rows.

    Args:
        function: The kernel function to generate code into.
        a: Few rows (m, k).
        b: The matrix (k, n).
        c: The result (m, n).
        sizes: m, n and k.
        beta: Factor of what the result holds before, to which the product is added.
    """

    def __init__(
        self,
        function: KernelFunction,
        a: Strided,
        b: Strided,
        c: Strided,
        sizes: tuple[int, int, int],
        beta: float,
    ) -> None:
        self._function, self._a, self._b, self._c = function, a, b, c
        (self._m, self._n, self._k), self._beta = sizes, beta

    # -------------------------------------------------------------- along the inner axis

    def emit_dots(self, first: LLVMValue | None, count: int | LLVMValue) -> None:
        """Generate the columns from ``first`` on, for a matrix whose inner axis is contiguous."""
        self._pack_rows()
        groups = _groups(self._m, _TILE_ROWS)
        width = _TILE_COLUMNS[max(size for _, size in groups)]

        def emit_columns(j: LLVMValue, columns: int) -> None:
            for row, rows in groups:
                self._emit_tile(row, rows, j, columns)

        self._emit_slices(first, count, width, emit_columns)

    def _pack_rows(self) -> None:
        """Copy the few rows to the stack if their inner axis is not contiguous, to read vectors."""
        a, shape = self._a, (self._m, self._k)
        if a.columns == 1 or not fits_stack((a.rows, a.columns), shape):
            return
        function, code = self._function, self._function.code
        packed = function.alloca(a.type, self._m * self._k)

        def pack_element(r: LLVMValue, x: LLVMValue) -> None:
            source = self._pointer(a, [(r, a.rows), (x, a.columns)], 0, 0)
            target = function.element_pointer(a.type, packed, [(r, self._k), (x, 1)], 0)
            code.store(code.load(a.type, source), target)

        function.emit_loop(
            self._m, lambda r: function.emit_loop(self._k, lambda x: pack_element(r, x))
        )
        self._a = Strided(a.type, packed, self._k, 1)

    def _emit_tile(self, row: int, rows: int, j: LLVMValue, columns: int) -> None:
        code, kind = self._function.code, self._c.type
        pairs = [(r, q) for r in range(rows) for q in range(columns)]
        sums = {pair: self._function.alloca(kind) for pair in pairs}
        zero = code.const(kind, 0)
        totals = sums
        if self._k > _PARTIAL:
            totals = {pair: self._function.alloca(kind) for pair in pairs}
            for total in totals.values():
                self._function.store_local(zero, total)
        left = [self._pointer(self._a, [], row + r, 0) for r in range(rows)]
        right = [self._pointer(self._b, [(j, self._b.columns)], 0, q) for q in range(columns)]

        def emit_step(x: LLVMValue) -> None:
            matrix = [self._load_wide(self._b.type, p, [(x, self._b.rows)]) for p in right]
            for r in range(rows):
                factor = self._load_wide(self._a.type, left[r], [(x, self._a.columns)])
                for q in range(columns):
                    self._add_product(factor, matrix[q], sums[r, q])

        def emit_partial(start: LLVMValue | None, length: int) -> None:
            for accumulator in sums.values():
                self._function.store_local(zero, accumulator)
            self._function.emit_loop(length, lambda x: emit_step(x if start is None else start + x))
            if totals is not sums:
                for pair, total in totals.items():
                    old = self._function.load_local(kind, total)
                    new = self._function.load_local(kind, sums[pair])
                    self._function.store_local(old + new, total)

        full, rest = divmod(self._k, _PARTIAL)
        if totals is sums:
            emit_partial(None, self._k)
        else:
            self._function.emit_loop(full, lambda i: emit_partial(i * _PARTIAL, _PARTIAL))
            if rest:
                emit_partial(code.const("i8", full * _PARTIAL), rest)
        for (r, q), total in totals.items():
            at = self._pointer(self._c, [(j, self._c.columns)], row + r, q)
            self._store(self._function.load_local(kind, total), at)

    # -------------------------------------------------------------- along the columns

    def emit_stream(self, first: LLVMValue | None, count: int | LLVMValue) -> None:
        """Generate the columns from ``first`` on, for a matrix whose columns are contiguous."""
        length = _STACK_BYTES // (ITEM_SIZES[self._c.type] * self._m) // 64 * 64
        self._sums = [self._function.alloca(self._c.type, length) for _ in range(self._m)]
        if isinstance(count, int):
            full, rest = divmod(count, length)
            begin = first if first is not None else self._function.code.const("i8", 0)
            self._function.emit_loop(
                full, lambda i: self._emit_streamed(begin + i * length, length)
            ) if full else None
            if rest:
                self._emit_streamed(begin + full * length, rest)
            return
        code = self._function.code
        assert first is not None
        above = code.op("i8", f"add nuw nsw i64 {count.text}, {length - 1}")
        slices = code.op("i8", f"udiv i64 {above.text}, {length}")

        def emit_slice(i: LLVMValue) -> None:
            done = i * length
            left = code.op("i8", f"sub nsw i64 {count.text}, {done.text}")
            own = code.op("i8", f"call i64 @llvm.smin.i64(i64 {left.text}, i64 {length})")
            self._emit_streamed(first + done, own)

        self._function.emit_loop(slices, emit_slice)

    def _emit_streamed(self, j: LLVMValue, count: int | LLVMValue) -> None:
        """Generate the sums of some columns."""
        function, code, kind = self._function, self._function.code, self._c.type
        zero = code.const(kind, 0)

        def clear(i: LLVMValue) -> None:
            for sums in self._sums:
                code.store(zero, function.element_pointer(kind, sums, [(i, 1)], 0))

        function.emit_loop(count, clear)
        groups = _groups(self._m, _TILE_ROWS)
        depth = _DEPTHS[max(size for _, size in groups)]
        start = self._pointer(self._b, [(j, self._b.columns)], 0, 0)

        def emit_depths(x: LLVMValue, depths: int) -> None:
            lines = [
                function.element_pointer(self._b.type, start, [(x, self._b.rows)], d * self._b.rows)
                for d in range(depths)
            ]
            for row, rows in groups:
                factors = [
                    [
                        self._load_wide(
                            self._a.type,
                            self._pointer(self._a, [], row + r, d),
                            [(x, self._a.columns)],
                        )
                        for d in range(depths)
                    ]
                    for r in range(rows)
                ]

                def emit_column(
                    i: LLVMValue, row: int = row, factors: list[list[LLVMValue]] = factors
                ) -> None:
                    matrix = [self._load_wide(self._b.type, p, [(i, 1)]) for p in lines]
                    values = []
                    for r, own in enumerate(factors):
                        at = function.element_pointer(kind, self._sums[row + r], [(i, 1)], 0)
                        total = own[0] * matrix[0]
                        for factor, element in zip(own[1:], matrix[1:], strict=True):
                            total = code.intrinsic("fma", factor, element, total)
                        values.append((code.load(kind, at) + total, at))
                    for total, at in values:
                        code.store(total, at)

                function.emit_loop(count, emit_column)

        self._emit_slices(None, self._k, depth, emit_depths)

        def finish(i: LLVMValue) -> None:
            for r, sums in enumerate(self._sums):
                total = code.load(kind, function.element_pointer(kind, sums, [(i, 1)], 0))
                terms = [(j, self._c.columns), (i, self._c.columns)]
                self._store(total, self._pointer(self._c, terms, r, 0))

        function.emit_loop(count, finish)

    # -------------------------------------------------------------- elements

    def _emit_slices(
        self,
        first: LLVMValue | None,
        count: int | LLVMValue,
        size: int,
        body: Callable[[LLVMValue, int], None],
    ) -> None:
        """Generate indices in slices of a size, and those that are left over one by one."""
        function, code = self._function, self._function.code

        def shifted(i: LLVMValue) -> LLVMValue:
            return i if first is None else first + i

        if isinstance(count, int):
            full, rest = divmod(count, size)
            if full:
                function.emit_loop(full, lambda i: body(shifted(i * size), size))
            if rest:
                body(shifted(code.const("i8", full * size)), rest)
            return
        slices = code.op("i8", f"udiv i64 {count.text}, {size}")
        function.emit_loop(slices, lambda i: body(shifted(i * size), size))
        done = slices * size
        left = code.op("i8", f"sub nsw i64 {count.text}, {done.text}")
        function.emit_loop(left, lambda i: body(shifted(done + i), 1))

    def _pointer(
        self, array: Strided, terms: list[tuple[LLVMValue, int]], row: int, column: int
    ) -> str:
        start = row * array.rows + column * array.columns
        return self._function.element_pointer(array.type, array.at, terms, start)

    def _load_wide(self, type: str, at: str, terms: list[tuple[LLVMValue, int]]) -> LLVMValue:
        code = self._function.code
        value = code.load(type, self._function.element_pointer(type, at, terms, 0))
        return code.cast(value, self._c.type)

    def _add_product(self, x: LLVMValue, y: LLVMValue, accumulator: str) -> None:
        code, kind = self._function.code, self._c.type
        old = self._function.load_local(kind, accumulator)
        real = LLVM[kind]
        product = code.op(kind, f"fmul contract {real} {x.text}, {y.text}")
        total = code.op(kind, f"fadd reassoc contract {real} {old.text}, {product.text}")
        self._function.store_local(total, accumulator)

    def _store(self, total: LLVMValue, at: str) -> None:
        """Store an element, added to beta times what is there."""
        code = self._function.code
        if self._beta:
            total = code.load(self._c.type, at) * self._beta + total
        code.store(total, at)


def fits_stack(strides: tuple[int, ...], shape: tuple[int, int]) -> bool:
    """Return whether rows are contiguous, or are few enough to be copied to the stack."""
    return strides[1] == 1 or shape[0] * shape[1] * 8 <= _STACK_BYTES


def _groups(length: int, most: int) -> list[tuple[int, int]]:
    """Return first indices and lengths of about equal groups."""
    count = -(-length // most)
    size = -(-length // count)
    return [(start, min(size, length - start)) for start in range(0, length, size)]
