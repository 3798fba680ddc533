"""Sized programs: one machine code for all sizes, and the data of each size.

Called by ``specialization``. To add a size, the function is traced and its program text is
generated, which takes 5 to 30 ms: Python code may decide by a size, which only a trace shows. The
text is not compiled, but must equal the template's up to the numbers in the list.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.machine.state_locks import PROGRAM_LOCKS
from odyssey.compiler.native_dispatch.scalar_inputs import ScalarInputs
from odyssey.compiler.pipeline import LoweredProgram, lower_program
from odyssey.compiler.runtime.compiled_call import (
    CACHE_MISS,
    CompiledCall,
    ShapeSpecialization,
    specialize_to_shape,
)
from odyssey.compiler.runtime.dry_run import DryRun
from odyssey.compiler.runtime.executable import ArgumentTable, BindingError
from odyssey.compiler.runtime.host_calls import HostCall
from odyssey.compiler.runtime.profile import Profile
from odyssey.compiler.schedule.verify import verify
from odyssey.compiler.symbolic_shapes.declarations import SizeSource
from odyssey.compiler.symbolic_shapes.templates import (
    SIZES,
    ProgramText,
    TemplateMismatchError,
    align_texts,
)
from odyssey.compiler.symbolic_shapes.trace_alignment import TraceAlignment
from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.devices.ownership import address_of, same_bits
from odyssey.errors import SettingError
from odyssey.graph.graph import Graph
from odyssey.spec import Array
from odyssey.table.value import array_of

__all__ = ["ProgramTemplate", "SizedProgram"]

# Number of sizes for which a program keeps data.
_MAX_SIZES = 4096


class _SizeEntry(NamedTuple):
    """Data of a program for one size.

    Attributes:
        numbers: The list of numbers that the code reads.
        address: Address of the list.
        shape: Shapes of arguments and results.
        constants: Slot in the table, address and array of each constant.
        host_calls: Host calls by number of their node.
        scalar_inputs: Scalar inputs.
        arguments: Table that the entry checks arguments against.
        arena: Size of the arena in bytes.
    """

    numbers: Array
    address: int
    shape: ShapeSpecialization
    constants: list[tuple[int, int, Array]]
    host_calls: dict[int, HostCall]
    scalar_inputs: ScalarInputs
    arguments: ArgumentTable
    arena: int


class ProgramTemplate:
    """The template of a function's programs, from traces at the probe sizes.

    Args:
        trials: Traces at the probe sizes.
        check: Whether to verify each plan.
        ways: Ways of works that are not computed as guessed.

    Attributes:
        graph: Graph at the first probe size.
        lowered: Program at each probe size.
        template: Template of their texts.

    Raises:
        TemplateMismatchError: the programs differ in more than numbers.
        PlanError: ``ways`` names a way that a work does not have.
    """

    def __init__(self, trials: Sequence[TraceAttempt], check: bool, ways: Plan = NO_PLAN) -> None:
        self._check, self.ways = check, ways
        self._scalar_inputs = trials[0].scalar_inputs
        self.graph: Graph = trials[0].graph
        for trial in trials[1:]:
            self._compare_traces(trial)
        self._alignment = TraceAlignment([trial.graph for trial in trials], ways)
        self.lowered = [
            lower_program(trial.graph, low, varies=True)
            for trial, low in zip(trials, self._alignment.lows, strict=True)
        ]
        for lowered in self.lowered[1:]:
            self._compare_plans(lowered)
        self.template: ProgramText = align_texts([lowered.module.text for lowered in self.lowered])

    def instantiate(self, trial: TraceAttempt) -> tuple[LoweredProgram, Array]:
        """Return the program at a further size, and its list of numbers.

        Raises:
            TemplateMismatchError: the program differs in more than numbers.
        """
        self._compare_traces(trial)
        lowered = lower_program(trial.graph, self._alignment.follow(trial.graph), varies=True)
        if self._check:
            verify(lowered.plan)
        self._compare_plans(lowered)
        return lowered, self.template.numbers(lowered.module.text)

    def works_of(self, ways: Plan) -> list[Choice]:
        """Return the works of the programs by a plan, each once; nothing is compiled."""
        graph = self.graph
        low = TraceAlignment([lowered.graph for lowered in self.lowered], ways).lows[0]
        return lower_program(graph, low, varies=True).choices.listing()

    def _compare_traces(self, trial: TraceAttempt) -> None:
        if trial.scalar_inputs != self._scalar_inputs:
            raise TemplateMismatchError("it reads the values of other numbers")
        mine, others = _graph_outline(self.graph), _graph_outline(trial.graph)
        for name, outline in mine.items():
            if others[name] != outline:
                raise TemplateMismatchError(f"its {name} differ")

    def _compare_plans(self, lowered: LoweredProgram) -> None:
        first = self.lowered[0]
        if lowered.module.slots != first.module.slots or lowered.sources != first.sources:
            raise TemplateMismatchError("its results are at other positions")
        if _program_outline(lowered) != _program_outline(first):
            raise TemplateMismatchError("it calls other functions")
        if lowered.numbers.slots != first.numbers.slots:
            raise TemplateMismatchError("it has other scalar inputs")


def _program_outline(lowered: LoweredProgram) -> list[Any]:
    """Return the host calls between native segments, and the nodes of the results."""
    steps = [step.id if isinstance(step, Node) else step for step in lowered.module.steps]
    return [*steps, *[node and node.id for node in lowered.plan.outputs]]


def _graph_outline(graph: Graph) -> dict[str, Any]:
    """Return what graphs of all sizes must share beside the text of the program."""
    created = {id(variable): k for k, (variable, _) in enumerate(graph.hyperparameters)}

    def identify(variable: Any) -> tuple[str, int]:
        k = created.get(id(variable))
        return ("it", id(variable)) if k is None else ("made", k)

    return {
        "Variables": [
            (identify(s.variable), s.field, s.spec, s.update is None) for s in graph.states
        ],
        "gradients": [
            [identify(v) for v in held] for held in (graph.cleared, graph.missing_gradients)
        ],
        "settings": [make for _, make in graph.hyperparameters],
        "schedules": [id(schedule) for schedule in graph.deferred_steps],
        "arguments": [(len(spec.shape), spec.dtype) for _, spec in graph.inputs],
    }


class SizedProgram(CompiledCall):
    """A program for all sizes of its arguments.

    Args:
        template: Template of the program.
        trial: Trace at the first size.
        result: Result of an eager run, whose kinds of leaves the program's result gets.
        flat: Whether all arguments are arrays.
        sources: Source of each size.
        calls: Array of one word that counts the calls.
        threads: Number of threads; 0 for the process-wide setting.

    Raises:
        TemplateMismatchError: the program at the first size differs in more than numbers.
        NotCompilableError: a side effect of the function cannot be compiled.
    """

    def __init__(
        self,
        template: ProgramTemplate,
        trial: TraceAttempt,
        result: Any,
        flat: bool,
        sources: Sequence[SizeSource],
        calls: Array,
        threads: int,
    ) -> None:
        lowered, numbers = template.instantiate(trial)
        module = lowered.module._replace(text=template.template.text)
        assert trial.guards is not None
        text = lowered._replace(module=module)
        super().__init__(
            trial, trial.guards, result, flat, calls, threads, text=text, ways=template.ways
        )
        self._lock = self._lock or PROGRAM_LOCKS.new()
        self._template = template
        self._sources = list(sources)
        self._sized: dict[tuple[int, ...], _SizeEntry] = {}
        # The word of memory from which the code reads the address of its list of numbers.
        self._numbers_address = ctypes.c_int64.from_address(self.executable.loaded.address(SIZES))
        self._arena_bytes = int(lowered.plan.arena)
        self._constants = dict(self.executable.constants)
        self._insert_size(trial, lowered, numbers, result)

    def count(self) -> int:
        """Return the number of sizes added so far."""
        return len(self._sized)

    def has_sizes(self, sizes: tuple[int, ...]) -> bool:
        """Return whether the program can run at these sizes."""
        return sizes in self._sized

    def sizes_of(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """Return the sizes of arguments."""
        return tuple([arrays[k].shape[axis] for k, axis in self._sources])

    def add_size(self, trial: TraceAttempt, result: Any) -> None:
        """Add a further size.

        Args:
            trial: Trace at this size.
            result: Result of an eager run at any size.

        Raises:
            TemplateMismatchError: the program at this size differs in more than numbers.
            NotCompilableError: a side effect of the function cannot be compiled.
        """
        lowered, numbers = self._template.instantiate(trial)
        self._insert_size(trial, lowered, numbers, result)

    def _insert_size(
        self, trial: TraceAttempt, lowered: LoweredProgram, numbers: Array, result: Any
    ) -> None:
        shape = specialize_to_shape(trial, lowered, result)
        constants = []
        for node in lowered.plan.fused.order:
            if node.kind == "leaf" and node.detail[0] == "constant":
                slot = lowered.module.slots.get(node.detail)
                if slot is not None:
                    array = np.ascontiguousarray(node.payload)
                    own = self._constants[slot]
                    equal = own.shape == array.shape and same_bits(own, array)
                    array = own if equal else array
                    constants.append((slot, address_of(array), array))
        scalar_inputs = lowered.numbers
        scalar_inputs.cells = self.executable.numbers.cells  # their addresses are in the table
        entry = _SizeEntry(
            numbers=numbers,
            address=address_of(numbers),
            shape=shape,
            constants=constants,
            host_calls=self.executable.host_calls_of(lowered.plan, lowered.module),
            scalar_inputs=scalar_inputs,
            arguments=self.executable.argument_table(lowered.inputs, scalar_inputs),
            arena=int(lowered.plan.arena),
        )
        assert self._lock is not None
        with self._lock:
            if entry.arena > self._arena_bytes:
                size = max(entry.arena, 2 * self._arena_bytes)
                self._arena_bytes = self.executable.grow_arena(size)
            for old in list(self._sized)[: max(0, len(self._sized) + 1 - _MAX_SIZES)]:
                del self._sized[old]
            self._sized[self._sizes_in(trial)] = entry

    def _sizes_in(self, trial: TraceAttempt) -> tuple[int, ...]:
        specs = [spec for _, spec in trial.graph.inputs]
        return tuple([specs[k].shape[axis] for k, axis in self._sources])

    def works_of(self, ways: Plan) -> list[Choice]:
        """Return the works of programs of the same function by a plan, each once."""
        return self._template.works_of(ways)

    def dry_run(self, given: Sequence[Any], ways: Plan) -> DryRun:
        """Refuse: its works are those of all sizes."""
        raise SettingError(
            "a program with symbolic sizes is not run by other plans; compile the function without "
            "dynamic= for this"
        )

    def profile(self, given: Sequence[Any], runs: int) -> Profile:
        """Time the kernels, at the first size only."""
        if tuple(spec.shape for _, spec in self.executable.graph.inputs) != tuple(
            np.shape(array_of(argument)) for argument in given
        ):
            raise SettingError(
                "profile: a program with symbolic sizes is measured at its first size only; "
                "compile the function without dynamic= to measure others"
            )
        return super().profile(given, runs)

    # -------------------------------------------------------------- running

    def run(self, arrays: Sequence[Any], given: Sequence[Any] | None = None) -> Any:
        """Run a call and return its result; CACHE_MISS if nothing was executed."""
        try:
            has_sizes = self.sizes_of(arrays) in self._sized
        except (AttributeError, IndexError):
            return CACHE_MISS
        return super().run(arrays, given) if has_sizes else CACHE_MISS

    def _check_guards_and_run(
        self,
        arrays: Sequence[Any],
        given: Sequence[Any] | None,
        shape: ShapeSpecialization | None = None,
    ) -> Any:
        # The program is locked: no other thread may set the numbers of another size before it ran.
        entry = self._sized.get(self.sizes_of(arrays))
        if entry is None:
            return CACHE_MISS
        self._numbers_address.value = entry.address
        for slot, address, _ in entry.constants:
            self.executable.table[slot] = address
        self.executable.host_calls = entry.host_calls
        self.executable.use_arguments(entry.arguments)
        self.numbers = self.executable.numbers = entry.scalar_inputs
        return super()._check_guards_and_run(arrays, given, entry.shape)

    def specialization_for(self, arrays: Sequence[Any]) -> ShapeSpecialization:
        """Return the specialization for arguments' sizes; BindingError if there is none."""
        entry = self._sized.get(self.sizes_of(arrays))
        if entry is None:
            raise BindingError("a size that the program does not know")
        return entry.shape
