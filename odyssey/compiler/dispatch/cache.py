"""Cache entries of a compiled function: the programs and results known for one signature."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from os import getpid
from threading import RLock
from typing import Any, NamedTuple

from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.guards.guards import GuardSet
from odyssey.compiler.result_aliases import NO_ALIASES
from odyssey.compiler.tracing.attempt import TraceAttempt

__all__ = ["CacheEntry", "CompileLock", "KeptTrace", "make_room"]


def make_room(table: dict[Any, Any], limit: int) -> None:
    """Drop the oldest entries of a table, until it has room for one more within a limit."""
    keys = list(table)  # in one call: other threads may write to the table
    for old in keys[: max(0, len(keys) + 1 - limit)]:
        table.pop(old, None)


class CompileLock:
    """A lock that lets one thread compile; the others run the function as it was written."""

    def __init__(self) -> None:
        self._lock, self._process = RLock(), getpid()

    def call_if_free(self, make: Callable[..., Any], *args: Any) -> Any:
        """Return ``make(*args)``; CACHE_MISS while another thread has the lock."""
        if getpid() != self._process:  # a forked child lacks the thread that had the lock
            self._lock, self._process = RLock(), getpid()
        lock, acquired = self._lock, list[bool]()
        try:
            # One call in C takes the lock and records it: no interrupt comes in between.
            acquired.extend(starmap(lock.acquire, [(False,)]))
            return make(*args) if acquired[0] else CACHE_MISS
        finally:
            if True in acquired:
                lock.release()


class KeptTrace(NamedTuple):
    """A trace that a program is to be made of.

    Attributes:
        static: The static values that the program is for.
        trial: The trace.
        guards: The guards on what it read of Python.
    """

    static: dict[str, Any]
    trial: TraceAttempt
    guards: GuardSet


class CacheEntry:
    """The cache entry of one abstract signature of arguments.

    Attributes:
        result: The static values of the latest eager run outside of tapes, and what it returned.
        aliases: The aliases in that result.
        written: What that run wrote to objects of Python, see ``TraceAttempt.written_places``.
        was_run: Whether there was such a run.
        programs: The programs, each with the static values that it is for, the latest first.
        refusal: Why no more programs are made, in words; None while one may be.
        attempts: The number of traces since the latest program.
        kept: A trace that no program was made of yet; or None.
        first_guards: The guards of a trace that would do only after the function ran once; or None.
        unstarted: The optimizers of that trace, which a skipped step leaves without a state.
        fixed_numbers: By path, the numbers that programs fix, and why.
        compile_lock: Lets one thread make a program.
    """

    def __init__(self) -> None:
        self.result: tuple[Any, Any] = None, None
        self.aliases = NO_ALIASES
        self.written: list[Any] = []
        self.was_run = False
        self.kept: KeptTrace | None = None
        self.programs: list[tuple[dict[str, Any], Any]] = []
        self.refusal: str | None = None
        self.attempts = 0
        self.first_guards: GuardSet | None = None
        self.unstarted: list[Any] = []
        self.fixed_numbers: dict[str, str] = {}
        self.compile_lock = CompileLock()
