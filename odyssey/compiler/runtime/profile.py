"""Profiles: the time of each kernel, measured on copies of the states.

Called by ``inspection`` for ``profile``, by way of ``compiled_call`` or ``sized_program``, and by
``compiled_function`` while a profiler is on. The program is compiled once more with a clock around
each kernel, and runs in memory of its own. Reading the clock twice takes about 40 ns, which are
measured and subtracted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

from odyssey.compiler.runtime.dry_run import DryRun
from odyssey.compiler.runtime.executable import Executable
from odyssey.compiler.runtime.kernel_work import format_count, kernel_work
from odyssey.compiler.schedule.buffer_assignment import Plan, is_fully_covered
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.ways.plans import NO_PLAN
from odyssey.compiler.ways.plans import Plan as WaysPlan
from odyssey.graph.graph import Graph

__all__ = ["KernelTime", "Profile", "profile_graph", "profile_kernels_of"]


class KernelTime(NamedTuple):
    """Time and work of one kernel.

    Attributes:
        kind: ``loops``, ``product``, ``scan``, ``lapack``, ``call`` for a host call, or ``memory``
            for buffers that are zeroed or copied into states.
        space: Iteration space, as text.
        what: Rows that it computes.
        microseconds: Median over the runs.
        bytes: Bytes of the elements that it reads or writes, each counted once.
        flops: Arithmetic operations, where a function such as ``exp`` counts as one; None if a
            library computes.
        parts: For control flow, the kernels of each subgraph over all steps, with a title such as
            ``each step``.
    """

    kind: str
    space: str
    what: str
    microseconds: float
    bytes: int
    flops: int | None
    parts: tuple[tuple[str, tuple[KernelTime, ...]], ...] = ()

    @property
    def gigabytes_per_second(self) -> float:
        """Memory throughput."""
        return 1e-3 * self.bytes / max(self.microseconds, 1e-3)


class Profile(NamedTuple):
    """Times of a program's kernels, which it shows as a table.

    Attributes:
        kernels: Kernels in the order in which they run.
        microseconds: Time of all kernels, without argument checks and construction of results.
        runs: Number of measured runs.
    """

    kernels: tuple[KernelTime, ...]
    microseconds: float
    runs: int

    def __repr__(self) -> str:
        """Format the kernels as a table."""
        whole = max(sum(kernel.microseconds for kernel in self.kernels), 1e-9)
        lines = [
            f"{len(self.kernels)} kernels in {self.microseconds:.2f} us, median of {self.runs}",
            f"  {'kernel':<8} {'space':>16} {'us':>10} {'share':>7} {'bytes':>14} {'flops':>16} "
            f"{'GB/s':>7}  what",
        ]
        for kernel in self.kernels:
            lines += _table_lines(kernel, whole)
        return "\n".join(lines)


def _table_lines(k: KernelTime, whole: float, deep: str = "") -> list[str]:
    """Format a kernel, and the kernels of its subgraphs, as lines of the table."""
    share = 100 * k.microseconds / whole
    numbers = (
        f"  {k.kind:<8} {k.space:>16} {k.microseconds:>10.2f} {share:>6.1f}% "
        f"{k.bytes:>14,} {format_count(k.flops):>16} {k.gigabytes_per_second:>7.1f}"
    )
    lines = [f"{numbers}  {deep}{k.what}"]
    for title, kernels in k.parts:
        lines.append(f"{'':{len(numbers)}}  {deep}  {title}:")
        for kernel in kernels:
            lines += _table_lines(kernel, whole, f"{deep}    ")
    return lines


def profile_graph(
    graph: Graph,
    arrays: Sequence[Any],
    runs: int,
    numbers: Sequence[Any] = (),
    threads: int = 0,
    budget: int | None = None,
    ways: WaysPlan = NO_PLAN,
) -> Profile:
    """Run a program on copies of its states and time its kernels.

    Args:
        graph: Graph of the program.
        arrays: Arguments and accumulated gradients.
        runs: Number of measured runs, after one to warm up.
        numbers: Completed scalar inputs.
        threads: Number of threads; 0 for the process-wide setting.
        budget: Bytes that the plan aims to stay within.
        ways: Ways of works that are not computed as guessed.

    Raises:
        BindingError: an argument has another spec.
        OdysseyError: a runtime check refuses an argument's data.
    """
    dry = DryRun(graph, arrays, numbers, threads, budget, ways, clocks=True)
    counts = _KernelCounters(dry.executable)
    found = []
    for _ in range(runs + 1):
        counts.clear()
        begun = perf_counter_ns()
        dry.run()
        found.append([perf_counter_ns() - begun, *counts.read()])
    medians = iter([median(column) for column in zip(*found[1:], strict=True)])
    whole = next(medians)
    lines, watching = counts.times(medians)
    return Profile(tuple(lines), 1e-3 * max(whole - watching, 0), runs)


def profile_kernels_of(
    name: str, run: Callable[..., Any], executable: Executable
) -> Callable[..., Any]:
    """Wrap a run so that it records its kernels' times; see ``table.profiling``."""
    from odyssey.table.profiling import record_kernel_time

    counts = _KernelCounters(executable)

    def run_noted(*given: Any) -> Any:
        counts.clear()
        made = run(*given)
        for title, kernel in _note_native_kernels(name, counts.times(iter(counts.read()))[0]):
            spent = int(1e3 * kernel.microseconds)
            record_kernel_time(f"{title}: {kernel.kind} of {kernel.what}", spent, kernel.bytes)
        return made

    return run_noted


