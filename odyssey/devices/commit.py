"""Doing several things as one: calls of C within a call of C.

Python runs signal handlers between bytecodes only, so Ctrl-C cannot come between two calls that C
makes. Whoever changes more than one thing that belong together first computes all that may fail,
and then makes the changes here: they happen together, or not at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import starmap
from operator import call
from typing import Any

__all__ = ["Plan", "commit", "run_all"]

Plan = list[tuple[Any, ...]]
"""Calls, each a function and its arguments: of C, and such that cannot fail."""

# Exhausts an iterator. In the same frame as the call that makes the plan, it leaves no variable
# behind that a traceback would keep alive.
run_all: Any = deque[Any](maxlen=0).extend


def commit(plan: Iterable[tuple[Any, ...]]) -> None:
    """Make all calls of ``plan``, which no exception of a signal handler can come between.

    >>> a, b = [1], [2]
    >>> commit([(a.append, 3), (b.append, 4)])
    >>> a, b
    ([1, 3], [2, 4])
    """
    run_all(starmap(call, plan))
