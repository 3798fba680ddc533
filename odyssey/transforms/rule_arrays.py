"""What the rules of a ``custom_vjp`` take and return, as arrays that nobody else writes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array, is_array_like, refuse_non_array
from odyssey.devices.ownership import copy_if_shared, is_referenced_elsewhere, read_only_view
from odyssey.table.store import operand_of
from odyssey.table.value import Symbol
from odyssey.tree import leaves
from odyssey.variable import Variable

__all__ = ["array_of", "each_own", "is_floating", "places_in", "read_only", "residual_of"]


def array_of(leaf: Any) -> Any:
    """A leaf of what a rule returned: Variables, numbers and arrays of any library as arrays."""
    if isinstance(leaf, Variable):
        return operand_of(leaf)
    refuse_non_array("custom_vjp", "what a rule returned", leaf)
    if isinstance(leaf, (float, complex)) or (is_array_like(leaf) and not isinstance(leaf, Symbol)):
        return as_array("custom_vjp", "what a rule returned", leaf)
    return leaf


def residual_of(leaf: Any) -> Any:
    """The same of what is kept for ``backward``; what is not NumPy's is kept as it is."""
    return array_of(leaf) if isinstance(leaf, (Variable, float, complex, *ARRAY_LIKE)) else leaf


def places_in(trees: Any) -> Counter[int]:
    """How often each leaf stands in trees, by its id."""
    return Counter(map(id, leaves(trees)))


def each_own(trees: Any, given: list[Any]) -> list[Any]:
    """The leaves of the first tree as arrays that are no argument, and no workspace of a function.

    Args:
        trees: What the function returned, which is all that may hold its results.
        given: The arrays that it got.
    """
    places = places_in(trees)
    made = [array_of(leaf) for leaf in leaves(trees[0])]
    kept = [is_referenced_elsewhere(made, k, places[id(made[k])]) for k in range(len(made))]
    return [
        leaf.copy() if others else copy_if_shared(leaf, given)
        for leaf, others in zip(made, kept, strict=True)
    ]


def is_floating(leaf: Any) -> bool:
    """Whether a leaf is an array that may have a gradient."""
    return isinstance(leaf, (*ARRAY_LIKE, Symbol)) and leaf.dtype.kind in "fc"


def read_only(g: Any) -> Any:
    """What a rule cannot write to: other nodes may be given the same cotangent."""
    return read_only_view(g) if isinstance(g, ARRAYS) else g
