"""States that a program copies, with reasons: for ``copies="error"`` and ``explain``.

Called by ``compiled_function`` and ``explain`` on the plan of a program. A state whose new value is
computed in memory of its own, and is then copied into the state, costs a pass over all of it,
however few elements change. States of one element are not worth a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odyssey.compiler.ir.nodes import ITEM_SIZES, Node, topological_order
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.compiler.schedule.fusion import scatter_chain
from odyssey.errors import CompileError
from odyssey.graph.graph import Graph
from odyssey.graph.subgraphs import LoopRow

__all__ = ["StateCopy", "describe_copies", "find_state_copies", "refuse_copies"]

# Copies that an error describes.
_MOST_DESCRIBED = 4
_NOT_CONTIGUOUS = (
    "its memory is not contiguous",
    "make the Variable of a contiguous array, as np.ascontiguousarray does",
)


class StateCopy(NamedTuple):
    """A state that a program copies.

    Attributes:
        state: Number of the state.
        bytes: Size of the state.
        reason: Why it is copied.
        advice: How to avoid that.
    """

    state: int
    bytes: int
    reason: str
    advice: str


def refuse_copies(name: str, plan: Plan, graph: Graph) -> None:
    """Raise CompileError if a program copies states.

    Args:
        name: Name of the function, for the message.
        plan: Plan of its program.
        graph: Its graph.

    Raises:
        CompileError: the program copies a state; the message has names, bytes and reasons.
    """
    found = describe_copies(plan, graph)
    if found:
        more = len(found) - _MOST_DESCRIBED
        text = ". It copies ".join(found[:_MOST_DESCRIBED]) + f". And {more} more" * (more > 0)
        raise CompileError(
            f'compile: copies="error", and the program of {name} copies {text}. '
            'Or pass copies="allow"'
        )


def describe_copies(plan: Plan, graph: Graph) -> list[str]:
    """Describe the states that a program copies, one a line: name, bytes, reason and advice."""
    return [
        f"{graph.states[copy.state].label}, {copy.bytes:,} bytes, since {copy.reason}; "
        f"{copy.advice}"
        for copy in find_state_copies(plan)
    ]


def find_state_copies(plan: Plan) -> list[StateCopy]:
    """Return the states that a program copies, by number, with the first reason for each."""
    found: dict[int, StateCopy] = {}
    for state, reason, advice in _copies(plan):
        size = int(state.size) * ITEM_SIZES.get(state.type, 0)
        number = state.detail[1]
        if state.size > 1:
            found.setdefault(number, StateCopy(number, size, reason, advice))
    return [found[k] for k in sorted(found)]


def _copies(plan: Plan) -> Iterator[tuple[Node, str, str]]:
    """Yield the leaf of each state that is copied, the reason, and what to do."""
    leaves = {n.detail[1]: n for n in plan.fused.order if _is_state(n)}
    copied = {k for k, _ in plan.state_copies}
    for k, update in plan.updates.items():
        leaf = leaves.get(k)
        if leaf is None:  # it is not read, and so has no copy
            continue
        call = _host_result(update, leaf)
        if call is not None:
            yield leaf, *_reason_of_call(call)
            continue
        source = _copied_node(update)
        if source is not None and leaf in topological_order([source]):
            yield leaf, *_copy_reason(plan, _skip_views(source), leaf)
        elif k in copied:
            yield leaf, *_copy_reason(plan, update, leaf)
    in_state = {id(a.buffer): n for n in leaves.values() if (a := plan.allocations.get(n.id))}

    def state_of(node: Node) -> Node | None:
        held = plan.allocations.get(node.owner.id)
        return None if held is None else in_state.get(id(held.buffer))

    for n in plan.fused.order:
        state = state_of(n.inputs[0]) if n.kind == "scatter" else None
        if state is not None and not plan.is_over_base(n):
            yield (
                state,
                f"{n.op} makes an updated copy of it",
                "assign the result to the Variable, and return nothing of it",
            )
    for node in plan.outputs:
        source = None if node is None else _copied_node(node.owner)
        state = None if source is None else state_of(source)
        if state is not None and state.detail[1] in plan.updates:
            yield (
                state,
                "its value is returned",
                "return nothing of it, and read the Variable after the call",
            )


def _is_state(n: Node) -> bool:
    return n.kind == "leaf" and n.detail[0] == "state"


def _copied_node(node: Node) -> Node | None:
    """Return the node that a node is a plain copy of; None if it is computed otherwise."""
    if node.kind == "map" and not node.payload.steps and len(node.inputs) == 1:
        source = node.inputs[0]
        full = source.owner.size == node.size  # not only some rows
        return source if full and source.type == node.type else None
    return None


def _skip_views(node: Node) -> Node:
    while node.kind == "view":
        node = node.inputs[0]
    return node


def _host_result(update: Node, leaf: Node) -> Node | None:
    """Return the host call that computes a state's new value from its old one; None if none does.

    A program writes the value of a state that a loop carries, or a branch returns, by a copy.
    """
    node: Node | None = update
    while node is not None and node.kind != "result":
        node = node.inputs[0] if node.kind == "view" else _copied_node(node)
    call = None if node is None else node.inputs[0]
    return call if call is not None and leaf in topological_order(call.inputs) else None


def _reason_of_call(call: Node) -> tuple[str, str]:
    row = call.payload.row
    if not isinstance(row, LoopRow):
        return (
            f"{row.name}, which is called on the host, computes its new value",
            "write rows to it by an index, which needs no copy",
        )
    if row.loop.kind == "cond":
        return (
            "cond computes its new value in memory of its own",
            "let cond choose the rows, and write them to the Variable behind it",
        )
    return (
        f"{row.name} carries it in memory of its own, so that an error in a step changes nothing",
        f"collect the rows in the {row.name}, and write them to the Variable behind it",
    )


def _copy_reason(plan: Plan, update: Node, leaf: Node) -> tuple[str, str]:
    """Return why a new value is copied into its state at the end, and what to do."""
    fused = plan.fused
    chain = scatter_chain(update, leaf)
    values = list(chain.scatters) if chain is not None else [update]
    fallible = [n for n in fused.order if n.kind == "call"]
    fallible += [n for kernel in fused.kernels for n in kernel.checks]
    reader = _first_dependent(fused.order, values, fallible)
    if reader is not None:
        who = _name(reader) if reader.kind == "call" else "a check"
        what = f"{who} reads its new value, and may fail or be interrupted"
        return what, "leave that out of this function, or compute it before the update"
    if chain is not None:
        stored = {n.owner.id for n in plan.outputs if n is not None}
        if any(n.id in stored for n in values[:-1]):
            return "a value between two updates of it is returned", "return a copy of the rows"
        base = {leaf.id, *[n.id for n in values[:-1]]}
        late = _late_reader(plan, base, values)
        if late is not None:
            return (
                f"{_name(late)} reads its old value after the update",
                "read what is needed before the update",
            )
        return _NOT_CONTIGUOUS
    if update.kind == "scatter":
        source = _copied_node(update.inputs[0].owner)
        if source is not None and source.owner is leaf:
            return _NOT_CONTIGUOUS
    last = max((fused.kernel_of[n.id].position for n in fallible), default=-1)
    kernel = fused.kernel_of.get(update.id)
    if kernel is not None and kernel.position <= last:
        who = _name(fallible[-1]) if fallible[-1].kind == "call" else "a check"
        return (
            f"its new value is computed before {who}, which may fail or be interrupted",
            "compute its new value after that",
        )
    late = _late_reader(plan, {leaf.id}, values)
    if late is None:
        return (
            "its new value is computed from other elements of its old value",
            "write rows to it by an index, which needs no copy",
        )
    return (
        f"{_name(late)} reads its old value while the new one is computed, or later",
        "write rows to it by an index, or read what is needed before",
    )


def _name(n: Node) -> str:
    return str(n.payload.row.name) if n.kind == "call" else n.op or "another op"


def _first_dependent(
    order: Iterable[Node], values: Iterable[Node], ends: Iterable[Node]
) -> Node | None:
    """Return the first of ``ends`` that depends on one of ``values``."""
    dependent = {n.id for n in values}
    for n in order:
        if any(i.id in dependent for i in n.inputs):
            dependent.add(n.id)
    return next((n for n in ends if n.id in dependent), None)


def _late_reader(plan: Plan, bases: set[int], values: list[Node]) -> Node | None:
    """Return a node that reads one of ``bases`` beside, or after, the updates of it."""
    updates = {n.id for n in values}
    positions = [
        kernel.position for n in values if (kernel := plan.fused.kernel_of.get(n.id)) is not None
    ]
    first = min(positions, default=-1)
    for kernel in plan.fused.kernels[max(first, 0) :]:
        for n in kernel.nodes:
            if n.id not in updates and any(i.owner.id in bases for i in n.inputs):
                return n
    return None
