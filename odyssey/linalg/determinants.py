"""Determinants and their logarithms.

The gradient of a determinant is the matrix of cofactors, which exists for singular matrices too.
The cofactors and their derivative are computed from the singular value decomposition without
division: for ``a = u @ diag(s) @ vh`` they are the cofactors of ``diag(s)``, transformed by ``u``
and ``vh``. So the first two derivatives of ``det`` are exact everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import (
    HALF_MATRIX,
    NOT_SQUARE,
    check_square,
    real_dtype_of,
    well_conditioned,
)
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.complex_numbers import imag, real
from odyssey.ops.elementwise.elementary import log
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.batching import spread
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ cofactors


def _products_without_one(s: Array) -> Array:
    """For each number, the product of all others."""
    if not s.shape[-1]:
        return s
    ones = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    out: Array = before * after
    return out


def _products_without_pair(s: Array) -> Array:
    """For each pair of numbers, the product of all others; 0 on the diagonal."""
    n = s.shape[-1]
    out = np.zeros((*s.shape, n), s.dtype)
    for i in range(n):
        out[..., i, i + 1 :] = s[..., :i].prod(-1, keepdims=True) * _products_without_one(
            s[..., i + 1 :]
        )
    found: Array = out + np.swapaxes(out, -1, -2)
    return found


def _singular_factors(a: Any) -> tuple[Array, Array, Array, Any]:
    """Return ``u, s, vh`` and ``det(u @ vh)``.

    Singular values of matrices that are not finite are NaN; LAPACK might never return for these.
    """
    not_finite = ~np.isfinite(a).all((-2, -1))
    if not_finite.any():
        a = np.where(not_finite[..., None, None], np.eye(a.shape[-1], dtype=a.dtype), a)
    u, s, vh = lapack.svd(a)
    s[not_finite] = np.nan
    return u, s, vh, lapack.det(np.matmul(u, vh))[..., None, None]


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def _row_cross_products(x: Array, y: Array) -> Array:
    """For each row k, the cross product of row k + 1 of ``x`` with row k + 2 of ``y``."""
    x, y = x[..., _NEXT, :], y[..., _LAST, :]
    found: Array = x[..., _NEXT] * y[..., _LAST] - x[..., _LAST] * y[..., _NEXT]
    return found


def _cofactors_2x2(a: Array) -> Array:
    """Cofactors of 2 by 2 matrices."""
    found: Array = a[..., ::-1, ::-1] * np.array([[1, -1], [-1, 1]], a.dtype)
    return found


def _cofactor_arrays(a: Any) -> Any:
    a = np.asarray(a, check_square("cofactors", a))
    if a.shape[-1] in (2, 3):  # five times faster than the SVD
        return _cofactors_2x2(a) if a.shape[-1] == 2 else _row_cross_products(a, a)
    u, s, vh, sign = _singular_factors(a)
    out = np.matmul(np.conj(u) * _products_without_one(s)[..., None, :], np.conj(vh))
    return np.asarray(out * sign, u.dtype)


def _cofactor_slope_spec(t: Any, a: Any) -> Spec:
    who = "cofactor_slope"
    left, right = check_square(who, t, "t"), check_square(who, a)
    if t.shape != a.shape:
        raise ShapeError(f"{who}: t has shape {t.shape}, a {a.shape}; wanted are equal shapes")
    return Spec(a.shape, np.result_type(left, right))


def _cofactor_slope(t: Any, a: Any) -> Any:
    spec = _cofactor_slope_spec(t, a)
    if a.shape[-1] in (2, 3):
        a, t = np.asarray(a, spec.dtype), np.asarray(t, spec.dtype)
        return (
            _cofactors_2x2(t)
            if a.shape[-1] == 2
            else _row_cross_products(t, a) + _row_cross_products(a, t)
        )
    u, s, vh, sign = _singular_factors(a)
    e = np.conj(np.matmul(np.matmul(vh, np.conj(np.swapaxes(t, -1, -2))), u))
    e = np.swapaxes(e, -1, -2)  # u^H t vh^H
    pairs = _products_without_pair(s)
    diagonal = np.einsum("...ij,...jj->...i", pairs, e)
    inner = -pairs * np.swapaxes(e, -1, -2)
    index = np.arange(s.shape[-1])
    inner[..., index, index] = diagonal
    out = np.matmul(np.matmul(np.conj(u), inner), np.conj(vh)) * sign
    return np.asarray(out, spec.dtype)


def _batch_cofactor_slope(batch: Batch, t: Any, a: Any) -> Any:
    if batch.ndim(0, t) < 2 or batch.ndim(1, a) < 2:
        raise ShapeError("cofactor_slope: an operand is not a matrix; pass square matrices")
    return cofactor_slope(spread(batch, 0, t), spread(batch, 1, a))


def _det_third_derivative(h: Any, t: Any, a: Any) -> Any:
    """Third derivative of the determinant along ``h`` and ``t``; NaN for singular matrices."""
    inverse = solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype))
    along_t, along_h = matmul(inverse, t), matmul(inverse, h)
    trace_t, trace_h = _trace_as_matrix(along_t), _trace_as_matrix(along_h)
    scalar = sub(mul(trace_t, trace_h), _trace_as_matrix(matmul(along_t, along_h)))
    matrix = add(matmul(along_t, along_h), matmul(along_h, along_t))
    matrix = sub(matrix, add(mul(trace_h, along_t), mul(trace_t, along_h)))
    total = add(mul(scalar, inverse), matmul(matrix, inverse))
    return mul(expand_dims(det(a), (-2, -1)), matrix_transpose(total))


def _trace_as_matrix(x: Any) -> Any:
    """Trace of each matrix, as a 1 by 1 matrix."""
    return expand_dims(sum(mul(x, np.eye(x.shape[-1], dtype=x.dtype)), (-2, -1)), (-2, -1))


@op(
    primitive="decompose",
    vmap=_batch_cofactor_slope,
    infer=_cofactor_slope_spec,
    kernel=_cofactor_slope,
    vjp={
        "t": lambda g, a: cofactor_slope(g, a),
        "a": lambda g, t, a: _det_third_derivative(g, t, a),
    },
    jvp={
        "t": lambda t, a: cofactor_slope(t, a),
        "a": lambda t_a, t, a: _det_third_derivative(t_a, t, a),
    },
    # For smaller matrices it is linear in both operands, and finite differences would be too.
    samples=[
        sample((3, 3), (3, 3), form=well_conditioned),
        sample((2, 3, 3), (2, 3, 3), form=well_conditioned),
        sample((0, 0), (0, 0)),
    ],
    rejects=[
        reject((2, 3), (2, 3), match="square matrices"),
        reject((2, 2), (3, 3), match="wanted are equal shapes"),
        reject(HALF_MATRIX, (2, 2), error=DTypeError, match="single or double"),
    ],
)
def cofactor_slope(t: Any, a: Any, /) -> Any:
    """Derivative of ``cofactors(a)`` along ``t``; ``a`` may be singular."""
    return _cofactor_slope(t, a)


@op(
    primitive="decompose",
    vmap="leading",
    infer=lambda a: Spec(getattr(a, "shape", ()), check_square("cofactors", a)),
    vjp={"a": lambda g, a: cofactor_slope(g, a)},
    jvp={"a": lambda t, a: cofactor_slope(t, a)},
    samples=[
        sample((3, 3)),
        sample((2, 3, 3)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=NOT_SQUARE,
)
def cofactors(a: Any, /) -> Any:
    """Cofactors of square matrices, the gradient of ``det``.

    They equal ``det(a) * inv(a).T`` if the inverse exists; third derivatives need it.
    """
    return _cofactor_arrays(a)


# ------------------------------------------------------------------ determinants


@op(
    primitive="decompose",
    vmap="leading",
    infer=lambda a: Spec(getattr(a, "shape", ())[:-2], check_square("det", a)),
    numpy=[np.linalg.det],
    vjp={"a": lambda g, a: mul(expand_dims(g, (-2, -1)), cofactors(a))},
    jvp={"a": lambda t, a: sum(mul(t, cofactors(a)), (-2, -1))},
    samples=[
        sample((3, 3)),
        sample((3, 2, 2)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=NOT_SQUARE,
    precision="wide",
)
def det(a: Any, /) -> Any:
    """Determinants of square matrices.

    The first two derivatives are exact for singular matrices too; the third is NaN for these.
    """
    return lapack.det(a)


def _slogdet_spec(a: Spec) -> tuple[Spec, Spec]:
    dtype = check_square("slogdet", a)
    return Spec(a.shape[:-2], dtype), Spec(a.shape[:-2], real_dtype_of(dtype))


def _inverse_transpose(a: Any) -> Any:
    """Transposed inverse, the gradient of the logarithm of the determinant."""
    return matrix_transpose(solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype)))


def _slogdet_vjp(g_sign: Any, g_logabsdet: Any, sign: Any, a: Any) -> Any:
    if a.dtype.kind == "c":  # the sign is exp(1j * imaginary part of the logarithm)
        g_logabsdet = add(g_logabsdet, mul(imag(mul(g_sign, sign)), 1j))
    return mul(expand_dims(g_logabsdet, (-2, -1)), _inverse_transpose(a))


def _slogdet_jvp(t: Any, sign: Any, a: Any) -> tuple[Any, Any]:
    moved = sum(mul(t, _inverse_transpose(a)), (-2, -1))
    if a.dtype.kind != "c":
        return zeros_like(sign), moved
    return mul(mul(sign, imag(moved)), 1j), real(moved)


@op(
    results=type(np.linalg.slogdet(np.eye(1))),
    primitive="decompose",
    vmap="leading",
    infer=_slogdet_spec,
    numpy=[np.linalg.slogdet],
    vjp={
        "a": lambda g_sign, g_logabsdet, sign, a: _slogdet_vjp(g_sign, g_logabsdet, sign, a),
    },
    jvp={"a": lambda t, sign, a: _slogdet_jvp(t, sign, a)},
    samples=[
        sample((3, 3), form=well_conditioned),
        sample((2, 2, 2), form=lambda x: -well_conditioned(x)),
        sample((1, 1)),
        sample((0, 0)),
    ],
    rejects=NOT_SQUARE,
    precision="wide",
)
def slogdet(a: Any, /) -> Any:
    """Sign and logarithm of the absolute value of determinants; it cannot overflow.

    The sign of real matrices is piecewise constant with derivative 0. A singular matrix has sign
    0, logarithm -inf and gradient NaN.
    """
    return lapack.slogdet(a)


@composite(
    samples=[
        sample((3, 3), form=well_conditioned),
        sample((2, 2, 2), form=well_conditioned),
        sample((0, 0)),
    ],
    rejects=[reject((2, 3), match="square matrices")],
)
def logdet(a: Any) -> Any:
    """Logarithms of determinants: NaN for a negative real determinant, -inf for 0.

    Args:
        a: Square matrices.

    Raises:
        ShapeError: for matrices that are not square.

    >>> float(logdet(np.diag([2.0, 0.5])))
    0.0
    """
    sign, size = slogdet(a)
    return add(size, log(sign))


publish(globals())
