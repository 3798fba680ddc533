"""CUDA kernels of scans: running results along an axis, one line for each thread.

A thread goes along its line in order, so running results are those of the CPU. Threads whose lines
are adjacent in memory read adjacent elements. A program with few long lines keeps few threads busy.
"""

from __future__ import annotations

import math

from odyssey.compiler.cuda.device_function import DeviceFunction
from odyssey.compiler.cuda.loops import DeviceLaunch, LaunchShape, LoopKernels
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.scalar_programs import emit_scalar_program
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["ScanFunction", "scan_kernels"]


class ScanFunction(DeviceFunction):
    """Code generator of a scan.

    Args:
        plan: Plan of the program.
        kernel: Kernel with one scan node.
    """

    def __init__(self, plan: Plan, kernel: Kernel) -> None:
        super().__init__(plan, kernel, single_threaded=True)
        (self._node,) = kernel.nodes
        self._axis: int = self._node.detail[1]
        self._arrays = {n.id: self._location(n) for n in (*self._node.inputs, self._node)}
        shape = self._node.shape
        lines = [a for a in range(len(shape)) if a != self._axis]
        count = str(math.prod(shape[a] for a in lines))
        space = [1 if a == self._axis else n for a, n in enumerate(shape)]
        self.emit_strided_loop(
            "%thread", count, "%all", lambda k: self._emit_line(self.split_index(k, lines, space))
        )

    def _location(self, n: Node) -> tuple[str, View]:
        buffer, view = self.plan.allocation(n)
        return self.pointer(buffer), view

    def _element_at(self, n: Node, at: dict[int, LLVMValue], k: LLVMValue) -> str:
        pointer, view = self._arrays[n.id]
        terms = [(index, view.strides[a]) for a, index in at.items()]
        terms.append((k, view.strides[self._axis]))
        return self.element_pointer(n.type, pointer, terms, view.offset)

    def _emit_line(self, at: dict[int, LLVMValue]) -> None:
        node, code = self._node, self.code
        first, *others = node.inputs
        result, start = self.alloca(node.type), code.const("i8", 0)
        value = code.load(first.type, self._element_at(first, at, start))
        self.store_local(value, result)
        code.store(value, self._element_at(node, at, start))

        def emit_running_result(k: LLVMValue) -> None:
            before = code.op("i8", f"add nsw i64 {k.text}, -1")
            operands = [self.load_local(node.type, result)]
            operands.append(code.load(first.type, self._element_at(first, at, k)))
            operands += [code.load(x.type, self._element_at(x, at, before)) for x in others]
            value = code.cast(emit_scalar_program(code, node.payload, operands), node.type)
            self.store_local(value, result)
            code.store(value, self._element_at(node, at, k))

        self.emit_strided_loop("1", str(node.shape[self._axis]), "1", emit_running_result)


def scan_kernels(plan: Plan, kernel: Kernel, shape: LaunchShape) -> LoopKernels:
    """Return the CUDA kernel of a ``scan`` kernel of a plan."""
    (node,) = kernel.nodes
    lines = node.size // node.shape[node.detail[1]]
    grid = max(1, min(shape.blocks, -(-lines // shape.threads)))
    return LoopKernels([], [DeviceLaunch(ScanFunction(plan, kernel), grid, shape.threads)])
