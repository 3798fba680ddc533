"""Runs of CUDA programs on the CPU, beside what NumPy gives for the graph.

Kernels run by ``compiler.cuda.host_execution``, and products by NumPy in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

import odyssey as od
from odyssey.compiler.cuda.compile_kernels import compile_kernels
from odyssey.compiler.cuda.host_execution import HostKernels
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import (
    BufferAddress,
    CheckStep,
    CopyStep,
    CudaProgram,
    Launch,
    ProductStep,
    ZeroStep,
)
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.pipeline import lower_program
from odyssey.graph.graph import Graph

__all__ = ["SMALL", "HostRun", "StepRuns", "cuda_program", "run_on_host", "run_step"]

SMALL = LaunchShape(threads=64, blocks=3)
"""Few blocks of two warps, which take all ways: Python's threads wait long for one another."""


def cuda_program(graph: Graph, shape: LaunchShape = SMALL) -> CudaProgram:
    """The program of a graph, for arguments that lie as C has them."""
    return compile_kernels(lower_program(graph).plan, shape)


class HostRun:
    """A program with memory of its own, which is filled with garbage before a run.

    Attributes:
        states: By number of a state, its array, which runs read and write.
        truths: Values of the checks, in order.
    """

    def __init__(
        self,
        program: CudaProgram,
        inputs: Sequence[Any],
        states: dict[int, Any],
        backward: bool,
        given: Sequence[Any] = (),
    ) -> None:
        self.program, self.states = program, states
        self.truths: list[bool] = []
        self._backward = backward
        self._memory: dict[tuple[str, int], Any] = {}
        plan = program.plan
        for k, x in enumerate(inputs):
            self._memory["input", k] = np.ascontiguousarray(x)
        for k, x in states.items():
            self._memory["state", k] = x
        for k, number in enumerate(given):
            self._memory["given", k] = number
        for n in plan.fused.order:
            if n.kind == "leaf" and n.detail[0] == "constant":
                self._memory["constant", n.detail[1]] = np.ascontiguousarray(n.payload)
        sizes = {("arena", 0): int(plan.arena), ("scratch", 0): program.scratch}
        for allocation in plan.allocations.values():
            buffer = allocation.buffer
            if buffer.kind == "output":
                sizes["output", buffer.index] = buffer.bytes
        for key, size in sizes.items():
            self._memory[key] = np.full(size + 64, 0xA5, np.uint8)

    @cached_property
    def _kernels(self) -> HostKernels:
        return HostKernels(self.program, self._backward)

    def _bytes(self, address: BufferAddress) -> Any:
        array = self._memory[address.kind, address.index]
        return array.reshape(-1).view(np.uint8)[address.offset :]

    def value(self, node: Any) -> Any:
        """The elements of a node where they lie."""
        (buffer, view), dtype = self.program.plan.allocation(node), dtype_of_code(node.type)
        offset = buffer.offset if buffer.kind == "arena" else 0
        start = offset + view.offset * dtype.itemsize
        memory = self._bytes(BufferAddress(buffer.kind, 0 if offset else buffer.index, start))
        if buffer.kind == "arena":
            memory = self._bytes(BufferAddress("arena", 0, start))
        flat = memory[: memory.size - memory.size % dtype.itemsize].view(dtype)
        return as_strided(flat, view.shape, [s * dtype.itemsize for s in view.strides])

    def run(self) -> None:
        """Run all steps in order."""
        for step in self.program.steps:
            if isinstance(step, Launch):
                addresses = [self._bytes(a).ctypes.data for a in step.arguments]
                self._kernels.launch(step.kernel, step.grid, step.block, addresses)
            elif isinstance(step, ProductStep):
                self._product(step.node)
            elif isinstance(step, CopyStep):
                self._bytes(step.target)[: step.bytes] = self._bytes(step.source)[: step.bytes]
            elif isinstance(step, ZeroStep):
                self._bytes(step.target)[: step.bytes] = 0
            elif isinstance(step, CheckStep):
                self.truths.append(bool(self._bytes(step.address)[0]))
            else:
                raise AssertionError(f"no run of {step}")

    def _product(self, node: Any) -> None:
        a, b = (self.value(i) for i in node.inputs[:2])
        if a.dtype.kind not in "iub":  # rounded once: what libraries round is not tested by this
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            a, b = a.astype(wide), b.astype(wide)
        inner, columns = (*node.detail[2:], 1, 1)[:2] if len(node.detail) > 2 else (1, 1)
        a = a.reshape(*a.shape[: a.ndim - inner], math.prod(a.shape[a.ndim - inner :]))
        head = b.shape[: b.ndim - inner - columns]
        rows = math.prod(b.shape[len(head) : len(head) + inner])
        b = b.reshape(*head, rows, math.prod(b.shape[len(head) + inner :]))
        out = np.matmul(a, b)
        if node.detail[0] == "sum":
            out = out.sum(tuple(range(out.ndim - 2)))
        if node.detail[1]:
            out = out + node.detail[1] * self.value(node.inputs[2])
        self.value(node)[...] = out.reshape(node.shape)

    def outputs(self) -> list[Any]:
        """Copies of the outputs that the program writes."""
        plan = self.program.plan
        return [self.value(plan.outputs[k]).copy() for k in plan.written_outputs()]


def run_on_host(
    graph: Graph, inputs: Sequence[Any], backward: bool = False, shape: LaunchShape = SMALL
) -> HostRun:
    """Run the program of a graph once; the Variables that it captured stay as they are."""
    states = {k: s.variable._array.copy() for k, s in enumerate(graph.states) if s.field == "data"}
    run = HostRun(cuda_program(graph, shape), inputs, states, backward)
    run.run()
    return run


class StepRuns(NamedTuple):
    """A program run twice, and what NumPy gives.

    Attributes:
        run: The run in order.
        backward: The run with blocks and threads in reverse order.
        outputs: Outputs by NumPy.
        left: By label of a Variable, what NumPy leaves in it.
    """

    run: HostRun
    backward: HostRun
    outputs: list[Any]
    left: dict[str, Any]

    def assert_equal_bits(self) -> None:
        """Check that the order of threads does not matter."""
        for a, b in zip(self.run.outputs(), self.backward.outputs(), strict=True):
            np.testing.assert_array_equal(a, b)
        for k, a in self.run.states.items():
            np.testing.assert_array_equal(a, self.backward.states[k])

    def states(self, graph: Graph) -> dict[str, Any]:
        """By label of a Variable, what the run left in it."""
        return {
            s.label: self.run.states[k]
            for k, s in enumerate(graph.states)
            if s.field == "data" and s.update is not None
        }


def run_step(fn: Any, *args: Any, shape: LaunchShape = SMALL) -> tuple[Graph, StepRuns]:
    """Run a function's program in both orders, beside NumPy."""
    lowered = od.compile(fn).lower(*args)
    graph = lowered.graph
    arrays = [np.asarray(a) for a in args]
    result, left = lowered.evaluate(*args)
    outputs = [np.asarray(x) for x in od.tree.leaves(result)]
    runs = [run_on_host(graph, arrays, backward, shape) for backward in (False, True)]
    return graph, StepRuns(*runs, outputs, left)
