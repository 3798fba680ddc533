"""Ops that move elements without changing them, and the cast."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import as_array, native_dtype
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.spec import Shape, Spec
from odyssey.table.declare import PASS, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, same_spec_rule
from odyssey.table.value import Symbol, Value

Axes = int | tuple[int, ...] | None


def as_operand(who: str, name: str, x: Any) -> Any:
    """Return an operand as something with a shape and a dtype: an array unless it is traced."""
    return x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)


def shape_of(x: Any) -> Shape:
    """The shape of an array, a Variable, a Symbol, a number or a nest of lists."""
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
    samples=[sample((2, 3)), sample(()), sample((0,))],
)
def identity(x: Any, /) -> Any:
    """The same value, under a name of its own."""
    return np.array(x)[()]


def _astype_spec(x: Spec, dtype: Any) -> Spec:
    return Spec(x.shape, native_dtype(dtype))


@op(
    linear=True,
    canonical=lambda x, dtype: (native_dtype(dtype),),
    infer=_astype_spec,
    scalar=lambda x, dtype: x,  # the cast is that to the dtype of the result
    vjp={"x": PASS},
    samples=[sample((2, 3), dtype=np.float64), sample((), dtype=np.float64)],
)
def astype(x: Any, /, dtype: Any) -> Any:
    """The same numbers in another ``dtype``; complex to real keeps the real part."""
    x, dtype = np.asarray(x), native_dtype(dtype)
    if x.dtype.kind == "c" and dtype.kind not in "cb":  # a number is true for either part
        x = x.real
    return x.astype(dtype)[()]


# ------------------------------------------------------------------ reshape and transpose


def _reshaped(size: int, shape: Any) -> Shape | None:
    """The full shape that ``shape``, with at most one -1, gives to ``size`` elements."""
    lengths = [operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    known = 1
    for n in lengths:
        known *= n if n != -1 else 1
    if lengths.count(-1) == 1 and known > 0 and size % known == 0:
        lengths[lengths.index(-1)] = size // known
        return tuple(lengths)
    return tuple(lengths) if known == size and min(lengths, default=0) >= 0 else None


def _reshape_spec(x: Spec, shape: Any, order: str) -> Spec:
    full = _reshaped(x.size, shape)
    if full is None:
        came = f"{x.shape} has {x.size} elements, which do not fill {shown(shape)}"
        raise ShapeError(f"reshape: {came}; at most one length may be -1")
    return Spec(full, x.dtype)


def _spelled_shape(x: Spec, shape: Any, order: str) -> tuple[Any, str]:
    full = _reshaped(x.size, shape)
    assert full is not None, "the shape rule let it pass"
    # From one axis to one axis there is but one order.
    return full, "C" if x.ndim <= 1 and len(full) <= 1 else order


def _ordered(shape: Any, order: str) -> tuple[Any, str]:
    if order not in ("C", "F"):
        raise SettingError(f"reshape: order={shown(order)}; 'C' is row-major, 'F' column-major")
    return shape, order


def _reshaped_natively(build: Any, x: Any, shape: Any, order: str) -> Any:
    if order == "C":
        return build.reshape(x, shape)
    turned = build.reshape(build.transpose(x, range(x.ndim)[::-1]), shape[::-1])
    return build.transpose(turned, range(len(shape))[::-1])


@op(
    linear=True,
    numpy=[np.reshape],
    primitive="view",
    lowering=_reshaped_natively,
    prepare=_ordered,
    canonical=_spelled_shape,
    infer=_reshape_spec,
    vjp={"x": lambda g, x_spec, order: reshape(g, x_spec.shape, order)},
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
    """The same elements, in row-major order, under another shape; one length may be -1."""
    return np.reshape(x, shape, order)


def _inverse(axes: Any) -> Any:
    return None if axes is None else tuple(np.argsort([a % len(axes) for a in axes]).tolist())


def _spelled_order(x: Spec, axes: Any) -> tuple[Shape]:
    ndim = x.ndim
    return (tuple(range(ndim))[::-1] if axes is None else tuple(a % ndim for a in axes),)


def _transpose_spec(x: Spec, axes: Any) -> Spec:
    if axes is None:
        return Spec(x.shape[::-1], x.dtype)
    normalize_axes("transpose", axes, x.ndim)
    if len(axes) != x.ndim:
        came = shown(axes)
        raise ShapeError(f"transpose: axes {came} must name each of the {x.ndim} axes of x once")
    return Spec(tuple(x.shape[a] for a in axes), x.dtype)


@op(
    linear=True,
    primitive="view",
    lowering=lambda build, x, axes: build.transpose(x, axes),
    numpy=[np.transpose],
    canonical=_spelled_order,
    infer=_transpose_spec,
    vjp={"x": lambda g, axes: transpose(g, _inverse(axes))},
    samples=[
        sample((2, 3)),
        sample((2, 3, 4), axes=(1, -1, 0)),
        sample(()),
        sample((0, 2)),
    ],
    rejects=[reject((2, 3), axes=(0, 0), match="axes are distinct")],
)
def transpose(x: Any, /, axes: Any = None) -> Any:
    """The axes in another order, by default reversed."""
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
    samples=[sample((2, 3)), sample((4, 2, 3)), sample((0, 2))],
    rejects=[reject((3,), match="two axes or more")],
)
def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged."""
    return np.matrix_transpose(x)


def _broadcast_spec(x: Spec, shape: Any) -> Spec:
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    try:
        if np.broadcast_shapes(x.shape, shape) == shape:
            return Spec(shape, x.dtype)
    except ValueError:
        pass
    raise ShapeError(f"broadcast_to: {x.shape} does not broadcast to {shape}")


