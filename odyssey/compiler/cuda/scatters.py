"""CUDA kernels of scatters: sort the positions, then combine each run of equal ones in order.

No atomics: elements that go to one position are combined in row-major order, as on the CPU, so
results have the same bits in each run. Axes of the elements that are axes of the result as well,
such as the columns of an embedding, need no sorting: only rows are sorted. Three kernels do it:

1. the position of each row, as one number, its key;
2. a stable sort of the rows by key: ranks by comparing all pairs where rows are few, and else a
   radix sort in which each thread counts and moves the rows of its own chunk;
3. a thread for the first row of each run and each column, which combines the run.

Where no two elements can meet, one kernel writes all elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from odyssey.compiler.codegen.reductions import combine_elements
from odyssey.compiler.cuda.device_function import DeviceFunction, UnsupportedKernelError
from odyssey.compiler.cuda.loops import (
    BufferCopy,
    DeviceLaunch,
    LaunchShape,
    LoopKernels,
    loop_kernels,
    with_copies,
)
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import HALVES
from odyssey.compiler.schedule.buffer_assignment import Allocation, Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["scatter_kernels"]

_COMPARED_ROWS = 2048
"""Most rows that are ranked by comparing all pairs."""

_DIGIT = 8
"""Bits of the key by which a pass of the radix sort sorts."""

_MOST_CHUNKS = 1024
"""Most chunks of rows that threads count and move; each has a table of counts."""

_CHUNK_ROWS = 32
"""Least rows of a chunk, if there are more than one."""

_LIMIT = 1 << 32
"""Keys and rows are numbered in 32 bits."""


class _Axes:
    """Axes of a scatter: those whose elements meet at no position, and the others.

    Attributes:
        columns: By axis of the elements that is an axis of the result, the latter.
        rows: Long axes of the elements that are no columns.
        keyed: Axes of the result that are no columns.
        row_count: Number of rows.
        key_count: Number of positions where rows go.
    """

    def __init__(self, n: Node) -> None:
        space = n.inputs[1].shape
        varied: set[int] = set()
        identity: dict[int, int] = {}
        repeated: set[int] = set()
        for axis, index in enumerate(n.inputs[2:]):
            skipped = len(space) - len(index.owner.shape)
            if index.owner.kind == "index" and index.owner.size > 1:
                source = skipped + index.owner.detail
                if source in identity or index.owner.size > n.shape[axis]:
                    repeated.add(source)
                identity.setdefault(source, axis)
            else:
                skipped = len(space) - len(index.shape)
                varied |= {skipped + a for a, length in enumerate(index.shape) if length > 1}
        self.columns = {
            a: identity[a] for a in sorted(identity) if a not in varied and a not in repeated
        }
        self.rows = [a for a, n in enumerate(space) if n > 1 and a not in self.columns]
        own = set(self.columns.values())
        self.keyed = [a for a in range(len(n.shape)) if a not in own]
        self.row_count = math.prod(space[a] for a in self.rows)
        self.key_count = math.prod(n.shape[a] for a in self.keyed)


class _ScatterFunction(DeviceFunction):
    """Base of the code generators of a scatter's kernels."""

    def __init__(self, plan: Plan, kernel: Kernel, axes: _Axes) -> None:
        super().__init__(plan, kernel, single_threaded=True)
        (self._node,) = kernel.nodes
        self._axes, self._space = axes, kernel.space
        self._views: dict[int, tuple[str, View]] = {}

    def _prepare(self, *operands: Node) -> None:
        """Load scalars, and find arrays, before the loops."""
        for n in operands:
            if n.size == 1:
                self.scalar_value(n)
            elif n.owner.kind != "index":
                buffer, view = self.plan.allocation(n)
                self._views[n.id] = self.pointer(buffer), view.broadcast(self._space)

    def _operand_at(self, n: Node, at: dict[int, LLVMValue]) -> LLVMValue:
        """Return the value of an operand at indices along the space."""
        zero = self.code.const("i8", 0)
        if n.size == 1:
            return self.scalar_value(n)
        if n.owner.kind == "index":
            return at.get(len(self._space) - len(n.owner.shape) + n.owner.detail, zero)
        pointer, view = self._views[n.id]
        terms = [(at[a], view.strides[a]) for a in sorted(at)]
        return self.code.load(n.type, self.element_pointer(n.type, pointer, terms, view.offset))

    def _result_index(self, axis: int, at: dict[int, LLVMValue]) -> LLVMValue:
        """Return the index of an element along an axis of the result, clamped to its length."""
        operand, length = self._node.inputs[2 + axis], self._node.shape[axis]
        index = self._operand_at(operand, at)
        if operand.owner.kind != "index" or operand.owner.size > length:
            largest = self.code.const("i8", length - 1)
            index = self.code.call("i8", "llvm.umin.i64", self.code.cast(index, "i8"), largest)
        return index

    def _result_pointer(self, at: dict[int, LLVMValue]) -> str:
        """Return the pointer to an element of the result at indices along its axes."""
        buffer, view = self.plan.allocation(self._node)
        terms = [(at[a], view.strides[a]) for a in sorted(at)]
        return self.element_pointer(self._node.type, self.pointer(buffer), terms, view.offset)

    def _number_pointer(self, buffer: Buffer, index: LLVMValue) -> str:
        return self.element_pointer("u4", self.pointer(buffer), [(index, 1)], 0)

    def _load_number(self, buffer: Buffer, index: LLVMValue) -> LLVMValue:
        """Return an element of an array of 32-bit numbers."""
        return self.code.cast(self.code.load("u4", self._number_pointer(buffer, index)), "i8")

    def _store_number(self, value: LLVMValue, buffer: Buffer, index: LLVMValue) -> None:
        self.code.store(self.code.cast(value, "u4"), self._number_pointer(buffer, index))

    def _for_threads(self, count: int, body: Callable[[LLVMValue], None]) -> None:
        """Generate a loop over numbers that all threads share."""
        self.emit_strided_loop("%thread", str(count), "%all", body)

    def _combine(self, at: dict[int, LLVMValue], value: LLVMValue) -> None:
        """Write or combine an element where the result has indices."""
        pointer, how = self._result_pointer(at), self._node.detail
        if how != "set":
            before = self.code.load(self._node.type, pointer)
            value = combine_elements(self.code, how, before, value, strictly=True)
        self.code.store(value, pointer)


