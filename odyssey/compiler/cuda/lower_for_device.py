"""Lowering of a graph to a program of a CUDA device: kernels, and products as calls of cuBLAS."""

from __future__ import annotations

from typing import NamedTuple

from odyssey.compiler.cuda.compile_kernels import address_in, compile_kernels
from odyssey.compiler.cuda.cublas import GemmCall, gemm_calls
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import BufferAddress, CopyStep, CudaProgram, ProductStep
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.lowering import Lowered, lower
from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.state_layout import noncontiguous_strides
from odyssey.compiler.ways.alternatives import lowering_names
from odyssey.compiler.ways.choices import Choices
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.compiler.ways.works import Work
from odyssey.graph.graph import Graph

__all__ = ["DeviceProgram", "GemmStep", "lower_for_device"]


class GemmStep(NamedTuple):
    """A call of cuBLAS in a program.

    Attributes:
        call: Its arguments.
        first: Where the first operand begins, as for cuBLAS.
        second: Where the second operand begins.
        out: Where the result begins.
    """

    call: GemmCall
    first: BufferAddress
    second: BufferAddress
    out: BufferAddress


class DeviceProgram(NamedTuple):
    """A graph as a program of a device.

    Attributes:
        program: Kernels and steps.
        products: By number of a product's node, the calls of cuBLAS.
        addends: By number of a product's node, the copy of what it is added to, if it needs one.
        low: The lowered graph.
    """

    program: CudaProgram
    products: dict[int, list[GemmCall]]
    addends: dict[int, CopyStep]
    low: Lowered

    def steps_of_product(self, node: Node) -> list[CopyStep | GemmStep]:
        """Return the calls of cuBLAS for a product, behind the copy of what it is added to."""
        found: list[CopyStep | GemmStep] = []
        if node.id in self.addends:
            found.append(self.addends[node.id])
        plan = self.program.plan
        left, right, out = (address_in(plan.allocation(n).buffer) for n in (*node.inputs[:2], node))
        for call in self.products[node.id]:
            buffers = (left, right, out) if call.swapped else (right, left, out)
            places = map(BufferAddress.shifted, buffers, call.starts)
            found.append(GemmStep(call, *places))
        return found


def lower_for_device(
    graph: Graph,
    budget: int | None = None,
    ways: WaysPlan = NO_PLAN,
    shape: LaunchShape | None = None,
) -> DeviceProgram:
    """Lower a graph to a program of a CUDA device.

    Rows that are called on the CPU only because that is faster are compiled. Products with sliding
    windows become products of columns, which a kernel copies: cuBLAS reads matrices alone.

    Raises:
        UnsupportedKernelError: a kernel has no form for CUDA devices; the message says which.
    """
    low, schedule = _plan_graph(graph, budget, ways)
    compiled = _compiled_ways(graph, ways, low)
    if compiled:
        ways = WaysPlan({**ways.differences, **compiled})
        low, schedule = _plan_graph(graph, budget, ways)
    windows = {
        choice.work: "columns"
        for choice in schedule.choices.listing()
        if choice.work.row == "window product" and choice.way != "columns"
    }
    if windows:
        low, schedule = _plan_graph(graph, budget, WaysPlan({**ways.differences, **windows}))
    program = compile_kernels(schedule, *(() if shape is None else (shape,)))
    products, addends = {}, {}
    for step in program.steps:
        if isinstance(step, ProductStep):
            node = step.node
            products[node.id] = gemm_calls(schedule, node, bool(graph.tf32))
            if node.detail[1]:
                before, own = schedule.allocation(node.inputs[2]), schedule.allocations[node.id]
                if before.buffer is not own.buffer:
                    addresses = address_in(own.buffer), address_in(before.buffer)
                    addends[node.id] = CopyStep(*addresses, own.buffer.bytes)
    return DeviceProgram(program, products, addends, low)


def _compiled_ways(graph: Graph, ways: WaysPlan, low: Lowered) -> dict[Work, str]:
    """Return the ways that compile works whose guess is a host call, since it is faster on the CPU.

    On a device a host call splits the program into segments. A row stays a host call if it would be
    compiled to host calls of other rows.
    """
    found: dict[Work, str] = {}
    for choice in low.choices.listing():
        row = None if choice.call is None else choice.call[0]
        if row is None or row.lowering is None or choice.origin != "guessed":
            continue
        known = lowering_names(row)
        names = [way.name for way in choice.ways if way.name in known]
        if choice.way in known or not names:
            continue
        plan_ = WaysPlan({**ways.differences, **found, choice.work: names[0]})
        other = lower(graph, choices=Choices(plan_), calls_lapack=False)
        if other.host_calls.keys() <= low.host_calls.keys():
            found[choice.work] = names[0]
    return found


def _plan_graph(graph: Graph, budget: int | None, ways: WaysPlan) -> tuple[Lowered, Plan]:
    low = lower(graph, choices=Choices(ways), calls_lapack=False)
    low.builder.multiplies_halves = True
    schedule = plan(low, noncontiguous_strides(graph), budget)
    schedule.choices = low.choices
    return low, schedule
