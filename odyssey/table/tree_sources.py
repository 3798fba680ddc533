"""Leaves of plain objects that are not differentiated: constants, integers and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odyssey.devices.half_dtypes import is_inexact
from odyssey.table.value import Value, is_constant
from odyssey.tree import below_objects
from odyssey.tree_objects import LEAF_TYPES, is_array

__all__ = ["fixed_leaves"]

_NO_LEAVES: frozenset[int] = frozenset()
_PLAIN = frozenset({dict, list, tuple})


def fixed_leaves(tree: Any, flat: Sequence[Any], variables: bool = False) -> frozenset[int]:
    """Return the positions of leaves below plain objects that have no gradient.

    These are constant Variables, integers and numbers of Python. A model may keep running means
    and tables of indices beside its weights; a dict of parameters may not.

    Args:
        tree: Any tree.
        flat: Its leaves.
        variables: Whether arrays have no gradient either, as where gradients are looked up.
    """
    kind = type(tree)
    if kind in LEAF_TYPES or (len(flat) == 1 and tree is flat[0]):
        return _NO_LEAVES
    # The commonest trees, without objects: half the time.
    if kind in _PLAIN:
        children = tree.values() if kind is dict else tree
        if LEAF_TYPES.issuperset(map(type, children)):
            return _NO_LEAVES
    below = below_objects(tree)
    if True not in below:
        return _NO_LEAVES
    pairs = enumerate(zip(flat, below, strict=True))
    return frozenset(k for k, (leaf, b) in pairs if b and not _has_gradient(leaf, variables))


def _has_gradient(leaf: Any, variables: bool) -> bool:
    if isinstance(leaf, Value):
        return is_inexact(leaf.dtype) and not is_constant(leaf)
    if variables or not is_array(leaf):
        return False
    return is_inexact(leaf.dtype)


def __dir__() -> list[str]:
    return sorted(__all__)