class _BaseFunction(_ScatterFunction):
    """Code generator of the copy of the array that a scatter updates."""

    def __init__(self, plan: Plan, kernel: Kernel, axes: _Axes) -> None:
        super().__init__(plan, kernel, axes)
        n, base = self._node, self._node.inputs[0]
        self._space = n.shape
        self._prepare(base)

        def copy_base_element(k: LLVMValue) -> None:
            at = self.split_index(k, range(len(n.shape)), n.shape)
            value = self.code.cast(self._operand_at(base, at), n.type)
            self.code.store(value, self._result_pointer(at))

        self._for_threads(n.size, copy_base_element)


class _WriteFunction(_ScatterFunction):
    """Code generator of a scatter of elements that never meet."""

    def __init__(self, plan: Plan, kernel: Kernel, axes: _Axes) -> None:
        super().__init__(plan, kernel, axes)
        n = self._node
        self._prepare(*n.inputs[1:])

        def write_element(k: LLVMValue) -> None:
            at = self.split_index(k, range(len(self._space)), self._space)
            target = {a: self._result_index(a, at) for a in range(len(n.shape))}
            self._combine(target, self.code.cast(self._operand_at(n.inputs[1], at), n.type))

        self._for_threads(n.inputs[1].size, write_element)


class _KeysFunction(_ScatterFunction):
    """Code generator of the keys of rows."""

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, keys: Buffer, rows: Buffer | None
    ) -> None:
        super().__init__(plan, kernel, axes)
        n = self._node
        self._prepare(*[n.inputs[2 + a] for a in axes.keyed])

        def emit_key(r: LLVMValue) -> None:
            at = self.split_index(r, axes.rows, self._space)
            key = self.code.const("i8", 0)
            for a in axes.keyed:
                if n.shape[a] > 1:
                    key = key * n.shape[a] + self._result_index(a, at)
            self._store_number(key, keys, r)
            if rows is not None:
                self._store_number(r, rows, r)

        self._for_threads(axes.row_count, emit_key)


