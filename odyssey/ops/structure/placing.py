"""Reading and writing at indices that are operands, each write a new array: nothing is in place.

Negative indices count from the end, and indices that an axis does not have are refused, as NumPy
does. Where an index names a place twice, the last one writes it, and alone has the gradient; what
is added there adds up, in the order of the indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import equal, keep_where
from odyssey.ops.structure import placed
from odyssey.ops.structure.gathering import (
    add_along_axis,
    along_spec,
    check_indices,
    take_along_axis,
)
from odyssey.ops.structure.indexing import getitem, setitem
from odyssey.ops.structure.scatter import zeros
from odyssey.ops.structure.shape import astype, broadcast_to, reshape
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.canonical import one_axis
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS, Symbol, Value

# ------------------------------------------------------------------ writing along an axis


def _written_spec(x: Spec, indices: Spec, values: Any, axis: int | None) -> Spec:
    places = along_spec(x, indices, axis, "put_along_axis").shape
    check_fit("put_along_axis", "values", getattr(values, "shape", ()), places)
    return x


def check_fit(who: str, name: str, shape: Shape, places: Shape) -> None:
    """Refuse values of a shape that does not broadcast to that of the places they are for."""
    try:
        fits = np.broadcast_shapes(shape, places) == places
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: {name} {shape} for places {places}; its shape must broadcast to theirs"
        )


def check_kind(who: str, name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """Refuse values that an array of ``dtype`` cannot hold: fractions in one of integers, say."""
    if type(value) not in NUMBERS and not np.can_cast(np.result_type(value), dtype, "same_kind"):
        raise DTypeError(
            f"{who}: {name} of {np.result_type(value)} would lose in an array of {dtype}"
        )


def _put_along(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    # Which of equal indices comes last must not depend on how they lie in memory.
    x, indices = np.asarray(x), np.ascontiguousarray(indices)
    check_kind("put_along_axis", "values", values, x.dtype)
    specs = spec_of(x), spec_of(indices), spec_of(np.asarray(values))
    _written_spec(*specs, axis)
    out = np.array(x, order="C")
    np.put_along_axis(out, indices, np.array(values, out.dtype), axis)
    return out


def _put_natively(build: Any, x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    if type(values) not in NUMBERS and not np.can_cast(values.dtype, x.dtype, "same_kind"):
        return NotImplemented
    shape, places, full = placed.along(build, x.shape, indices, axis)
    found = build.broadcast(build.cast(values, x.dtype), full)
    return reshape(build.scatter("set", reshape(x, shape), found, places), x.shape)


def _reaching(g: Any, indices: Any, axis: int | None) -> Any:
    """What of ``g`` reaches the values: where indices name a place twice, the last one wrote it."""
    part = take_along_axis(g, indices, axis)
    order = np.arange(part.size).reshape(part.shape)
    last = put_along_axis(np.zeros(g.shape, np.intp), indices, order, axis)
    return keep_where(part, equal(take_along_axis(last, indices, axis), order))


_LARGEST = np.array([[2, 0], [1, 1], [0, 0], [2, -1]])


@op(
    primitive="scatter",
    native=_put_natively,
    moves=True,
    kernel=_put_along,
    canonical=lambda x, indices, values, axis: (one_axis(axis, x.ndim),),
    infer=_written_spec,
    vjp={
        "x": lambda g, indices, axis: put_along_axis(g, indices, 0, axis),
        "values": lambda g, indices, axis: _reaching(g, indices, axis),
    },
    jvp={
        "x": lambda t, indices, axis: put_along_axis(t, indices, 0, axis),
        "values": lambda t, indices, x_spec, axis: put_along_axis(
            zeros(x_spec, t), indices, t, axis
        ),
    },
    kinks="where indices name a place twice, the last value has the gradient",
    samples=[
        sample((4, 3), _LARGEST, (4, 2), axis=1),
        sample((4, 3), np.array([[0, 3, 3]]), (), axis=0),
        sample((4, 3), np.array([[2, 1]]), (4, 1), axis=-1),
        sample((4, 3), np.array([5, 0, 5]), (3,), axis=None),
        sample((0, 3), np.zeros((0, 2), int), (0, 2), axis=1),
    ],
    rejects=[
        reject((4, 3), np.array([0]), (), axis=1, match="2 axes too"),
        reject((4, 3), np.array([[3]]), (), axis=1, match="out of bounds"),
        reject((4, 3), np.array([[0]]), (2, 1), axis=1, match="must broadcast to theirs"),
        reject(np.arange(3), np.array([0]), (1,), axis=0, error=DTypeError, match="would lose"),
    ],
)
def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int | None = -1) -> Any:
    """A copy of ``x`` with ``values`` where ``take_along_axis`` reads; NumPy writes in place."""
    return _put_along(x, indices, values, axis)


# ------------------------------------------------------------------ one index for each number


def operand(who: str, name: str, x: Any) -> Any:
    """An operand with a shape and a dtype."""
    return x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)


def indices_of(who: str, indices: Any) -> Any:
    """Indices with a shape, of a dtype of integers."""
    indices = operand(who, "indices", indices)
    check_indices(who, indices)
    return indices


def _corner(who: str, what: str, shape: Shape, wanted: Shape, axis: int | None = None) -> Any:
    """The slices of the first ``wanted`` elements on each axis but one; None where that is all."""
    if len(shape) != len(wanted):
        raise ShapeError(f"{who}: indices {wanted} for {what} {shape}; they need as many axes")
    for k, (n, least) in enumerate(zip(shape, wanted, strict=True)):
        if k != axis and n < least:
            raise ShapeError(f"{who}: indices {wanted} for {what} {shape}; axis {k} is too short")
    lengths = tuple(n if k == axis else wanted[k] for k, n in enumerate(shape))
    return None if lengths == shape else tuple(slice(n) for n in lengths)


def _part(x: Any, corner: Any, tape: Any) -> Any:
    return x if corner is None else getitem(x, corner, tape=tape)


@composite(
    samples=[
        sample((4, 3), np.array([[2, 0], [1, 1]]), axis=1),
        sample((4, 3), np.array([[0, 3, -1]]), axis=0),
        sample((3,), np.array([2, 2]), axis=0),
        sample((2, 3), np.zeros((0, 2), int), axis=1),
    ],
    rejects=[
        reject((4, 3), np.array([0]), axis=1, match="as many axes"),
        reject((4, 3), np.zeros((5, 1), int), axis=1, match="axis 0 is too short"),
        reject((4, 3), np.zeros((4, 1)), axis=1, error=DTypeError, match="pass integers"),
    ],
)
def gather(x: Any, indices: Any, *, axis: int, tape: Any = None) -> Any:
    """The elements at ``indices`` along an axis, each from its own line, as ``torch.gather``.

    Args:
        x: Array.
        indices: Integers with as many axes, on the other axes at most as long; of lines beyond
            them nothing is read. ``take_along_axis`` is the same for lines that broadcast.
        axis: Along which.
        tape: The tape to record on.

    Returns:
        An array of the shape of ``indices``.

    Raises:
        ShapeError: where the shapes do not fit. DTypeError: for indices that are not integers.

    >>> gather(np.array([[1, 2], [3, 4]]), np.array([[1, 0, 1]]), axis=1)
    array([[2, 1, 2]])
    """
    x, indices = operand("gather", "x", x), indices_of("gather", indices)
    (k,) = normalize_axes("gather", axis, len(x.shape))
    corner = _corner("gather", "x", x.shape, indices.shape, k)
    return take_along_axis(_part(x, corner, tape), indices, k, tape=tape)


_SCATTERED = (
    sample((4, 3), np.array([[2, 0], [1, 1]]), (2, 2), axis=1),
    sample((4, 3), np.array([[0, 3, -1], [3, 1, 1]]), (4, 3), axis=0),
    sample((3,), np.array([2, 2]), (3,), axis=0),
    sample((2, 3), np.zeros((0, 2), int), (0, 2), axis=1),
)
_UNSCATTERED = (
    reject((4, 3), np.array([0]), (1,), axis=1, match="as many axes"),
    reject((4, 3), np.zeros((2, 2), int), (2, 1), axis=1, match="source .* axis 1 is too short"),
    reject((4, 3), np.zeros((5, 1), int), (5, 1), axis=1, match="x .* axis 0 is too short"),
    reject((4, 3), np.array([[4]]), (1, 1), axis=0, match="out of bounds"),
)


def _scattering(who: str, x: Any, indices: Any, source: Any, axis: Any, tape: Any) -> Any:
    """The operands of a scatter, the axis from the front, and the part of ``x`` it writes to."""
    x, indices = operand(who, "x", x), indices_of(who, indices)
    (k,) = normalize_axes(who, axis, len(x.shape))
    corner = _corner(who, "x", x.shape, indices.shape, k)
    if type(source) not in NUMBERS:
        source = operand(who, "source", source)
        source = _part(source, _corner(who, "source", source.shape, indices.shape), tape)
    return x, indices, source, k, corner


@composite(samples=_SCATTERED, rejects=_UNSCATTERED)
def scatter(x: Any, indices: Any, source: Any, *, axis: int, tape: Any = None) -> Any:
    """A copy of ``x`` with the numbers of ``source`` at ``indices``, as ``torch.scatter``.

    Args:
        x: Array.
        indices: Integers with as many axes, on the other axes at most as long.
        source: Array at least as long as ``indices`` on each axis, or a number.
        axis: Along which an index counts.
        tape: The tape to record on.

    Returns:
        A new array of the shape and dtype of ``x``. Where indices name a place twice, the last one
        writes it, and alone has the gradient.

    Raises:
        ShapeError: where the shapes do not fit, or for an index that the axis does not have.
        DTypeError: for indices that are not integers.

    >>> scatter(np.zeros((2, 3)), np.array([[2], [0]]), np.array([[5.0], [6.0]]), axis=1)
    array([[0., 0., 5.],
           [6., 0., 0.]])
    """
    x, indices, source, k, corner = _scattering("scatter", x, indices, source, axis, tape)
    part = put_along_axis(_part(x, corner, tape), indices, source, k, tape=tape)
    return part if corner is None else setitem(x, part, corner, tape=tape)


@composite(samples=_SCATTERED, rejects=_UNSCATTERED)
def scatter_add(x: Any, indices: Any, source: Any, *, axis: int, tape: Any = None) -> Any:
    """``x`` plus the numbers of ``source`` at ``indices``, as ``torch.scatter_add``.

    Args:
        x: Array.
        indices: Integers with as many axes, on the other axes at most as long.
        source: Array at least as long as ``indices`` on each axis, or a number.
        axis: Along which an index counts.
        tape: The tape to record on.

    Returns:
        A new array of the shape and dtype of ``x``. What goes to one place is summed in the order
        of the indices, and then added.

    Raises:
        ShapeError: where the shapes do not fit, or for an index that the axis does not have.
        DTypeError: for indices that are not integers.

    >>> scatter_add(np.ones((1, 3)), np.array([[2, 2]]), np.array([[5.0, 6.0]]), axis=1)
    array([[ 1.,  1., 12.]])
    """
    x, indices, source, k, corner = _scattering("scatter_add", x, indices, source, axis, tape)
    spec = Spec(x.shape, x.dtype)
    if type(source) not in NUMBERS:
        check_kind("scatter_add", "source", np.empty(0, source.dtype), x.dtype)
    part = broadcast_to(astype(source, x.dtype, tape=tape), indices.shape, tape=tape)
    if corner is None:
        return add(x, add_along_axis(part, indices, axis=k, spec=spec, tape=tape), tape=tape)
    inner = Spec(tuple(cut.stop for cut in corner), x.dtype)
    sums = add_along_axis(part, indices, axis=k, spec=inner, tape=tape)
    return setitem(x, add(getitem(x, corner, tape=tape), sums, tape=tape), corner, tape=tape)


publish(globals())
