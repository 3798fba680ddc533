"""Norms of vectors and matrices, and condition numbers.

The gradient of a norm at 0 is 0, the subgradient of least norm. Ties of a largest or smallest
element, sum or singular value share the gradient evenly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_number, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_half
from odyssey.errors import LinAlgError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_shapes import (
    check_square,
    positive_definite,
    real_dtype_of,
    well_conditioned,
)
from odyssey.linalg.singular_values import svdvals
from odyssey.ops.elementwise.arithmetic import div, mul
from odyssey.ops.elementwise.choice import equal, isnan, logical_and, logical_not, not_equal, where
from odyssey.ops.elementwise.complex_numbers import absolute, conj, real
from odyssey.ops.elementwise.elementary import power, sqrt
from odyssey.ops.reductions.broadcast_back import broadcast_back
from odyssey.ops.reductions.reduce import any as any_of
from odyssey.ops.reductions.reduce import max, min, sum
from odyssey.ops.reductions.variance import over_length
from odyssey.ops.structure.half_precision import compute_in_float32, narrow_half, widen_half
from odyssey.ops.structure.shape import astype, moveaxis, reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes, reduced_shape

# ------------------------------------------------------------------ Euclidean norm


def _norm_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.kind in "biu" else real_dtype_of(dtype)


def _euclidean_norm_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    shape = reduced_shape("euclidean_norm", x.shape, axis, keepdims)
    return Spec(shape, _norm_dtype(x.dtype))


def _euclidean_norm(x: Any, axis: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    if is_half(x.dtype):  # squares overflow at 65,504, sums stop growing at 2048
        return _euclidean_norm(x.astype(np.float32), axis, keepdims).astype(x.dtype)
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    axes = normalize_axes("euclidean_norm", axis, x.ndim)
    if len(axes) == x.ndim:  # BLAS takes a third of the time
        flat = x.reshape(-1)
        if x.dtype.kind == "c":  # an infinite number times its conjugate would be NaN
            flat = np.ascontiguousarray(flat).view(real_dtype_of(x.dtype))
        squares = np.dot(flat, flat)
        return np.sqrt(squares.reshape((1,) * x.ndim)) if keepdims else np.sqrt(squares)
    squares = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
    return np.sqrt(np.add.reduce(squares, axis=axes, keepdims=keepdims))


def _unit_vectors(x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    """Vectors divided by their lengths; 0 for zero vectors."""
    unit = over_length(x, broadcast_back(out, x_spec, axis, keepdims))
    return conj(unit) if x.dtype.kind == "c" else unit


def _euclidean_norm_vjp(g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    return mul(
        broadcast_back(g, x_spec, axis, keepdims), _unit_vectors(x, out, x_spec, axis, keepdims)
    )


def _euclidean_norm_jvp(t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    moved = sum(
        mul(t, _unit_vectors(widen_half(x), out, x_spec, axis, keepdims)),
        axis,
        keepdims=keepdims,
    )
    return real(moved) if x.dtype.kind == "c" else narrow_half(moved, x.dtype)


@op(
    vmap="along",
    infer=_euclidean_norm_spec,
    kernel=_euclidean_norm,
    decomposition=compute_in_float32(
        lambda x, axis, keepdims: sqrt(sum(real(mul(x, conj(x))), axis, keepdims=keepdims))
    ),
    canonical=canonical_axes,
    vjp={"x": _euclidean_norm_vjp},
    jvp={"x": _euclidean_norm_jvp},
    kinks="0 at 0, where the second derivative is NaN",
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=1),
        sample((2, 2, 3), axis=(0, -1), keepdims=True),
        sample(()),
        sample((3,), axis=0),
        sample((2, 0), axis=0),
    ],
    rejects=[reject((2, 3), axis=2, match="does not fit"), reject((), axis=0, match="not fit")],
    precision="wide",
)
def euclidean_norm(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Euclidean norm, ``sqrt(sum(|x|**2))``, along one axis, several, or all."""
    return _euclidean_norm(x, axis, keepdims)


# ------------------------------------------------------------------ other norms


def _vector_order(who: str, order: Any) -> Any:
    """Return the order of a vector norm as a float."""
    if order is None:
        return 2.0
    if isinstance(order, str):
        raise SettingError(
            f"{who}: ord={format_value(order)} is for matrices; pass a number for vectors"
        )
    return check_number(who, "ord", order, "[-inf, inf]")


