"""Products of matrices as LLVM IR: calls of BLAS, or loops where they are small."""

from __future__ import annotations

import math
from collections.abc import Callable

from odyssey.compiler.codegen.register_tiles import Operand, Result, Sizes, Tiles
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.ir import LLVM, Word
from odyssey.compiler.llvm.types import PARTS
from odyssey.compiler.machine.blas import largest_size
from odyssey.compiler.passes.windows import STEPS, Inner, inner_of
from odyssey.compiler.schedule.buffer_assignment import Home, Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import Cut, cut, part_of_product, time_of

__all__ = ["LETTERS", "Product"]

# Below so many multiplications a call of BLAS costs more than loops.
SMALL = 4096
# Loops of longer sums would leave BLAS's accuracy behind.
LONGEST = 32
# From so many multiplications on libraries take threads of their own.
_LONE = 1 << 17
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
LETTERS = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}
"""By the type of a product the letter with which BLAS's function for it begins."""


class Product(Tiles):
    """The routine of a product."""

    def __init__(self, plan: Plan, kernel: Kernel, blas: bool = True, alone: bool = False) -> None:
        super().__init__(plan, kernel, alone)
        node = kernel.nodes[0]
        self.type, self.blas = node.type, blas
        self.beta = node.detail[1]
        left, right = (plan.home(i) for i in node.inputs[:2])
        out = plan.homes[node.id]
        a, b, c = left.view, right.view, out.view
        if self.beta:
            self._begin_with(plan.home(node.inputs[2]), out)
        pointers = [self.pointer(home.buffer) for home in (left, right, out)]
        inner = inner_of(node)
        if inner is not None:
            self._tensors(pointers, (a, b, c), inner, node.detail[0] == "sum")
            return
        if node.detail[0] == "sum":
            a, b, c = self._one_long(a, b, c)
        elif len(b.shape) == 2 and len(a.shape) > 2:
            a, c = self._one_tall(a, c)
        batch = c.shape[:-2]
        a = a.broadcast((*batch, *a.shape[-2:]))
        b = b.broadcast((*batch, *b.shape[-2:]))
        operands = [(p, v) for p, v in zip(pointers, (a, b, c), strict=True)]
        found = self._cut(batch) if blas else None
        if found is None:
            self.one = math.prod(batch) == 1
            self._each(0, [], operands)
            return
        length, size, self.within = batch[found.depth], found.length, True

        def block(k: Word, first: Word, count: int | Word) -> None:
            self.range = found.depth, first, count
            self._each(0, [], operands)
            self.range = None

        self._or_blocks(length, size, lambda: self._each(0, [], operands), block, True)

    def _cut(self, batch: tuple[int, ...]) -> Cut | None:
        if self.alone:
            return None
        return cut([*batch, 1], [*(n > 1 for n in batch), False], time_of(self.kernel), 1)

    # Whether this is one product, and none of a batch.
    one = False
    # Whether the library was told already how many threads it has.
    within = False
    # The axis of a batch of which a block is written, its first index and its length.
    range: tuple[int, Word, int | Word] | None = None

    def _or_blocks(
        self,
        length: int,
        size: int,
        whole: Callable[[], None],
        block: Callable[[Word, Word, int | Word], None],
        together: bool,
    ) -> None:
        """All at once, where threads are the library's own affair; else blocks.

        Blocks are for any number of threads the same, also for one, since a library may add up a
        part in another order; so they are not made where nobody asked for a number.
        """
        code = self.code
        threads = code.op("i8", f"call i64 @ody_enter(i64 {self.own_threads().text})")
        alone = code.op("b1", f"icmp eq i64 {threads.text}, 0")
        code.line(f"br i1 {alone.text}, label %whole, label %blocks")
        code.label("whole")
        whole()
        code.line("br label %done")
        code.label("blocks")
        self.in_blocks(length, size, block, together)
        code.line("call void @ody_leave()")
        code.line("br label %done")
        code.label("done")

    def _in_step(self, whole: Callable[[], None], work: int) -> None:
        """A product that is not shared, in one thread where a number of threads was asked for.

        Else the library would take several by itself, and its threads look for more work long
        after, on the cores that blocks of loops are for.
        """
        if self.alone or self.within or work < _LONE:
            whole()
            return
        code = self.code
        threads = code.op("i8", f"call i64 @ody_enter(i64 {self.own_threads().text})")
        entered = code.op("b1", f"icmp ne i64 {threads.text}, 0")
        whole()
        code.line(f"br i1 {entered.text}, label %leave, label %left")
        code.label("leave")
        code.line("call void @ody_leave()")
        code.line("br label %left")
        code.label("left")

    def _tensors(
        self, pointers: list[str], views: tuple[View, View, View], axes: Inner, summed: bool
    ) -> None:
        """A product whose operands have several axes that are summed up, or that are columns."""
        a, b, c = views
        ends = axes.inner + axes.columns
        columns, inner = b.shape[-axes.columns :], a.shape[-axes.inner :]
        c = c.reshape((*c.shape[:-1], *columns))
        batch = c.shape[: -1 - axes.columns]
        if summed:
            inner = (*a.shape[: -1 - axes.inner], *inner)
            batch = ()
        else:
            a = a.broadcast((*batch, *a.shape[-1 - axes.inner :]))
            b = b.broadcast((*batch, *b.shape[-ends:]))
        n = len(batch)
        m = a.shape[-1 - axes.inner]
        of_a = [*a.strides[n : -1 - axes.inner], *a.strides[-axes.inner :]]
        of_b = b.strides[n : -axes.columns]
        of_c = c.strides[-axes.columns :]
        summing = _merged(list(zip(inner, of_a, of_b, strict=True)))
        across = _merged(list(zip(columns, b.strides[-axes.columns :], of_c, strict=True)))
        wide = across[-1][0] if across[-1][1] in STEPS else 0
        length, step, other = summing[-1]
        along = step == 1 and other in STEPS and length > wide
        if not wide and not along:
            across.append((1, 1, 1))

        def each(at: list[Word]) -> None:
            places = [
                self.address(self.type, p, list(zip(at, v.strides, strict=False)), v.offset)
                for p, v in zip(pointers, (a, b, c), strict=True)
            ]
            row = a.strides[-1 - axes.inner], c.strides[-1 - axes.columns]
            left = Operand(places[0], row[:1], tuple(s for _, s, _ in summing))
            right = Operand(
                places[1], tuple(s for _, s, _ in across), tuple(s for _, _, s in summing)
            )
            out = Result(places[2], row[1], tuple(s for _, _, s in across))
            sizes = Sizes(m, tuple(k for k, _, _ in across), tuple(k for k, _, _ in summing))
            (self.dots if along else self.across)(left, right, out, sizes)

        found = self._cut(batch)
        if found is None:
            self._nest(batch, each)
            return
        depth = found.depth

        def block(k: Word, first: Word, count: int | Word) -> None:
            def inner(before: list[Word], i: Word) -> None:
                self._nest(batch[depth + 1 :], lambda after: each([*before, first + i, *after]))

            self._nest(batch[:depth], lambda at: self.loop(count, lambda i: inner(at, i)))

        self.in_blocks(batch[depth], found.length, block, True)

    def _begin_with(self, before: Home, out: Home) -> None:
        """What the product is added to, where it does not lie there."""
        if before.buffer is out.buffer:
            return
        to, source = map(self.pointer_to_all, (out.buffer, before.buffer))
        self.code.line(
            f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, "
            f"i64 {out.buffer.bytes}, i1 false)"
        )

    @staticmethod
    def _one_long(a: View, b: View, c: View) -> tuple[View, View, View]:
        """A sum of the products of a batch: one product whose inner axis is all of them."""
        rows, columns = a.shape[-2], b.shape[-1]
        a = a.transpose((len(a.shape) - 2, *range(len(a.shape) - 2), len(a.shape) - 1))
        return (
            a.reshape((rows, -1)),
            b.reshape((-1, columns)),
            c.reshape((rows, columns)),
        )

    @staticmethod
    def _one_tall(a: View, c: View) -> tuple[View, View]:
        """A batch that is multiplied by one matrix: more rows."""
        try:
            tall = a.reshape((-1, a.shape[-1])), c.reshape((-1, c.shape[-1]))
        except ValueError:
            return a, c
        # Of a batch of single rows, each may be a matrix where all are none.
        return tall if all(view.is_matrix() for view in tall) else (a, c)

    def _each(
        self,
        axis: int,
        indices: list[Word],
        operands: list[tuple[str, View]],
    ) -> None:
        batch = operands[2][1].shape[:-2]
        if axis < len(batch):
            first: Word | None = None
            count: int | Word = batch[axis]
            if self.range is not None and self.range[0] == axis:
                _, first, count = self.range

            def inner(i: Word) -> None:
                i = i if first is None else first + i
                self._each(axis + 1, [*indices, i], operands)

            self.loop(count, inner)
            return

        def place(which: int) -> str:
            pointer, view = operands[which]
            terms = [(i, view.strides[k]) for k, i in enumerate(indices)]
            return self.address(self.type, pointer, terms, view.offset)

        a, b, c = (view for _, view in operands)
        (m, k), n = a.shape[-2:], b.shape[-1]
        strides = [view.strides[-2:] for view in (a, b, c)]
        if not m * n:
            return
        few = m * n * k <= SMALL and k <= LONGEST
        reach = max(map(int, (m, n, k, *(step for pair in strides for step in pair))))
        if few or k <= 1 or not self.blas or reach > largest_size():
            self._loops([place(0), place(1), place(2)], (m, n, k), strides)
        elif self.type in PARTS and min(m, n) == 1:
            self._call_with_vector(place, (m, n, k), strides)
        else:
            self._call(place, (m, n, k), strides)

    def _call(
        self,
        place: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
    ) -> None:
        (a, b, c), (m, n, k), (sa, sb, sc) = (0, 1, 2), sizes, strides
        if sc[1] != 1 and n > 1:  # the product of the transposes, in the other order
            a, b, m, n = b, a, n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        how_a, step_a = _leading(sa, (m, k))
        how_b, step_b = _leading(sb, (k, n))
        letter = LETTERS[self.type]
        one, beta = self._scalar(1.0), self._scalar(self.beta)
        step_c = max(sc[0] if m > 1 else n, n)

        def call(m: int | str, n: int | str, a: str, b: str, c: str) -> None:
            self.code.line(
                f"call void @ody_{letter}gemm(i32 {_ROW_MAJOR}, i32 {how_a}, i32 {how_b}, i64 {m}, "
                f"i64 {n}, i64 {k}, {one}, ptr {a}, i64 {step_a}, ptr {b}, i64 {step_b}, "
                f"{beta}, ptr {c}, i64 {step_c})"
            )

        def whole() -> None:
            call(m, n, place(a), place(b), place(c))

        def block(k: Word, i: Word, count: int | Word) -> None:
            to = place(c)
            some = count.text if isinstance(count, Word) else count
            if m > n:
                first = self.address(self.type, place(a), [(i, sa[0])], 0)
                call(some, n, first, place(b), self.address(self.type, to, [(i, sc[0])], 0))
            else:
                first = self.address(self.type, place(b), [(i, sb[1])], 0)
                call(m, some, place(a), first, self.address(self.type, to, [(i, sc[1])], 0))

        size = part_of_product(m, n, k) if self.one and not self.alone else None
        if size is None:
            self._in_step(whole, m * n * k)
        else:
            self._or_blocks(max(m, n), size, whole, block, False)

    def _call_with_vector(
        self,
        place: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
    ) -> None:
        """A product with a vector, of complex numbers: of others OpenBLAS sees that itself."""
        (a, b, c), (m, n, k), (sa, sb, sc) = (0, 1, 2), sizes, strides
        if n > 1:  # the product of the transposes, in the other order
            a, b, m = b, a, n
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        how, step = _leading(sa, (m, k))
        rows, columns = (m, k) if how == _AS_IT_IS else (k, m)

        def whole() -> None:
            self.code.line(
                f"call void @ody_{LETTERS[self.type]}gemv(i32 {_ROW_MAJOR}, i32 {how}, i64 {rows}, "
                f"i64 {columns}, {self._scalar(1.0)}, ptr {place(a)}, i64 {step}, ptr {place(b)}, "
                f"i64 {sb[0]}, {self._scalar(0.0)}, ptr {place(c)}, "
                f"i64 {sc[0] if m > 1 else 1})"
            )

        self._in_step(whole, m * k)

    def _scalar(self, value: float) -> str:
        """A scalar as BLAS takes it: of complex numbers its address."""
        if self.type in PARTS:
            return f"ptr @ody_{int(value)}_{self.type}"
        return f"{LLVM[self.type]} {self.code.const(self.type, value).text}"

    def _loops(
        self, places: list[str], sizes: tuple[int, int, int], strides: list[tuple[int, ...]]
    ) -> None:
        (a, b, c), (m, n, k), (sa, sb, sc) = places, sizes, strides
        if n < m and n < 4:  # the longer loop inside
            a, b, m, n = b, a, n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        code, kind = self.code, self.type

        def term(i: Word, j: Word, x: int) -> tuple[Word, Word]:
            left = self.address(kind, a, [(i, sa[0])], x * sa[1])
            right = self.address(kind, b, [(j, sb[1])], x * sb[0])
            return code.load(kind, left), code.load(kind, right)

        def cell(i: Word, j: Word) -> None:
            total = code.const(kind, 0.0)
            for x in range(k):
                u, v = term(i, j, x)
                if x == 0:
                    total = u * v
                elif kind in PARTS:
                    total = u * v + total
                else:
                    total = code.intrinsic("fma", u, v, total)
            if kind in PARTS and k:
                total = total * code.const(kind, 1.0)  # as BLAS does: of infinities that is NaN
            to = self.address(kind, c, [(i, sc[0]), (j, sc[1])], 0)
            if self.beta:
                total = code.load(kind, to) * self.beta + total
            code.store(total, to)

        self.loop(m, lambda i: self.loop(n, lambda j: cell(i, j)))


def _merged(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Axes, given by length and steps; those through which both step evenly are one."""
    found: list[tuple[int, int, int]] = []
    for length, step, other in axes:
        if length == 1 and len(axes) > 1:
            continue
        if found and found[-1][1:] == (length * step, length * other):
            found[-1] = (found[-1][0] * length, step, other)
        else:
            found.append((length, step, other))
    return found or [(1, 1, 1)]


def _leading(strides: tuple[int, ...], shape: tuple[int, int]) -> tuple[int, int]:
    """How BLAS is to see a matrix of these strides, and how far its rows or columns lie apart."""
    row, column = strides
    if column == 1 or shape[1] == 1:
        return _AS_IT_IS, max(row if shape[0] > 1 else shape[1], shape[1])
    return _TRANSPOSED, max(column, shape[0])
