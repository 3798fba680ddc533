"""Reports on a tape: gradient paths and breaks, memory, graphs in DOT, Mermaid and HTML."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

from odyssey.checks import format_value
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.ownership import owner_of
from odyssey.errors import DTypeError
from odyssey.spec import Spec
from odyssey.table.value import (
    is_constant,
    is_trainable,
    is_untracked,
    recording_attribute,
)
from odyssey.tape.names import Names, call_text, specs_of_saved
from odyssey.tape.recording import RawNode
from odyssey.tape.rounding import RoundedArray
from odyssey.tape.sweep import dependents
from odyssey.tape.tape_base import TapeBase, recording_of
from odyssey.variable import Variable

__all__ = [
    "Memory",
    "TapeNode",
    "explain_dependence",
    "memory_use",
    "nodes_of",
    "to_dot",
    "to_html",
    "to_mermaid",
]


class TapeNode(NamedTuple):
    """One recorded call, for people to read.

    Ids are those of Variables, unique in the process, by which a tape may be asked. For reading
    there are small numbers, in the order of recording on this tape, and names: a node prints as
    ``TapeNode(#3: float64[2] = multiply(w, 2.0); saved x: float64[2])``, and ``explain`` and the
    pictures of the tape call the same values the same.

    Attributes:
        op: Its name.
        inputs: Ids of its operands; None for those that need no gradient.
        output: Id of its result.
        saved: What its rules asked for, by name. On a tape with ``saved=``, arrays in half
            precision, of which ``np.asarray`` gives the numbers.
        name: Its result, as reports call it: ``"#3"``.
        given: Its operands, as reports call them, and those options that are not at their default:
            ``("w", "2.0", "axis=0")``. ``"constant"`` is one of which the tape keeps nothing.
        spec: Shape and dtype of its result, where they are known.
    """

    op: str
    inputs: tuple[int | None, ...]
    output: int
    saved: dict[str, Any]
    name: str = "?"
    given: tuple[str, ...] = ()
    spec: Spec | None = None

    @classmethod
    def from_raw(cls, node: RawNode, names: Names) -> TapeNode:
        """Build from the tuple that a recording holds."""
        row, output, inputs, kept, _ = node
        keys = (*row.layout.kept, "residual")
        saved = dict(zip(keys, kept, strict=False)) if kept is not None else {}
        arrays = len(row.arrays) + len(row.results)
        found = {n: v for k, (n, v) in enumerate(saved.items()) if v is not None or k >= arrays}
        texts = names.value_name(output), names.operand_texts(node), names.specs.get(output)
        return cls(row.name, inputs, output, found, *texts)

    def __repr__(self) -> str:
        typed = self.name if self.spec is None else f"{self.name}: {self.spec}"
        saved = specs_of_saved(self.saved)
        behind = f"; saved {saved}" if saved else ""
        return f"TapeNode({typed} = {call_text(self.op, self.given)}{behind})"


def nodes_of(tape: TapeBase) -> list[TapeNode]:
    """See ``GradientTape.nodes``."""
    if tape._consumed:
        return []
    names = Names(recording_of(tape))
    return [TapeNode.from_raw(node, names) for node in names.nodes]


def explain_dependence(tape: TapeBase, output: Variable, source: Variable) -> str:
    """See ``GradientTape.explain``."""
    for name, value in (("output", output), ("source", source)):
        if not isinstance(value, Variable):
            raise DTypeError(
                f"explain: the {name} is {format_value(value)}, which is not a Variable"
            )
    r = recording_of(tape)
    if tape.consumed:
        return "a sweep consumed this tape; ask before it, or make the tape persistent"
    by_output = {node[1]: node for node in r.nodes}
    names = Names(r)
    start = r.query_id(source)
    output_name, source_name = (
        names.variable_name(output, output._id),
        names.variable_name(source, start),
    )
    if output._id == start:
        return f"{output_name} is asked about itself: the gradient is 1"
    reached = dependents(r.nodes, [start])
    if recording_attribute(output) is r and output.id in reached:
        path = [output.id]
        while path[-1] != start:
            inputs = by_output[path[-1]][2]
            path.append(next(i for i in inputs if i in reached))
        steps = [by_output[i][0].name for i in reversed(path[:-1])]
        return " -> ".join([source_name, *steps, output_name])
    if not is_inexact(output._spec.dtype):
        return f"{output_name}: {output._spec.dtype} numbers carry no gradient"
    cuts = dict(r.cut_reasons)
    if output._info is not None and output._info.note is not None:
        cuts[output.id] = output._info.note
    for word, origins in cuts.values():
        if any(i in reached for i in origins):
            what = (
                "detach()" if word == "detach" else f"{word}, computed while recording was paused"
            )
            return f"broken at {what}: its result is a constant, and carries no gradient"
    if is_untracked(output):
        return f"{output_name} was computed while nothing recorded"
    if is_constant(output):
        return f"{output_name} is a constant: nothing that requires a gradient went into it"
    if source.id not in r.leaves and is_trainable(source):
        return f"{source_name} was never used on this tape"
    made = by_output.get(output.id)
    last = f"; it was made by {made[0].name}" if made else ""
    return f"no op leads from {source_name} output_name {output_name}{last}"


class Memory(NamedTuple):
    """Memory that a tape holds.

    Attributes:
        total: Bytes of all distinct arrays that nodes saved, as they are stored.
        locked: Of these, bytes of the arrays of others that are locked.
        nodes: For each node its op and the bytes that it was the first to save.
        unrounded: Bytes of the arrays without rounding to half precision; ``total`` unless the
            tape was made with ``saved=``.
    """

    total: int
    locked: int
    nodes: list[tuple[str, int]]
    unrounded: int = 0

    def __repr__(self) -> str:
        rows = [f"{name:24} {size:12,}" for name, size in self.nodes if size]
        total = f"{'total':24} {self.total:12,} bytes, {self.locked:,} locked"
        if self.unrounded > self.total:
            total += f"; {self.unrounded:,} bytes unrounded"
        return "\n".join([*rows, total])


def memory_use(tape: TapeBase) -> Memory:
    """See ``GradientTape.memory``."""
    seen: set[int] = set()
    nodes = []
    saved_by_rounding = 0
    for row, _, _, kept, _ in recording_of(tape).nodes:
        size = 0
        for value in chain.from_iterable(v if type(v) is tuple else (v,) for v in kept or ()):
            rounded = value if type(value) is RoundedArray else None
            owner = owner_of(value if rounded is None else rounded.stored)
            if owner is not None and id(owner) not in seen:
                seen.add(id(owner))
                size += owner.nbytes
                if rounded is not None and rounded.bits is not None:
                    saved_by_rounding += rounded.unrounded_bytes - owner.nbytes
        nodes.append((row.name, size))
    locked = sum(held.array.nbytes for held in recording_of(tape).locked.values())
    total = sum(size for _, size in nodes)
    return Memory(total, locked, nodes, total + saved_by_rounding)


def _graph_labels(tape: TapeBase) -> tuple[dict[int, str], list[tuple[int, int]], set[int]]:
    """Return labels by small number, the edges between them, and the numbers of leaves."""
    names = Names(recording_of(tape))
    numbers = names.numbers
    labels = {numbers[id]: names.typed_name(id) for id in names.leaves}
    leaves, edges = set(labels), []
    for node in names.nodes:
        _, id, inputs, _, _ = node
        for i in inputs:
            if i is not None:
                labels.setdefault(numbers[i], names.typed_name(i))
                edges.append((numbers[i], numbers[id]))
        labels[numbers[id]] = names.node_text(node)
    return labels, edges, leaves


def to_dot(tape: TapeBase) -> str:
    """See ``GradientTape.to_dot``."""
    labels, edges, leaves = _graph_labels(tape)
    lines = ["digraph tape {", "  rankdir=LR;"]
    for number, label in labels.items():
        shape = "box" if number in leaves else "ellipse"
        quoted = label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  n{number} [label="{quoted}", shape={shape}];')
    lines += [f"  n{a} -> n{b};" for a, b in edges]
    return "\n".join([*lines, "}"])


# Characters that Mermaid labels must escape, by number as in HTML.
_MERMAID = {c: f"#{ord(c)};" for c in "#&;<>`\\"} | {'"': "#quot;"}


def to_mermaid(tape: TapeBase) -> str:
    """See ``GradientTape.to_mermaid``."""
    labels, edges, _ = _graph_labels(tape)
    lines = ["graph LR"]
    for number, label in labels.items():
        quoted = "".join(_MERMAID.get(c, c) for c in label)
        lines.append(f'  n{number}["{quoted}"]')
    return "\n".join(lines + [f"  n{a} --> n{b}" for a, b in edges])


def to_html(tape: TapeBase) -> str:
    """A table of the nodes, for notebooks; the last hundred."""
    import html

    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
        for cells in map(_table_cells, nodes_of(tape)[-100:])
    )
    head = "".join(f"<th>{title}</th>" for title in ("result", "op", "operands", "shape"))
    return f"<p>{html.escape(repr(tape))}</p><table><tr>{head}</tr>{rows}</table>"


def _table_cells(node: TapeNode) -> tuple[str, str, str, str]:
    spec = "" if node.spec is None else str(node.spec)
    return node.name, node.op, ", ".join(node.given), spec
