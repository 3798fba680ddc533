"""Modules of CUDA kernels: one text of LLVM IR for NVPTX, and one for the CPU.

Both have the same bodies. For NVPTX the numbers of threads are special registers, and threads
communicate by ``shfl.sync`` and ``bar.sync``. On the CPU the numbers are parameters, and the three
functions by which threads communicate are declared, see ``host_execution``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from odyssey.compiler.cuda.device_function import DeviceFunction
from odyssey.compiler.cuda.program import CudaKernel
from odyssey.compiler.cuda.remainders import define_remainders
from odyssey.compiler.llvm.declarations import declarations

__all__ = ["KernelTable", "device_module", "host_module"]

_NAME_LENGTH = 40

_THREAD_NUMBERS = """  %before = mul i64 %block, %width
  %thread = add i64 %before, %lane
  %all = mul i64 %width, %blocks"""

_REGISTERS = {"lane": "tid", "block": "ctaid", "width": "ntid", "blocks": "nctaid"}

_DEVICE_HEAD = """target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define internal float @device_shuffle_f32(float %x, i32 %distance) alwaysinline convergent {
  %y = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %x, i32 %distance, i32 31)
  ret float %y
}
define internal i32 @device_shuffle_i32(i32 %x, i32 %distance) alwaysinline convergent {
  %y = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %x, i32 %distance, i32 31)
  ret i32 %y
}
define internal void @device_barrier() alwaysinline convergent {
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}"""

_HOST_HEAD = """declare float @device_shuffle_f32(float, i32)
declare i32 @device_shuffle_i32(i32, i32)
declare void @device_barrier()"""

# Runs all threads of a grid, one after another, where they never wait for one another.
_SERIAL_GRID = """define void @{name}.grid({parameters}i64 %width, i64 %blocks, i1 %backward) {{
entry:
  %count = mul i64 %width, %blocks
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %exit
body:
  %next = add i64 %i, 1
  %behind = sub i64 %count, %next
  %thread = select i1 %backward, i64 %behind, i64 %i
  %block = udiv i64 %thread, %width
  %lane = urem i64 %thread, %width
  call void @{name}({arguments}i64 %lane, i64 %block, i64 %width, i64 %blocks)
  br label %head
exit:
  ret void
}}"""


class KernelTable:
    """The kernels of a program; equal functions are one kernel."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[int, str, int], CudaKernel] = {}

    def add(self, function: DeviceFunction) -> CudaKernel:
        """Return the kernel of a function."""
        body = function.device_body()
        key = (len(function.buffers), body, function.shared_bytes)
        found = self._kernels.get(key)
        if found is None:
            rows = dict.fromkeys(n.op for n in function.kernel.nodes if n.op)
            comment = " ".join(rows)
            readable = re.sub(r"\W+", "_", comment)[:_NAME_LENGTH].strip("_")
            name = f"k{len(self._kernels)}_{readable}".rstrip("_")
            parameters = tuple(f"%b{k}" for k in range(len(function.buffers)))
            found = CudaKernel(name, parameters, body, function.shared_bytes, comment)
            self._kernels[key] = found
        return found

    @property
    def kernels(self) -> tuple[CudaKernel, ...]:
        """The kernels in the order in which they were added."""
        return tuple(self._kernels.values())


def device_module(kernels: Sequence[CudaKernel]) -> str:
    """Return the LLVM IR of kernels for NVPTX."""
    return _module(_DEVICE_HEAD, list(map(_device_function, kernels)))


def host_module(kernels: Sequence[CudaKernel]) -> str:
    """Return the LLVM IR of the same bodies for the CPU."""
    return _module(_HOST_HEAD, list(map(_host_function, kernels)))


def _module(head: str, functions: Sequence[str]) -> str:
    functions = [*functions, *define_remainders("\n".join(functions))]
    text = "\n".join([head, *functions])
    # Vector variants of elementary functions are for loops that LLVM vectorizes on a CPU.
    return "\n".join([head, declarations(text, vector_variants=False), *functions])


def _device_function(kernel: CudaKernel) -> str:
    parameters = [f"ptr addrspace(1) noalias %g{p[1:]}" for p in kernel.parameters]
    lines = [f"  {p} = addrspacecast ptr addrspace(1) %g{p[1:]} to ptr" for p in kernel.parameters]
    for name, register in _REGISTERS.items():
        lines.append(f"  %r{name} = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()")
        lines.append(f"  %{name} = zext i32 %r{name} to i64")
    shared = []
    if kernel.shared_bytes:
        array = f"[{kernel.shared_bytes} x i8]"
        shared = [f"@{kernel.name}.shared = internal addrspace(3) global {array} undef, align 16"]
        lines.append(f"  %shared = addrspacecast ptr addrspace(3) @{kernel.name}.shared to ptr")
    head = f"define ptx_kernel void @{kernel.name}({', '.join(parameters)}) {{"
    return "\n".join([*shared, head, "entry:", *lines, _THREAD_NUMBERS, kernel.body, "}"])


def _host_function(kernel: CudaKernel) -> str:
    numbers = [f"i64 %{name}" for name in _REGISTERS]
    parameters = [*(f"ptr noalias {p}" for p in kernel.parameters), *numbers]
    lines, texts = [], []
    if kernel.shared_bytes:
        # Not internal: other threads write it while this one waits.
        array = f"[{kernel.shared_bytes} x i8]"
        texts.append(f"@{kernel.name}.shared = global {array} zeroinitializer, align 16")
        lines.append(f"  %shared = getelementptr i8, ptr @{kernel.name}.shared, i64 0")
    head = f"define void @{kernel.name}({', '.join(parameters)}) {{"
    texts += [head, "entry:", *lines, _THREAD_NUMBERS, kernel.body, "}"]
    if not kernel.shared_bytes:
        pointers = [f"ptr {p}, " for p in kernel.parameters]
        names = {"parameters": "".join(pointers), "arguments": "".join(pointers)}
        texts.append(_SERIAL_GRID.format(name=kernel.name, **names))
    return "\n".join(texts)
