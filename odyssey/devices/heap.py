"""What the allocator of the process learns before the first array comes."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

__all__ = ["keep_freed_memory"]

# As the C library of GNU learns of blocks up to 32 MB, those with what stands before them.
_LARGEST = (32 << 20) - (64 << 10)


def keep_freed_memory() -> None:
    """Let the C library keep memory that was freed for the arrays that come next.

    GNU's gives blocks above 128 kB back to the system at once, and those at the end of the heap,
    until it has seen a larger one freed; then memory up to twice that size stays. A step of a loop
    frees what the next one asks for, so of arrays of 0.1 to 32 MB each page would be taken, cleared
    and given back in every step, which takes up to six times as long as what is computed. Here it
    sees the largest that it learns from: memory that nobody writes to, so that it costs 40 us and
    no pages. Where ``MALLOC_TRIM_THRESHOLD_`` or its like are set it does not learn, and other
    libraries of C neither.
    """
    with suppress(MemoryError):  # a limit of the system, which leaves room for smaller ones
        np.empty(_LARGEST, np.uint8)
