"""Compilation of a plan for CUDA devices: kernels as LLVM IR, and the steps that run them.

Buffers, views, and the order of kernels are those of the plan, as on the CPU. Only the code of
loops is other, and products and host calls are steps of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.loops import LaunchShape, LoopKernels, loop_kernels
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
from odyssey.compiler.schedule.buffer_assignment import (
    ALIGNMENT,
    Buffer,
    Plan,
    is_fully_covered,
)
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["compile_kernels"]

_DEFAULT_SHAPE = LaunchShape()

_GENERATORS: Mapping[str, Callable[[Plan, Kernel, LaunchShape], LoopKernels]] = MappingProxyType(
    {"loops": loop_kernels}
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
    table = KernelTable()
    steps: list[Step] = []
    scratch = 0
    for node in plan.fused.order:
        if node.kind == "join" and not is_fully_covered(node) and node.id in plan.allocations:
            buffer = plan.allocations[node.id].buffer
            steps.append(ZeroStep(address_in(buffer), int(buffer.bytes)))
    for kernel in plan.fused.kernels:
        node = kernel.nodes[0]
        if kernel.kind == "call":
            steps.append(HostCallStep(node, kernel.position))
            continue
        if kernel.kind == "product":
            steps.append(ProductStep(node, kernel.position))
            continue
        if not any(n.size for n in kernel.nodes):
            continue
        generate = _GENERATORS.get(kernel.kind)
        if generate is None:
            raise UnsupportedKernelError(
                f"cuda: {node.op or kernel.kind} (kernel {kernel.position}, {kernel.kind}) has no "
                "CUDA kernel"
            )
        made = generate(plan, kernel, shape)
        scratch = max(scratch, _assign_scratch(made))
        for copy in made.copies:
            target, source = address_in(copy.target), address_in(copy.source)
            steps.append(CopyStep(target, source, copy.bytes))
        for launch in made.launches:
            function = launch.function
            name = table.add(function).name
            steps.append(
                Launch(name, launch.grid, launch.block, function.arguments, kernel.position)
            )
        for check in kernel.checks:
            at = address_in(plan.allocations[check.id].buffer)
            steps.append(CheckStep(check, at, kernel.position))
    for state, node in plan.state_copies:
        updated = plan.allocation(node).buffer
        target = BufferAddress("state", state)
        steps.append(CopyStep(target, address_in(updated), updated.bytes))
    kernels = table.kernels
    return CudaProgram(
        plan, kernels, tuple(steps), scratch, device_module(kernels), host_module(kernels)
    )


def address_in(buffer: Buffer) -> BufferAddress:
    """Return the address of the first byte of a buffer."""
    if buffer.kind in ("arena", "scratch"):
        return BufferAddress(buffer.kind, 0, buffer.offset)
    return BufferAddress(buffer.kind, buffer.index)


def _assign_scratch(made: LoopKernels) -> int:
    """Assign offsets to the scratch buffers of a kernel, and return the bytes that they take.

    The next kernel uses the same memory again: kernels run one after another.
    """
    held = [copy.target for copy in made.copies]
    held += [b for launch in made.launches for b in launch.function.buffers]
    end = 0
    for buffer in {id(b): b for b in held if b.kind == "scratch"}.values():
        buffer.offset = end
        end += -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
    return end
