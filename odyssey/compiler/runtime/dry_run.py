"""Dry runs: a program of a graph by a plan, on copies of the states, to be timed and compared.

Called by ``profile``, and by ``compiled_call`` for the tuner. After it is made, a dry run neither
reads nor writes a Variable, a gradient or a generator; it reads the arrays of its arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.native_dispatch.entry import RAN
from odyssey.compiler.runtime.executable import Executable
from odyssey.compiler.schedule.buffer_assignment import ALIGNMENT
from odyssey.compiler.state_layout import BindingError
from odyssey.compiler.ways.alternatives import Choice
from odyssey.compiler.ways.plans import NO_PLAN, Plan
from odyssey.devices.ownership import address_of, memory_span
from odyssey.devices.write_guard import wait_for_programs, write_lock
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph
from odyssey.spec import Array

__all__ = ["DryRun"]


class _StateCopy(NamedTuple):
    """A copy of a state's memory.

    Attributes:
        slot: Slot of the state in the table.
        memory: The memory that the program writes.
        start: Address in it of the first byte of the state.
        before: The bytes of a written state when the dry run was made.
        array: The state in that memory.
    """

    slot: int
    memory: Array
    start: int
    before: bytes
    array: Array


class DryRun:
    """A program of a graph, on copies of its states.

    Args:
        graph: Graph of the program.
        arrays: Arguments and accumulated gradients.
        numbers: Completed scalar inputs.
        threads: Number of threads; 0 for the process-wide setting.
        budget: Bytes that the plan aims to stay within, by rematerialization.
        ways: Ways of works that are not computed as guessed.
        clocks: Whether to put a clock around each kernel.

    Attributes:
        executable: The machine code.

    Raises:
        BindingError: an argument has another spec.
        PlanError: ``ways`` names a way that a work does not have.
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Sequence[Any],
        numbers: Sequence[Any] = (),
        threads: int = 0,
        budget: int | None = None,
        ways: Plan = NO_PLAN,
        clocks: bool = False,
    ) -> None:
        self.executable = executable = Executable(graph, clocks, threads, budget, ways=ways)
        self._arguments = executable.canonical_args(arrays)
        if not executable.numbers.store(executable.numbers.for_entry_point(numbers) or ()):
            raise BindingError(
                "a number is of another type, or out of range for the dtype of the other operand"
            )
        with write_lock():  # no state may be half written
            wait_for_programs()
            self._copies = [_copy_state(*one) for one in executable.state_slots()]
        for copy in self._copies:
            executable.table[copy.slot] = copy.start
        self._outs = [np.empty(shape, dtype) for shape, dtype in executable.outputs]
        executable.place_arguments([*self._arguments, *self._outs])

    def run(self) -> None:
        """Run the program once; states go on from where the last run left them.

        Raises:
            OdysseyError: a check of the program refuses the values of the arguments.
        """
        self.executable.host_results, self.executable.batched_results = {}, {}
        for step in self.executable.module.steps:
            if self.executable.run_step(step) != RAN:
                raise OdysseyError(
                    "profile: the program refuses the values of the arguments; call the function "
                    "with them to see why"
                )

    def reset(self) -> None:
        """Set the states to what they were when the dry run was made."""
        for copy in self._copies:
            ctypes.memmove(copy.start, copy.before, len(copy.before))

    def results(self) -> list[Array]:
        """Return copies of the results and of the written states, as the last run left them."""
        executable, written = self.executable, iter(self._outs)
        outputs = [node for node in executable.plan.outputs if node is not None]
        found = [
            executable.host_results[node.id] if node.kind == "result" else next(written)
            for node in outputs
        ]
        found += [copy.array for copy in self._copies if copy.before]
        return [np.array(array) for array in found]

    def works(self) -> list[Choice]:
        """Return the works of the program, each once."""
        return self.executable.works()


def _copy_state(slot: int, array: Array, is_written: bool) -> _StateCopy:
    start, end = memory_span(array)
    memory = np.empty(end - start + 2 * ALIGNMENT, np.uint8)
    first = address_of(memory)
    first += (start - first) % ALIGNMENT  # same offset within a cache line, which affects speed
    ctypes.memmove(first, start, end - start)
    before = ctypes.string_at(start, end - start) if is_written else b""
    offset = first - address_of(memory) + address_of(array) - start
    copy = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    return _StateCopy(slot, memory, first, before, copy)
