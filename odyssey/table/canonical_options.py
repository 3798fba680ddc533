"""One meaning, one spelling: how a graph writes down the options of a call.

``axis=-1``, ``axis=1`` and ``axis=[np.int64(1)]`` sum a matrix alike. Eager calls take options as
they come, which costs nothing; a graph, where calls that mean the same are to be found, writes
each meaning in one way. A row says by ``canonical`` how, for it depends on the shapes.
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
    """Options without NumPy's scalars and lists, where their type means nothing.

    That of a number which meets elements may make the result one of higher precision; and what it
    means to an op from outside, only its own ``canonical`` can know.
    """
    if row.elementwise or row.foreign or _PLAIN_TYPES.issuperset(map(type, options)):
        return options
    return tuple(map(_plain_option, options))


def _plain_option(option: Any) -> Any:
    """Whole numbers and truth values as Python's, lists as tuples; anything else as it is."""
    kind = type(option)
    if kind is list or kind is tuple:
        settled = kind is tuple and _PLAIN_TYPES.issuperset(map(type, option))
        return option if settled else tuple(map(_plain_option, option))
    if isinstance(option, np.integer):
        return int(option)
    return bool(option) if isinstance(option, np.bool_) else option


def canonical_axes(x: Any, axis: Any, *rest: Any) -> tuple[Any, ...]:
    """Options that begin with the axes that an op folds away: all of them, in order."""
    ndim = x.ndim
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return (tuple(sorted(index(k) % ndim for k in axes)) if ndim else (), *rest)


def one_axis(axis: Any, ndim: int) -> Any:
    """One axis, from the front; None, which puts all elements on one, only where it matters."""
    if ndim == 0:
        return None
    if axis is None:
        return 0 if ndim == 1 else None
    # What is not a number stays, for the kernel to refuse.
    return axis % ndim if isinstance(axis, int) else axis