def repeated(x: Any, shape: Any) -> Any:
    """``np.broadcast_to``, of one of NumPy's numbers in a fifth of the time."""
    if isinstance(x, np.number) and type(shape) is tuple and min(shape, default=-1) >= 0:
        return np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    return np.broadcast_to(x, shape)


@op(
    linear=True,
    kernel=repeated,
    primitive="view",
    lowering=lambda build, x, shape: build.broadcast(x, shape),
    numpy=[np.broadcast_to],
    canonical=lambda x, shape: (shape if isinstance(shape, tuple) else (shape,),),
    infer=_broadcast_spec,
    # The sweep sums the cotangent back to the operand's shape.
    vjp={"x": PASS},
    samples=[sample((3, 1), shape=(2, 3, 4)), sample((), shape=(2,)), sample((1, 0), shape=(2, 0))],
    rejects=[reject((3,), shape=(2, 4), match="does not broadcast")],
)
def broadcast_to(x: Any, /, shape: Any) -> Any:
    """The value repeated along new axes and axes of length 1, without copying."""
    return np.broadcast_to(x, shape)


# ------------------------------------------------------------------ axes, by the rows above


def _permuted(x: Any, order: list[int], tape: Any) -> Any:
    return transpose(x, tuple(order), tape=tape)


@composite(
    numpy=[np.swapaxes],
    samples=[
        sample((2, 3, 4), axis1=0, axis2=-1),
        sample((0, 2), axis1=1, axis2=0),
        sample((3,), axis1=0, axis2=-1),
    ],
    rejects=[reject((2, 3), axis1=0, axis2=2, match="does not fit")],
)
def swapaxes(a: Any, axis1: int, axis2: int, *, tape: Any = None) -> Any:
    """Two axes exchanged.

    Args:
        a: Array of any shape.
        axis1: One of its axes.
        axis2: The other.
        tape: The tape to record on.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: for an axis that ``a`` lacks.

    >>> swapaxes(np.ones((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    order = list(range(len(shape_of(a))))
    (i,), (j,) = (normalize_axes("swapaxes", k, len(order)) for k in (axis1, axis2))
    order[i], order[j] = order[j], order[i]
    return _permuted(a, order, tape)


@composite(
    numpy=[np.moveaxis],
    samples=[
        sample((2, 3, 4), source=0, destination=-1),
        sample((2, 3, 4), source=(0, 2), destination=[-1, 0]),
        sample((0, 2), source=-1, destination=0),
    ],
    rejects=[
        reject((2, 3), source=(0, 1), destination=0, match="as many places"),
        reject((2, 3), source=0, destination=2, match="does not fit"),
    ],
)
def moveaxis(a: Any, source: Any, destination: Any, *, tape: Any = None) -> Any:
    """Axes moved to other places; the others keep their order.

    Args:
        a: Array of any shape.
        source: An axis, or several.
        destination: Where each of them goes.
        tape: The tape to record on.

    Returns:
        The array with the same elements, sharing memory as NumPy's does.

    Raises:
        ShapeError: for an axis that ``a`` lacks, or unlike numbers of axes.

    >>> moveaxis(np.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    ndim = len(shape_of(a))
    normalize_axes("moveaxis", source, ndim)
    normalize_axes("moveaxis", destination, ndim)
    sources, places = ([int(k) % ndim for k in np.atleast_1d(v)] for v in (source, destination))
    if len(sources) != len(places):
        came = f"{shown(source)} to {shown(destination)}"
        raise ShapeError(f"moveaxis: {came}; give as many places as axes")
    order = [k for k in range(ndim) if k not in sources]
    for place, k in sorted(zip(places, sources, strict=True)):
        order.insert(place, k)
    return _permuted(a, order, tape)


@composite(
    numpy=[np.ravel],
    samples=[sample((2, 3)), sample((2, 3), order="F"), sample(()), sample((0, 3))],
    rejects=[reject((2, 3), order="A", error=SettingError, match="row-major")],
)
def ravel(a: Any, order: str = "C", *, tape: Any = None) -> Any:
    """All elements on one axis.

    Args:
        a: Array of any shape.
        order: ``"C"``, the last axis fastest, or ``"F"``, the first.
        tape: The tape to record on.

    >>> ravel(np.array([[1, 2], [3, 4]]), "F")
    array([1, 3, 2, 4])
    """
    return reshape(a, -1, order, tape=tape)


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
def squeeze(a: Any, axis: Axes = None, *, tape: Any = None) -> Any:
    """Axes of length 1 left out.

    Args:
        a: Array of any shape.
        axis: Which; by default all of length 1.
        tape: The tape to record on.

    Raises:
        ShapeError: for an axis of another length.

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
    return reshape(a, tuple(n for k, n in enumerate(shape) if k not in chosen), tape=tape)


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
def expand_dims(a: Any, axis: int | tuple[int, ...], *, tape: Any = None) -> Any:
    """New axes of length 1.

    Args:
        a: Array of any shape.
        axis: Their places in the result.
        tape: The tape to record on.

    Raises:
        ShapeError: for a place outside the result.

    >>> expand_dims(np.ones(3), (0, -1)).shape
    (1, 3, 1)
    """
    lengths = shape_of(a)
    if type(axis) is int and 0 <= axis <= len(lengths):  # half the time
        return reshape(a, (*lengths[:axis], 1, *lengths[axis:]), tape=tape)
    old, more = iter(lengths), len(axis) if isinstance(axis, (tuple, list)) else 1
    new = normalize_axes("expand_dims", axis, ndim := len(lengths) + more)
    return reshape(a, tuple(1 if k in new else next(old) for k in range(ndim)), tape=tape)


publish(globals())
