"""Execution of CUDA kernels on the CPU: the same text, with threads of Python.

Tests and the stand-in for CuPy run programs by it where there is no device. A kernel whose threads
never wait for one another is a loop over all of them. Otherwise each thread of a block is a thread
of Python. One of them runs at a time, until it waits at a shuffle or a barrier; then the next one
goes on. So the order of threads is known, and it can be reversed: results must have the same bits.
Threads that wait for others which have ended, or which wait elsewhere, are an error here; on a
device they would hang.

What this cannot see are races: two threads at one time, and the order of writes to memory.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from odyssey.compiler.cuda.device_function import WARP
from odyssey.compiler.cuda.program import CudaKernel, CudaProgram
from odyssey.compiler.machine.jit import Loaded, load
from odyssey.errors import OdysseyError

__all__ = ["HostKernels"]

_STACK_BYTES = 1 << 18

# The scheduler of a thread, and its number in the block.
_current = threading.local()


class _Scheduler:
    """Threads of one block, of which one runs at a time.

    Args:
        width: Number of threads.
        backward: Whether the last thread runs first.
    """

    def __init__(self, width: int, backward: bool) -> None:
        self._order = range(width)[::-1] if backward else range(width)
        self._turns = [threading.Lock() for _ in range(width)]
        for turn in self._turns:
            turn.acquire()
        # By thread, which one runs after it, and before it.
        self._next = dict(zip(self._order, [*self._order[1:], self._order[0]], strict=True))
        self._previous = {following: lane for lane, following in self._next.items()}
        self._width = width
        # By thread, how many shuffles and barriers it has come to; with the sums of each warp, and
        # of the block. No thread is ahead of others by more than one.
        self._shuffles = [0] * width
        self._barriers = [0] * width
        self._warp_shuffles = [0] * -(-width // WARP)
        self._block_barriers = [0]
        # By warp and parity of the shuffle, what its threads have given.
        self._slots: list[list[Any]] = [[0] * width, [0] * width]
        self._progress = 0
        self.failure = ""

    def begin(self) -> None:
        """Let the first thread run."""
        self._turns[self._order[0]].release()

    def enter(self, lane: int) -> bool:
        """Wait for the first turn of a thread; return whether it shall run."""
        self._turns[lane].acquire()
        return not self.failure

    def abandon(self, why: str) -> None:
        """End all threads, none of which has had a turn."""
        self.failure = why
        for turn in self._turns:
            turn.release()

    def end_thread(self, lane: int) -> None:
        """End a thread."""
        self._progress += 1
        following, before = self._next.pop(lane), self._previous.pop(lane)
        if following != lane:
            self._next[before], self._previous[following] = following, before
            self._turns[following].release()

    def _wait(self, lane: int, sums: list[int], at: int, wanted: int, what: str) -> None:
        """Wait until all threads of a warp, or of the block, have come as far as this one."""
        seen, idle = -1, 0
        while sums[at] < wanted and not self.failure:
            idle = idle + 1 if seen == self._progress else 0
            seen = self._progress
            if idle > 1:  # all others had a turn, and none went on
                self.failure = f"thread {lane} waits at a {what} for threads that do not come"
            following = self._next[lane]
            if following != lane:
                self._turns[following].release()
                self._turns[lane].acquire()

    def shuffle(self, lane: int, x: Any, distance: int) -> Any:
        """Exchange a value with another thread of the warp."""
        slots, warp = self._slots[self._shuffles[lane] & 1], lane // WARP
        slots[lane] = x
        self._shuffles[lane] += 1
        self._warp_shuffles[warp] += 1
        self._progress += 1
        threads = min(WARP, self._width - warp * WARP)
        self._wait(lane, self._warp_shuffles, warp, self._shuffles[lane] * threads, "shuffle")
        return slots[lane ^ distance]

    def barrier(self, lane: int) -> None:
        """Wait for all threads of the block."""
        self._barriers[lane] += 1
        self._block_barriers[0] += 1
        self._progress += 1
        self._wait(lane, self._block_barriers, 0, self._barriers[lane] * self._width, "barrier")


def _shuffle(x: Any, distance: int) -> Any:
    return _current.scheduler.shuffle(_current.lane, x, distance)


def _barrier() -> None:
    _current.scheduler.barrier(_current.lane)


# CFUNCTYPE objects must live as long as the programs that call them.
_CALLBACKS = {
    "device_shuffle_f32": ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float, ctypes.c_int32)(
        _shuffle
    ),
    "device_shuffle_i32": ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(
        _shuffle
    ),
    "device_barrier": ctypes.CFUNCTYPE(None)(_barrier),
}
_SYMBOLS = {
    name: int(ctypes.cast(call, ctypes.c_void_p).value or 0) for name, call in _CALLBACKS.items()
}


class HostKernels:
    """The kernels of a program as machine code of the CPU.

    Args:
        program: The program.
        backward: Whether blocks, and threads of a block, run from the last to the first.
    """

    def __init__(self, program: CudaProgram, backward: bool = False) -> None:
        self._loaded: Loaded = load(program.host_text, _SYMBOLS)
        self._kernels: dict[str, CudaKernel] = {k.name: k for k in program.kernels}
        self._backward = backward

    def launch(self, name: str, grid: int, block: int, addresses: Sequence[int]) -> None:
        """Run a kernel, and wait for it.

        Args:
            name: Name of the kernel.
            grid: Number of blocks.
            block: Threads of a block.
            addresses: Address for each of its parameters, in the memory of this process.

        Raises:
            OdysseyError: its threads wait for one another in vain.
        """
        kernel = self._kernels[name]
        assert len(addresses) == len(kernel.parameters), f"{name}: {len(addresses)} addresses"
        pointers = [ctypes.c_void_p] * len(addresses)
        if not kernel.shared_bytes:
            kind = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64, ctypes.c_bool)
            kind(self._loaded.address(f"{name}.grid"))(*addresses, block, grid, self._backward)
            return
        kind = ctypes.CFUNCTYPE(None, *pointers, *[ctypes.c_int64] * 4)
        function = kind(self._loaded.address(name))
        self._run_blocks(function, grid, block, addresses)

    def _run_blocks(
        self, function: Callable[..., None], grid: int, block: int, addresses: Sequence[int]
    ) -> None:
        scheduler = _Scheduler(block, self._backward)
        blocks = range(grid)[::-1] if self._backward else range(grid)

        def run(lane: int) -> None:
            _current.scheduler, _current.lane = scheduler, lane
            if not scheduler.enter(lane):
                return
            try:
                for number in blocks:
                    function(*addresses, lane, number, block, grid)
                    scheduler.barrier(lane)  # the next block has the same shared memory
            finally:
                scheduler.end_thread(lane)

        before = 0
        with suppress(ValueError):  # a system may refuse the size
            before = threading.stack_size(_STACK_BYTES)
        threads = [threading.Thread(target=run, args=(lane,)) for lane in range(block)]
        try:
            for thread in threads:
                thread.start()
        except BaseException:
            scheduler.abandon("they could not all be started")
            raise
        finally:
            threading.stack_size(before)
        scheduler.begin()
        for thread in threads:
            thread.join()
        if scheduler.failure:
            raise OdysseyError(f"cuda: the threads of a kernel diverge: {scheduler.failure}")
