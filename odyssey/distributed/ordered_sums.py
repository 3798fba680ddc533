"""Ordered sums: arrays of all ranks are added as a balanced tree over the ranks, on any MPI.

Arrays go by messages between pairs of ranks, and each rank adds its slice of them: the traffic of
a ring, with bits that do not depend on the MPI library, its algorithms or the sizes of messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors

if TYPE_CHECKING:
    from odyssey.distributed.transport import Transport

__all__ = [
    "add_in_tree_order",
    "gather_from_slices",
    "gather_rows",
    "slices_of",
    "sum_all",
    "sum_own_rows",
    "sum_own_slice",
]

_CACHE_LINE = 16
"""Elements of which slices are multiples: 64 bytes of float32."""

GATHERED = 4096
"""Most bytes of which every rank adds all: one exchange instead of two, faster to 4 kB."""


def slices_of(length: int, size: int) -> list[slice]:
    """Return the slice of a flat array that each rank owns: nearly equal, whole cache lines."""
    step = math.ceil(length / size)
    if length >= _CACHE_LINE * size:
        step = math.ceil(step / _CACHE_LINE) * _CACHE_LINE
    edges = [min(length, rank * step) for rank in range(size)] + [length]
    return [slice(a, b) for a, b in pairwise(edges)]


@ignore_fp_errors()
def add_in_tree_order(parts: Sequence[Any], own: int | None = None, out: Any = None) -> Any:
    """Return the sum of arrays as a balanced tree, computed in place of them.

    A number of arrays that is no power of two gives a tree that leans to the left.

    Args:
        parts: The arrays, by rank.
        own: The index of the one that is not written to.
        out: The array of the result, otherwise one of ``parts``.
    """
    sums = [(part, k != own) for k, part in enumerate(parts)]
    while len(sums) > 1:
        level = []
        for k in range(0, len(sums) - 1, 2):
            (left, writable), (right, _) = sums[k], sums[k + 1]
            target = left if writable else right  # new arrays of 8 MB cost more than the sum
            level.append(
                (np.add(left, right, out if len(sums) == 2 and out is not None else target), True)
            )
        sums = level + sums[len(level) * 2 :]
    return sums[0][0]


def sum_own_slice(
    transport: Transport,
    name: str,
    flat: Any,
    parts: Any = None,
    out: Any = None,
    announced: Any = None,
) -> Any:
    """Return this rank's slice of the sum of a flat array; see ``Group.sum_slices``."""
    rows = [flat[one] for one in slices_of(len(flat), transport.size)]
    return _sum_own(transport, name, flat if announced is None else announced, rows, parts, out)


def sum_own_rows(transport: Transport, name: str, rows: Any) -> Any:
    """Return the sum over ranks of the row with this rank's number, of an array of one row each."""
    return _sum_own(transport, name, rows, [row.reshape(-1) for row in rows], None, None)


def _sum_own(
    transport: Transport, name: str, announced: Any, rows: Sequence[Any], parts: Any, out: Any
) -> Any:
    rank, mine = transport.rank, rows[transport.rank]
    if parts is None:
        parts = np.empty((transport.size, len(mine)), mine.dtype)
    others = transport.others
    transport.exchange(
        name, announced, [(r, rows[r]) for r in others], [(r, parts[r]) for r in others]
    )
    return add_in_tree_order([*parts[:rank], mine, *parts[rank + 1 :]], rank, out)


def gather_from_slices(
    transport: Transport, name: str, flat: Any, announced: Any = None, option: str = ""
) -> None:
    """Fill a flat array with the slices that the ranks own, in place."""
    own = slices_of(len(flat), transport.size)
    mine, others = flat[own[transport.rank]], transport.others
    transport.exchange(
        name,
        flat if announced is None else announced,
        [(r, mine) for r in others],
        [(r, flat[own[r]]) for r in others],
        option,
    )


def gather_rows(transport: Transport, name: str, flat: Any, announced: Any = None) -> Any:
    """Return the flat arrays of all ranks as rows of a table."""
    table = np.empty((transport.size, len(flat)), flat.dtype)
    table[transport.rank] = flat
    others = transport.others
    transport.exchange(
        name,
        flat if announced is None else announced,
        [(r, flat) for r in others],
        [(r, table[r]) for r in others],
    )
    return table


def sum_all(transport: Transport, name: str, x: Any) -> Any:
    """Return the sum of a contiguous array over the ranks, on every rank."""
    flat = x.reshape(-1)
    if flat.nbytes <= GATHERED:
        return add_in_tree_order(list(gather_rows(transport, name, flat, x))).reshape(x.shape)
    total = np.empty_like(flat)
    own = total[slices_of(len(flat), transport.size)[transport.rank]]
    sum_own_slice(transport, name, flat, out=own, announced=x)
    gather_from_slices(transport, name, total, x, "second half")
    return total.reshape(x.shape)
