"""What each kernel of a program takes: measured on copies, so that nothing else changes.

The program is made once more, with a clock around each kernel, and runs on copies of its states, in
memory of its own. To read the clock twice takes some 40 ns, which are measured and taken off.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.calls.binding import UnfitError, address, span
from odyssey.compiler.calls.measuring import shown_number, work_of
from odyssey.compiler.calls.running import Executable
from odyssey.compiler.code.entry import RAN
from odyssey.compiler.plan.nodes import Node
from odyssey.compiler.plan.planning import ALIGNMENT, covered
from odyssey.devices.guard import GUARD
from odyssey.errors import OdysseyError
from odyssey.graph.graph import Graph
from odyssey.spec import Array

__all__ = ["KernelTime", "Profile", "timed", "with_kernels"]


class KernelTime(NamedTuple):
    """A kernel, and what it takes.

    Attributes:
        kind: ``loops``, ``product``, ``scan`` or ``call`` of Python; or ``memory``, for what is set
            to 0 or copied into states.
        space: Over which indices it loops, as text.
        what: The rows whose work it does.
        microseconds: Median over the runs.
        bytes: Of elements that it reads or writes, each counted once.
        flops: Steps of arithmetic, a function such as ``exp`` counted as one; None where a library
            knows.
    """

    kind: str
    space: str
    what: str
    microseconds: float
    bytes: int
    flops: int | None

    @property
    def gigabytes_per_second(self) -> float:
        """How fast it moves its bytes."""
        return 1e-3 * self.bytes / max(self.microseconds, 1e-3)


class Profile(NamedTuple):
    """What a program takes; print it to read it.

    Attributes:
        kernels: In the order in which they run.
        microseconds: A run of all of them, without the looks at arguments, and the results.
        runs: How many were measured.
    """

    kernels: tuple[KernelTime, ...]
    microseconds: float
    runs: int

    def __str__(self) -> str:
        """The kernels as a table."""
        whole = max(sum(kernel.microseconds for kernel in self.kernels), 1e-9)
        lines = [
            f"{len(self.kernels)} kernels in {self.microseconds:.2f} us, median of {self.runs}",
            f"  {'kernel':<8} {'space':>16} {'us':>10} {'share':>7} {'bytes':>14} {'flops':>16} "
            f"{'GB/s':>7}  what",
        ]
        for k in self.kernels:
            share = 100 * k.microseconds / whole
            lines.append(
                f"  {k.kind:<8} {k.space:>16} {k.microseconds:>10.2f} {share:>6.1f}% "
                f"{k.bytes:>14,} {shown_number(k.flops):>16} {k.gigabytes_per_second:>7.1f}  "
                f"{k.what}"
            )
        return "\n".join(lines)


def timed(
    graph: Graph,
    arrays: Sequence[Any],
    runs: int,
    numbers: Sequence[Any] = (),
    threads: int = 0,
    budget: int | None = None,
) -> Profile:
    """Run a program on copies of its states, and tell what its kernels take.

    Args:
        graph: What it computes.
        arrays: Of its arguments, and of gradients from before; of other specs than its inputs.
        runs: How often.
        numbers: What is ``completed`` of the numbers among the arguments.
        threads: How many it has; 0 for what is said of all.
        budget: Bytes that it is to hold at most.

    Raises:
        UnfitError: an argument is of another spec.
        OdysseyError: the program refuses what the arguments hold.
    """
    executable = Executable(graph, True, threads, budget)
    given = executable.plain(arrays)
    if not executable.numbers.put(executable.numbers.given(numbers) or ()):
        raise UnfitError("a number is of another class, or beyond the dtype that it meets")
    with GUARD:  # no state is half written
        copies = [(slot, *_copy(array)) for slot, array in executable.bound()]
    for slot, _, start in copies:
        executable.table[slot] = start
    outs = [np.empty(shape, dtype) for shape, dtype in executable.outputs]
    executable.place([*given, *outs])
    spent = _spent(executable)
    found = []
    for _ in range(runs + 1):
        ctypes.memset(spent, 0, ctypes.sizeof(spent))
        begun = perf_counter_ns()
        _run(executable, spent)
        found.append([*spent, perf_counter_ns() - begun])
    return _profile(executable, found[1:])


def with_kernels(name: str, run: Callable[..., Any], executable: Executable) -> Callable[..., Any]:
    """A run of a program that is profiled, which notes its kernels; see ``table.profiling``."""
    from odyssey.table.profiling import note_part

    plan, spent = executable.plan, _spent(executable)
    kernels = [(k.place, work_of(plan, k)) for k in plan.fused.kernels if k.kind != "call"]
    clock = len(plan.fused.kernels) + 2

    def run_noted(*given: Any) -> Any:
        ctypes.memset(spent, 0, ctypes.sizeof(spent))
        made = run(*given)
        for place, work in kernels:
            if spent[place]:
                left = max(spent[place] - spent[clock], 0)
                note_part(f"{name}: {work.kind} of {work.what}", left, work.bytes)
        return made

    return run_noted


def _spent(executable: Executable) -> Any:
    """The counts of a program with clocks."""
    count = len(executable.plan.fused.kernels) + 3
    return (ctypes.c_int64 * count).from_address(executable.loaded.address("odyssey_spent"))


def _copy(array: Array) -> tuple[Array, int]:
    """A copy of the memory that an array lies in, and where its first element stands in it."""
    start, end = span(array)
    room = np.empty(end - start + 2 * ALIGNMENT, np.uint8)
    first = address(room)
    first += (start - first) % ALIGNMENT  # as far from a line's beginning: that may cost time
    ctypes.memmove(first, start, end - start)
    return room, first + address(array) - start


def _run(executable: Executable, spent: Any) -> None:
    """All steps; calls of Python are timed here."""
    executable.called = {}
    places = {k.nodes[0].id: k.place for k in executable.plan.fused.kernels if k.kind == "call"}
    for step in executable.module.steps:
        begun = perf_counter_ns()
        if executable.do(step) != RAN:
            raise OdysseyError(
                "profile: the program refuses what the arguments hold; call the function with "
                "them, which will say why"
            )
        if isinstance(step, Node):
            spent[places[step.id]] += perf_counter_ns() - begun


def _profile(executable: Executable, found: list[list[int]]) -> Profile:
    plan = executable.plan
    *each, zeroed, moved, clock, whole = [median(column) for column in zip(*found, strict=True)]
    lines = []
    for kernel, spent in zip(plan.fused.kernels, each, strict=True):
        if spent:
            off = 0 if kernel.kind == "call" else clock
            work = work_of(plan, kernel)
            lines.append(KernelTime(*work[:3], 1e-3 * max(spent - off, 0), *work[3:]))
    nulls = [n for n in plan.fused.order if n.kind == "join" and not covered(n)]
    holes = [plan.homes[n.id].buffer.bytes for n in nulls]
    ends = [plan.home(node).buffer.bytes for _, node in plan.moves]
    for what, spent, sizes, times in (
        ("set to 0", zeroed, holes, 1),
        ("copy into states", moved, ends, 2),
    ):
        if sizes:
            left = 1e-3 * max(spent - len(sizes) * clock, 0)
            lines.append(KernelTime("memory", "", what, left, times * sum(sizes), 0))
    return Profile(tuple(lines), 1e-3 * max(whole - len(lines) * clock, 0), len(found))
