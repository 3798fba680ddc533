"""Distances and cosine similarity of vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.autocasting import widened_half
from odyssey.checks import check_flag, check_number
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import finfo, is_half
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.norms import euclidean_norm
from odyssey.nn.shared import as_operand
from odyssey.ops.elementwise.arithmetic import add, div, maximum, mul, square, sub
from odyssey.ops.elementwise.choice import equal, greater, isfinite, logical_and, where
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.complex_numbers import absolute
from odyssey.ops.elementwise.elementary import exp2, log2, power, sqrt
from odyssey.ops.elementwise.rounding import floor
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.shape import (
    astype,
    broadcast_to,
    expand_dims,
    shape_of,
    squeeze,
)
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import Symbol, Value


def _as_real_floating(who: str, name: str, x: Any) -> Any:
    x = x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)
    if x.dtype.kind == "c":
        raise DTypeError(f"{who}: {name} is of {x.dtype}; pass real numbers")
    return astype(x, np.float64) if x.dtype.kind in "biu" else widened_half(x)


def _power_of_two_scale(x: Any, axis: int) -> Any:
    """Return a power of 2 close to the largest element, which keeps squares in range.

    It is a constant to derivatives, as the floor is, and dividing by it rounds nothing.
    """
    if not x.shape[axis]:
        return np.ones((*x.shape[:axis], 1, *x.shape[axis + 1 :]), x.dtype)
    top = max(absolute(x), axis, keepdims=True)
    usual = logical_and(isfinite(top), greater(top, 0))
    steps = floor(log2(where(usual, top, 1)))
    # Beyond these the power, or its inverse, is no number of the dtype.
    limits = finfo(x.dtype)
    return exp2(clip(steps, limits.minexp, limits.maxexp - 1))


def _safe_sqrt(total: Any) -> Any:
    """Return the square root; if that is 0, so are its derivatives."""
    zero = equal(total, 0)
    return where(zero, 0, sqrt(where(zero, 1, total)))


@composite(
    samples=[
        sample((2, 3), (2, 3)),
        sample((3, 2), (2,), axis=-1),
        sample((3, 2), (3, 1), axis=0),
        sample((3,), (3,), eps=2.5),
        sample((0, 2), (2,)),
    ],
    rejects=[
        reject((2, 3), (2, 4), match="do not broadcast"),
        reject((2, 3), (2, 3), axis=2, match="does not fit"),
        reject(np.ones(2, complex), (2,), error=DTypeError, match="real numbers"),
    ],
)
def cosine_similarity(x1: Any, x2: Any, *, axis: int = -1, eps: float = 1e-8) -> Any:
    """Cosine similarity: the dot product of vectors over the product of their lengths.

    Args:
        x1: Real vectors along ``axis``.
        x2: Vectors that broadcast with x1.
        axis: The axis of the vectors in the broadcast shape.
        eps: The least length; shorter vectors are divided by it.

    Returns:
        Numbers from -1 to 1, without ``axis``; exact for vectors of any length.

    Raises:
        ShapeError: If shapes do not broadcast.
        DTypeError: For complex numbers.

    >>> cosine_similarity(np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([0.0, 2.0]))
    array([0. , 0.8])
    """
    who = "cosine_similarity"
    eps = check_number(who, "eps", eps, "[0, inf)")
    x1, x2 = _broadcast_pair(who, x1, x2)
    (k,) = normalize_axes(who, axis, len(x1.shape))
    if _common_half(x1, x2) is not None:
        half = x1.dtype
        least = float(finfo(half).tiny) * (eps > 0)  # of slopes that it can hold
        x1, x2 = (astype(x, np.float32) for x in (x1, x2))
        return astype(_cosine_similarity(x1, x2, k, float(np.maximum(eps, least))), half)
    return _cosine_similarity(x1, x2, k, eps)


def _cosine_similarity(x1: Any, x2: Any, k: int, eps: float) -> Any:
    directions = []
    for x in (x1, x2):
        size = _power_of_two_scale(x, k)
        near = div(x, size)
        total = sum(square(near), k, keepdims=True)
        # Where eps is 0 in the dtype, as that of half precision, zeros would have no length.
        least = np.maximum(eps, finfo(x.dtype).tiny * (eps > 0))
        length = maximum(_safe_sqrt(total), div(float(least), size))
        directions.append(div(near, length))
    return sum(mul(*directions), k)


@composite(
    samples=[
        sample((2, 3), (2, 3)),
        sample((3, 2), (2,), p=1),
        sample((2, 3), (2, 3), p=3.5, keepdims=True),
        sample((2, 3), (3,), p=math.inf),
        sample((3,), (3,), eps=0.0),
        sample((2, 3), (3,), eps=0.5, squared=True),
        sample((2, 0), (2, 0)),
    ],
    rejects=[
        reject((2, 3), (2, 4), match="do not broadcast"),
        reject((), (), match="a vector"),
        reject((2,), (2,), p=-1, error=SettingError, match="p=-1"),
        reject((2,), (2,), p=1, squared=True, error=SettingError, match="needs p=2"),
    ],
)
def pairwise_distance(
    x1: Any,
    x2: Any,
    *,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdims: bool = False,
    squared: bool = False,
) -> Any:
    """Distance of vectors along the last axis: ``sum(|x1 - x2 + eps|**p)**(1 / p)``.

    The derivative is 0 where the distance is 0; ``eps`` keeps equal vectors from that. For p = 2
    the second derivative there is NaN, also that of its square. With ``squared`` no root is taken,
    and all derivatives are right everywhere.

    Args:
        x1: Real vectors.
        x2: Vectors that broadcast with x1.
        p: The order of the norm, from 1 to infinity.
        eps: The summand of each difference.
        keepdims: Keep the last axis, with length 1.
        squared: Return squared Euclidean distances, ``sum((x1 - x2 + eps)**2)``.

    Raises:
        ShapeError: If shapes do not broadcast.
        SettingError: If ``p`` is below 1, or is not 2 with ``squared``.

    >>> pairwise_distance(np.array([[3.0, 0.0], [1.0, 1.0]]), np.array([0.0, 4.0]), eps=0.0)
    array([5.        , 3.16227766])
    """
    who = "pairwise_distance"
    p, eps = _check_order(who, p, squared), check_number(who, "eps", eps)
    x1, x2 = _broadcast_pair(who, x1, x2)
    if not x1.shape:
        raise ShapeError(f"{who}: numbers came; pass a vector or more, along the last axis")
    length = _squared_distance(x1, x2, eps) if squared else _distance(x1, x2, p, eps)
    return length if keepdims else squeeze(length, -1)


def _check_order(who: str, p: float, squared: bool) -> float:
    """Return the order of a norm as a number; squares are those of the Euclidean norm."""
    p = check_number(who, "p", p, "[1, inf]")
    if check_flag(who, "squared", squared) and p != 2:
        raise SettingError(f"{who}: squared=True needs p=2, and p={p} came; leave p out")
    return p


def _common_half(x1: Any, x2: Any) -> Any:
    """Return the half-precision dtype of both operands, or None."""
    return x1.dtype if is_half(x1.dtype) and x1.dtype == x2.dtype else None


def _squared_distance(x1: Any, x2: Any, eps: float) -> Any:
    """Return squared Euclidean distances along the last axis, which is kept."""
    half = _common_half(x1, x2)  # sums of many squares would lose digits
    if half is not None:
        x1, x2 = (astype(x, np.float32) for x in (x1, x2))
    total = sum(square(add(sub(x1, x2), eps) if eps else sub(x1, x2)), -1, keepdims=True)
    return total if half is None else astype(total, half)


def flat_distance(x1: Any, x2: Any, p: float, eps: float) -> Any:
    """Distance of vectors along the last axis, whose second derivative at 0 is 0.

    It is for losses that are linear in the distance: at 0 they have a kink, as ``absolute`` has.
    """
    return squeeze(_distance(x1, x2, p, eps, flat=True), -1)


def _distance(
    x1: Any, x2: Any, p: float, eps: float, constant: Any = None, flat: bool = False
) -> Any:
    """Return distances along the last axis, which is kept; 0 where a mask says ``constant``."""
    half = _common_half(x1, x2)  # squares of float16 end at 65,504, their sums at 2048
    if half is not None:
        x1, x2 = (astype(x, np.float32) for x in (x1, x2))
    apart = add(sub(x1, x2), eps)
    if constant is not None:
        apart = where(constant, 1, apart)
    length = p_norm(apart, p, len(apart.shape) - 1, flat)
    if constant is not None:
        length = where(constant, 0, length)
    return length if half is None else astype(length, half)


def p_norm(x: Any, p: float, axis: int, flat: bool = False) -> Any:
    """Return the p-norm along an axis that is kept; if it is 0, so is its derivative.

    The second derivative of a Euclidean norm of 0 is infinite. In that of its square it is
    multiplied by 0, whose limit the chain rule does not give: it is NaN; but 0 if ``flat``, for a
    norm that nothing reads where it is 0.
    """
    if p == 1 or not x.shape[axis]:
        return sum(absolute(x), axis, keepdims=True)
    if p == math.inf:
        return max(absolute(x), axis, keepdims=True)
    size = _power_of_two_scale(x, axis)
    near = div(x, size)
    if p == 2:
        if flat:
            return mul(_safe_sqrt(sum(square(near), axis, keepdims=True)), size)
        return mul(euclidean_norm(near, axis, keepdims=True), size)
    total = sum(power(absolute(near), p), axis, keepdims=True)
    zero = equal(total, 0)
    return mul(where(zero, 0, power(where(zero, 1, total), 1 / p)), size)


def _broadcast_pair(who: str, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return both as real floating arrays of one shape."""
    x1, x2 = _as_real_floating(who, "x1", x1), _as_real_floating(who, "x2", x2)
    if x1.shape == x2.shape:
        return x1, x2
    try:
        shape = np.broadcast_shapes(x1.shape, x2.shape)
    except ValueError:
        raise ShapeError(
            f"{who}: x1 {x1.shape} and x2 {x2.shape} do not broadcast; "
            "from the right, sizes must be equal or one of them 1"
        ) from None
    return broadcast_to(x1, shape), broadcast_to(x2, shape)


