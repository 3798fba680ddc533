"""From a graph to the text of a program, stage by stage."""

from __future__ import annotations

from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.codegen.module import Module, generate_code
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.lowering import Lowered, lower
from odyssey.compiler.machine.blas import blas
from odyssey.compiler.native_dispatch.scalar_inputs import ScalarInputs
from odyssey.compiler.schedule.buffer_assignment import Plan, plan
from odyssey.compiler.state_layout import state_strides
from odyssey.compiler.symbolic.expressions import Arithmetic
from odyssey.graph.graph import Graph, State
from odyssey.spec import Shape, Spec

__all__ = [
    "LoweredProgram",
    "data_states",
    "output_specs",
    "noncontiguous_strides",
    "lower_program",
]


class LoweredProgram(NamedTuple):
    """A graph as text.

    Attributes:
        graph: It.
        calls: By name of a row that is called in Python, why.
        sources: By place in the result, what holds it: below 0 what was there before.
        inputs: Specs of what it is called with: arguments, then gradients from before.
        plan: How it is computed.
        numbers: What it takes of Python's numbers.
        module: The text.
        seconds: How long each stage took.
    """

    graph: Graph
    calls: dict[str, str]
    sources: list[int]
    inputs: list[Spec]
    plan: Plan
    numbers: ScalarInputs
    module: Module
    seconds: dict[str, float]


def lower_program(
    graph: Graph,
    low: Lowered | None = None,
    *,
    clocks: bool = False,
    varies: bool = False,
    budget: int | None = None,
) -> LoweredProgram:
    """Write a graph as text.

    Args:
        graph: It.
        low: Its nodes, where it was lowered already.
        clocks: Whether to count what kernels take.
        varies: Whether sizes of nodes are ``Varying``.
        budget: Bytes that the program is to hold at most.
    """
    seconds: dict[str, float] = {}
    begun = perf_counter()
    low = lower(graph) if low is None else low
    seconds["lower"], begun = perf_counter() - begun, perf_counter()
    sources = [_output_source(k, node) for k, node in enumerate(low.outputs)]
    made = plan(low, noncontiguous_strides(graph), budget)
    made.is_symbolic = varies
    # Else another thread could take an array that nobody had, and see it being written to.
    made.holds_gil = any(state.anew for state in graph.states)
    seconds["plan"], begun = perf_counter() - begun, perf_counter()
    given = [s.spec for s in graph.states if s.field == "grad" and s.id >= 0]
    inputs = [*[spec for _, spec in graph.inputs], *given]
    left = any(s.update is not None for s in graph.states) or bool(graph.cleared)
    numbers = ScalarInputs(graph.numbers or Arithmetic((), ()), low.scalar_slots, low.host_scalars)
    module = generate_code(made, len(inputs), blas(), left, clocks)
    seconds["write down"] = perf_counter() - begun
    return LoweredProgram(graph, low.host_calls, sources, inputs, made, numbers, module, seconds)


def data_states(graph: Graph) -> list[tuple[int, State]]:
    """The states that are arrays of Variables, with their numbers."""
    return [(k, s) for k, s in enumerate(graph.states) if s.field == "data"]


def noncontiguous_strides(graph: Graph) -> dict[int, tuple[int, ...]]:
    """By number of a state that is not contiguous, its strides."""
    pairs = [(k, state_strides(state)) for k, state in data_states(graph)]
    return {k: strides for k, strides in pairs if strides is not None}


def output_specs(plan_: Plan) -> list[tuple[Shape, np.dtype[Any]]]:
    """Shapes and dtypes of the results that a program writes."""
    written = [plan_.outputs[k] for k in plan_.written_outputs()]
    return [
        (tuple(map(int, node.shape)), np.dtype(node.type if node.type != "b1" else bool))
        for node in written
        if node is not None
    ]


def _output_source(k: int, node: Node | None) -> int:
    if node is None or node.owner.kind in ("number", "index"):
        return (1 << 60) + k
    return -1 if node.owner.kind == "leaf" else node.owner.id
