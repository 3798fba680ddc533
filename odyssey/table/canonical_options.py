"""Canonical options: one form for equal options of a traced call.

``axis=-1``, ``axis=1`` and ``axis=[np.int64(1)]`` sum a matrix alike. Eager calls pass options
as they are; a graph, which merges equal calls, stores them in one form. A row defines it by
``canonical``, since it depends on shapes.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.spec import Spec

if TYPE_CHECKING:
    from odyssey.table.row import Row

__all__ = ["canonical_axes", "one_axis", "plain_options"]


_PLAIN_TYPES = frozenset({int, bool, float, str, type(None), slice, Spec})


def plain_options(row: Row, options: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace NumPy scalars and lists among options by Python numbers and tuples.

    Options of elementwise ops keep their types, which take part in promotion; so do those of ops
    of users, which have a ``canonical`` of their own.
    """
    if row.elementwise or row.foreign or _PLAIN_TYPES.issuperset(map(type, options)):
        return options
    return tuple(map(_plain_option, options))


def _plain_option(option: Any) -> Any:
    """Convert integers and booleans to Python's, lists to tuples; pass anything else."""
    kind = type(option)
    if kind is list or kind is tuple:
        settled = kind is tuple and _PLAIN_TYPES.issuperset(map(type, option))
        return option if settled else tuple(map(_plain_option, option))
    if isinstance(option, np.integer):
        return int(option)
    return bool(option) if isinstance(option, np.bool_) else option


def canonical_axes(x: Any, axis: Any, *rest: Any) -> tuple[Any, ...]:
    """Return options whose first is a reduction axis, with the axes sorted and non-negative."""
    ndim = x.ndim
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return (tuple(sorted(index(k) % ndim for k in axes)) if ndim else (), *rest)


def one_axis(axis: Any, ndim: int) -> Any:
    """Return one non-negative axis; None, which flattens the operand, only if it has several."""
    if ndim == 0:
        return None
    if axis is None:
        return 0 if ndim == 1 else None
    # Anything but an int passes: the kernel raises.
    return axis % ndim if isinstance(axis, int) else axis
