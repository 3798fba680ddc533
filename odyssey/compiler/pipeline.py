"""Compilation pipeline: trace → lower → optimize → assign buffers → generate → load.

``od.compile`` takes a function through three stage objects:

* traced, ``tracing.attempt.TraceAttempt``: the graph of table ops, its states, and the guards;
* lowered, ``LoweredProgram``: the kernels as LLVM IR, with a buffer for each value;
* compiled, ``runtime.executable.Executable``: machine code in memory, bound to the states.

``lower_program`` is the middle of it: each line is a stage, with a room of its own. ``Executable``
loads the module that it returns, and ``runtime.compiled_call`` runs it in place of the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.codegen.module import Module, generate_code
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.lowering import Lowered, lower
from odyssey.compiler.machine.blas import blas_addresses
from odyssey.compiler.native_dispatch.scalar_inputs import ScalarInputs
from odyssey.compiler.passes.pass_manager import optimize
from odyssey.compiler.schedule.buffer_assignment import Plan, assign_buffers
from odyssey.compiler.schedule.state_copies import find_state_copies
from odyssey.compiler.state_layout import noncontiguous_strides
from odyssey.compiler.symbolic.expressions import Arithmetic
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.choices import Choices
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.graph.graph import Graph
from odyssey.graph.subgraphs import LoopRow
from odyssey.spec import Shape, Spec

__all__ = [
    "LoweredProgram",
    "lower_measured",
    "lower_program",
    "output_source",
    "output_specs",
    "plan",
    "works_of",
]


class LoweredProgram(NamedTuple):
    """A graph as LLVM IR.

    Attributes:
        graph: The graph.
        calls: Reasons for host calls by name of the row.
        sources: For each output, the number of the value that it is; -2 - k for input k, and -1
            for another value that stood before the program ran.
        inputs: Specs of its inputs: arguments, then accumulated gradients.
        plan: Kernels and buffers.
        numbers: Scalar inputs.
        module: LLVM module.
        seconds: Time of each stage.
        choices: Ways of its works.
    """

    graph: Graph
    calls: dict[str, str]
    sources: list[int]
    inputs: list[Spec]
    plan: Plan
    numbers: ScalarInputs
    module: Module
    seconds: dict[str, float]
    choices: Choices


def lower_program(
    graph: Graph,
    low: Lowered | None = None,
    *,
    clocks: bool = False,
    varies: bool = False,
    budget: int | None = None,
    ways: WaysPlan = NO_PLAN,
    carries: int = 0,
) -> LoweredProgram:
    """Lower a graph to LLVM IR, stage by stage.

    Args:
        graph: The graph.
        low: Its nodes, if it was lowered already.
        clocks: Whether to instrument kernels with clocks.
        varies: Whether sizes of nodes may be symbolic dimensions.
        budget: Most bytes that the program should hold, by rematerialization.
        ways: Ways of works that are not computed as guessed, if the graph was not lowered before.
        carries: Number of the first inputs that the first outputs may be written over.

    Raises:
        PlanError: ``ways`` names a way that a work does not have.
    """
    begin = perf_counter()
    low = lower(graph, choices=Choices(ways)) if low is None else low
    sources = [output_source(k, node) for k, node in enumerate(low.outputs)]
    lowered = perf_counter()
    schedule = plan(low, noncontiguous_strides(graph), budget, carries)
    schedule.is_symbolic = varies
    schedule.choices = choices = low.choices
    # Otherwise another thread could take a reference to an exclusive buffer while it is written.
    schedule.holds_gil = any(state.gets_new_array for state in graph.states)
    planned = perf_counter()
    before = [s.spec for s in graph.states if s.field == "grad" and s.id >= 0]
    inputs = [*[spec for _, spec in graph.inputs], *before]
    writes = any(s.update is not None for s in graph.states) or bool(graph.cleared)
    numbers = ScalarInputs(graph.numbers or Arithmetic((), ()), low.scalar_slots, low.host_scalars)
    module = generate_code(schedule, len(inputs), blas_addresses(), writes, clocks)
    seconds = {
        "lower": lowered - begin,
        "plan": planned - lowered,
        "generate": perf_counter() - planned,
    }
    return LoweredProgram(
        graph, low.host_calls, sources, inputs, schedule, numbers, module, seconds, choices
    )


def works_of(graph: Graph, ways: WaysPlan = NO_PLAN, budget: int | None = None) -> list[Choice]:
    """Return the works of a graph's program and of its subgraphs, each once, as they are met.

    Args:
        graph: The graph; nothing of it is compiled.
        ways: Ways of works that are not computed as guessed.
        budget: Most bytes that the program should hold, by rematerialization.

    Raises:
        PlanError: ``ways`` names a way that a work does not have.
    """
    return _works_of_program(lower_program(graph, budget=budget, ways=ways), ways)


def _works_of_program(lowered: LoweredProgram, ways: WaysPlan) -> list[Choice]:
    found = {choice.work: choice for choice in lowered.choices.listing()}
    for step in lowered.module.steps:
        row = step.payload.row if isinstance(step, Node) else None
        for part in row.loop.subgraphs if isinstance(row, LoopRow) else ():
            for choice in works_of(part, ways):
                found.setdefault(choice.work, choice)
    return list(found.values())


def lower_measured(
    graph: Graph, tolerance: Any, threads: int, *, clocks: bool = False, budget: int | None = None
) -> tuple[LoweredProgram, WaysPlan, dict[Any, Any]]:
    """Lower a graph by the plan that was measured to be the fastest on this machine.

    Whatever fails with the measurements or by their plan, the program is that of the guess.

    Args:
        graph: The graph.
        tolerance: What ``choosing.check_tolerance`` returned.
        threads: Number of threads; 0 for the process-wide setting.
        clocks: Whether to instrument kernels with clocks.
        budget: Most bytes that the program should hold, by rematerialization.

    Returns:
        The program, its plan, and by work the measurement that the plan rests on.
    """
    from odyssey.compiler.machine.thread_count import get_threads
    from odyssey.compiler.ways.choosing import choose_from, graph_key
    from odyssey.compiler.ways.store import default_store

    guessed = lowered = lower_program(graph, clocks=clocks, budget=budget)
    found: dict[Any, Any] = {}
    ways = NO_PLAN
    try:
        store = default_store(threads or get_threads())
        for _ in range(_MOST_CHOICES):  # a way may have works of its own
            works = _works_of_program(lowered, ways)
            pairs = [(one.work, one.ways) for one in works if one.work not in found]
            more = choose_from(store, pairs, lambda: graph_key(graph), tolerance)
            if not more:
                break
            found |= more
            ways = WaysPlan({work: choice.way for work, choice in found.items()})
            lowered = lower_program(graph, clocks=clocks, budget=budget, ways=ways)
        # A copy of a state that the guess does not make may be refused, by copies="error".
        if found and len(find_state_copies(lowered.plan)) > len(find_state_copies(guessed.plan)):
            return guessed, NO_PLAN, {}
    except Exception:
        return guessed, NO_PLAN, {}
    return lowered, ways, found


# Times that a program is lowered again, for works that it has only by the plan so far.
_MOST_CHOICES = 3


def plan(
    low: Lowered,
    strides: Mapping[int, Sequence[int]],
    budget: int | None = None,
    carries: int = 0,
) -> Plan:
    """Optimize a lowered graph, and assign buffers to its values.

    Args:
        low: The lowered graph.
        strides: By number of a state that is not contiguous, its strides in elements.
        budget: Most bytes that the program should hold, by rematerialization.
        carries: Number of the first inputs that the first outputs may be written over.
    """
    return assign_buffers(low, optimize(low, strides), budget, carries)


def output_specs(plan_: Plan) -> list[tuple[Shape, np.dtype[Any]]]:
    """Return shapes and dtypes of the outputs that a program writes."""
    written = [plan_.outputs[k] for k in plan_.written_outputs()]
    return [
        (tuple(map(int, node.shape)), dtype_of_code(node.type))
        for node in written
        if node is not None
    ]


def output_source(k: int, node: Node | None) -> int:
    """Return the number of the value that an output is; see ``LoweredProgram.sources``."""
    if node is None or node.owner.kind in ("number", "index"):
        return (1 << 60) + k
    if node.owner.kind != "leaf":
        return node.owner.id
    role, index = node.owner.detail[:2]
    return -2 - index if role == "input" else -1
