"""Nests of loops as LLVM IR: maps, folds, gathers and scatters over one space.

Along the last axis of a space there are as many loops, one behind the other, as folds along a row
need: softmax has one for the largest element, one for the sum and one for the quotients. Sums are
the only place where the order of arithmetic is free: a sum along a row is made of as many partial
ones as a vector has lanes; a sum of everything of sums of at most 4096, which are added in double
precision. So its error is at most about 4096 / 16 + 16 roundings of the largest partial sum.
"""

from __future__ import annotations

from odyssey.compiler.codegen.blocks import Blocks
from odyssey.compiler.codegen.reductions import folded, neutral
from odyssey.compiler.ir.nodes import Node, apart
from odyssey.compiler.llvm.ir import Word
from odyssey.compiler.llvm.types import FLOATING
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel, is_costly, levels, role
from odyssey.compiler.schedule.work_partition import Cut

__all__ = ["Loops"]

BLOCK = 4096
_Terms = list[tuple[Word, int]]


class Loops(Blocks):
    """The routine of a kernel of loops."""

    def __init__(self, plan: Plan, kernel: Kernel, alone: bool = False) -> None:
        super().__init__(plan, kernel, alone)
        self.space = kernel.space
        self.nodes = {n.id: n for n in kernel.nodes}
        self.roles = {n.id: role(n, kernel.space) for n in kernel.nodes}
        self.level = levels(kernel.nodes, kernel.space)
        # What is computed once, of folds of everything, behind the loops.
        self.late: list[Node] = []
        # The loop of which a block is written, if any, with its first index and its length.
        self.cut: tuple[Cut, Word, int | Word] | None = None
        self.find_late()
        self.last_level = max(
            self.level[n.id] + (self.roles[n.id] == "rowfold") for n in self.in_nest()
        )
        # By number of a node in memory: pointer, first element, strides along the space.
        self.views: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self.outside: dict[int, Node] = {}
        self.totals: dict[int, str] = {}
        self.rows: dict[int, str] = {}
        self._find_views()
        self.loops = self._loops()
        self._begin()
        self.write()
        self._end()

    def find_late(self) -> None:
        """Look for what may come behind the loops: nothing, where they are not shared."""

    def in_nest(self) -> list[Node]:
        """What comes in the loops."""
        late = {n.id for n in self.late}
        return [n for n in self.kernel.nodes if n.id not in late]

    def write(self) -> None:
        """The loops."""
        self.begin_totals()
        self.nest(0, [])

    # -------------------------------------------------------------- before and behind the loops

    def _find_views(self) -> None:
        for n in self.kernel.nodes:
            whole = apart(n)
            for i in whole:
                self.see_whole(i)
            # What must be whole may be read at each element besides, as in x[places] = x.
            for i in n.inputs[len(whole) :]:
                if i.id in self.nodes:
                    continue
                if i.size == 1:
                    self.number(i)
                elif i.owner.kind != "index":
                    self.outside[i.id] = i
        for i in self.outside.values():
            self._see(i, self.space)
        for n in self.kernel.nodes:
            if n.kind == "scatter":
                self.see_whole(n)
            elif n.id in self.plan.homes:
                self._see(n, self.space)

    def _see(self, n: Node, space: tuple[int, ...]) -> None:
        home = self.plan.home(n)
        strides = home.view.broadcast(space).strides
        self.views[n.id] = (self.pointer(home.buffer), home.view.offset, strides)

    def is_total(self, n: Node) -> bool:
        """Whether everything is folded to this."""
        return self.roles[n.id] in ("fold", "foldrows") and n.size == 1

    def partial(self, n: Node) -> str:
        """The type that parts of a total are kept in: of a half, that which it is computed in."""
        if n.detail[0] == "sum" and n.type in FLOATING:
            return "f8"
        return "f4" if n.type == "f2" else n.type

    def _begin(self) -> None:
        """Let every fold that is known at the end begin with its neutral element."""
        for n in self.kernel.nodes:
            if n.kind == "scatter":
                self.begin_with(n, n.inputs[0])
            if self.roles[n.id] in ("fold", "foldrows") and not self.is_total(n):
                self._fill(n, neutral(self.code, n.detail[0], n.type))

    def begin_totals(self) -> None:
        """Let what everything is folded to begin."""
        for n in self.kernel.nodes:
            if self.is_total(n):
                kind = self.partial(n)
                self.totals[n.id] = self.alloca(kind)
                self.keep(neutral(self.code, n.detail[0], kind), self.totals[n.id])

    def _fill(self, n: Node, value: Word) -> None:
        pointer, start, strides = self.views[n.id]
        axes = [(length, strides[a]) for a, length in enumerate(n.shape) if length != 1]

        def each(k: int, terms: _Terms) -> None:
            if k == len(axes):
                self.code.store(value, self.address(n.type, pointer, terms, start))
            else:
                self.loop(axes[k][0], lambda i: each(k + 1, [*terms, (i, axes[k][1])]))

        each(0, [])

    def _end(self) -> None:
        known: dict[int, Word] = {}
        for n in self.kernel.nodes:
            if n.id in self.totals:
                kind = self.partial(n)
                found = self.kept(kind, self.totals[n.id])
                known[n.id] = self.code.cast(found, n.type)
        for n in self.late:
            known[n.id] = self.value(n, lambda i: known[i.id] if i.id in known else self.number(i))
        for id, found in known.items():
            if id in self.views:
                pointer, start, _ = self.views[id]
                self.code.store(found, self.address(found.type, pointer, (), start))

    # -------------------------------------------------------------- the nest

    def _loops(self) -> list[tuple[int, dict[int, int]]]:
        """Lengths, and by node strides; axes through which all step evenly are one."""
        axes = [
            (length, {id: view[2][a] for id, view in self.views.items()})
            for a, length in enumerate(self.space)
        ]
        flat = set(self.roles.values()) <= {"full", "fold"} and not self._asks_indices()
        flat = flat and all(n.size == 1 for n in self.kernel.nodes if n.kind == "fold")
        last = [] if flat or not axes else [axes.pop()]
        merged: list[tuple[int, dict[int, int]]] = []
        for length, strides in axes:
            if length == 1:
                continue
            if merged and not self._asks_indices():
                before, wide = merged[-1]
                if all(wide[id] == length * s for id, s in strides.items()):
                    merged[-1] = (before * length, strides)
                    continue
            merged.append((length, strides))
        self._axes = [a for a, n in enumerate(self.space[: len(axes)]) if n != 1]
        return (merged + last) or [(1, dict.fromkeys(self.views, 0))]

    def _asks_indices(self) -> bool:
        return any(i.owner.kind == "index" for n in self.kernel.nodes for i in n.inputs)

    def nest(self, depth: int, outer: list[tuple[Word, dict[int, int]]]) -> None:
        """The loops from this one on."""
        length, strides = self.loops[depth]
        first: Word | None = None
        count: int | Word = length
        if self.cut is not None and self.cut[0].depth == depth:
            _, first, count = self.cut
        if depth < len(self.loops) - 1:

            def inner(i: Word) -> None:
                i = i if first is None else first + i
                self.nest(depth + 1, [*outer, (i, strides)])

            self.loop(count, inner)
        elif length > 2 * BLOCK and self._may_be_in_short_rows():
            self._in_short_rows(first, count, strides, outer)
        elif first is not None:
            self._part_of_row(first, count, strides, outer)
        else:
            self._row(count, strides, outer)

    def _may_be_in_short_rows(self) -> bool:
        """Whether a row may be several: where it has sums, and nothing that it must do once."""
        once = "foldrows" in self.roles.values()
        return bool(self.totals) and self.last_level == 0 and not once

    def _in_short_rows(
        self,
        begin: Word | None,
        length: int | Word,
        strides: dict[int, int],
        outer: list[tuple[Word, dict[int, int]]],
    ) -> None:
        def block(done: Word, count: Word) -> None:
            first = done if begin is None else begin + done
            self._part_of_row(first, count, strides, outer)

        self.each_block(BLOCK, length, block)

    def _part_of_row(
        self,
        first: Word,
        count: int | Word,
        strides: dict[int, int],
        outer: list[tuple[Word, dict[int, int]]],
    ) -> None:
        self.first = first
        self._row(count, strides, [*outer, (first, strides)])
        self.first = None

    first: Word | None = None

    def _row(
        self,
        length: int | Word,
        strides: dict[int, int],
        outer: list[tuple[Word, dict[int, int]]],
    ) -> None:
        """What happens for one choice of the outer indices."""
        self.row: dict[int, Word] = {}
        self.inner, self.outer = strides, outer
        self.bases: dict[int, str] = {}
        for id, (pointer, start, _) in self.views.items():
            if id not in self.totals:
                terms = [(index, by[id]) for index, by in outer]
                self.bases[id] = self.address(self._node(id).type, pointer, terms, start)
        for level in range(self.last_level + 1):
            here = [n for n in self.in_nest() if self.level[n.id] == level]
            for n in here:
                if self.roles[n.id] == "row":
                    self._compute_row(n)
                elif self.roles[n.id] == "foldrows":
                    self.add(n, self._of_row(n.inputs[0]))
            roots = [
                n
                for n in here
                if self.roles[n.id] in ("rowfold", "fold", "scatter")
                or (self.roles[n.id] == "full" and (n.id in self.views or self._crosses(n)))
            ]
            if roots:
                self._phase(level, roots, length)

    def _node(self, id: int) -> Node:
        return self.outside.get(id) or self.nodes[id]

    def _compute_row(self, n: Node) -> None:
        self.row[n.id] = self.value(n, self._of_row)
        if n.id in self.bases:
            self.code.store(self.row[n.id], self.bases[n.id])

    def _of_row(self, n: Node) -> Word:
        """What a row has once."""
        if n.id in self.row:
            return self.row[n.id]
        if n.id in self.bases:
            return self.code.load(n.type, self.bases[n.id])
        return self._index(n, None) if n.owner.kind == "index" and n.size > 1 else self.number(n)

    def _index(self, n: Node, inner: Word | None) -> Word:
        """The index along an axis of the space; it is asked for only where axes are not merged."""
        axis = len(self.space) - len(n.owner.shape) + n.owner.detail
        if n.owner.size == 1:
            return self.code.const("i8", 0)
        if axis == len(self.space) - 1:
            assert inner is not None, "an index along a row is none of the row"
            return inner
        return self.outer[self._axes.index(axis)][0]

    def _crosses(self, n: Node) -> bool:
        """Whether what was costly here is used in a later loop along the row."""
        return is_costly(n) and any(
            u.id in self.nodes
            and self.level[u.id] > self.level[n.id]
            and self.roles[u.id] in ("full", "rowfold", "fold")
            for u in self.plan.fused.users[n.id]
        )

    # -------------------------------------------------------------- one loop along a row

    def _phase(self, level: int, roots: list[Node], length: int | Word) -> None:
        code = self.code
        sums: dict[int, str] = {}
        for n in roots:
            if self._folds_row(n):
                sums[n.id] = self.alloca(n.type)
                self.keep(neutral(code, n.detail[0], n.type), sums[n.id])

        def body(j: Word) -> None:
            known: dict[int, Word] = {}
            stores: list[tuple[Word, str]] = []
            for n in self.in_order(self.level, level):
                self._get(n, j, level, known)
            for n in roots:
                if self.roles[n.id] == "full":
                    stores += self._places(n, self._get(n, j, level, known), j)
                    continue
                value = self._get(n.inputs[n.kind == "scatter"], j, level, known)
                if n.kind == "scatter":
                    at = self.at(n, n, [self._get(i, j, level, known) for i in n.inputs[2:]])
                    stores.append((self.put(n, value, at), at))
                elif n.id in sums:
                    old = self.kept(n.type, sums[n.id])
                    hidden = n.inputs[0].kind == "map"
                    self.keep(folded(code, n.detail[0], old, value, hidden=hidden), sums[n.id])
                else:
                    at = self.address(n.type, self.bases[n.id], [(j, self.inner[n.id])], 0)
                    stores.append((folded(code, n.detail[0], code.load(n.type, at), value), at))
            for word, at in stores:
                code.store(word, at)

        added = [(n, sums[n.id]) for n in roots if n.id in sums and _adds(n)]
        found: dict[int, Word] = {}
        if added and isinstance(length, int) and length > 2 * BLOCK:
            found = self.sums_of_sums(BLOCK, length, added, body)
        else:
            self.loop(length, body)
        for n in roots:
            if n.id in sums:
                self._settle(n, found[n.id] if n.id in found else self.kept(n.type, sums[n.id]))

    def _folds_row(self, n: Node) -> bool:
        """Whether the last axis is folded away, so that a loop along it has one sum."""
        if self.roles[n.id] == "rowfold" or n.id in self.totals:
            return True
        return self.roles[n.id] == "fold" and len(self.space) - 1 in n.detail[1]

    def _settle(self, n: Node, value: Word) -> None:
        if self.roles[n.id] != "rowfold":
            self.add(n, value)
            return
        self.row[n.id] = value
        if n.id in self.bases:
            self.code.store(value, self.bases[n.id])

    def add(self, n: Node, value: Word) -> None:
        """Take what a row gave into a fold that goes on over rows."""
        code, how = self.code, n.detail[0]
        if n.id in self.totals:
            kind, place = self.partial(n), self.totals[n.id]
            old = self.kept(kind, place)
            self.keep(folded(code, how, old, code.cast(value, kind), strictly=True), place)
        else:
            old = code.load(n.type, self.bases[n.id])
            code.store(folded(code, how, old, value, strictly=True), self.bases[n.id])

    def _places(self, n: Node, value: Word, j: Word) -> list[tuple[Word, str]]:
        """Where a value at index ``j`` is written."""
        found = []
        if n.id in self.views:
            at = self.address(n.type, self.bases[n.id], [(j, self.inner[n.id])], 0)
            found.append((value, at))
        elif self._crosses(n):
            if n.id not in self.rows:
                self.rows[n.id] = self.alloca(n.type, self.space[-1])
            found.append((value, self.address(n.type, self.rows[n.id], [(j, 1)], 0)))
        return found

    def _get(self, n: Node, j: Word, level: int, known: dict[int, Word]) -> Word:
        """The value of a node at index ``j`` of the row."""
        if n.id in known:
            return known[n.id]
        code = self.code
        earlier = n.id in self.nodes and self.level[n.id] < level
        if n.id in self.row:
            found = self.row[n.id]
        elif n.owner.kind == "index" and n.size > 1:
            found = self._index(n, self._inner_index(j))
        elif n.id in self.outside or (earlier and n.id in self.views):
            at = self.address(n.type, self.bases[n.id], [(j, self.inner[n.id])], 0)
            found = code.load(n.type, at)
        elif n.id not in self.nodes:
            found = self.number(n)
        elif earlier and n.id in self.rows:
            found = code.load(n.type, self.address(n.type, self.rows[n.id], [(j, 1)], 0))
        else:
            found = self.value(n, lambda i: self._get(i, j, level, known))
        known[n.id] = found
        return found

    def _inner_index(self, j: Word) -> Word:
        return j if self.first is None else self.first + j


def _adds(n: Node) -> bool:
    """Whether a fold adds numbers that are rounded."""
    return bool(n.detail[0] == "sum" and n.type in FLOATING)
