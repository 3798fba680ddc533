"""Products of matrices in tiles that lie in registers, for shapes that BLAS is slow at.

A tile of the result is summed up in vectors: ``across``, where its rows lie along vectors, or by
``dots``, where the inner axis does, and each vector is added up in the end. Nothing is packed, so
what is wide or long both ways is left to BLAS; and the inner axis may be several, as that of a sum
over a batch, which BLAS could only see in copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from odyssey.compiler.codegen.routine import Routine
from odyssey.compiler.llvm.ir import LLVM, Word
from odyssey.compiler.llvm.types import SUFFIXES
from odyssey.compiler.passes.windows import LONGEST
from odyssey.spec import Shape

__all__ = ["Operand", "Registers", "Result", "Sizes", "Tiles", "registers"]

_Terms = list[tuple[Word, int]]

# Vectors of a row, and rows, of a tile; columns of one that sums along vectors.
_VECTORS, _ROWS, _SIDE = 4, 16, 5


class Registers(NamedTuple):
    """Of this processor: bits of a vector, and how many a tile may take beside one operand."""

    bits: int
    room: int


@cache
def registers() -> Registers:
    """What tiles are made for."""
    from llvmlite import binding as llvm

    known = llvm.get_host_cpu_features()
    if known.get("avx512f"):
        return Registers(512, 31)
    return Registers(256 if known.get("avx2") else 128, 15)


class Sizes(NamedTuple):
    """Lengths: of the rows, and of the axes that columns, and what is summed up, are."""

    rows: int
    columns: Shape
    inner: Shape


class Result(NamedTuple):
    """Where the product lies, and how far its rows, and the axes of its columns, lie apart."""

    at: str
    row: int
    columns: tuple[int, ...]


class Operand(NamedTuple):
    """What is multiplied: where its first element lies, and how far its elements lie apart.

    Attributes:
        at: A pointer.
        outer: Steps along its rows, or along the axes that its columns are.
        inner: Steps along the inner axes.
    """

    at: str
    outer: tuple[int, ...]
    inner: tuple[int, ...]


class _Part(NamedTuple):
    """Some rows or columns: how many, and where they begin in an operand and in the result."""

    length: int
    of: _Terms
    to: _Terms
    first: int


class _Vector(NamedTuple):
    """Where elements of a line begin in an operand and in the result, and how many they are."""

    of: int
    to: int
    size: int


class Tiles(Routine):
    """A routine that multiplies matrices."""

    type: str
    beta: float

    def across(self, a: Operand, b: Operand, c: Result, sizes: Sizes) -> None:
        """Write the product, where the last axis of columns lies along vectors."""
        lanes, room = self._lanes, registers().room
        most = _VECTORS if room > 16 else _VECTORS // 2
        *outer, last = zip(sizes.columns, b.outer, c.columns, strict=True)
        # Short lines are taken several at a time; one whose length varies is not short.
        line = outer.pop() if outer else (1, 0, 0)
        vectors = -(-last[0] // lanes)
        lines = 1 if vectors > most else most // vectors

        def some(block: _Part, part: _Part) -> None:
            vectors = [
                _Vector(
                    (block.first + k) * line[1] + (part.first + start) * last[1],
                    (block.first + k) * line[2] + (part.first + start) * last[2],
                    min(lanes, part.length - start),
                )
                for k in range(block.length)
                for start in range(0, part.length, lanes)
            ]
            rows = min(_ROWS, (room - len(vectors)) // len(vectors))
            self._in_parts(
                (sizes.rows, a.outer[0], c.row),
                _evenly(sizes.rows, rows),
                ([], []),
                lambda rows: self._strip(a, b, c, rows, (part, vectors), sizes.inner),
            )

        def each(of: _Terms, to: _Terms) -> None:
            self._in_parts(
                line,
                lines,
                (of, to),
                lambda block: self._in_parts(
                    last, most * lanes, (block.of, block.to), lambda part: some(block, part)
                ),
            )

        self._over(outer, each)

    def dots(self, a: Operand, b: Operand, c: Result, sizes: Sizes) -> None:
        """Write the product, where the last inner axis lies along vectors."""
        last = sizes.columns[-1]
        columns = _evenly(last, _SIDE)
        rows = _evenly(sizes.rows, (registers().room - 1) // (columns + 1))

        def some(part: _Part) -> None:
            self._in_parts(
                (sizes.rows, a.outer[0], c.row),
                rows,
                ([], []),
                lambda lines: self._block(a, b, c, lines, part, sizes.inner),
            )

        *outer, axis = zip(sizes.columns, b.outer, c.columns, strict=True)
        self._over(outer, lambda of, to: self._in_parts(axis, columns, (of, to), some))

    def _over(
        self, axes: list[tuple[int, int, int]], body: Callable[[_Terms, _Terms], None]
    ) -> None:
        """``body`` at all indices along axes, as ``_in_parts`` takes them."""

        def each(k: int, of: _Terms, to: _Terms) -> None:
            if k == len(axes):
                body(of, to)
                return
            length, step, step_c = axes[k]
            self.loop(length, lambda j: each(k + 1, [*of, (j, step)], [*to, (j, step_c)]))

        each(0, [], [])

    def _in_parts(
        self,
        axis: tuple[int, int, int],
        most: int,
        before: tuple[_Terms, _Terms],
        body: Callable[[_Part], None],
    ) -> None:
        """Parts of an axis, given by its length and its steps in an operand and in the result."""
        (length, step, step_c), (of, to) = axis, before
        full, rest = divmod(length, most)
        if full:
            self.loop(
                full,
                lambda k: body(_Part(most, [*of, (k, most * step)], [*to, (k, most * step_c)], 0)),
            )
        if rest:
            body(_Part(rest, of, to, full * most))

    def _strip(
        self,
        a: Operand,
        b: Operand,
        c: Result,
        rows: _Part,
        columns: tuple[_Part, list[_Vector]],
        inner: Shape,
    ) -> None:
        """Some rows of some columns: a vector for every few elements of each row."""
        code, type, (part, vectors) = self.code, self.type, columns
        sums = [[self._place() for _ in vectors] for _ in range(rows.length)]

        def step(ks: list[Word]) -> None:
            places = [*part.of, *zip(ks, b.inner, strict=True)]
            found = [self._load(b.at, places, v.of, v.size, b.outer[-1]) for v in vectors]
            places = [*rows.of, *zip(ks, a.inner, strict=True)]
            for r in range(rows.length):
                at = self.address(type, a.at, places, (rows.first + r) * a.outer[0])
                factor = self._splat(code.load(type, at))
                for place, vector in zip(sums[r], found, strict=True):
                    self._add_product(place, factor, vector)

        self._sum_up(inner, 1, sums, step)
        for r in range(rows.length):
            for place, v in zip(sums[r], vectors, strict=True):
                start = (rows.first + r) * c.row + v.to
                at = self.address(type, c.at, [*rows.to, *part.to], start)
                self._store(self._value(place), at, v.size, c.columns[-1])

    def _block(
        self, a: Operand, b: Operand, c: Result, rows: _Part, columns: _Part, inner: Shape
    ) -> None:
        """Some rows of some columns: a vector of parts of the sum for each element."""
        type = self.type
        sums = [[self._place() for _ in range(columns.length)] for _ in range(rows.length)]

        def step(ks: list[Word], part: _Part) -> None:
            size, start = part.length, part.first
            places = [*rows.of, *zip(ks, a.inner, strict=False), *part.of]
            left = [
                self._load(a.at, places, (rows.first + r) * a.outer[0] + start, size)
                for r in range(rows.length)
            ]
            apart = b.inner[-1]
            places = [*columns.of, *zip(ks, b.inner, strict=False), *part.to]
            for q in range(columns.length):
                at = (columns.first + q) * b.outer[-1] + start * apart
                vector = self._load(b.at, places, at, size, apart)
                for r in range(rows.length):
                    self._add_product(sums[r][q], left[r], vector)

        def line(ks: list[Word]) -> None:
            axis = inner[-1], 1, b.inner[-1]
            self._in_parts(axis, self._lanes, ([], []), lambda part: step(ks, part))

        self._sum_up(inner[:-1], -(-inner[-1] // self._lanes), sums, line)
        for r in range(rows.length):
            for q in range(columns.length):
                start = (rows.first + r) * c.row + (columns.first + q) * c.columns[-1]
                at = self.address(type, c.at, [*rows.to, *columns.to], start)
                self._write(self._added_up(self._value(sums[r][q])), at)

    def _sum_up(
        self,
        lengths: Shape,
        each: int,
        sums: list[list[str]],
        body: Callable[[list[Word]], None],
    ) -> None:
        """``body`` at all indices, which adds to sums; those of many are sums of sums of few."""
        places = [place for row in sums for place in row]
        inside = len(lengths)
        while inside and each * math.prod(lengths[inside - 1 :]) <= LONGEST:
            inside -= 1
        totals = [self._place() for _ in places] if inside else places
        for total in totals:
            self._keep("zeroinitializer", total)

        def some(ks: list[Word]) -> None:
            if not inside:
                self._nest(lengths, body)
                return
            for place in places:
                self._keep("zeroinitializer", place)
            self._nest(lengths[inside:], lambda more: body([*ks, *more]))
            for total, place in zip(totals, places, strict=True):
                v = self._vector
                text = f"fadd {v} {self._value(total)}, {self._value(place)}"
                self._keep(self.code.op("ptr", text).text, total)

        self._nest(lengths[:inside], some)
        for total, place in zip(totals, places, strict=True):
            if total != place:
                self._keep(self._value(total), place)

    def _nest(self, lengths: Shape, body: Callable[[list[Word]], None]) -> None:
        def each(axis: int, ks: list[Word]) -> None:
            if axis == len(lengths):
                body(ks)
            else:
                self.loop(lengths[axis], lambda k: each(axis + 1, [*ks, k]))

        each(0, [])

    # -------------------------------------------------------------- vectors

    @property
    def _lanes(self) -> int:
        return registers().bits // (8 * int(self.type[1]))

    @property
    def _vector(self) -> str:
        return f"<{self._lanes} x {LLVM[self.type]}>"

    @property
    def _suffix(self) -> str:
        return f"v{self._lanes}{SUFFIXES[self.type]}"

    def _place(self) -> str:
        """Room for a vector on the stack, from where LLVM takes it into a register."""
        name = f"%m{len(self._entry)}"
        self._entry.append(f"  {name} = alloca {self._vector}")
        return name

    def _keep(self, value: str, place: str) -> None:
        self.code.line(f"store {self._vector} {value}, ptr {place}")

    def _value(self, place: str) -> str:
        return self.code.op("ptr", f"load {self._vector}, ptr {place}").text

    def _add_product(self, place: str, x: str, y: str) -> None:
        v = self._vector
        old = self._value(place)
        given = f"{v} {x}, {v} {y}, {v} {old}"
        made = self.code.op("ptr", f"call {v} @llvm.fma.{self._suffix}({given})").text
        self._keep(made, place)

    def _splat(self, x: Word) -> str:
        v, kind, code = self._vector, LLVM[self.type], self.code
        one = code.op("ptr", f"insertelement {v} poison, {kind} {x.text}, i64 0").text
        where = f"<{self._lanes} x i32> zeroinitializer"
        return code.op("ptr", f"shufflevector {v} {one}, {v} poison, {where}").text

    def _mask(self, size: int) -> str:
        bits = f"i{self._lanes} {(1 << size) - 1}"
        return self.code.op("ptr", f"bitcast {bits} to <{self._lanes} x i1>").text

    def _load(self, pointer: str, terms: _Terms, start: int, size: int, step: int = 1) -> str:
        """Some elements that lie so far apart, 1 or 2, and zeros behind them."""
        at = self.address(self.type, pointer, terms, start)
        if step == 1:
            return self._at(at, size)
        lanes, code = self._lanes, self.code
        first = self._at(at, min(2 * size - 1, lanes))
        second = "zeroinitializer"  # what is not read is 0
        if 2 * size - 1 > lanes:
            second = self._at(self._moved(self.type, at, str(lanes)), 2 * size - 1 - lanes)
        where = ", ".join(f"i32 {2 * k}" for k in range(lanes))
        text = f"shufflevector {self._vector} {first}, {self._vector} {second}"
        return code.op("ptr", f"{text}, <{lanes} x i32> <{where}>").text

    def _at(self, at: str, size: int) -> str:
        """Some elements that follow one another, and zeros behind them."""
        v, code, align = self._vector, self.code, int(self.type[1])
        if size == self._lanes:
            return code.op("ptr", f"load {v}, ptr {at}, align {align}").text
        mask = f"<{self._lanes} x i1> {self._mask(size)}"
        name = f"llvm.masked.load.{self._suffix}.p0"
        given = f"ptr {at}, i32 {align}, {mask}, {v} zeroinitializer"
        return code.op("ptr", f"call {v} @{name}({given})").text

    def _store(self, value: str, at: str, size: int, step: int) -> None:
        """Write some elements, which lie so far apart."""
        v, code, align = self._vector, self.code, int(self.type[1])
        if step != 1:
            for k in range(size):
                text = f"extractelement {v} {value}, i64 {k}"
                self._write(code.op(self.type, text), self._moved(self.type, at, str(k * step)))
            return
        if self.beta:
            old, factor = self._at(at, size), self._splat(code.const(self.type, self.beta))
            old = code.op("ptr", f"fmul {v} {old}, {factor}").text
            value = code.op("ptr", f"fadd {v} {old}, {value}").text
        if size == self._lanes:
            code.line(f"store {v} {value}, ptr {at}, align {align}")
            return
        mask = f"<{self._lanes} x i1> {self._mask(size)}"
        name = f"llvm.masked.store.{self._suffix}.p0"
        code.line(f"call void @{name}({v} {value}, ptr {at}, i32 {align}, {mask})")

    def _write(self, total: Word, at: str) -> None:
        """Write one element."""
        if self.beta:
            total = self.code.load(self.type, at) * self.beta + total
        self.code.store(total, at)

    def _added_up(self, value: str) -> Word:
        kind, v = LLVM[self.type], self._vector
        name = f"llvm.vector.reduce.fadd.{self._suffix}"
        zero = self.code.const(self.type, 0).text
        return self.code.op(self.type, f"call reassoc {kind} @{name}({kind} {zero}, {v} {value})")


def _evenly(length: int, most: int) -> int:
    """The size of parts that are at most so large and about equal."""
    parts = -(-length // most)
    return -(-length // parts)
