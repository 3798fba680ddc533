"""Rewriting graphs of nodes: each pass takes roots and gives roots that mean the same.

Passes know nodes by what they compute, not by the names of ops. A sum or a product of floating
numbers may be taken in another order here, as everywhere in native code; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import (
    IRBuilder,
    Node,
    ScalarProgram,
    is_single_op,
    rewrite,
    scalar_program,
    substitute,
    topological_order,
)
from odyssey.compiler.llvm.types import PARTS
from odyssey.kernels import T

__all__ = ["gemm_accumulate", "batch_matmul_sum", "merge_joins"]

# Products of fewer elements are not worth a call of BLAS, which alone adds to what is there.
_FEW = 64


def _users(roots: Sequence[Node]) -> dict[int, list[Node]]:
    found: dict[int, list[Node]] = {}
    for node in topological_order(roots):
        for i in node.inputs:
            found.setdefault(i.id, []).append(node)
    for root in roots:
        found.setdefault(root.id, []).append(root)
    return found


def _is_binary_op(node: Node, step: str) -> bool:
    """Whether a map is this one step of its two inputs, and nothing else."""
    return node.kind == "map" and len(node.inputs) == 2 and is_single_op(node.work, step)


# Parts that are looked at anew for each that is summed to one of them.
_MOST_SUMMED = 256


def merge_joins(nodes: IRBuilder, roots: Sequence[Node]) -> list[Node]:
    """A sum of wholes whose parts lie apart, and that are 0 elsewhere, is a whole of all parts.

    So is one where the only part of a whole lies just where one of the other does, as derivatives
    of what is read at several places: those two parts are summed, of some hundreds of parts. Else
    all of the wholes would be made, and held at a time, before they are added up.
    """

    def rule(node: Node, inputs: list[Node]) -> Node | None:
        if not _is_binary_op(node, "add") or any(
            i.kind != "join" or i.shape != node.shape for i in inputs
        ):
            return None
        if any(i.type != node.type for i in inputs):
            return None
        first, second = map(_members_by_key, inputs)
        both = first.keys() & second.keys()
        if both and (1 not in (len(first), len(second)) or len(first | second) > _MOST_SUMMED):
            return None
        others = [key for name, (_, key) in second.items() if name not in both]
        if any(not _are_disjoint(x, y, node.shape) for _, x in first.values() for y in others):
            return None
        means, parts = ScalarProgram(node.work, node.detail), []
        for name, (part, key) in (first | second).items():
            if name in both:
                pair = first[name][0], second[name][0]
                parts.append((nodes.map(means, pair, part.shape, node.type), key))
            else:
                parts.append((_with_zero_added(nodes, part), key))
        return nodes.join(parts, node.shape, node.type)

    return rewrite(nodes, roots, rule)


def _members_by_key(whole: Node) -> dict[Any, tuple[Node, tuple[Any, ...]]]:
    """By what their keys are called, the parts of a whole, and where they lie."""
    pairs = zip(whole.inputs, whole.work, strict=True)
    return dict(zip(whole.detail, pairs, strict=True))


def _add_zero(x: Any) -> Any:
    return x + T(0)


def _with_zero_added(nodes: IRBuilder, part: Node) -> Node:
    """A part as it is in a sum with 0, which takes the sign of a negative zero."""
    if part.type[0] not in "fc":
        return part
    means = scalar_program(_add_zero, 1, (), part.type)
    known = part.kind == "map" and part.detail == means.text
    return part if known else nodes.map(means, [part], part.shape, part.type)


def _are_disjoint(a: tuple[Any, ...], b: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether two keys surely pick different places, which some axis must show."""
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


def batch_matmul_sum(nodes: IRBuilder, roots: Sequence[Node]) -> list[Node]:
    """A sum over a batch of products is one product, whose inner axis is all of the batch."""
    users = _users(roots)

    def rule(node: Node, inputs: list[Node]) -> Node | None:
        if node.kind != "fold" or node.detail[0] != "sum" or len(users[node.inputs[0].id]) != 1:
            return None
        (product,) = inputs
        if product.kind != "product" or product.detail != ("=", 0.0):
            return None
        batch = tuple(a for a in range(len(product.shape) - 2) if product.shape[a] != 1)
        a, b = product.inputs
        whole = a.shape[:-2] == b.shape[:-2] == product.shape[:-2]
        if not batch or node.detail[1] != batch or not whole:
            return None
        made = nodes.make("product", [a, b], product.shape[-2:], product.type, ("sum", 0.0))
        made.of = product.of
        return nodes.reshape(made, node.shape)

    return rewrite(nodes, roots, rule)


def gemm_accumulate(
    nodes: IRBuilder, roots: Sequence[Node], updates: Mapping[int, Node]
) -> list[Node]:
    """Let ``v = m v + a @ b`` be one call of BLAS, where nobody else sees the product, nor ``v``.

    Args:
        nodes: What makes nodes.
        roots: What is wanted.
        updates: By place among the roots, the leaf of the state that a root becomes.
    """
    users = _users(roots)
    swapped: dict[int, Node] = {}
    wanted = {root.id for root in roots}
    for place, state in updates.items():
        update = roots[place]
        if len(users.get(state.id, ())) == 1 and state.id not in wanted:
            made = _accumulating_product(nodes, update, state, users)
            if made is not None:
                swapped[update.id] = made
    new = substitute(nodes, roots, swapped)
    return [new[root.id] for root in roots]


def _accumulating_product(
    nodes: IRBuilder, update: Node, state: Node, users: Mapping[int, list[Node]]
) -> Node | None:
    if not _is_binary_op(update, "add"):
        return None
    for scaled, g in (update.inputs, update.inputs[::-1]):
        base = _skip_reshapes(g, users)
        if len(users[base.id]) != 1 or base.kind != "product" or base.detail[1] != 0.0:
            continue
        if base.size <= _FEW or len(base.shape) != 2 or base.type in PARTS:
            continue
        factor = _state_factor(scaled, state, users)
        if factor is not None and base.shape == state.shape and base.type == state.type:
            detail = (base.detail[0], factor, *base.detail[2:])
            made = nodes.make("product", [*base.inputs, state], base.shape, base.type, detail)
            made.of = base.of
            return nodes.reshape(made, update.shape)
    return None


def _state_factor(scaled: Node, state: Node, users: Mapping[int, list[Node]]) -> float | None:
    """By which number a state is multiplied, and nobody else sees that; None where it is not."""
    if _skip_reshapes(scaled, users) is state:
        return 1.0
    if not _is_binary_op(scaled, "mul") or len(users[scaled.id]) != 1:
        return None
    cores = [_skip_reshapes(i, users) for i in scaled.inputs]
    numbers = [i for i in cores if i is not state]
    if len(numbers) != 1 or numbers[0].kind != "number":
        return None
    # 0 times NaN is NaN, and BLAS does not read what it is to multiply by 0.
    return float(numbers[0].work) or None


def _skip_reshapes(node: Node, users: Mapping[int, list[Node]]) -> Node:
    """What a node shows in another shape, if it alone sees that."""
    while node.kind == "view" and node.detail[0] == "reshape":
        if len(users[node.inputs[0].id]) > 1:
            break
        node = node.inputs[0]
    return node
