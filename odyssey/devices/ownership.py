"""Whose an array is: copies that are one's own, and views that cannot be written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.spec import Array

__all__ = ["apart", "duplicate", "frozen", "is_shared"]


def duplicate(array: Array) -> Array:
    """Copy an array, laid out in memory as it is: matrix products and sums round by the layout.

    >>> duplicate(np.arange(3.0)[::-1]).strides
    (-8,)
    """
    if array.flags.c_contiguous:
        return array.copy()
    same = tuple(slice(None, None, -1 if stride < 0 else None) for stride in array.strides)
    return array[same].copy("K")[same]


def is_shared(out: Any, others: Sequence[Any] = ()) -> bool:
    """Whether ``out`` is an array that is one of ``others``, or a part of some other array."""
    if not isinstance(out, np.ndarray):
        return False
    return out.base is not None or any(out is other for other in others)


def apart(out: Any, others: Sequence[Any] = ()) -> Any:
    """Return ``out``, or a copy of it where it ``is_shared``."""
    return out.copy() if is_shared(out, others) else out


def frozen(array: Array) -> Array:
    """A view of ``array`` that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
