"""Layout assignment: choose memory order for each value so that its readers need no copies.

Called by ``pass_manager``; ``buffer_assignment`` reads the layouts. Results and new states get
memory of their own, members of a join lie inside its memory, and axes are ordered so that views
need no copies. Where that is impossible, copies are inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odyssey.compiler.ir.nodes import IRBuilder, Node, owns_memory, substitute, topological_order
from odyssey.compiler.ir.views import View
from odyssey.compiler.lowering import Lowered
from odyssey.compiler.passes.windows import is_vectorizable, product_axes

__all__ = [
    "Roots",
    "isolate_join_members",
    "locate_member",
    "apply_view",
    "legalize_products",
    "assign_layouts",
    "current_view",
    "find_strided_states",
    "is_lapack_operand",
    "is_readable",
    "strided_leaves",
    "is_writable",
]


def apply_view(node: Node, base: View) -> View:
    """Return the view of a view node's operand; ValueError if it would need a copy."""
    kind, how = node.detail
    if kind == "reshape":
        return base.reshape(how)
    # Views compute plain lengths; the node has the symbolic ones.
    if kind == "slice":
        return base.slice(node.payload)._replace(shape=node.shape)
    if kind == "windows":
        return base.windows(*how)._replace(shape=node.shape)
    return base.transpose(how) if kind == "transpose" else base.broadcast(how)


def strided_leaves(states: Iterable[Node], strides: Mapping[int, Sequence[int]]) -> dict[int, View]:
    """Return the views of states that are not contiguous, by number of the leaf."""
    leaves = {n.id: n for n in states if n.detail[1] in strides}
    return {id: View(n.shape, tuple(strides[n.detail[1]])) for id, n in leaves.items()}


class Roots:
    """Results, updates, checks and effects of a graph while passes rewrite it.

    Args:
        low: The lowered graph.
        strides: By number of a state that is not contiguous, its strides in elements.

    Attributes:
        nodes: The roots: outputs, then updates, checks and effects.
        builder: Builder of new nodes.
        choices: Ways of the works of the program.
        outputs: Positions in the result of the outputs.
        output_count: Length of the result.
        states: Numbers of the states that are updated.
        checks: The slice of the checks in ``nodes``.
        leaves: By number of the leaf of a state that is not contiguous, its view.
        layout: By number of a node, its axes from the largest to the smallest stride, if not in
            their order.
    """

    def __init__(self, low: Lowered, strides: Mapping[int, Sequence[int]]) -> None:
        self.strides = strides
        self.builder = low.builder
        self.choices = low.choices
        self.outputs = [k for k, node in enumerate(low.outputs) if node is not None]
        self.output_count = len(low.outputs)
        self.states = list(low.updates)
        self.nodes = [node for node in low.outputs if node is not None]
        self.nodes += low.updates.values()
        self.checks = slice(len(self.nodes), None if not low.effects else -len(low.effects))
        self.nodes += [*_check_values(low.builder, low.checks), *low.effects]
        self.leaves: dict[int, View] = {}
        self.layout: dict[int, Sequence[int]] = {}

    def replace(self, new: Mapping[int, Node]) -> None:
        """Replace some nodes, by number; a replacement has the layout of the node."""
        if new:
            replacements = substitute(self.builder, self.nodes, new)
            self.nodes = [replacements[node.id] for node in self.nodes]
            for id, axes in list(self.layout.items()):
                if id in replacements:
                    self.layout[replacements[id].id] = axes

    def updated_leaves(self) -> dict[int, Node]:
        """Return the leaf of the state of each update, by position, if it is contiguous."""
        leaves = {
            n.detail[1]: n
            for n in topological_order(self.nodes)
            if n.kind == "leaf" and n.detail[0] == "state"
        }
        first = len(self.outputs)
        return {
            first + k: leaves[state]
            for k, state in enumerate(self.states)
            if state in leaves and state not in self.strides
        }

    def unalias(self) -> None:
        """Give every result and every update memory that it does not share."""
        taken: set[int] = set()
        ends = len(self.outputs) + len(self.states)
        order = [*range(len(self.outputs), ends), *range(len(self.outputs))]
        read = self._read_by_layout() if self.strides else set()
        for k in order:
            node = self.nodes[k]
            base = node
            if k < len(self.outputs) and node.kind == "result" and node.id not in taken:
                taken.add(node.id)  # the result of a host call is returned itself
                continue
            while base.kind == "view" and base.detail[0] == "reshape":
                base = base.inputs[0]
            if not owns_memory(base) or base.id in taken:
                node = base = self.builder.copy(node, k)
            if k >= len(self.outputs) and k - len(self.outputs) < len(self.states):
                state = self.states[k - len(self.outputs)]
                if state in self.strides:
                    view = View(node.shape, tuple(self.strides[state]))
                    if base is not node or not is_writable(node, view) or node.id in read:
                        node = base = self.builder.copy(node, k)
                node = base
            self.nodes[k] = node
            taken.add(base.id)
        self.taken = taken

    def _read_by_layout(self) -> set[int]:
        """Return the numbers of nodes that views, products or LAPACK read by their layout."""
        readers = [
            n for n in topological_order(self.nodes) if n.kind in ("view", "product", "lapack")
        ]
        return {i.id for n in readers for i in n.inputs}


