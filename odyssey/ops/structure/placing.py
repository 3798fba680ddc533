"""Functional gather and scatter at indices that are operands; each write returns a new array.

Negative indices count from the end, and indices out of range raise, as in NumPy. Of repeated
indices the last one writes, and alone has the gradient; additions accumulate in the order of the
indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.half_dtypes import can_cast
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, mul
from odyssey.ops.elementwise.choice import equal, keep_where
from odyssey.ops.structure import index_lowering
from odyssey.ops.structure.batching import align, example_specs
from odyssey.ops.structure.gathering import (
    add_along_axis,
    add_taken,
    check_indices,
    lines_of_examples,
    take,
    take_along_axis,
    take_along_axis_spec,
)
from odyssey.ops.structure.indexing import getitem, setitem
from odyssey.ops.structure.scatter import zeros_of_spec
from odyssey.ops.structure.shape import as_operand, astype, broadcast_to, reshape
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS

# ------------------------------------------------------------------ writing along an axis


def _put_along_spec(x: Spec, indices: Spec, values: Any, axis: int | None) -> Spec:
    places = take_along_axis_spec(x, indices, axis, "put_along_axis").shape
    check_values_shape("put_along_axis", "values", getattr(values, "shape", ()), places)
    return x


def check_values_shape(who: str, name: str, shape: Shape, places: Shape) -> None:
    """Raise ShapeError if values do not broadcast to the shape that is written."""
    try:
        fits = np.broadcast_shapes(shape, places) == places
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: {name} {shape} for places {places}; its shape must broadcast to theirs"
        )


def check_castable(who: str, name: str, value: Any, dtype: np.dtype[Any]) -> None:
    """Raise DTypeError if values cannot be cast safely, such as floats to integers."""
    if type(value) in NUMBERS:
        return
    own = value.dtype if hasattr(value, "dtype") else np.result_type(value)
    if not can_cast(own, dtype):
        raise DTypeError(
            f"{who}: {name} of {own} cannot be stored in an array of {dtype} without loss"
        )


def _put_along_array(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    # Which of equal indices is the last must not depend on the memory layout.
    x, indices = np.asarray(x), np.ascontiguousarray(indices)
    check_castable("put_along_axis", "values", values, x.dtype)
    specs = spec_of(x), spec_of(indices), spec_of(np.asarray(values))
    _put_along_spec(*specs, axis)
    out = np.array(x, order="C")
    np.put_along_axis(out, indices, np.array(values, out.dtype), axis)
    return out


def _lower_put_along_axis(build: Any, x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    if type(values) not in NUMBERS and not can_cast(values.dtype, x.dtype):
        return NotImplemented
    shape, places, full = index_lowering.take_along_axis_indices(build, x.shape, indices, axis)
    found = build.broadcast(build.cast(values, x.dtype), full)
    return reshape(build.scatter("set", reshape(x, shape), found, places), x.shape)


def _values_cotangent(g: Any, indices: Any, axis: int | None) -> Any:
    """Return the cotangent of the values: of repeated indices only the last one was written."""
    part = take_along_axis(g, indices, axis)
    order = np.arange(part.size).reshape(part.shape)
    last = put_along_axis(np.zeros(g.shape, np.intp), indices, order, axis)
    return keep_where(part, equal(take_along_axis(last, indices, axis), order))


_LARGEST = np.array([[2, 0], [1, 1], [0, 0], [2, -1]])


def _put_along_batch(batch: Batch, x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    _put_along_spec(*example_specs(batch, [x, indices, values], axis))
    values = align(values, batch.mapped[2], 1 if axis is None else batch.ndim(0, x))
    lines, places, k = lines_of_examples(batch, x, indices, axis)
    out = put_along_axis(lines, places, values, k)
    return reshape(out, (batch.size, *x.shape[batch.mapped[0] :])) if axis is None else out


@op(
    primitive="scatter",
    lowering=_lower_put_along_axis,
    rearranges=True,
    kernel=_put_along_array,
    canonical=lambda x, indices, values, axis: (one_axis(axis, x.ndim),),
    infer=_put_along_spec,
    vjp={
        "x": lambda g, indices, axis: put_along_axis(g, indices, 0, axis),
        "values": lambda g, indices, axis: _values_cotangent(g, indices, axis),
    },
    jvp={
        "x": lambda t, indices, axis: put_along_axis(t, indices, 0, axis),
        "values": lambda t, indices, x_spec, axis: put_along_axis(
            zeros_of_spec(x_spec, t), indices, t, axis
        ),
    },
    vmap=_put_along_batch,
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
        reject(np.arange(3), np.array([0]), (1,), axis=0, error=DTypeError, match="without loss"),
    ],
)
def put_along_axis(x: Any, indices: Any, values: Any, /, axis: int | None = -1) -> Any:
    """Copy of ``x`` with ``values`` where ``take_along_axis`` reads; NumPy writes in place."""
    return _put_along_array(x, indices, values, axis)


# ------------------------------------------------------------------ one index for each element


def _integer_indices(who: str, indices: Any) -> Any:
    """Return indices as an integer array or Variable."""
    indices = as_operand(who, "indices", indices)
    check_indices(who, indices)
    return indices


def _leading_slices(
    who: str, what: str, shape: Shape, wanted: Shape, axis: int | None = None
) -> Any:
    """Return the slices of the first ``wanted`` elements on each axis but one; None for all."""
    if len(shape) != len(wanted):
        raise ShapeError(f"{who}: indices {wanted} for {what} {shape}; they need as many axes")
    for k, (n, least) in enumerate(zip(shape, wanted, strict=True)):
        if k != axis and n < least:
            raise ShapeError(f"{who}: indices {wanted} for {what} {shape}; axis {k} is too short")
    lengths = tuple(n if k == axis else wanted[k] for k, n in enumerate(shape))
    return None if lengths == shape else tuple(slice(n) for n in lengths)


def _read_slices(x: Any, corner: Any) -> Any:
    return x if corner is None else getitem(x, corner)


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
def gather(x: Any, indices: Any, *, axis: int) -> Any:
    """Elements at ``indices`` along an axis, each from its own line, as ``torch.gather``.

    Args:
        x: Array.
        indices: Integers with as many axes, at most as long on the other axes; lines beyond
            them are not read. ``take_along_axis`` broadcasts lines instead.
        axis: The axis.

    Returns:
        An array of the shape of ``indices``.

    Raises:
        ShapeError: if the shapes do not fit. DTypeError: if the indices are not integers.

    >>> gather(np.array([[1, 2], [3, 4]]), np.array([[1, 0, 1]]), axis=1)
    array([[2, 1, 2]])
    """
    x, indices = as_operand("gather", "x", x), _integer_indices("gather", indices)
    (k,) = normalize_axes("gather", axis, len(x.shape))
    corner = _leading_slices("gather", "x", x.shape, indices.shape, k)
    return take_along_axis(_read_slices(x, corner), indices, k)


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


def _scatter_operands(who: str, x: Any, indices: Any, source: Any, axis: Any) -> Any:
    """Return the operands of a scatter, the axis from the front, and the slices it writes."""
    x, indices = as_operand(who, "x", x), _integer_indices(who, indices)
    (k,) = normalize_axes(who, axis, len(x.shape))
    corner = _leading_slices(who, "x", x.shape, indices.shape, k)
    if type(source) not in NUMBERS:
        source = as_operand(who, "source", source)
        source = _read_slices(source, _leading_slices(who, "source", source.shape, indices.shape))
    return x, indices, source, k, corner


@composite(samples=_SCATTERED, rejects=_UNSCATTERED)
def scatter(x: Any, indices: Any, source: Any, *, axis: int) -> Any:
    """Copy of ``x`` with the elements of ``source`` at ``indices``, as ``torch.scatter``.

    Args:
        x: Array.
        indices: Integers with as many axes, at most as long on the other axes.
        source: Array at least as long as ``indices`` on each axis, or a number.
        axis: The axis that is indexed.

    Returns:
        A new array of the shape and dtype of ``x``. Of repeated indices the last one writes, and
        alone has the gradient.

    Raises:
        ShapeError: if the shapes do not fit, or an index is out of range.
        DTypeError: if the indices are not integers.

    >>> scatter(np.zeros((2, 3)), np.array([[2], [0]]), np.array([[5.0], [6.0]]), axis=1)
    array([[0., 0., 5.],
           [6., 0., 0.]])
    """
    x, indices, source, k, corner = _scatter_operands("scatter", x, indices, source, axis)
    part = put_along_axis(_read_slices(x, corner), indices, source, k)
    return part if corner is None else setitem(x, part, corner)


@composite(samples=_SCATTERED, rejects=_UNSCATTERED)
def scatter_add(x: Any, indices: Any, source: Any, *, axis: int) -> Any:
    """Add the elements of ``source`` to ``x`` at ``indices``, as ``torch.scatter_add``.

    Args:
        x: Array.
        indices: Integers with as many axes, at most as long on the other axes.
        source: Array at least as long as ``indices`` on each axis, or a number.
        axis: The axis that is indexed.

    Returns:
        A new array of the shape and dtype of ``x``. Repeated indices are summed in their order, and
        the sum is then added.

    Raises:
        ShapeError: if the shapes do not fit, or an index is out of range.
        DTypeError: if the indices are not integers.

    >>> scatter_add(np.ones((1, 3)), np.array([[2, 2]]), np.array([[5.0, 6.0]]), axis=1)
    array([[ 1.,  1., 12.]])
    """
    x, indices, source, k, corner = _scatter_operands("scatter_add", x, indices, source, axis)
    spec = Spec(x.shape, x.dtype)
    if type(source) not in NUMBERS:
        check_castable("scatter_add", "source", np.empty(0, source.dtype), x.dtype)
    part = broadcast_to(astype(source, x.dtype), indices.shape)
    if corner is None:
        return add(x, add_along_axis(part, indices, axis=k, spec=spec))
    inner = Spec(tuple(cut.stop for cut in corner), x.dtype)
    sums = add_along_axis(part, indices, axis=k, spec=inner)
    return setitem(x, add(getitem(x, corner), sums), corner)


# ------------------------------------------------------------------ one index for each slice


@composite(
    samples=[
        sample((4, 3), np.array([2, 0, 2]), axis=0),
        sample((2, 3), np.array([], int), axis=-1),
        sample((3,), np.array(1), axis=0),
    ],
    rejects=[reject((4, 3), np.array([[0]]), axis=0, match="on one axis")],
)
def index_select(x: Any, indices: Any, *, axis: int) -> Any:
    """Slices at ``indices`` along an axis, as ``torch.index_select``; see also ``take``.

    Args:
        x: Array.
        indices: Integers on one axis, or one.
        axis: The axis.

    Raises:
        ShapeError: if the indices have more axes, or are out of range.

    >>> index_select(np.array([[1, 2], [3, 4]]), np.array([1, 1]), axis=0)
    array([[3, 4],
           [3, 4]])
    """
    indices = _index_vector("index_select", indices)
    return take(x, indices, axis)


def _index_vector(who: str, indices: Any) -> Any:
    indices = _integer_indices(who, indices)
    if len(indices.shape) > 1:
        raise ShapeError(f"{who}: indices of shape {indices.shape}; pass them on one axis")
    return indices if indices.shape else reshape(indices, 1)


def _slice_operands(who: str, x: Any, indices: Any, source: Any, axis: Any) -> Any:
    """Return the operands of an op that writes slices, and the axis from the front."""
    x, indices = as_operand(who, "x", x), _index_vector(who, indices)
    (k,) = normalize_axes(who, axis, len(x.shape))
    if type(source) not in NUMBERS:
        source = as_operand(who, "source", source)
    places = (*x.shape[:k], *indices.shape, *x.shape[k + 1 :])
    check_values_shape(who, "source", getattr(source, "shape", ()), places)
    return x, indices, source, k, places


_SLICES = (
    sample((4, 3), np.array([2, 0, 2]), (3, 3), axis=0),
    sample((2, 3), np.array([-1, 0]), (2, 2), axis=-1),
    sample((2, 3), np.array([], int), (2, 0), axis=1),
)
_NO_SLICES = (
    reject((4, 3), np.array([[0]]), (1, 3), axis=0, match="on one axis"),
    reject((4, 3), np.array([0, 1]), (3, 3), axis=0, match="must broadcast to theirs"),
    reject((4, 3), np.array([4]), (1, 3), axis=0, match="out of bounds"),
)


@composite(
    samples=[*_SLICES, sample((4, 3), np.array([1, 1]), (2, 3), axis=0, alpha=2)],
    rejects=[
        *_NO_SLICES,
        reject(np.arange(3), np.array([0]), (1,), axis=0, error=DTypeError, match="without loss"),
    ],
)
def index_add(x: Any, indices: Any, source: Any, *, axis: int, alpha: Any = 1) -> Any:
    """Add the slices of ``source`` to ``x`` at ``indices`` of an axis, as ``torch.index_add``.

    Args:
        x: Array.
        indices: Integers on one axis, one for each slice of ``source``.
        source: Array in the shape of ``x`` except on ``axis``, or one that broadcasts to it.
        axis: The axis.
        alpha: Factor of ``source``.

    Returns:
        A new array of the shape and dtype of ``x``; repeated indices accumulate, in their order.

    Raises:
        ShapeError: if the shapes do not fit, or an index is out of range.
        DTypeError: if the indices are not integers.

    >>> index_add(np.zeros(3), np.array([2, 2, 0]), np.array([1.0, 2.0, 4.0]), axis=0)
    array([4., 0., 3.])
    """
    x, indices, source, k, places = _slice_operands("index_add", x, indices, source, axis)
    if not (type(alpha) in NUMBERS and alpha == 1):
        source = mul(source, alpha)
    if type(source) not in NUMBERS:
        check_castable("index_add", "source", np.empty(0, source.dtype), x.dtype)
    part = broadcast_to(astype(source, x.dtype), places)
    spec = Spec(x.shape, x.dtype)
    return add(x, add_taken(part, indices, axis=k, spec=spec))


@composite(samples=[*_SLICES, sample((4, 3), np.array([1]), (), axis=0)], rejects=_NO_SLICES)
def index_copy(x: Any, indices: Any, source: Any, *, axis: int) -> Any:
    """Copy of ``x`` with the slices of ``source`` at ``indices``, as ``torch.index_copy``.

    Args:
        x: Array.
        indices: Integers on one axis, one for each slice of ``source``.
        source: Array in the shape of ``x`` except on ``axis``, or one that broadcasts to it; a
            number for ``torch.index_fill``.
        axis: The axis.

    Returns:
        A new array of the shape and dtype of ``x``; of repeated indices the last one writes.

    Raises:
        ShapeError: if the shapes do not fit, or an index is out of range.

    >>> index_copy(np.zeros((2, 2)), np.array([1]), 3.0, axis=1)
    array([[0., 3.],
           [0., 3.]])
    """
    x, indices, source, k, places = _slice_operands("index_copy", x, indices, source, axis)
    upright = (1,) * k + indices.shape + (1,) * (len(x.shape) - k - 1)
    wide = broadcast_to(reshape(indices, upright), places)
    return put_along_axis(x, wide, source, k)


# ------------------------------------------------------------------ flat indices


@composite(
    samples=[
        sample((4, 3), np.array([[0, -1], [5, 0]]), (2, 2)),
        sample((2, 3), np.array([4, -9, 1]), (), mode="wrap"),
        sample((2, 3), np.array([4, -9, 10]), (3,), mode="clip"),
        sample((2,), np.array([], int), (0,)),
    ],
    rejects=[
        reject((2, 3), np.array([6]), (1,), match="out of bounds"),
        reject((2, 3), np.array([0, 1]), (3,), match="must broadcast to theirs"),
        reject(
            (2, 3),
            np.array([0]),
            (1,),
            mode="loop",
            error=SettingError,
            match="choose 'raise', 'wrap'",
        ),
    ],
)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> Any:
    """Copy of ``a`` with ``v`` at flat indices; NumPy writes in place.

    Args:
        a: Array of any shape.
        ind: Indices into the elements in row-major order.
        v: The values, whose shape broadcasts to that of ``ind``.
        mode: The treatment of indices out of range: ``"raise"``, ``"wrap"`` or ``"clip"``.

    Returns:
        A new array of the shape and dtype of ``a``; of repeated indices the last one writes, and
        alone has the gradient.

    Raises:
        ShapeError: if the shapes do not fit, or an index is out of range.

    >>> put(np.zeros((2, 2)), [0, -1], [1.0, 2.0])
    array([[1., 0.],
           [0., 2.]])
    """
    a, ind = as_operand("put", "a", a), _integer_indices("put", ind)
    check_choice("put", "mode", mode, ("raise", "wrap", "clip"))
    if type(v) not in NUMBERS:
        v = as_operand("put", "v", v)
        check_values_shape("put", "v", v.shape, ind.shape)
        v = reshape(broadcast_to(v, ind.shape), -1)
    if mode != "raise":
        count = np.arange(Spec(a.shape, a.dtype).size)
        ind = take(count, ind, mode=mode)
    return put_along_axis(a, reshape(ind, -1), v, None)


publish(globals())
