"""Setup of the C library's allocator: keep freed memory for later arrays."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

__all__ = ["keep_freed_memory"]

# GNU's C library adapts to blocks up to 32 MB, header included.
_LARGEST = (32 << 20) - (64 << 10)


def keep_freed_memory() -> None:
    """Make the C library keep freed memory for later arrays.

    GNU's C library returns freed blocks above 128 kB to the system at once, and also those at the
    end of the heap, until a larger block was freed; then it keeps memory up to twice that size. A
    training step frees what the next one allocates, so each page of arrays of 0.1 to 32 MB would be
    mapped, cleared and returned in every step, which takes up to six times as long as the
    computation. This frees one block of the largest size that the library adapts to: memory that is
    never written to, so it costs 40 us and no pages. If ``MALLOC_TRIM_THRESHOLD_`` or a similar
    variable is set, the library does not adapt; nor do other C libraries.
    """
    with suppress(MemoryError):  # a memory limit, which may allow smaller blocks
        np.empty(_LARGEST, np.uint8)
