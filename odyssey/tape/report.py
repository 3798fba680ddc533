"""Reports on a tape for people: why a gradient flows or does not, memory, pictures."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from odyssey.checks import shown
from odyssey.errors import DTypeError
from odyssey.table.value import CONSTANT, LEAF, UNTRACKED
from odyssey.tape.recording import RawNode
from odyssey.tape.sweep import dependents
from odyssey.variable import Variable

if TYPE_CHECKING:
    from odyssey.tape.gradient_tape import GradientTape

__all__ = ["Memory", "TapeNode", "explain", "memory", "to_dot", "to_html", "to_mermaid"]


class TapeNode(NamedTuple):
    """One recorded call, for people to read.

    Attributes:
        op: Its name.
        inputs: Ids of its operands; None for those that need no gradient.
        output: Id of its result.
        saved: What its rules asked for, by name.
    """

    op: str
    inputs: tuple[int | None, ...]
    output: int
    saved: dict[str, Any]

    @classmethod
    def read(cls, node: RawNode) -> TapeNode:
        """Build from the tuple that a recording holds."""
        row, output, inputs, kept, _ = node
        names = (*row.arrays, "out", *row.options, "residual")
        saved = dict(zip(names, kept, strict=False)) if kept is not None else {}
        arrays = len(row.arrays) + 1
        found = {n: v for k, (n, v) in enumerate(saved.items()) if v is not None or k >= arrays}
        return cls(row.name, inputs, output, found)


def explain(tape: GradientTape, output: Variable, source: Variable) -> str:
    """See ``GradientTape.explain``."""
    for name, value in (("output", output), ("source", source)):
        if not isinstance(value, Variable):
            raise DTypeError(f"explain: the {name} is {shown(value)}, which is not a Variable")
    r = tape._recording
    if tape.consumed:
        return "a sweep consumed this tape; ask before it, or make the tape persistent"
    by_output = {node[1]: node for node in r.nodes}
    start = r.asked(source)
    reached = dependents(r.nodes, [start])
    if output._recording is r and output.id in reached:
        path = [output.id]
        while path[-1] != start:
            inputs = by_output[path[-1]][2]
            path.append(next(i for i in inputs if i in reached))
        steps = [by_output[i][0].name for i in reversed(path[:-1])]
        return " -> ".join([_label(source), *steps, _label(output)])
    cuts = dict(r.cuts)
    if output._info is not None and output._info.note is not None:
        cuts[output.id] = output._info.note
    for word, origins in cuts.values():
        if any(i in reached for i in origins):
            what = "detach()" if word == "detach" else f"{word}, computed in a pause"
            return f"broken at {what}: its result is a constant, and carries no gradient"
    if output._recording is UNTRACKED:
        return f"{_label(output)} was computed while nothing recorded"
    if output._recording is CONSTANT:
        return f"{_label(output)} is a constant: nothing that requires a gradient went into it"
    if source.id not in r.leaves and source._recording is LEAF:
        return f"{_label(source)} was never used on this tape"
    made = by_output.get(output.id)
    last = f"; it was made by {made[0].name}" if made else ""
    return f"no op leads from {_label(source)} to {_label(output)}{last}"


def _label(variable: Variable) -> str:
    return variable.name or f"#{variable.id}"


class Memory(NamedTuple):
    """What a tape holds.

    Attributes:
        total: Bytes of all distinct arrays that nodes saved.
        locked: Of these, bytes of the arrays of others that are locked.
        nodes: For each node its op and the bytes that it was the first to save.
    """

    total: int
    locked: int
    nodes: list[tuple[str, int]]

    def __str__(self) -> str:
        rows = [f"{name:24} {size:12,}" for name, size in self.nodes if size]
        return "\n".join([*rows, f"{'total':24} {self.total:12,} bytes, {self.locked:,} locked"])


def memory(tape: GradientTape) -> Memory:
    """See ``GradientTape.memory``."""
    seen: set[int] = set()
    nodes = []
    for row, _, _, kept, _ in tape._recording.nodes:
        size = 0
        for value in chain.from_iterable(v if type(v) is tuple else (v,) for v in kept or ()):
            owner = _owner(value)
            if owner is not None and id(owner) not in seen:
                seen.add(id(owner))
                size += owner.nbytes
        nodes.append((row.name, size))
    locked = sum(held.array.nbytes for held in tape._recording.held.values())
    return Memory(sum(size for _, size in nodes), locked, nodes)


def _owner(value: Any) -> Any:
    """The array that owns the memory of ``value``; None for what is not an array."""
    if isinstance(value, np.generic):
        return value
    if not isinstance(value, np.ndarray):
        return None
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _edges(tape: GradientTape) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """Labels by id, and pairs of ids."""
    r = tape._recording
    labels = {i: _line(getattr(leaf, "name", None)) or f"leaf {i}" for i, leaf in r.leaves.items()}
    edges = []
    for row, id, inputs, _, _ in r.nodes:
        labels[id] = row.name
        for i in inputs:
            if i is not None:
                labels.setdefault(i, f"#{i}")
                edges.append((i, id))
    return labels, edges


def _line(name: Any) -> str:
    """A name on one line, without what no picture can show."""
    return "".join(c if c.isprintable() else " " for c in name or "")


def to_dot(tape: GradientTape) -> str:
    """See ``GradientTape.to_dot``."""
    labels, edges = _edges(tape)
    leaves = tape._recording.leaves
    lines = ["digraph tape {", "  rankdir=LR;"]
    for i, label in labels.items():
        shape = "box" if i in leaves else "ellipse"
        quoted = label.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  n{i} [label="{quoted}", shape={shape}];')
    lines += [f"  n{a} -> n{b};" for a, b in edges]
    return "\n".join([*lines, "}"])


# What a label may not hold: Mermaid writes such characters by number, like HTML.
_MERMAID = {c: f"#{ord(c)};" for c in "#&;<>`\\"} | {'"': "#quot;"}


def to_mermaid(tape: GradientTape) -> str:
    """See ``GradientTape.to_mermaid``."""
    labels, edges = _edges(tape)
    lines = ["graph LR"]
    for i, label in labels.items():
        quoted = "".join(_MERMAID.get(c, c) for c in label)
        lines.append(f'  n{i}["{quoted}"]')
    return "\n".join(lines + [f"  n{a} --> n{b}" for a, b in edges])


def to_html(tape: GradientTape) -> str:
    """A table of the nodes, for notebooks; the last hundred."""
    import html

    rows = "".join(
        f"<tr><td>{node.output}</td><td>{html.escape(node.op)}</td><td>{node.inputs}</td></tr>"
        for node in tape.nodes[-100:]
    )
    head = "<tr><th>id</th><th>op</th><th>inputs</th></tr>"
    return f"<p>{html.escape(repr(tape))}</p><table>{head}{rows}</table>"
