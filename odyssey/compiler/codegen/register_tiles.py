"""Register tiling: matrix products in tiles of vector registers, for shapes at which BLAS is slow.

A tile of the result accumulates in vectors: ``emit_across`` where rows of the result are
contiguous, ``emit_dots`` where the inner axis is, whose vectors are reduced at the end. Nothing is
packed, so products that are wide or long both ways are left to BLAS. The inner axis may be several
axes, as of a sum over a batch, which BLAS could read only in copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.types import LLVM, SUFFIXES
from odyssey.compiler.passes.windows import MAX_SUM_LENGTH
from odyssey.spec import Shape

__all__ = ["Operand", "Registers", "Result", "Sizes", "RegisterTiles", "registers"]

_Terms = list[tuple[LLVMValue, int]]

# Vectors of a row and rows of a tile; columns of a tile that sums along vectors.
_TILE_VECTORS, _TILE_ROWS, _DOT_COLUMNS = 4, 16, 5


class Registers(NamedTuple):
    """Vector registers of this processor: bits of one, and how many a tile may take but for one."""

    bits: int
    room: int


@cache
def registers() -> Registers:
    """Return the vector registers of this processor."""
    from llvmlite import binding as llvm

    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return Registers(512, 31)
    return Registers(256 if features.get("avx2") else 128, 15)


class Sizes(NamedTuple):
    """Lengths of a product: rows, axes of the columns, inner axes."""

    rows: int
    columns: Shape
    inner: Shape


class Result(NamedTuple):
    """Pointer to the result, and strides of its rows and of the axes of its columns."""

    at: str
    row: int
    columns: tuple[int, ...]


class Operand(NamedTuple):
    """An operand of a product.

    Attributes:
        at: Pointer to its first element.
        outer: Strides of its rows, or of the axes of its columns.
        inner: Strides of the inner axes.
    """

    at: str
    outer: tuple[int, ...]
    inner: tuple[int, ...]


class _Slice(NamedTuple):
    """A slice of rows or columns: its length, and its start in an operand and in the result."""

    length: int
    source: _Terms
    target: _Terms
    first: int


class _Vector(NamedTuple):
    """A vector of a row: its offset in an operand and in the result, and its length."""

    source: int
    target: int
    length: int


class RegisterTiles:
    """Generator of register-tiled matrix products.

    Args:
        function: The kernel function to generate code into.
        type: Type of the elements, ``f4`` or ``f8``.
        beta: Factor of what the result holds before, to which the product is added.
    """

    def __init__(self, function: KernelFunction, type: str, beta: float) -> None:
        self._function, self._type, self._beta = function, type, beta

    @property
    def _code(self) -> FunctionBuilder:
        return self._function.code

    def emit_across(self, a: Operand, b: Operand, c: Result, sizes: Sizes) -> None:
        """Generate a product whose last axis of columns is along vectors."""
        lanes, room = self._lanes, registers().room
        most = _TILE_VECTORS if room > 16 else _TILE_VECTORS // 2
        *outer, last = zip(sizes.columns, b.outer, c.columns, strict=True)
        # Several short lines share a tile; a line of symbolic length is not short.
        line = outer.pop() if outer else (1, 0, 0)
        vectors = -(-last[0] // lanes)
        lines = 1 if vectors > most else most // vectors

        def emit_columns(block: _Slice, columns: _Slice) -> None:
            vectors = [
                _Vector(
                    (block.first + k) * line[1] + (columns.first + start) * last[1],
                    (block.first + k) * line[2] + (columns.first + start) * last[2],
                    min(lanes, columns.length - start),
                )
                for k in range(block.length)
                for start in range(0, columns.length, lanes)
            ]
            rows = min(_TILE_ROWS, (room - len(vectors)) // len(vectors))
            self._emit_slices(
                (sizes.rows, a.outer[0], c.row),
                _even_size(sizes.rows, rows),
                ([], []),
                lambda rows: self._emit_strip(a, b, c, rows, (columns, vectors), sizes.inner),
            )

        def emit_lines(source: _Terms, target: _Terms) -> None:
            self._emit_slices(
                line,
                lines,
                (source, target),
                lambda block: self._emit_slices(
                    last,
                    most * lanes,
                    (block.source, block.target),
                    lambda columns: emit_columns(block, columns),
                ),
            )

        self._emit_outer_loops(outer, emit_lines)

    def emit_dots(self, a: Operand, b: Operand, c: Result, sizes: Sizes) -> None:
        """Generate a product whose last inner axis is along vectors."""
        last = sizes.columns[-1]
        columns = _even_size(last, _DOT_COLUMNS)
        rows = _even_size(sizes.rows, (registers().room - 1) // (columns + 1))

        def emit_columns(tile_columns: _Slice) -> None:
            self._emit_slices(
                (sizes.rows, a.outer[0], c.row),
                rows,
                ([], []),
                lambda lines: self._emit_dot_tile(a, b, c, lines, tile_columns, sizes.inner),
            )

        *outer, axis = zip(sizes.columns, b.outer, c.columns, strict=True)
        self._emit_outer_loops(
            outer,
            lambda source, target: self._emit_slices(axis, columns, (source, target), emit_columns),
        )

    def _emit_outer_loops(
        self, axes: list[tuple[int, int, int]], body: Callable[[_Terms, _Terms], None]
    ) -> None:
        """Generate loops over axes, given by length and strides in an operand and the result."""

        def emit_body(indices: list[LLVMValue]) -> None:
            pairs = list(zip(indices, axes, strict=True))
            body([(j, step) for j, (_, step, _) in pairs], [(j, step) for j, (_, _, step) in pairs])

        self._function.emit_loops([length for length, _, _ in axes], emit_body)

    def _emit_slices(
        self,
        axis: tuple[int, int, int],
        most: int,
        before: tuple[_Terms, _Terms],
        body: Callable[[_Slice], None],
    ) -> None:
        """Generate an axis in slices; it is given by length and strides in operand and result."""
        (length, step, step_c), (source, target) = axis, before
        full, rest = divmod(length, most)
        if full:
            self._function.emit_loop(
                full,
                lambda k: body(
                    _Slice(most, [*source, (k, most * step)], [*target, (k, most * step_c)], 0)
                ),
            )
        if rest:
            body(_Slice(rest, source, target, full * most))

    def _emit_strip(
        self,
        a: Operand,
        b: Operand,
        c: Result,
        rows: _Slice,
        tile: tuple[_Slice, list[_Vector]],
        inner: Shape,
    ) -> None:
        """Generate a tile with several vectors of each row."""
        code, type, (columns, vectors) = self._code, self._type, tile
        sums = [[self._vector_alloca() for _ in vectors] for _ in range(rows.length)]

        def step(ks: list[LLVMValue]) -> None:
            terms = [*columns.source, *zip(ks, b.inner, strict=True)]
            right = [
                self._load_strided(b.at, terms, v.source, v.length, b.outer[-1]) for v in vectors
            ]
            terms = [*rows.source, *zip(ks, a.inner, strict=True)]
            for r in range(rows.length):
                at = self._function.element_pointer(
                    type, a.at, terms, (rows.first + r) * a.outer[0]
                )
                factor = self._splat(code.load(type, at))
                for accumulator, vector in zip(sums[r], right, strict=True):
                    self._emit_fma(accumulator, factor, vector)

        self._emit_inner_loops(inner, 1, sums, step)
        for r in range(rows.length):
            for accumulator, v in zip(sums[r], vectors, strict=True):
                start = (rows.first + r) * c.row + v.target
                at = self._function.element_pointer(
                    type, c.at, [*rows.target, *columns.target], start
                )
                self._store_vector(self._load_accumulator(accumulator), at, v.length, c.columns[-1])

    def _emit_dot_tile(
        self, a: Operand, b: Operand, c: Result, rows: _Slice, columns: _Slice, inner: Shape
    ) -> None:
        """Generate a tile with a vector of partial sums for each element."""
        type = self._type
        sums = [[self._vector_alloca() for _ in range(columns.length)] for _ in range(rows.length)]

        def step(ks: list[LLVMValue], chunk: _Slice) -> None:
            size, start = chunk.length, chunk.first
            terms = [*rows.source, *zip(ks, a.inner, strict=False), *chunk.source]
            left = [
                self._load_strided(a.at, terms, (rows.first + r) * a.outer[0] + start, size)
                for r in range(rows.length)
            ]
            stride = b.inner[-1]
            terms = [*columns.source, *zip(ks, b.inner, strict=False), *chunk.target]
            for q in range(columns.length):
                at = (columns.first + q) * b.outer[-1] + start * stride
                vector = self._load_strided(b.at, terms, at, size, stride)
                for r in range(rows.length):
                    self._emit_fma(sums[r][q], left[r], vector)

        def emit_line(ks: list[LLVMValue]) -> None:
            axis = inner[-1], 1, b.inner[-1]
            self._emit_slices(axis, self._lanes, ([], []), lambda chunk: step(ks, chunk))

        self._emit_inner_loops(inner[:-1], -(-inner[-1] // self._lanes), sums, emit_line)
        for r in range(rows.length):
            for q in range(columns.length):
                start = (rows.first + r) * c.row + (columns.first + q) * c.columns[-1]
                at = self._function.element_pointer(
                    type, c.at, [*rows.target, *columns.target], start
                )
                total = self._reduce_vector(self._load_accumulator(sums[r][q]))
                self._store_element(total, at)

    def _emit_inner_loops(
        self,
        lengths: Shape,
        count: int,
        sums: list[list[str]],
        body: Callable[[list[LLVMValue]], None],
    ) -> None:
        """Generate the inner loops; long sums are sums of partial sums.

        Args:
            lengths: Lengths of the loops.
            count: Vectors that ``body`` adds to each sum at one index.
            sums: Accumulators.
            body: Generates the code at an index, which adds to the accumulators.
        """
        partial_sums = [accumulator for row in sums for accumulator in row]
        inside = len(lengths)
        while inside and count * math.prod(lengths[inside - 1 :]) <= MAX_SUM_LENGTH:
            inside -= 1
        totals = [self._vector_alloca() for _ in partial_sums] if inside else partial_sums
        for total in totals:
            self._store_accumulator("zeroinitializer", total)

        def emit_partial_sums(ks: list[LLVMValue]) -> None:
            if not inside:
                self._function.emit_loops(lengths, body)
                return
            for accumulator in partial_sums:
                self._store_accumulator("zeroinitializer", accumulator)
            self._function.emit_loops(lengths[inside:], lambda more: body([*ks, *more]))
            for total, accumulator in zip(totals, partial_sums, strict=True):
                old, new = self._load_accumulator(total), self._load_accumulator(accumulator)
                text = f"fadd {self._vector} {old}, {new}"
                self._store_accumulator(self._code.op("ptr", text).text, total)

        self._function.emit_loops(lengths[:inside], emit_partial_sums)
        for total, accumulator in zip(totals, partial_sums, strict=True):
            if total != accumulator:
                self._store_accumulator(self._load_accumulator(total), accumulator)

    # -------------------------------------------------------------- vectors

    @property
    def _lanes(self) -> int:
        return registers().bits // (8 * int(self._type[1]))

    @property
    def _vector(self) -> str:
        return f"<{self._lanes} x {LLVM[self._type]}>"

    @property
    def _suffix(self) -> str:
        return f"v{self._lanes}{SUFFIXES[self._type]}"

    def _vector_alloca(self) -> str:
        """Allocate a vector on the stack, which LLVM promotes to a register."""
        return self._function.alloca_of(self._vector)

    def _store_accumulator(self, value: str, accumulator: str) -> None:
        self._code.line(f"store {self._vector} {value}, ptr {accumulator}")

    def _load_accumulator(self, accumulator: str) -> str:
        return self._code.op("ptr", f"load {self._vector}, ptr {accumulator}").text

    def _emit_fma(self, accumulator: str, x: str, y: str) -> None:
        v = self._vector
        old = self._load_accumulator(accumulator)
        operands = f"{v} {x}, {v} {y}, {v} {old}"
        result = self._code.op("ptr", f"call {v} @llvm.fma.{self._suffix}({operands})").text
        self._store_accumulator(result, accumulator)

    def _splat(self, x: LLVMValue) -> str:
        v, kind, code = self._vector, LLVM[self._type], self._code
        one = code.op("ptr", f"insertelement {v} poison, {kind} {x.text}, i64 0").text
        lanes = f"<{self._lanes} x i32> zeroinitializer"
        return code.op("ptr", f"shufflevector {v} {one}, {v} poison, {lanes}").text

    def _mask(self, length: int) -> str:
        bits = f"i{self._lanes} {(1 << length) - 1}"
        return self._code.op("ptr", f"bitcast {bits} to <{self._lanes} x i1>").text

    def _load_strided(
        self, pointer: str, terms: _Terms, start: int, length: int, stride: int = 1
    ) -> str:
        """Load a vector of elements with stride 1 or 2; lanes beyond ``length`` are 0."""
        at = self._function.element_pointer(self._type, pointer, terms, start)
        if stride == 1:
            return self._load_vector(at, length)
        lanes, code = self._lanes, self._code
        first = self._load_vector(at, min(2 * length - 1, lanes))
        second = "zeroinitializer"
        if 2 * length - 1 > lanes:
            behind = self._function.offset_pointer(self._type, at, str(lanes))
            second = self._load_vector(behind, 2 * length - 1 - lanes)
        even = ", ".join(f"i32 {2 * k}" for k in range(lanes))
        text = f"shufflevector {self._vector} {first}, {self._vector} {second}"
        return code.op("ptr", f"{text}, <{lanes} x i32> <{even}>").text

    def _load_vector(self, at: str, length: int) -> str:
        """Load contiguous elements; lanes beyond ``length`` are 0."""
        v, code, align = self._vector, self._code, int(self._type[1])
        if length == self._lanes:
            return code.op("ptr", f"load {v}, ptr {at}, align {align}").text
        mask = f"<{self._lanes} x i1> {self._mask(length)}"
        name = f"llvm.masked.load.{self._suffix}.p0"
        arguments = f"ptr {at}, i32 {align}, {mask}, {v} zeroinitializer"
        return code.op("ptr", f"call {v} @{name}({arguments})").text

    def _store_vector(self, value: str, at: str, length: int, stride: int) -> None:
        """Store elements of a vector with a stride, added to beta times what is there."""
        v, code, align = self._vector, self._code, int(self._type[1])
        if stride != 1:
            for k in range(length):
                element = code.op(self._type, f"extractelement {v} {value}, i64 {k}")
                target = self._function.offset_pointer(self._type, at, str(k * stride))
                self._store_element(element, target)
            return
        if self._beta:
            old = self._load_vector(at, length)
            factor = self._splat(code.const(self._type, self._beta))
            old = code.op("ptr", f"fmul {v} {old}, {factor}").text
            value = code.op("ptr", f"fadd {v} {old}, {value}").text
        if length == self._lanes:
            code.line(f"store {v} {value}, ptr {at}, align {align}")
            return
        mask = f"<{self._lanes} x i1> {self._mask(length)}"
        name = f"llvm.masked.store.{self._suffix}.p0"
        code.line(f"call void @{name}({v} {value}, ptr {at}, i32 {align}, {mask})")

    def _store_element(self, total: LLVMValue, at: str) -> None:
        """Store one element, added to beta times what is there."""
        if self._beta:
            total = self._code.load(self._type, at) * self._beta + total
        self._code.store(total, at)

    def _reduce_vector(self, value: str) -> LLVMValue:
        kind, v = LLVM[self._type], self._vector
        name = f"llvm.vector.reduce.fadd.{self._suffix}"
        zero = self._code.const(self._type, 0).text
        text = f"call reassoc {kind} @{name}({kind} {zero}, {v} {value})"
        return self._code.op(self._type, text)


def _even_size(length: int, most: int) -> int:
    """Return the size of slices that are at most so long and about equal."""
    slices = -(-length // most)
    return -(-length // slices)