class _RankFunction(_ScatterFunction):
    """Code generator of a stable sort by comparing all pairs."""

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, keys: Buffer, to: tuple[Buffer, Buffer]
    ) -> None:
        super().__init__(plan, kernel, axes)
        code, rank = self.code, self.alloca("i8")

        def emit_rank(r: LLVMValue) -> None:
            key = self._load_number(keys, r)
            self.store_local(code.const("i8", 0), rank)

            def compare(other: LLVMValue) -> None:
                found = self._load_number(keys, other)
                less = code.op("b1", f"icmp ult i64 {found.text}, {key.text}")
                equal = code.op("b1", f"icmp eq i64 {found.text}, {key.text}")
                earlier = code.op("b1", f"icmp ult i64 {other.text}, {r.text}")
                before = code.cast(less | (equal & earlier), "i8")
                self.store_local(self.load_local("i8", rank) + before, rank)

            self.emit_strided_loop("0", str(axes.row_count), "1", compare)
            self._store_number(key, to[0], self.load_local("i8", rank))
            self._store_number(r, to[1], self.load_local("i8", rank))

        self._for_threads(axes.row_count, emit_rank)


class _RadixSort:
    """A stable radix sort of rows by keys.

    Attributes:
        launches: Its launches.
        keys: Buffer with the sorted keys.
        rows: Buffer with the rows in their order.
    """

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, shape: LaunchShape, pairs: list[Buffer]
    ) -> None:
        self.launches: list[DeviceLaunch] = []
        chunks = max(1, min(_MOST_CHUNKS, -(-axes.row_count // _CHUNK_ROWS)))
        length = -(-axes.row_count // chunks)
        chunks = -(-axes.row_count // length)
        bits = max(1, (axes.key_count - 1).bit_length())
        digits = 1 << min(_DIGIT, bits)
        counts = _number_buffer(digits * chunks)
        sums = _number_buffer(digits)
        keys, rows, other_keys, other_rows = pairs
        for shift in range(0, bits, _DIGIT):
            step = _RadixStep(axes.row_count, length, chunks, digits, shift, counts)
            moved = (keys, rows, other_keys, other_rows)
            for function, threads in (
                (_CountFunction(plan, kernel, axes, step, keys), chunks),
                (_SumFunction(plan, kernel, axes, step, sums), digits),
                (_PrefixFunction(plan, kernel, axes, step, sums), digits),
                (_MoveFunction(plan, kernel, axes, step, moved), chunks),
            ):
                self.launches.append(_launch(function, threads, shape))
            keys, rows, other_keys, other_rows = other_keys, other_rows, keys, rows
        self.keys, self.rows = keys, rows


class _RadixStep:
    """A pass of the radix sort: numbers that its kernels share.

    Args:
        rows: Number of rows.
        length: Rows of a chunk; the last may have fewer.
        chunks: Number of chunks.
        digits: Number of values of a digit.
        shift: Bits of the key below the digit.
        counts: Buffer with a number for each digit and chunk, those of a digit side by side.
    """

    def __init__(
        self, rows: int, length: int, chunks: int, digits: int, shift: int, counts: Buffer
    ) -> None:
        self.rows, self.length, self.chunks = rows, length, chunks
        self.digits, self.shift, self.counts = digits, shift, counts

    def slot(self, function: _ScatterFunction, key: LLVMValue, chunk: LLVMValue) -> LLVMValue:
        """Return the index in ``counts`` of a key's digit and a chunk."""
        code = function.code
        moved = code.op("i8", f"lshr i64 {key.text}, {self.shift}")
        digit = code.op("i8", f"and i64 {moved.text}, {self.digits - 1}")
        return digit * self.chunks + chunk

    def emit_chunk(
        self, function: _ScatterFunction, chunk: LLVMValue, body: Callable[[LLVMValue], None]
    ) -> None:
        """Generate a loop over the rows of a chunk."""
        code = function.code
        first = code.op("i8", f"mul nuw nsw i64 {chunk.text}, {self.length}")
        end = code.call("i8", "llvm.smin.i64", first + self.length, code.const("i8", self.rows))
        function.emit_strided_loop(first.text, end.text, "1", body)


class _CountFunction(_ScatterFunction):
    """Code generator of the counts: how often each digit comes in each chunk."""

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, step: _RadixStep, keys: Buffer
    ) -> None:
        super().__init__(plan, kernel, axes)

        def emit_counts(chunk: LLVMValue) -> None:
            zero = self.code.const("i8", 0)
            self.emit_strided_loop(
                "0",
                str(step.digits),
                "1",
                lambda d: self._store_number(zero, step.counts, d * step.chunks + chunk),
            )

            def count(r: LLVMValue) -> None:
                slot = step.slot(self, self._load_number(keys, r), chunk)
                self._store_number(self._load_number(step.counts, slot) + 1, step.counts, slot)

            step.emit_chunk(self, chunk, count)

        self._for_threads(step.chunks, emit_counts)


class _SumFunction(_ScatterFunction):
    """Code generator of the sums: how often each digit comes."""

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, step: _RadixStep, sums: Buffer
    ) -> None:
        super().__init__(plan, kernel, axes)
        total = self.alloca("i8")

        def emit_sum(digit: LLVMValue) -> None:
            self.store_local(self.code.const("i8", 0), total)

            def add(chunk: LLVMValue) -> None:
                one = self._load_number(step.counts, digit * step.chunks + chunk)
                self.store_local(self.load_local("i8", total) + one, total)

            self.emit_strided_loop("0", str(step.chunks), "1", add)
            self._store_number(self.load_local("i8", total), sums, digit)

        self._for_threads(step.digits, emit_sum)


class _PrefixFunction(_ScatterFunction):
    """Code generator of the starts: where the rows of each digit and chunk go."""

    def __init__(
        self, plan: Plan, kernel: Kernel, axes: _Axes, step: _RadixStep, sums: Buffer
    ) -> None:
        super().__init__(plan, kernel, axes)
        start = self.alloca("i8")

        def emit_starts(digit: LLVMValue) -> None:
            self.store_local(self.code.const("i8", 0), start)

            def add(before: LLVMValue) -> None:
                one = self._load_number(sums, before)
                self.store_local(self.load_local("i8", start) + one, start)

            self.emit_strided_loop("0", digit.text, "1", add)

            def replace_count(chunk: LLVMValue) -> None:
                slot = digit * step.chunks + chunk
                one, here = self._load_number(step.counts, slot), self.load_local("i8", start)
                self._store_number(here, step.counts, slot)
                self.store_local(here + one, start)

            self.emit_strided_loop("0", str(step.chunks), "1", replace_count)

        self._for_threads(step.digits, emit_starts)


class _MoveFunction(_ScatterFunction):
    """Code generator of the moves: each chunk writes its rows in order."""

    def __init__(
        self,
        plan: Plan,
        kernel: Kernel,
        axes: _Axes,
        step: _RadixStep,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer],
    ) -> None:
        super().__init__(plan, kernel, axes)
        keys, rows, to_keys, to_rows = buffers

        def move(r: LLVMValue, chunk: LLVMValue) -> None:
            key = self._load_number(keys, r)
            slot = step.slot(self, key, chunk)
            target = self._load_number(step.counts, slot)
            self._store_number(key, to_keys, target)
            self._store_number(self._load_number(rows, r), to_rows, target)
            self._store_number(target + 1, step.counts, slot)

        self._for_threads(
            step.chunks,
            lambda chunk: step.emit_chunk(self, chunk, lambda r: move(r, chunk)),
        )


class _CombineFunction(_ScatterFunction):
    """Code generator of the last kernel: each run of equal keys is combined in order."""

    def __init__(self, plan: Plan, kernel: Kernel, axes: _Axes, keys: Buffer, rows: Buffer) -> None:
        super().__init__(plan, kernel, axes)
        self._keys, self._rows = keys, rows
        self._prepare(self._node.inputs[1])
        self._lengths = [axes.row_count, *(self._space[a] for a in axes.columns)]
        self._for_threads(math.prod(self._lengths), self._emit_thread)

    def _emit_thread(self, k: LLVMValue) -> None:
        code, last = self.code, self._axes.row_count - 1
        parts = self.split_index(k, range(len(self._lengths)), self._lengths)
        columns = {a: parts[1 + i] for i, a in enumerate(self._axes.columns) if 1 + i in parts}
        row = parts.get(0, code.const("i8", 0))
        key = self._load_number(self._keys, row)
        # The first row of a run combines it; the last one is what is set.
        is_set = self._node.detail == "set"
        end = code.op("b1", f"icmp eq i64 {row.text}, {last if is_set else 0}")
        step = 1 if is_set else -1
        near = code.op("i8", f"add nsw i64 {row.text}, {step}")
        near = code.op("i8", f"select i1 {end.text}, i64 {row.text}, i64 {near.text}")
        other = self._load_number(self._keys, near)
        differs = code.op("b1", f"icmp ne i64 {other.text}, {key.text}")

        def emit_run() -> None:
            at = self.split_index(key, self._axes.keyed, self._node.shape)
            at |= {self._axes.columns[a]: index for a, index in columns.items()}
            if is_set:
                self._combine(at, self._element_of_row(row, columns))
            else:
                self._emit_run(row, key, columns, self._result_pointer(at))

        self.emit_if(end | differs, emit_run)

    def _element_of_row(self, sorted_row: LLVMValue, columns: dict[int, LLVMValue]) -> LLVMValue:
        row = self._load_number(self._rows, sorted_row)
        at = {**self.split_index(row, self._axes.rows, self._space), **columns}
        return self.code.cast(self._operand_at(self._node.inputs[1], at), self._node.type)

    def _emit_run(
        self, row: LLVMValue, key: LLVMValue, columns: dict[int, LLVMValue], pointer: str
    ) -> None:
        """Combine the elements of rows from ``row`` on that have a key into an element."""
        code, n = self.code, self._node
        # Half precision is rounded at each step, as on the CPU, so it goes through memory.
        in_memory = n.type in HALVES
        local = "" if in_memory else self.alloca(n.type)
        if not in_memory:
            self.store_local(code.load(n.type, pointer), local)
        counter = self.alloca("i8")
        k = self._labels
        self._labels += 1
        self.store_local(row, counter)
        code.line(f"br label %run{k}")
        code.label(f"run{k}")
        here = self.load_local("i8", counter)
        value = self._element_of_row(here, columns)
        before = code.load(n.type, pointer) if in_memory else self.load_local(n.type, local)
        after = combine_elements(code, n.detail, before, value, strictly=True)
        if in_memory:
            code.store(after, pointer)
        else:
            self.store_local(after, local)
        following = code.op("i8", f"add nuw nsw i64 {here.text}, 1")
        self.store_local(following, counter)
        more = code.op("b1", f"icmp slt i64 {following.text}, {self._axes.row_count}")
        code.line(f"br i1 {more.text}, label %next{k}, label %end{k}")
        code.label(f"next{k}")
        found = self._load_number(self._keys, following)
        same = code.op("b1", f"icmp eq i64 {found.text}, {key.text}")
        code.line(f"br i1 {same.text}, label %run{k}, label %end{k}")
        code.label(f"end{k}")
        if not in_memory:
            code.store(self.load_local(n.type, local), pointer)


def _number_buffer(count: int) -> Buffer:
    """Return scratch memory for 32-bit numbers."""
    return Buffer("scratch", 0, 4 * count)


def _launch(function: DeviceFunction, threads: int, shape: LaunchShape) -> DeviceLaunch:
    grid = max(1, min(shape.blocks, -(-threads // shape.threads)))
    return DeviceLaunch(function, grid, shape.threads)


def _scatter_launches(plan: Plan, kernel: Kernel, shape: LaunchShape) -> list[DeviceLaunch]:
    """Return the launches of one scatter, whose operands are in memory."""
    (n,) = kernel.nodes
    axes = _Axes(n)
    launches = []
    if not plan.is_over_base(n):
        launches.append(_launch(_BaseFunction(plan, kernel, axes), n.size, shape))
    elements = n.inputs[1].size
    if axes.row_count == 1:
        return [*launches, _launch(_WriteFunction(plan, kernel, axes), elements, shape)]
    if max(axes.row_count, axes.key_count) >= _LIMIT:
        raise UnsupportedKernelError(
            f"cuda: a scatter of {axes.row_count} rows to {axes.key_count} positions has no CUDA "
            f"kernel; want less than {_LIMIT} of each"
        )
    keys, rows, other_keys, other_rows = (_number_buffer(axes.row_count) for _ in range(4))
    compared = axes.row_count <= _COMPARED_ROWS
    function = _KeysFunction(plan, kernel, axes, keys, None if compared else rows)
    launches.append(_launch(function, axes.row_count, shape))
    if compared:
        ranks = _RankFunction(plan, kernel, axes, keys, (other_keys, other_rows))
        launches.append(_launch(ranks, axes.row_count, shape))
        keys, rows = other_keys, other_rows
    else:
        sort = _RadixSort(plan, kernel, axes, shape, [keys, rows, other_keys, other_rows])
        launches += sort.launches
        keys, rows = sort.keys, sort.rows
    launches.append(_launch(_CombineFunction(plan, kernel, axes, keys, rows), elements, shape))
    return launches


def scatter_kernels(plan: Plan, kernel: Kernel, shape: LaunchShape) -> LoopKernels:
    """Return the CUDA kernels of a ``loops`` kernel of a plan, which may scatter.

    Raises:
        UnsupportedKernelError: it scatters to more positions than have numbers.
    """
    scatters = [n for n in kernel.nodes if n.kind == "scatter"]
    if not scatters:
        return loop_kernels(plan, kernel, shape)
    main = [n for n in kernel.nodes if n.kind != "scatter"]
    computed = {n.id: n for n in main}
    # Operands that loops compute go to memory.
    allocations = dict(plan.allocations)
    for n in scatters:
        for i in n.inputs[1:]:
            owner = i.owner
            if owner.id in computed and owner.id not in allocations:
                buffer = Buffer("scratch", owner.id, owner.size * ITEM_SIZES[owner.type])
                allocations[owner.id] = Allocation(buffer, View.dense(owner.shape))
    shared = replace(plan, allocations=allocations)
    copies: list[BufferCopy] = []
    launches: list[DeviceLaunch] = []
    if main:
        part = Kernel("loops", kernel.position, main, kernel.space)
        copies, launches = loop_kernels(shared, part, shape)
    overwritten = {id(allocations[n.id].buffer) for n in main if n.id in allocations}
    found: dict[int, BufferCopy] = {}
    for n in scatters:
        part = Kernel("loops", kernel.position, [n], kernel.space)
        own = with_copies(shared, part, overwritten, main, found)
        launches = [*launches, *_scatter_launches(own, part, shape)]
    return LoopKernels([*copies, *found.values()], launches)
