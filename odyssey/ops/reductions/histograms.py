"""Histograms and bin counts, differentiable in the weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.device_versions import on_host
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
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.scope import recording_of
from odyssey.table.store import numbers_of
from odyssey.table.value import CONSTANT, Symbol, Value, free_id, make_value

_DOUBLE, _WHOLE = np.dtype(np.float64), np.dtype(np.intp)


def _bin_values(who: str, name: str, x: Any) -> Array:
    """Return the values of an operand that determines bins, and so must be known."""
    if isinstance(x, Symbol):
        raise DTypeError(
            f"{who}: {name} has no values {x.graph.phase}, but the bins depend on them; pass it "
            "as an array"
        )
    return numbers_of(who, x) if isinstance(x, Value) else as_array(who, name, x)


def _count_indices(x: Any, places: Array, length: int) -> Any:
    """Return how often each integer below ``length`` occurs; a Variable for a Variable."""
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
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Count of each integer, or the sum of the weights at each integer.

    Args:
        x: Integers on one axis, none of them negative; static in a graph.
        weights: Weight of each integer, differentiable; by default 1.
        minlength: Minimum length of the result.

    Returns:
        Counts; or sums of weights in double precision, added in order.

    Raises:
        ShapeError: for negative numbers, other shapes, or a wrong number of weights.
        DTypeError: if ``x`` has no integer dtype, or the weights are complex.

    >>> bincount(np.array([0, 2, 2]), np.array([1.0, 0.5, 0.25]))
    array([1.  , 0.  , 0.75])
    """
    places = _bin_values("bincount", "x", x)
    check_indices("bincount", places)
    if places.ndim != 1:
        raise ShapeError(f"bincount: x has shape {places.shape}; pass numbers on one axis")
    if places.size and places.min() < 0:
        raise ShapeError(f"bincount: x has {places.min()}; there are no negative bins")
    least = check_int("bincount", "minlength", minlength, 0)
    length = max(least, int(places.max()) + 1 if places.size else 0)
    if weights is None:
        return _count_indices(x, places, length)
    weights = as_operand("bincount", "weights", weights)
    if weights.shape != places.shape:
        raise ShapeError(
            f"bincount: weights {weights.shape} for x {places.shape}; pass as many weights"
        )
    return _sum_weights("bincount", weights, places, length)


def _sum_weights(who: str, weights: Any, places: Array, length: int) -> Any:
    if weights.dtype.kind == "c":
        raise DTypeError(f"{who}: weights of {weights.dtype}; pass real numbers")
    wide = weights if weights.dtype == _DOUBLE else astype(weights, _DOUBLE)
    return add_taken(wide, places, spec=Spec((length,), _DOUBLE))


# ------------------------------------------------------------------ histograms


class Histogram(NamedTuple):
    """Histogram values and bin edges."""

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
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: object = None
) -> Any:
    """Histogram: count, or sum of weights, of the elements in each bin.

    Args:
        a: Numbers, static in a graph; there is no gradient in them.
        bins: Number of bins of equal width, the name of a NumPy rule for it, or the bin edges;
            without a gradient too.
        range: Lower and upper end of the bins; by default the smallest and largest number.
        density: Whether to return a density, whose integral over all bins is 1.
        weights: Weight of each number, differentiable; by default 1.

    Returns:
        ``hist`` and ``bin_edges``. All bins but the last exclude their right edge.

    Raises:
        ShapeError: if bins do not increase, or the number of weights is wrong.
        DTypeError: for complex numbers or bins, which have no order, and for bins with a
            gradient, which would be lost.

    >>> histogram(np.array([0.0, 1.0, 1.0, 3.0]), 3).hist
    array([1, 2, 1])
    """
    numbers = _bin_values("histogram", "a", a)
    if isinstance(bins, Value) and recording_of("histogram", bins) is not None:
        raise DTypeError(
            f"histogram: bins is {format_value(bins)}, but bins are constants; pass bins.detach()"
        )
    bins = _as_plain_array(bins)
    _check_real(numbers, bins)
    plain = None
    if weights is not None:
        weighing = as_operand("histogram", "weights", weights)
        if weighing.shape != numbers.shape:
            raise ShapeError(
                f"histogram: weights {weighing.shape} for a {numbers.shape}; pass as many weights"
            )
        plain = None if isinstance(weighing, Symbol) else _as_plain_array(weighing)
    edges = _bin_edges(numbers, bins, range, plain)
    flat = numbers.reshape(-1)
    places = np.searchsorted(edges, flat, "right") - 1
    places[flat == edges[-1]] = len(edges) - 2
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    count = len(edges) - 1
    if weights is None:
        hist = _count_indices(a, places[inside], count)
    else:
        own = reshape(weighing, -1)
        own = own if inside.all() else getitem(own, inside)
        hist = add_taken(own, places[inside], spec=Spec((count,), own.dtype))
    if density:
        shares = div(hist, np.diff(edges))
        hist = div(shares, sum(hist))
    return Histogram(hist, edges)


def _check_real(numbers: Any, bins: Any) -> None:
    for what, came in (("a", numbers), ("bins", np.asarray(bins))):
        if came.dtype.kind == "c":
            raise DTypeError(
                f"histogram: {what} is {came.dtype}; bins hold real numbers, such as the real "
                "part or the absolute value"
            )


@on_host
def _bin_edges(numbers: Any, bins: Any, limits: Any, weights: Any) -> Any:
    return np.histogram_bin_edges(numbers, bins, limits, weights)


def _as_plain_array(x: Any) -> Any:
    return numbers_of("histogram", x)


# ------------------------------------------------------------------ bin numbers


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


def _bin_directions(bins: Any) -> tuple[Any, Any]:
    """Return whether bins increase, and whether they decrease."""
    ends, starts = getitem(bins, slice(1, None)), getitem(bins, slice(None, -1))
    return all(greater_equal(ends, starts)), all(less_equal(ends, starts))


def _decompose_digitize(x: Any, bins: Any, right: bool) -> Any:
    side = "left" if right else "right"
    rising, _ = _bin_directions(bins)
    fallen = sub(bins.shape[0], searchsorted(flip(bins), x, side))
    return where(rising, searchsorted(bins, x, side), fallen)


def _digitize_batch(batch: Batch, x: Any, bins: Any, right: bool) -> Any:
    return NotImplemented if batch.mapped[1] else bin_numbers(x, bins, right=right)


@op(
    kernel=_digitize,
    decomposition=_decompose_digitize,
    requires=lambda x, bins, right: [logical_or(*_bin_directions(bins))],
    infer=_bins_spec,
    vmap=_digitize_batch,
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
    """Bin numbers as by ``digitize``, for arrays."""
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
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Index of the bin that each element falls into; a constant.

    Args:
        x: Array of real numbers.
        bins: Bin edges, increasing or decreasing.
        right: Whether a bin includes its right edge instead of its left one.

    Raises:
        ShapeError: if bins neither increase nor decrease.

    >>> digitize(np.array([0.5, 2.5]), np.array([0.0, 1.0, 2.0]))
    array([1, 3])
    """
    return bin_numbers(x, bins, right=right)


publish(globals())
