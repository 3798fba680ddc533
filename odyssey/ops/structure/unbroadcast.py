"""Sum-to-shape and cast of cotangents, undoing broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.elementwise.complex_numbers import real
from odyssey.ops.reductions.reduce import column_sums, sum_to
from odyssey.ops.structure.shape import astype, broadcast_to
from odyssey.spec import Spec
from odyssey.table.declare import OPS

__all__ = ["broadcast_tangent", "unbroadcast"]

_sum_to = OPS["sum_to"]


def unbroadcast(g: Any, spec: Spec) -> Any:
    """Sum a cotangent over broadcast axes, and cast it to the dtype of ``spec``."""
    shape = g.shape
    if shape != spec.shape:
        bias = len(shape) == 2 and shape[1:] == spec.shape  # the most common case
        if bias and type(g) is np.ndarray and g.dtype is spec.dtype:
            return column_sums(g)
        try:
            # The op call would take as long as the sum.
            g = (_sum_to.kernel if type(g) is np.ndarray else sum_to)(g, spec.shape)
        except ShapeError:
            raise ShapeError(
                f"a gradient of shape {shape} came for a value of {spec.shape}"
            ) from None
    if g.dtype != spec.dtype:
        if g.dtype.kind == "c" and spec.dtype.kind != "c":
            g = real(g)
        g = astype(g, spec.dtype)
    return g


def broadcast_tangent(t: Any, spec: Spec) -> Any:
    """Broadcast and cast a tangent to the shape and dtype of the result."""
    if t.shape != spec.shape:
        t = broadcast_to(t, spec.shape)
    if t.dtype != spec.dtype:
        t = astype(real(t) if t.dtype.kind == "c" and spec.dtype.kind != "c" else t, spec.dtype)
    return t