@composite(
    samples=[
        sample((2, 3), (4, 3)),
        sample((2, 1, 3), (2, 2, 3), p=1),
        sample((2, 3), (3, 4, 3), p=3.5),
        sample((2, 2), (1, 2), p=math.inf),
        sample((0, 2), (3, 2)),
        sample((2, 1, 3), (4, 3), squared=True),
    ],
    rejects=[
        reject((2, 3), (2, 4), match="do not broadcast"),
        reject((3,), (2, 3), match="sets of vectors"),
        reject((2, 3), (2, 3), p=0, error=SettingError, match="p=0"),
        reject((2, 3), (2, 3), p=1, squared=True, error=SettingError, match="needs p=2"),
    ],
)
def cdist(x1: Any, x2: Any, *, p: float = 2.0, squared: bool = False) -> Any:
    """Pairwise distances between two sets of vectors.

    The derivative is 0 where the distance is 0. For p = 2 the second derivative there is NaN, also
    that of its square, except between each vector of one set and itself, ``cdist(x, x)``, where it
    is 0. With ``squared`` no root is taken, and all derivatives are right everywhere: write
    ``exp(-cdist(x, y, squared=True))`` for a kernel.

    Args:
        x1: Real vectors, (..., n, d).
        x2: Others, (..., m, d).
        p: The order of the norm, from 1 to infinity.
        squared: Return squared Euclidean distances.

    Returns:
        An array (..., n, m).

    Raises:
        ShapeError: If shapes do not broadcast.
        SettingError: If ``p`` is below 1, or is not 2 with ``squared``.

    >>> cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[5., 1.]])
    >>> cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]), squared=True)
    array([[25.,  1.]])
    """
    same = x1 is x2 and isinstance(x1, (Value, Symbol))
    x1, x2 = as_operand("cdist", "x1", x1), as_operand("cdist", "x2", x2)
    if min(len(shape_of(x1)), len(shape_of(x2))) < 2:
        raise ShapeError(
            f"cdist: x1 {shape_of(x1)} and x2 {shape_of(x2)}; "
            "wanted are sets of vectors, (..., n, d)"
        )
    p = _check_order("cdist", p, squared)
    x1, x2 = expand_dims(x1, -2), expand_dims(x2, -3)
    if squared or not same:
        return pairwise_distance(x1, x2, p=p, eps=0.0, squared=squared)
    itself = np.eye(shape_of(x1)[-3], dtype=bool)[..., None]
    return squeeze(_distance(*_broadcast_pair("cdist", x1, x2), p, 0.0, itself), -1)