def _check_values(builder: IRBuilder, checks: Iterable[Node]) -> list[Node]:
    """Reduce each check to one truth value."""
    values: dict[int, Node] = {}
    for check in checks:
        x = builder.convert(check, "b1")
        value = builder.reduce("all", x, range(len(x.shape)))
        if not owns_memory(value):
            value = builder.copy(value, "check")
        values[value.id] = value
    return list(values.values())


def find_strided_states(roots: Roots) -> None:
    """Note the views of states that are not contiguous."""
    nodes = topological_order(roots.nodes)
    states = [n for n in nodes if n.kind == "leaf" and n.detail[0] == "state"]
    roots.leaves = strided_leaves(states, roots.strides)


def assign_layouts(roots: Roots) -> None:
    """Choose the order of the axes of values so that views need no copies; else insert copies."""
    layout, leaves = roots.layout, roots.leaves
    for node in topological_order(roots.nodes):
        if node.kind == "view" and not _is_viewable(node, layout, leaves):
            base = node.owner
            axes = _transposed_axes(node.inputs[0], base)
            free = owns_memory(base) and base.id not in roots.taken and base.id not in layout
            if axes is not None and free and _is_storable(base, View.dense(base.shape, axes)):
                layout[base.id] = axes
    new: dict[int, Node] = {}
    for node in topological_order(roots.nodes):
        if node.kind == "view" and not _is_viewable(node, layout, leaves):
            copy = roots.builder.copy(node.inputs[0], "view")
            new[node.id] = roots.builder.with_inputs(node, [copy])
    roots.replace(new)


def is_writable(node: Node, view: View) -> bool:
    """Return whether a node can be written to a view: loops write anywhere, BLAS only matrices."""
    if node.kind == "lapack":
        return view.is_matrix() and (_takes_columns(node) or _is_row_major(view))
    return node.kind != "product" or product_axes(node) is not None or view.is_matrix()


def _takes_columns(node: Node) -> bool:
    """Return whether column-major matrices will do for the result of a LAPACK node.

    LU decompositions are lines, and solutions by them are rows. Fortran has no solution with the
    conjugate of a triangle.
    """
    return node.detail[0] not in ("getrf", "getrs") and node.detail[:2] != ("trtrs", "C")


def _is_row_major(view: View) -> bool:
    return view.shape[-1] <= 1 or view.strides[-1] == 1


def is_lapack_operand(node: Node, position: int, view: View) -> bool:
    """Return whether a LAPACK node can read an operand in place; the first one is copied."""
    return position == 0 or (
        view.is_matrix() and (_takes_columns(node) or _is_row_major(view) or not view.size)
    )


def locate_member(join: View, key: tuple[Any, ...], member: Node) -> tuple[Node, View]:
    """Return the node that computes a member of a join, and its view inside the join."""
    view = join.slice(key)
    if len(view.shape) == len(member.shape):  # the node has the symbolic lengths
        view = view._replace(shape=member.shape)
    while member.kind == "view":
        axes = member.detail[1]
        view = view.transpose([axes.index(a) for a in range(len(axes))])
        member = member.inputs[0]
    return member, view


def _is_storable(node: Node, view: View) -> bool:
    """Return whether a node, or each member of a join, can be written to a view."""
    if node.kind != "join":
        return is_writable(node, view)
    pairs = zip(node.inputs, node.payload, strict=True)
    return all(is_writable(*locate_member(view, key, member)) for member, key in pairs)


def _materialize(roots: Roots, node: Node) -> Node:
    """Return a node with an address: a copy of a number or an index."""
    virtual = node.owner.kind in ("number", "index")
    return roots.builder.copy(node, "address") if virtual else node


