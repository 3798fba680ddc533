"""Subgraphs: the bodies of loops and branches, and the instructions that run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.graph.graph import (
    Graph,
    Instruction,
    Ref,
    ScalarInput,
    Splat,
    free_values,
    live_instructions,
    undefined_ids,
)
from odyssey.graph.traced_array import TracedArray
from odyssey.spec import Spec, intern, spec_of
from odyssey.table.row import Row
from odyssey.table.signature import Layout
from odyssey.table.value import Symbol

__all__ = [
    "Loop",
    "LoopRow",
    "has_leaks",
    "loop_row",
    "make_subgraph",
    "output_specs",
    "subgraph_signature",
]


class Loop(NamedTuple):
    """Control flow as one instruction over subgraphs.

    Attributes:
        kind: ``scan``, ``cond`` or ``while_loop``.
        subgraphs: A step; two branches; or a condition and a step. The inputs of each
            are its own, then the values that any of them captures.
        carries: The number of carried values.
        columns: The number of arrays that a scan iterates over.
        steps: The number of steps of a scan.
        reverse: Whether a scan runs from the last step to the first.
        numbers: The scalar inputs that the subgraphs use.
    """

    kind: str
    subgraphs: tuple[Graph, ...]
    carries: int = 0
    columns: int = 0
    steps: int = 0
    reverse: bool = False
    numbers: tuple[ScalarInput, ...] = ()

    @property
    def order(self) -> range:
        """Return the indices of a scan's steps, in order of execution."""
        return range(self.steps - 1, -1, -1) if self.reverse else range(self.steps)

    def specs(self) -> tuple[Spec, ...]:
        """Return the specs of the results."""
        outputs = output_specs(self.subgraphs[-1])
        if self.kind != "scan":
            return outputs
        stacked = [intern((self.steps, *s.shape), s.dtype) for s in outputs[self.carries :]]
        return (*outputs[: self.carries], *stacked)

    def run(
        self,
        *operands: Any,
        call: Callable[[int, Sequence[Any], Any], list[Any]],
        empty: Callable[..., Any] = np.empty,
    ) -> Any:
        """Execute the loop or the branch; return the results.

        Args:
            operands: The predicate of a ``cond``, the carries, the columns, the captured values,
                the numbers.
            call: Runs a subgraph, by its index, on its inputs and on numbers.
            empty: Makes an array of a shape and a dtype, for what a scan stacks.
        """
        count = len(operands) - len(self.numbers)
        operands, numbers = operands[:count], operands[count:]
        if self.kind == "cond":
            return tuple(call(0 if operands[0] else 1, operands[1:], numbers))
        carry, rest = list(operands[: self.carries]), operands[self.carries :]
        if self.kind == "while_loop":
            while call(0, (*carry, *rest), numbers)[0]:
                carry = call(1, (*carry, *rest), numbers)
            return tuple(carry)
        columns, rest = rest[: self.columns], rest[self.columns :]
        specs = self.specs()[self.carries :]
        stacked = [empty(spec.shape, spec.dtype) for spec in specs]
        for k in self.order:
            results = call(0, (*carry, *[column[k] for column in columns], *rest), numbers)
            carry = results[: self.carries]
            for array, value in zip(stacked, results[self.carries :], strict=True):
                array[k] = value
        return (*carry, *stacked)


class LoopRow(Row):
    """Row of an instruction that runs subgraphs."""

    __slots__ = ("loop",)

    loop: Loop


