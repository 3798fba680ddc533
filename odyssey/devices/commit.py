"""Commit of several changes at once: calls of C within one call of C.

Python runs signal handlers between bytecodes only, so Ctrl-C cannot interrupt a sequence of calls
that C makes. Code that changes several things together first computes everything that may fail,
and then commits the changes here: all of them happen, or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import starmap
from operator import call
from typing import Any

__all__ = ["Plan", "commit", "run_all"]

Plan = list[tuple[Any, ...]]
"""Calls, each a function and its arguments: functions of C that cannot fail."""

# Exhausts an iterator. In the same frame as the call that makes the plan, it leaves no variable
# behind that a traceback would keep alive.
run_all: Any = deque[Any](maxlen=0).extend


def commit(plan: Iterable[tuple[Any, ...]]) -> None:
    """Make all calls of ``plan``; no exception of a signal handler can come between them.

    >>> a, b = [1], [2]
    >>> commit([(a.append, 3), (b.append, 4)])
    >>> a, b
    ([1, 3], [2, 4])
    """
    run_all(starmap(call, plan))
