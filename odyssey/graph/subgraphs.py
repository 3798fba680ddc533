"""Parts of a graph: what a loop runs at each step, and a branch if it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE
from odyssey.errors import TapeError
from odyssey.graph.graph import Graph, Instruction, Ref, ScalarInput, Splat
from odyssey.graph.lifetimes import live_instructions
from odyssey.graph.traced_array import TracedArray
from odyssey.spec import Spec, intern, spec_of
from odyssey.table.row import Row
from odyssey.table.signature import Layout
from odyssey.table.value import Symbol, free_id

__all__ = ["Loop", "LoopRow", "SubgraphTracing", "subgraph_signature", "output_specs"]


class Loop(NamedTuple):
    """Control flow as one instruction over subgraphs.

    Attributes:
        kind: ``scan``, ``cond`` or ``while_loop``.
        parts: A step; two branches; or a condition and a step. The inputs of each are its own,
            then what all of them take from outside.
        carries: How many values go from step to step.
        columns: Of a scan, how many arrays it goes along.
        steps: Of a scan, how many there are.
        reverse: Whether it goes from the last to the first.
        numbers: Python's numbers that only a call knows, which the parts take.
    """

    kind: str
    parts: tuple[Graph, ...]
    carries: int = 0
    columns: int = 0
    steps: int = 0
    reverse: bool = False
    numbers: tuple[ScalarInput, ...] = ()

    @property
    def order(self) -> range:
        """The places of a scan's steps, in the order of time."""
        return range(self.steps - 1, -1, -1) if self.reverse else range(self.steps)

    def specs(self) -> tuple[Spec, ...]:
        """The specs of the results."""
        found = output_specs(self.parts[-1])
        if self.kind != "scan":
            return found
        rows = [intern((self.steps, *s.shape), s.dtype) for s in found[self.carries :]]
        return (*found[: self.carries], *rows)

    def run(self, *operands: Any, call: Callable[[int, Sequence[Any], Any], list[Any]]) -> Any:
        """The results.

        Args:
            operands: A predicate for branches, carries, columns, what comes from outside, numbers.
            call: Runs a part, by number, on its inputs, and on numbers.
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
        rows = [np.empty(spec.shape, spec.dtype) for spec in specs]
        for k in self.order:
            made = call(0, (*carry, *[column[k] for column in columns], *rest), numbers)
            carry = made[: self.carries]
            for row, value in zip(rows, made[self.carries :], strict=True):
                row[k] = value
        return (*carry, *rows)


class LoopRow(Row):
    """The row of an instruction that runs parts of the graph."""

    __slots__ = ("loop",)

    loop: Loop


def loop_row(loop: Loop, count: int) -> LoopRow:
    """A row for one loop, which takes ``count`` operands."""
    specs = loop.specs()
    layout = Layout(
        loop.kind, [f"x{k}" for k in range(count)], (), [f"y{k}" for k in range(len(specs))]
    )
    rules = [None] * count

    def call(k: int, values: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        known = {one.expression: n for one, n in zip(loop.numbers, numbers, strict=True)}
        return evaluate_subgraph(loop.parts[k], values, known)

    row = LoopRow(
        layout,
        pullbacks=rules,
        pushforwards=rules,
        kernel=lambda *operands: loop.run(*operands, call=call),
        infer=lambda *given: specs,
        pack_results=tuple,
        primitive="a program of its own",
    )
    row.loop = loop
    row.impure = any(one.row.impure for part in loop.parts for one in part.instructions)
    return row


def make_subgraph(
    inputs: Sequence[tuple[int, Spec]],
    instructions: Sequence[Instruction],
    outputs: Sequence[Any],
    constants: dict[int, Any],
) -> Graph:
    """A graph of its own; what it takes from outside comes behind its inputs.

    Args:
        inputs: Numbers and specs.
        instructions: In order.
        outputs: Refs and Filled.
        constants: By number, those of the graph around.
    """
    graph = Graph()
    graph.outputs = list(outputs)
    graph.instructions = live_instructions(
        instructions, [o.id for o in outputs if isinstance(o, Ref)]
    )
    graph.inputs = list(inputs)
    graph.constants = {id: constants[id] for id in free_values([graph]) if id in constants}
    return graph


def free_values(parts: Iterable[Graph]) -> list[int]:
    """The numbers of what parts take from outside, each once."""
    found: dict[int, None] = {}
    for part in parts:
        made = {id for id, _ in part.inputs}.union(part.constants)
        found.update(dict.fromkeys(_free_ids(part.instructions, part.outputs, made)))
    return list(found)


def has_leaks(graph: Graph) -> bool:
    """Whether something that a loop's step made is read outside of it."""
    made = {id for id, _ in graph.inputs}.union(graph.constants, [s.id for s in graph.states])
    ends = [*graph.outputs, *[state.update for state in graph.states]]
    return bool(_free_ids(graph.instructions, ends, made))


