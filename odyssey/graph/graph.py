"""Graphs: flat lists of ops on numbered values, with inputs, states and outputs; liveness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.ownership import read_only_view
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Row
from odyssey.variable import Variable

__all__ = [
    "Graph",
    "Instruction",
    "Ref",
    "ScalarInput",
    "Splat",
    "State",
    "free_values",
    "last_uses",
    "live_instructions",
    "undefined_ids",
]


class Ref(NamedTuple):
    """A value of the graph, as an operand."""

    id: int

    def __repr__(self) -> str:
        return f"%{self.id}"


class Splat(NamedTuple):
    """Uniform array as an operand: a number of a dtype, and a shape."""

    number: np.generic
    shape: Shape

    def __repr__(self) -> str:
        return f"{self.number.item()!r}: {Spec(self.shape, self.number.dtype)}"

    def array(self) -> Array:
        """Return a new array of that number."""
        return np.full(self.shape, self.number)


class ScalarInput(NamedTuple):
    """Python number as an operand that each call computes anew.

    Attributes:
        expression: Its computation from the arguments; equal expressions have equal values.
        number: Its value when the graph was traced.
    """

    expression: Any
    number: int | float

    def __repr__(self) -> str:
        return repr(self.expression)


class Instruction(NamedTuple):
    """One call of an op.

    A call whose results nobody reads is dead code, unless its row is impure.

    Attributes:
        row: The op.
        operands: Refs, Splats, None, Python's numbers, which are weakly typed, and ScalarInputs.
        options: The values of the row's options.
        ids: The ids of its results.
        specs: The specs of its results.
    """

    row: Row
    operands: tuple[Any, ...]
    options: tuple[Any, ...]
    ids: tuple[int, ...]
    specs: tuple[Spec, ...]

    @property
    def id(self) -> int:
        """Return the id of the only result; raise ValueError if there are several."""
        (id,) = self.ids
        return id

    @property
    def spec(self) -> Spec:
        """Return the spec of the only result; raise ValueError if there are several."""
        (spec,) = self.specs
        return spec

    def __str__(self) -> str:
        results = [f"%{id}: {spec}" for id, spec in zip(self.ids, self.specs, strict=True)]
        inputs = [repr(operand) for operand in self.operands]
        inputs += [f"{n}={o!r}" for n, o in zip(self.row.options, self.options, strict=True)]
        text = f"{', '.join(results)} = {self.row.name}({', '.join(inputs)})"
        inner = "".join(f"\n{graph}" for graph in _subgraphs(self)).replace("\n", "\n    ")
        return f"{text}{'; has side effect' if self.row.has_side_effect else ''}{inner}"


def _subgraphs(instruction: Instruction) -> tuple[Graph, ...]:
    """Return the subgraphs of control flow; empty for other instructions."""
    loop = getattr(instruction.row, "loop", None)
    return () if loop is None else loop.subgraphs


class _Sealed:
    """Mixin of objects that become immutable."""

    __slots__ = ("_sealed",)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_sealed"):
            raise AttributeError(f"{name}: a graph that was lowered is not changed")
        object.__setattr__(self, name, value)

    def seal(self) -> None:
        """Make this object immutable."""
        self._sealed = True


class State(_Sealed):
    """Array of a Variable that the graph reads or writes.

    Attributes:
        variable: The Variable, which outlives the runs.
        field: Its array: ``"data"`` or ``"grad"``. A gradient of sparse rows is two: its values
            are ``"grad"``, and its indices ``"rows"``.
        id: The id of the value that the graph reads; -1 if it only writes.
        spec: The spec of that value.
        label: The name of the Variable, with the field if that is the gradient.
        update: The value that a run leaves; None if it is not written.
        gets_new_array: Whether the function gives the Variable a new array (item assignment).
    """

    __slots__ = (
        "field",
        "gets_new_array",
        "id",
        "label",
        "spec",
        "update",
        "variable",
    )

    def __init__(self, variable: Variable, field: str, id: int, spec: Spec, label: str) -> None:
        self.variable = variable
        self.field = field
        self.id = id
        self.spec = spec
        self.label = label
        self.update: Ref | Splat | None = None
        self.gets_new_array = False


class Graph(_Sealed):
    """A traced function as a list of instructions; print it to read it.

    Attributes:
        inputs: Ids and specs of the array arguments, in order.
        states: Variables that the function captured, with the values that it leaves in them.
        constants: Arrays that the function captured, by id.
        instructions: The instructions, in order of execution.
        outputs: The leaves of the result: Refs, Splats, or values that depend on no input.
        cleared: Variables whose gradient the function leaves at None.
        cleared_labels: Labels of these gradients.
        missing_gradients: Variables whose gradient was None when the function read it.
        eager_reason: Why no program can do what the function does; None if one can.
        deferred_steps: Schedules that step after each run, in order.
        hyperparameters: Variables that hold Python's numbers, as learning rates; each with a
            function that returns the Variable anew.
        returned_gradients: By position of an output, the leaf whose gradient array it is.
        started_optimizers: Optimizers that step, some with a state that the trace made.
        numbers: The computation of the ScalarInputs; None if there are none.
        tf32: Whether products of float32 may round their operands to TF32 on a device: True if
            ``od.autocast("tf32")`` was entered at each; None without a product.
    """

    __slots__ = (
        "cleared",
        "cleared_labels",
        "constants",
        "deferred_steps",
        "eager_reason",
        "hyperparameters",
        "inputs",
        "instructions",
        "missing_gradients",
        "numbers",
        "outputs",
        "returned_gradients",
        "started_optimizers",
        "states",
        "tf32",
    )

    def __init__(self) -> None:
        self.inputs: list[tuple[int, Spec]] = []
        self.states: list[State] = []
        self.constants: dict[int, Any] = {}
        self.instructions: list[Instruction] = []
        self.outputs: list[Any] = []
        self.cleared_labels: list[str] = []
        self.cleared: list[Variable] = []
        self.missing_gradients: list[Variable] = []
        self.eager_reason: str | None = None
        self.deferred_steps: list[Any] = []
        self.hyperparameters: list[tuple[Variable, Callable[[], Variable]]] = []
        self.returned_gradients: dict[int, Variable] = {}
        self.started_optimizers: list[Any] = []
        self.numbers: Any = None
        self.tf32: bool | None = None

    def seal(self) -> None:
        """Make the graph and its subgraphs immutable; its lists become tuples."""
        self.constants = {id: read_only_view(array) for id, array in self.constants.items()}
        for name in Graph.__slots__:
            value = getattr(self, name)
            kinds: dict[type, Callable[[Any], Any]] = {list: tuple, dict: MappingProxyType}
            setattr(self, name, kinds.get(type(value), lambda same: same)(value))
        subgraphs: list[_Sealed] = [*chain.from_iterable(map(_subgraphs, self.instructions))]
        for item in (*subgraphs, *self.states):
            item.seal()
        super().seal()

    def captures(self) -> bool:
        """Return whether the graph holds copies of arrays that the function captured."""
        operands = (o for instruction in self.instructions for o in instruction.operands)
        subgraphs = chain.from_iterable(map(_subgraphs, self.instructions))
        return (
            bool(self.constants)
            or any(isinstance(o, Splat) for o in chain(operands, self.outputs))
            or any(graph.captures() for graph in subgraphs)
        )

    def __repr__(self) -> str:
        head = ", ".join(f"%{id}: {spec}" for id, spec in self.inputs)
        lines = [f"graph({head}):"]
        lines += [f"  state %{s.id}: {s.spec} = {s.label}" for s in self.states if s.id >= 0]
        lines += [
            f"  constant %{id}: {Spec(np.shape(a), np.asarray(a).dtype)}"
            for id, a in self.constants.items()
        ]
        lines += [f"  {instruction}" for instruction in self.instructions]
        lines += [f"  {s.label} <- {s.update!r}" for s in self.states if s.update is not None]
        lines += [f"  then {type(schedule).__name__}.step()" for schedule in self.deferred_steps]
        lines.append(f"  return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)

    def to_dot(self) -> str:
        r"""Return the graph in Graphviz' language: boxes are existing arrays, ellipses are calls.

        >>> import odyssey as od
        >>> print(od.compile(lambda x: x * 2.0).lower(np.zeros(3)).graph.to_dot())
        digraph graph_ {
          rankdir=LR;
          v0 [label="float64[3]", shape=box];
          i0 [label="multiply(2.0)\nfloat64[3]", shape=ellipse];
          v0 -> i0;
          end [label="results", shape=plaintext];
          i0 -> end;
        }
        """
        lines = ["digraph graph_ {", "  rankdir=LR;"]
        nodes: dict[int, str] = {}

        def node(name: str, label: str, shape: str) -> None:
            quoted = label.replace('"', '\\"')
            lines.append(f'  {name} [label="{quoted}", shape={shape}];')

        sources = [(id, str(spec)) for id, spec in self.inputs]
        sources += [(s.id, f"{s.label}\\n{s.spec}") for s in self.states if s.id >= 0]
        sources += [
            (id, f"constant\\n{Spec(np.shape(a), np.asarray(a).dtype)}")
            for id, a in self.constants.items()
        ]
        for id, label in sources:
            nodes[id] = f"v{id}"
            node(nodes[id], label, "box")
        for k, call in enumerate(self.instructions):
            literals = [repr(o) for o in call.operands if not isinstance(o, Ref)]
            nodes.update(dict.fromkeys(call.ids, f"i{k}"))
            specs = ", ".join(map(str, call.specs))
            node(f"i{k}", f"{call.row.name}({', '.join(literals)})\\n{specs}", "ellipse")
            reads = {nodes[o.id]: None for o in call.operands if isinstance(o, Ref)}
            lines += [f"  {source} -> i{k};" for source in reads]
        node("end", "results", "plaintext")
        ends = [("end", o) for o in self.outputs]
        for k, state in enumerate(self.states):
            if state.update is not None:
                node(f"s{k}", f"{state.label} <-", "box")
                ends.append((f"s{k}", state.update))
        lines += [f"  {nodes[o.id]} -> {end};" for end, o in ends if isinstance(o, Ref)]
        return "\n".join([*lines, "}"])

    def __len__(self) -> int:
        return len(self.instructions)


# ------------------------------------------------------------------ liveness


def live_instructions(
    instructions: Sequence[Instruction], live_ids: Iterable[int]
) -> list[Instruction]:
    """Return the instructions that are not dead code, in order.

    Args:
        instructions: Instructions in order of execution.
        live_ids: Ids of the values that are read after the last instruction.
    """
    needed = set(live_ids)
    live: list[Instruction] = []
    for instruction in reversed(instructions):
        if instruction.row.impure or not needed.isdisjoint(instruction.ids):
            live.append(instruction)
            needed.update(o.id for o in instruction.operands if isinstance(o, Ref))
    return live[::-1]


def last_uses(instructions: Sequence[Instruction], live_ids: Iterable[int]) -> dict[int, int]:
    """Return the position of the last instruction that reads each value.

    The position of ``live_ids``, which are read later, is the number of instructions. After its
    last use the memory of a value may be reused; an elementwise op may overwrite an operand that it
    reads last.
    """
    uses = {
        operand.id: position
        for position, instruction in enumerate(instructions)
        for operand in instruction.operands
        if isinstance(operand, Ref)
    }
    return uses | dict.fromkeys(live_ids, len(instructions))


def free_values(graphs: Iterable[Graph]) -> list[int]:
    """Return the ids of the values that subgraphs read from the graph around them."""
    free: dict[int, None] = {}
    for graph in graphs:
        defined = {id for id, _ in graph.inputs}.union(graph.constants)
        free.update(dict.fromkeys(undefined_ids(graph.instructions, graph.outputs, defined)))
    return list(free)


def undefined_ids(
    instructions: Iterable[Instruction], outputs: Iterable[Any], defined: set[int]
) -> list[int]:
    """Return the ids that are read before an instruction defines them.

    Args:
        instructions: Instructions in order of execution.
        outputs: Operands that are read after the last instruction.
        defined: Ids of the values that exist before the first; those of the results are added.
    """
    undefined: list[int] = []
    for instruction in instructions:
        operands = instruction.operands
        undefined += [o.id for o in operands if isinstance(o, Ref) and o.id not in defined]
        defined.update(instruction.ids)
    return undefined + [o.id for o in outputs if isinstance(o, Ref) and o.id not in defined]
