"""Comparison, logic, bitwise operations and selection."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample, singles


@op(
    elementwise=True,
    selects=True,
    numpy=[np.where],
    scalar=lambda condition, x, y: select(condition != T(0), x, y),
    vjp={
        "x": lambda g, condition: keep_where(g, condition),
        "y": lambda g, condition: keep_where(g, logical_not(condition)),
    },
    kinks="the branch not taken has 0, whatever its value",
    samples=[
        sample(np.array([True, False, True]), (2, 3), (3,)),
        sample(np.array([[True], [False]]), (), (1, 4)),
        sample(np.array(False), (), ()),
    ],
    rejects=[reject(np.array([True, False]), (3,), (3,), match="do not broadcast")],
)
def where(condition: Any, x: Any, y: Any, /) -> Any:
    """Elementwise choice, ``x`` where ``condition`` holds and ``y`` elsewhere."""
    return np.where(condition, x, y)[()]


# For each dtype that rules meet: a zero (with a Python number np.where takes 0.2 us longer) and the
# integer dtype to multiply the bits in. A product by 0 or 1 is exact, for NaN and infinity too.
_KNOWN = {
    np.dtype(c): (np.zeros((), c), None if c == "D" else np.dtype(f"i{np.dtype(c).itemsize}"))
    for c in "efdFD"
}
_BOOL = np.dtype(bool)


# The C function, without NumPy's Python dispatcher for ``__array_function__``.
_where: Any = getattr(np.where, "_implementation", np.where)


def _keep_where(x: Any, condition: Any) -> Any:
    known = _KNOWN.get(x.dtype) if type(x) is np.ndarray else None
    if known is None or not x.ndim:
        return np.where(condition, x, 0)[()]
    if condition is False:
        return np.zeros_like(x)
    zero, bits = known
    # On 256 x 512 elements np.where takes 460 us, this takes 35.
    long = bits is not None and x.size >= 512 and type(condition) is np.ndarray
    if long and condition.shape == x.shape and condition.dtype is _BOOL:
        out = np.empty_like(x)
        np.multiply(x.view(bits), condition, out.view(bits))
        return out
    return _where(condition, x, zero)


@op(
    elementwise=True,
    selects=True,
    kernel=_keep_where,
    scalar=lambda x, condition: select(condition != T(0), x, T(0)),
    decomposition=lambda x, condition: where(condition, x, 0),
    vjp={"x": lambda g, condition: keep_where(g, condition)},
    kinks="0 where the condition does not hold, whatever is there",
    samples=[
        sample((2, 3), np.array([True, False, True])),
        sample((3,), np.array([[True], [False]])),
        sample((), np.array(True)),
        sample((40, 30), np.arange(1200).reshape(40, 30) % 3 == 0),
    ],
    rejects=[reject((3,), np.array([True, False]), match="do not broadcast")],
)
def keep_where(x: Any, condition: Any, /) -> Any:
    """Elementwise ``x`` where ``condition`` holds, and 0 elsewhere, also for NaN and infinity."""
    return np.where(condition, x, 0)[()]


@op(
    elementwise=True,
    ufunc=np.equal,
    scalar=lambda x, y: x == y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x == y``; a constant."""
    return np.equal(x, y)


