"""Arrays that the rules of ``custom_vjp`` take and return, protected from later writes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array, is_array_like, refuse_non_array
from odyssey.devices.half_dtypes import is_inexact
from odyssey.devices.ownership import copy_if_shared, is_referenced_elsewhere, read_only_view
from odyssey.devices.same_device import own_copy
from odyssey.table.store import operand_of
from odyssey.table.value import Symbol
from odyssey.tree import leaves
from odyssey.variable import Variable

__all__ = [
    "exclusive_leaves",
    "is_floating",
    "leaf_counts",
    "read_only",
    "residual_value",
    "rule_result_array",
]


def rule_result_array(leaf: Any) -> Any:
    """Return a leaf of a rule's result; Variables, floats and foreign arrays become arrays."""
    if isinstance(leaf, Variable):
        return operand_of(leaf)
    refuse_non_array("custom_vjp", "what a rule returned", leaf)
    if isinstance(leaf, (float, complex)) or (is_array_like(leaf) and not isinstance(leaf, Symbol)):
        return as_array("custom_vjp", "what a rule returned", leaf)
    return leaf


def residual_value(leaf: Any) -> Any:
    """Return a residual as an array; objects of other libraries stay as they are."""
    return (
        rule_result_array(leaf)
        if isinstance(leaf, (Variable, float, complex, *ARRAY_LIKE))
        else leaf
    )


def leaf_counts(trees: Any) -> Counter[int]:
    """Return how often each leaf occurs in trees, by its id."""
    return Counter(map(id, leaves(trees)))


def exclusive_leaves(trees: Any, given: list[Any]) -> list[Any]:
    """Return the leaves of the first tree as arrays that neither arguments nor workspaces share.

    Args:
        trees: The result of the function, and all that may hold a reference to it.
        given: The arrays that the function got.
    """
    occurrences = leaf_counts(trees)
    arrays = [rule_result_array(leaf) for leaf in leaves(trees[0])]
    is_shared = [
        is_referenced_elsewhere(arrays, k, occurrences[id(arrays[k])]) for k in range(len(arrays))
    ]
    return [
        own_copy(leaf) if others else copy_if_shared(leaf, given)
        for leaf, others in zip(arrays, is_shared, strict=True)
    ]


def is_floating(leaf: Any) -> bool:
    """True if a leaf is an array that may have a gradient."""
    return isinstance(leaf, (*ARRAY_LIKE, Symbol)) and is_inexact(leaf.dtype)


def read_only(g: Any) -> Any:
    """Return a read-only view of a cotangent, which other nodes may share."""
    return read_only_view(g) if isinstance(g, ARRAYS) else g
