"""A program for all sizes: one machine code, and what each size needs beside it.

A size is taken up by tracing the function for it, and by writing its program down, which takes
some milliseconds; that is not compiled, but must be the text that was, up to its numbers.
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
from odyssey.devices.ownership import address_of, same_bits
from odyssey.errors import SettingError
from odyssey.graph.graph import Graph
from odyssey.spec import Array
from odyssey.table.value import array_of

__all__ = ["ProgramTemplate", "SizedProgram"]

# Of how many sizes a program keeps the numbers.
_MAX_SIZES = 4096


class _SizeEntry(NamedTuple):
    """Data of a program for one size.

    Attributes:
        numbers: What its code reads.
        at: Where they lie.
        shape: Of arguments and results.
        constants: Arrays of the function's own: place in the table, address, and they.
        calling: By number of a node, what calls its row.
        taken: What it is given of Python's numbers.
        given: What the entry looks for of arguments.
        arena: Bytes.
    """

    numbers: Array
    at: int
    shape: ShapeSpecialization
    constants: list[tuple[int, int, Array]]
    calling: dict[int, HostCall]
    taken: ScalarInputs
    given: ArgumentTable
    arena: int


class ProgramTemplate:
    """The text of a function's programs, as several trials have it.

    Args:
        trials: At several sizes.
        check: Whether to look at each plan once more.

    Raises:
        TemplateMismatchError: they differ in more than numbers.
    """

    def __init__(self, trials: Sequence[TraceAttempt], check: bool) -> None:
        self._check = check
        self._free = trials[0].scalar_inputs
        self.graph: Graph = trials[0].graph
        for trial in trials[1:]:
            self._compare(trial)
        self._lead = TraceAlignment([trial.graph for trial in trials])
        self.written = [
            lower_program(trial.graph, low, varies=True)
            for trial, low in zip(trials, self._lead.lows, strict=True)
        ]
        for written in self.written[1:]:
            self._compare_plans(written)
        self.template: ProgramText = align_texts([written.module.text for written in self.written])

    def write_down(self, trial: TraceAttempt) -> tuple[LoweredProgram, Array]:
        """The program of a trial at a further size, and the numbers with which it is this one.

        Raises:
            TemplateMismatchError: it is another program.
        """
        self._compare(trial)
        written = lower_program(trial.graph, self._lead.follow(trial.graph), varies=True)
        if self._check:
            verify(written.plan)
        self._compare_plans(written)
        return written, self.template.numbers(written.module.text)

    def _compare(self, trial: TraceAttempt) -> None:
        if trial.scalar_inputs != self._free:
            raise TemplateMismatchError("it asks of other numbers what they are")
        mine, others = _graph_outline(self.graph), _graph_outline(trial.graph)
        for name, wanted in mine.items():
            if others[name] != wanted:
                raise TemplateMismatchError(f"its {name} are others")

    def _compare_plans(self, written: LoweredProgram) -> None:
        first = self.written[0]
        if written.module.slots != first.module.slots or written.sources != first.sources:
            raise TemplateMismatchError("its results lie elsewhere")
        if _program_outline(written) != _program_outline(first):
            raise TemplateMismatchError("it calls others")
        if written.numbers.slots != first.numbers.slots:
            raise TemplateMismatchError("it takes other numbers")


def _program_outline(written: LoweredProgram) -> list[Any]:
    """Return the host calls between native segments, and the nodes of the results."""
    steps = [one.id if isinstance(one, Node) else one for one in written.module.steps]
    return [*steps, *[node and node.id for node in written.plan.outputs]]


def _graph_outline(graph: Graph) -> dict[str, Any]:
    """Return what graphs of all sizes must share beside the text of the program."""
    made = {id(variable): k for k, (variable, _) in enumerate(graph.hyperparameters)}

    def known(variable: Any) -> tuple[str, int]:
        k = made.get(id(variable))
        return ("it", id(variable)) if k is None else ("made", k)

    return {
        "Variables": [(known(s.variable), s.field, s.spec, s.update is None) for s in graph.states],
        "gradients": [
            [known(v) for v in held] for held in (graph.cleared, graph.missing_gradients)
        ],
        "settings": [make for _, make in graph.hyperparameters],
        "schedules": [id(schedule) for schedule in graph.deferred_steps],
        "arguments": [(len(spec.shape), spec.dtype) for _, spec in graph.inputs],
    }


class SizedProgram(CompiledCall):
    """A program for all sizes of its arguments.

    Args:
        pattern: Its text.
        trial: For the first of these sizes.
        result: What a run returned, of which kinds are taken over.
        bare: Whether all arguments are arrays.
        spots: Where the sizes are to be read, one for each.
        calls: One word, which counts calls.
        threads: How many it has; 0 for what is said of all.

    Raises:
        TemplateMismatchError: the first size is another program.
        NotCompilableError: no program can do what the function does.
    """

    def __init__(
        self,
        pattern: ProgramTemplate,
        trial: TraceAttempt,
        result: Any,
        bare: bool,
        spots: Sequence[SizeSource],
        calls: Array,
        threads: int,
    ) -> None:
        written, numbers = pattern.write_down(trial)
        module = written.module._replace(text=pattern.template.text)
        assert trial.guards is not None
        text = written._replace(module=module)
        super().__init__(trial, trial.guards, result, bare, calls, threads, text=text)
        self._lock = self._lock or PROGRAM_LOCKS.new()
        self._pattern = pattern
        self._spots = list(spots)
        self._sized: dict[tuple[int, ...], _SizeEntry] = {}
        place = self.executable.loaded.address(SIZES)
        self._place = ctypes.c_int64.from_address(place)
        self._arena_bytes = int(written.plan.arena)
        self._own = dict(self.executable.constants)
        self._enter(trial, written, numbers, result)

    def count(self) -> int:
        """How many sizes are known."""
        return len(self._sized)

    def knows(self, sizes: tuple[int, ...]) -> bool:
        """Whether it can run at sizes."""
        return sizes in self._sized

    def sizes_of(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """Those of arguments."""
        return tuple([arrays[k].shape[axis] for k, axis in self._spots])

    def take_up(self, trial: TraceAttempt, result: Any) -> None:
        """Know a further size.

        Args:
            trial: For arguments of it.
            result: What a run for any size returned.

        Raises:
            TemplateMismatchError: its program is another.
            NotCompilableError: no program can do what the function does there.
        """
        written, numbers = self._pattern.write_down(trial)
        self._enter(trial, written, numbers, result)

    def _enter(
        self, trial: TraceAttempt, written: LoweredProgram, numbers: Array, result: Any
    ) -> None:
        shape = specialize_to_shape(trial, written, result)
        constants = []
        for node in written.plan.fused.order:
            if node.kind == "leaf" and node.detail[0] == "constant":
                slot = written.module.slots.get(node.detail)
                if slot is not None:
                    array = np.ascontiguousarray(node.payload)
                    own = self._own[slot]
                    alike = own.shape == array.shape and same_bits(own, array)
                    array = own if alike else array
                    constants.append((slot, address_of(array), array))
        calling = self.executable.host_calls_of(written.plan, written.module)
        arena = int(written.plan.arena)
        taken = written.numbers
        taken.cells = self.executable.numbers.cells  # which the code knows
        given = self.executable.argument_table(written.inputs, taken)
        found = _SizeEntry(
            numbers, address_of(numbers), shape, constants, calling, taken, given, arena
        )
        assert self._lock is not None
        with self._lock:
            if found.arena > self._arena_bytes:
                self._arena_bytes = self.executable.grow_arena(
                    max(found.arena, 2 * self._arena_bytes)
                )
            for old in list(self._sized)[: max(0, len(self._sized) + 1 - _MAX_SIZES)]:
                del self._sized[old]
            self._sized[self._sizes_in(trial)] = found

    def _sizes_in(self, trial: TraceAttempt) -> tuple[int, ...]:
        specs = [spec for _, spec in trial.graph.inputs]
        return tuple([specs[k].shape[axis] for k, axis in self._spots])

    def profile(self, given: Sequence[Any], runs: int) -> Profile:
        """Time the kernels, at the first size only."""
        if tuple(spec.shape for _, spec in self.executable.graph.inputs) != tuple(
            np.shape(array_of(one)) for one in given
        ):
            raise SettingError(
                "profile: a program for all sizes is measured at the size that came first alone; "
                "measure others by the function compiled without dynamic"
            )
        return super().profile(given, runs)

    # -------------------------------------------------------------- running

    def run(self, arrays: Sequence[Any]) -> Any:
        """The result of a call; CACHE_MISS where nothing was done."""
        try:
            known = self.sizes_of(arrays) in self._sized
        except (AttributeError, IndexError):
            return CACHE_MISS
        return super().run(arrays) if known else CACHE_MISS

    def _check_guards_and_run(
        self, arrays: Sequence[Any], shape: ShapeSpecialization | None = None
    ) -> Any:
        # Until it has run, no other thread may set other numbers: the program is locked.
        sized = self._sized.get(self.sizes_of(arrays))
        if sized is None:
            return CACHE_MISS
        self._place.value = sized.at
        for slot, at, _ in sized.constants:
            self.executable.table[slot] = at
        self.executable.host_calls = sized.calling
        self.executable.use_arguments(sized.given)
        self.numbers = self.executable.numbers = sized.taken
        return super()._check_guards_and_run(arrays, sized.shape)

    def specialization_for(self, arrays: Sequence[Any]) -> ShapeSpecialization:
        """Return the specialization for arguments' sizes; BindingError if there is none."""
        sized = self._sized.get(self.sizes_of(arrays))
        if sized is None:
            raise BindingError("a size that the program does not know")
        return sized.shape
