"""Scan kernels in LLVM IR: each element is combined with those before it along an axis, in order.

Along the last axis each step of a line waits for the one before, so several lines are interleaved.
Along other axes, contiguous elements are scanned side by side, in vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.scalar_programs import emit_scalar_program
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import Tiling, estimated_seconds, partition_loop

__all__ = ["Scan"]

# Interleaved lines. An addition has a latency of four cycles, and each cycle can start one. With
# more lines of a length that is a power of 2, all map to one set of the cache, and take up to
# ten times as long; but steps with a function such as exp have an even longer latency.
_LINES, _SLOW_LINES = 4, 8


class _Index(NamedTuple):
    """An index along an axis: the sum of a value at run time and a constant."""

    axis: int
    value: LLVMValue | None
    constant: int = 0


class _Operand(NamedTuple):
    """An array that the scan reads or writes."""

    pointer: str
    view: View
    type: str


class Scan(KernelFunction):
    """Code generator of a scan.

    Args:
        plan: Plan of the program.
        kernel: Kernel with one scan node.
        single_threaded: Whether to generate no blocks for the thread pool.
    """

    def __init__(self, plan: Plan, kernel: Kernel, single_threaded: bool = False) -> None:
        super().__init__(plan, kernel, single_threaded)
        self._node = node = kernel.nodes[0]
        self._axis = node.detail[1]
        slow = any(name.startswith("math.") for name, _ in node.payload.steps)
        self._line_count = _SLOW_LINES if slow else _LINES
        self._inputs = [self._operand(i) for i in node.inputs]
        self._output = self._operand(node)
        long = [a for a, n in enumerate(node.shape) if n > 1 and a != self._axis]
        self._outer_axes = [a for a in long if a < self._axis]
        self._inner_axes = [a for a in long if a > self._axis]
        # By axis of which only a block is generated, the first index and the length of the block.
        self._ranges: dict[int, tuple[LLVMValue, int | LLVMValue]] = {}
        tiling = None if single_threaded else self._tiling()
        if tiling is None:
            self._emit_scan()
            return
        axis = [*self._outer_axes, *self._inner_axes][tiling.depth]

        def emit_block(k: LLVMValue, first: LLVMValue, count: int | LLVMValue) -> None:
            self._ranges[axis] = first, count
            self._emit_scan()

        self.emit_blocks(node.shape[axis], tiling.length, emit_block, True)

    def _tiling(self) -> Tiling | None:
        """Return blocks of lines, along the first outer axis or else the first inner one."""
        shape = self._node.shape
        axes = [*self._outer_axes, *self._inner_axes]
        free = [
            a in self._outer_axes[:1] or (not self._outer_axes and a in self._inner_axes[:1])
            for a in axes
        ]
        lengths = [*(shape[a] for a in axes), 1]
        # Lines along the last axis are interleaved.
        lines = not self._inner_axes and len(self._outer_axes) == 1
        if lines or axes == self._inner_axes[:1]:
            lengths.pop()
        else:
            free.append(False)
        return partition_loop(
            lengths, free, estimated_seconds(self.kernel), self._line_count, not self._outer_axes
        )

    def _emit_scan(self) -> None:
        outer, inner = self._outer_axes, self._inner_axes
        if inner:
            self._emit_axes(outer, [], lambda indices: self._emit_side_by_side(inner, indices))
        else:
            self._emit_axes(
                outer[:-1], [], lambda indices: self._emit_line_groups(outer[-1:], indices)
            )

    # -------------------------------------------------------------- elements

    def _operand(self, node: Node) -> _Operand:
        allocation = self.plan.allocation(node)
        return _Operand(self.pointer(allocation.buffer), allocation.view, node.type)

    def _indexed_pointer(self, operand: _Operand, indices: list[_Index]) -> str:
        strides = operand.view.strides
        terms = [(i.value, strides[i.axis]) for i in indices if i.value is not None]
        start = operand.view.offset + sum(i.constant * strides[i.axis] for i in indices)
        return self.element_pointer(operand.type, operand.pointer, terms, start)

    def _load_element(self, operand: _Operand, indices: list[_Index]) -> LLVMValue:
        return self.code.load(operand.type, self._indexed_pointer(operand, indices))

    def _store_result(self, value: LLVMValue, indices: list[_Index]) -> None:
        self.code.store(value, self._indexed_pointer(self._output, indices))

    def _step(
        self, before: LLVMValue, indices: list[_Index], k: LLVMValue
    ) -> tuple[LLVMValue, list[_Index]]:
        """Return the result after index ``k`` of the scanned axis, and its indices."""
        first, *others = self._inputs
        after = [*indices, _Index(self._axis, k, 1)]
        steps = [self._load_element(x, [*indices, _Index(self._axis, k)]) for x in others]
        operands = [before, self._load_element(first, after), *steps]
        value = emit_scalar_program(self.code, self._node.payload, operands)
        return self.code.cast(value, self._node.type), after

    # -------------------------------------------------------------- loops

    def _emit_axes(
        self, axes: list[int], indices: list[_Index], body: Callable[[list[_Index]], None]
    ) -> None:
        """Generate loops over axes; ``body(indices)`` generates the innermost body."""
        if not axes:
            body(indices)
            return
        first, count = self._range(axes[0])

        def emit_body(i: LLVMValue) -> None:
            value = i if first is None else first + i
            self._emit_axes(axes[1:], [*indices, _Index(axes[0], value)], body)

        self.emit_loop(count, emit_body)

    def _range(self, axis: int) -> tuple[LLVMValue | None, int | LLVMValue]:
        """Return the first index and the number of indices along an axis."""
        return self._ranges.get(axis, (None, self._node.shape[axis]))

    def _emit_side_by_side(self, inner: list[int], indices: list[_Index]) -> None:
        """Generate the first step for all inner elements, then the second one, and so on."""

        def copy_first(at: list[_Index]) -> None:
            self._store_result(self._load_element(self._inputs[0], at), at)

        def emit_step(k: LLVMValue) -> None:
            def emit_element(at: list[_Index]) -> None:
                before = self._load_element(self._output, [*at, _Index(self._axis, k)])
                self._store_result(*self._step(before, at, k))

            self._emit_axes(inner, indices, emit_element)

        self._emit_axes(inner, indices, copy_first)
        self.emit_loop(self._node.shape[self._axis] - 1, emit_step)

    def _emit_line_groups(self, across: list[int], indices: list[_Index]) -> None:
        """Generate interleaved groups of lines along an axis, then the lines that are left."""
        if not across:
            self._emit_lines([indices])
            return
        (axis,) = across
        begin, length = self._range(axis)
        code, group = self.code, self._line_count

        def emit_group(k: LLVMValue) -> None:
            first = k * group if begin is None else begin + k * group
            self._emit_lines([[*indices, _Index(axis, first, line)] for line in range(group)])

        def emit_line(k: LLVMValue) -> None:
            value = k if begin is None else begin + k
            self._emit_lines([[*indices, _Index(axis, value, done)]])

        if isinstance(length, LLVMValue):
            done = 0
            groups = code.op("i8", f"udiv i64 {length.text}, {group}")
            self.emit_loop(groups, emit_group)
            assert begin is not None, "a block has a first index"
            begin = begin + groups * group
            self.emit_loop(code.op("i8", f"urem i64 {length.text}, {group}"), emit_line)
            return
        if length >= group:
            self.emit_loop(length // group, emit_group)
        done = length - length % group
        if done < length:
            self.emit_loop(length - done, emit_line)

    def _emit_lines(self, lines: list[list[_Index]]) -> None:
        """Generate interleaved lines, each with its latest result in a local."""
        type = self._node.type
        results = [self.alloca(type) for _ in lines]
        for result, indices in zip(results, lines, strict=True):
            first = [*indices, _Index(self._axis, None)]
            value = self._load_element(self._inputs[0], first)
            self.store_local(value, result)
            self._store_result(value, first)

        def emit_step(k: LLVMValue) -> None:
            for result, indices in zip(results, lines, strict=True):
                value, after = self._step(self.load_local(type, result), indices, k)
                self.store_local(value, result)
                self._store_result(value, after)

        self.emit_loop(self._node.shape[self._axis] - 1, emit_step)
