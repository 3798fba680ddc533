"""Graphs: flat lists of table ops on numbered values, with inputs, state and outputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.ownership import read_only_view
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Row
from odyssey.variable import Variable

__all__ = ["Splat", "ScalarInput", "Graph", "Instruction", "Ref", "State"]


class Ref(NamedTuple):
    """A value of the graph, as an operand."""

    id: int

    def __repr__(self) -> str:
        return f"%{self.id}"


class Splat(NamedTuple):
    """A number of a certain dtype as an operand, repeated to a shape: seeds, zeros and the like."""

    number: np.generic
    shape: Shape

    def __repr__(self) -> str:
        return f"{self.number.item()!r}: {Spec(self.shape, self.number.dtype)}"

    def array(self) -> Array:
        """Return the splat as an array of its own."""
        return np.full(self.shape, self.number)


class ScalarInput(NamedTuple):
    """A Python number as an operand, of which only a call knows what it is.

    Attributes:
        expression: How it is computed of the arguments; equal ones are equal.
        number: What it was when the graph was traced.
    """

    expression: Any
    number: int | float

    def __repr__(self) -> str:
        return repr(self.expression)


class Instruction(NamedTuple):
    """One call of an op; its results have the numbers ``ids``: one, but for ops of several results.

    Its operands are Refs, Filled, None, or Python's numbers, which adopt the dtype of others: known
    now, or Given. Where nothing reads a result, the call can be left out, unless its row says that
    it ``stays``.
    """

    row: Row
    operands: tuple[Any, ...]
    options: tuple[Any, ...]
    ids: tuple[int, ...]
    specs: tuple[Spec, ...]

    @property
    def id(self) -> int:
        """The number of the result, of an op that has one; ValueError of others."""
        (id,) = self.ids
        return id

    @property
    def spec(self) -> Spec:
        """The spec of the result; likewise."""
        (spec,) = self.specs
        return spec

    def __str__(self) -> str:
        made = ", ".join(f"%{id}: {spec}" for id, spec in zip(self.ids, self.specs, strict=True))
        given = [repr(operand) for operand in self.operands]
        given += [f"{n}={o!r}" for n, o in zip(self.row.options, self.options, strict=True)]
        text = f"{made} = {self.row.name}({', '.join(given)})"
        parts = "".join(f"\n{part}" for part in _subgraphs(self)).replace("\n", "\n    ")
        return f"{text}{'; has side effect' if self.row.has_side_effect else ''}{parts}"


def _subgraphs(instruction: Instruction) -> tuple[Graph, ...]:
    """Return the subgraphs of control flow; empty for other instructions."""
    loop = getattr(instruction.row, "loop", None)
    return () if loop is None else loop.parts


class _Sealed:
    """The part of a thing that nobody changes any more from some time on."""

    __slots__ = ("_sealed",)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_sealed"):
            raise AttributeError(f"{name}: a graph that was lowered is not changed")
        object.__setattr__(self, name, value)

    def seal(self) -> None:
        """Let nobody change it any more, nor what is in it."""
        self._sealed = True


class State(_Sealed):
    """A Variable that outlives the graph's runs: read as number ``id``, left as ``update``.

    ``field`` says which of its arrays is meant, ``"data"`` or ``"grad"``; ``label`` is what the
    Variable is called, and the field where it is not the data. ``anew`` says whether a run gives it
    a new array, so that who has the one of before sees none of it; ``kept``, whether it writes to
    that one as well.
    """

    __slots__ = ("anew", "field", "id", "kept", "label", "spec", "update", "variable")

    def __init__(self, variable: Variable, field: str, id: int, spec: Spec, label: str) -> None:
        self.variable = variable
        self.field = field
        self.id = id
        self.spec = spec
        self.label = label
        self.update: Ref | Splat | None = None
        self.anew = self.kept = False


class Graph(_Sealed):
    """A traced function as a list of instructions; print it to read it.

    Attributes:
        inputs: Numbers and specs of the array arguments, in order.
        states: Variables that the function captured: what it reads, and what it leaves in them.
        constants: Arrays that the function captured, each once.
        instructions: In order of execution.
        outputs: The leaves of the result: Refs, Filled, or values that no input reaches.
        clears: Labels of the gradients that the function leaves at None.
        cleared: Whose they are.
        asked: Variables whose gradient the function found to be None.
        eager: Why no program can do what the function does; None where one can.
        behind: Schedules that step behind each run, in order.
        made: Variables that hold what Python knows, as learning rates, and what makes them anew.
        shown: By place among the outputs, whose gradient it is: the array that the leaf is left.
        numbers: How numbers are computed that are Given; None where there are none.
    """

    __slots__ = (
        "asked",
        "behind",
        "cleared",
        "clears",
        "constants",
        "eager",
        "inputs",
        "instructions",
        "made",
        "numbers",
        "outputs",
        "shown",
        "states",
    )

    def __init__(self) -> None:
        self.inputs: list[tuple[int, Spec]] = []
        self.states: list[State] = []
        self.constants: dict[int, Any] = {}
        self.instructions: list[Instruction] = []
        self.outputs: list[Any] = []
        self.clears: list[str] = []
        self.cleared: list[Variable] = []
        self.asked: list[Variable] = []
        self.eager: str | None = None
        self.behind: list[Any] = []
        self.made: list[tuple[Variable, Callable[[], Variable]]] = []
        self.shown: dict[int, Variable] = {}
        self.numbers: Any = None

    def seal(self) -> None:
        """Likewise: lists become tuples."""
        self.constants = {id: read_only_view(array) for id, array in self.constants.items()}
        for name in Graph.__slots__:
            value = getattr(self, name)
            kinds: dict[type, Callable[[Any], Any]] = {list: tuple, dict: MappingProxyType}
            setattr(self, name, kinds.get(type(value), lambda same: same)(value))
        inside: list[_Sealed] = [*chain.from_iterable(map(_subgraphs, self.instructions))]
        for one in (*inside, *self.states):
            one.seal()
        super().seal()

    def captures(self) -> bool:
        """Whether arrays of the function's surroundings stand in it, as they were when traced."""
        operands = (o for one in self.instructions for o in one.operands)
        parts = (part for one in self.instructions for part in _subgraphs(one))
        return (
            bool(self.constants)
            or any(isinstance(o, Splat) for o in chain(operands, self.outputs))
            or any(part.captures() for part in parts)
        )

    def __str__(self) -> str:
        head = ", ".join(f"%{id}: {spec}" for id, spec in self.inputs)
        lines = [f"graph({head}):"]
        lines += [f"  state %{s.id}: {s.spec} = {s.label}" for s in self.states if s.id >= 0]
        lines += [
            f"  constant %{id}: {Spec(np.shape(a), np.asarray(a).dtype)}"
            for id, a in self.constants.items()
        ]
        lines += [f"  {instruction}" for instruction in self.instructions]
        lines += [f"  {s.label} <- {s.update!r}" for s in self.states if s.update is not None]
        lines += [f"  then {type(schedule).__name__}.step()" for schedule in self.behind]
        lines.append(f"  return {', '.join(map(repr, self.outputs))}")
        return "\n".join(lines)

    def to_dot(self) -> str:
        r"""The graph in Graphviz' language: boxes are arrays that are there, ellipses are calls.

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
        made: dict[int, str] = {}

        def node(name: str, label: str, shape: str) -> None:
            quoted = label.replace('"', '\\"')
            lines.append(f'  {name} [label="{quoted}", shape={shape}];')

        given = [(id, str(spec)) for id, spec in self.inputs]
        given += [(s.id, f"{s.label}\\n{s.spec}") for s in self.states if s.id >= 0]
        given += [
            (id, f"constant\\n{Spec(np.shape(a), np.asarray(a).dtype)}")
            for id, a in self.constants.items()
        ]
        for id, label in given:
            made[id] = f"v{id}"
            node(made[id], label, "box")
        for k, one in enumerate(self.instructions):
            plain = [repr(o) for o in one.operands if not isinstance(o, Ref)]
            made.update(dict.fromkeys(one.ids, f"i{k}"))
            specs = ", ".join(map(str, one.specs))
            node(f"i{k}", f"{one.row.name}({', '.join(plain)})\\n{specs}", "ellipse")
            reads = {made[o.id]: None for o in one.operands if isinstance(o, Ref)}
            lines += [f"  {source} -> i{k};" for source in reads]
        node("end", "results", "plaintext")
        ends = [("end", o) for o in self.outputs]
        for k, state in enumerate(self.states):
            if state.update is not None:
                node(f"s{k}", f"{state.label} <-", "box")
                ends.append((f"s{k}", state.update))
        lines += [f"  {made[o.id]} -> {end};" for end, o in ends if isinstance(o, Ref)]
        return "\n".join([*lines, "}"])

    def __len__(self) -> int:
        return len(self.instructions)
