"""What a compiled function knows of its calls, by the arguments that they came with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from os import getpid
from threading import RLock
from typing import Any

from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.tracing.attempt import TraceAttempt

__all__ = ["CacheEntry", "CompileLock"]


class CompileLock:
    """Whose turn it is to make programs: one thread's; others run the function meanwhile."""

    def __init__(self) -> None:
        self._lock, self._process = RLock(), getpid()

    def take(self, make: Callable[..., Any], *given: Any) -> Any:
        """What ``make`` returns of ``given``; CACHE_MISS while another thread has its turn."""
        if getpid() != self._process:  # a child has not the thread whose turn it was
            self._lock, self._process = RLock(), getpid()
        lock, mine = self._lock, list[bool]()
        try:
            # The call of C that takes the lock notes it as well: no interrupt comes in between.
            mine.extend(starmap(lock.acquire, [(False,)]))
            return make(*given) if mine[0] else CACHE_MISS
        finally:
            if True in mine:
                lock.release()


class CacheEntry:
    """What is known of one combination of arguments.

    Attributes:
        result: The fixed arguments of the latest run that no tape surrounded, and what it returned.
        passed: Of what it returned, by place, the arguments that it was given, by theirs.
        seen: Whether there was one.
        programs: Each with the fixed arguments it is for, the latest first.
        why: Why no program is made any more; None while one may be.
        tries: How often one was tried since the latest.
        trial: One that no program was made of yet, and its guards.
        asked: By path the numbers that programs fix, and what was asked of them.
        making: Whose turn it is to make a program.
    """

    def __init__(self) -> None:
        self.result: tuple[Any, Any] = None, None
        self.passed: dict[int, int] = {}
        self.seen = False
        self.trial: tuple[dict[str, Any], TraceAttempt, Any] | None = None
        self.programs: list[tuple[dict[str, Any], Any]] = []
        self.why: str | None = None
        self.tries = 0
        self.asked: dict[str, str] = {}
        self.making = CompileLock()
