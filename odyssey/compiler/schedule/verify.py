"""Verifier of plans: an independent check of buffer assignment and order, for tests.

Called by ``compiled_function`` and ``sized_program`` with ``check=True``.
"""

from __future__ import annotations

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.passes.layout_assignment import (
    is_lapack_operand,
    is_readable,
    is_writable,
)
from odyssey.compiler.passes.windows import is_vectorizable, product_axes
from odyssey.compiler.schedule.buffer_assignment import Plan, reads_elementwise

__all__ = ["verify"]


def verify(plan: Plan) -> None:
    """Raise AssertionError unless a plan is sound.

    Raises:
        AssertionError: if two values overlap in memory and in time, something is read before it is
            written, a state is written before everything that can fail, or a product or one of its
            operands has a layout that BLAS cannot write or read.
    """
    kernels = plan.fused.kernels
    allocations = plan.allocations.values()
    buffers = {id(a.buffer): a.buffer for a in allocations if a.buffer.kind == "arena"}
    ordered = sorted(buffers.values(), key=lambda b: b.first)
    for k, a in enumerate(ordered):
        assert a.offset + a.bytes <= plan.arena, "beyond the arena"
        for b in ordered[k + 1 :]:
            if b.first > a.last:
                break
            disjoint = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert disjoint or not (a.bytes and b.bytes), f"{a} and {b} overlap"
    for kernel in kernels:
        for node in plan.arrays_read(kernel):
            source = plan.fused.kernel_of.get(node.id)
            early = source is not None and source.position >= kernel.position
            assert not early, f"{node} is read too early"
        for node in kernel.nodes:
            allocation = plan.allocations.get(node.id)
            storable = allocation is None or is_writable(node, allocation.view)
            assert storable, f"{node} cannot be written there"
            if node.kind == "product":
                _verify_operands(plan, node)
            for k, operand in enumerate(node.inputs if node.kind == "lapack" else ()):
                readable = is_lapack_operand(node, k, plan.allocation(operand).view)
                assert readable or not operand.size, f"{node} cannot read {operand} there"
    _verify_buffer_reuse(plan)
    last_fallible = max((k.position for k in kernels if k.checks or k.kind == "call"), default=-1)
    for number, state in plan.fused.in_place.items():
        kernel = plan.fused.kernel_of[number]
        assert kernel.position > last_fallible, f"{state} is written before all that can fail"
        (node,) = [n for n in kernel.nodes if n.id == number]
        overwritten = [state]
        if node.kind == "scatter":
            over = plan.is_over_base(node)
            overwritten += [node.inputs[0].owner] * over
            rest = [i.owner for n in kernel.nodes for i in n.inputs[over and n is node :]]
            assert not any(i in overwritten for i in rest), f"{state} is read while it is written"
        for later in kernels[kernel.position + 1 :]:
            late = any(n in overwritten for n in plan.arrays_read(later))
            assert not late, f"{state} is read too late"


def _verify_operands(plan: Plan, product: Node) -> None:
    """Check that a product can read its operands in place; empty ones have any layout."""
    a, b = (plan.allocation(i).view for i in product.inputs[:2])
    if not a.size or not b.size:
        return
    axes = product_axes(product)
    if axes is not None:
        assert is_vectorizable(a, b, axes), f"{product} cannot read in vectors"
        return
    for k, view in enumerate((a, b)):
        readable = is_readable(view, product.detail[0] == "sum", k)
        assert readable, f"{product} cannot read {product.inputs[k]} there"


def _verify_buffer_reuse(plan: Plan) -> None:
    """Check that a value is overwritten only after its last read."""
    fused = plan.fused
    holders: dict[tuple[int, object], Node] = {}
    last_reads: dict[int, int] = {}
    for kernel in fused.kernels:
        for node in plan.arrays_read(kernel):
            last_reads[node.id] = kernel.position
    for kernel in fused.kernels:
        for node in kernel.nodes:
            allocation = plan.allocations.get(node.id)
            if allocation is None or allocation.buffer.kind != "arena":
                continue
            before = holders.get((id(allocation.buffer), allocation.view))
            holders[id(allocation.buffer), allocation.view] = node
            if before is None:
                continue
            read = last_reads.get(before.id, -1)
            assert read <= kernel.position, f"{before} is read after {node} was written over it"
            elementwise = read < kernel.position or reads_elementwise(
                plan, kernel, node, allocation.buffer
            )
            assert elementwise, f"{node} is written over {before}, which is read at other places"
