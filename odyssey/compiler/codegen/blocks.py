"""Long loops in blocks, so that sums are those of sums of few."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odyssey.compiler.codegen.indexed_access import Placed
from odyssey.compiler.codegen.reductions import neutral
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.ir import LLVM, Word

__all__ = ["Blocks"]


class Blocks(Placed):
    """A routine whose loops may be taken in blocks."""

    def keep(self, word: Word, place: str) -> None:
        """Write to the stack, where truths are of one bit."""
        self.code.line(f"store {LLVM[word.type]} {word.text}, ptr {place}")

    def kept(self, type: str, place: str) -> Word:
        """Read what ``keep`` wrote."""
        return self.code.op(type, f"load {LLVM[type]}, ptr {place}")

    def each_block(self, size: int, length: int | Word, body: Callable[[Word, Word], None]) -> None:
        """``body(where it begins, how long it is)`` for each block of so many indices."""
        code = self.code
        end = length.text if isinstance(length, Word) else length

        def block(k: Word) -> None:
            first = code.op("i8", f"mul nuw nsw i64 {k.text}, {size}")
            left = code.op("i8", f"sub nsw i64 {end}, {first.text}")
            body(first, code.op("i8", f"call i64 @llvm.smin.i64(i64 {left.text}, i64 {size})"))

        if isinstance(length, int):
            self.loop(-(-length // size), block)
            return
        above = code.op("i8", f"add nuw nsw i64 {length.text}, {size - 1}")
        self.loop(code.op("i8", f"udiv i64 {above.text}, {size}"), block)

    def sums_of_sums(
        self,
        size: int,
        length: int,
        sums: Sequence[tuple[Node, str]],
        body: Callable[[Word], None],
    ) -> dict[int, Word]:
        """``body`` at each index, which adds to sums; those of blocks are added as float64.

        Args:
            size: Of a block.
            length: Of the loop.
            sums: Nodes, and where on the stack the sum of each lies.
            body: Given the index.

        Returns:
            By number of a node, its sum.
        """
        code = self.code
        totals = [self.alloca("f8") for _ in sums]
        for total in totals:
            self.keep(code.const("f8", 0), total)

        def block(first: Word, count: Word) -> None:
            for n, place in sums:
                self.keep(neutral(code, "sum", n.type), place)
            self.loop(count, lambda j: body(first + j))
            for total, (n, place) in zip(totals, sums, strict=True):
                part = code.cast(self.kept(n.type, place), "f8")
                self.keep(self.kept("f8", total) + part, total)

        self.each_block(size, length, block)
        return {
            n.id: code.cast(self.kept("f8", total), n.type)
            for total, (n, _) in zip(totals, sums, strict=True)
        }
