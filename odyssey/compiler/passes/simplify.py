"""Algebraic simplification: rewrites of nodes to cheaper nodes of the same value.

Called by ``rewriting``, for each node. Rewrites match nodes by what they compute, not by the names
of ops. They may reorder sums and products of floating numbers, as native code does everywhere;
nothing else changes.

To add a rewrite, write its function, ``function(node, inputs, context)``, and add its row to
``REWRITES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import (
    IRBuilder,
    Node,
    ScalarProgram,
    is_single_op,
    scalar_program,
    substitute,
)
from odyssey.compiler.llvm.types import PARTS
from odyssey.compiler.passes.half_operands import cast_again
from odyssey.compiler.passes.rewriting import Context, Rewrite, users_of
from odyssey.compiler.passes.windows import window_product
from odyssey.kernels import T

__all__ = ["REWRITES", "batch_matmul_sum", "gemm_accumulate", "merge_joins"]

# Only BLAS calls accumulate, and products of fewer elements are not worth one.
_MIN_GEMM_SIZE = 64


# Members of joins that are merged one by one, for each join that is added to them.
_MAX_MERGED_MEMBERS = 256


def _is_binary_op(node: Node, step: str) -> bool:
    """Return whether a node is a map of one step of its two inputs."""
    return node.kind == "map" and len(node.inputs) == 2 and is_single_op(node.payload, step)


def merge_joins(node: Node, inputs: list[Node], context: Context) -> Node | None:
    """Merge a sum of joins with disjoint members into one join of all members.

    If a join has a single member at the same key as a member of the other, as derivatives of
    repeated reads have, these two members are added. Otherwise all joins would be materialized, and
    be live at a time, before they are added.
    """
    builder = context.builder
    if not _is_binary_op(node, "add"):
        return None
    if any(i.kind != "join" or i.shape != node.shape or i.type != node.type for i in inputs):
        return None
    first, second = map(_members_by_key, inputs)
    shared = first.keys() & second.keys()
    if shared and (1 not in (len(first), len(second)) or len(first | second) > _MAX_MERGED_MEMBERS):
        return None
    others = [key for name, (_, key) in second.items() if name not in shared]
    if any(not _are_disjoint(x, y, node.shape) for _, x in first.values() for y in others):
        return None
    program, members = ScalarProgram(node.payload, node.detail), []
    for name, (member, key) in (first | second).items():
        if name in shared:
            pair = first[name][0], second[name][0]
            members.append((builder.map(program, pair, member.shape, node.type), key))
        else:
            members.append((_with_zero_added(builder, member), key))
    return builder.join(members, node.shape, node.type)


def batch_matmul_sum(node: Node, inputs: list[Node], context: Context) -> Node | None:
    """Replace a sum over a batch of products by one product with a longer inner axis."""
    builder, users = context.builder, context.users
    if node.kind != "reduce" or node.detail[0] != "sum" or len(users[node.inputs[0].id]) != 1:
        return None
    (product,) = inputs
    if product.kind != "product" or product.detail != ("=", 0.0):
        return None
    batch = tuple(a for a in range(len(product.shape) - 2) if product.shape[a] != 1)
    a, b = product.inputs
    unbroadcast = a.shape[:-2] == b.shape[:-2] == product.shape[:-2]
    if not batch or node.detail[1] != batch or not unbroadcast:
        return None
    result = builder.make_node("product", [a, b], product.shape[-2:], product.type, ("sum", 0.0))
    result.op = product.op
    return builder.reshape(result, node.shape)


REWRITES = (
    Rewrite(
        "merge_joins",
        "join(a at k) + join(b at l), k and l disjoint",
        "join(a at k, b at l)",
        merge_joins,
    ),
    Rewrite(
        "batch_matmul_sum",
        "sum over the batch of (a @ b)",
        "one product with the batch as part of the inner axis",
        batch_matmul_sum,
    ),
    Rewrite(
        "window_product",
        "a @ columns of sliding windows",
        "product that reads the windows in place",
        window_product,
    ),
    Rewrite(
        "cast_again",
        "a reader of a cast of half precision, many products later",
        "a cast of its own, as late as it is needed",
        cast_again,
    ),
)
"""Rewrites, applied one after another, each to the whole graph."""


def _members_by_key(join: Node) -> dict[Any, tuple[Node, tuple[Any, ...]]]:
    """Return the members of a join with their keys, by hashable key."""
    pairs = zip(join.inputs, join.payload, strict=True)
    return dict(zip(join.detail, pairs, strict=True))


def _add_zero(x: Any) -> Any:
    return x + T(0)


def _with_zero_added(builder: IRBuilder, member: Node) -> Node:
    """Return a member plus 0, as in the sum, which turns -0.0 into 0.0."""
    if member.type[0] not in "fc":
        return member
    program = scalar_program(_add_zero, 1, (), member.type)
    if member.kind == "map" and member.detail == program.key:
        return member
    return builder.map(program, [member], member.shape, member.type)


def _are_disjoint(a: tuple[Any, ...], b: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Return whether two keys are certainly disjoint, which one axis must show."""
    if any(k is None or k is Ellipsis for k in (*a, *b)):
        return False
    for x, y, n in zip(a, b, shape, strict=False):
        first, second = (
            range(n)[k] if isinstance(k, slice) else range(k % n, k % n + 1) for k in (x, y)
        )
        if not first or not second:
            return True
        if max(first) < min(second) or max(second) < min(first):
            return True
    return False


