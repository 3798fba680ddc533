"""Choosing and comparing, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.samples import APART, PAIRS, reject, sample, singles
from odyssey.ops.table import op, publish


@op(
    elementwise=True,
    masks=True,
    numpy=[np.where],
    vjp={
        "x": lambda g, condition: where(condition, g, 0),
        "y": lambda g, condition: where(condition, 0, g),
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


@op(elementwise=True, ufunc=np.equal, samples=PAIRS, rejects=[APART])
def equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x == y``; a constant."""
    return np.equal(x, y)


@op(elementwise=True, ufunc=np.not_equal, samples=PAIRS, rejects=[APART])
def not_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x != y``; a constant."""
    return np.not_equal(x, y)


@op(elementwise=True, ufunc=np.greater, samples=PAIRS, rejects=[APART])
def greater(x: Any, y: Any, /) -> Any:
    """Elementwise ``x > y``; a constant."""
    return np.greater(x, y)


@op(elementwise=True, ufunc=np.greater_equal, samples=PAIRS, rejects=[APART])
def greater_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x >= y``; a constant."""
    return np.greater_equal(x, y)


@op(elementwise=True, ufunc=np.less, samples=PAIRS, rejects=[APART])
def less(x: Any, y: Any, /) -> Any:
    """Elementwise ``x < y``; a constant."""
    return np.less(x, y)


@op(elementwise=True, ufunc=np.less_equal, samples=PAIRS, rejects=[APART])
def less_equal(x: Any, y: Any, /) -> Any:
    """Elementwise ``x <= y``; a constant."""
    return np.less_equal(x, y)


@op(elementwise=True, ufunc=np.logical_and, samples=PAIRS, rejects=[APART])
def logical_and(x: Any, y: Any, /) -> Any:
    """Elementwise logical and; a constant."""
    return np.logical_and(x, y)


@op(elementwise=True, ufunc=np.logical_or, samples=PAIRS, rejects=[APART])
def logical_or(x: Any, y: Any, /) -> Any:
    """Elementwise logical or; a constant."""
    return np.logical_or(x, y)


@op(elementwise=True, ufunc=np.logical_not, samples=singles())
def logical_not(x: Any, /) -> Any:
    """Elementwise logical not; a constant."""
    return np.logical_not(x)


publish(globals())
