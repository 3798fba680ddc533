"""Getting a graph ready for kernels: every value that is stored has a place that suits its readers.

Results and new states get memory of their own, parts lie where their whole has them, axes are put
into an order in which views need no copies; what cannot be seen so is copied.
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
    "strided_leaves",
    "is_writable",
]


def apply_view(node: Node, base: View) -> View:
    """What a view shows; ValueError where that would have to be copied."""
    kind, how = node.detail
    if kind == "reshape":
        return base.reshape(how)
    # Of a size that varies, parts and windows are told how long they are here alone.
    if kind == "part":
        return base.part(node.work)._replace(shape=node.shape)
    if kind == "windows":
        return base.windows(*how)._replace(shape=node.shape)
    return base.transpose(how) if kind == "transpose" else base.broadcast(how)


def strided_leaves(states: Iterable[Node], strides: Mapping[int, Sequence[int]]) -> dict[int, View]:
    """By number of the leaf of a state that is not contiguous, how it lies."""
    found = {n.id: n for n in states if n.detail[1] in strides}
    return {id: View(n.shape, tuple(strides[n.detail[1]])) for id, n in found.items()}


class Roots:
    """Results and updates, while the graph is rewritten."""

    def __init__(self, low: Lowered, strides: Mapping[int, Sequence[int]]) -> None:
        self.strides = strides
        self.nodes: IRBuilder = low.nodes
        self.outputs = [k for k, node in enumerate(low.outputs) if node is not None]
        self.count = len(low.outputs)
        self.states = list(low.updates)
        self.all = [node for node in low.outputs if node is not None]
        self.all += low.updates.values()
        self.truths = slice(len(self.all), None if not low.stays else -len(low.stays))
        self.all += [*_check_values(low.nodes, low.checks), *low.stays]

    def replace(
        self, new: Mapping[int, Node], layout: dict[int, Sequence[int]] | None = None
    ) -> None:
        """Let some nodes, by number, give way to others; a layout is then that of the new ones."""
        if new:
            made = substitute(self.nodes, self.all, new)
            self.all = [made[node.id] for node in self.all]
            for id, axes in list((layout or {}).items()):
                if id in made and layout is not None:
                    layout[made[id].id] = axes

    def updated(self) -> dict[int, Node]:
        """By place among the roots, the leaf that is written to, where it is contiguous."""
        leaves = {
            n.detail[1]: n
            for n in topological_order(self.all)
            if n.kind == "leaf" and n.detail[0] == "state"
        }
        first = len(self.outputs)
        return {
            first + k: leaves[state]
            for k, state in enumerate(self.states)
            if state in leaves and state not in self.strides
        }

    def own(self) -> None:
        """Let every result and every update have memory that nobody else claims."""
        taken: set[int] = set()
        ends = len(self.outputs) + len(self.states)
        order = [*range(len(self.outputs), ends), *range(len(self.outputs))]
        read = self._read_in_order() if self.strides else set()
        for k in order:
            node = self.all[k]
            base = node
            if k < len(self.outputs) and node.kind == "part" and node.id not in taken:
                taken.add(node.id)  # what a call gave is returned itself
                continue
            while base.kind == "view" and base.detail[0] == "reshape":
                base = base.inputs[0]
            if not owns_memory(base) or base.id in taken:
                node = base = self.nodes.copy(node, k)
            if k >= len(self.outputs) and k - len(self.outputs) < len(self.states):
                state = self.states[k - len(self.outputs)]
                if state in self.strides:
                    view = View(node.shape, tuple(self.strides[state]))
                    if base is not node or not is_writable(node, view) or node.id in read:
                        node = base = self.nodes.copy(node, k)
                node = base
            self.all[k] = node
            taken.add(base.id)
        self.taken = taken

    def _read_in_order(self) -> set[int]:
        """Numbers of nodes of which views and products rely on where the elements lie."""
        readers = [n for n in topological_order(self.all) if n.kind in ("view", "product")]
        return {i.id for n in readers for i in n.inputs}


def _check_values(nodes: IRBuilder, checks: Iterable[Node]) -> list[Node]:
    """Each check as one number: whether it is true everywhere."""
    found: dict[int, Node] = {}
    for check in checks:
        x = nodes.cast(check, "b1")
        made = nodes.fold("all", x, range(len(x.shape)))
        if not owns_memory(made):
            made = nodes.copy(made, "check")
        found[made.id] = made
    return list(found.values())


def assign_layouts(roots: Roots, leaves: Mapping[int, View]) -> dict[int, Sequence[int]]:
    """Choose in which order the axes of values lie, so that views need no copies; else copy.

    Returns:
        By number of a node, its axes from the farthest to the closest, where not as they are.
    """
    layout: dict[int, Sequence[int]] = {}
    for node in topological_order(roots.all):
        if node.kind == "view" and not _is_viewable(node, layout, leaves):
            base = node.owner
            axes = _transposed_axes(node.inputs[0], base)
            free = owns_memory(base) and base.id not in roots.taken and base.id not in layout
            if axes is not None and free and _is_storable(base, View.dense(base.shape, axes)):
                layout[base.id] = axes
    new: dict[int, Node] = {}
    for node in topological_order(roots.all):
        if node.kind == "view" and not _is_viewable(node, layout, leaves):
            source = node.inputs[0]
            new[node.id] = roots.nodes.like(node, [roots.nodes.copy(source, "view")])
    roots.replace(new, layout)
    return layout


def is_writable(node: Node, view: View) -> bool:
    """Whether a node can be written where it lies: loops write anywhere, BLAS does not."""
    return node.kind != "product" or product_axes(node) is not None or view.is_matrix()


def locate_member(whole: View, key: tuple[Any, ...], part: Node) -> tuple[Node, View]:
    """The node that a part of a join is, and where it lies in the whole."""
    view = whole.part(key)
    if len(view.shape) == len(part.shape):  # of a size that varies, it is told here alone
        view = view._replace(shape=part.shape)
    while part.kind == "view":
        axes = part.detail[1]
        view = view.transpose([axes.index(a) for a in range(len(axes))])
        part = part.inputs[0]
    return part, view


def _is_storable(node: Node, view: View) -> bool:
    """Whether a node, or each part of a join, can be written there."""
    if node.kind != "join":
        return is_writable(node, view)
    pairs = zip(node.inputs, node.work, strict=True)
    return all(is_writable(*locate_member(view, key, part)) for part, key in pairs)


def _materialize(roots: Roots, node: Node) -> Node:
    """A node that has an address: a copy of a number, or of indices."""
    virtual = node.owner.kind in ("number", "index")
    return roots.nodes.copy(node, "address") if virtual else node


def legalize_products(
    roots: Roots, leaves: Mapping[int, View], layout: dict[int, Sequence[int]]
) -> None:
    """Copy what products cannot read where it lies."""
    new: dict[int, Node] = {}
    for node in topological_order(roots.all):
        if node.kind == "call":
            given = [_materialize(roots, i) for i in node.inputs]
            if any(a is not b for a, b in zip(given, node.inputs, strict=True)):
                new[node.id] = roots.nodes.like(node, given)
        if node.kind != "product":
            continue
        views = [_current_view(i, layout, leaves) for i in node.inputs[:2]]
        inputs = list(node.inputs)
        for k, (i, view) in enumerate(zip(inputs[:2], views, strict=True)):
            inner = product_axes(node)
            if inner is not None:
                read = k == 0 or is_vectorizable(views[0], views[1], inner)
            else:
                read = is_readable(view, node.detail[0] == "sum", k)
            if _materialize(roots, i) is not i or not read:
                copy = roots.nodes.copy(i, "product")
                inputs[k] = copy
                if inner is None and node.detail[0] == "sum" and k == 0:
                    batch = range(len(i.shape) - 2)
                    layout[copy.id] = (len(i.shape) - 2, *batch, len(i.shape) - 1)
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            new[node.id] = roots.nodes.like(node, inputs)
    roots.replace(new, layout)


def _is_viewable(
    node: Node, layout: Mapping[int, Sequence[int]], leaves: Mapping[int, View]
) -> bool:
    try:
        _current_view(node, layout, leaves)
    except ValueError:
        return False
    return True


def is_readable(view: View, summed: bool, place: int) -> bool:
    """Whether a product can read an operand where it lies."""
    if not summed:
        return view.is_matrix()
    axes = len(view.shape)
    if place == 0:
        view = view.transpose((axes - 2, *range(axes - 2), axes - 1))
    rows = view.shape[0] if place == 0 else -1
    columns = -1 if place == 0 else view.shape[-1]
    try:
        return view.reshape((rows, columns)).is_matrix()
    except ValueError:
        return False


def _current_view(
    node: Node, layout: Mapping[int, Sequence[int]], leaves: Mapping[int, View]
) -> View:
    if node.kind == "view":
        return apply_view(node, _current_view(node.inputs[0], layout, leaves))
    known = leaves.get(node.id)
    return View.dense(node.shape, layout.get(node.id)) if known is None else known


def _transposed_axes(node: Node, base: Node) -> tuple[int, ...] | None:
    """The axes of ``base`` in the order of those of ``node``, if that is all they differ by."""
    axes = tuple(range(len(node.shape)))
    while node is not base:
        if node.kind != "view" or node.detail[0] != "transpose":
            return None
        axes = tuple(node.detail[1][a] for a in axes)
        node = node.inputs[0]
    return axes


def isolate_join_members(roots: Roots) -> None:
    """Let each part of a whole be computed where it belongs, or be copied there."""
    new: dict[int, Node] = {}
    order = topological_order(roots.all)
    users: dict[int, int] = {}
    for node in order:
        for i in node.inputs:
            users[i.id] = users.get(i.id, 0) + 1
    for node in order:
        if node.kind != "join":
            continue
        inputs, whole = [], View.dense(node.shape)
        for k, (part, key) in enumerate(zip(node.inputs, node.work, strict=True)):
            base = part.owner
            alone = users[part.id] == 1 and users.get(base.id, 0) == 1
            fits = (
                base.kind in ("map", "product", "fold") and _transposed_axes(part, base) is not None
            )
            fits = fits and is_writable(*locate_member(whole, key, part))
            own = fits and alone and base.id not in roots.taken and base.size > 1
            inputs.append(part if own else roots.nodes.copy(part, ("part", node.id, k)))
        if any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            new[node.id] = roots.nodes.like(node, inputs)
    roots.replace(new)