def gemm_accumulate(
    builder: IRBuilder, roots: Sequence[Node], updates: Mapping[int, Node]
) -> list[Node]:
    """Replace an update ``v = m v + a @ b`` by one product that BLAS accumulates into ``v``.

    Only if nothing else reads the product or the old ``v``.

    Args:
        builder: Builder of new nodes.
        roots: Roots of the graph.
        updates: By position among the roots, the leaf of the state that a root updates.
    """
    users = users_of(roots)
    products: dict[int, Node] = {}
    outputs = {root.id for root in roots}
    for position, state in updates.items():
        update = roots[position]
        if len(users.get(state.id, ())) == 1 and state.id not in outputs:
            product = _accumulating_product(builder, update, state, users)
            if product is not None:
                products[update.id] = product
    new = substitute(builder, roots, products)
    return [new[root.id] for root in roots]


def _accumulating_product(
    builder: IRBuilder, update: Node, state: Node, users: Mapping[int, list[Node]]
) -> Node | None:
    if not _is_binary_op(update, "add"):
        return None
    for scaled, g in (update.inputs, update.inputs[::-1]):
        base = _skip_reshapes(g, users)
        if len(users[base.id]) != 1 or base.kind != "product" or base.detail[1] != 0.0:
            continue
        if base.size <= _MIN_GEMM_SIZE or len(base.shape) != 2 or base.type in PARTS:
            continue
        factor = _state_factor(scaled, state, users)
        if factor is not None and base.shape == state.shape and base.type == state.type:
            detail = (base.detail[0], factor, *base.detail[2:])
            operands = [*base.inputs, state]
            result = builder.make_node("product", operands, base.shape, base.type, detail)
            result.op = base.op
            return builder.reshape(result, update.shape)
    return None


def _state_factor(scaled: Node, state: Node, users: Mapping[int, list[Node]]) -> float | None:
    """Return the factor of a state; None if there is none, or if something else reads it."""
    if _skip_reshapes(scaled, users) is state:
        return 1.0
    if not _is_binary_op(scaled, "mul") or len(users[scaled.id]) != 1:
        return None
    cores = [_skip_reshapes(i, users) for i in scaled.inputs]
    numbers = [i for i in cores if i is not state]
    if len(numbers) != 1 or numbers[0].kind != "number":
        return None
    # 0 * NaN is NaN, but BLAS does not read what it multiplies by 0.
    return float(numbers[0].payload) or None


def _skip_reshapes(node: Node, users: Mapping[int, list[Node]]) -> Node:
    """Return the operand of reshapes that nothing else reads."""
    while node.kind == "view" and node.detail[0] == "reshape":
        if len(users[node.inputs[0].id]) > 1:
            break
        node = node.inputs[0]
    return node
