"""Profiling: time by op, printed if the environment has ``ODYSSEY_PROFILE=N``.

Every N ops a table is printed on stderr: calls of each op, its time without the ops it called,
its share, and the bytes of its operands and results. A compiled program counts as one op, and its
kernels have lines of their own. Ops are wrapped at their declaration, so without the variable a
call costs nothing more.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks

__all__ = ["EVERY", "record_kernel_time", "time_calls"]

_NOTHING = object()


def _parse_interval(given: str) -> int:
    """Parse the number of ops between two tables; 0 for no tables."""
    if not given.strip():
        return 0
    try:
        number = int(given)
    except ValueError:
        number = -1
    if number < 0:
        warnings.warn(
            f"ODYSSEY_PROFILE={given!r} is not a number of ops, and so nothing is timed; set it to "
            "a whole number such as 1000, for a table of each 1000 ops, or to 0 for none",
            RuntimeWarning,
            stacklevel=2,
        )
        return 0
    return number


EVERY = _parse_interval(os.environ.get("ODYSSEY_PROFILE", ""))
"""Number of ops between two tables; 0 if nothing is timed."""


class _Tally:
    """Calls, nanoseconds and bytes by name since the last table."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.lock = threading.RLock()  # reentrant: the garbage collector may run ops inside
        self.count = 0
        self.lines: dict[str, list[int]] = {}

    def record_time(self, name: str, calls: int, spent: int, moved: int, ops: int) -> None:
        """Add to a line; print the table and begin the next one every N ops."""
        with self.lock:
            line = self.lines.setdefault(name, [0, 0, 0])
            line[0] += calls
            line[1] += spent
            line[2] += moved
            self.count += ops
            if self.count < self.every:
                return
            count, self.count = self.count, 0
            lines, self.lines = self.lines, {}
            if sys.stderr is not None:  # within the lock, so that tables of threads do not mix
                sys.stderr.write(_format_table(count, lines) + "\n")
                sys.stderr.flush()


_TALLY = _Tally(EVERY)

if EVERY:
    hold_during_forks(lambda: (_TALLY.lock,), FORK_WAITS)


class _ThreadState(threading.local):
    """Running ops of this thread by name, and the time of the ops called by the innermost one."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.inner = 0


_HERE = _ThreadState()


def time_calls(name: str, run: Callable[..., Any], nothing: Any = _NOTHING) -> Callable[..., Any]:
    """Return a function that runs ``run`` and records its time.

    Args:
        name: The name of the line. A nested call with this name counts as part of the outer one.
        run: The function to time.
        nothing: A sentinel that ``run`` returns if it did nothing, which counts as no call.
    """

    def run_timed(*values: Any, **named: Any) -> Any:
        here, start = _HERE, perf_counter_ns()
        outer, here.inner = here.inner, 0
        here.names.append(name)
        out = nothing
        try:
            out = run(*values, **named)
        finally:
            here.names.pop()
            spent = perf_counter_ns() - start
            own, here.inner = spent - here.inner, outer + spent
            first = out is not nothing and name not in here.names
            moved = _count_bytes((*values, out)) if first else 0
            _TALLY.record_time(name, int(first), own, moved, int(first))
        return out

    # Parameters of rules are read from it.
    run_timed.__wrapped__ = getattr(run, "__wrapped__", run)  # type: ignore[attr-defined]
    return run_timed


def record_kernel_time(name: str, spent: int, moved: int) -> None:
    """Record the time in nanoseconds of a kernel inside of the running op; it counts as no op."""
    _HERE.inner += spent
    _TALLY.record_time(name, 1, spent, moved, 0)


def _count_bytes(values: Sequence[Any]) -> int:
    """Return the bytes of arrays, alone or in tuples and lists."""
    total = 0
    for value in values:
        several = value if isinstance(value, (tuple, list)) else (value,)
        total += sum(int(getattr(one, "nbytes", 0)) for one in several)
    return total


def _format_table(count: int, lines: dict[str, list[int]]) -> str:
    """Format the lines, the slowest first."""
    total = sum(spent for _, spent, _ in lines.values())
    width = max(2, *map(len, lines))
    text = [f"odyssey: {count:,} ops in {1e-6 * total:.3f} ms"]
    text.append(f"  {'op':<{width}} {'calls':>9} {'total ms':>11} {'share':>7} {'bytes':>16}")
    for name, (calls, spent, moved) in sorted(lines.items(), key=lambda pair: -pair[1][1]):
        share = 100 * spent / max(total, 1)
        text.append(
            f"  {name:<{width}} {calls:>9,} {1e-6 * spent:>11.3f} {share:>6.1f}% {moved:>16,}"
        )
    return "\n".join(text)