def _free_ids(
    instructions: Iterable[Instruction], ends: Iterable[Any], made: set[int]
) -> list[int]:
    """Return the values that are read, but neither defined here nor in ``made``."""
    found: list[int] = []
    for one in instructions:
        found += [o.id for o in one.operands if isinstance(o, Ref) and o.id not in made]
        made.update(one.ids)
    return found + [o.id for o in ends if isinstance(o, Ref) and o.id not in made]


def subgraph_signature(
    instructions: Sequence[Instruction], inputs: Sequence[Any], outputs: Sequence[Any], trace: Any
) -> tuple[Any, ...]:
    """Return a signature of a subgraph that does not depend on the ids of its values.

    Two runs of a function have equal ones if they did the same with the same values from outside.
    What nobody reads does not count: a sweep inside may leave out what it made at first, as the
    cotangent of what is no source of it.
    """
    names: dict[int, Any] = {
        one.id: ("input", k) for k, one in enumerate(inputs) if isinstance(one, Symbol)
    }

    def named(operand: Any) -> Any:
        if isinstance(operand, Ref):
            array = trace.graph.constants.get(operand.id)
            return names.get(operand.id, operand.id) if array is None else _comparable(array)
        if isinstance(operand, ScalarInput):
            return operand.expression
        return _comparable(operand.array()) if isinstance(operand, Splat) else _comparable(operand)

    found: list[Any] = []
    for one in live_instructions(
        instructions, [o.id for o in outputs if isinstance(o, (Symbol, Ref))]
    ):
        loop = getattr(one.row, "loop", None)
        what: Any = one.row
        if loop is not None:
            parts = [_graph_signature(part, trace) for part in loop.parts]
            what = (*loop._replace(parts=(), numbers=()), *parts)
        operands = tuple(map(named, one.operands))
        found.append((what, tuple(map(_comparable, one.options)), operands))
        names.update((id, ("made", len(found), k)) for k, id in enumerate(one.ids))
    ends = [Ref(o.id) if isinstance(o, Symbol) else o for o in outputs]
    return (*found, tuple(map(named, ends)))


def _graph_signature(part: Graph, trace: Any) -> tuple[Any, ...]:
    given = [TracedArray(spec, trace, id) for id, spec in part.inputs]
    return subgraph_signature(part.instructions, given, part.outputs, trace)


def _comparable(value: Any) -> Any:
    """A number, an array or an option, as what can be compared; NaN is NaN."""
    if isinstance(value, ARRAY_LIKE):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, (list, tuple)):
        return type(value), *map(_comparable, value)
    return type(value), repr(value)


def evaluate_subgraph(graph: Graph, arrays: Sequence[Any], numbers: dict[Any, Any]) -> list[Any]:
    """The outputs of a part, by the kernels of its rows."""
    slots = dict(graph.constants)
    slots.update((id, array) for (id, _), array in zip(graph.inputs, arrays, strict=True))

    def value(operand: Any) -> Any:
        if isinstance(operand, Ref):
            return slots[operand.id]
        if isinstance(operand, ScalarInput):
            return numbers[operand.expression]
        return operand.array() if isinstance(operand, Splat) else operand

    for row, operands, options, ids, _ in graph.instructions:
        made = row.kernel(*map(value, operands), *options)
        slots.update(zip(ids, (made,) if row.pack_results is None else made, strict=True))
    return list(map(value, graph.outputs))


