"""Runs of CUDA programs by a launcher, on the memory of a ``HostRun``."""

from itertools import starmap
from operator import call

import numpy as np

import odyssey as od
from odyssey.compiler.cuda.launcher import Cell
from odyssey.compiler.cuda.lower_for_device import GemmStep, lower_for_device
from odyssey.compiler.cuda.program import CheckStep, CopyStep, Launch, ProductStep, ZeroStep
from support.cuda_programs import SMALL, HostRun

__all__ = ["LaunchedRun", "lowered_for_device"]


def lowered_for_device(fn, *args):
    """The program of a function for a device, in small blocks, and the arrays of its states."""
    graph = od.compile(fn).lower(*args).graph
    states = {k: s.variable.numpy() for k, s in enumerate(graph.states) if s.field == "data"}
    return lower_for_device(graph, shape=SMALL), states


class LaunchedRun(HostRun):
    """A program whose steps are calls of a launcher.

    Args:
        lowered: The program.
        launcher: The launcher, which has loaded it.
        inputs: Its inputs.
        states: By number of a state, its array.
        allow: Called with each array that the program reads or writes.

    Attributes:
        calls: The calls, in order.
        names: For each call, the kernel or the step.
        cells: By address in the program, the cell that the calls read.
        truths: For each check, its byte after a run.
    """

    def __init__(self, lowered, launcher, inputs, states, allow=lambda array: None):
        super().__init__(lowered.program, inputs, dict(states), False)
        for array in self._memory.values():
            allow(array)
        self.launcher, self.cells = launcher, {}
        self.calls, self.names, self.checks = [], [], []
        for step in lowered.program.steps:
            self._add(step, lowered)

    def cell(self, address):
        """The cell with an address."""
        if address not in self.cells:
            self.cells[address] = Cell(self._bytes(address).ctypes.data)
        return self.cells[address]

    def _add(self, step, lowered):
        launcher, cell = self.launcher, self.cell
        if isinstance(step, Launch):
            made = launcher.launch_call(step, [cell(a) for a in step.arguments])
            self._append(step.kernel, made)
        elif isinstance(step, ProductStep):
            for part in lowered.steps_of_product(step.node):
                self._add(part, lowered)
        elif isinstance(step, GemmStep):
            self._append("matmul", launcher.product_call(step.call, *map(cell, step[1:])))
        elif isinstance(step, CopyStep):
            made = launcher.copy_call(cell(step.target), cell(step.source), step.bytes)
            self._append("copy", made)
        elif isinstance(step, ZeroStep):
            self._append("zero", launcher.zero_call(cell(step.target), step.bytes))
        elif isinstance(step, CheckStep):
            self.checks.append(step.address)

    def _append(self, name, made):
        self.calls.append(made)
        self.names.append(name)

    def run(self):
        """Run all steps, read the checks, and wait."""
        self.make(self.calls, self.names)
        self.truths = []
        for address in self.checks:
            byte = np.full(1, 7, np.uint8)
            download = self.launcher.download_call(byte.ctypes.data, self.cell(address), 1)
            self.make([download], ["check"])
            self.truths.append(byte[0])
        self.launcher.wait("run")

    def make(self, calls, names=None):
        """Make calls as a run."""
        self.launcher.begin_run()
        answers = list(starmap(call, calls))
        self.launcher.check_statuses(answers, names or ["a call"] * len(answers))

    def move(self):
        """Let all memory lie elsewhere, with inputs and states copied and garbage otherwise.

        Returns:
            The arrays.
        """
        for key, array in list(self._memory.items()):
            copied = key[0] in ("input", "state", "constant")
            self._memory[key] = array.copy() if copied else np.full_like(array, 0xA5)
            if key[0] == "state":
                self.states[key[1]] = self._memory[key]
        for address, cell in self.cells.items():
            cell.value = self._bytes(address).ctypes.data
        return list(self._memory.values())