def _vector_norm(who: str, x: Any, order: Any, axis: Any, keepdims: bool) -> Any:
    order = _vector_order(who, order)
    if order == 2:
        return euclidean_norm(x, axis, keepdims=keepdims)
    if is_half(x.dtype):
        single = astype(x, np.float32)
        return astype(_vector_norm(who, single, order, axis, keepdims), x.dtype)
    if order == 0:
        nonzero = astype(not_equal(x, 0), _norm_dtype(x.dtype))
        return sum(nonzero, axis, keepdims=keepdims)
    sizes = absolute(x)
    empty = not math.prod(x.shape[k] for k in normalize_axes(who, axis, len(x.shape)))
    if order == 1 or (order == math.inf and empty):
        return sum(sizes, axis, keepdims=keepdims)
    if math.isinf(order):
        return (max if order > 0 else min)(sizes, axis, keepdims=keepdims)
    total = sum(power(sizes, order), axis, keepdims=keepdims)
    if order < 0:
        return power(total, 1 / order)
    # The derivative of the root is infinite at 0: substitute 1 there, and select 0 afterwards.
    zero = equal(total, 0)
    root = power(where(zero, 1.0, total), 1 / order)
    return where(zero, 0.0, root)


def _matrix_norm(who: str, x: Any, order: Any, axes: Any, keepdims: bool) -> Any:
    shape: Shape = shape_of(x)
    normalize_axes(who, axes, len(shape))
    row, column = (int(k) % len(shape) for k in axes)
    if order is None or (isinstance(order, str) and order in ("f", "fro")):
        return euclidean_norm(x, (row, column), keepdims=keepdims)
    if isinstance(order, str) and order == "nuc":
        out = sum(_singular_values(x, row, column), -1)
    elif not isinstance(order, str) and order in (2, -2):
        s = _singular_values(x, row, column)
        empty = order == 2 and not shape_of(s)[-1]
        out = (sum if empty else max if order > 0 else min)(s, -1)
    elif not isinstance(order, str) and order in (1, -1, math.inf, -math.inf):
        summed_axis, other_axis = (row, column) if abs(order) == 1 else (column, row)
        half = is_half(x.dtype)
        sizes = absolute(astype(x, np.float32) if half else x)
        sums = sum(sizes, summed_axis, keepdims=True)
        empty = order > 0 and not shape[other_axis]
        out = (sum if empty else max if order > 0 else min)(sums, (summed_axis, other_axis))
        out = astype(out, x.dtype) if half else out
    else:
        raise SettingError(
            f"{who}: ord={format_value(order)} for a matrix; pass 1, -1, 2, -2, inf, -inf, 'fro' "
            "or 'nuc'"
        )
    if not keepdims:
        return out
    kept_shape = tuple(1 if k in (row, column) else n for k, n in enumerate(shape))
    return reshape(out, kept_shape)


def _singular_values(x: Any, row: int, column: int) -> Any:
    ndim = len(shape_of(x))
    if (row, column) != (ndim - 2, ndim - 1):
        x = moveaxis(x, (row, column), (-2, -1))
    return svdvals(x)


def _float_operand(who: str, x: Any) -> Any:
    x = x if hasattr(x, "dtype") else as_array(who, "x", x)
    return astype(x, np.float64) if x.dtype.kind in "biu" else x


@composite(
    numpy=[np.linalg.norm],
    samples=[
        sample((2, 3, 2)),
        sample((2, 3), ord="nuc"),
        sample((2, 3), ord=2, keepdims=True),
        sample((2, 3, 2), ord=-2, axis=(2, 0)),
        sample((2, 3), ord=1),
        sample((2, 3), ord=-np.inf),
        sample((3,), ord=3),
        sample((2, 3), ord=np.inf, axis=1),
        sample((2, 3), axis=-1, keepdims=True),
        sample((2, 3), ord=0.5, axis=0),
        sample((0,), ord=np.inf),
    ],
    rejects=[
        reject((2, 3), ord=3, error=SettingError, match="for a matrix; pass 1"),
        reject((3,), ord="fro", error=SettingError, match="is for matrices"),
        reject((2, 2, 2), ord=2, match="3 axes; pass axis="),
        reject((2, 2), axis=(0, 0), match="distinct"),
    ],
)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norm of a matrix or a vector, or of many.

    Args:
        x: Array, of one or two axes unless ``axis`` is given or ``ord`` is None.
        ord: For vectors a number ``p``: ``sum(|x|**p)**(1/p)``; inf or -inf for the largest or
            smallest absolute value, 0 for the number of nonzero elements. For matrices 1 or inf
            for the largest absolute column or row sum, 2 for the largest singular value, and -1,
            -inf or -2 for the smallest; ``"fro"`` for the Frobenius norm and ``"nuc"`` for the
            nuclear norm, the sum of singular values. By default ``sqrt(sum(|x|**2))``.
        axis: One axis for vectors, or two for matrices.
        keepdims: Whether reduced axes are kept with length 1.

    Raises:
        SettingError: for an invalid order.
        ShapeError: for an invalid number of axes.

    >>> a = np.array([[3.0, 0.0], [0.0, -4.0]])
    >>> float(norm(a)), float(norm(a, 1)), norm(a, axis=0)
    (5.0, 4.0, array([3., 4.]))
    """
    x = _float_operand("norm", x)
    ndim = len(shape_of(x))
    if axis is None:
        if ord is None:
            return euclidean_norm(x, None, keepdims=keepdims)
        axis = tuple(range(ndim))
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) == 1:
        return _vector_norm("norm", x, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm("norm", x, ord, axes, keepdims)
    raise ShapeError(
        f"norm: ord={format_value(ord)} over {len(axes)} axes; pass axis= with one, of vectors, or "
        "two, of matrices"
    )


@composite(
    numpy=[np.linalg.vector_norm],
    samples=[
        sample((2, 3)),
        sample((2, 3), ord=1, axis=1),
        sample((2, 3, 2), axis=(0, 2), keepdims=True, ord=np.inf),
        sample((2, 3), ord=2.5, axis=0),
        sample((), ord=-np.inf),
    ],
    rejects=[reject((3,), ord="nuc", error=SettingError, match="is for matrices")],
)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Vector norm along one axis, several, or all.

    Args:
        x: Array of any shape.
        axis: One axis or several; by default all.
        keepdims: Whether reduced axes are kept with length 1.
        ord: As in ``norm``.

    Raises:
        SettingError: for an invalid order.

    >>> vector_norm(np.array([[3.0, 4.0], [0.0, 2.0]]), axis=1)
    array([5., 2.])
    """
    return _vector_norm("vector_norm", _float_operand("vector_norm", x), ord, axis, keepdims)


