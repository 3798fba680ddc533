"""How many elements a fold takes together, and giving each what came of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.structure.shape import broadcast_to, repeated, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.shape_rules import folded_axes, reduced_shape

__all__ = ["count", "spread"]

# Up to so many elements a copy takes a quarter of the time in which NumPy makes a view.
_FEW = 2048


def count(spec: Spec, axis: Any) -> int:
    """How many elements of ``spec`` a reduction over ``axis`` folds into one."""
    length = 1
    for k in folded_axes("mean", axis, spec.ndim):
        length *= spec.shape[k]
    return length


def spread(g: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    """Give a reduced value the shape that it was reduced from, repeating it."""
    folded = not keepdims and g.ndim > 0
    if type(g) is np.ndarray or isinstance(g, np.number):
        g = g.reshape(_unfolded(x_spec.shape, axis)) if folded else g
        if x_spec.size > _FEW:
            return repeated(g, x_spec.shape)
        out = np.empty(x_spec.shape, g.dtype)
        out[...] = g
        return out
    g = reshape(g, _unfolded(x_spec.shape, axis)) if folded else g
    return broadcast_to(g, x_spec.shape)


def _unfolded(shape: Shape, axis: Any) -> Shape:
    """The shape of a reduction that keeps the axes which it folds."""
    if type(axis) is int and shape:  # a third of the time
        k = axis % len(shape)
        return (*shape[:k], 1, *shape[k + 1 :])
    return reduced_shape("spread", shape, axis, True, lone=True)