@op(
    elementwise=True,
    ufunc=np.not_equal,
    scalar=lambda x, y: x != y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def not_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x != y``; a constant."""
    return np.not_equal(x, y)


@op(
    elementwise=True,
    ufunc=np.greater,
    scalar=lambda x, y: x > y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def greater(x: Any, y: Any, /) -> Any:
    """Elementwise ``x > y``; a constant."""
    return np.greater(x, y)


@op(
    elementwise=True,
    ufunc=np.greater_equal,
    scalar=lambda x, y: x >= y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def greater_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x >= y``; a constant."""
    return np.greater_equal(x, y)


@op(
    elementwise=True,
    ufunc=np.less,
    scalar=lambda x, y: x < y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def less(x: Any, y: Any, /) -> Any:
    """Elementwise ``x < y``; a constant."""
    return np.less(x, y)


@op(
    elementwise=True,
    ufunc=np.less_equal,
    scalar=lambda x, y: x <= y,
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def less_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x <= y``; a constant."""
    return np.less_equal(x, y)


@op(
    elementwise=True,
    ufunc=np.logical_and,
    scalar=lambda x, y: (x != T(0)) & (y != T(0)),
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def logical_and(x: Any, y: Any, /) -> Any:
    """Elementwise logical and; a constant."""
    return np.logical_and(x, y)


@op(
    elementwise=True,
    ufunc=np.logical_or,
    scalar=lambda x, y: (x != T(0)) | (y != T(0)),
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def logical_or(x: Any, y: Any, /) -> Any:
    """Elementwise logical or; a constant."""
    return np.logical_or(x, y)


@op(elementwise=True, ufunc=np.logical_not, scalar=lambda x: x == T(0), samples=singles())
def logical_not(x: Any, /) -> Any:
    """Elementwise logical not; a constant."""
    return np.logical_not(x)


@op(
    elementwise=True,
    ufunc=np.logical_xor,
    scalar=lambda x, y: (x != T(0)) != (y != T(0)),
    samples=PAIRS,
    rejects=[NO_BROADCAST],
)
def logical_xor(x: Any, y: Any, /) -> Any:
    """Elementwise logical exclusive or; a constant."""
    return np.logical_xor(x, y)


def _is_finite(x: Any) -> Any:
    return (abs(x.real) <= T.max) & (abs(x.imag) <= T.max) if T.kind == "c" else abs(x) <= T(T.max)


@op(elementwise=True, ufunc=np.isfinite, scalar=_is_finite, samples=singles())
def isfinite(x: Any, /) -> Any:
    """Elementwise test for a number that is neither infinite nor NaN; a constant."""
    return np.isfinite(x)


@op(elementwise=True, ufunc=np.isnan, scalar=lambda x: x != x, samples=singles())
def isnan(x: Any, /) -> Any:
    """Elementwise test for NaN; a constant."""
    return np.isnan(x)


def _is_infinite(x: Any) -> Any:
    return (abs(x.real) > T.max) | (abs(x.imag) > T.max) if T.kind == "c" else abs(x) > T(T.max)


@op(elementwise=True, ufunc=np.isinf, scalar=_is_infinite, samples=singles())
def isinf(x: Any, /) -> Any:
    """Elementwise test for infinity of either sign; a constant."""
    return np.isinf(x)


# ------------------------------------------------------------------ bitwise operations

BITS = (
    sample(np.array([True, False]), np.array([[True], [False]])),
    sample(np.array([6, 5]), np.array(3)),
)
FLOATS = reject((2,), (2,), error=DTypeError, match="whole numbers and truth")


@op(
    elementwise=True,
    ufunc=np.bitwise_and,
    scalar=lambda x, y: x & y,
    samples=BITS,
    rejects=[FLOATS],
)
def bitwise_and(x: Any, y: Any, /) -> Any:
    """Elementwise ``x & y``: and of booleans, or of the bits of integers; a constant."""
    return np.bitwise_and(x, y)


@op(
    elementwise=True,
    ufunc=np.bitwise_or,
    scalar=lambda x, y: x | y,
    samples=BITS,
    rejects=[FLOATS],
)
def bitwise_or(x: Any, y: Any, /) -> Any:
    """Elementwise ``x | y``: or of booleans, or of the bits of integers; a constant."""
    return np.bitwise_or(x, y)


@op(
    elementwise=True,
    ufunc=np.bitwise_xor,
    scalar=lambda x, y: x ^ y,
    samples=BITS,
    rejects=[FLOATS],
)
def bitwise_xor(x: Any, y: Any, /) -> Any:
    """Elementwise ``x ^ y``: exclusive or of booleans, or of the bits of integers; a constant."""
    return np.bitwise_xor(x, y)


@op(
    elementwise=True,
    ufunc=np.invert,
    scalar=lambda x: x == T(0) if T.kind == "b" else ~x,
    samples=[sample(np.array([True, False])), sample(np.array([[0, 5]]))],
    rejects=[reject((2,), error=DTypeError, match="whole numbers and truth")],
)
def invert(x: Any, /) -> Any:
    """Elementwise ``~x``: not of booleans, or of the bits of integers; a constant."""
    return np.invert(x)


publish(globals())