@composite(
    numpy=[np.linalg.matrix_norm],
    samples=[
        sample((2, 3)),
        sample((2, 3, 2), ord=2, keepdims=True),
        sample((2, 2), ord="nuc"),
        sample((2, 2, 2), ord=np.inf),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject((2, 2), ord=0, error=SettingError, match="for a matrix; pass 1"),
    ],
)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Matrix norm over the last two axes.

    Args:
        x: Array of two axes or more.
        keepdims: Whether reduced axes are kept with length 1.
        ord: As in ``norm``.

    Raises:
        SettingError: for an invalid order.
        ShapeError: for a vector.

    >>> float(matrix_norm(np.array([[3.0, 0.0], [0.0, -4.0]]), ord="nuc"))
    7.0
    """
    x = _float_operand("matrix_norm", x)
    if len(shape_of(x)) < 2:
        raise ShapeError(
            f"matrix_norm: x has shape {shape_of(x)}; wanted are matrices, or use vector_norm"
        )
    return _matrix_norm("matrix_norm", x, ord, (-2, -1), keepdims)


# ------------------------------------------------------------------ condition numbers


@composite(
    numpy=[np.linalg.cond],
    samples=[
        sample((3, 2)),
        sample((3, 3), p=-2),
        sample((2, 2, 2), p=1, form=well_conditioned),
        sample((3, 3), p="fro", form=positive_definite),
    ],
    rejects=[
        reject((2, 3), p=1, match="square matrices"),
        reject((0, 0), error=LinAlgError, match="without elements"),
        reject((2, 2), p=3, error=SettingError, match="for a matrix; pass 1"),
    ],
)
def cond(x: Any, p: Any = None) -> Any:
    """Condition number of matrices: the norm times the norm of the inverse.

    Args:
        x: Matrices; square unless ``p`` is None, 2 or -2.
        p: Order of the norm, as in ``norm``; by default 2.

    Returns:
        Condition numbers, inf for singular matrices.

    Raises:
        LinAlgError: for matrices without elements.

    >>> float(cond(np.diag([4.0, 2.0])))
    2.0
    """
    x = _float_operand("cond", x)
    if 0 in shape_of(x)[-2:]:
        raise LinAlgError(
            f"cond: x has shape {shape_of(x)}; a matrix without elements has no condition number"
        )
    out = _condition_number(x, p)
    not_nan = logical_not(any_of(isnan(x), (-2, -1)))
    return where(logical_and(isnan(out), not_nan), np.inf, out)


@ignore_fp_errors("divide", "invalid", "over")
def _condition_number(x: Any, p: Any) -> Any:
    if p is None or (not isinstance(p, str) and p in (2, -2)):
        s = svdvals(x)
        ends = s[..., 0], s[..., -1]
        return div(*(ends[::-1] if p == -2 else ends))
    dtype = check_square("cond", x)
    inverse = solve_or_nan(x, np.eye(shape_of(x)[-1], dtype=dtype))
    norms = [_matrix_norm("cond", m, p, (-2, -1), False) for m in (x, inverse)]
    return mul(*norms)


publish(globals())