def legalize_products(roots: Roots) -> None:
    """Insert copies of operands that products, LAPACK or host calls cannot read in place."""
    leaves, layout = roots.leaves, roots.layout
    new: dict[int, Node] = {}
    for node in topological_order(roots.nodes):
        if node.kind == "call":
            arrays = [_materialize(roots, i) for i in node.inputs]
            if any(a is not b for a, b in zip(arrays, node.inputs, strict=True)):
                new[node.id] = roots.builder.with_inputs(node, arrays)
        if node.kind == "lapack":
            inputs = [_materialize(roots, i) for i in node.inputs]
            for k, i in enumerate(inputs):
                view = current_view(i, layout, leaves)
                if i.size and not is_lapack_operand(node, k, view):
                    inputs[k] = roots.builder.copy(i, "lapack")
            if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
                new[node.id] = roots.builder.with_inputs(node, inputs)
        if node.kind != "product":
            continue
        views = [current_view(i, layout, leaves) for i in node.inputs[:2]]
        inputs = list(node.inputs)
        for k, (i, view) in enumerate(zip(inputs[:2], views, strict=True)):
            axes = product_axes(node)
            if axes is not None:
                readable = k == 0 or is_vectorizable(views[0], views[1], axes)
            else:
                readable = is_readable(view, node.detail[0] == "sum", k)
            if _materialize(roots, i) is not i or not readable:
                copy = roots.builder.copy(i, "product")
                inputs[k] = copy
                if axes is None and node.detail[0] == "sum" and k == 0:
                    batch = range(len(i.shape) - 2)
                    layout[copy.id] = (len(i.shape) - 2, *batch, len(i.shape) - 1)
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            new[node.id] = roots.builder.with_inputs(node, inputs)
    roots.replace(new)


def _is_viewable(
    node: Node, layout: Mapping[int, Sequence[int]], leaves: Mapping[int, View]
) -> bool:
    try:
        current_view(node, layout, leaves)
    except ValueError:
        return False
    return True


def is_readable(view: View, sums_batch: bool, operand: int) -> bool:
    """Return whether a matrix product can read an operand, 0 or 1, in place."""
    if not sums_batch:
        return view.is_matrix()
    axes = len(view.shape)
    if operand == 0:
        view = view.transpose((axes - 2, *range(axes - 2), axes - 1))
    rows = view.shape[0] if operand == 0 else -1
    columns = -1 if operand == 0 else view.shape[-1]
    try:
        return view.reshape((rows, columns)).is_matrix()
    except ValueError:
        return False


def current_view(
    node: Node, layout: Mapping[int, Sequence[int]], leaves: Mapping[int, View]
) -> View:
    """Return the view of a node in memory; ValueError if it would need a copy.

    Args:
        node: The node.
        layout: By number of a node, its axes from the largest to the smallest stride.
        leaves: By number of the leaf of a strided state, its view.
    """
    if node.kind == "view":
        return apply_view(node, current_view(node.inputs[0], layout, leaves))
    view = leaves.get(node.id)
    return View.dense(node.shape, layout.get(node.id)) if view is None else view


def _transposed_axes(node: Node, base: Node) -> tuple[int, ...] | None:
    """Return the axes of ``base`` in the order of ``node``; None if it is not just transposed."""
    axes = tuple(range(len(node.shape)))
    while node is not base:
        if node.kind != "view" or node.detail[0] != "transpose":
            return None
        axes = tuple(node.detail[1][a] for a in axes)
        node = node.inputs[0]
    return axes


def isolate_join_members(roots: Roots) -> None:
    """Let members of joins be computed inside the join, or insert copies of them there."""
    new: dict[int, Node] = {}
    order = topological_order(roots.nodes)
    user_counts: dict[int, int] = {}
    for node in order:
        for i in node.inputs:
            user_counts[i.id] = user_counts.get(i.id, 0) + 1
    for node in order:
        if node.kind != "join":
            continue
        inputs, join = [], View.dense(node.shape)
        for k, (member, key) in enumerate(zip(node.inputs, node.payload, strict=True)):
            base = member.owner
            unshared = user_counts[member.id] == 1 and user_counts.get(base.id, 0) == 1
            fits = base.kind in ("map", "product", "reduce")
            fits = fits and _transposed_axes(member, base) is not None
            fits = fits and is_writable(*locate_member(join, key, member))
            inside = fits and unshared and base.id not in roots.taken and base.size > 1
            inputs.append(member if inside else roots.builder.copy(member, ("part", node.id, k)))
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            new[node.id] = roots.builder.with_inputs(node, inputs)
    roots.replace(new)
