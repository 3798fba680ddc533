"""Launcher of CUDA programs on host memory: kernels by threads of Python, products by NumPy.

The calls of a run are functions of Python, in which a signal handler could raise. So all of them
run in a thread of their own, and the thread of the run waits for it by a call of C.
"""

from __future__ import annotations

import ctypes
import weakref

# A function of C, in which no signal handler runs; ``threading.Thread.start`` is one of Python.
from _thread import start_new_thread
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from odyssey.compiler.cuda.cublas import GemmCall, emulate
from odyssey.compiler.cuda.host_execution import HostKernels
from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CudaProgram, Launch
from odyssey.devices.commit import Plan, commit
from odyssey.errors import DeviceError
from odyssey.floating_point_errors import ignore_fp_errors

__all__ = ["HostLauncher"]

# Small, since threads of Python are slow to wait for one another; large enough for each branch.
_SHAPE = LaunchShape(threads=64, blocks=3)


class HostLauncher(Launcher):
    """Launcher whose device is the memory of this process.

    Args:
        backward: Whether blocks, and threads of a block, run from the last to the first.
        has_graphs: Whether recorded calls are run as graphs are, with the addresses that cells held
            when they were recorded.
    """

    shape = _SHAPE

    def __init__(self, backward: bool = False, has_graphs: bool = False) -> None:
        self._backward = backward
        self.has_graphs = has_graphs
        self._kernels: HostKernels
        self._done = _WaitableFlag()

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

    def run_calls(
        self, calls: Sequence[Call], names: Sequence[str], failed: list[tuple[Any, str]]
    ) -> Plan:
        """Return what makes the calls in another thread, and waits for it."""
        done = self._done
        return [(start_new_thread, _run_calls, (calls, names, failed, done)), done.wait_call]

    def check_statuses(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        """Raise the error of a call: one that it raised, or that it returned for a status."""
        for answer, name in zip(answers, names, strict=True):
            if type(answer) is DeviceError:
                raise DeviceError(f"cuda: {name}: {answer}") from answer
            if isinstance(answer, BaseException):
                raise answer

    def wait(self, who: str) -> None:
        """Do nothing: each call has ended when it returns."""


class _WaitableFlag:
    """A flag that a thread sets, and another one waits for without running signal handlers."""

    def __init__(self) -> None:
        self._lock = ctypes.c_void_p(_THREADS.PyThread_allocate_lock())
        self.wait_call: Call = _THREADS.PyThread_acquire_lock, self._lock, 1
        commit([self.wait_call])
        weakref.finalize(self, _THREADS.PyThread_free_lock, self._lock).atexit = False

    def set(self) -> None:
        """Let the waiting thread go on."""
        _THREADS.PyThread_release_lock(self._lock)


# Without the interpreter's lock, which the other thread needs.
_THREADS = ctypes.CDLL(None, handle=ctypes.pythonapi._handle)
_THREADS.PyThread_allocate_lock.restype = ctypes.c_void_p


@ignore_fp_errors()  # as on a device
def _run_calls(
    calls: Sequence[Call], names: Sequence[str], failed: list[tuple[Any, str]], done: _WaitableFlag
) -> None:
    """Make the calls of a run, up to the first that fails."""
    try:
        for (function, *args), name in zip(calls, names, strict=True):
            answer = function(*args)
            if isinstance(answer, DeviceError):
                failed.append((answer, name))
                break
    except BaseException as error:
        failed.append((error, name))
    finally:
        done.set()


def _launch(kernels: HostKernels, name: str, grid: int, block: int, cells: Sequence[Cell]) -> None:
    kernels.launch(name, grid, block, [cell.value or 0 for cell in cells])


def _multiply(product: GemmCall, first: Cell, second: Cell, out: Cell) -> None:
    emulate(product, first.value or 0, second.value or 0, out.value or 0)


def _as_recorded(argument: Any) -> Any:
    """Return an argument of a call with the addresses that its cells hold now."""
    if type(argument) is Cell:
        return Cell(argument.value)
    if type(argument) is tuple:
        return tuple(map(_as_recorded, argument))
    return argument
