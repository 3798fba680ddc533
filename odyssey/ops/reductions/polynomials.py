"""Polynomials, Vandermonde matrices, differences of neighbours and phase unwrapping."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.devices.half_dtypes import can_cast, result_type
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.choice import equal, greater, less, logical_and, where
from odyssey.ops.elementwise.complex_numbers import absolute
from odyssey.ops.elementwise.rounding import mod
from odyssey.ops.reductions.calculus import diff
from odyssey.ops.reductions.cumulative import cumprod, cumsum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import as_operand, astype, broadcast_to, expand_dims, ravel
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


@composite(
    numpy=[np.polyval],
    samples=[
        sample((3,), (2, 3)),
        sample((1,), ()),
        sample((4,), (2,)),
    ],
    rejects=[reject((2, 2), (3,), match="one axis")],
)
def polyval(p: Any, x: Any) -> Any:
    """Value of a polynomial at ``x``, by Horner's rule: ``p[0] x**(n - 1) + ... + p[n - 1]``.

    Args:
        p: The coefficients, highest power first, on one axis.
        x: The points, an array of any shape.

    Returns:
        Values in the shape of ``x``, with gradients in both.

    Raises:
        ShapeError: if ``p`` has more than one axis.

    >>> polyval(np.array([1.0, 0.0, -2.0]), np.array([1.0, 3.0]))
    array([-1.,  7.])
    """
    p, x = as_operand("polyval", "p", p), as_operand("polyval", "x", x)
    if len(p.shape) != 1:
        raise ShapeError(f"polyval: p has shape {p.shape}; pass its coefficients on one axis")
    out = zeros_like(x)
    for k in range(p.shape[0]):
        out = add(mul(out, x), getitem(p, k))
    return out


@composite(
    numpy=[np.vander],
    samples=[
        sample((3,)),
        sample((2,), N=4),
        sample((3,), N=3, increasing=True),
        sample((2,), N=0),
        sample((0,)),
    ],
    rejects=[reject((2, 2), match="one axis"), reject((2,), N=-1, match="negative")],
)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Vandermonde matrix: each row has the powers of one number.

    Args:
        x: Numbers on one axis.
        N: Number of powers, from 0 up; by default the number of elements.
        increasing: Whether the power 0 comes first; otherwise it comes last.

    Raises:
        ShapeError: if ``x`` has more than one axis, or ``N`` is negative.

    >>> vander(np.array([2.0, 3.0]), 3)
    array([[4., 2., 1.],
           [9., 3., 1.]])
    """
    x = as_operand("vander", "x", x)
    if len(x.shape) != 1:
        raise ShapeError(f"vander: x has shape {x.shape}; pass numbers on one axis")
    n = x.shape[0] if N is None else check_int("vander", "N", N)
    if n < 0:
        raise ShapeError(f"vander: N={n} is negative; pass the number of powers")
    x = astype(x, result_type(x.dtype, np.dtype(int)))  # as in NumPy
    ones = np.ones((x.shape[0], min(n, 1)), x.dtype)
    wide = broadcast_to(expand_dims(x, 1), (x.shape[0], max(n - 1, 0)))
    # Products rather than powers: their derivatives at 0 are exact.
    powers = cumprod(concatenate([ones, wide], axis=1), 1)
    return powers if increasing else flip(powers, 1)


# ------------------------------------------------------------------ differences and unwrapping


@composite(
    numpy=[np.ediff1d],
    samples=[
        sample((4,)),
        sample((2, 3)),
        sample((3,), (2,), (1,)),
        sample((2,), to_begin=np.array([1, 2])),
        sample((1,)),
        sample(()),
    ],
)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of neighbours of the flattened array.

    Args:
        ary: Array of any shape.
        to_end: Elements to append to the differences.
        to_begin: Elements to put before the differences.

    >>> ediff1d(np.array([1, 4, 9]), to_begin=np.array([0]))
    array([0, 3, 5])
    """
    flat = ravel(as_operand("ediff1d", "ary", ary))
    parts = [sub(getitem(flat, slice(1, None)), getitem(flat, slice(0, -1)))]
    for place, end in ((0, to_begin), (2, to_end)):
        if end is None:
            continue
        end = ravel(as_operand("ediff1d", "an end", end))
        if not can_cast(end.dtype, flat.dtype):
            raise DTypeError(f"ediff1d: an end of {end.dtype} for differences of {flat.dtype}")
        parts.insert(place, astype(end, flat.dtype))
    return concatenate(parts) if len(parts) > 1 else parts[0]


@composite(
    numpy=[np.unwrap],
    samples=[
        sample((5,), low=-9.0, high=9.0),
        sample((3, 4), axis=0, low=-9.0, high=9.0),
        sample((4,), period=3.0, discont=2.0, low=-9.0, high=9.0),
        sample((1,)),
    ],
    rejects=[reject((), match="does not fit"), reject((3,), axis=1, match="does not fit")],
)
def unwrap(
    p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Any:
    """Unwrap angles along an axis: add periods where neighbours are far apart.

    The periods are constants, so the derivative is that of the angles, 1.

    Args:
        p: Angles, or other periodic values.
        discont: Largest difference left as it is; at least, and by default, half a period.
        axis: The axis.
        period: The period.

    Raises:
        ShapeError: if ``p`` lacks the axis.

    >>> unwrap(np.array([0.0, 2.0, 4.0, 0.0, 2.0]), period=5.0)
    array([0., 2., 4., 5., 7.])
    """
    p = as_operand("unwrap", "p", p)
    (k,) = normalize_axes("unwrap", axis, len(p.shape))
    steps = diff(p, axis=k)
    dtype = result_type(steps.dtype, period)
    half, tie = divmod(period, 2) if dtype.kind in "iu" else (period / 2, 0)
    small = mod(add(steps, half), period)
    small = sub(small, half)
    if tie == 0:  # half a period forward and half a period back are equivalent
        back = logical_and(equal(small, -half), greater(steps, 0))
        small = where(back, half, small)
    added = sub(small, steps)
    least = half if discont is None else discont
    added = where(less(absolute(steps), least), 0, added)
    before = (slice(None),) * k
    first = getitem(p, (*before, slice(0, 1)))
    rest = getitem(p, (*before, slice(1, None)))
    rest = add(rest, cumsum(added, k))
    parts = [astype(part, dtype) for part in (first, rest)]
    return concatenate(parts, axis=k)


publish(globals())
