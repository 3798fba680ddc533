"""Loop nests in LLVM IR: maps, reductions, gathers and scatters over one iteration space.

Along the last axis of a space there are as many loops, one after another, as reductions along a row
need: softmax has one for the largest element, one for the sum and one for the quotients. Sums are
the only place where the order of arithmetic is free: a sum along a row has as many partial sums as
a vector has lanes; a longer one is a float64 sum of sums of at most 2048 bytes. So its error is at
most about 2048 / 4 / 32 + 5 roundings of the largest partial sum, as of NumPy's pairwise sums.

Long nests are partitioned into blocks for threads, see ``work_partition``. Each block has partial
results of the full reductions, which are combined in the order of the blocks. Nests that scatter,
or reduce over all blocks into more than one element, are not partitioned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.codegen.reductions import combine_elements, identity_element
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, is_expensive, random_access_inputs
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import FLOATING, HALVES
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel, loop_levels, loop_role
from odyssey.compiler.schedule.work_partition import (
    Tiling,
    estimated_seconds,
    has_symbolic_sizes,
    is_worth_threads,
    overwritten_scalars,
    partition_loop,
    partition_symbolic_loop,
)
from odyssey.compiler.symbolic.dims import SymbolicDim

__all__ = ["LoopNest"]

# Elements of a slice of long rows.
BLOCK = 4096
# Bytes of a sum in the dtype of its operand, 16 elements in each lane of four vectors; such partial
# sums are added in float64.
SUM_BYTES = 2048
# Kernels with more nodes are generated in topological order. Each node takes three frames of
# Python's stack otherwise, and the caller may have used most of it.
_MAX_RECURSION = 50

_Terms = list[tuple[LLVMValue, int]]
# An index of an outer loop, and by node the stride of that loop.
_OuterIndices = list[tuple[LLVMValue, dict[int, int]]]


class LoopNest(KernelFunction):
    """Code generator of a ``loops`` kernel.

    Args:
        plan: Plan of the program.
        kernel: Kernel to generate code for.
        single_threaded: Whether to generate no blocks for the thread pool.
    """

    def __init__(self, plan: Plan, kernel: Kernel, single_threaded: bool = False) -> None:
        super().__init__(plan, kernel, single_threaded)
        self._space = kernel.space
        self._nodes = {n.id: n for n in kernel.nodes}
        self._roles = {n.id: loop_role(n, kernel.space) for n in kernel.nodes}
        self._levels = loop_levels(kernel.nodes, kernel.space)
        # Nodes computed once after the loops, from full reductions.
        self._epilogue: list[Node] = []
        # The partitioned loop while its block is generated: tiling, first index and length.
        self._block: tuple[Tiling, LLVMValue, int | LLVMValue] | None = None
        self._find_epilogue()
        self._last_level = max(
            self._levels[n.id] + (self._roles[n.id] == "row_reduce") for n in self._nest_nodes()
        )
        # By number of a randomly accessed node, its pointer and view.
        self._arrays: dict[int, tuple[str, View]] = {}
        # By number of a node in memory: pointer, first element, strides along the space.
        self._views: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self._external: dict[int, Node] = {}
        self._totals: dict[int, str] = {}
        self._row_buffers: dict[int, str] = {}
        # The first index of the row slice that is generated, if it is not the whole row.
        self._row_start: LLVMValue | None = None
        self._collect_views()
        self._loops = self._merge_loops()
        self._initialize_outputs()
        self._emit_nest_or_blocks()
        self._emit_epilogue()

    @property
    def _is_symbolic(self) -> bool:
        return self.plan.is_symbolic and has_symbolic_sizes(self.kernel)

    def _find_epilogue(self) -> None:
        """Make reductions of a single long row full reductions, which threads can share.

        Nodes that are computed once from them move behind the loops.
        """
        nodes, roles = self.kernel.nodes, self._roles
        if self.single_threaded or self._is_symbolic or math.prod(self._space[:-1]) != 1:
            return
        if not is_worth_threads(self.kernel):
            return
        epilogue = [n for n in nodes if roles[n.id] == "row"]
        once = {n.id for n in nodes if roles[n.id] in ("row", "row_reduce")}
        others = [n for n in nodes if roles[n.id] != "row"]
        if any(i.id in once for n in others for i in n.inputs) or any(
            n.kind == "gather" for n in epilogue
        ):
            return
        self._epilogue = epilogue
        for n in others:
            if roles[n.id] == "row_reduce":
                roles[n.id] = "reduce"

    def _nest_nodes(self) -> list[Node]:
        epilogue = {n.id for n in self._epilogue}
        return [n for n in self.kernel.nodes if n.id not in epilogue]

    # -------------------------------------------------------------- blocks for threads

    def _emit_nest_or_blocks(self) -> None:
        tiling = self._tiling()
        if tiling is None:
            self._initialize_totals()
            self._emit_nest(0, [])
        else:
            self._emit_nest_blocks(tiling)

    def _tiling(self) -> Tiling | None:
        """Return how the nest is partitioned into blocks; None if it is not."""
        nodes = self._nest_nodes()
        if self.single_threaded or overwritten_scalars(self.plan, self.kernel):
            return None
        if not self._is_symbolic and not is_worth_threads(self.kernel):
            return None
        roles = {self._roles[n.id] for n in nodes}
        if "scatter" in roles:
            return None
        reductions = [
            n.id
            for n in nodes
            if self._roles[n.id] in ("reduce", "reduce_rows") and not self._is_total(n)
        ]
        divisible = [all(strides[id] for id in reductions) for _, strides in self._loops]
        # A row is indivisible if something is reduced along it or computed once for it.
        divisible[-1] = divisible[-1] and self._last_level == 0 and roles <= {"full", "reduce"}
        seconds = estimated_seconds(self.kernel)
        if self._is_symbolic:  # the text must be the same at each size
            length = self._loops[0][0]
            totals = any(map(self._is_total, nodes))
            if not (isinstance(length, SymbolicDim) and divisible[0]) or totals:
                return None
            return partition_symbolic_loop(length, seconds, len(self._loops) == 1)
        step = BLOCK if any(map(self._is_total, nodes)) else 1
        return partition_loop([n for n, _ in self._loops], divisible, seconds, step)

    def _emit_nest_blocks(self, tiling: Tiling) -> None:
        nodes = self._nest_nodes()
        totals = [n for n in self.kernel.nodes if self._is_total(n)]
        partials = {n.id: self.shared_alloca(self._total_type(n), tiling.blocks) for n in totals}
        length = self._loops[tiling.depth][0]

        def emit_block(k: LLVMValue, first: LLVMValue, count: int | LLVMValue) -> None:
            self._block = tiling, first, count
            self._initialize_totals()
            self._emit_nest(0, [])
            for n in totals:
                kind = self._total_type(n)
                pointer = self.element_pointer(kind, partials[n.id], [(k, 1)], 0)
                self.store_local(self.load_local(kind, self._totals[n.id]), pointer)

        # An element of a larger block has the same value. A sum does not: LLVM takes several short
        # rows at a time, and adds those that are left over in another order.
        mergeable = all(n.kind != "reduce" for n in nodes)
        self.emit_blocks(length, tiling.length, emit_block, mergeable)
        self._initialize_totals()
        for n in totals:
            add = partial(self._add_partial, n, self._total_type(n), partials[n.id])
            self.emit_loop(tiling.blocks, add)

    def _add_partial(self, n: Node, kind: str, partials: str, k: LLVMValue) -> None:
        pointer = self.element_pointer(kind, partials, [(k, 1)], 0)
        self._accumulate(n, self.load_local(kind, pointer))

    # -------------------------------------------------------------- before and after the loops

    def _collect_views(self) -> None:
        for n in self.kernel.nodes:
            for i in random_access_inputs(n):
                self._add_array(i)
            self._external |= self.elementwise_operands(n, self._nodes)
        for i in self._external.values():
            self._add_view(i)
        for n in self.kernel.nodes:
            if n.kind == "scatter":
                self._add_array(n)
            elif n.id in self.plan.allocations:
                self._add_view(n)

    def _add_view(self, n: Node) -> None:
        allocation = self.plan.allocation(n)
        strides = allocation.view.broadcast(self._space).strides
        self._views[n.id] = (self.pointer(allocation.buffer), allocation.view.offset, strides)

    def _add_array(self, n: Node) -> None:
        if n.size == 1 and n.kind != "scatter":
            self.scalar_value(n)
        else:
            allocation = self.plan.allocation(n)
            self._arrays[n.id] = (self.pointer(allocation.buffer), allocation.view)

    def _is_total(self, n: Node) -> bool:
        """Return whether a node is a full reduction, to one element."""
        return self._roles[n.id] in ("reduce", "reduce_rows") and n.size == 1

    def _total_type(self, n: Node) -> str:
        """Return the type in which a full reduction accumulates."""
        if n.detail[0] == "sum" and n.type in FLOATING:
            return "f8"
        return "f4" if n.type in HALVES else n.type

    def _initialize_outputs(self) -> None:
        """Fill reductions over rows with their identity element; copy the base of scatters."""
        for n in self.kernel.nodes:
            if n.kind == "scatter":
                self._copy_scatter_base(n, n.inputs[0])
            if self._roles[n.id] in ("reduce", "reduce_rows") and not self._is_total(n):
                self._fill_output(n, identity_element(self.code, n.detail[0], n.type))

    def _initialize_totals(self) -> None:
        for n in self.kernel.nodes:
            if self._is_total(n):
                kind = self._total_type(n)
                self._totals[n.id] = self.alloca(kind)
                self.store_local(identity_element(self.code, n.detail[0], kind), self._totals[n.id])

    def _fill_output(self, n: Node, value: LLVMValue) -> None:
        pointer, start, strides = self._views[n.id]
        axes = [a for a, length in enumerate(n.shape) if length != 1]

        def store_element(indices: list[LLVMValue]) -> None:
            terms = list(zip(indices, [strides[a] for a in axes], strict=True))
            self.code.store(value, self.element_pointer(n.type, pointer, terms, start))

        self.emit_loops([n.shape[a] for a in axes], store_element)

    def _copy_scatter_base(self, n: Node, base: Node) -> None:
        """Copy the array that a scatter updates into its output, unless it is written in place."""
        if self.plan.is_over_base(n):
            return
        pointer, view = self._arrays[n.id]
        scalar = self.scalar_value(base) if base.size == 1 else None
        source, before = self._arrays.get(base.id, ("", view))
        before = before if scalar is not None else before.broadcast(n.shape)

        def copy_element(indices: list[LLVMValue]) -> None:
            to = list(zip(indices, view.strides, strict=True))
            terms = list(zip(indices, before.strides, strict=True))
            target = self.element_pointer(n.type, pointer, to, view.offset)
            value = scalar
            if value is None:
                value = self.code.load(
                    n.type, self.element_pointer(n.type, source, terms, before.offset)
                )
            self.code.store(value, target)

        self.emit_loops(n.shape, copy_element)

    def _emit_epilogue(self) -> None:
        values: dict[int, LLVMValue] = {}
        for n in self.kernel.nodes:
            if n.id in self._totals:
                total = self.load_local(self._total_type(n), self._totals[n.id])
                values[n.id] = self.code.cast(total, n.type)
        for n in self._epilogue:
            values[n.id] = self._compute(
                n, lambda i: values[i.id] if i.id in values else self.scalar_value(i)
            )
        for id, value in values.items():
            if id in self._views:
                pointer, start, _ = self._views[id]
                self.code.store(value, self.element_pointer(value.type, pointer, (), start))

    # -------------------------------------------------------------- the nest

    def _merge_loops(self) -> list[tuple[int, dict[int, int]]]:
        """Return lengths and strides by node of the loops; contiguous axes are merged."""
        axes = [
            (length, {id: view[2][a] for id, view in self._views.items()})
            for a, length in enumerate(self._space)
        ]
        flat = set(self._roles.values()) <= {"full", "reduce"} and not self._reads_indices()
        flat = flat and all(n.size == 1 for n in self.kernel.nodes if n.kind == "reduce")
        last = [] if flat or not axes else [axes.pop()]
        merged: list[tuple[int, dict[int, int]]] = []
        for length, strides in axes:
            if length == 1:
                continue
            if merged and not self._reads_indices():
                before, wide = merged[-1]
                if all(wide[id] == length * s for id, s in strides.items()):
                    merged[-1] = (before * length, strides)
                    continue
            merged.append((length, strides))
        self._axes = [a for a, n in enumerate(self._space[: len(axes)]) if n != 1]
        return (merged + last) or [(1, dict.fromkeys(self._views, 0))]

    def _reads_indices(self) -> bool:
        return any(i.owner.kind == "index" for n in self.kernel.nodes for i in n.inputs)

    def _emit_nest(self, depth: int, outer: _OuterIndices) -> None:
        """Generate the loops from a depth on, within outer loops."""
        length, strides = self._loops[depth]
        first: LLVMValue | None = None
        count: int | LLVMValue = length
        if self._block is not None and self._block[0].depth == depth:
            _, first, count = self._block
        if depth < len(self._loops) - 1:

            def emit_body(i: LLVMValue) -> None:
                i = i if first is None else first + i
                self._emit_nest(depth + 1, [*outer, (i, strides)])

            self.emit_loop(count, emit_body)
        elif length > 2 * BLOCK and self._is_row_splittable():
            self._emit_split_row(first, count, strides, outer)
        elif first is not None:
            self._emit_row_slice(first, count, strides, outer)
        else:
            self._emit_row(count, strides, outer)

    def _is_row_splittable(self) -> bool:
        """Return whether a long row with full sums may be split into several short ones."""
        once = "reduce_rows" in self._roles.values()
        return bool(self._totals) and self._last_level == 0 and not once

    def _emit_split_row(
        self,
        begin: LLVMValue | None,
        length: int | LLVMValue,
        strides: dict[int, int],
        outer: _OuterIndices,
    ) -> None:
        def emit_slice(done: LLVMValue, count: LLVMValue) -> None:
            first = done if begin is None else begin + done
            self._emit_row_slice(first, count, strides, outer)

        self._emit_chunks(BLOCK, length, emit_slice)

    def _emit_chunks(
        self, size: int, length: int | LLVMValue, body: Callable[[LLVMValue, LLVMValue], None]
    ) -> None:
        """Generate a loop over chunks: ``body(first index, length)`` for each."""
        code = self.code
        end = length.text if isinstance(length, LLVMValue) else length

        def emit_chunk(k: LLVMValue) -> None:
            first = code.op("i8", f"mul nuw nsw i64 {k.text}, {size}")
            rest = code.op("i8", f"sub nsw i64 {end}, {first.text}")
            body(first, code.op("i8", f"call i64 @llvm.smin.i64(i64 {rest.text}, i64 {size})"))

        if isinstance(length, int):
            self.emit_loop(-(-length // size), emit_chunk)
            return
        above = code.op("i8", f"add nuw nsw i64 {length.text}, {size - 1}")
        self.emit_loop(code.op("i8", f"udiv i64 {above.text}, {size}"), emit_chunk)

    def _emit_row_slice(
        self,
        first: LLVMValue,
        count: int | LLVMValue,
        strides: dict[int, int],
        outer: _OuterIndices,
    ) -> None:
        self._row_start = first
        self._emit_row(count, strides, [*outer, (first, strides)])
        self._row_start = None

    def _emit_row(
        self, length: int | LLVMValue, strides: dict[int, int], outer: _OuterIndices
    ) -> None:
        """Generate the loops along a row, for one choice of the outer indices."""
        self._row_values: dict[int, LLVMValue] = {}
        self._inner_strides, self._outer_indices = strides, outer
        self._row_pointers: dict[int, str] = {}
        for id, (pointer, start, _) in self._views.items():
            if id not in self._totals:
                terms = [(index, by[id]) for index, by in outer]
                node = self._external.get(id) or self._nodes[id]
                self._row_pointers[id] = self.element_pointer(node.type, pointer, terms, start)
        for level in range(self._last_level + 1):
            nodes = [n for n in self._nest_nodes() if self._levels[n.id] == level]
            for n in nodes:
                if self._roles[n.id] == "row":
                    self._emit_row_value(n)
                elif self._roles[n.id] == "reduce_rows":
                    self._accumulate(n, self._row_value(n.inputs[0]))
            roots = [
                n
                for n in nodes
                if self._roles[n.id] in ("row_reduce", "reduce", "scatter")
                or (self._roles[n.id] == "full" and (n.id in self._views or self._crosses(n)))
            ]
            if roots:
                self._emit_row_loop(level, roots, length)

    def _emit_row_value(self, n: Node) -> None:
        self._row_values[n.id] = self._compute(n, self._row_value)
        if n.id in self._row_pointers:
            self.code.store(self._row_values[n.id], self._row_pointers[n.id])

    def _row_value(self, n: Node) -> LLVMValue:
        """Return a value that a row has once."""
        if n.id in self._row_values:
            return self._row_values[n.id]
        if n.id in self._row_pointers:
            return self.code.load(n.type, self._row_pointers[n.id])
        if n.owner.kind == "index" and n.size > 1:
            return self._axis_index(n, None)
        return self.scalar_value(n)

    def _axis_index(self, n: Node, inner: LLVMValue | None) -> LLVMValue:
        """Return the index along an axis of the space; axes are not merged where it is read."""
        axis = len(self._space) - len(n.owner.shape) + n.owner.detail
        if n.owner.size == 1:
            return self.code.const("i8", 0)
        if axis == len(self._space) - 1:
            assert inner is not None, "the index along a row is not constant in it"
            return inner
        return self._outer_indices[self._axes.index(axis)][0]

    def _crosses(self, n: Node) -> bool:
        """Return whether a later loop along the row uses a value that is expensive to recompute."""
        return is_expensive(n) and any(
            u.id in self._nodes
            and self._levels[u.id] > self._levels[n.id]
            and self._roles[u.id] in ("full", "row_reduce", "reduce")
            for u in self.plan.fused.users[n.id]
        )

    # -------------------------------------------------------------- one loop along a row

    def _emit_row_loop(self, level: int, roots: list[Node], length: int | LLVMValue) -> None:
        code = self.code
        accumulators: dict[int, str] = {}
        for n in roots:
            if self._reduces_row(n):
                accumulators[n.id] = self.alloca(n.type)
                neutral = identity_element(code, n.detail[0], n.type)
                self.store_local(neutral, accumulators[n.id])

        def emit_body(j: LLVMValue) -> None:
            values: dict[int, LLVMValue] = {}
            stores: list[tuple[LLVMValue, str]] = []
            for n in self._nodes_in_order(level):
                self._element(n, j, level, values)
            for n in roots:
                if self._roles[n.id] == "full":
                    stores += self._stores(n, self._element(n, j, level, values), j)
                    continue
                value = self._element(n.inputs[n.kind == "scatter"], j, level, values)
                if n.kind == "scatter":
                    indices = [self._element(i, j, level, values) for i in n.inputs[2:]]
                    pointer = self._indexed_pointer(n, n, indices)
                    stores.append((self._scattered(n, value, pointer), pointer))
                elif n.id in accumulators:
                    old = self.load_local(n.type, accumulators[n.id])
                    hidden = n.inputs[0].kind == "map"
                    combined = combine_elements(code, n.detail[0], old, value, hidden=hidden)
                    self.store_local(combined, accumulators[n.id])
                else:
                    pointer = self._row_element_pointer(n, j)
                    old = code.load(n.type, pointer)
                    stores.append((combine_elements(code, n.detail[0], old, value), pointer))
            for word, pointer in stores:
                code.store(word, pointer)

        sums = [
            (n, accumulators[n.id]) for n in roots if n.id in accumulators and _is_rounded_sum(n)
        ]
        pairwise: dict[int, LLVMValue] = {}
        size = SUM_BYTES // max((ITEM_SIZES[n.type] for n, _ in sums), default=1)
        long = length > size if isinstance(length, int) else self._row_start is not None
        if sums and long:
            pairwise = self._emit_sums_of_sums(size, length, sums, emit_body)
        else:
            self.emit_loop(length, emit_body, len(sums))
        for n in roots:
            if n.id in accumulators:
                value = pairwise.get(n.id)
                if value is None:
                    value = self.load_local(n.type, accumulators[n.id])
                self._finish_row_reduction(n, value)

    def _emit_sums_of_sums(
        self,
        size: int,
        length: int | LLVMValue,
        sums: Sequence[tuple[Node, str]],
        body: Callable[[LLVMValue], None],
    ) -> dict[int, LLVMValue]:
        """Generate a loop in chunks, whose sums are added in float64.

        Args:
            size: Indices of a chunk.
            length: Indices of the loop.
            sums: Nodes with the locals to which ``body`` adds.
            body: Generates the code at an index.

        Returns:
            The sum of each node, by its number.
        """
        code = self.code
        totals = [self.alloca("f8") for _ in sums]
        for total in totals:
            self.store_local(code.const("f8", 0), total)

        def emit_chunk(first: LLVMValue, count: LLVMValue) -> None:
            for n, accumulator in sums:
                self.store_local(identity_element(code, "sum", n.type), accumulator)
            self.emit_loop(count, lambda j: body(first + j), len(sums))
            for total, (n, accumulator) in zip(totals, sums, strict=True):
                chunk_sum = code.cast(self.load_local(n.type, accumulator), "f8")
                self.store_local(self.load_local("f8", total) + chunk_sum, total)

        self._emit_chunks(size, length, emit_chunk)
        return {
            n.id: code.cast(self.load_local("f8", total), n.type)
            for total, (n, _) in zip(totals, sums, strict=True)
        }

    def _nodes_in_order(self, level: int) -> list[Node]:
        """Return the nodes of a loop in topological order if the kernel is large; else nothing."""
        nodes, space = self.kernel.nodes, self._space
        if len(nodes) <= _MAX_RECURSION:
            return []
        return [n for n in nodes if loop_role(n, space) == "full" and self._levels[n.id] <= level]

    def _reduces_row(self, n: Node) -> bool:
        """Return whether the last axis is reduced, so that a loop along it has one accumulator."""
        if self._roles[n.id] == "row_reduce" or n.id in self._totals:
            return True
        return self._roles[n.id] == "reduce" and len(self._space) - 1 in n.detail[1]

    def _finish_row_reduction(self, n: Node, value: LLVMValue) -> None:
        if self._roles[n.id] != "row_reduce":
            self._accumulate(n, value)
            return
        self._row_values[n.id] = value
        if n.id in self._row_pointers:
            self.code.store(value, self._row_pointers[n.id])

    def _accumulate(self, n: Node, value: LLVMValue) -> None:
        """Combine the value of a row with a reduction that goes on over rows."""
        code, how = self.code, n.detail[0]
        if n.id in self._totals:
            kind, accumulator = self._total_type(n), self._totals[n.id]
            old = self.load_local(kind, accumulator)
            combined = combine_elements(code, how, old, code.cast(value, kind), strictly=True)
            self.store_local(combined, accumulator)
        else:
            old = code.load(n.type, self._row_pointers[n.id])
            code.store(
                combine_elements(code, how, old, value, strictly=True), self._row_pointers[n.id]
            )

    def _row_element_pointer(self, n: Node, j: LLVMValue) -> str:
        terms = [(j, self._inner_strides[n.id])]
        return self.element_pointer(n.type, self._row_pointers[n.id], terms, 0)

    def _stores(self, n: Node, value: LLVMValue, j: LLVMValue) -> list[tuple[LLVMValue, str]]:
        """Return where the value at index ``j`` is stored: memory, or a buffer for later loops."""
        if n.id in self._views:
            return [(value, self._row_element_pointer(n, j))]
        if not self._crosses(n):
            return []
        if n.id not in self._row_buffers:
            self._row_buffers[n.id] = self.alloca(n.type, self._space[-1])
        return [(value, self.element_pointer(n.type, self._row_buffers[n.id], [(j, 1)], 0))]

    def _element(
        self, n: Node, j: LLVMValue, level: int, values: dict[int, LLVMValue]
    ) -> LLVMValue:
        """Return the value of a node at index ``j`` of the row."""
        if n.id in values:
            return values[n.id]
        code = self.code
        earlier = n.id in self._nodes and self._levels[n.id] < level
        if n.id in self._row_values:
            value = self._row_values[n.id]
        elif n.owner.kind == "index" and n.size > 1:
            value = self._axis_index(n, j if self._row_start is None else self._row_start + j)
        elif n.id in self._external or (earlier and n.id in self._views):
            value = code.load(n.type, self._row_element_pointer(n, j))
        elif n.id not in self._nodes:
            value = self.scalar_value(n)
        elif earlier and n.id in self._row_buffers:
            pointer = self.element_pointer(n.type, self._row_buffers[n.id], [(j, 1)], 0)
            value = code.load(n.type, pointer)
        else:
            value = self._compute(n, lambda i: self._element(i, j, level, values))
        values[n.id] = value
        return value

    def _compute(self, n: Node, get: Callable[[Node], LLVMValue]) -> LLVMValue:
        """Generate a map or a gather whose inputs ``get`` returns."""
        if n.kind == "gather":
            indices = list(map(get, n.inputs[1:]))
            return self.code.load(n.type, self._indexed_pointer(n, n.inputs[0], indices))
        return self.evaluate_map(n, list(map(get, n.inputs)))

    # -------------------------------------------------------------- gathers and scatters

    def _indexed_pointer(self, n: Node, array: Node, indices: list[LLVMValue]) -> str:
        """Return the pointer to an element at indices, which are clamped to the array."""
        pointer, view = self._arrays[array.id]
        terms = []
        for node, index, length, stride in zip(
            n.inputs[-len(indices) :], indices, view.shape, view.strides, strict=True
        ):
            if node.owner.kind != "index" or node.owner.size > length:
                largest = self.code.const("i8", length - 1)
                index = self.code.call("i8", "llvm.umin.i64", index, largest)
            terms.append((index, stride))
        return self.element_pointer(n.type, pointer, terms, view.offset)

    def _scattered(self, n: Node, value: LLVMValue, pointer: str) -> LLVMValue:
        """Return the value to store where a scatter writes an element."""
        if n.detail == "set":
            return value
        return combine_elements(
            self.code, n.detail, self.code.load(n.type, pointer), value, strictly=True
        )


def _is_rounded_sum(n: Node) -> bool:
    return bool(n.detail[0] == "sum" and n.type in FLOATING)
