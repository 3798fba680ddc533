"""Shape manipulation: reshape, transpose, broadcast, and casts."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch, shift_axes
from odyssey.table.declare import PASS, composite, op, publish
from odyssey.table.half_kernels import cast
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, same_spec_rule
from odyssey.table.value import Symbol, Value

Axes = int | tuple[int, ...] | None


def as_operand(who: str, name: str, x: Any) -> Any:
    """Return an operand as something with a shape and a dtype: an array unless it is traced."""
    return x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)


def shape_of(x: Any) -> Shape:
    """Return the shape of an array, a Variable, a Symbol, a number or nested lists."""
    try:
        shape: Shape = x.shape if hasattr(x, "shape") else np.shape(x)
    except ValueError as error:
        raise DTypeError(f"{type(x).__name__} came for an array: {error}") from error
    return shape


# ------------------------------------------------------------------ identity and cast


@op(
    linear=True,
    primitive="view",
    lowering=lambda build, x: x,
    infer=same_spec_rule,
    vjp={"x": PASS},
    vmap="leading",
    aliases=["positive"],
    numpy=[np.positive],
    samples=[sample((2, 3)), sample(()), sample((0,))],
)
def identity(x: Any, /) -> Any:
    """Identity: the value itself, under a name of its own."""
    return np.array(x)[()]


def _astype_spec(x: Spec, dtype: Any) -> Spec:
    return Spec(x.shape, native_dtype(dtype))


@op(
    linear=True,
    canonical=lambda x, dtype: (native_dtype(dtype),),
    infer=_astype_spec,
    scalar=lambda x, dtype: x,  # the derivative casts to the dtype of the tangent's result
    vjp={"x": PASS},
    vmap="leading",
    samples=[sample((2, 3), dtype=np.float64), sample((), dtype=np.float64)],
)
def astype(x: Any, /, dtype: Any) -> Any:
    """Cast to another ``dtype``; complex to real keeps the real part."""
    x, dtype = np.asarray(x), native_dtype(dtype)
    if x.dtype.kind == "c" and dtype.kind not in "cb":  # a complex number is true if either part is
        x = x.real
    return cast(x, dtype)[()]


# ------------------------------------------------------------------ reshape and transpose


def _resolve_shape(size: int, shape: Any) -> Shape | None:
    """Return ``shape`` with its -1 resolved, for an array of ``size`` elements."""
    lengths = [operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    known = 1
    for n in lengths:
        known *= n if n != -1 else 1
    if lengths.count(-1) == 1 and known > 0 and size % known == 0:
        lengths[lengths.index(-1)] = size // known
        return tuple(lengths)
    return tuple(lengths) if known == size and min(lengths, default=0) >= 0 else None


def _reshape_spec(x: Spec, shape: Any, order: str) -> Spec:
    full = _resolve_shape(x.size, shape)
    if full is None:
        came = f"{x.shape} has {x.size} elements, which do not fill {format_value(shape)}"
        raise ShapeError(f"reshape: {came}; at most one length may be -1")
    return Spec(full, x.dtype)


def _canonical_shape(x: Spec, shape: Any, order: str) -> tuple[Any, str]:
    full = _resolve_shape(x.size, shape)
    assert full is not None, "the shape rule let it pass"
    # Between one axis and one axis the order makes no difference.
    return full, "C" if x.ndim <= 1 and len(full) <= 1 else order


def _reshape_options(shape: Any, order: str) -> tuple[Any, str]:
    if order not in ("C", "F"):
        raise SettingError(
            f"reshape: order={format_value(order)}; 'C' is row-major, 'F' column-major"
        )
    return shape, order


def _lower_reshape(build: Any, x: Any, shape: Any, order: str) -> Any:
    if order == "C":
        return build.reshape(x, shape)
    turned = build.reshape(build.transpose(x, range(x.ndim)[::-1]), shape[::-1])
    return build.transpose(turned, range(len(shape))[::-1])


def _reshape_batch(batch: Batch, x: Any, shape: Any, order: str) -> Any:
    full = _resolve_shape(prod(x.shape[1:]), shape)
    if full is None:  # raises
        full = _reshape_spec(Spec(tuple(x.shape[1:]), x.dtype), shape, order).shape
    if order == "C":
        return reshape(x, (batch.size, *full))
    return moveaxis(reshape(moveaxis(x, 0, -1), (*full, batch.size), order), -1, 0)


@op(
    linear=True,
    numpy=[np.reshape],
    primitive="view",
    lowering=_lower_reshape,
    prepare=_reshape_options,
    canonical=_canonical_shape,
    infer=_reshape_spec,
    vjp={"x": lambda g, x_spec, order: reshape(g, x_spec.shape, order)},
    vmap=_reshape_batch,
    samples=[
        sample((2, 3), shape=(3, 2)),
        sample((2, 3), shape=-1),
        sample((), shape=(1, 1)),
        sample((0, 3), shape=(3, 0)),
        sample((2, 3), shape=(3, -1), order="F"),
    ],
    rejects=[
        reject((2, 3), shape=(4, 2), match="6 elements"),
        reject((2, 3), shape=6, order="A", error=SettingError, match="row-major"),
    ],
)
def reshape(x: Any, /, shape: Any, order: str = "C") -> Any:
    """Reshape, in row-major order by default; one length may be -1."""
    return np.reshape(x, shape, order)


def _inverse_permutation(axes: Any) -> Any:
    return None if axes is None else tuple(np.argsort([a % len(axes) for a in axes]).tolist())


def _canonical_axes_order(x: Spec, axes: Any) -> tuple[Shape]:
    ndim = x.ndim
    return (tuple(range(ndim))[::-1] if axes is None else tuple(a % ndim for a in axes),)


def _transpose_spec(x: Spec, axes: Any) -> Spec:
    if axes is None:
        return Spec(x.shape[::-1], x.dtype)
    normalize_axes("transpose", axes, x.ndim)
    if len(axes) != x.ndim:
        came = format_value(axes)
        raise ShapeError(f"transpose: axes {came} must name each of the {x.ndim} axes of x once")
    return Spec(tuple(x.shape[a] for a in axes), x.dtype)


def _transpose_batch(batch: Batch, x: Any, axes: Any) -> Any:
    ndim = len(x.shape) - 1
    order = range(ndim, 0, -1) if axes is None else shift_axes(tuple(axes), ndim)
    return transpose(x, (0, *order))


@op(
    linear=True,
    primitive="view",
    lowering=lambda build, x, axes: build.transpose(x, axes),
    numpy=[np.transpose],
    canonical=_canonical_axes_order,
    infer=_transpose_spec,
    vjp={"x": lambda g, axes: transpose(g, _inverse_permutation(axes))},
    vmap=_transpose_batch,
    samples=[
        sample((2, 3)),
        sample((2, 3, 4), axes=(1, -1, 0)),
        sample(()),
        sample((0, 2)),
    ],
    rejects=[reject((2, 3), axes=(0, 0), match="axes are distinct")],
)
def transpose(x: Any, /, axes: Any = None) -> Any:
    """Permute the axes, by default in reverse order."""
    return np.transpose(x, axes)


def _matrix_transpose_spec(x: Spec) -> Spec:
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose: needs two axes or more, x has shape {x.shape}")
    return Spec((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)


@op(
    linear=True,
    kernel=lambda x: x.T if x.ndim == 2 else np.swapaxes(x, -1, -2),
    decomposition=lambda x: transpose(x, (*range(len(x.shape) - 2), -1, -2)),
    numpy=[np.matrix_transpose],
    infer=_matrix_transpose_spec,
    vjp={"x": lambda g: matrix_transpose(g)},
    vmap="leading",
    samples=[sample((2, 3)), sample((4, 2, 3)), sample((0, 2))],
    rejects=[reject((3,), match="two axes or more")],
)
def matrix_transpose(x: Any, /) -> Any:
    """Swap the last two axes."""
    return np.matrix_transpose(x)


def _broadcast_spec(x: Spec, shape: Any) -> Spec:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    try:
        if np.broadcast_shapes(x.shape, shape) == shape:
            return Spec(shape, x.dtype)
    except ValueError:
        pass
    raise ShapeError(f"broadcast_to: {x.shape} does not broadcast to {shape}")


def broadcast_view(x: Any, shape: Any) -> Any:
    """Return ``np.broadcast_to``; for a NumPy scalar in a fifth of the time."""
    if isinstance(x, np.number) and type(shape) is tuple and min(shape, default=-1) >= 0:
        return np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    return np.broadcast_to(x, shape)


def _broadcast_batch(batch: Batch, x: Any, shape: Any) -> Any:
    full = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    missing = len(full) - len(x.shape) + 1
    if missing > 0:
        x = reshape(x, (batch.size, *(1,) * missing, *x.shape[1:]))
    return broadcast_to(x, (batch.size, *full))


@op(
    linear=True,
    kernel=broadcast_view,
    primitive="view",
    lowering=lambda build, x, shape: build.broadcast(x, shape),
    numpy=[np.broadcast_to],
    canonical=lambda x, shape: (shape if isinstance(shape, tuple) else (shape,),),
    infer=_broadcast_spec,
    # The sweep sums the cotangent to the operand's shape.
    vjp={"x": PASS},
    vmap=_broadcast_batch,
    samples=[sample((3, 1), shape=(2, 3, 4)), sample((), shape=(2,)), sample((1, 0), shape=(2, 0))],
    rejects=[reject((3,), shape=(2, 4), match="does not broadcast")],
)
def broadcast_to(x: Any, /, shape: Any) -> Any:
    """Broadcast to a shape, along new axes and axes of length 1, without a copy."""
    return np.broadcast_to(x, shape)


# ------------------------------------------------------------------ composites of these


def _transpose_to(x: Any, order: list[int]) -> Any:
    return transpose(x, tuple(order))


@composite(
    numpy=[np.swapaxes],
    samples=[
        sample((2, 3, 4), axis1=0, axis2=-1),
        sample((0, 2), axis1=1, axis2=0),
        sample((3,), axis1=0, axis2=-1),
    ],
    rejects=[reject((2, 3), axis1=0, axis2=2, match="does not fit")],
)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Swap two axes.

    Args:
        a: Array of any shape.
        axis1: One of its axes.
        axis2: The other.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: if ``a`` lacks an axis.

    >>> swapaxes(np.ones((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    order = list(range(len(shape_of(a))))
    (i,), (j,) = (normalize_axes("swapaxes", k, len(order)) for k in (axis1, axis2))
    order[i], order[j] = order[j], order[i]
    return _transpose_to(a, order)


@composite(
    numpy=[np.moveaxis],
    samples=[
        sample((2, 3, 4), source=0, destination=-1),
        sample((2, 3, 4), source=(0, 2), destination=[-1, 0]),
        sample((0, 2), source=-1, destination=0),
    ],
    rejects=[
        reject((2, 3), source=(0, 1), destination=0, match="as many positions"),
        reject((2, 3), source=0, destination=2, match="does not fit"),
    ],
)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Move axes to other positions; the others keep their order.

    Args:
        a: Array of any shape.
        source: One axis or several.
        destination: The new position of each.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: if ``a`` lacks an axis, or the numbers of axes differ.

    >>> moveaxis(np.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    ndim = len(shape_of(a))
    normalize_axes("moveaxis", source, ndim)
    normalize_axes("moveaxis", destination, ndim)
    sources, places = ([int(k) % ndim for k in np.atleast_1d(v)] for v in (source, destination))
    if len(sources) != len(places):
        came = f"{format_value(source)} to {format_value(destination)}"
        raise ShapeError(f"moveaxis: {came}; pass as many positions as axes")
    order = [k for k in range(ndim) if k not in sources]
    for place, k in sorted(zip(places, sources, strict=True)):
        order.insert(place, k)
    return _transpose_to(a, order)


@composite(
    numpy=[np.ravel],
    samples=[sample((2, 3)), sample((2, 3), order="F"), sample(()), sample((0, 3))],
    rejects=[reject((2, 3), order="A", error=SettingError, match="row-major")],
)
def ravel(a: Any, order: str = "C") -> Any:
    """Flatten to one axis.

    Args:
        a: Array of any shape.
        order: ``"C"``, row-major, or ``"F"``, column-major.

    >>> ravel(np.array([[1, 2], [3, 4]]), "F")
    array([1, 3, 2, 4])
    """
    return reshape(a, -1, order)


@composite(
    numpy=[np.squeeze],
    samples=[
        sample((1, 3, 1)),
        sample((1, 3, 1), axis=-1),
        sample((1, 0, 1), axis=(0, 2)),
        sample((1,)),
        sample(()),
    ],
    rejects=[reject((2, 1), axis=0, match="has length 2")],
)
def squeeze(a: Any, axis: Axes = None) -> Any:
    """Remove axes of length 1.

    Args:
        a: Array of any shape.
        axis: The axes; by default all of length 1.

    Raises:
        ShapeError: if an axis has another length.

    >>> squeeze(np.ones((1, 3, 1))).shape
    (3,)
    """
    shape = shape_of(a)
    chosen = normalize_axes("squeeze", axis, len(shape))
    if axis is None:
        chosen = tuple(k for k in chosen if shape[k] == 1)
    for k in chosen:
        if shape[k] != 1:
            raise ShapeError(f"squeeze: axis {k} of {shape} has length {shape[k]}, not 1")
    return reshape(a, tuple(n for k, n in enumerate(shape) if k not in chosen))


@composite(
    numpy=[np.expand_dims],
    samples=[
        sample((2, 3), axis=1),
        sample((3,), axis=(0, -1)),
        sample((), axis=0),
        sample((0,), axis=-2),
    ],
    rejects=[reject((3,), axis=3, match="does not fit")],
)
def expand_dims(a: Any, axis: int | tuple[int, ...]) -> Any:
    """Insert axes of length 1.

    Args:
        a: Array of any shape.
        axis: Their positions in the result.

    Raises:
        ShapeError: if a position is out of range.

    >>> expand_dims(np.ones(3), (0, -1)).shape
    (1, 3, 1)
    """
    lengths = shape_of(a)
    if type(axis) is int and 0 <= axis <= len(lengths):  # takes half the time
        return reshape(a, (*lengths[:axis], 1, *lengths[axis:]))
    old, more = iter(lengths), len(axis) if isinstance(axis, (tuple, list)) else 1
    new = normalize_axes("expand_dims", axis, ndim := len(lengths) + more)
    return reshape(a, tuple(1 if k in new else next(old) for k in range(ndim)))


publish(globals())
