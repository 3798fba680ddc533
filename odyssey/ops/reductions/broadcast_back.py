"""Broadcasting of a reduced value back to the shape of the operand."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.structure.shape import broadcast_to, broadcast_view, reshape
from odyssey.spec import Shape, Spec
from odyssey.table.shape_rules import reduced_axes, reduced_shape

__all__ = ["broadcast_back", "reduction_size"]

# Up to this size a copy takes a quarter of the time that NumPy needs to make a view.
_COPY_LIMIT = 2048


def reduction_size(spec: Spec, axis: Any) -> int:
    """Return the number of elements that a reduction over ``axis`` combines into one."""
    length = 1
    for k in reduced_axes("mean", axis, spec.ndim):
        length *= spec.shape[k]
    return length


def broadcast_back(g: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    """Broadcast a reduced value to the shape of the operand it was reduced from."""
    folded = not keepdims and g.ndim > 0
    if type(g) is np.ndarray or isinstance(g, np.number):
        g = g.reshape(_keepdims_shape(x_spec.shape, axis)) if folded else g
        if x_spec.size > _COPY_LIMIT:
            return broadcast_view(g, x_spec.shape)
        out = np.empty(x_spec.shape, g.dtype)
        out[...] = g
        return out
    g = reshape(g, _keepdims_shape(x_spec.shape, axis)) if folded else g
    return broadcast_to(g, x_spec.shape)


def _keepdims_shape(shape: Shape, axis: Any) -> Shape:
    """Return the shape of the reduction with ``keepdims=True``."""
    if type(axis) is int and shape:  # takes a third of the time
        k = axis % len(shape)
        return (*shape[:k], 1, *shape[k + 1 :])
    return reduced_shape("spread", shape, axis, True, lone=True)