def output_specs(graph: Graph) -> tuple[Spec, ...]:
    """The specs of the outputs of a part."""
    known = dict(graph.inputs)
    known.update((id, spec_of(a)) for id, a in graph.constants.items())
    for one in graph.instructions:
        known.update(zip(one.ids, one.specs, strict=True))
    return tuple(
        known[o.id] if isinstance(o, Ref) else intern(o.shape, o.number.dtype)
        for o in graph.outputs
    )


# ------------------------------------------------------------------ while they are traced


class SubgraphTracing:
    """Tracing of the subgraphs of control flow."""

    graph: Graph
    symbol: Callable[[Spec], TracedArray]
    only_eagerly: Callable[[str], None]
    _ref: Callable[[Any], Any]
    _look_back: Callable[[Iterable[Any]], None]

    def _begin_parts(self) -> None:
        self.specs: dict[int, Spec] = {}  # of what is no constant
        # Where instructions go; by part that is being traced, the first id of its own.
        self._writing = self.graph.instructions
        self._parts: list[int] = []
        self._loops = False

    def aside(self, fn: Callable[[], Any]) -> tuple[list[Instruction], Any]:
        """Trace ``fn`` apart from the graph; return its instructions and its result."""
        outer, self._writing = self._writing, []
        self._parts.append(free_id())
        try:
            return self._writing, fn()
        finally:
            self._parts.pop()
            self._writing = outer

    @contextmanager
    def watched(self) -> Iterator[list[Instruction]]:
        """A list of what is emitted in a block, once that is over."""
        found: list[Instruction] = []
        writing, start = self._writing, len(self._writing)
        yield found
        found += writing[start:]

    def part(
        self,
        inputs: Sequence[TracedArray],
        instructions: Sequence[Instruction],
        outputs: Sequence[Any],
    ) -> Graph:
        """Return instructions that were traced aside as a graph; see ``bind``."""
        refs = [self._ref(o if isinstance(o, Symbol) else np.asarray(o)) for o in outputs]
        given = [(symbol.id, symbol.spec) for symbol in inputs]
        return make_subgraph(given, instructions, refs, self.graph.constants)

    def bind(self, loop: Loop, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Append the call of a loop or of branches; what its parts take from outside is added."""
        trace: Any = self
        taken = [TracedArray(self.specs[id], trace, id) for id in free_values(loop.parts)]
        for part in loop.parts:
            part.inputs += [(symbol.id, symbol.spec) for symbol in taken]
        self._loops = True
        found = {
            o.expression: o
            for part in loop.parts
            for one in part.instructions
            for o in one.operands
            if isinstance(o, ScalarInput)
        }
        loop = loop._replace(numbers=tuple(found.values()))
        given = [o if isinstance(o, Symbol) else np.asarray(o) for o in (*operands, *taken)]
        self._look_back(given)
        refs = (*map(self._ref, given), *loop.numbers)
        specs = loop.specs()
        made = tuple(map(self.symbol, specs))
        ids = tuple(symbol.id for symbol in made)
        self._writing.append(Instruction(loop_row(loop, len(refs)), refs, (), ids, specs))
        return made

    def refuse_from_part(self, variable: Any) -> None:
        """Raise where a part writes to what was there before it."""
        if self._parts and variable._id <= self._parts[-1]:
            self.only_eagerly("a step of a loop, or a branch, writes to a Variable")
            raise TapeError(
                f"a step of a loop, or a branch, writes to {variable!r}, which a graph cannot do; "
                "let it return what the Variable is to become, and assign that outside"
            )

    def refuse_leaks(self) -> None:
        """Raise where what a part made is read outside of it."""
        if self._loops and has_leaks(self.graph):
            raise TapeError(
                "a step of a loop, or a branch, lets a value out, through a Variable or another "
                "object, and it is used outside; return it from the step instead"
            )
