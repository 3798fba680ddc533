"""Where time goes, by op: what ``ODYSSEY_PROFILE=N`` in the environment asks for.

Every N ops a table is printed on stderr: for each op how often it ran, what it took without the
ops that it called, its share, and how many bytes its operands and results have. A compiled
program counts as one op, and its kernels have lines of their own. Who times an op asks once, when
the op is declared; so nothing is asked at a call, and where the variable is not set ops run as if
this were not here.
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
    """Of how many ops each table is; 0 for none."""
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
"""Of how many ops each table is; 0 where nothing is timed."""


class _Tally:
    """What ran since the last table: by name calls, nanoseconds and bytes."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.lock = threading.RLock()  # the collector may run ops in the middle of a note
        self.count = 0
        self.lines: dict[str, list[int]] = {}

    def note(self, name: str, calls: int, spent: int, moved: int, ops: int) -> None:
        """Add to a line; print the table if so many ops are due, and begin the next."""
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
            if sys.stderr is not None:  # within the lock, lest tables of threads mix
                sys.stderr.write(_format_table(count, lines) + "\n")
                sys.stderr.flush()


_TALLY = _Tally(EVERY)

if EVERY:
    hold_during_forks(lambda: (_TALLY.lock,), FORK_WAITS)


class _ThreadState(threading.local):
    """What runs in this thread: the names of ops, and what those took that the last one called."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.inner = 0


_HERE = _ThreadState()


def time_calls(name: str, run: Callable[..., Any], nothing: Any = _NOTHING) -> Callable[..., Any]:
    """A function that is noted under a name when it is called.

    Args:
        name: Of its line. What a function calls under the same name is part of its call.
        run: What to time.
        nothing: What it returns where it did nothing: that counts as no call.
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
            _TALLY.note(name, int(first), own, moved, int(first))
        return out

    # Of rules the parameters are read.
    run_timed.__wrapped__ = getattr(run, "__wrapped__", run)  # type: ignore[attr-defined]
    return run_timed


def record_kernel_time(name: str, spent: int, moved: int) -> None:
    """Note what a part of the op that runs here took, in nanoseconds: it is no op of its own."""
    _HERE.inner += spent
    _TALLY.note(name, 1, spent, moved, 0)


def _count_bytes(values: Sequence[Any]) -> int:
    """Of arrays, and of those in sequences of them."""
    total = 0
    for value in values:
        several = value if isinstance(value, (tuple, list)) else (value,)
        total += sum(int(getattr(one, "nbytes", 0)) for one in several)
    return total


def _format_table(count: int, lines: dict[str, list[int]]) -> str:
    """The lines as text, the dearest first."""
    whole = sum(spent for _, spent, _ in lines.values())
    width = max(2, *map(len, lines))
    text = [f"odyssey: {count:,} ops in {1e-6 * whole:.3f} ms"]
    text.append(f"  {'op':<{width}} {'calls':>9} {'total ms':>11} {'share':>7} {'bytes':>16}")
    for name, (calls, spent, moved) in sorted(lines.items(), key=lambda pair: -pair[1][1]):
        share = 100 * spent / max(whole, 1)
        text.append(
            f"  {name:<{width}} {calls:>9,} {1e-6 * spent:>11.3f} {share:>6.1f}% {moved:>16,}"
        )
    return "\n".join(text)
