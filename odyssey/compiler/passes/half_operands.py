"""Casts of half-precision values for late readers: computed again, so that no float32 copy waits.

Ops compute halves in float32. What the forward pass of a network computes is read again by the
backward pass, long after. One cast for both readers would keep a float32 copy until then, and so
would the slope of an activation, which needs nothing but such a value and would be computed with
it. Here late readers cast again, and what they compute of such casts alone waits for its reader.
"""

from __future__ import annotations

from odyssey.compiler.ir.nodes import IRBuilder, Node
from odyssey.compiler.llvm.types import HALVES
from odyssey.compiler.passes.rewriting import Context

__all__ = ["cast_again"]

# Products between a cast and its reader, from which on the reader casts again: neighbors share one,
# as the two products of a backward pass that read one cotangent.
_FAR = 3
_READERS = ("product", "map", "reduce")


def cast_again(node: Node, inputs: list[Node], context: Context) -> Node | None:
    """Let a node cast half-precision operands by itself if their casts are of long before."""
    if node.kind not in _READERS:
        return None
    new = [
        _cast_late(context.builder, i, node.id) if _is_cast_long_before(old, node, context) else i
        for old, i in zip(node.inputs, inputs, strict=True)
    ]
    if all(a is b for a, b in zip(new, inputs, strict=True)):
        return None
    copy = context.builder.with_inputs(node, new)
    # What is computed of late casts alone is late as well.
    waits = node.kind == "map" and all(i.is_rematerialized for i in new if i.size > 1)
    copy.is_rematerialized = copy.is_rematerialized or waits
    return copy


def _is_cast_long_before(operand: Node, reader: Node, context: Context) -> bool:
    cast = operand.owner
    if cast.kind != "map" or cast.type != "f4" or cast.size == 1 or len(cast.inputs) != 1:
        return False
    if cast.inputs[0].type not in HALVES or len(cast.payload.steps):
        return False
    return context.products_between(cast, reader) >= _FAR


def _cast_late(builder: IRBuilder, operand: Node, reader: int) -> Node:
    """Return an operand whose cast is computed once more, as late as it is needed."""
    if operand.kind == "view":
        source = _cast_late(builder, operand.inputs[0], reader)
        return builder.with_inputs(operand, [source])
    detail = (operand.detail, "for", reader)
    copy = builder.make_node(
        "map", operand.inputs, operand.shape, operand.type, detail, operand.payload
    )
    copy.is_rematerialized = True
    return copy
