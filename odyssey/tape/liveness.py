"""Who can still be asked about: results are told apart by the references to their ids.

A result is known by its id, one int object, and **whoever holds this int keeps a branch alive**:
the Variable, the nodes that use it, and the tables that a sweep works with. When nobody but the
node that made it is left, nobody can ask. Recordings then prune the branch, and sweeps drop the
cotangent. So these never hold an id that they were given, or hold an equal int of their own:

* a node names its operands by their own ints, also where they were given by hand (``manual``);
* notes on nodes are kept by another int (``careful`` takes the negative one);
* the table of cotangents lets an id go when its node is reached.

To hold one too many is safe: it costs memory. To count one reference too few for nobody is not, and
that count differs between interpreters. So it is measured, where no tracer can hold references of
its own, and where there is any doubt every result passes for living.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from typing import Any

__all__ = [
    "EVERYTHING_LIVES",
    "measured",
    "reference_count",
    "references",
    "unheld_in_a_list",
    "unheld_in_a_sweep",
]

# The limit that no count of references lies at or below.
EVERYTHING_LIVES = 0

# Interpreters that do not count references have no such function.
references: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def reference_count(node: Any) -> int:
    """The count of references to the id of a node's result, while a local holds the node."""
    output = node[1]
    return references(output)


def unheld_in_a_list() -> int:
    """The count that ``reference_count`` gives of a result that only its node refers to."""
    return reference_count((None, object()))


def measured(measure: Callable[[], int], places: int) -> int:
    """Return how many references are seen to what nobody holds; ``EVERYTHING_LIVES`` in doubt.

    Args:
        measure: Counts them where it is run.
        places: How many places of the caller's code refer to it: names and tuples.
    """
    if not _counts_are_exact():
        return EVERYTHING_LIVES
    if sys.gettrace() is None and sys.getprofile() is None:
        count = measure()
    else:
        count = _in_a_bare_thread(measure)
    # An operand of a call counts as one, and a name or a tuple as one each at most. Who counts
    # more, a debugger that copied the locals or a sampler in another thread, was in the way.
    return count if count <= references(object()) + places else EVERYTHING_LIVES


def _counts_are_exact() -> bool:
    """Whether counts tell anything here, and nobody watches all threads in a way that adds some."""
    counted = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
    # To read a frame's locals left references behind up to Python 3.12, where tools began to watch
    # all threads at once; later they get a view.
    watched = sys.version_info[:2] == (3, 12) and _has_tools()
    return bool(counted and not watched)


def _has_tools() -> bool:
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(map(monitoring.get_tool, range(6)))


def _in_a_bare_thread(measure: Callable[[], int]) -> int:
    """Run ``measure`` where no tracer is: each thread has its own, and this one gets none."""
    counts: list[int] = []
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        try:
            counts.append(measure())
        finally:
            done.release()

    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:  # no threads here, or no more
        return sys.maxsize
    done.acquire()
    return counts[0] if counts else sys.maxsize


def unheld_in_a_sweep(pull: Callable[..., None], drain: Callable[..., Any], rule: Any) -> int:
    """Find out how many references ``pull`` sees to a result's id that no Variable holds."""

    class One:
        pullbacks = array_pullbacks = (rule,)
        small_arity = unrolled_arity = 1

    class Two:
        pullbacks = array_pullbacks = (rule, rule)
        small_arity = unrolled_arity = 2

    for spare in range(16):
        nodes: list[Any] = []
        last = None
        for row in (One, One, Two, Two, One):
            inputs: tuple[Any, ...] = (last,) if row is One else (last, last)
            last = object()
            nodes.append((row, last, inputs, None, None))
        reached: dict[Any, Any] = {}
        seeds: dict[Any, Any] = {last: 0.0}
        count, last, inputs = len(nodes), None, ()
        pull(drain(nodes), seeds, reached=reached, spare=spare)
        if not reached:
            return spare
        if len(reached) != count:
            break
    return sys.maxsize  # they cannot be told apart on this interpreter
