"""Peaks of memory: of one call, and of steps in a process of their own.

The base of steps is what is resident when everything that a step loads was loaded by a first run of
it, and freed memory was given back. Blocks from 64 kB on get pages of their own, which go back when
they are freed: so the high-water mark counts arrays and not the gaps between them. The C library
would rather use a gap of its heap that is large enough, and imports leave such gaps, more or fewer
in each process: they are filled while steps are measured.

Linux counts pages on each processor, and adds a count to the total from 32 pages on: a peak could
miss 31 pages of each. So steps are measured on one processor, and the pages that the others counted
are added before. Steps run again with 4, 8, ... 28 pages more, which are taken off their peaks: one
of them misses 3 pages at most, and no peak is too high.
"""

import ctypes
import gc
import mmap
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from harness.machine import PeakMemory, resident_bytes

OWN_PAGES = 64 << 10
TABLE_BYTES = 2 << 20
"""What one page table maps: Linux counts what is freed table by table."""

BATCH_PAGES = 32
"""So many pages Linux counts on a processor before it adds them to the total of a process."""

WARM = 3
"""Steps until everything is loaded: an optimizer's first ones take other paths."""

_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1  # of glibc's malloc.h


def peak_bytes(call: Callable[[], Any]) -> float:
    """Return the highest resident memory during a call, above that before it.

    Memory that was freed and is kept for later, as by a compiler, is given back to the system
    first: the call would use it, and its peak would look smaller.

    Raises:
        RuntimeError: This system does not tell a process its peak memory.
    """
    give_memory_back()
    memory = PeakMemory()
    result = call()
    peak = memory.above_base()
    del result
    if peak is None:
        raise RuntimeError("peak memory: this system does not tell a process its own")
    return float(peak)


def peak_and_least_times(step: Callable[[], Any], steps: int) -> dict[str, float]:
    """Return the peak of a first step, and the least wall and processor time of some more."""
    peak = peak_bytes(step)
    walls, cpus = [], []
    for _ in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"peak_bytes": peak, "seconds": min(walls), "cpu_seconds": min(cpus)}


def give_blocks_own_pages() -> None:
    """Let the C library map blocks from 64 kB on; no effect with other libraries than glibc."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, OWN_PAGES)
        library.mallopt(_M_TRIM_THRESHOLD, OWN_PAGES)


def give_memory_back() -> None:
    """Collect garbage, and return free memory to the system."""
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def filled_gaps() -> Iterator[None]:
    """Fill the gaps of the heap that would take a block with pages of its own.

    Blocks just below `OWN_PAGES` are allocated until one extends the heap: no gap for them is left.
    Their pages are not touched. No effect with other libraries than glibc.
    """
    blocks: list[int] = []
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        _ = library.mallopt  # glibc's: others divide their heaps in other ways
        library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
        library.malloc.argtypes, library.sbrk.argtypes = [ctypes.c_size_t], [ctypes.c_ssize_t]
        library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
        end = library.sbrk(0)
        while block := library.malloc(OWN_PAGES - 64):
            blocks.append(block)
            if library.sbrk(0) != end or block > end:  # above it, where a heap can't be extended
                break
    try:
        yield
    finally:
        for block in blocks:
            library.free(block)


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep the threads of this process on one processor, and leave no pages counted on others."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = {}
    for thread in [int(name) for name in os.listdir("/proc/self/task")]:
        with suppress(ProcessLookupError):  # it has ended
            before[thread] = os.sched_getaffinity(thread)

    def place(processors: dict[int, set[int]]) -> None:
        for thread, own in processors.items():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, own)

    try:
        for processor in os.sched_getaffinity(0):
            place({thread: {processor} for thread in before})
            add_counted_pages()
        yield
    finally:
        place(before)


def add_counted_pages() -> None:
    """Free many pages of one table: Linux adds what this processor counted to the total."""
    block = np.empty(2 * TABLE_BYTES, np.uint8)
    start = -block.ctypes.data % TABLE_BYTES
    block[start : start + TABLE_BYTES // 4] = 0


def resident_peak(
    make: Callable[[], Callable[[], Any]],
    first: int = 1,
    steps: int = 2,
    warm: Callable[[], Callable[[], Any]] | None = None,
) -> int:
    """Return the peak of resident memory of steps, in bytes above the base.

    Args:
        make: Builds what a step works on, which counts, and returns the step.
        first: Steps before the peak is watched: the first one makes an optimizer's state.
        steps: Steps that are watched, with each number of pages.
        warm: Builds the step that loads what a step loads; by default `make`. A smaller one, where
            Python's own allocator would keep the memory of many small objects.
    """
    give_blocks_own_pages()
    step = (warm or make)()
    for _ in range(first + WARM):
        step()
    del step
    give_memory_back()
    with one_processor(), filled_gaps():
        add_counted_pages()
        base = PeakMemory()
        start = resident_bytes(os.getpid()) or 0
        step = make()
        for _ in range(first):
            step()
        peaks: list[int] = []
        for pages in range(0, BATCH_PAGES, 4):
            offset = 0
            if first or peaks:
                give_memory_back()
                add_counted_pages()
                base = PeakMemory()
                offset = (resident_bytes(os.getpid()) or 0) - start
            ahead = np.empty(max(OWN_PAGES, pages * mmap.PAGESIZE), np.uint8)
            ahead[: pages * mmap.PAGESIZE] = 0
            for _ in range(steps):
                step()
            above = base.above_base()
            if above is None:
                raise OSError("this system does not tell a process its peak memory")
            peaks.append(above + offset - pages * mmap.PAGESIZE)
            del ahead
        return max(peaks)


def allocated_peak(make: Callable[[], Callable[[], Any]], first: int = 1, steps: int = 2) -> int:
    """Return the peak of memory that Python and NumPy allocated, in bytes; see `resident_peak`.

    By tracemalloc, which slows everything: not for a process that is timed.
    """
    step = make()
    for _ in range(first + WARM):
        step()
    del step
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        step = make()
        for _ in range(first):
            step()
        tracemalloc.reset_peak()
        for _ in range(steps):
            step()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
