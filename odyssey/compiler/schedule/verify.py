"""Whether a plan is sound: looked at anew, for tests and for who asks."""

from __future__ import annotations

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.passes.layout_assignment import is_readable, is_writable
from odyssey.compiler.passes.windows import is_vectorizable, product_axes
from odyssey.compiler.schedule.buffer_assignment import Plan, reads_elementwise

__all__ = ["verify"]


def verify(made: Plan) -> None:
    """Raise unless the plan is sound: for tests, and for who asks for it.

    Raises:
        AssertionError: two values are in one place at one time, or something is read before it is
            there, or a state is written before all that can fail has been done, or a product, or
            what it reads, lies where BLAS cannot write or read it.
    """
    kernels = made.fused.kernels
    buffers = {id(h.buffer): h.buffer for h in made.homes.values() if h.buffer.kind == "arena"}
    ordered = sorted(buffers.values(), key=lambda b: b.first)
    for k, a in enumerate(ordered):
        assert a.offset + a.bytes <= made.arena, "beyond the arena"
        for b in ordered[k + 1 :]:
            if b.first > a.last:
                break
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert apart or not (a.bytes and b.bytes), f"{a} and {b} overlap"
    for kernel in kernels:
        for node in made.read(kernel):
            source = made.fused.kernel_of.get(node.id)
            assert source is None or source.place < kernel.place, f"{node} is read too early"
        for node in kernel.nodes:
            home = made.homes.get(node.id)
            assert home is None or is_writable(node, home.view), f"{node} cannot be written there"
            if node.kind == "product":
                _verify_operands(made, node)
    _verify_buffer_reuse(made)
    barrier = max((k.place for k in kernels if k.checks or k.kind == "call"), default=-1)
    for number, state in made.fused.in_place.items():
        kernel = made.fused.kernel_of[number]
        assert kernel.place > barrier, f"{state} is written before all that can fail"
        for later in kernels[kernel.place + 1 :]:
            assert all(n is not state for n in made.read(later)), f"{state} is read too late"


def _verify_operands(made: Plan, product: Node) -> None:
    """Look whether a product can read its operands where they lie; nothing lies anywhere."""
    a, b = (made.home(i).view for i in product.inputs[:2])
    if not a.size or not b.size:
        return
    inner = product_axes(product)
    if inner is not None:
        assert is_vectorizable(a, b, inner), f"{product} cannot read in vectors"
        return
    for place, view in enumerate((a, b)):
        fits = is_readable(view, product.detail[0] == "sum", place)
        assert fits, f"{product} cannot read {product.inputs[place]} there"


def _verify_buffer_reuse(made: Plan) -> None:
    """Look whether what is written over a value comes after all who read that."""
    fused = made.fused
    known: dict[tuple[int, object], Node] = {}
    last: dict[int, int] = {}
    for kernel in fused.kernels:
        for node in made.read(kernel):
            last[node.id] = kernel.place
    for kernel in fused.kernels:
        for node in kernel.nodes:
            home = made.homes.get(node.id)
            if home is None or home.buffer.kind != "arena":
                continue
            before = known.get((id(home.buffer), home.view))
            known[id(home.buffer), home.view] = node
            if before is None:
                continue
            read = last.get(before.id, -1)
            assert read <= kernel.place, f"{before} is read after {node} was written over it"
            along = read < kernel.place or reads_elementwise(made, kernel, node, home.buffer)
            assert along, f"{node} is written over {before}, which is read at other places"
