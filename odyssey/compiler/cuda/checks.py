"""Checks of CUDA programs: truth values that must hold, or nothing that outlives a run is stored.

A check is a byte of device memory. The host would have to wait for it, so kernels behind a check
read it themselves, and return at once if it is 0. Scratch memory begins with a byte for each check:
whether it and all checks before it hold. So a kernel reads one byte, and the host, which reads all
of them after the run, sees which check was the first to fail.

Products of cuBLAS cannot return at once. One that is written over a state behind a check keeps a
copy of the state, which one more kernel writes back if the check fails.
"""

from __future__ import annotations

from odyssey.compiler.cuda.device_function import DeviceFunction
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.schedule.buffer_assignment import Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel

__all__ = ["CheckFunction", "CopyFunction", "check_byte"]

# Types by which bytes are copied, by size.
_WORDS = {4: "u4", 2: "u2", 1: "u1"}


def check_byte(number: int) -> Buffer:
    """Return the memory of the byte of a check, by its number in a program."""
    return Buffer("scratch", -1 - number, 1, offset=number)


class CheckFunction(DeviceFunction):
    """Code generator of the kernel that records a check.

    Args:
        plan: Plan of the program.
        kernel: The kernel that computed the truth value.
        check: The truth value.
        number: Number of the check in the program.
    """

    def __init__(self, plan: Plan, kernel: Kernel, check: Node, number: int) -> None:
        super().__init__(plan, kernel, single_threaded=True)
        code = self.code
        buffer, view = plan.allocation(check)
        at = self.element_pointer("b1", self.pointer(buffer), (), view.offset)
        holds = code.load("b1", at)
        if number:
            before = self.element_pointer("b1", self.pointer(check_byte(number - 1)), (), 0)
            holds = holds & code.load("b1", before)
        own = self.element_pointer("b1", self.pointer(check_byte(number)), (), 0)
        first = code.op("b1", "icmp eq i64 %thread, 0")
        self.emit_if(first, lambda: code.store(holds, own))


class CopyFunction(DeviceFunction):
    """Code generator of a kernel that copies bytes.

    Args:
        plan: Plan of the program.
        kernel: Kernel of the plan, for its name.
        target: Where to copy to.
        source: Where from.
        count: Number of bytes.
        item: Bytes of an element. Memory is aligned to elements, and not to longer words: arrays
            of the user may begin anywhere.
    """

    def __init__(
        self, plan: Plan, kernel: Kernel, target: Buffer, source: Buffer, count: int, item: int
    ) -> None:
        super().__init__(plan, kernel, single_threaded=True)
        size = min(item, 4)
        type = _WORDS[size]
        to, of = self.pointer(target), self.pointer(source)
        self.words = count // size

        def copy_word(k: LLVMValue) -> None:
            value = self.code.load(type, self.element_pointer(type, of, [(k, 1)], 0))
            self.code.store(value, self.element_pointer(type, to, [(k, 1)], 0))

        self.emit_strided_loop("%thread", str(self.words), "%all", copy_word)
