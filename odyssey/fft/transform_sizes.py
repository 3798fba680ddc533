"""What transforms share: how many points there are along which axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.checks import shown, whole
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.fft.primitives import place
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.table.value import Symbol, Value

__all__ = ["Sizes", "array", "count", "fitted", "points"]

Sizes = Sequence[int] | None


def array(who: str, a: Any) -> Any:
    """Variables and Symbols as they are, the rest as arrays."""
    return a if isinstance(a, (Value, Symbol)) else as_array(who, "a", a)


def count(who: str, n: Any, default: int) -> int:
    """How many points are transformed."""
    found = default if n is None else whole(who, "n", n)
    if found < 1:
        raise ShapeError(f"{who}: {found} points came to transform; pass 1 or more")
    return found


def fitted(a: Any, n: int, axis: int, tape: Any) -> Any:
    """The first ``n`` elements along an axis, zeros behind them where there are fewer."""
    length = a.shape[axis]
    if length > n:
        return getitem(a, (slice(None),) * axis + (slice(0, n),), tape=tape)
    if length == n:
        return a
    zeros = np.zeros((*a.shape[:axis], n - length, *a.shape[axis + 1 :]), a.dtype)
    return concatenate([a, zeros], axis=axis, tape=tape)


def points(who: str, a: Any, s: Any, axes: Any, half: bool = False) -> list[tuple[int, int]]:
    """The axes to transform, in order, each with how many points it has then.

    Args:
        who: For messages.
        a: The array.
        s: How many along each axis, -1 for as many as there are; None for all of them.
        axes: Which axes, also one of them twice; None for all, or for the last, of which ``s``
            has the sizes.
        half: Along the last one lie half as many numbers as there are points, and one more.
    """
    sizes = None if s is None else _numbers(who, "s", s)
    ndim = len(a.shape)
    if axes is None:
        first = 0 if sizes is None else ndim - len(sizes)
        if first < 0:
            raise ShapeError(f"{who}: s={shown(s)} for an array of {ndim} axes")
        places = list(range(first, ndim))
    else:
        places = [place(who, k, ndim) for k in _numbers(who, "axes", axes)]
    if sizes is None:
        sizes = [a.shape[k] for k in places]
        if half and places:
            sizes[-1] = 2 * (a.shape[places[-1]] - 1)
    elif len(sizes) != len(places):
        raise ShapeError(f"{who}: s={shown(s)} for {len(places)} axes; pass a size for each")
    sizes = [a.shape[k] if n == -1 else n for n, k in zip(sizes, places, strict=True)]
    for n in sizes:
        count(who, n, n)
    return list(zip(places, sizes, strict=True))


def _numbers(who: str, name: str, values: Any) -> list[int]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if not isinstance(values, (tuple, list, range)):
        raise DTypeError(f"{who}: {name}={shown(values)}; pass a tuple of ints")
    return [whole(who, name, v) for v in values]
