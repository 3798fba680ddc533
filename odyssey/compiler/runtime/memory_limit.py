"""Memory limit of compiled programs.

Called by ``compiled_function`` after a trace, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odyssey.compiler.tracing.attempt import TraceAttempt
from odyssey.errors import DeviceMemoryError

if TYPE_CHECKING:
    from odyssey.compiler.ways.plans import Plan

__all__ = ["check_memory_limit"]

# Returns the bytes that a program holds, and the largest buffers, of graph, budget and ways.
Requirements = Callable[..., tuple[int, list[tuple[int, str]]]]


def check_memory_limit(
    limit: int | None,
    budget: int | None,
    trial: TraceAttempt,
    ways: Plan,
    requirements: Requirements | None = None,
) -> None:
    """Raise DeviceMemoryError if a program would hold more bytes than its limit.

    Args:
        limit: The limit in bytes.
        budget: Bytes that the plan aims to stay within.
        trial: The trace.
        ways: Ways of works that are not computed as guessed.
        requirements: Returns what a program needs, for one of a device.
    """
    from odyssey.compiler.runtime.executable import BindingError, memory_requirements

    try:
        total, buffers = (requirements or memory_requirements)(trial.graph, budget, ways)
    except BindingError:  # no program: a state cannot be bound
        return
    most = min(bytes for bytes in (limit, budget) if bytes is not None)
    if total > most:
        largest = "; ".join(text for _, text in buffers[:3])
        what = "or pass memory_budget=, which recomputes values"
        if budget is not None:
            what = "or raise memory_budget, since all values that can be recomputed already are"
        raise DeviceMemoryError(
            f"compile: a program needs {total:,} bytes beside arguments and states, and the limit "
            f"is {most:,}; the largest buffers are {largest}; pass smaller arrays, {what}"
        )
