"""Walking over graphs of nodes, and making them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from odyssey.compiler.ir.nodes import Node, Nodes

__all__ = ["live", "rebuilt", "replaced"]


def live(roots: Iterable[Node]) -> list[Node]:
    """What roots are computed from, inputs first."""
    found: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            stack += node.inputs
    return [found[k] for k in sorted(found)]


def rebuilt(
    nodes: Nodes, roots: Sequence[Node], rule: Callable[[Node, list[Node]], Node | None]
) -> list[Node]:
    """Roots whose graph was rewritten.

    Args:
        nodes: What makes nodes.
        roots: What is wanted.
        rule: Given a node and its new inputs, what takes its place; None for the node itself.
    """
    new: dict[int, Node] = {}
    for node in live(roots):
        inputs = [new[i.id] for i in node.inputs]
        made = rule(node, inputs)
        if made is None:
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            made = node if same else nodes.like(node, inputs)
        new[node.id] = made
    return [new[root.id] for root in roots]


def replaced(nodes: Nodes, roots: Sequence[Node], new: Mapping[int, Node]) -> dict[int, Node]:
    """By number of each node of a graph what takes its place, where some give way to others.

    Args:
        nodes: What makes nodes.
        roots: What is wanted.
        new: By number of a node, another of the same value; of its inputs, too, some may give way.
    """
    made: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        given = new.get(node.id, node)
        waiting = [i for i in given.inputs if i.id not in made]
        if waiting and node.id not in made:
            stack += waiting
            continue
        stack.pop()
        if node.id not in made:
            inputs = [made[i.id] for i in given.inputs]
            same = all(a is b for a, b in zip(inputs, given.inputs, strict=True))
            made[node.id] = given if same else nodes.like(given, inputs)
    return made
