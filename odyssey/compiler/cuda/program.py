"""CUDA programs: the kernels of a plan as LLVM IR, and the steps that run them in order.

``compile_kernels`` turns a plan into a ``CudaProgram``. Loops and reductions become kernels here.
Matrix products and host calls stay separate steps, which the execution hands to cuBLAS and to
Python. Nothing here needs a device or CuPy: ``ptx.emit_ptx`` turns the text of the program into
PTX by llvmlite, and ``host_execution`` runs the text on the CPU.

Memory is a few regions, named as buffers of plans are: ``("input", k)``, ``("output", k)``,
``("state", k)``, ``("constant", k)``, ``("call", number of the result node)``, ``("given", k)``
for scalar inputs, ``("arena", 0)``, and ``("scratch", 0)``, which holds values between the kernels
that one kernel of the plan became.
"""

from __future__ import annotations

from typing import NamedTuple

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.schedule.buffer_assignment import Plan

__all__ = [
    "BufferAddress",
    "CopyStep",
    "CudaKernel",
    "CudaProgram",
    "HostCallStep",
    "Launch",
    "ProductStep",
    "CheckStep",
    "Step",
    "ZeroStep",
]


class BufferAddress(NamedTuple):
    """An address in the memory of a program.

    Attributes:
        kind: Kind of the region.
        index: Its number among those of its kind.
        offset: Bytes from its start.
    """

    kind: str
    index: int  # type: ignore[assignment]  # not the method of tuples
    offset: int = 0

    def shifted(self, count: int) -> BufferAddress:
        """Return the address that is some bytes further on."""
        return self._replace(offset=self.offset + count)


class CudaKernel(NamedTuple):
    """A ``__global__`` function, which equal kernels share. Its parameters are pointers.

    Attributes:
        name: Its name in the module.
        parameters: Names of its parameters in the text, in order.
        body: LLVM IR between the braces.
        shared_bytes: Bytes of static shared memory; 0 if its threads do not communicate.
        comment: Names of the rows that it computes, for people.
    """

    name: str
    parameters: tuple[str, ...]
    body: str
    shared_bytes: int
    comment: str


class Launch(NamedTuple):
    """Launch of a kernel.

    Attributes:
        kernel: Name of the kernel.
        grid: Number of blocks.
        block: Threads of a block, a multiple of 32.
        arguments: Where each parameter points.
        position: Position of the plan's kernel.
    """

    kernel: str
    grid: int
    block: int
    arguments: tuple[BufferAddress, ...]
    position: int


class ProductStep(NamedTuple):
    """A matrix product for cuBLAS: operands and result are where the plan has them.

    Attributes:
        node: The product; ``plan.allocation`` has the views of its inputs and its result.
        position: Position of the plan's kernel.
    """

    node: Node
    position: int


class HostCallStep(NamedTuple):
    """A call of Python: a row that has no kernels, a loop or a branch.

    Attributes:
        node: The ``call`` node.
        position: Position of the plan's kernel.
    """

    node: Node
    position: int


class CheckStep(NamedTuple):
    """A truth value that must hold, or the program stores nothing that outlives it.

    Launches behind it begin by reading the byte, and do nothing if it is 0, see ``checks``. The
    host reads it after the run, and before a host call, and raises what the program's function
    would raise. This step itself runs nothing.

    Attributes:
        node: The truth value.
        address: Its byte, which later steps leave as it is: 1 if this check and all checks before
            it hold. So the first one that is 0 has failed.
        position: Position of the plan's kernel.
    """

    node: Node
    address: BufferAddress
    position: int


class CopyStep(NamedTuple):
    """A copy from device memory to device memory, by bytes.

    Attributes:
        target: Where to copy to.
        source: Where from.
        bytes: How many.
    """

    target: BufferAddress
    source: BufferAddress
    bytes: int


class ZeroStep(NamedTuple):
    """Bytes that are set to 0: a join whose members leave gaps."""

    target: BufferAddress
    bytes: int


Step = Launch | ProductStep | HostCallStep | CheckStep | CopyStep | ZeroStep
"""One step of a program; steps run in order in one stream."""


class CudaProgram(NamedTuple):
    """Kernels and steps of a plan.

    Attributes:
        plan: The plan.
        kernels: The kernels, each once.
        steps: What runs, in order.
        scratch: Bytes of the region ``("scratch", 0)``.
        text: LLVM IR of the kernels for NVPTX.
        host_text: LLVM IR of the same bodies for the CPU, see ``host_execution``.
    """

    plan: Plan
    kernels: tuple[CudaKernel, ...]
    steps: tuple[Step, ...]
    scratch: int
    text: str
    host_text: str
