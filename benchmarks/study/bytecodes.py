"""Counts of the bytecode instructions that a call runs in Python."""

import sys
from collections.abc import Callable
from typing import Any


def count_bytecodes(run: Callable[[], Any]) -> int:
    """Return how many instructions a call runs, in this thread.

    They depend on the version of Python. Make the call before, so that caches are filled.
    """
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
