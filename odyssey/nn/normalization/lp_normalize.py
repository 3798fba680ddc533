"""Normalization of vectors by their p-norm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.autocasting import widened_half
from odyssey.checks import check_number
from odyssey.devices.half_dtypes import is_half
from odyssey.errors import DTypeError, SettingError
from odyssey.nn.distances import p_norm
from odyssey.nn.shared import as_operand
from odyssey.ops.elementwise.arithmetic import div, maximum
from odyssey.ops.structure.shape import astype, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


@composite(
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=-1, p=1),
        sample((3, 2), axis=0, p=3.5),
        sample((2, 3, 2), p=math.inf, eps=0.5),
        sample((4,), axis=0),
        sample((0, 3)),
    ],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((2, 3), p=0.5, error=SettingError, match="p=0.5"),
        reject(np.ones((1, 2), complex), error=DTypeError, match="real numbers"),
    ],
)
def normalize(x: Any, *, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Any:
    """Normalize vectors to p-norm 1.

    Args:
        x: Real vectors along ``axis``.
        p: The order of the norm, from 1 to infinity.
        axis: The axis of the vectors.
        eps: The least norm; shorter vectors are divided by it.

    Raises:
        ShapeError: If the axis does not exist.
        SettingError: If ``p`` is below 1.

    >>> normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = widened_half(as_operand("normalize", "x", x))
    if x.dtype.kind == "c":
        raise DTypeError(f"normalize: x is of {x.dtype}; pass real numbers")
    eps = check_number("normalize", "eps", eps, "[0, inf)")
    p = check_number("normalize", "p", p, "[1, inf]")
    (k,) = normalize_axes("normalize", axis, len(shape_of(x)))
    if is_half(x.dtype):
        single = astype(x, np.float32)
        found = normalize(single, p=p, axis=axis, eps=eps)
        return astype(found, x.dtype)
    x = astype(x, np.float64) if x.dtype.kind in "biu" else x
    return div(x, maximum(p_norm(x, p, k, flat=True), eps))


publish(globals())
