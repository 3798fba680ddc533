"""CUDA kernels of loop nests: maps, reductions and gathers over one iteration space.

The space of a kernel has outer axes, whose indices threads or blocks share, and inner axes, along
which something is reduced. Where inner axes are short, or outer indices are many, each thread goes
along the inner axes alone. Else a block takes an outer index, its threads go along the inner axes
side by side, and combine what they have by shuffles. As on the CPU there are as many loops along
the inner axes, one after another, as reductions along a row need.

Each block leaves its share of a full reduction in a table, which one more kernel combines in order.
The number of blocks has a constant bound, so every device adds in the same order, without atomics.

A kernel that reduces rows and other axes besides, such as the gradient of a bias beside a softmax,
becomes several: values of each row go to memory in between. An operand that the first of them is
written over, and a later one reads, is copied before. So is a scalar that all threads read, and one
of them writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from odyssey.compiler.cuda.device_function import WARP, DeviceFunction, UnsupportedKernelError
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, random_access_inputs
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import HALVES
from odyssey.compiler.schedule.buffer_assignment import Allocation, Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel, loop_levels, loop_role
from odyssey.compiler.schedule.work_partition import overwritten_scalars

__all__ = [
    "BufferCopy",
    "DeviceLaunch",
    "LaunchShape",
    "LoopKernels",
    "loop_kernels",
    "with_copies",
]

# Elements that a thread adds up in the dtype of a sum before it adds that in float64.
_CHUNK = 512


class LaunchShape(NamedTuple):
    """How loops are shared among threads.

    Attributes:
        threads: Threads of a block, a multiple of 32.
        blocks: Most blocks of a grid. It is a fixed number, not one of the device, so that sums
            have one order everywhere.
        row_length: Inner indices from which on a block takes an outer index together.
        columns: Outer indices from which on each thread takes its own nevertheless, if memory runs
            along them.
    """

    threads: int = 256
    blocks: int = 132 * 8
    row_length: int = 64
    columns: int = 4096


class DeviceLaunch(NamedTuple):
    """A function with the shape of its launch."""

    function: DeviceFunction
    grid: int
    block: int


class BufferCopy(NamedTuple):
    """A copy of bytes of a buffer.

    Attributes:
        target: Where to copy to.
        source: Where from.
        bytes: How many.
        start: Where they begin in the source.
    """

    target: Buffer
    source: Buffer
    bytes: int
    start: int = 0


class LoopKernels(NamedTuple):
    """The CUDA kernels of a ``loops`` kernel.

    Attributes:
        copies: Copies before the launches.
        launches: Launches in order.
    """

    copies: list[BufferCopy]
    launches: list[DeviceLaunch]


class LoopPiece(NamedTuple):
    """Nodes that one CUDA kernel computes.

    Attributes:
        plan: The plan, with other locations for some nodes.
        kernel: The nodes, and the space of the loops.
        inner: Axes of the space that are reduced.
        epilogue: Nodes that are computed once after the loops, from full reductions.
    """

    plan: Plan
    kernel: Kernel
    inner: tuple[int, ...]
    epilogue: tuple[Node, ...] = ()


# ------------------------------------------------------------------ the function of a piece


class LoopFunction(DeviceFunction):
    """Code generator of a loop nest.

    Args:
        piece: What it computes.
        by_block: Whether the threads of a block go along the inner axes together.
        grid: Number of blocks.
        width: Threads of a block.
        tables: By number of a full reduction, the buffer for the shares of the blocks.
    """

    def __init__(
        self, piece: LoopPiece, by_block: bool, grid: int, width: int, tables: dict[int, Buffer]
    ) -> None:
        super().__init__(piece.plan, piece.kernel, single_threaded=True)
        self._space, self._inner, self._by_block = piece.kernel.space, piece.inner, by_block
        epilogue = {n.id for n in piece.epilogue}
        self._own = [n for n in piece.kernel.nodes if n.id not in epilogue]
        self._nodes = {n.id: n for n in self._own}
        self._roles = {n.id: loop_role(n, self._space) for n in self._own}
        self._levels = loop_levels(self._own, self._space)
        self._arrays: dict[int, tuple[str, View]] = {}
        # By number of a node in memory: pointer, first element, strides along the space.
        self._views: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self._external: dict[int, Node] = {}
        # By number of a node, its value at the outer index.
        self._row_values: dict[int, LLVMValue] = {}
        length = math.prod(self._space[a] for a in self._inner)
        self._length = length
        self._long_sums = length > _CHUNK * (width if by_block else 1)
        self._collect_views()
        totals = [n for n in self._own if n.id in tables]
        self._totals = {n.id: self.new_accumulator(n.detail[0], self.total_type(n)) for n in totals}
        self._emit_nest()
        for n in totals:
            type = self.total_type(n)
            share = self.load_local(type, self._totals[n.id])
            total = self.block_reduction(n.detail[0], share)
            self.emit_on_first_thread(partial(self._store_share, total, tables[n.id]))

    def _store_share(self, total: LLVMValue, table: Buffer) -> None:
        block = LLVMValue(self.code, "i8", "%block")
        pointer = self.pointer(table)
        self.code.store(total, self.element_pointer(total.type, pointer, [(block, 1)], 0))

    # -------------------------------------------------------------- memory

    def _collect_views(self) -> None:
        for n in self._own:
            for i in random_access_inputs(n):
                if i.size == 1:
                    self.scalar_value(i)
                else:
                    allocation = self.plan.allocation(i)
                    self._arrays[i.id] = self.pointer(allocation.buffer), allocation.view
            self._external |= self.elementwise_operands(n, self._nodes)
        stored = [n for n in self._own if n.id in self.plan.allocations]
        for n in [*self._external.values(), *stored]:
            allocation = self.plan.allocation(n)
            strides = allocation.view.broadcast(self._space).strides
            self._views[n.id] = self.pointer(allocation.buffer), allocation.view.offset, strides

    def _pointer_at(self, n: Node, at: dict[int, LLVMValue]) -> str:
        pointer, start, strides = self._views[n.id]
        terms = [(at[a], strides[a]) for a in sorted(at)]
        return self.element_pointer(n.type, pointer, terms, start)

    def _axis_index(self, n: Node, at: dict[int, LLVMValue]) -> LLVMValue:
        axis = len(self._space) - len(n.owner.shape) + n.owner.detail
        found = at.get(axis) if n.owner.size > 1 else None
        return self.code.const("i8", 0) if found is None else found

    # -------------------------------------------------------------- the nest

    def _emit_nest(self) -> None:
        outer = [a for a in range(len(self._space)) if a not in self._inner]
        count = str(math.prod(self._space[a] for a in outer))
        first, step = ("%block", "%blocks") if self._by_block else ("%thread", "%all")
        self.emit_strided_loop(first, count, step, lambda i: self._emit_outer_index(i, outer))

    def _emit_outer_index(self, linear: LLVMValue, outer: list[int]) -> None:
        self._row_values = {}
        at = self.split_index(linear, outer, self._space)
        for level in range(max(self._levels.values(), default=0) + 1):
            nodes = [n for n in self._own if self._levels[n.id] == level]
            for n in nodes:
                role = self._roles[n.id]
                if role == "row" and self._inner:
                    self._row_values[n.id] = self._compute(n, lambda i: self._row_value(i, at))
                    self._store_once(n, at)
                elif role == "reduce_rows":
                    value = self._row_value(n.inputs[0], at)
                    self._once(partial(self._add_to_total, n, value))
            roots = [n for n in nodes if self._is_root(n)]
            if roots:
                self._emit_inner_loop(level, roots, at)

    def _is_root(self, n: Node) -> bool:
        role = self._roles[n.id]
        if role in ("row_reduce", "reduce"):
            return True
        return n.id in self._views and (role == "full" or (role == "row" and not self._inner))

    def _once(self, body: Callable[[], None]) -> None:
        """Generate code that one thread runs at an outer index."""
        if self._by_block:
            self.emit_on_first_thread(body)
        else:
            body()

    def _store_once(self, n: Node, at: dict[int, LLVMValue]) -> None:
        if n.id in self._views:
            value = self._row_values[n.id]
            self._once(lambda: self.code.store(value, self._pointer_at(n, at)))

    def _add_to_total(self, n: Node, value: LLVMValue) -> None:
        self.accumulate_locally(n.detail[0], self.total_type(n), self._totals[n.id], value)

    def _row_value(self, n: Node, at: dict[int, LLVMValue]) -> LLVMValue:
        """Return a value that is the same at all inner indices."""
        if n.id in self._row_values:
            return self._row_values[n.id]
        if n.id in self._views:
            return self.code.load(n.type, self._pointer_at(n, at))
        if n.owner.kind == "index" and n.size > 1:
            return self._axis_index(n, at)
        return self.scalar_value(n)

    # -------------------------------------------------------------- one loop along inner axes

    def _emit_inner_loop(self, level: int, roots: list[Node], outer: dict[int, LLVMValue]) -> None:
        reductions = {n.id: n for n in roots if n.kind == "reduce" and n.id not in self._totals}
        types = {id: _accumulator_type(n) for id, n in reductions.items()}
        sums = {id: self.new_accumulator(n.detail[0], types[id]) for id, n in reductions.items()}
        chunked = {
            id: self.alloca("f8")
            for id, n in reductions.items()
            if self._long_sums and n.detail[0] == "sum" and types[id] == "f4"
        }
        for local in chunked.values():
            self.store_local(self.code.const("f8", 0), local)

        def emit_at_index(j: LLVMValue) -> None:
            at = {**outer, **self.split_index(j, self._inner, self._space)}
            values: dict[int, LLVMValue] = {}
            self._emit_elements(roots, at, level, values)
            stores = []
            for n in roots:
                if n.kind != "reduce":
                    stores.append((values[n.id], self._pointer_at(n, at)))
                    continue
                value = self._element(n.inputs[0], at, level, values)
                if n.id in sums:
                    self.accumulate_locally(n.detail[0], types[n.id], sums[n.id], value)
                else:
                    self._add_to_total(n, value)
            for value, pointer in stores:
                self.code.store(value, pointer)

        if not self._inner:
            emit_at_index(self.code.const("i8", 0))
            return
        first, step = ("%lane", "%width") if self._by_block else ("0", "1")
        if chunked:
            self._emit_chunks(first, step, emit_at_index, {sums[id]: chunked[id] for id in chunked})
        else:
            self.emit_strided_loop(first, str(self._length), step, emit_at_index)
        for id, n in reductions.items():
            local, type = (chunked[id], "f8") if id in chunked else (sums[id], types[id])
            value = self.load_local(type, local)
            if self._by_block:
                value = self.block_reduction(n.detail[0], value)
            self._row_values[id] = self.code.cast(value, n.type)
            self._store_once(n, outer)

    def _emit_chunks(
        self, first: str, step: str, body: Callable[[LLVMValue], None], sums: dict[str, str]
    ) -> None:
        """Generate a loop in chunks, whose float32 sums are added to others in float64."""
        code = self.code
        stride = code.op("i8", f"mul i64 {step}, {_CHUNK}")

        def emit_chunk(begin: LLVMValue) -> None:
            for local in sums:
                self.store_local(code.const("f4", 0), local)
            end = code.call("i8", "llvm.smin.i64", begin + stride, code.const("i8", self._length))
            self.emit_strided_loop(begin.text, end.text, step, body)
            for local, total in sums.items():
                self.accumulate_locally("sum", "f8", total, self.load_local("f4", local))

        self.emit_strided_loop(first, str(self._length), stride.text, emit_chunk)

    # -------------------------------------------------------------- elements

    def _is_loaded(self, n: Node, level: int) -> bool:
        """Return whether a value is read from memory in a loop of a level."""
        earlier = n.id in self._nodes and self._levels[n.id] < level
        return n.id in self._external or (earlier and n.id in self._views)

    def _emit_elements(
        self,
        roots: Sequence[Node],
        at: dict[int, LLVMValue],
        level: int,
        values: dict[int, LLVMValue],
    ) -> None:
        """Compute what roots need at an index, inputs first: kernels are deeper than the stack."""
        needed: dict[int, Node] = {}
        stack = [i for n in roots for i in (n.inputs if n.kind == "reduce" else (n,))]
        while stack:
            n = stack.pop()
            if n.id in needed or n.id not in self._nodes or n.id in self._row_values:
                continue
            needed[n.id] = n
            if not self._is_loaded(n, level):
                stack += n.inputs
        for id in sorted(needed):
            self._element(needed[id], at, level, values)

    def _element(
        self, n: Node, at: dict[int, LLVMValue], level: int, values: dict[int, LLVMValue]
    ) -> LLVMValue:
        """Return the value of a node at an index."""
        if n.id in values:
            return values[n.id]
        if n.id in self._row_values:
            value = self._row_values[n.id]
        elif n.owner.kind == "index" and n.size > 1:
            value = self._axis_index(n, at)
        elif self._is_loaded(n, level):
            value = self.code.load(n.type, self._pointer_at(n, at))
        elif n.id not in self._nodes:
            value = self.scalar_value(n)
        else:
            value = self._compute(n, lambda i: self._element(i, at, level, values))
        values[n.id] = value
        return value

    def _compute(self, n: Node, get: Callable[[Node], LLVMValue]) -> LLVMValue:
        """Generate a map or a gather whose inputs ``get`` returns."""
        if n.kind != "gather":
            return self.evaluate_map(n, list(map(get, n.inputs)))
        array, indices = n.inputs[0], list(map(get, n.inputs[1:]))
        if array.id not in self._arrays:
            return self.scalar_value(array)
        pointer, view = self._arrays[array.id]
        terms = []
        for node, index, length, stride in zip(
            n.inputs[1:], indices, view.shape, view.strides, strict=True
        ):
            if node.owner.kind != "index" or node.owner.size > length:
                largest = self.code.const("i8", length - 1)
                index = self.code.call("i8", "llvm.umin.i64", index, largest)
            terms.append((index, stride))
        return self.code.load(n.type, self.element_pointer(n.type, pointer, terms, view.offset))


def _accumulator_type(n: Node) -> str:
    """Return the type in which a thread reduces along inner axes."""
    return "f4" if n.type in HALVES else n.type


class FinishFunction(DeviceFunction):
    """Code generator of the kernel that combines the shares of blocks.

    Args:
        piece: The piece that the blocks computed.
        grid: Number of its blocks.
        tables: By number of a full reduction, the buffer with the shares.
    """

    def __init__(self, piece: LoopPiece, grid: int, tables: dict[int, Buffer]) -> None:
        super().__init__(piece.plan, piece.kernel, single_threaded=True)
        totals = [n for n in piece.kernel.nodes if n.id in tables]
        values = {n.id: self._combined(n, tables[n.id], grid) for n in totals}

        def emit_rest() -> None:
            for n in piece.epilogue:
                inputs = [
                    values[i.id] if i.id in values else self.scalar_value(i) for i in n.inputs
                ]
                values[n.id] = self.evaluate_map(n, inputs)
            for n in (*totals, *piece.epilogue):
                if n.id in piece.plan.allocations:
                    allocation = piece.plan.allocation(n)
                    pointer = self.pointer(allocation.buffer)
                    at = self.element_pointer(n.type, pointer, (), allocation.view.offset)
                    self.code.store(values[n.id], at)

        self.emit_on_first_thread(emit_rest)

    def _combined(self, n: Node, table: Buffer, grid: int) -> LLVMValue:
        how, type = n.detail[0], self.total_type(n)
        local, pointer = self.new_accumulator(how, type), self.pointer(table)

        def add_share(k: LLVMValue) -> None:
            at = self.element_pointer(type, pointer, [(k, 1)], 0)
            self.accumulate_locally(how, type, local, self.code.load(type, at))

        self.emit_strided_loop("%lane", str(grid), "%width", add_share)
        return self.code.cast(self.block_reduction(how, self.load_local(type, local)), n.type)


# ------------------------------------------------------------------ from a kernel to pieces


def loop_kernels(plan: Plan, kernel: Kernel, shape: LaunchShape) -> LoopKernels:
    """Return the CUDA kernels of a ``loops`` kernel of a plan.

    Raises:
        UnsupportedKernelError: it copies an operand with negative strides.
    """
    copies, pieces = _split(plan, kernel)
    launches: list[DeviceLaunch] = []
    for piece in pieces:
        launches += _piece_launches(piece, shape)
    return LoopKernels(copies, launches)


def _piece_launches(piece: LoopPiece, shape: LaunchShape) -> list[DeviceLaunch]:
    """Return the launch of a piece, and of the kernel that finishes its full reductions."""
    space, nodes, inner = piece.kernel.space, piece.kernel.nodes, piece.inner
    length = math.prod(space[a] for a in inner)
    count = math.prod(n for a, n in enumerate(space) if a not in inner)
    along_rows = len(space) - 1 in inner
    by_block = bool(inner) and length >= shape.row_length and (along_rows or count < shape.columns)
    grid = max(1, min(shape.blocks, count if by_block else -(-count // shape.threads)))
    late = {n.id for n in piece.epilogue}
    totals = [n for n in nodes if n.kind == "reduce" and n.size == 1 and n.id not in late]
    totals = [n for n in totals if _is_total(n, piece)]
    tables = {
        n.id: Buffer("scratch", n.id, grid * ITEM_SIZES[DeviceFunction.total_type(n)])
        for n in totals
    }
    main = LoopFunction(piece, by_block, grid, shape.threads, tables)
    launches = [DeviceLaunch(main, grid, shape.threads)]
    if tables:
        threads = min(shape.threads, -(-grid // WARP) * WARP)
        launches.append(DeviceLaunch(FinishFunction(piece, grid, tables), 1, threads))
    return launches


def _is_total(n: Node, piece: LoopPiece) -> bool:
    """Return whether a reduction is left by each block, and not kept by an outer index."""
    role = loop_role(n, piece.kernel.space)
    return role in ("reduce", "reduce_rows") or (role == "row_reduce" and not piece.inner)


def _split(plan: Plan, kernel: Kernel) -> tuple[list[BufferCopy], list[LoopPiece]]:
    """Split a kernel into pieces with one set of inner axes each, and find the copies they need."""
    space, nodes = kernel.space, kernel.nodes
    roles = {n.id: loop_role(n, space) for n in nodes}
    epilogue = _find_epilogue(kernel, roles)
    along_rows = not epilogue.flat and bool(
        {"row", "row_reduce", "reduce_rows"} & set(roles.values())
    )
    plan, scalars = _with_scalar_copies(plan, kernel, {n.id for n in epilogue.nodes})
    partials = [n for n in nodes if roles[n.id] == "reduce" and n.size > 1]
    row_partial = [n for n in nodes if roles[n.id] == "reduce_rows" and n.size > 1]
    if along_rows:
        inner: tuple[int, ...] = (len(space) - 1,)
    else:
        inner = partials[0].detail[1] if partials else ()
    separate = [n for n in partials if along_rows or n.detail[1] != inner] + row_partial
    late = {n.id for n in separate}
    main = [n for n in nodes if n.id not in late]
    pieces = [LoopPiece(plan, _part_of(kernel, main, space), inner, epilogue.nodes)]
    if not main:
        pieces = []
    if not separate:
        return scalars, pieces
    # Values of each row go to memory, from where the later pieces read them.
    allocations = dict(plan.allocations)
    for n in main:
        if roles[n.id] in ("row", "row_reduce") and n.id not in allocations:
            buffer = Buffer("scratch", n.id, n.size * ITEM_SIZES[n.type])
            allocations[n.id] = Allocation(buffer, View.dense(n.shape))
    shared = replace(plan, allocations=allocations)
    if main:
        pieces = [pieces[0]._replace(plan=shared)]
    overwritten = {id(allocations[n.id].buffer) for n in main if n.id in allocations}
    copies: dict[int, BufferCopy] = {}
    for n in separate:
        own = space if n not in row_partial else n.inputs[0].shape
        needed = _recomputed(n, main, allocations) if n not in row_partial else [n]
        part = _part_of(kernel, needed, own)
        piece_plan = with_copies(shared, part, overwritten, main, copies)
        pieces.append(LoopPiece(piece_plan, part, n.detail[1]))
    return [*scalars, *copies.values()], pieces


def _with_scalar_copies(
    plan: Plan, kernel: Kernel, last: set[int]
) -> tuple[Plan, list[BufferCopy]]:
    """Return a plan in which scalars that a thread overwrites are read from copies, and these.

    Args:
        plan: The plan.
        kernel: The kernel.
        last: Numbers of the nodes that one thread writes after all others have ended.
    """
    if math.prod(kernel.space) == 1:  # one thread computes
        return plan, []
    written = {
        id(plan.allocations[n.id].buffer)
        for n in kernel.nodes
        if n.id in plan.allocations
        and n.id not in last
        and not (n.kind == "reduce" and n.size == 1)
    }
    allocations, copies = dict(plan.allocations), []
    for scalar in overwritten_scalars(plan, kernel):
        buffer, view = plan.allocation(scalar)
        if id(buffer) in written:
            size = ITEM_SIZES[scalar.type]
            copy = BufferCopy(Buffer("scratch", scalar.id, size), buffer, size, view.offset * size)
            copies.append(copy)
            allocations[scalar.id] = Allocation(copy.target, View.dense(scalar.shape))
    return replace(plan, allocations=allocations) if copies else plan, copies


class _Epilogue(NamedTuple):
    """Nodes computed after full reductions; ``flat`` if row reductions are full ones."""

    flat: bool
    nodes: tuple[Node, ...]


def _find_epilogue(kernel: Kernel, roles: dict[int, str | None]) -> _Epilogue:
    """Return what follows the reductions of a single long row, if these can be full ones."""
    if math.prod(kernel.space[:-1]) != 1 or "reduce_rows" in roles.values():
        return _Epilogue(False, ())
    once = {n.id for n in kernel.nodes if roles[n.id] in ("row", "row_reduce")}
    others = [n for n in kernel.nodes if roles[n.id] != "row"]
    rows = [n for n in kernel.nodes if roles[n.id] == "row"]
    if not any(roles[n.id] == "row_reduce" for n in others):
        return _Epilogue(False, ())
    if any(i.id in once for n in others for i in n.inputs) or any(n.kind == "gather" for n in rows):
        return _Epilogue(False, ())
    return _Epilogue(True, tuple(rows))


def _part_of(kernel: Kernel, nodes: Iterable[Node], space: Sequence[int]) -> Kernel:
    return Kernel("loops", kernel.position, list(nodes), tuple(space))


def _recomputed(n: Node, main: list[Node], allocations: dict[int, Allocation]) -> list[Node]:
    """Return a reduction with the values of another piece that it computes again."""
    computed = {m.id: m for m in main}
    found, stack = {n.id: n}, list(n.inputs)
    while stack:
        i = stack.pop()
        if i.id in computed and i.id not in allocations and i.id not in found:
            found[i.id] = i
            stack += i.inputs
    return [found[id] for id in sorted(found)]


def with_copies(
    plan: Plan,
    part: Kernel,
    overwritten: set[int],
    main: list[Node],
    copies: dict[int, BufferCopy],
) -> Plan:
    """Return a plan in which operands that an earlier piece is written over are copies."""
    written = {n.id for n in main}
    allocations = dict(plan.allocations)
    for operand in plan.arrays_read(part):
        buffer, view = allocations[operand.id]
        if id(buffer) not in overwritten or operand.id in written:
            continue
        if id(buffer) not in copies:
            copies[id(buffer)] = BufferCopy(Buffer("scratch", operand.id, 0), buffer, 0)
        copy = copies[id(buffer)]
        extent = (_last_element(view) + 1) * ITEM_SIZES[operand.type]
        copy.target.bytes = max(copy.target.bytes, extent)
        copies[id(buffer)] = copy._replace(bytes=copy.target.bytes)
        allocations[operand.id] = Allocation(copy.target, view)
    return replace(plan, allocations=allocations)


def _last_element(view: View) -> int:
    if any(s < 0 for s in view.strides):
        raise UnsupportedKernelError("cuda: an operand that is overwritten has negative strides")
    return view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
