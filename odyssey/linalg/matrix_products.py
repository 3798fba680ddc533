"""Matrix products: matmul, dot, inner, outer and tensor products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.batching import align
from odyssey.ops.structure.shape import matrix_transpose, reshape, shape_of, transpose
from odyssey.spec import Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import NUMBERS


def _matmul(x: Any, y: Any) -> Any:
    # For two small matrices dot takes 0.4 us against 1.7 us of matmul; but it first fills the
    # result with zeros, which costs 5 percent of large thin products.
    try:
        if x.ndim == 2 and y.ndim == 2 and (len(x) <= 256 or x.shape[0] * y.shape[1] <= 32768):
            return x.dot(y)
    except AttributeError:
        pass  # a Python number, which matmul rejects
    return np.matmul(x, y)


def _matmul_spec(x: Spec, y: Spec) -> Spec:
    if not (isinstance(x, Spec) and isinstance(y, Spec) and x.ndim and y.ndim):
        came = f"x {getattr(x, 'shape', x)!r} @ y {getattr(y, 'shape', y)!r}"
        raise ShapeError(f"matmul: operands need at least one axis, {came}; use * for scalars")
    left = x.shape if x.ndim > 1 else (1, *x.shape)
    right = y.shape if y.ndim > 1 else (*y.shape, 1)
    if left[-1] != right[-2]:
        raise ShapeError(
            f"matmul: inner sizes differ, x {x.shape} @ y {y.shape}; "
            f"x.shape[-1] must equal y.shape[{-2 if y.ndim > 1 else -1}]"
        )
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise ShapeError(
            f"matmul: leading axes do not broadcast, x {x.shape} @ y {y.shape}"
        ) from None
    rows = left[-2:-1] if x.ndim > 1 else ()
    columns = right[-1:] if y.ndim > 1 else ()
    return Spec((*batch, *rows, *columns), np.result_type(x.dtype, y.dtype))


def _matmul_x_vjp(g: Any, y: Any, x_spec: Spec) -> Any:
    left, right = len(x_spec.shape), y.ndim
    if left > 1 and right > 1:
        return matmul(g, matrix_transpose(y))
    if left == 1 and right == 1:
        return mul(g, y)
    if left == 1:
        return reshape(matmul(y, as_column(g)), y.shape[:-1])
    return mul(as_column(g), y)


def _matmul_y_vjp(g: Any, x: Any, y_spec: Spec) -> Any:
    left, right = x.ndim, len(y_spec.shape)
    if left > 1 and right > 1:
        return matmul(matrix_transpose(x), g)
    if left == 1 and right == 1:
        return mul(g, x)
    if left == 1:
        return mul(as_column(x), reshape(g, (*g.shape[:-1], 1, g.shape[-1])))
    column = matmul(matrix_transpose(x), as_column(g))
    return reshape(column, column.shape[:-1])


def as_column(v: Any) -> Any:
    """Reshape vectors on the last axis to matrices of one column."""
    return reshape(v, (*v.shape, 1))


def batch_matmul(batch: Batch, x: Any, y: Any) -> Any:
    """Batch rule of ``matmul``."""
    left, right = batch.ndim(0, x), batch.ndim(1, y)
    if not left or not right:
        raise ShapeError("matmul: an operand is a number; use * for scalars")
    if not batch.mapped[1] and right <= 2:  # the examples are more rows of one product
        if left == 1:
            return matmul(x, y)
        rows = matmul(reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), y)
        return reshape(rows, (*x.shape[:-1], *rows.shape[1:]))
    if not batch.mapped[0] and left <= 2:
        if right == 1:
            return matmul(y, matrix_transpose(x) if left == 2 else x)
        return matmul(x, y)
    if left == 1:
        x = reshape(x, (*x.shape[:-1], 1, x.shape[-1]))
    if right == 1:
        y = as_column(y)
    ndim = max(left, right, 2)
    x, y = align(x, batch.mapped[0], ndim), align(y, batch.mapped[1], ndim)
    # Outer products: NumPy's matmul takes three times as long.
    outer = x.shape[-1] == y.shape[-2] == 1
    out = mul(x, y) if outer else matmul(x, y)
    rows = out.shape[-2:-1] if left > 1 else ()
    columns = out.shape[-1:] if right > 1 else ()
    return reshape(out, (*out.shape[:-2], *rows, *columns))


def _lower_matmul(build: Any, x: Any, y: Any) -> Any:
    if np.result_type(x.dtype, y.dtype).char not in "efdFD":
        return NotImplemented
    shape = _matmul_spec(Spec(x.shape, x.dtype), Spec(y.shape, y.dtype)).shape
    left = build.reshape(x, (1, *x.shape)) if x.ndim == 1 else x
    right = build.reshape(y, (*y.shape, 1)) if y.ndim == 1 else y
    dtype = np.result_type(x.dtype, y.dtype)
    return build.reshape(build.matmul(build.cast(left, dtype), build.cast(right, dtype)), shape)


def _cuda_matmul(x: Any, y: Any) -> Any:
    from odyssey.kernels.matrix_product import cuda_matmul

    return cuda_matmul(x, y)


def _fits_cuda_matmul(x: Spec, y: Spec) -> bool:
    from odyssey.kernels.matrix_product import fits_cuda_matmul

    return fits_cuda_matmul(x, y)


@op(
    primitive="product",
    lowering=_lower_matmul,
    ufunc=np.matmul,
    kernel=_matmul,
    kernels=[Kernel("tiles in shared memory", _cuda_matmul, "cuda", when=_fits_cuda_matmul)],
    vmap=batch_matmul,
    infer=_matmul_spec,
    vjp={"x": _matmul_x_vjp, "y": _matmul_y_vjp},
    jvp={"x": lambda t, y: matmul(t, y), "y": lambda t, x: matmul(x, t)},
    samples=[
        sample((2, 3), (3, 4)),
        sample((3,), (3,)),
        sample((3,), (3, 2)),
        sample((2, 3), (3,)),
        sample((3,), (4, 3, 2)),
        sample((4, 2, 3), (3,)),
        sample((2, 1, 2, 3), (4, 3, 2)),
        sample((2, 0), (0, 3)),
        sample((0, 2), (2, 3)),
    ],
    rejects=[
        reject((3, 4), (5, 6), match="inner sizes differ"),
        reject((), (3,), match="at least one axis"),
        reject((2, 3, 4), (3, 4, 5), match="leading axes"),
    ],
    precision="low",
)
def matmul(x: Any, y: Any, /) -> Any:
    """Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""
    return np.matmul(x, y)


