"""Places in one piece of memory for what lives at different times."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

__all__ = ["ALIGNMENT", "Buffer", "fit"]

ALIGNMENT = 64


@dataclass(slots=True, eq=False)
class Buffer:
    """A piece of memory.

    Attributes:
        kind: ``input``, ``state``, ``constant``, ``output``, ``call`` or ``arena``.
        index: Which.
        bytes: How long it is.
        offset: In the arena.
        first: The place of the kernel that writes to it first; -1 before all.
        last: The place of the last that reads or writes it.
    """

    kind: str
    index: int
    bytes: int
    offset: int = 0
    first: int = -1
    last: int = -1


def fit(buffers: Iterable[Buffer]) -> int:
    """Give buffers offsets, each the first gap among those that live at the same time.

    Returns:
        How many bytes all of them take.
    """
    whole = 0
    gaps: list[tuple[float, float]] = [(0, math.inf)]  # in order, none beside another
    alive: list[tuple[int, int, int]] = []  # until when, from where to where
    for buffer in sorted(buffers, key=lambda b: b.first):
        while alive and alive[0][0] < buffer.first:
            _, start, end = heappop(alive)
            _let_go(gaps, start, end)
        buffer.offset = 0
        if not buffer.bytes:
            continue
        k = next(k for k, (start, end) in enumerate(gaps) if buffer.bytes <= end - start)
        buffer.offset = at = int(gaps[k][0])
        whole = max(whole, at + buffer.bytes)
        behind = -(-(at + buffer.bytes) // ALIGNMENT) * ALIGNMENT
        gaps[k : k + 1] = [(behind, gaps[k][1])] if behind < gaps[k][1] else []
        heappush(alive, (buffer.last, at, behind))
    return whole


def _let_go(gaps: list[tuple[float, float]], start: float, end: float) -> None:
    """Add a gap, which becomes one with those beside it."""
    k = bisect(gaps, (start, end))
    if k < len(gaps) and gaps[k][0] == end:
        end = gaps.pop(k)[1]
    if k and gaps[k - 1][1] == start:
        k, start = k - 1, gaps.pop(k - 1)[0]
    gaps.insert(k, (start, end))
