"""Executable: machine code bound to the states of its graph.

Called by ``compiled_call``, and by ``host_calls`` for the bodies of loops and branches. States
are read and written in place. What a program relies on, such as that a Variable still holds
the same array, is a list of guard words that the entry compares. If one differs, nothing is
executed, and ``bind`` looks the states up again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from odyssey.compiler.codegen.module import EXTRA_COUNTERS, Module
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.lowering import is_unrolled, lower
from odyssey.compiler.machine.addresses import write_words
from odyssey.compiler.machine.blas import blas_addresses, lapack_addresses
from odyssey.compiler.machine.jit import Loaded, builtin, load
from odyssey.compiler.machine.state_locks import memory_owner, state_locks
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, GUARD_FAILED, RAN
from odyssey.compiler.native_dispatch.loader import load_entry_points, native_dispatch_available
from odyssey.compiler.native_dispatch.object_layout import object_layout
from odyssey.compiler.native_dispatch.scalar_inputs import ScalarInputs
from odyssey.compiler.native_dispatch.tables import BLOCK_FIELDS, PROGRAM_BLOCK_SIZE, row_width
from odyssey.compiler.pipeline import (
    LoweredProgram,
    lower_measured,
    lower_program,
    output_specs,
    plan,
)
from odyssey.compiler.runtime.binding import (
    absent_gradient_words,
    planned_strides,
    state_guard_words,
)
from odyssey.compiler.runtime.buffer_leases import (
    assert_exclusive,
    ensure_exclusive,
    needs_exclusive_array,
)
from odyssey.compiler.runtime.host_calls import HostCall
from odyssey.compiler.runtime.thread_pool import thread_pool_symbols
from odyssey.compiler.schedule.buffer_assignment import (
    ALIGNMENT,
    HELD_KINDS,
    Plan,
    held_bytes,
)
from odyssey.compiler.state_layout import (
    BindingError,
    check_state_layout,
    data_states,
    noncontiguous_strides,
)
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.choices import Choices
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.devices.copy_on_write import BufferLease, is_exclusive, lease_of
from odyssey.devices.ownership import (
    address_of,
    has_overlapping_elements,
    has_overlapping_writes,
    memory_span,
    overlaps,
)
from odyssey.devices.write_guard import BINDINGS
from odyssey.graph.graph import Graph, State
from odyssey.graph.subgraphs import LoopRow
from odyssey.spec import Array, Spec

__all__ = [
    "CHECK_FAILED",
    "GUARD_FAILED",
    "RAN",
    "ArgumentTable",
    "BindingError",
    "Executable",
    "held_buffers",
    "memory_requirements",
    "plan_of_graph",
]


class ArgumentTable(NamedTuple):
    """Rows that the entry checks arguments against, and the objects that the rows refer to."""

    arrays: Array
    numbers: Array
    held: tuple[Any, ...]


class Executable:
    """Machine code for a graph, bound to the states of the graph.

    Attributes:
        graph: Graph that it computes.
        plan: Buffers and kernels.
        has_native_entry: Whether whole calls may be native; a program of a device has none.
        step_count: Number of its native segments and host calls.
        releases_gil: Whether a step may release the interpreter lock.
        module: LLVM module with its layout of the table.
        loaded: Machine code.
        inputs: Specs of its inputs: arguments, then accumulated gradients.
        host_calls: Host calls by number of their node.
        contract_broken: Whether a foreign kernel returned other specs than its row inferred; the
            program runs no more.
        gradients_to_clear: Variables whose gradients a run clears, as of the last binding.
        calls: Reasons for host calls by name of the row.
        numbers: Scalar inputs, which follow ``inputs`` in a call.
        threads: Number of threads; 0 for the process-wide setting.
        budget: Bytes that the plan aims to stay within, by rematerialization.
        shares: Whether some kernels are shared among threads.
        counters: Counters of an instrumented program; None otherwise.
        seconds: Time of each stage up to the LLVM text; ``Loaded`` has the others.
        constants: Constants of the graph with their slots in the table.
        block: Words that the entry reads; see ``native_dispatch.tables``.
        start: ``start(*inputs, *numbers, *results)`` checks its arguments and runs the first step;
            its answers are those of ``native_dispatch.entry``.
        rest: Runs the last step, if there are several.
        locks: Locks of the states, as of the last binding; see ``state_locks``.
        ways: Ways of works that are not computed as guessed.
        choices: Ways of its own works.
        measured: By work the measurement that its way in the plan rests on.
    """

    def __init__(
        self,
        graph: Graph,
        clocks: bool = False,
        threads: int = 0,
        budget: int | None = None,
        text: LoweredProgram | None = None,
        ways: WaysPlan = NO_PLAN,
        tolerance: Any = None,
        carries: int = 0,
    ) -> None:
        self.graph = graph
        self.measured: dict[Any, Any] = {}
        self.threads, self.budget, self.ways = threads, budget, ways
        if text is None and tolerance is not None:
            settings: Any = {"clocks": clocks, "budget": budget}
            text, ways, self.measured = lower_measured(graph, tolerance, threads, **settings)
            self.ways = ways
        if text is None:
            text = lower_program(graph, clocks=clocks, budget=budget, ways=ways, carries=carries)
        written = text
        self.choices = written.choices
        self.seconds = written.seconds
        self.calls = written.calls
        self.sources = written.sources
        self._states = data_states(graph)
        self.plan: Plan = written.plan
        self.inputs = written.inputs
        self.numbers: ScalarInputs = written.numbers
        self.module: Module = written.module
        self.shares = "@ody_own" in self.module.text
        outside = {
            **blas_addresses(),
            **lapack_addresses(),
            **(thread_pool_symbols() if self.shares else {}),
        }
        self.loaded: Loaded = load(self.module.text, outside)
        self.counters = self._counters() if clocks else None
        if self.shares:
            write_words(self.loaded.address("ody_own"), [threads])
        self._binding = BINDINGS.new()
        self.locks: tuple[RLock, ...] = ()
        self.block = np.zeros(PROGRAM_BLOCK_SIZE, np.int64)
        self.words = np.zeros(3, np.int64)
        self._spans = np.zeros(0, np.int64)
        self._arrays: list[tuple[State, BufferLease]] = []
        self._retired: list[Any] = []  # what an interrupted binding has replaced
        self._prepare()
        self.bind()

    def _prepare(self) -> None:
        """Allocate the table and the arena, and choose the entry: native, or in Python."""
        module, plan_ = self.module, self.plan
        self.table = np.zeros(max(len(module.slots), 1), np.int64)
        self.grow_arena(int(plan_.arena))
        self.constants = [
            (slot, np.ascontiguousarray(_constant_array(plan_, index)))
            for (kind, index), slot in module.slots.items()
            if kind == "constant"
        ]
        for slot, array in self.constants:
            self.table[slot] = address_of(array)
        for (kind, index), slot in module.slots.items():
            if kind == "given":
                self.table[slot] = address_of(self.numbers.cells) + 8 * index
        self.outputs = output_specs(plan_)
        self._wanted = [(spec.shape, spec.dtype, True) for spec in self.inputs]
        at = self.loaded.address
        names = [step for step in module.steps if isinstance(step, str)]
        self._segments = {name: _segment_function(at(name)) for name in names}
        self.host_calls = self.host_calls_of(plan_, module)
        kernels = plan_.fused.kernels
        self._kernel_positions = {k.nodes[0].id: k.position for k in kernels if k.kind == "call"}
        self.contract_broken = False
        self.has_native_entry = True
        self.step_count, self.releases_gil = len(module.steps), module.releases_gil
        self.host_results: dict[int, Array] = {}
        self.batched_results: dict[int, dict[Any, Any]] = {}
        self.start: Callable[..., Any] = self._start
        self.rest: Callable[..., Any] = self._rest
        if object_layout() is not None:
            self._fill_entry_block([at(name) for name in names])
            code = load_entry_points(direct=module.direct and native_dispatch_available())
            keep = (
                self.block,
                self.loaded,
                code,
            )  # owned by the entry points, and released with them
            self.start = builtin(code.address("call"), "program", *keep)
            self.rest = builtin(code.address("rest"), "rest", *keep)

    def _fill_entry_block(self, steps: Sequence[int]) -> None:
        """Fill the entry's block with everything but the states."""
        slots, count = self.module.slots, len(self.inputs)
        outputs = [slots["output", k] for k in self.plan.written_outputs()]
        self._outputs = np.array(outputs, np.int64)
        self.set_fields(table=address_of(self.table), first=steps[0], last=steps[-1])
        self.set_fields(array_type=id(ndarray), array_count=count)
        self.set_fields(argument_count=count + len(self.numbers.slots))
        self.set_fields(outputs=address_of(self._outputs), output_count=len(outputs))
        self.use_arguments(self.argument_table(self.inputs, self.numbers))

    def set_fields(self, **fields: int) -> None:
        """Set fields of the entry's block."""
        for name, word in fields.items():
            self.block[BLOCK_FIELDS[name]] = word

    def argument_table(self, inputs: Sequence[Spec], numbers: ScalarInputs) -> ArgumentTable:
        """Build the table that the entry checks arguments against."""
        lengths = [np.array(spec.shape, np.int64) for spec in inputs]
        rows = []
        for k, (spec, room) in enumerate(zip(inputs, lengths, strict=True)):
            size = spec.size * spec.dtype.itemsize
            slot = self.module.slots["input", k]
            rows += [id(spec.dtype), len(spec.shape), address_of(room), slot, size]
        taken = numbers.rows(len(inputs))
        return ArgumentTable(
            np.array(rows, np.int64), np.array(taken, np.int64), (*inputs, *lengths)
        )

    def use_arguments(self, given: ArgumentTable) -> None:
        """Make the entry check arguments against a table."""
        self._given = given
        if object_layout() is None:
            specs = given.held[: len(self.inputs)]
            self._wanted = [(spec.shape, spec.dtype, True) for spec in specs]
        self.set_fields(arrays=address_of(given.arrays), scalars=address_of(given.numbers))
        self.set_fields(scalar_count=given.numbers.size // row_width("scalars"))

    def grow_arena(self, size: int) -> int:
        """Allocate an arena of so many bytes, and return its size."""
        self._keep = np.empty(size + ALIGNMENT, np.uint8)
        start = address_of(self._keep)
        self.table[0] = start + -start % ALIGNMENT
        return size

    def _counters(self) -> Any:
        """Return the counters of an instrumented program, as an array in its memory."""
        count = len(self.plan.fused.kernels) + EXTRA_COUNTERS
        return (ctypes.c_int64 * count).from_address(self.loaded.address("odyssey_spent"))

    def host_calls_of(self, plan_: Plan, module: Module) -> dict[int, HostCall]:
        """Build the host calls of a plan by number of their node, for any sizes."""
        nodes = [step for step in module.steps if isinstance(step, Node)]
        settings: Any = {"clocks": self.counters is not None, "threads": self.threads}
        make = partial(Executable, **settings, ways=self.ways)
        return {node.id: HostCall(self, plan_, node, make) for node in nodes}

    def describe_launches(self) -> list[str]:
        """Return lines for ``explain`` on what a device is given; none on the CPU."""
        return []

    def works(self) -> list[Choice]:
        """Return the works of the program and of its subgraphs, each once."""
        parts = [part for call in self.host_calls.values() for part in call.parts.values()]
        found = {choice.work: choice for choice in self.choices.listing()}
        for part in parts:
            for choice in part.works():
                found.setdefault(choice.work, choice)
        for work, measured in self.measured.items():
            if work in found:
                found[work] = found[work]._replace(origin=str(measured))
        return list(found.values())

    # -------------------------------------------------------------- states

    def bind(self) -> None:
        """Bind to the arrays that the states have now.

        Raises:
            BindingError: a state is not what the program was compiled for.
        """
        with self._binding:
            self._bind()

    def _bind(self) -> None:
        """Bind, with the lock held."""
        words: list[int] = []
        cleared = self.graph.cleared
        # Gradients to clear; that a gradient is absent, the usual case, is a guard word.
        self.gradients_to_clear = [
            v for v in cleared if v._info is not None and v._info.grad is not None
        ]
        self.clear = [v for v in cleared if v._info is not None and v._info.grad is None]
        arrays: list[tuple[State, BufferLease]] = []
        spans: list[tuple[int, int, bool]] = []
        for k, state in self._states:
            ensure_exclusive(state)
            array = state.variable._array
            check_state_layout(state, array, planned_strides(self.plan, k))
            written = state.update is not None
            if written and not array.flags.writeable:
                raise BindingError(f"{state.label} cannot be written to")
            if written and has_overlapping_elements(array):
                raise BindingError(f"elements of {state.label} share memory")
            arrays.append((state, lease_of(array)))
            spans.append((*memory_span(array), written))
            words += state_guard_words(state, array, written)
        if has_overlapping_writes(spans):
            raise BindingError("two states share memory")
        # Locks of Variables and of the arrays that own the memory; adds no reference to an array.
        involved = [*(s.variable for s in self.graph.states), *cleared]
        involved += [memory_owner(held.array) for _, held in arrays]
        had, self.locks = self.locks, state_locks(involved, self.locks)
        if had and not {*had}.issuperset(self.locks):  # the next run takes them all
            raise BindingError("states lie in memory that other programs may be writing to")
        # Up to here nothing was changed: a refused binding keeps the words and the table. A signal
        # handler may raise anywhere below. Until the next binding is complete no call passes, and
        # the entry still reads what it has the addresses of.
        self._retired.append((self.words, self._spans, self._arrays))
        self.invalidate()
        self._arrays = arrays
        for k, state in self._states:
            slot = self.module.slots.get(("state", k))
            if slot is not None:
                self.table[slot] = address_of(state.variable._array)
        for variable in {id(v): v for v in (*self.graph.missing_gradients, *self.clear)}.values():
            words += absent_gradient_words(variable)
        self._written = [(start, end) for start, end, written in spans if written and end > start]
        if object_layout() is not None:
            self.words = np.array(words or [0, 0, 0], np.int64)
            self._spans = np.array([word for span in self._written for word in span], np.int64)
            self.set_fields(spans=address_of(self._spans), span_count=len(self._written))
            self.set_fields(guard_count=len(words) // row_width("guards"))
            self.set_fields(guards=address_of(self.words))
        self._retired.clear()

    def invalidate(self) -> None:
        """Let no call pass until the program is bound again."""
        if len(self.words) > 2:
            self.words[1:3] = 0, 1  # no word equals 1 under a mask of 0

    def exclusivity_checks(self) -> list[tuple[Any, ...]]:
        """Return calls that raise BindingError if a written state's array has another holder."""
        return [
            (assert_exclusive, s.variable, held)
            for s, held in self._arrays
            if needs_exclusive_array(s)
        ]

    # -------------------------------------------------------------- running

    def canonical_args(
        self, arrays: Sequence[Any], wanted: Sequence[Spec] | None = None
    ) -> list[Array]:
        """Return arguments as the entry takes them: aligned C-contiguous arrays.

        Args:
            arrays: Arguments.
            wanted: Their specs, if other than ``inputs``.

        Raises:
            BindingError: an argument has another shape or dtype, or aliases a written state.
        """
        found = []
        for array, spec in zip(arrays, wanted or self.inputs, strict=False):
            dtype, given = spec.dtype, getattr(array, "dtype", None)
            if type(array) is not ndarray or given != dtype or array.shape != spec.shape:
                raise BindingError(f"{type(array).__name__} of {given} was passed for {spec}")
            if overlaps(memory_span(array), self._written):
                raise BindingError("an argument aliases a state that is written")
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = np.array(array, dtype, order="C")
            found.append(array if array.dtype is dtype else array.view(dtype))
        return found

    def _start(self, *arrays: Any) -> int:
        """Check arguments and run the first step, in Python: the entry where no layout is known."""
        given = len(self.inputs)
        if not self._is_bound() or [_observed_spec(a) for a in arrays[:given]] != self._wanted:
            return GUARD_FAILED
        count = given + len(self.numbers.slots)
        if not self.numbers.store(arrays[given:count]):
            return GUARD_FAILED
        self.place_arguments([*arrays[:given], *arrays[count:]])
        return self.run_step(self.module.steps[0])

    def place_arguments(self, arrays: Sequence[Array]) -> None:
        """Write the addresses of arguments and results to the table."""
        given, slots = len(self.inputs), self.module.slots
        for k, array in enumerate(arrays[:given]):
            self.table[slots["input", k]] = address_of(array)
        for k, out in zip(self.plan.written_outputs(), arrays[given:], strict=True):
            self.table[slots["output", k]] = address_of(out)

    def _rest(self) -> int:
        """Run the last step, in Python."""
        return self.run_step(self.module.steps[-1])

    def run_step(self, step: str | Node) -> int:
        """Run one step on the table's addresses: a native segment, or a host call."""
        if isinstance(step, Node):
            begun = perf_counter_ns() if self.counters is not None else 0
            self.host_calls[step.id].run(self)
            if self.counters is not None:  # native kernels are timed by the program
                self.counters[self._kernel_positions[step.id]] += perf_counter_ns() - begun
            return RAN
        return int(self._segments[step](address_of(self.table)))

    def _is_bound(self) -> bool:
        """Return whether the states have their arrays, exclusively where that is needed."""
        return all(
            state.variable._array is held.array
            and (not needs_exclusive_array(state) or is_exclusive(held))
            for state, held in self._arrays
        ) and all(variable._info.grad is None for variable in self.graph.missing_gradients)

    def run_middle_steps(self) -> int:
        """Run the steps between the first and the last."""
        # Results of host calls by number of their node, until the last step has read them.
        self.host_results, self.batched_results = {}, {}
        for step in self.module.steps[1:-1]:
            if (answer := self.run_step(step)) != RAN:
                return answer
        return RAN

    def state_slots(self) -> list[tuple[int, Array, bool]]:
        """Return the states' arrays with their slots in the table, and whether each is written."""
        slots = [(self.module.slots.get(("state", k)), state) for k, state in self._states]
        return [
            (slot, state.variable._array, state.update is not None)
            for slot, state in slots
            if slot is not None
        ]


def plan_of_graph(graph: Graph, budget: int | None, ways: WaysPlan = NO_PLAN) -> Plan | None:
    """Return the buffers and kernels of a graph's program; None if a state cannot be bound."""
    try:
        return plan(lower(graph, choices=Choices(ways)), noncontiguous_strides(graph), budget)
    except BindingError:
        return None


def memory_requirements(
    graph: Graph, budget: int | None = None, ways: WaysPlan = NO_PLAN
) -> tuple[int, list[tuple[int, str]]]:
    """Return the bytes that a graph's program holds, and a description of its largest buffers."""
    choices = Choices(ways)
    made = plan(lower(graph, choices=choices), noncontiguous_strides(graph), budget)
    total, found = held_buffers(made)
    for one in graph.instructions:
        if not isinstance(one.row, LoopRow) or is_unrolled(one.row, choices):
            continue
        for part in one.row.loop.subgraphs:
            inside, _ = memory_requirements(part, None, ways)
            total += inside
            found.append((inside, f"{inside:,} bytes in a {one.row.name}"))
    return total, sorted(found, reverse=True)


def held_buffers(plan_: Plan) -> tuple[int, list[tuple[int, str]]]:
    """Return the bytes that a program of a plan holds, and a description of each buffer."""
    found: dict[int, tuple[int, str]] = {}
    for number, home in plan_.allocations.items():
        buffer = home.buffer
        if buffer.kind in ("arena", *HELD_KINDS):
            text = f"%{number}, {buffer.bytes:,} bytes of {home.view.shape}"
            found[id(buffer)] = (buffer.bytes, text)
    return held_bytes(plan_), list(found.values())


def _segment_function(address: int) -> Callable[[int], int]:
    """Return a native segment as a function that keeps the interpreter's lock."""
    made: Callable[[int], int] = _Segment(address)
    return made


# One class for all: ctypes would make one at each call, which only the garbage collector frees.
_Segment: Any = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


def _constant_array(plan_: Plan, index: int) -> Array:
    """Return a constant of a plan by its index."""
    for node in plan_.fused.order:
        if node.kind == "leaf" and node.detail == ("constant", index):
            found: Array = node.payload
            return found
    raise AssertionError(f"the plan has no constant {index}")


def _observed_spec(array: Any) -> tuple[Any, ...]:
    """Return shape, dtype and contiguity of an array; empty for anything else."""
    if type(array) is not ndarray:
        return ()
    flags = array.flags
    return array.shape, array.dtype, flags.c_contiguous and flags.aligned
