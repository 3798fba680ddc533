"""Matrix multiplication in LLVM IR: BLAS calls, loops for small products, register tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from odyssey.compiler.codegen.few_rows import FewRows, Strided, fits_stack
from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.codegen.register_tiles import Operand, RegisterTiles, Result, Sizes
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import HALVES, LLVM, PARTS, dtype_of_code
from odyssey.compiler.machine.blas import max_blas_size
from odyssey.compiler.passes.row_products import MAX_ROWS
from odyssey.compiler.passes.windows import VECTOR_STRIDES, ProductAxes, product_axes
from odyssey.compiler.schedule.buffer_assignment import Allocation, Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import (
    Tiling,
    estimated_seconds,
    gemm_block_size,
    partition_loop,
)
from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.compiler.ways.products import (
    MAX_SHORT_LINE,
    MAX_SHORT_SUM,
    FewRowsShape,
    matrix_product_work,
    product_ways,
)

__all__ = ["BLAS_PREFIXES", "Matmul"]

# From this many multiplications on BLAS libraries use their own threads.
_BLAS_THREADS_WORK = 1 << 17
_ROW_MAJOR, _NO_TRANSPOSE, _TRANSPOSE = 101, 111, 112
BLAS_PREFIXES = {"f4": "s", "f8": "d", "c8": "c", "c16": "z"}
"""First letter of the BLAS functions by type of the elements."""


class Matmul(KernelFunction):
    """Code generator of a matrix product.

    Args:
        plan: Plan of the program.
        kernel: Kernel with one product node.
        blas: Whether BLAS has a function for its type.
        single_threaded: Whether to generate no blocks for the thread pool.
    """

    def __init__(
        self, plan: Plan, kernel: Kernel, blas: bool = True, single_threaded: bool = False
    ) -> None:
        super().__init__(plan, kernel, single_threaded)
        node = kernel.nodes[0]
        self._type, self._blas = node.type, blas
        self._types = (*[i.type for i in node.inputs[:2]], node.type)
        self._beta = node.detail[1]
        # Whether the node is one product, not a batch of products.
        self._is_single = False
        # Whether the BLAS library's threads are limited already.
        self._in_blas_scope = False
        # The batch axis of which a block is generated, its first index and its length.
        self._batch_block: tuple[int, LLVMValue, int | LLVMValue] | None = None
        left, right = (plan.allocation(i) for i in node.inputs[:2])
        out = plan.allocations[node.id]
        a, b, c = left.view, right.view, out.view
        if self._beta:
            self._copy_addend(plan.allocation(node.inputs[2]), out)
        pointers = [self.pointer(allocation.buffer) for allocation in (left, right, out)]
        axes = product_axes(node)
        if axes is not None:
            self._emit_tensor_product(pointers, (a, b, c), axes, node.detail[0] == "sum")
            return
        if node.detail[0] == "sum":
            a, b, c = self._batch_as_inner_axis(a, b, c)
        elif len(b.shape) == 2 and len(a.shape) > 2:
            a, c = self._batch_as_rows(a, c)
        batch = c.shape[:-2]
        a = a.broadcast((*batch, *a.shape[-2:]))
        b = b.broadcast((*batch, *b.shape[-2:]))
        operands = [(p, v) for p, v in zip(pointers, (a, b, c), strict=True)]
        tiling = self._batch_tiling(batch) if blas else None
        if tiling is None:
            self._is_single = math.prod(batch) == 1
            self._emit_batch(0, [], operands)
            return
        self._in_blas_scope = True

        def emit_block(k: LLVMValue, first: LLVMValue, count: int | LLVMValue) -> None:
            self._batch_block = tiling.depth, first, count
            self._emit_batch(0, [], operands)
            self._batch_block = None

        self._emit_all_or_blocks(
            batch[tiling.depth],
            tiling.length,
            lambda: self._emit_batch(0, [], operands),
            emit_block,
            True,
        )

    def _batch_tiling(self, batch: tuple[int, ...]) -> Tiling | None:
        if self.single_threaded:
            return None
        divisible = [*(n > 1 for n in batch), False]
        return partition_loop([*batch, 1], divisible, estimated_seconds(self.kernel), 1)

    def _emit_all_or_blocks(
        self,
        length: int,
        size: int,
        emit_all: Callable[[], None],
        emit_block: Callable[[LLVMValue, LLVMValue, int | LLVMValue], None],
        mergeable: bool,
    ) -> None:
        """Generate one call if the library chooses its threads; else blocks for the thread pool.

        Blocks are the same for any number of threads, 1 included, since a library may add up a
        block in another order. They are used only if a number of threads was set.
        """
        code = self.code
        threads = code.op("i8", f"call i64 @ody_enter(i64 {self.thread_limit().text})")
        unset = code.op("b1", f"icmp eq i64 {threads.text}, 0")
        code.line(f"br i1 {unset.text}, label %whole, label %blocks")
        code.label("whole")
        emit_all()
        code.line("br label %done")
        code.label("blocks")
        self.emit_blocks(length, size, emit_block, mergeable)
        code.line("call void @ody_leave()")
        code.line("br label %done")
        code.label("done")

    def _emit_unshared(self, emit_all: Callable[[], None], work: int) -> None:
        """Generate a BLAS call that uses one thread if a number of threads was set.

        Else the library would use several by itself, which spin long after the call, on the cores
        that blocks of loops need.
        """
        if self.single_threaded or self._in_blas_scope or work < _BLAS_THREADS_WORK:
            emit_all()
            return
        code = self.code
        threads = code.op("i8", f"call i64 @ody_enter(i64 {self.thread_limit().text})")
        entered = code.op("b1", f"icmp ne i64 {threads.text}, 0")
        emit_all()
        code.line(f"br i1 {entered.text}, label %leave, label %left")
        code.label("leave")
        code.line("call void @ody_leave()")
        code.line("br label %left")
        code.label("left")

    def _emit_tensor_product(
        self,
        pointers: list[str],
        views: tuple[View, View, View],
        axes: ProductAxes,
        sums_batch: bool,
    ) -> None:
        """Generate a product whose inner dimension or columns are several axes."""
        a, b, c = views
        ends = axes.inner + axes.columns
        columns, inner = b.shape[-axes.columns :], a.shape[-axes.inner :]
        c = c.reshape((*c.shape[:-1], *columns))
        batch = c.shape[: -1 - axes.columns]
        if sums_batch:
            inner = (*a.shape[: -1 - axes.inner], *inner)
            batch = ()
        else:
            a = a.broadcast((*batch, *a.shape[-1 - axes.inner :]))
            b = b.broadcast((*batch, *b.shape[-ends:]))
        n = len(batch)
        m = a.shape[-1 - axes.inner]
        a_strides = [*a.strides[n : -1 - axes.inner], *a.strides[-axes.inner :]]
        b_strides = b.strides[n : -axes.columns]
        c_strides = c.strides[-axes.columns :]
        summed = _merge_axes(list(zip(inner, a_strides, b_strides, strict=True)))
        across = _merge_axes(list(zip(columns, b.strides[-axes.columns :], c_strides, strict=True)))
        wide = across[-1][0] if across[-1][1] in VECTOR_STRIDES else 0
        length, step, other = summed[-1]
        along = step == 1 and other in VECTOR_STRIDES and length > wide
        if not wide and not along:
            across.append((1, 1, 1))
        tiles = RegisterTiles(self, self._type, self._beta)

        def emit_product(indices: list[LLVMValue]) -> None:
            starts = [
                self.element_pointer(
                    self._type, p, list(zip(indices, v.strides, strict=False)), v.offset
                )
                for p, v in zip(pointers, (a, b, c), strict=True)
            ]
            row = a.strides[-1 - axes.inner], c.strides[-1 - axes.columns]
            left = Operand(starts[0], row[:1], tuple(s for _, s, _ in summed))
            right = Operand(
                starts[1], tuple(s for _, s, _ in across), tuple(s for _, _, s in summed)
            )
            out = Result(starts[2], row[1], tuple(s for _, _, s in across))
            sizes = Sizes(m, tuple(k for k, _, _ in across), tuple(k for k, _, _ in summed))
            (tiles.emit_dots if along else tiles.emit_across)(left, right, out, sizes)

        tiling = self._batch_tiling(batch)
        if tiling is None:
            self.emit_loops(batch, emit_product)
            return
        depth = tiling.depth

        def emit_block(k: LLVMValue, first: LLVMValue, count: int | LLVMValue) -> None:
            def emit_inner(before: list[LLVMValue], i: LLVMValue) -> None:
                self.emit_loops(
                    batch[depth + 1 :], lambda after: emit_product([*before, first + i, *after])
                )

            self.emit_loops(
                batch[:depth],
                lambda before: self.emit_loop(count, lambda i: emit_inner(before, i)),
            )

        self.emit_blocks(batch[depth], tiling.length, emit_block, True)

    def _copy_addend(self, before: Allocation, out: Allocation) -> None:
        """Copy the operand that the product is added to into the result, unless they share it."""
        if before.buffer is out.buffer:
            return
        to, source = map(self.pointer_to_start, (out.buffer, before.buffer))
        self.code.line(
            f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, "
            f"i64 {out.buffer.bytes}, i1 false)"
        )

    @staticmethod
    def _batch_as_inner_axis(a: View, b: View, c: View) -> tuple[View, View, View]:
        """Return the views of a batch sum of products as one product with a long inner axis."""
        rows, columns = a.shape[-2], b.shape[-1]
        a = a.transpose((len(a.shape) - 2, *range(len(a.shape) - 2), len(a.shape) - 1))
        return (
            a.reshape((rows, -1)),
            b.reshape((-1, columns)),
            c.reshape((rows, columns)),
        )

    @staticmethod
    def _batch_as_rows(a: View, c: View) -> tuple[View, View]:
        """Return the views of a batch times one matrix as one product with more rows."""
        try:
            tall = a.reshape((-1, a.shape[-1])), c.reshape((-1, c.shape[-1]))
        except ValueError:
            return a, c
        # Single rows of a batch may each be a BLAS matrix where all of them together are not.
        return tall if all(view.is_matrix() for view in tall) else (a, c)

    def _emit_batch(
        self,
        axis: int,
        indices: list[LLVMValue],
        operands: list[tuple[str, View]],
    ) -> None:
        """Generate the loops over batch axes from ``axis`` on, with a product inside."""
        batch = operands[2][1].shape[:-2]
        if axis < len(batch):
            first: LLVMValue | None = None
            count: int | LLVMValue = batch[axis]
            if self._batch_block is not None and self._batch_block[0] == axis:
                _, first, count = self._batch_block

            def emit_body(i: LLVMValue) -> None:
                i = i if first is None else first + i
                self._emit_batch(axis + 1, [*indices, i], operands)

            self.emit_loop(count, emit_body)
            return

        def start(operand: int) -> str:
            pointer, view = operands[operand]
            terms = [(i, view.strides[k]) for k, i in enumerate(indices)]
            return self.element_pointer(self._types[operand], pointer, terms, view.offset)

        a, b, c = (view for _, view in operands)
        (m, k), n = a.shape[-2:], b.shape[-1]
        strides = [view.strides[-2:] for view in (a, b, c)]
        if not m * n:
            return
        way = self._choose_way((m, n, k), strides, math.prod(batch))
        if way == "rows":
            self._emit_few_rows(start, (m, n, k), strides)
        elif way == "short":
            self._emit_own_blocks(
                max(m, n),
                lambda first, count: self._emit_short_sums(start, (m, n, k), strides, first, count),
            )
        elif way == "loops":
            self._emit_product_loops([start(0), start(1), start(2)], (m, n, k), strides)
        elif way == "vector":
            self._emit_gemv(start, (m, n, k), strides)
        else:
            self._emit_gemm(start, (m, n, k), strides)

    def _choose_way(
        self, sizes: tuple[int, int, int], strides: list[tuple[int, ...]], count: int
    ) -> str:
        """Return the name of the way of a product of matrices, one of so many."""
        m, n, k = sizes
        largest = max(map(int, (*sizes, *(step for pair in strides for step in pair))))
        has_blas = self._blas and largest <= max_blas_size()
        has_half = self._types[0] != self._types[1]
        loops = self._can_emit_tiles(sizes, strides)
        few = self._few_rows(sizes, strides) if loops else None
        short = loops and not has_half and 1 < k <= MAX_SHORT_SUM and min(m, n) <= MAX_SHORT_LINE
        is_along = n <= MAX_SHORT_LINE or strides[1][1] == 1
        ways = product_ways((m, n, k), count, has_blas, has_half, few, (short, is_along))
        dtypes = [dtype_of_code(type) for type in self._types[:2]]
        operands = list(zip(dtypes, ((m, k), (k, n)), strides, strict=False))
        describe = partial(matrix_product_work, operands, count, bool(self._beta))
        return self.plan.choices.choose(ways, describe)

    def _emit_own_blocks(
        self,
        length: int,
        emit: Callable[[LLVMValue | None, int | LLVMValue | None], None],
        mergeable: bool = True,
    ) -> None:
        """Generate loops over an axis of a product, in blocks for the thread pool if it pays.

        Args:
            length: Length of the axis.
            emit: Generates indices from a first one on; with None, all of them.
            mergeable: Whether an element has the same bits in blocks of any length.
        """
        tiling = None
        if self._is_single and not self.single_threaded:
            seconds = estimated_seconds(self.kernel)
            tiling = partition_loop([length], [True], seconds, 1, outside=True)
        if tiling is None:
            emit(None, None)
        else:
            self.emit_blocks(length, tiling.length, lambda k, *range: emit(*range), mergeable)

    def _emit_short_sums(
        self,
        start: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
        first: LLVMValue | None,
        count: int | LLVMValue | None,
    ) -> None:
        """Generate loops with short sums in registers; a small operand is copied to the stack.

        Indices from ``first`` on are of the longer axis of the result.
        """
        (a, b, c), (m, n, k) = [start(operand) for operand in range(3)], sizes
        sa, sb, sc = strides
        if sc[1] != 1:
            a, b, m, n = b, a, n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        code, kind = self.code, self._type
        if sb[1] != 1 and n <= MAX_SHORT_LINE:
            packed = self.alloca(kind, k * n)

            def pack(x: LLVMValue, j: LLVMValue) -> None:
                source = self.element_pointer(kind, b, [(x, sb[0]), (j, sb[1])], 0)
                target = self.element_pointer(kind, packed, [(x, n), (j, 1)], 0)
                code.store(code.load(kind, source), target)

            self.emit_loop(k, lambda x: self.emit_loop(n, lambda j: pack(x, j)))
            b, sb = packed, (n, 1)

        def emit_row(i: LLVMValue, first: LLVMValue | None, count: int | LLVMValue) -> None:
            left = [
                code.load(kind, self.element_pointer(kind, a, [(i, sa[0])], x * sa[1]))
                for x in range(k)
            ]

            def emit_element(j: LLVMValue) -> None:
                j = j if first is None else first + j
                right = [
                    code.load(kind, self.element_pointer(kind, b, [(j, sb[1])], x * sb[0]))
                    for x in range(k)
                ]
                total = left[0] * right[0]
                for x in range(1, k):
                    total = code.intrinsic("fma", left[x], right[x], total)
                out = self.element_pointer(kind, c, [(i, sc[0]), (j, sc[1])], 0)
                if self._beta:
                    total = code.load(kind, out) * self._beta + total
                code.store(total, out)

            self.emit_loop(count, emit_element)

        if m < n:
            self.emit_loop(m, lambda i: emit_row(i, first, n if count is None else count))
        else:
            begin = first

            def emit_rows(i: LLVMValue) -> None:
                emit_row(i if begin is None else begin + i, None, n)

            self.emit_loop(m if count is None else count, emit_rows)

    def _can_emit_tiles(self, sizes: tuple[int, int, int], strides: list[tuple[int, ...]]) -> bool:
        """Return whether loops of our own take a product: of real numbers, and of fixed sizes."""
        numbers = (*sizes, *[step for pair in strides for step in pair])
        fixed = not any(isinstance(x, SymbolicDim) for x in numbers)
        return fixed and self._type in ("f4", "f8") and sizes[2] > 1

    def _few_rows(
        self, sizes: tuple[int, int, int], strides: list[tuple[int, ...]]
    ) -> FewRowsShape | None:
        """Return the shape of a product with few rows or columns; None for another."""
        (m, n, k), (sa, sb, _) = sizes, strides
        if self._swaps_operands(m, n):
            m, n, sa, sb = n, m, sb[::-1], sa[::-1]
        if m > MAX_ROWS:
            return None
        return FewRowsShape(m, n, k, sb[0] == 1, fits_stack(sa, (m, k)))

    def _swaps_operands(self, m: int, n: int) -> bool:
        """Return whether the left operand is the matrix that a product of few columns reads."""
        return self._types[0] in HALVES or (self._types[1] not in HALVES and n < m)

    def _emit_few_rows(
        self,
        start: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
    ) -> None:
        """Generate a product of few rows or columns with a matrix that is read as it lies."""
        (m, n, k), (sa, sb, sc) = sizes, strides
        order = [0, 1, 2]
        if self._swaps_operands(m, n):
            order, m, n = [1, 0, 2], n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]

        def emit(first: LLVMValue | None, count: int | LLVMValue | None) -> None:
            left, right, out = [
                Strided(self._types[o], start(o), *steps)
                for o, steps in zip(order, (sa, sb, sc), strict=True)
            ]
            rows = FewRows(self, left, right, out, (m, n, k), self._beta)
            emit_columns = rows.emit_dots if sb[0] == 1 else rows.emit_stream
            emit_columns(first, n if count is None else count)

        # LLVM adds up the dots of single columns in another order than those of a tile.
        self._emit_own_blocks(n, emit, mergeable=sb[0] != 1)

    def _emit_gemm(
        self,
        start: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
    ) -> None:
        (a, b, c), (m, n, k), (sa, sb, sc) = (0, 1, 2), sizes, strides
        if (
            sc[1] != 1 and n > 1
        ):  # swap: the transpose of a product is the product of the transposes
            a, b, m, n = b, a, n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        how_a, step_a = _blas_layout(sa, (m, k))
        how_b, step_b = _blas_layout(sb, (k, n))
        letter = BLAS_PREFIXES[self._type]
        one, beta = self._blas_scalar(1.0), self._blas_scalar(self._beta)
        step_c = max(sc[0] if m > 1 else n, n)

        def emit_call(m: int | str, n: int | str, a: str, b: str, c: str) -> None:
            self.code.line(
                f"call void @ody_{letter}gemm(i32 {_ROW_MAJOR}, i32 {how_a}, i32 {how_b}, i64 {m}, "
                f"i64 {n}, i64 {k}, {one}, ptr {a}, i64 {step_a}, ptr {b}, i64 {step_b}, "
                f"{beta}, ptr {c}, i64 {step_c})"
            )

        def emit_all() -> None:
            emit_call(m, n, start(a), start(b), start(c))

        def emit_block(k: LLVMValue, i: LLVMValue, count: int | LLVMValue) -> None:
            out = start(c)
            length = count.text if isinstance(count, LLVMValue) else count
            if m > n:
                first = self.element_pointer(self._type, start(a), [(i, sa[0])], 0)
                right = start(b)
                out = self.element_pointer(self._type, out, [(i, sc[0])], 0)
                emit_call(length, n, first, right, out)
            else:
                first = self.element_pointer(self._type, start(b), [(i, sb[1])], 0)
                left = start(a)
                out = self.element_pointer(self._type, out, [(i, sc[1])], 0)
                emit_call(m, length, left, first, out)

        shared = self._is_single and not self.single_threaded
        size = gemm_block_size(m, n, k) if shared else None
        if size is None:
            self._emit_unshared(emit_all, m * n * k)
        else:
            self._emit_all_or_blocks(max(m, n), size, emit_all, emit_block, False)

    def _emit_gemv(
        self,
        start: Callable[[int], str],
        sizes: tuple[int, int, int],
        strides: list[tuple[int, ...]],
    ) -> None:
        """Generate a product with a vector; OpenBLAS packs the matrix for one of one row."""
        (a, b, c), (m, n, k), (sa, sb, sc) = (0, 1, 2), sizes, strides
        if n > 1:  # swap: the transpose of a product is the product of the transposes
            a, b, m = b, a, n
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        how, step = _blas_layout(sa, (m, k))
        rows, columns = (m, k) if how == _NO_TRANSPOSE else (k, m)

        def emit_all() -> None:
            self.code.line(
                f"call void @ody_{BLAS_PREFIXES[self._type]}gemv(i32 {_ROW_MAJOR}, i32 {how}, "
                f"i64 {rows}, i64 {columns}, {self._blas_scalar(1.0)}, ptr {start(a)}, "
                f"i64 {step}, ptr {start(b)}, i64 {sb[0]}, {self._blas_scalar(self._beta)}, "
                f"ptr {start(c)}, i64 {sc[0] if m > 1 else 1})"
            )

        self._emit_unshared(emit_all, m * k)

    def _blas_scalar(self, value: float) -> str:
        """Return a scalar argument of BLAS; a complex one is passed by address."""
        if self._type in PARTS:
            return f"ptr @ody_{int(value)}_{self._type}"
        return f"{LLVM[self._type]} {self.code.const(self._type, value).text}"

    def _emit_product_loops(
        self, pointers: list[str], sizes: tuple[int, int, int], strides: list[tuple[int, ...]]
    ) -> None:
        (a, b, c), (m, n, k), (sa, sb, sc) = pointers, sizes, strides
        if n < m and n < 4:  # the longer loop is the inner one
            a, b, m, n = b, a, n, m
            sa, sb, sc = sb[::-1], sa[::-1], sc[::-1]
        code, kind = self.code, self._type

        def factors(i: LLVMValue, j: LLVMValue, x: int) -> tuple[LLVMValue, LLVMValue]:
            left = self.element_pointer(kind, a, [(i, sa[0])], x * sa[1])
            right = self.element_pointer(kind, b, [(j, sb[1])], x * sb[0])
            return code.load(kind, left), code.load(kind, right)

        def emit_element(i: LLVMValue, j: LLVMValue) -> None:
            total = code.const(kind, 0.0)
            for x in range(k):
                u, v = factors(i, j, x)
                if x == 0:
                    total = u * v
                elif kind in PARTS:
                    total = u * v + total
                else:
                    total = code.intrinsic("fma", u, v, total)
            if kind in PARTS and k:
                total = total * code.const(kind, 1.0)  # as BLAS does: NaN for infinities
            out = self.element_pointer(kind, c, [(i, sc[0]), (j, sc[1])], 0)
            if self._beta:
                total = code.load(kind, out) * self._beta + total
            code.store(total, out)

        self.emit_loop(m, lambda i: self.emit_loop(n, lambda j: emit_element(i, j)))


def _merge_axes(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return axes, given by length and two strides; axes contiguous in both are merged."""
    merged: list[tuple[int, int, int]] = []
    for length, step, other in axes:
        if length == 1 and len(axes) > 1:
            continue
        if merged and merged[-1][1:] == (length * step, length * other):
            merged[-1] = (merged[-1][0] * length, step, other)
        else:
            merged.append((length, step, other))
    return merged or [(1, 1, 1)]


def _blas_layout(strides: tuple[int, ...], shape: tuple[int, int]) -> tuple[int, int]:
    """Return the transpose argument and the leading dimension of a matrix for BLAS."""
    row, column = strides
    if column == 1 or shape[1] == 1:
        return _NO_TRANSPOSE, max(row if shape[0] > 1 else shape[1], shape[1])
    return _TRANSPOSE, max(column, shape[0])
