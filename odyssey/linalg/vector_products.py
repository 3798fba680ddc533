"""Vector products: cross product, Kronecker product, and inner products along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import DTypeError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import expand_dims, moveaxis, reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS

# ------------------------------------------------------------------ cross product


def _cross_options(axisa: Any, axisb: Any, axisc: Any, axis: Any) -> tuple[Any, Any, Any, None]:
    """Expand ``axis``, which overrides the three other axes."""
    return (axisa, axisb, axisc, None) if axis is None else (axis, axis, axis, None)


def _component_axis(name: str, shape: Shape, axis: Any) -> int:
    """Axis of the three components, counted from the end; raise unless its length is 3."""
    if not shape:
        raise ShapeError(f"cross: {name} is a number; pass a vector of 3, or an array of them")
    (k,) = normalize_axes("cross", axis, len(shape))
    if shape[k] != 3:
        raise ShapeError(
            f"cross: {name} has shape {shape}, of which axis {axis} has length {shape[k]}; "
            "vectors have 3 components (append a 0 to those of 2)"
        )
    return k - len(shape)


def _cross_spec(x: Spec, y: Spec, axisa: Any, axisb: Any, axisc: Any, axis: None) -> Spec:
    lengths = []
    for name, spec, along in (("x", x, axisa), ("y", y, axisb)):
        shape = list(getattr(spec, "shape", ()))
        shape.pop(_component_axis(name, tuple(shape), along))
        lengths.append(tuple(shape))
    try:
        batch = np.broadcast_shapes(*lengths)
    except ValueError:
        raise ShapeError(
            f"cross: axes beside the vectors do not broadcast, {lengths[0]} and {lengths[1]}"
        ) from None
    (k,) = normalize_axes("cross", axisc, len(batch) + 1)
    dtype = result_type(x.dtype, y.dtype)
    if dtype.kind == "b":
        raise DTypeError("cross: bool arrays cannot be subtracted; cast them, x.astype(int)")
    return Spec((*batch[:k], 3, *batch[k:]), dtype)


def _canonical_axes(
    x: Any, y: Any, axisa: int, axisb: int, axisc: int, axis: None
) -> tuple[Any, ...]:
    return axisa % x.ndim, axisb % y.ndim, axisc % max(x.ndim, y.ndim), None


def _cross(x: Any, y: Any, axisa: Any, axisb: Any, axisc: Any, axis: None) -> Any:
    # np.cross takes 1.3 times as long for two vectors, and older versions accept 2 components.
    a = np.moveaxis(x, _component_axis("x", x.shape, axisa), 0)
    b = np.moveaxis(y, _component_axis("y", y.shape, axisb), 0)
    out = np.empty((3, *np.broadcast_shapes(a.shape[1:], b.shape[1:])), result_type(a, b))
    for k, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        out[k] = a[i] * b[j] - a[j] * b[i]
    return np.moveaxis(out, 0, axisc)


def _cross_decomposition(x: Any, y: Any, axisa: Any, axisb: Any, axisc: Any, axis: None) -> Any:
    a = [take(x, k, _component_axis("x", x.shape, axisa)) for k in range(3)]
    b = [take(y, k, _component_axis("y", y.shape, axisb)) for k in range(3)]
    cycles = ((1, 2), (2, 0), (0, 1))
    return stack([sub(mul(a[i], b[j]), mul(a[j], b[i])) for i, j in cycles], axisc)


def _cross_x_vjp(g: Any, y: Any, x_spec: Spec, axisa: Any, axisb: Any, axisc: Any) -> Any:
    return cross(y, g, axisb, axisc, _component_axis("x", x_spec.shape, axisa))


def _cross_y_vjp(g: Any, x: Any, y_spec: Spec, axisa: Any, axisb: Any, axisc: Any) -> Any:
    return cross(g, x, axisc, axisa, _component_axis("y", y_spec.shape, axisb))


@op(
    kernel=_cross,
    decomposition=_cross_decomposition,
    numpy=[np.cross],
    prepare=_cross_options,
    canonical=_canonical_axes,
    infer=_cross_spec,
    vjp={"x": _cross_x_vjp, "y": _cross_y_vjp},
    jvp={
        "x": lambda t, y, axisa, axisb, axisc: cross(t, y, axisa, axisb, axisc),
        "y": lambda t, x, axisa, axisb, axisc: cross(x, t, axisa, axisb, axisc),
    },
    samples=[
        sample((3,), (3,)),
        sample((2, 3), (3,)),
        sample((2, 1, 3), (4, 3)),
        sample((3, 2), (3, 2), axis=0),
        sample((3, 5), (4, 5, 3), axisa=0, axisc=0),
        sample((2, 3, 4), (2, 1, 3), axisa=-2, axisc=1),
        sample((0, 3), (3,)),
    ],
    rejects=[
        reject((2,), (2,), match="3 components"),
        reject((), (3,), match="x is a number"),
        reject((2, 3), (4, 3), match="do not broadcast"),
        reject((2, 3), (2, 3), axis=2, match="does not fit"),
        reject(np.ones(3, bool), np.ones(3, bool), error=DTypeError, match="cannot be subtracted"),
    ],
)
def cross(
    x: Any,
    y: Any,
    /,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """Cross product of vectors of three components along an axis of each array."""
    return np.cross(x, y, axisa, axisb, axisc)


# ------------------------------------------------------------------ Kronecker product


@composite(
    numpy=[np.kron],
    samples=[
        sample((2, 2), (1, 3)),
        sample((2,), (2, 1, 2)),
        sample((), (2, 2)),
        sample((0, 2), (2, 1)),
    ],
)
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: blocks of ``b`` times each element of ``a``.

    Args:
        a: Array of any shape, or a number: the factor of each block.
        b: Array of any shape, or a number: the block.

    Returns:
        An array whose length along each axis is the product of both lengths.

    >>> kron(np.array([1.0, 10.0]), np.array([[1.0, 2.0]]))
    array([[ 1.,  2., 10., 20.]])
    """
    shapes = shape_of(a), shape_of(b)
    if not all(shapes):
        a, b = (np.asarray(x) if type(x) in NUMBERS else x for x in (a, b))
        return mul(a, b)
    ndim = max(map(len, shapes))
    outer, inner = ((1,) * (ndim - len(shape)) + shape for shape in shapes)
    factors = reshape(a, tuple(m for n in outer for m in (n, 1)))
    block = reshape(b, tuple(m for n in inner for m in (1, n)))
    lengths = tuple(m * n for m, n in zip(outer, inner, strict=True))
    return reshape(mul(factors, block), lengths)


