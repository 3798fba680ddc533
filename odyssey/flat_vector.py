"""Trees of arrays as one vector, and back, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.devices.same_device import array_copy
from odyssey.errors import ShapeError
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, reshape, shape_of
from odyssey.spec import Spec
from odyssey.table.value import NUMBERS, Traced, Value
from odyssey.tree import paths, unflatten
from odyssey.tree_objects import HOLE

__all__ = ["ravel_tree", "split_vector"]


def ravel_tree(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """See ``odyssey.tree.ravel``."""
    named = list(paths(tree))
    operands = [_leaf_operand(path, leaf) for path, leaf in named]
    specs = [Spec(operand.shape, operand.dtype) for operand in operands]
    is_number = [type(leaf) in NUMBERS for _, leaf in named]
    # Without the leaves: the function that rebuilds the tree keeps no arrays alive.
    skeleton = unflatten(tree, [HOLE] * len(named))
    unravel = partial(_unravel_vector, skeleton, specs, is_number)
    if not specs:
        return np.zeros(0), unravel
    dtype = result_type(*[spec.dtype for spec in specs])
    return concatenate([reshape(_cast(operand, dtype), -1) for operand in operands]), unravel


def _leaf_operand(path: str, leaf: Any) -> Any:
    if isinstance(leaf, (Value, Traced)):
        return leaf
    return as_array("tree.ravel", path or "the tree", leaf)


def _cast(x: Any, dtype: np.dtype[Any]) -> Any:
    return x if x.dtype == dtype else astype(x, dtype)


def _unravel_vector(
    skeleton: Any, specs: Sequence[Spec], is_number: Sequence[bool], vector: Any
) -> Any:
    """Return a tree like the raveled one with the elements of ``vector``, (n,)."""
    has_history = isinstance(vector, (Value, Traced))
    if not has_history:
        vector = as_array("unravel", "the vector", vector)
    sizes = [spec.size for spec in specs]
    if shape_of(vector) != (sum(sizes),):
        raise ShapeError(
            f"unravel: the vector has shape {shape_of(vector)}; this tree has {sum(sizes)} "
            f"elements, so pass one of shape ({sum(sizes)},)"
        )
    leaves = []
    for piece, spec, number in zip(split_vector(vector, sizes), specs, is_number, strict=True):
        if has_history:
            leaves.append(reshape(_cast(piece, spec.dtype), spec.shape))
        else:
            leaf = array_copy(astype(piece, spec.dtype)).reshape(spec.shape)
            leaves.append(leaf.item() if number else leaf)
    return unflatten(skeleton, leaves)


def split_vector(vector: Any, sizes: Sequence[int]) -> list[Any]:
    """Return consecutive sections of a vector, by halves.

    The gradient of one section has the length of what it was taken from. So the gradients of m
    sections of a vector of n elements take O(n log m) instead of O(n m) operations.
    """
    if len(sizes) < 2:
        return [vector] * len(sizes)
    middle = len(sizes) // 2
    left, right = sizes[:middle], sizes[middle:]
    end = sum(left)
    return [
        *split_vector(getitem(vector, slice(0, end)), left),
        *split_vector(getitem(vector, slice(end, None)), right),
    ]


def __dir__() -> list[str]:
    return sorted(__all__)