def loop_row(loop: Loop, count: int) -> LoopRow:
    """Return the row of one loop with ``count`` operands."""
    specs = loop.specs()
    layout = Layout(
        loop.kind, [f"x{k}" for k in range(count)], (), [f"y{k}" for k in range(len(specs))]
    )
    rules = [None] * count

    def call(k: int, values: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        by_expression = {s.expression: n for s, n in zip(loop.numbers, numbers, strict=True)}
        return evaluate_subgraph(loop.subgraphs[k], values, by_expression)

    row = LoopRow(
        layout,
        pullbacks=rules,
        pushforwards=rules,
        kernel=lambda *operands: loop.run(*operands, call=call),
        infer=lambda *operands: specs,
        pack_results=tuple,
        primitive="a program of its own",
    )
    row.loop = loop
    row.impure = any(i.row.impure for graph in loop.subgraphs for i in graph.instructions)
    return row


def make_subgraph(
    inputs: Sequence[tuple[int, Spec]],
    instructions: Sequence[Instruction],
    outputs: Sequence[Any],
    constants: dict[int, Any],
) -> Graph:
    """Return the subgraph of the live instructions.

    Args:
        inputs: Ids and specs.
        instructions: Instructions in order of execution.
        outputs: Refs and Splats.
        constants: Constants of the graph around it, by id.
    """
    graph = Graph()
    graph.outputs = list(outputs)
    graph.instructions = live_instructions(
        instructions, [o.id for o in outputs if isinstance(o, Ref)]
    )
    graph.inputs = list(inputs)
    graph.constants = {id: constants[id] for id in free_values([graph]) if id in constants}
    return graph


def has_leaks(graph: Graph) -> bool:
    """Return whether a value of a subgraph is read outside of it."""
    defined = {id for id, _ in graph.inputs}.union(graph.constants, [s.id for s in graph.states])
    outputs = [*graph.outputs, *[state.update for state in graph.states]]
    return bool(undefined_ids(graph.instructions, outputs, defined))


def subgraph_signature(
    instructions: Sequence[Instruction], inputs: Sequence[Any], outputs: Sequence[Any], trace: Any
) -> tuple[Any, ...]:
    """Return a signature of a subgraph that does not depend on the ids of its values.

    Two runs of a function have equal signatures if they did equal computations with the same
    captured values. Dead code does not count: a sweep inside may omit a cotangent that it computed
    the first time, and a scan stacks its carries only where a tape will need them.
    """
    names: dict[int, Any] = {
        value.id: ("input", k) for k, value in enumerate(inputs) if isinstance(value, Symbol)
    }

    def key(operand: Any) -> Any:
        if isinstance(operand, Ref):
            array = trace.graph.constants.get(operand.id)
            return names.get(operand.id, operand.id) if array is None else _comparable(array)
        if isinstance(operand, ScalarInput):
            return operand.expression
        return _comparable(operand.array()) if isinstance(operand, Splat) else _comparable(operand)

    calls: list[Any] = []
    ends = [o.id for o in outputs if isinstance(o, (Symbol, Ref))]
    live = live_instructions(instructions, ends)
    used = {o.id for call in live for o in call.operands if isinstance(o, Ref)}.union(ends)
    for call in live:
        loop = getattr(call.row, "loop", None)
        op: Any = call.row
        if loop is not None:
            count = len(call.ids) if loop.kind == "scan" else None
            while count and count > loop.carries and call.ids[count - 1] not in used:
                count -= 1
            subgraphs = [_graph_signature(graph, trace, count) for graph in loop.subgraphs]
            op = (*loop._replace(subgraphs=(), numbers=()), *subgraphs)
        operands = tuple(map(key, call.operands))
        calls.append((op, tuple(map(_comparable, call.options)), operands))
        names.update((id, ("result", len(calls), k)) for k, id in enumerate(call.ids))
    results = [Ref(o.id) if isinstance(o, Symbol) else o for o in outputs]
    return (*calls, tuple(map(key, results)))


def _graph_signature(graph: Graph, trace: Any, count: int | None) -> tuple[Any, ...]:
    """Return the signature of a subgraph, of which the first ``count`` outputs are used."""
    inputs = [TracedArray(spec, trace, id) for id, spec in graph.inputs]
    return subgraph_signature(graph.instructions, inputs, graph.outputs[:count], trace)


def _comparable(value: Any) -> Any:
    """Return a number, array or option as a value that can be compared; NaN equals NaN."""
    if isinstance(value, ARRAY_LIKE):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), *map(_comparable, value)
    return type(value), repr(value)


def evaluate_subgraph(graph: Graph, arrays: Sequence[Any], numbers: dict[Any, Any]) -> list[Any]:
    """Return the outputs of a subgraph, computed by the kernels of its rows."""
    slots = dict(graph.constants)
    slots.update((id, array) for (id, _), array in zip(graph.inputs, arrays, strict=True))

    def value(operand: Any) -> Any:
        if isinstance(operand, Ref):
            return slots[operand.id]
        if isinstance(operand, ScalarInput):
            return numbers[operand.expression]
        return operand.array() if isinstance(operand, Splat) else operand

    for row, operands, options, ids, _ in graph.instructions:
        result = row.kernel(*map(value, operands), *options)
        slots.update(zip(ids, (result,) if row.pack_results is None else result, strict=True))
    return list(map(value, graph.outputs))


def output_specs(graph: Graph) -> tuple[Spec, ...]:
    """Return the specs of the outputs of a subgraph."""
    specs = dict(graph.inputs)
    specs.update((id, spec_of(a)) for id, a in graph.constants.items())
    for instruction in graph.instructions:
        specs.update(zip(instruction.ids, instruction.specs, strict=True))
    return tuple(
        specs[o.id] if isinstance(o, Ref) else intern(o.shape, o.number.dtype)
        for o in graph.outputs
    )