# ------------------------------------------------------------------ inner products along an axis


@composite(
    numpy=[np.vecdot, np.linalg.vecdot],
    samples=[
        sample((2, 3), (3,)),
        sample((3, 1, 2), (3, 4, 1), axis=0),
        sample((3,), (3,)),
        sample((2, 0), (2, 0)),
    ],
    rejects=[reject((2, 3), (2,), match="differ"), reject((), (2,), match="does not fit")],
)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Inner product of vectors along an axis, with ``x1`` conjugated.

    Args:
        x1: Array of vectors.
        x2: Array of vectors of the same length.
        axis: Axis of the vectors in both arrays; the other axes broadcast.

    Raises:
        ShapeError: if lengths differ, or other axes do not broadcast.

    >>> vecdot(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([3.0, 4.0]))
    array([11.,  4.])
    """
    vectors = []
    for x in (x1, x2):
        x = x if hasattr(x, "dtype") else as_array("vecdot", "an operand", x)
        normalize_axes("vecdot", axis, len(shape_of(x)))
        last = axis in (-1, len(shape_of(x)) - 1)
        vectors.append(x if last else moveaxis(x, axis, -1))
    left, right = vectors
    if left.dtype.kind == "c":  # conj turns bool into a number
        left = conj(left)
    row, column = expand_dims(left, -2), expand_dims(right, -1)
    out = matmul(row, column)
    return reshape(out, shape_of(out)[:-2])


publish(globals())
