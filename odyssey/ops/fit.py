"""Bringing a cotangent to the shape and dtype of what it belongs to: the one place that does."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.complex_numbers import real
from odyssey.ops.reductions import sum
from odyssey.ops.shape import astype, broadcast_to, reshape
from odyssey.ops.table import OPS
from odyssey.spec import Spec

__all__ = ["expand", "fit"]

_sum = OPS["sum"]


def fit(g: Any, spec: Spec) -> Any:
    """Sum ``g`` over the axes that broadcasting gave it, and cast it to the dtype of ``spec``."""
    if type(g) is np.ndarray and g.ndim == len(spec.shape) + 1 and g.shape[1:] == spec.shape:
        g = _sum.kernel(g, 0, False)  # the gradient of a bias: no need to find out which axes
        if g.dtype is spec.dtype:
            return g
    elif g.shape != spec.shape:
        extra = g.ndim - len(spec.shape)
        stretched = [
            k
            for k, n in enumerate(g.shape)
            if k < extra or (spec.shape[k - extra] == 1 and n != 1)
        ]
        if extra < 0:
            raise ShapeError(f"a gradient of shape {g.shape} came for a value of {spec.shape}")
        if stretched:
            g = sum(g, tuple(stretched) if len(stretched) > 1 else stretched[0])
        if g.shape != spec.shape:
            g = reshape(g, spec.shape)
    if g.dtype != spec.dtype:
        if g.dtype.kind == "c" and spec.dtype.kind != "c":
            g = real(g)
        g = astype(g, spec.dtype)
    return g


def expand(t: Any, spec: Spec) -> Any:
    """Repeat and cast a tangent to the shape and dtype of the result that it belongs to."""
    if t.shape != spec.shape:
        t = broadcast_to(t, spec.shape)
    if t.dtype != spec.dtype:
        t = astype(real(t) if t.dtype.kind == "c" and spec.dtype.kind != "c" else t, spec.dtype)
    return t
