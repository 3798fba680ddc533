"""Control flow in programs of a device: scan, while_loop and cond run a program for each step.

Python begins the steps. It reads the condition of a ``while_loop`` before each step, and that of a
``cond`` once, and waits for it; a scan waits for nothing but the checks of its steps. The program
of a step is a CUDA graph from its second run on, as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.native_dispatch.entry import RAN
from odyssey.compiler.runtime.control_flow import (
    lift_scalar_inputs,
    refusal,
    scalar_arguments,
    titled_parts,
)
from odyssey.compiler.runtime.host_calls import all_outputs
from odyssey.devices.device import Device
from odyssey.devices.same_device import array_copy
from odyssey.graph.graph import Graph
from odyssey.graph.subgraphs import Loop

__all__ = ["DeviceLoop"]


class DeviceLoop:
    """Loop or branch over compiled subgraphs; one run at a time.

    Args:
        loop: Kind, subgraphs, carries and columns of the loop.
        device: The device.
        compile_part: Compiles a subgraph.

    Attributes:
        kind: ``scan``, ``cond`` or ``while_loop``.

    Raises:
        UnsupportedKernelError: a subgraph has no program for the device.
    """

    def __init__(self, loop: Loop, device: Device, compile_part: Callable[[Graph], Any]) -> None:
        self.kind = loop.kind
        self._loop, self._device = loop, device
        graphs = [lift_scalar_inputs(graph, loop.numbers) for graph in loop.subgraphs]
        try:
            self._parts: list[Any] = list(map(compile_part, graphs))
        except UnsupportedKernelError as error:
            reason = str(error).removeprefix("cuda: ")
            raise UnsupportedKernelError(f"cuda: in a {loop.kind}, {reason}") from None

    def programs(self) -> dict[str, Any]:
        """Return the compiled subgraphs by title."""
        return titled_parts(self._loop, self._parts)

    def run(self, *operands: Any) -> tuple[Any, ...]:
        """Run the loop and return its results in new arrays.

        Raises:
            OdysseyError: a runtime check of a step refuses its data.
        """
        backend: Any = self._device.backend
        with backend.on(self._device.index):
            made = self._loop.run(*operands, call=self._run_part, empty=backend.namespace.empty)
            # Without steps it returns its operands, whose memory the program will reuse.
            known = {id(operand) for operand in operands}
            results = []
            for array in made:
                results.append(array_copy(array, order="C") if id(array) in known else array)
                known.add(id(results[-1]))
        return tuple(results)

    def _run_part(self, k: int, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Run a subgraph and return its outputs in new arrays."""
        program = self._parts[k]
        taken = scalar_arguments(program, numbers)
        try:
            # Alive until the launches, so that no result gets the memory of a contiguous copy.
            given = program.canonical_args(arrays)
            if program.prepare_run(given, taken) != RAN:
                raise refusal()
            outs = program.allocate_outputs()
            program.place_outputs(outs)
            program.begin_run()
            if program.run_middle_steps() != RAN or program.run_last_step() != RAN:
                raise refusal()
            return all_outputs(program, outs)
        finally:
            program.end_run()
