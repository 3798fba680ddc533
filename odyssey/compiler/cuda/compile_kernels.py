"""Compilation of a plan for CUDA devices: kernels as LLVM IR, and the steps that run them.

Buffers, views, and the order of kernels are those of the plan, as on the CPU. Only the code of
loops differs, and products and host calls are steps of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from odyssey.compiler.cuda.checks import CheckFunction, CopyFunction, check_byte
from odyssey.compiler.cuda.device_function import WARP, UnsupportedKernelError
from odyssey.compiler.cuda.loops import DeviceLaunch, LaunchShape, LoopKernels
from odyssey.compiler.cuda.module import KernelTable, device_module, host_module
from odyssey.compiler.cuda.program import (
    BufferAddress,
    CheckStep,
    CopyStep,
    CudaProgram,
    HostCallStep,
    Launch,
    ProductStep,
    Step,
    ZeroStep,
)
from odyssey.compiler.cuda.scans import scan_kernels
from odyssey.compiler.cuda.scatters import scatter_kernels
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node
from odyssey.compiler.schedule.buffer_assignment import (
    ALIGNMENT,
    Buffer,
    Plan,
    is_fully_covered,
)
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["compile_kernels"]

_DEFAULT_SHAPE = LaunchShape()

# A call of the C library: of no function of LLVM, of the compiler's formulas, or of ``module``.
_C_CALL = re.compile(r"\bcall \w+ @((?!llvm\.|odyssey\.|device_)\w+)\(")

_GENERATORS: Mapping[str, Callable[[Plan, Kernel, LaunchShape], LoopKernels]] = MappingProxyType(
    {"loops": scatter_kernels, "scan": scan_kernels}
)
"""Functions that return the CUDA kernels of a plan's kernel, by its kind."""


def compile_kernels(plan: Plan, shape: LaunchShape = _DEFAULT_SHAPE) -> CudaProgram:
    """Compile a plan for CUDA devices.

    Args:
        plan: The plan; it is not changed.
        shape: How loops are shared among threads.

    Raises:
        UnsupportedKernelError: a kernel has no form for CUDA devices; the message says which.
    """
    if plan.is_symbolic:
        raise UnsupportedKernelError("cuda: a program for all sizes has no CUDA kernels")
    return _ProgramBuilder(plan, shape).build_program()


