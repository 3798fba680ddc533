"""Liveness of results, told by the reference counts of their ids.

A result is identified by its id, one int object, and **every holder of this int keeps a branch
alive**: the Variable, the nodes that use it, and the tables of a sweep. When only the node that
produced a result is left, no query can name it. Recordings then prune the branch, and sweeps drop
the cotangent. Therefore none of these holds an id that a caller passed in, or each holds an equal
int of its own:

* a node names its operands by their own ints, also where they were given by hand (``manual``);
* notes on nodes are kept under another int (``checks`` uses the negative one);
* the table of cotangents drops an id when its node is reached.

One reference too many is safe: it costs memory. A threshold that is too high is not, and the count
differs between interpreters. Therefore it is measured where no tracer can hold references of its
own, and in doubt every result counts as alive.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable
from typing import Any

__all__ = [
    "EVERYTHING_LIVES",
    "measured_refcount",
    "refcount",
    "result_refcount",
    "unheld_refcount_in_list",
    "unheld_refcount_in_sweep",
]

# A threshold below every reference count.
EVERYTHING_LIVES = 0

# Interpreters without reference counts lack this function.
refcount: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def result_refcount(node: Any) -> int:
    """Return the reference count of the id of a node's result, while a local holds the node."""
    output = node[1]
    return refcount(output)


def unheld_refcount_in_list() -> int:
    """Return the count that ``result_refcount`` gives for a result that only its node refers to."""
    return result_refcount((None, object()))


def measured_refcount(measure: Callable[[], int], places: int) -> int:
    """Return the reference count of an unheld object; ``EVERYTHING_LIVES`` in doubt.

    Args:
        measure: Counts the references where it is run.
        places: The number of references by the caller's code: names and tuples.
    """
    if not _counts_are_exact():
        return EVERYTHING_LIVES
    if sys.gettrace() is None and sys.getprofile() is None:
        count = measure()
    else:
        count = _in_untraced_thread(measure)
    # An operand of a call counts as one reference, and a name or a tuple as at most one each. A
    # higher count comes from a debugger that copied the locals, or a sampler in another thread.
    return count if count <= refcount(object()) + places else EVERYTHING_LIVES


def _counts_are_exact() -> bool:
    """True if reference counts exist here, and no tool adds some by observing all threads."""
    has_refcounts = hasattr(sys, "getrefcount") and getattr(sys, "_is_gil_enabled", lambda: True)()
    # Reading a frame's locals left references behind up to Python 3.12, where tools began to
    # monitor all threads at once; later versions return a view.
    is_monitored = sys.version_info[:2] == (3, 12) and _has_monitoring_tools()
    return bool(has_refcounts and not is_monitored)


def _has_monitoring_tools() -> bool:
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(map(monitoring.get_tool, range(6)))


def _in_untraced_thread(measure: Callable[[], int]) -> int:
    """Run ``measure`` in a new thread: tracers are set per thread, and a new one has none."""
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


def unheld_refcount_in_sweep(
    pull: Callable[..., None], drain: Callable[..., Any], rule: Any
) -> int:
    """Measure the references that a sweep sees to the id of a result without a Variable."""

    class One:
        pullbacks = array_pullbacks = (rule,)
        small_arity = unrolled_arity = 1

    class Two:
        pullbacks = array_pullbacks = (rule, rule)
        small_arity = unrolled_arity = 2

    for own_refs in range(16):
        nodes: list[Any] = []
        last = None
        for row in (One, One, Two, Two, One):
            inputs: tuple[Any, ...] = (last,) if row is One else (last, last)
            last = object()
            nodes.append((row, last, inputs, None, None))
        reached: dict[Any, Any] = {}
        seeds: dict[Any, Any] = {last: 0.0}
        count, last, inputs = len(nodes), None, ()
        pull(drain(nodes), seeds, reached=reached, own_refs=own_refs)
        if not reached:
            return own_refs
        if len(reached) != count:
            break
    return sys.maxsize  # this interpreter does not distinguish them
