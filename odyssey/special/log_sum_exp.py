"""Logarithms of weighted sums of exponentials: what SciPy's logsumexp gives for its ``b=``."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, minimum, mul, sub
from odyssey.ops.elementwise.choice import equal, isfinite, where
from odyssey.ops.elementwise.complex_numbers import absolute, sign
from odyssey.ops.elementwise.elementary import exp, log
from odyssey.ops.reductions.broadcast_back import reduction_size
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.shape import astype, reshape, shape_of
from odyssey.spec import Spec
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample

_SIGNED = np.array([[1.0, -0.5, 2.0], [0.25, 3.0, 0.0]])


def _dtypes(b: Any) -> list[Any]:
    """That of weights, if they are more than one number of Python."""
    return [b.dtype] if hasattr(b, "dtype") else [] if np.ndim(b) == 0 else [np.asarray(b).dtype]


@composite(
    samples=[
        sample((2, 3), np.array([1.0, 0.5, 0.0]), 1),
        sample((3,), np.abs(_SIGNED), -1, keepdims=True),
        sample((2, 3), _SIGNED, 0, return_sign=True),
        sample((2, 3), 1.0, keepdims=True, return_sign=True),
        sample((), -2.0, return_sign=True),
    ],
    rejects=[
        reject((2, 3), 1.0, 2, match="does not fit"),
        reject((2, 3), np.ones(2), 1, match="do not broadcast"),
        reject(np.array([1j]), 2.0, 0, error=DTypeError, match="real numbers"),
    ],
)
def weighted_logsumexp(
    x: Any,
    b: Any,
    axis: Any = None,
    *,
    keepdims: bool = False,
    return_sign: bool = False,
    tape: Any = None,
) -> Any:
    """Logarithm of the sum of ``b * exp(x)`` over ``axis``, without overflow.

    Args:
        x: The exponents.
        b: Weights, which may be negative. Where one is 0, ``x`` may be anything.
        axis: One axis or several; None for all of what ``x`` and ``b`` broadcast to.
        keepdims: Whether the axes stay, of length 1.
        return_sign: Whether the sign of the sum is told, and the logarithm is that of its size.
        tape: The tape to record on.

    Returns:
        The logarithm, NaN where the sum is negative; or a pair of it and the sign.

    Raises:
        DTypeError: ``x`` or ``b`` is complex.
        ShapeError: ``x`` and ``b`` do not broadcast, or an axis does not fit.

    >>> weighted_logsumexp(np.array([[999.0, 999.0]]), np.array([3.0, -1.0]), 1).round(6)
    array([999.693147])
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if x.dtype.kind == "c" or getattr(b, "dtype", x.dtype).kind == "c":
        raise DTypeError(
            "weighted_logsumexp: needs real numbers; of complex ones take log(sum(b * exp(x)))"
        )
    dtype = np.result_type(np.float64 if x.dtype.kind in "biu" else x.dtype, *_dtypes(b))
    single = np.dtype(np.float32) if dtype == np.float16 else dtype  # sums of halves stop at 2048
    x = x if x.dtype == single else astype(x, single, tape=tape)
    of_x, of_b = shape_of(x), shape_of(b)
    try:
        shape = np.broadcast_shapes(of_x, of_b)
    except ValueError:
        came = f"x {of_x}, b {of_b}"
        raise ShapeError(f"weighted_logsumexp: shapes do not broadcast, {came}") from None
    nothing = equal(b, 0)
    counted = where(nothing, -np.inf, x, tape=tape)
    top: Any = 0.0
    if reduction_size(Spec(shape, x.dtype), axis):
        top = max(counted, axis, keepdims=True, tape=tape)
        top = where(isfinite(top), top, 0, tape=tape)
    away = sub(x, top, tape=tape)
    # What does not count may be larger than all that does.
    end = float(np.log(np.finfo(x.dtype).max))
    away = where(nothing, minimum(away, end, tape=tape), away, tape=tape)
    terms = mul(b, exp(away, tape=tape), tape=tape)
    total = sum(terms, axis, keepdims=keepdims, tape=tape)
    top = reshape(top, shape_of(total), tape=tape) if shape_of(top) else top
    size = log(absolute(total, tape=tape) if return_sign else total, tape=tape)
    found = [add(size, top, tape=tape), *([sign(total, tape=tape)] if return_sign else [])]
    if single != dtype:
        found = [astype(part, dtype, tape=tape) for part in found]
    return tuple(found) if return_sign else found[0]


publish(globals())
