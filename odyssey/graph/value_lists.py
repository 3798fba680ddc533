"""Lists of values of a graph as one value: what NumPy does by itself where numbers are there."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.structure.joining import array
from odyssey.table.store import store
from odyssey.table.value import NUMBERS, Symbol, Value, is_constant
from odyssey.tree import leaves, map_tree

__all__ = ["array_of_nest"]


def array_of_nest(nest: Any) -> Any:
    """A list or tuple that a function passes for an array, if values of the graph are in it.

    Its dtype is that of ``np.asarray``, to which Python's numbers are not weak. What an eager call
    refuses, as a Variable whose gradient would be lost, comes back as it is.
    """
    found = leaves(nest)
    own = [one for one in found if isinstance(one, Value)]
    if not any(isinstance(one, Symbol) for one in found) and not own:
        return nest
    return array(map_tree(_element, nest)) if all(map(is_constant, own)) else nest


def _element(one: Any) -> Any:
    if isinstance(one, Value):
        return store().operand(one)
    return np.asarray(one) if type(one) in NUMBERS else one