def adjoint_of(x: Any) -> Any:
    """Conjugate transpose, for rules."""
    return conj(matrix_transpose(x))


# ------------------------------------------------------------------ composite products


def _numbers_to_arrays(*operands: Any) -> list[Any]:
    """Convert Python numbers to arrays: in these functions of NumPy they are not weak."""
    return [np.asarray(x) if type(x) in NUMBERS else x for x in operands]


@composite(
    numpy=[np.dot],
    samples=[
        sample((2, 3), (3, 4)),
        sample((3,), (3,)),
        sample((2, 1, 3), (4, 3, 2)),
        sample((), (2, 2)),
        sample((2, 0), (0, 3)),
    ],
    rejects=[reject((2, 3), (2, 3), match="differ")],
)
def dot(a: Any, b: Any) -> Any:
    """Dot product of vectors, matrices or numbers.

    Args:
        a: Array of any shape, or a number; summed over its last axis.
        b: Array of any shape, or a number; summed over its second to last axis, or its only axis.

    Returns:
        An array whose shape joins both shapes without the summed axes.

    Raises:
        ShapeError: if these axes differ in length.

    >>> float(dot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    """
    left, right = len(shape_of(a)), len(shape_of(b))
    if not left or not right:
        return mul(*_numbers_to_arrays(a, b))
    if left <= 2 and right <= 2:
        return matmul(a, b)
    return tensordot(a, b, ([-1], [-1 if right == 1 else -2]))


