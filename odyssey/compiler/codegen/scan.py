"""Scans as LLVM IR: each element with those before it along an axis, in their order.

Along the last axis a line waits for each of its elements until the one before is there, so several
lines are taken at a time; along other axes, elements that lie beside each other are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odyssey.compiler.codegen.routine import Routine
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.ir import LLVM, Word
from odyssey.compiler.llvm.scalar_programs import evaluate
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import Cut, cut, time_of

__all__ = ["Scan"]

# Lines at a time: a sum takes four cycles, of which each may begin one. Of more, those of a length
# that is a power of 2 lie in one place of a cache, and take up to ten times as long; but a function
# in each step, such as exp, has them wait longer still.
_LINES, _SLOW_LINES = 4, 8


class _Place(NamedTuple):
    """An index along an axis: what is known when the code runs, and what more is known now."""

    axis: int
    at: Word | None
    more: int = 0


class _Array(NamedTuple):
    pointer: str
    view: View
    type: str


class Scan(Routine):
    """The routine of a scan."""

    def __init__(self, plan: Plan, kernel: Kernel, alone: bool = False) -> None:
        super().__init__(plan, kernel, alone)
        self.node = node = kernel.nodes[0]
        self.axis = node.detail[1]
        slow = any(name.startswith("math.") for name, _ in node.work.steps)
        self._count = _SLOW_LINES if slow else _LINES
        self.inputs = [self._array(i) for i in node.inputs]
        self.out = self._array(node)
        long = [a for a, n in enumerate(node.shape) if n > 1 and a != self.axis]
        self._heads = [a for a in long if a < self.axis]
        self._tails = [a for a in long if a > self.axis]
        # Axes along which only a part is done here: its first index, and its length.
        self._parts: dict[int, tuple[Word, int | Word]] = {}
        found = None if alone else self._cut()
        if found is None:
            self._all()
            return
        axis = [*self._heads, *self._tails][found.depth]

        def block(k: Word, first: Word, count: int | Word) -> None:
            self._parts[axis] = first, count
            self._all()

        self.in_blocks(node.shape[axis], found.length, block, True)

    def _cut(self) -> Cut | None:
        """Blocks of lines: of the first axis before that of the scan, or else behind it."""
        shape = self.node.shape
        axes = [*self._heads, *self._tails]
        free = [a in self._heads[:1] or (not self._heads and a in self._tails[:1]) for a in axes]
        lengths = [*(shape[a] for a in axes), 1]
        # Lines along the last axis are taken several at a time.
        lines = not self._tails and len(self._heads) == 1
        if lines or axes == self._tails[:1]:
            lengths.pop()
        else:
            free.append(False)
        return cut(lengths, free, time_of(self.kernel), self._count, not self._heads)

    def _all(self) -> None:
        heads, tails = self._heads, self._tails
        if tails:
            self._over(heads, [], lambda places: self._side_by_side(tails, places))
        else:
            self._over(heads[:-1], [], lambda places: self._several_lines(heads[-1:], places))

    # -------------------------------------------------------------- elements

    def _array(self, node: Node) -> _Array:
        home = self.plan.home(node)
        return _Array(self.pointer(home.buffer), home.view, node.type)

    def _address(self, array: _Array, places: list[_Place]) -> str:
        strides = array.view.strides
        terms = [(p.at, strides[p.axis]) for p in places if p.at is not None]
        start = array.view.offset + sum(p.more * strides[p.axis] for p in places)
        return self.address(array.type, array.pointer, terms, start)

    def _read(self, array: _Array, places: list[_Place]) -> Word:
        return self.code.load(array.type, self._address(array, places))

    def _write(self, value: Word, places: list[_Place]) -> None:
        self.code.store(value, self._address(self.out, places))

    def _next(self, before: Word, places: list[_Place], k: Word) -> tuple[Word, list[_Place]]:
        """What comes behind index ``k``, and where."""
        first, *others = self.inputs
        here = [*places, _Place(self.axis, k, 1)]
        steps = [self._read(array, [*places, _Place(self.axis, k)]) for array in others]
        given = [before, self._read(first, here), *steps]
        value = evaluate(self.code, self.node.work, given)
        return self.code.cast(value, self.node.type), here

    # -------------------------------------------------------------- loops

    def _over(
        self, axes: list[int], places: list[_Place], body: Callable[[list[_Place]], None]
    ) -> None:
        """``body`` at all indices along some axes."""
        if not axes:
            body(places)
            return
        first, count = self._range(axes[0])

        def inner(i: Word) -> None:
            at = i if first is None else first + i
            self._over(axes[1:], [*places, _Place(axes[0], at)], body)

        self.loop(count, inner)

    def _range(self, axis: int) -> tuple[Word | None, int | Word]:
        """First index and number of indices along an axis."""
        return self._parts.get(axis, (None, self.node.shape[axis]))

    def _side_by_side(self, tails: list[int], places: list[_Place]) -> None:
        """All first elements, then all second ones."""

        def first(at: list[_Place]) -> None:
            self._write(self._read(self.inputs[0], at), at)

        def step(k: Word) -> None:
            def one(at: list[_Place]) -> None:
                before = self._read(self.out, [*at, _Place(self.axis, k)])
                self._write(*self._next(before, at, k))

            self._over(tails, places, one)

        self._over(tails, places, first)
        self.loop(self.node.shape[self.axis] - 1, step)

    def _several_lines(self, across: list[int], places: list[_Place]) -> None:
        if not across:
            self._lines([places])
            return
        (axis,) = across
        begin, length = self._range(axis)
        code, many = self.code, self._count

        def chunk(k: Word) -> None:
            first = k * many if begin is None else begin + k * many
            self._lines([[*places, _Place(axis, first, more)] for more in range(many)])

        def one(k: Word) -> None:
            self._lines([[*places, _Place(axis, k if begin is None else begin + k, done)]])

        if isinstance(length, Word):
            done = 0
            chunks = code.op("i8", f"udiv i64 {length.text}, {many}")
            self.loop(chunks, chunk)
            assert begin is not None, "a part has a beginning"
            begin = begin + chunks * many
            self.loop(code.op("i8", f"urem i64 {length.text}, {many}"), one)
            return
        if length >= many:
            self.loop(length // many, chunk)
        done = length - length % many
        if done < length:
            self.loop(length - done, one)

    def _lines(self, lines: list[list[_Place]]) -> None:
        """Lines at a time, each with its last element on the stack."""
        kind = LLVM[self.node.type]
        stack = [self.alloca(self.node.type) for _ in lines]
        for at, places in zip(stack, lines, strict=True):
            here = [*places, _Place(self.axis, None)]
            value = self._read(self.inputs[0], here)
            self.code.line(f"store {kind} {value.text}, ptr {at}")
            self._write(value, here)

        def step(k: Word) -> None:
            for at, places in zip(stack, lines, strict=True):
                before = self.code.op(self.node.type, f"load {kind}, ptr {at}")
                value, here = self._next(before, places, k)
                self.code.line(f"store {kind} {value.text}, ptr {at}")
                self._write(value, here)

        self.loop(self.node.shape[self.axis] - 1, step)