class _ProgramBuilder:
    """Steps of a program in progress.

    Args:
        plan: The plan.
        shape: How loops are shared among threads.
    """

    def __init__(self, plan: Plan, shape: LaunchShape) -> None:
        self._plan, self._shape = plan, shape
        self._table = KernelTable()
        self._steps: list[Step] = []
        self._checks = 0  # those recorded so far
        # Scratch memory begins with a byte for each check.
        count = sum(len(kernel.checks) for kernel in plan.fused.kernels)
        self._reserved = self._scratch = -(-count // ALIGNMENT) * ALIGNMENT

    def build_program(self) -> CudaProgram:
        """Return the program."""
        plan = self._plan
        for node in plan.fused.order:
            if node.kind == "join" and not is_fully_covered(node) and node.id in plan.allocations:
                buffer = plan.allocations[node.id].buffer
                self._steps.append(ZeroStep(address_in(buffer), int(buffer.bytes)))
        for kernel in plan.fused.kernels:
            self._add_kernel(kernel)
        last = plan.fused.kernels[-1] if plan.fused.kernels else None
        for state, node in plan.state_copies:
            source = plan.allocation(node).buffer
            if self._checks and last is not None:
                self._add_copy(last, node, Buffer("state", state, source.bytes), source)
            else:
                target = BufferAddress("state", state)
                self._steps.append(CopyStep(target, address_in(source), source.bytes))
        kernels = self._table.kernels
        texts = device_module(kernels), host_module(kernels)
        return CudaProgram(plan, kernels, tuple(self._steps), self._scratch, *texts)

    def _add_kernel(self, kernel: Kernel) -> None:
        node, plan = kernel.nodes[0], self._plan
        if kernel.kind == "call":
            self._steps.append(HostCallStep(node, kernel.position))
        elif kernel.kind == "product":
            self._add_product(node, kernel)
        elif any(n.size for n in kernel.nodes):
            generate = _GENERATORS.get(kernel.kind)
            if generate is None:
                raise UnsupportedKernelError(
                    f"cuda: {node.op or kernel.kind} (kernel {kernel.position}, {kernel.kind}) has "
                    "no CUDA kernel"
                )
            made = generate(plan, kernel, self._shape)
            self._scratch = max(self._scratch, _assign_scratch(made, self._reserved))
            for copy in made.copies:
                source = address_in(copy.source).shifted(copy.start)
                self._steps.append(CopyStep(address_in(copy.target), source, copy.bytes))
            for launch in made.launches:
                self._add_launch(launch, kernel)
        for check in kernel.checks:
            number = self._checks
            function = CheckFunction(plan, kernel, check, number)
            self._add_launch(DeviceLaunch(function, 1, WARP), kernel, guarded=False)
            self._checks += 1
            at = BufferAddress("scratch", 0, number)
            self._steps.append(CheckStep(check, at, kernel.position))

    def _add_launch(
        self, launch: DeviceLaunch, kernel: Kernel, guarded: bool = True, value: bool = True
    ) -> None:
        """Add a launch; behind a check it does nothing unless the check has a value."""
        function = launch.function
        if guarded and self._checks:
            function.guard_by(check_byte(self._checks - 1), value)
        added = self._table.add(function)
        called = _C_CALL.search(added.body)
        if called is not None:
            raise UnsupportedKernelError(
                f"cuda: {added.comment} (kernel {kernel.position}) calls {called[1]} of the C "
                "library, which devices do not have"
            )
        name = added.name
        self._steps.append(
            Launch(name, launch.grid, launch.block, function.arguments, kernel.position)
        )

    def _add_product(self, node: Node, kernel: Kernel) -> None:
        """Add a product; behind a check a state that it is written over can be restored."""
        target = self._plan.allocation(node).buffer
        product = ProductStep(node, kernel.position)
        if not (self._checks and node.size and target.kind in ("state", "input")):
            self._steps.append(product)
            return
        kept = Buffer("scratch", node.id, target.bytes, offset=self._reserved)
        self._scratch = max(self._scratch, self._reserved + target.bytes)
        self._steps += [CopyStep(address_in(kept), address_in(target), target.bytes), product]
        self._add_copy(kernel, node, target, kept, value=False)

    def _add_copy(
        self, kernel: Kernel, node: Node, target: Buffer, source: Buffer, value: bool = True
    ) -> None:
        """Add a copy of a node's elements that is made if the last check has a value."""
        item = ITEM_SIZES[node.type]
        function = CopyFunction(self._plan, kernel, target, source, source.bytes, item)
        grid = max(1, min(self._shape.blocks, -(-function.words // self._shape.threads)))
        launch = DeviceLaunch(function, grid, self._shape.threads)
        self._add_launch(launch, kernel, value=value)


def address_in(buffer: Buffer) -> BufferAddress:
    """Return the address of the first byte of a buffer."""
    if buffer.kind in ("arena", "scratch"):
        return BufferAddress(buffer.kind, 0, buffer.offset)
    return BufferAddress(buffer.kind, buffer.index)


def _assign_scratch(made: LoopKernels, start: int) -> int:
    """Assign offsets from ``start`` on to the scratch buffers of a kernel, and return their end.

    The next kernel uses the same memory again: kernels run one after another.
    """
    held = [copy.target for copy in made.copies]
    held += [b for launch in made.launches for b in launch.function.buffers]
    end = start
    for buffer in {id(b): b for b in held if b.kind == "scratch"}.values():
        buffer.offset = end
        end += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    return end
