"""Launchers: what runs the steps of a CUDA program on one device, in one stream.

A launcher turns each step into a call of C, a function with its arguments. ``execution`` makes all
calls of a run within one call of C, so that no signal handler comes between them; see
``devices.commit``. Addresses are cells of a table of the program, which the calls read when they
are made: a buffer may lie elsewhere at each run.

``driver`` launches on a device by the CUDA driver. ``host_launcher`` runs the same steps on host
memory, for tests and for the stand-in for CuPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import islice, starmap
from operator import call, itemgetter
from typing import Any

from odyssey.compiler.cuda.cublas import GemmCall
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CudaProgram, Launch
from odyssey.devices.commit import Plan

__all__ = ["Call", "Cell", "Launcher"]

Call = tuple[Any, ...]
"""A function of C and its arguments; it returns 0 or None, or the status of an error."""

Cell = ctypes.c_void_p
"""An address in the table of a program, at ``ctypes.addressof(cell)``. Its value is read when a
call is made."""


class Launcher:
    """Maker of the calls that run a program; one for each program.

    Attributes:
        shape: How loops are shared among threads; ``compile_kernels`` takes it.
        has_graphs: Whether ``graph_call`` works.
    """

    shape: LaunchShape
    has_graphs: bool = False

    def load(self, program: CudaProgram) -> dict[str, float]:
        """Load the kernels of a program, and return seconds by stage of the compilation.

        Raises:
            DeviceError: the device refuses them.
        """
        raise NotImplementedError

    def launch_call(self, launch: Launch, cells: Sequence[Cell]) -> Call:
        """Return the call that launches a kernel.

        Args:
            launch: The kernel with its grid and block.
            cells: The address for each of its parameters.
        """
        raise NotImplementedError

    def product_call(self, product: GemmCall, first: Cell, second: Cell, out: Cell) -> Call:
        """Return the call of a product; the cells point to the first elements."""
        raise NotImplementedError

    def copy_call(self, target: Cell, source: Cell, count: int) -> Call:
        """Return the call that copies bytes within the device."""
        raise NotImplementedError

    def zero_call(self, target: Cell, count: int) -> Call:
        """Return the call that sets bytes to 0."""
        raise NotImplementedError

    def upload_call(self, target: Cell, source: int, count: int) -> Call:
        """Return the call that copies bytes from an address of the host.

        It has read all bytes when it returns: the memory may be written to again.
        """
        raise NotImplementedError

    def download_call(self, target: int, source: Cell, count: int) -> Call:
        """Return the call that copies bytes to an address of the host, and waits for them.

        For no bytes it waits for the stream alone.
        """
        raise NotImplementedError

    def graph_call(self, calls: Sequence[Call]) -> Call:
        """Return one call that makes such calls again, as a CUDA graph.

        The calls are recorded, and not made. The graph has the addresses that their cells hold now,
        and is for the stream of the last ``begin_run``, see ``keeps_stream``.

        Raises:
            DeviceError: the device cannot record them.
        """
        raise NotImplementedError

    def keeps_stream(self) -> bool:
        """Return whether the next run is in the stream of the run before."""
        return True

    def run_calls(
        self, calls: Sequence[Call], names: Sequence[str], failed: list[tuple[Any, str]]
    ) -> Plan:
        """Return what makes the calls of a run, up to the first that fails, as calls of C.

        Args:
            calls: The calls.
            names: For each call, the kernel or the step.
            failed: It gets the status of a call that fails, with its name.
        """
        statuses = zip(starmap(call, calls), names, strict=True)
        return [(failed.extend, islice(filter(itemgetter(0), statuses), 1))]

    def begin_run(self) -> None:
        """Order the next calls behind the work that eager ops have queued on the device.

        A run is made within ``Backend.on``.

        Raises:
            DeviceError: the device failed.
        """

    def check_statuses(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        """Raise DeviceError if a call has failed.

        Args:
            answers: What calls returned.
            names: For each call, the kernel or the step, for the message.
        """
        raise NotImplementedError

    def wait(self, who: str) -> None:
        """Wait until the device has done all that it was given.

        Args:
            who: What was given last, for the message.

        Raises:
            DeviceError: the device failed.
        """
        raise NotImplementedError
