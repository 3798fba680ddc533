"""Launcher of CUDA programs on host memory: kernels by threads of Python, products by NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from odyssey.compiler.cuda.cublas import GemmCall, emulate
from odyssey.compiler.cuda.host_execution import HostKernels
from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CudaProgram, Launch
from odyssey.devices.commit import commit
from odyssey.errors import DeviceError

__all__ = ["HostLauncher"]

# Few blocks of two warps, which take all ways: Python's threads wait long for one another.
_SHAPE = LaunchShape(threads=64, blocks=3)


class HostLauncher(Launcher):
    """Launcher whose device is the memory of this process.

    Args:
        backward: Whether blocks, and threads of a block, run from the last to the first.
        has_graphs: Whether recorded calls are run as graphs are, with the addresses of then.
    """

    shape = _SHAPE

    def __init__(self, backward: bool = False, has_graphs: bool = False) -> None:
        self._backward = backward
        self.has_graphs = has_graphs
        self._kernels: HostKernels

    def load(self, program: CudaProgram) -> dict[str, float]:
        """Compile the kernels for the CPU."""
        begin = perf_counter()
        self._kernels = HostKernels(program, self._backward)
        return {"load": perf_counter() - begin}

    def launch_call(self, launch: Launch, cells: Sequence[Cell]) -> Call:
        """Return a call of ``HostKernels.launch``."""
        return _launch, self._kernels, launch.kernel, launch.grid, launch.block, tuple(cells)

    def product_call(self, product: GemmCall, first: Cell, second: Cell, out: Cell) -> Call:
        """Return a call of ``cublas.emulate``."""
        return _multiply, product, first, second, out

    def copy_call(self, target: Cell, source: Cell, count: int) -> Call:
        """Return a call of ``memmove``."""
        return ctypes.memmove, target, source, count

    def zero_call(self, target: Cell, count: int) -> Call:
        """Return a call of ``memset``."""
        return ctypes.memset, target, 0, count

    def upload_call(self, target: Cell, source: int, count: int) -> Call:
        """Return a call of ``memmove``."""
        return ctypes.memmove, target, source, count

    def download_call(self, target: int, source: Cell, count: int) -> Call:
        """Return a call of ``memmove``."""
        return ctypes.memmove, target, source, count

    def graph_call(self, calls: Sequence[Call]) -> Call:
        """Return a call that makes all calls, with the addresses that their cells hold now."""
        return commit, [tuple(map(_as_recorded, call)) for call in calls]

    def check_statuses(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        """Raise DeviceError for a status that is not 0; calls on host memory raise at once."""
        for answer, name in zip(answers, names, strict=True):
            if type(answer) is DeviceError:
                raise DeviceError(f"cuda: {name}: {answer}")

    def wait(self, who: str) -> None:
        """Do nothing: each call has ended when it returns."""


def _launch(kernels: HostKernels, name: str, grid: int, block: int, cells: Sequence[Cell]) -> None:
    kernels.launch(name, grid, block, [cell.value or 0 for cell in cells])


def _multiply(product: GemmCall, first: Cell, second: Cell, out: Cell) -> None:
    emulate(product, first.value or 0, second.value or 0, out.value or 0)


def _as_recorded(argument: Any) -> Any:
    """Return an argument of a call with the addresses of now."""
    if type(argument) is Cell:
        return Cell(argument.value)
    if type(argument) is tuple:
        return tuple(map(_as_recorded, argument))
    return argument