@composite(
    samples=[
        sample((4, 3)),
        sample((3, 2), p=1),
        sample((3, 2), p=3.5),
        sample((1, 3)),
        sample((3, 2), squared=True),
    ],
    rejects=[
        reject((3,), match="a matrix"),
        reject((2, 3), p=0, error=SettingError, match="p=0"),
        reject((2, 3), p=1, squared=True, error=SettingError, match="needs p=2"),
    ],
)
def pdist(x: Any, *, p: float = 2.0, squared: bool = False) -> Any:
    """Pairwise distances between the rows of a matrix.

    The derivative is 0 where the distance is 0. For p = 2 the second derivative there is NaN, also
    that of its square. With ``squared`` no root is taken, and all derivatives are right everywhere.

    Args:
        x: Real vectors, (n, d).
        p: The order of the norm, from 1 to infinity.
        squared: Return squared Euclidean distances.

    Returns:
        The distances (0, 1), (0, 2) ... (n - 2, n - 1), as SciPy orders them.

    Raises:
        ShapeError: If x is not a matrix.
        SettingError: If ``p`` is below 1, or is not 2 with ``squared``.

    >>> pdist(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]]))
    array([5., 4., 3.])
    """
    x = as_operand("pdist", "x", x)
    shape = shape_of(x)
    if len(shape) != 2:
        raise ShapeError(f"pdist: x has shape {shape}; wanted is a matrix, (n, d)")
    p = _check_order("pdist", p, squared)
    firsts, seconds = (take(x, rows, 0) for rows in np.triu_indices(shape[0], 1))
    return pairwise_distance(firsts, seconds, p=p, eps=0.0, squared=squared)


publish(globals())
