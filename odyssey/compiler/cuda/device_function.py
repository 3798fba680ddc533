"""Functions of CUDA kernels in LLVM IR: thread numbers, loops over a grid, and block reductions.

The body of a function is the same text for both targets. It reads ``%lane``, the number of the
thread in its block, and ``%width``, the number of threads of a block; ``%block`` and ``%blocks``,
those of the block in the grid; ``%thread`` and ``%all``, those of the thread in the grid; and
``%shared``, the address of static shared memory. Threads communicate by ``@device_shuffle_f32``,
``@device_shuffle_i32`` and ``@device_barrier`` alone. The module that the body is put into defines
all of these, see ``module``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.codegen.reductions import combine_elements, identity_element
from odyssey.compiler.cuda.program import BufferAddress
from odyssey.compiler.cuda.remainders import call_exact_remainders
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import HALVES, LLVM, PARTS
from odyssey.compiler.schedule.buffer_assignment import Buffer
from odyssey.errors import OdysseyError

__all__ = ["WARP", "DeviceFunction", "UnsupportedKernelError"]

WARP = 32
"""Threads that shuffle values among each other."""

# One slot for each warp of the largest block, of the largest type.
_SHARED_BYTES = 16 * 1024 // WARP


class UnsupportedKernelError(OdysseyError):
    """A kernel of a plan has no form for CUDA devices."""


class DeviceFunction(KernelFunction):
    """Base of the code generators of CUDA kernels.

    Attributes:
        shared_bytes: Bytes of shared memory that the body uses; 0 if its threads never wait for
            one another.
    """

    shared_bytes = 0
    _guard = ""
    _guard_value = True

    # -------------------------------------------------------------- the text

    def guard_by(self, check: Buffer, value: bool = True) -> None:
        """Let the function return at once unless a byte, which is 0 or 1, has a value."""
        self._guard, self._guard_value = str(self.pointer(check)), value

    def device_body(self) -> str:
        """Return the instructions of the function, behind those that define thread numbers."""
        go = ["  br label %start"]
        if self._guard:
            go = [
                f"  %held = load i8, ptr {self._guard}",
                f"  %go = icmp {'ne' if self._guard_value else 'eq'} i8 %held, 0",
                "  br i1 %go, label %start, label %stop",
                "stop:",
                "  ret void",
            ]
        body = "\n".join([*self._entry, *go, "start:", *self.code.lines, "  ret void"])
        return call_exact_remainders(body)

    @property
    def arguments(self) -> tuple[BufferAddress, ...]:
        """Addresses that the parameters of the function get, in order."""
        found = []
        for buffer, start in zip(self.buffers, self.starts, strict=True):
            if buffer.kind == "arena":
                found.append(BufferAddress("arena", 0, buffer.offset + start))
            elif buffer.kind == "scratch":
                found.append(BufferAddress("scratch", 0, buffer.offset + start))
            else:
                found.append(BufferAddress(buffer.kind, buffer.index, start))
        return tuple(found)

    # -------------------------------------------------------------- control flow

    def emit_strided_loop(
        self, first: str, end: str, step: str, body: Callable[[LLVMValue], None]
    ) -> None:
        """Generate a loop over ``range(first, end, step)``."""
        k, counter, i = self._open_loop(first, end)
        known = dict(self._scalars)
        body(i)
        self._scalars = known  # a scalar that was first loaded in the loop is not there behind it
        self._close_loop(k, counter, i, step)

    def emit_if(self, condition: LLVMValue, body: Callable[[], None]) -> None:
        """Generate code that runs where a condition holds."""
        code, k = self.code, self._labels
        self._labels += 1
        code.line(f"br i1 {condition.text}, label %then{k}, label %past{k}")
        code.label(f"then{k}")
        known = dict(self._scalars)
        body()
        self._scalars = known
        code.line(f"br label %past{k}")
        code.label(f"past{k}")

    def emit_on_first_thread(self, body: Callable[[], None]) -> None:
        """Generate code that the first thread of each block runs."""
        self.emit_if(self.code.op("b1", "icmp eq i64 %lane, 0"), body)

    def split_index(
        self, linear: LLVMValue, axes: Sequence[int], space: Sequence[int]
    ) -> dict[int, LLVMValue]:
        """Return the index along each of some axes of a space, the last of which runs fastest.

        Axes of length 1 are left out. Indices are divided in 32 bits where they fit, since a
        division of 64 bits takes a hundred instructions.
        """
        code, rest, found = self.code, linear, {}
        axes = [a for a in axes if space[a] != 1]
        short = math.prod(space) < 1 << 31
        for a in reversed(axes[1:]):
            if short:
                narrow = code.op("i4", f"trunc i64 {rest.text} to i32")
                index = code.op("i4", f"urem i32 {narrow.text}, {space[a]}")
                after = code.op("i4", f"udiv i32 {narrow.text}, {space[a]}")
                found[a], rest = (
                    code.op("i8", f"zext i32 {x.text} to i64") for x in (index, after)
                )
            else:
                found[a] = code.op("i8", f"urem i64 {rest.text}, {space[a]}")
                rest = code.op("i8", f"udiv i64 {rest.text}, {space[a]}")
        if axes:
            found[axes[0]] = rest
        return found

    # -------------------------------------------------------------- communication

    def shuffle(self, x: LLVMValue, distance: int) -> LLVMValue:
        """Return the value of the thread whose number in the warp is the own XOR ``distance``."""
        code = self.code
        if x.type in PARTS:
            real, imaginary = self.shuffle(x.real, distance), self.shuffle(x.imag, distance)
            return code.pair(x.type, real, imaginary)
        if x.type in (*HALVES, "f4"):
            return code.op(
                x.type, f"call float @device_shuffle_f32(float {x.text}, i32 {distance})"
            )
        if LLVM[x.type] == "i32":
            return code.op(x.type, f"call i32 @device_shuffle_i32(i32 {x.text}, i32 {distance})")
        if ITEM_SIZES[x.type] < 4:
            return code.cast(self.shuffle(code.cast(x, "i4"), distance), x.type)
        bits = code.bitcast(x, "u8")
        low = code.op("u4", f"trunc i64 {bits.text} to i32")
        high = code.op("u4", f"trunc i64 {code.op('u8', f'lshr i64 {bits.text}, 32').text} to i32")
        words = [self.shuffle(word, distance) for word in (low, high)]
        low, high = (code.op("u8", f"zext i32 {word.text} to i64") for word in words)
        moved = code.op("u8", f"shl i64 {high.text}, 32")
        return code.bitcast(code.op("u8", f"or i64 {moved.text}, {low.text}"), x.type)

    def shared_slot(self, type: str, index: LLVMValue) -> str:
        """Return the pointer to an element of shared memory."""
        self.shared_bytes = _SHARED_BYTES
        return self.element_pointer(type, "%shared", [(index, 1)], 0)

    def emit_barrier(self) -> None:
        """Wait for all threads of the block."""
        self.code.line("call void @device_barrier()")

    def block_reduction(self, how: str, x: LLVMValue) -> LLVMValue:
        """Combine the values of all threads of a block, in a fixed order; all get the result.

        Threads of a warp combine by shuffles, and the results of warps by shared memory. All
        threads of the block must come here.
        """
        code = self.code
        for distance in (16, 8, 4, 2, 1):
            x = combine_elements(code, how, x, self.shuffle(x, distance), strictly=True)
        warp = code.op("i8", "lshr i64 %lane, 5")
        slot = self.shared_slot(x.type, warp)
        inside = code.op("i8", f"and i64 %lane, {WARP - 1}")
        first = code.op("b1", f"icmp eq i64 {inside.text}, 0")
        self.emit_if(first, lambda: code.store(x, slot))
        self.emit_barrier()
        total = self.alloca(x.type)
        self.store_local(identity_element(code, how, x.type), total)
        warps = code.op("i8", "lshr i64 %width, 5")

        def add_warp(k: LLVMValue) -> None:
            value = code.load(x.type, self.shared_slot(x.type, k))
            before = self.load_local(x.type, total)
            self.store_local(combine_elements(code, how, before, value, strictly=True), total)

        self.emit_strided_loop("0", warps.text, "1", add_warp)
        self.emit_barrier()  # the next reduction writes the slots again
        return self.load_local(x.type, total)

    # -------------------------------------------------------------- reductions

    @staticmethod
    def total_type(n: Node) -> str:
        """Return the type in which a full reduction accumulates: sums in float64."""
        if n.detail[0] == "sum" and n.type in (*HALVES, "f4", "f8"):
            return "f8"
        return "f4" if n.type in HALVES else n.type

    def new_accumulator(self, how: str, type: str) -> str:
        """Return a local that holds the identity element of a reduction."""
        local = self.alloca(type)
        self.store_local(identity_element(self.code, how, type), local)
        return local

    def accumulate_locally(self, how: str, type: str, local: str, value: LLVMValue) -> None:
        """Combine a value into a local of a type, in the order of the calls."""
        code = self.code
        before = self.load_local(type, local)
        after = combine_elements(code, how, before, code.cast(value, type), strictly=True)
        self.store_local(after, local)
