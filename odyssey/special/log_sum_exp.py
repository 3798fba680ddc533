"""Weighted logsumexp, as SciPy's logsumexp with ``b=``."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo, is_half, result_type
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


def _weight_dtypes(b: Any) -> list[Any]:
    """Return the dtype of weights in a list, empty for a Python number."""
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
    x: Any, b: Any, axis: Any = None, *, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Logarithm of the sum of ``b * exp(x)`` over ``axis``, without overflow.

    Args:
        x: The exponents.
        b: Weights, which may be negative. If one is 0, ``x`` is ignored there.
        axis: One axis or several of the broadcast shape; None for all.
        keepdims: Whether reduced axes are kept with length 1.
        return_sign: Whether to return the sign of the sum too, with the logarithm of its absolute
            value.

    Returns:
        The logarithm, NaN if the sum is negative; or the pair of logarithm and sign.

    Raises:
        DTypeError: if ``x`` or ``b`` is complex.
        ShapeError: if ``x`` and ``b`` do not broadcast, or an axis does not fit.

    >>> weighted_logsumexp(np.array([[999.0, 999.0]]), np.array([3.0, -1.0]), 1).round(6)
    array([999.693147])
    """
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if x.dtype.kind == "c" or getattr(b, "dtype", x.dtype).kind == "c":
        raise DTypeError(
            "weighted_logsumexp: needs real numbers; of complex ones take log(sum(b * exp(x)))"
        )
    dtype = result_type(np.float64 if x.dtype.kind in "biu" else x.dtype, *_weight_dtypes(b))
    single = np.dtype(np.float32) if is_half(dtype) else dtype  # float16 sums stop at 2048
    x = x if x.dtype == single else astype(x, single)
    x_shape, b_shape = shape_of(x), shape_of(b)
    try:
        shape = np.broadcast_shapes(x_shape, b_shape)
    except ValueError:
        shapes = f"x {x_shape}, b {b_shape}"
        raise ShapeError(f"weighted_logsumexp: shapes do not broadcast, {shapes}") from None
    zero_weight = equal(b, 0)
    weighted = where(zero_weight, -np.inf, x)
    top: Any = 0.0
    if reduction_size(Spec(shape, x.dtype), axis):
        top = max(weighted, axis, keepdims=True)
        top = where(isfinite(top), top, 0)
    shifted = sub(x, top)
    # Elements of weight 0 may exceed the maximum of the others.
    limit = float(np.log(finfo(x.dtype).max))
    shifted = where(zero_weight, minimum(shifted, limit), shifted)
    terms = mul(b, exp(shifted))
    total = sum(terms, axis, keepdims=keepdims)
    top = reshape(top, shape_of(total)) if shape_of(top) else top
    size = log(absolute(total) if return_sign else total)
    results = [add(size, top), *([sign(total)] if return_sign else [])]
    if single != dtype:
        results = [astype(result, dtype) for result in results]
    return tuple(results) if return_sign else results[0]


publish(globals())
