"""Counting and weighing what falls into bins: differentiable in the weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import shown, whole
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import div, sub
from odyssey.ops.elementwise.choice import greater_equal, less_equal, logical_or, where
from odyssey.ops.reductions.interpolation import searchsorted
from odyssey.ops.reductions.reduce import all, sum
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.gathering import add_taken, check_indices
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.shape import as_operand, astype, reshape
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.scope import recording_of
from odyssey.table.store import numbers_of
from odyssey.table.value import CONSTANT, Symbol, Value, free_id, make_value

_DOUBLE, _WHOLE = np.dtype(np.float64), np.dtype(np.intp)


def _known(who: str, name: str, x: Any) -> Array:
    """What decides the bins, and so must have values."""
    if isinstance(x, Symbol):
        raise DTypeError(
            f"{who}: {name} has no values while a graph is traced, but bins hang on them; pass it "
            "as an array"
        )
    return numbers_of(who, x) if isinstance(x, Value) else as_array(who, name, x)


def _counts(x: Any, places: Array, length: int) -> Any:
    """How many places there are of each number below ``length``; a Variable for a Variable."""
    if not isinstance(x, Value):
        return np.bincount(places.astype(np.intp, copy=False), minlength=length)
    number = make_value(type(x), places, CONSTANT, free_id())
    return add_taken(np.ones(places.size, np.intp), number, spec=Spec((length,), _WHOLE))


@composite(
    numpy=[np.bincount],
    samples=[
        sample(np.array([0, 2, 2, 1]), (4,)),
        sample(np.array([3, 3]), (2,), minlength=6),
        sample(np.array([0, 2, 2])),
        sample(np.zeros(0, int), minlength=2),
    ],
    rejects=[
        reject(np.array([[0]]), match="on one axis"),
        reject(np.array([0, -1]), match="no negative"),
        reject(np.array([0, 1]), (3,), match="as many weights"),
        reject(np.array([0.5]), error=DTypeError, match="pass integers"),
    ],
)
def bincount(x: Any, weights: Any = None, minlength: int = 0, *, tape: Any = None) -> Any:
    """How often each number comes, or what weighs all that bears it.

    Args:
        x: Integers on one axis, none of them negative; static in a graph.
        weights: What each weighs, differentiable; by default each counts 1.
        minlength: How long the result is at least; else as the largest number asks for.
        tape: The tape to record on.

    Returns:
        Counts; or sums of weights in double precision, made in their order.

    Raises:
        ShapeError: for negative numbers, other shapes, and too few or many weights.
        DTypeError: for what is not integers, and complex weights.

    >>> bincount(np.array([0, 2, 2]), np.array([1.0, 0.5, 0.25]))
    array([1.  , 0.  , 0.75])
    """
    places = _known("bincount", "x", x)
    check_indices("bincount", places)
    if places.ndim != 1:
        raise ShapeError(f"bincount: x has shape {places.shape}; pass numbers on one axis")
    if places.size and places.min() < 0:
        raise ShapeError(f"bincount: x has {places.min()}; there are no negative bins")
    least = whole("bincount", "minlength", minlength, 0)
    length = max(least, int(places.max()) + 1 if places.size else 0)
    if weights is None:
        return _counts(x, places, length)
    weights = as_operand("bincount", "weights", weights)
    if weights.shape != places.shape:
        raise ShapeError(
            f"bincount: weights {weights.shape} for x {places.shape}; pass as many weights"
        )
    return _sums("bincount", weights, places, length, tape)


def _sums(who: str, weights: Any, places: Array, length: int, tape: Any) -> Any:
    if weights.dtype.kind == "c":
        raise DTypeError(f"{who}: weights of {weights.dtype}; pass real numbers")
    wide = weights if weights.dtype == _DOUBLE else astype(weights, _DOUBLE, tape=tape)
    return add_taken(wide, places, spec=Spec((length,), _DOUBLE), tape=tape)


# ------------------------------------------------------------------ histograms


class Histogram(NamedTuple):
    """What falls into bins, and where the bins begin and end."""

    hist: Any
    bin_edges: Any


_SPREAD = np.array([0.1, -1.5, 0.7, 0.7, 2.0, 1.2])


@composite(
    numpy=[np.histogram],
    samples=[
        sample(_SPREAD, bins=4),
        sample(_SPREAD, weights=np.array([1.0, 2.0, 0.5, -1.0, 0.25, 3.0]), bins=3, density=True),
        sample(_SPREAD.reshape(2, 3), bins=[-1.0, 0.0, 0.7, 2.0]),
        sample(_SPREAD, bins=2, range=(0.0, 1.0), density=True),
        sample(np.zeros(0), bins=2),
    ],
    rejects=[
        reject((3,), weights=np.ones(2), match="as many weights"),
        reject((3,), bins=0, match="bins"),
        reject((3,), bins=[1.0, 0.0], match="bins"),
        reject((3,), range=(1.0, 0.0), match="range"),
        reject(np.zeros(3, complex), error=DTypeError, match="real numbers"),
        reject((3,), bins=[0.0, 1.0j], error=DTypeError, match="real numbers"),
    ],
)
def histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: bool | None = None,
    weights: object = None,
    *,
    tape: Any = None,
) -> Any:
    """What falls into each of some bins: counted, or weighed.

    Args:
        a: Numbers, whose bins are constants: there is no gradient in them; static in a graph.
        bins: How many of one width, a rule of NumPy's for that, or where they begin and end;
            constants too.
        range: From where to where; by default from the least number to the largest.
        density: Whether to give the share in each bin over its width, as of a density.
        weights: What each number weighs, differentiable; by default each counts 1.
        tape: The tape to record on.

    Returns:
        ``hist`` and ``bin_edges``. All bins but the last leave out their end.

    Raises:
        ShapeError: for bins that do not rise, and too few or many weights.
        DTypeError: for complex numbers and bins, which have no order, and for bins that a tape
            follows, whose gradient would be lost.

    >>> histogram(np.array([0.0, 1.0, 1.0, 3.0]), 3).hist
    array([1, 2, 1])
    """
    numbers = _known("histogram", "a", a)
    if isinstance(bins, Value) and recording_of("histogram", bins) is not None:
        raise DTypeError(
            f"histogram: bins is {shown(bins)}, but bins are constants; pass bins.detach()"
        )
    bins = _plain(bins)
    _check_real(numbers, bins)
    plain = None
    if weights is not None:
        weighing = as_operand("histogram", "weights", weights)
        if weighing.shape != numbers.shape:
            raise ShapeError(
                f"histogram: weights {weighing.shape} for a {numbers.shape}; pass as many weights"
            )
        plain = None if isinstance(weighing, Symbol) else _plain(weighing)
    edges = np.histogram_bin_edges(numbers, bins, range, plain)
    flat = numbers.reshape(-1)
    places = np.searchsorted(edges, flat, "right") - 1
    places[flat == edges[-1]] = len(edges) - 2
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    count = len(edges) - 1
    if weights is None:
        hist = _counts(a, places[inside], count)
    else:
        own = reshape(weighing, -1, tape=tape)
        own = own if inside.all() else getitem(own, inside, tape=tape)
        hist = add_taken(own, places[inside], spec=Spec((count,), own.dtype), tape=tape)
    if density:
        shares = div(hist, np.diff(edges), tape=tape)
        hist = div(shares, sum(hist, tape=tape), tape=tape)
    return Histogram(hist, edges)


def _check_real(numbers: Any, bins: Any) -> None:
    for what, came in (("a", numbers), ("bins", np.asarray(bins))):
        if came.dtype.kind == "c":
            raise DTypeError(
                f"histogram: {what} is {came.dtype}; bins hold real numbers, such as the real "
                "part or the absolute value"
            )


def _plain(x: Any) -> Any:
    return numbers_of("histogram", x)


# ------------------------------------------------------------------ the number of a bin


def _bins_spec(x: Spec, bins: Spec, right: bool) -> Spec:
    if bins.ndim != 1:
        raise ShapeError(f"digitize: bins have shape {bins.shape}; pass them on one axis")
    if "c" in (x.dtype.kind, bins.dtype.kind):
        raise DTypeError(f"digitize: x is {x.dtype} and bins {bins.dtype}; they are real numbers")
    return Spec(x.shape, _WHOLE)


def _digitize(x: Any, bins: Any, right: bool) -> Any:
    x, bins = np.asarray(x), np.asarray(bins)
    _bins_spec(Spec(x.shape, x.dtype), Spec(bins.shape, bins.dtype), right)
    side = "left" if right else "right"
    if (bins[1:] >= bins[:-1]).all():
        return np.searchsorted(bins, x, side)
    if not (bins[1:] <= bins[:-1]).all():
        raise ShapeError(f"digitize: bins {bins.tolist()} must rise or fall")
    return len(bins) - np.searchsorted(bins[::-1], x, side)


def _both_ways(bins: Any) -> tuple[Any, Any]:
    """Whether bins rise, and whether they fall."""
    ends, starts = getitem(bins, slice(1, None)), getitem(bins, slice(None, -1))
    return all(greater_equal(ends, starts)), all(less_equal(ends, starts))


def _digitize_in_ops(x: Any, bins: Any, right: bool) -> Any:
    side = "left" if right else "right"
    rising, _ = _both_ways(bins)
    fallen = sub(bins.shape[0], searchsorted(flip(bins), x, side))
    return where(rising, searchsorted(bins, x, side), fallen)


@op(
    kernel=_digitize,
    decomposition=_digitize_in_ops,
    requires=lambda x, bins, right: [logical_or(*_both_ways(bins))],
    infer=_bins_spec,
    samples=[
        sample(_SPREAD.reshape(2, 3), np.array([-1.0, 0.0, 1.0])),
        sample(np.array([0.0, 1.0, 5.0]), np.array([0.0, 1.0]), right=True),
        sample(np.array([0.0, 1.0, 5.0]), np.array([4.0, 1.0, 0.0])),
        sample(np.array([0.0, 1.0]), np.array([4.0, 1.0]), right=True),
        sample(np.array(1.0), np.zeros(0)),
    ],
    rejects=[
        reject((2,), np.array([0.0, 2.0, 1.0]), match="rise or fall"),
        reject((2,), np.zeros((2, 2)), match="on one axis"),
    ],
)
def bin_numbers(x: Any, bins: Any, /, *, right: bool = False) -> Any:
    """``digitize``, of arrays alone."""
    return _digitize(x, bins, right)


@composite(
    numpy=[np.digitize],
    samples=[
        sample(_SPREAD.reshape(2, 3), np.array([-1.0, 0.0, 1.0])),
        sample(np.array([0.0, 1.0, 5.0]), np.array([0.0, 1.0]), right=True),
        sample(np.array([0.0, 1.0, 5.0]), np.array([4.0, 1.0, 0.0])),
        sample(np.array([0.0, 1.0]), np.array([4.0, 1.0]), right=True),
        sample(np.array(1.0), np.zeros(0)),
    ],
    rejects=[
        reject((2,), np.array([0.0, 2.0, 1.0]), match="rise or fall"),
        reject((2,), np.zeros((2, 2)), match="on one axis"),
    ],
)
def digitize(x: Any, bins: Any, right: bool = False, *, tape: Any = None) -> Any:
    """The number of the bin into which each element falls; a constant.

    Args:
        x: Array of real numbers.
        bins: Where bins begin and end, rising or falling.
        right: Whether a bin has its right end and not its left one.
        tape: The tape to record on.

    Raises:
        ShapeError: for bins that neither rise nor fall.

    >>> digitize(np.array([0.5, 2.5]), np.array([0.0, 1.0, 2.0]))
    array([1, 3])
    """
    return bin_numbers(x, bins, right=right, tape=tape)


publish(globals())