@composite(
    numpy=[np.vdot],
    samples=[sample((3,), (3,)), sample((2, 3), (3, 2)), sample((), ()), sample((0,), (0,))],
    rejects=[reject((3,), (2,), match="differ")],
)
def vdot(a: Any, b: Any, /) -> Any:
    """Inner product of all elements, with ``a`` conjugated.

    Args:
        a: Array of any shape.
        b: Array with the same number of elements.

    >>> complex(vdot(np.array([1j, 2.0]), np.array([1.0, 1.0])))
    (2-1j)
    """
    flat_a, flat_b = (reshape(v, -1) for v in (a, b))
    if flat_a.dtype.kind == "c":  # conj turns bool into a number
        flat_a = conj(flat_a)
    return matmul(flat_a, flat_b)


@composite(
    numpy=[np.inner],
    samples=[sample((2, 3), (4, 3)), sample((3,), (3,)), sample((), (2, 2)), sample((2, 0), (0,))],
    rejects=[reject((2, 3), (2,), match="differ")],
)
def inner(a: Any, b: Any, /) -> Any:
    """Inner product: products summed over the last axes of both operands.

    Args:
        a: Array of any shape, or a number.
        b: Array with a last axis of the same length, or a number.

    Raises:
        ShapeError: if the last axes differ in length.

    >>> inner(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([3.0, 4.0]))
    array([11.,  4.])
    """
    if not shape_of(a) or not shape_of(b):
        return mul(*_numbers_to_arrays(a, b))
    return tensordot(a, b, ([-1], [-1]))


@composite(
    numpy=[np.outer],
    samples=[sample((2,), (3,)), sample((2, 1), (1, 3)), sample((), (2,)), sample((0,), (2,))],
)
def outer(a: Any, b: Any) -> Any:
    """Outer product: each element of ``a`` times each element of ``b``.

    Args:
        a: Array of any shape; flattened, one row for each element.
        b: Array of any shape; flattened, one column for each element.

    >>> outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    array([[3., 4.],
           [6., 8.]])
    """
    column, row = reshape(a, (-1, 1)), reshape(b, (1, -1))
    return mul(column, row)


@composite(
    numpy=[np.tensordot],
    samples=[
        sample((2, 3, 4), (3, 4, 2)),
        sample((2, 3), (3, 2), axes=([0, -1], [1, 0])),
        sample((2,), (3,), axes=0),
        sample((2, 0), (0, 3), axes=1),
    ],
    rejects=[reject((2, 3), (2, 3), axes=1, match="differ")],
)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Tensor product of arrays, summed over pairs of axes.

    Args:
        a: Array of any shape.
        b: Array of any shape.
        axes: Number of axes to sum, last of ``a`` with first of ``b``; or two lists of axes.

    Returns:
        An array with the remaining axes of ``a``, then those of ``b``.

    Raises:
        ShapeError: if the axes differ in length or number.

    >>> tensordot(np.ones((2, 3, 4)), np.ones((4, 3, 5)), ([1, 2], [1, 0])).shape
    (2, 5)
    """
    shapes = shape_of(a), shape_of(b)
    if isinstance(axes, (int, np.integer)):
        sums = [list(range(len(shapes[0]) - axes, len(shapes[0]))), list(range(axes))]
    else:
        sums = [[int(k) for k in np.atleast_1d(side)] for side in axes]
    for shape, side in zip(shapes, sums, strict=True):
        normalize_axes("tensordot", tuple(side), len(shape))
    left, right = ([k % len(s) for k in side] for s, side in zip(shapes, sums, strict=True))
    lengths = [shapes[0][k] for k in left], [shapes[1][k] for k in right]
    if lengths[0] != lengths[1]:
        raise ShapeError(f"tensordot: a {shapes[0]} and b {shapes[1]} differ on the axes {sums}")
    free_axes = [
        [k for k in range(len(shape)) if k not in side]
        for shape, side in zip(shapes, (left, right), strict=True)
    ]
    free_shapes = [tuple(s[k] for k in free) for s, free in zip(shapes, free_axes, strict=True)]
    n = math.prod(lengths[0])
    rows = reshape(transpose(a, (*free_axes[0], *left)), (math.prod(free_shapes[0]), n))
    columns = reshape(transpose(b, (*right, *free_axes[1])), (n, math.prod(free_shapes[1])))
    return reshape(matmul(rows, columns), free_shapes[0] + free_shapes[1])


publish(globals())
