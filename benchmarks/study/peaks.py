"""Peak resident memory of one call, above what was resident before it."""

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

from harness.machine import PeakMemory


def peak_bytes(call: Callable[[], Any]) -> float:
    """Return the highest resident memory during a call, above that before it.

    Memory that was freed and is kept for later, as by a compiler, is given back to the system
    first: the call would use it, and its peak would look smaller.

    Raises:
        RuntimeError: This system does not tell a process its peak memory.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    memory = PeakMemory()
    result = call()
    peak = memory.above_base()
    del result
    if peak is None:
        raise RuntimeError("peak memory: this system does not tell a process its own")
    return float(peak)
