"""Elements that are read, or written, where indices say, as LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odyssey.compiler.codegen.reductions import folded
from odyssey.compiler.codegen.routine import Routine
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.ir import Word
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel, role

__all__ = ["Placed"]

# Each node takes three frames of Python's stack, and its users may have taken most of it.
_DEEP = 50
_Terms = list[tuple[Word, int]]


class Placed(Routine):
    """A routine that reads and writes at places.

    Attributes:
        whole: By number of a node whose elements are read, or written, at places, its memory.
    """

    def __init__(self, plan: Plan, kernel: Kernel, alone: bool = False) -> None:
        super().__init__(plan, kernel, alone)
        self.whole: dict[int, tuple[str, View]] = {}

    def in_order(self, levels: Mapping[int, int], level: int) -> list[Node]:
        """In a large kernel, nodes of a loop, inputs first: to ask for the last goes too deep."""
        nodes, space = self.kernel.nodes, self.kernel.space
        if len(nodes) <= _DEEP:
            return []
        return [n for n in nodes if role(n, space) == "full" and levels[n.id] <= level]

    def see_whole(self, n: Node) -> None:
        """Note where a node lies that is read, or written, at places."""
        if n.size == 1 and n.kind != "scatter":
            self.number(n)
        else:
            home = self.plan.home(n)
            self.whole[n.id] = (self.pointer(home.buffer), home.view)

    def begin_with(self, n: Node, base: Node) -> None:
        """Let a scatter begin with what was there before."""
        pointer, view = self.whole[n.id]
        known = self.number(base) if base.size == 1 else None
        source, before = self.whole.get(base.id, ("", view))
        before = before if known is not None else before.broadcast(n.shape)

        def each(axis: int, to: _Terms, of: _Terms) -> None:
            if axis < len(n.shape):
                self.loop(
                    n.shape[axis],
                    lambda i: each(
                        axis + 1,
                        [*to, (i, view.strides[axis])],
                        [*of, (i, before.strides[axis])],
                    ),
                )
                return
            at = self.address(n.type, pointer, to, view.offset)
            value = known
            if value is None:
                value = self.code.load(n.type, self.address(n.type, source, of, before.offset))
            self.code.store(value, at)

        each(0, [], [])

    def at(self, n: Node, whole: Node, places: list[Word]) -> str:
        """Where an element lies at places, which are kept within the array whatever they are."""
        pointer, view = self.whole[whole.id]
        terms = []
        for node, place, length, stride in zip(
            n.inputs[-len(places) :], places, view.shape, view.strides, strict=True
        ):
            if node.owner.kind != "index" or node.owner.size > length:
                most = self.code.const("i8", length - 1)
                place = self.code.call("i8", "llvm.umin.i64", place, most)
            terms.append((place, stride))
        return self.address(n.type, pointer, terms, view.offset)

    def value(self, n: Node, get: Callable[[Node], Word]) -> Word:
        """What a map or a gather gives, of inputs that ``get`` gives."""
        if n.kind == "gather":
            return self.code.load(n.type, self.at(n, n.inputs[0], list(map(get, n.inputs[1:]))))
        return self.compute(n, list(map(get, n.inputs)))

    def put(self, n: Node, value: Word, at: str) -> Word:
        """What stands at a place when an element was put there."""
        if n.detail == "set":
            return value
        return folded(self.code, n.detail, self.code.load(n.type, at), value, strictly=True)