def _note_native_kernels(
    title: str, kernels: Iterable[KernelTime]
) -> Iterator[tuple[str, KernelTime]]:
    """Yield native kernels and those of subgraphs; host calls are recorded by their own rows."""
    for kernel in kernels:
        if kernel.kind not in ("call", "memory"):
            yield title, kernel
        for part, inside in kernel.parts:
            yield from _note_native_kernels(f"{title}: {part}", inside)


class _KernelCounters:
    """Counters of a program and of its subgraphs."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._own: Any = executable.counters
        self._parts = {
            id: [(title, _KernelCounters(program)) for title, program in calling.parts.items()]
            for id, calling in executable.host_calls.items()
        }

    def _all_counters(self) -> Iterator[_KernelCounters]:
        """Yield these counters and those of all subgraphs."""
        yield self
        for parts in self._parts.values():
            for _, part in parts:
                yield from part._all_counters()

    def clear(self) -> None:
        """Set all counters to 0."""
        for one in self._all_counters():
            ctypes.memset(one._own, 0, ctypes.sizeof(one._own))

    def read(self) -> list[int]:
        """Return all counters in one list."""
        return [count for one in self._all_counters() for count in one._own]

    def times(self, read: Iterator[float]) -> tuple[list[KernelTime], float]:
        """Convert counters, or their medians, to kernels; also return the clocks' time in ns."""
        plan = self._executable.plan
        *each, zeroed, moved, clock, runs = islice(read, len(self._own))
        # The clock was read once for itself, in each run.
        inside = {
            id: [(title, part.times(read)) for title, part in parts]
            for id, parts in self._parts.items()
        }
        lines, watching = [], 0.0
        for kernel, spent in zip(plan.fused.kernels, each, strict=True):
            called = inside.get(kernel.nodes[0].id, []) if kernel.kind == "call" else []
            within = sum(took for _, (_, took) in called)
            off = within if kernel.kind == "call" else clock
            watching += within + (0 if kernel.kind == "call" else clock)
            if spent:
                parts = tuple((title, tuple(found)) for title, (found, _) in called)
                lines.append(_kernel_time(plan, kernel, max(spent - off, 0), int(runs), parts))
        nulls = [n for n in plan.fused.order if n.kind == "join" and not is_fully_covered(n)]
        holes = [plan.allocations[n.id].buffer.bytes for n in nulls]
        ends = [plan.allocation(node).buffer.bytes for _, node in plan.state_copies]
        for what, spent, sizes, times in (
            ("set to 0", zeroed, holes, 1),
            ("copy into states", moved, ends, 2),
        ):
            if sizes:
                left = 1e-3 * max(spent - len(sizes) * clock, 0)
                watching += len(sizes) * clock
                lines.append(
                    KernelTime("memory", "", what, left, int(runs) * times * sum(sizes), 0)
                )
        return lines, watching


def _kernel_time(plan: Plan, kernel: Kernel, spent: float, runs: int, parts: Any) -> KernelTime:
    """Combine a kernel's time with its work."""
    work = kernel_work(plan, kernel)
    flops = None if work.flops is None else runs * work.flops
    return KernelTime(*work[:3], 1e-3 * spent, runs * work.bytes, flops, parts)
