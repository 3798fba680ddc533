"""Reading at indices that only a run will know: ``x[places]`` while a graph is traced.

A key is an option of ``getitem``, and so fixed in a graph; here it becomes an operand of ``take``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.structure.gathering import take, take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import reshape
from odyssey.table.value import Symbol, Value

__all__ = ["read_at"]


def read_at(x: Any, key: Any) -> Any:
    """``x[key]``, where ``take`` can do it without taking much more; else NotImplemented."""
    parts = _spelled_out(key if isinstance(key, tuple) else (key,), len(x.shape))
    if parts is None:
        return NotImplemented
    at = [k for k, part in enumerate(parts) if not isinstance(part, slice)]
    if len(at) == 1:
        (k,) = at
        rest = [*parts[:k], *[slice(None) for _ in parts[k].shape], *parts[k + 1 :]]
        found = take(x, parts[k], k)
        return getitem(found, tuple(rest)) if _narrows(rest) else found
    if at == [0, 1] and not _narrows(parts[2:]):
        return _read_by_pairs(x, parts[0], parts[1])
    return NotImplemented


def _spelled_out(parts: tuple[Any, ...], ndim: int) -> list[Any] | None:
    """Slices and arrays of whole numbers, without ``...``; None where there is anything else."""
    dots = [k for k, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1 or len(parts) - len(dots) > ndim:
        return None
    k = dots[0] if dots else len(parts)
    full = [slice(None)] * (ndim - len(parts) + len(dots))
    spelled = [*parts[:k], *full, *parts[k + 1 :]]
    return spelled if all(map(_is_plain, spelled)) else None


def _narrows(parts: list[Any]) -> bool:
    bounds = [bound for part in parts for bound in (part.start, part.stop, part.step)]
    return any(bound is not None for bound in bounds)


def _is_plain(part: Any) -> bool:
    if isinstance(part, slice):
        return True
    return isinstance(part, (np.ndarray, Symbol, Value)) and part.dtype.kind in "iu"


def _read_by_pairs(x: Any, rows: Any, columns: Any) -> Any:
    """``x[rows, columns]``: rows are taken whole, which must not be more than there are."""
    shape = x.shape
    if len(rows.shape) != 1 or rows.shape != columns.shape or rows.shape[0] > shape[0]:
        return NotImplemented
    (n,) = rows.shape
    in_order = n == shape[0] and isinstance(rows, np.ndarray) and bool(np.all(rows == np.arange(n)))
    lines = x if in_order else take(x, rows, 0)
    places = reshape(columns, (n, 1, *[1 for _ in shape[2:]]))
    return reshape(take_along_axis(lines, places, 1), (n, *shape[2:]))
