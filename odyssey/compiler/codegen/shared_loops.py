"""Nests of loops that several threads share.

A nest that takes long is cut into blocks, as ``cutting`` says. Of what everything is folded to
each block has its own, and these are folded in the order of the blocks. Where something is put at
places, or folded over all blocks into more than one element, nothing is cut.
"""

from __future__ import annotations

import math
from functools import partial

from odyssey.compiler.codegen.loops import BLOCK, Loops
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.ir import Word
from odyssey.compiler.schedule.work_partition import (
    Cut,
    asked_again,
    cut,
    cut_any,
    pays,
    time_of,
    varies,
)
from odyssey.compiler.symbolic.dims import Varying

__all__ = ["SharedLoops"]


class SharedLoops(Loops):
    """The routine of a kernel of loops, in blocks where that pays."""

    @property
    def varies(self) -> bool:
        """Whether sizes in it vary."""
        return self.plan.varies and varies(self.kernel)

    def find_late(self) -> None:
        """Let folds of one long row be folds of everything, where nothing else waits for them.

        What is computed of them, once, comes behind the loops.
        """
        nodes, roles = self.kernel.nodes, self.roles
        if self.alone or self.varies or math.prod(self.space[:-1]) != 1 or not pays(self.kernel):
            return
        late = [n for n in nodes if roles[n.id] == "row"]
        once = {n.id for n in nodes if roles[n.id] in ("row", "rowfold")}
        others = [n for n in nodes if roles[n.id] != "row"]
        if any(i.id in once for n in others for i in n.inputs) or any(
            n.kind == "gather" for n in late
        ):
            return
        self.late = late
        for n in others:
            if roles[n.id] == "rowfold":
                roles[n.id] = "fold"

    def write(self) -> None:
        """The loops, or their blocks and what calls them."""
        found = self._cut()
        if found is None:
            super().write()
        else:
            self._in_blocks(found)

    def _cut(self) -> Cut | None:
        nodes = self.in_nest()
        if self.alone or asked_again(self.plan, self.kernel):
            return None
        if not self.varies and not pays(self.kernel):
            return None
        roles = {self.roles[n.id] for n in nodes}
        if "scatter" in roles:
            return None
        folds = [
            n.id for n in nodes if self.roles[n.id] in ("fold", "foldrows") and not self.is_total(n)
        ]
        free = [all(strides[id] for id in folds) for _, strides in self.loops]
        # A row is one thing where something is folded along it, or stands for all of it.
        free[-1] = free[-1] and self.last_level == 0 and roles <= {"full", "fold"}
        if self.varies:  # at each size the text must be the same
            length = self.loops[0][0]
            if not (isinstance(length, Varying) and free[0]) or any(map(self.is_total, nodes)):
                return None
            return cut_any(length, time_of(self.kernel), len(self.loops) == 1)
        step = BLOCK if any(map(self.is_total, nodes)) else 1
        return cut([n for n, _ in self.loops], free, time_of(self.kernel), step)

    def _in_blocks(self, found: Cut) -> None:
        nodes = self.in_nest()
        totals = [n for n in self.kernel.nodes if self.is_total(n)]
        parts = {n.id: self.shared(self.partial(n), found.blocks) for n in totals}
        length = self.loops[found.depth][0]

        def block(k: Word, first: Word, count: int | Word) -> None:
            self.cut = found, first, count
            self.begin_totals()
            self.nest(0, [])
            for n in totals:
                kind = self.partial(n)
                at = self.address(kind, parts[n.id], [(k, 1)], 0)
                self.keep(self.kept(kind, self.totals[n.id]), at)

        # An element is what it is in a larger block as well. A sum of some is not: LLVM takes
        # several short rows at a time, and those that are left in another order.
        self.in_blocks(length, found.length, block, all(n.kind != "fold" for n in nodes))
        self.begin_totals()
        for n in totals:
            kind = self.partial(n)
            add = partial(self._add_part, n, kind, parts[n.id])
            self.loop(found.blocks, add)

    def _add_part(self, n: Node, kind: str, parts: str, k: Word) -> None:
        self.add(n, self.kept(kind, self.address(kind, parts, [(k, 1)], 0)))
