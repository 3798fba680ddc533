"""LU, QR and Cholesky decompositions.

Derivatives of the factors of a rank-deficient matrix are undefined and come out as NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_flag, format_value
from odyssey.devices.device_versions import on_host
from odyssey.errors import DTypeError, LinAlgError, SettingError
from odyssey.kernels.lapack_library import factor_lu, lapack_library
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import (
    hermitian_from_triangle,
    hermitian_from_triangle_vjp,
    triangle_weights,
)
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import (
    HALF_MATRIX,
    check_matrices,
    check_square,
    positive_definite,
    real_dtype_of,
    well_conditioned,
)
from odyssey.linalg.triangular_systems import blocked_triangular_solve, triangular_solve
from odyssey.ops.elementwise.arithmetic import add, mul, neg, sub
from odyssey.ops.elementwise.choice import keep_where
from odyssey.ops.elementwise.complex_numbers import conj, imag
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ slices and triangles


def _slice_rows(x: Any, start: int, stop: int) -> Any:
    return getitem(x, (..., slice(start, stop), slice(None)))


def _slice_columns(x: Any, start: int, stop: int) -> Any:
    return getitem(x, (..., slice(start, stop)))


def _strict_lower(x: Any) -> Any:
    """Lower triangle without the diagonal."""
    return keep_where(x, np.tri(*x.shape[-2:], k=-1, dtype=bool))


def _upper_triangle(x: Any) -> Any:
    """Upper triangle with the diagonal."""
    return keep_where(x, ~np.tri(*x.shape[-2:], k=-1, dtype=bool))


def _solve_transposed_right(x: Any, r: Any) -> Any:
    """``x @ inv(r.T)``."""
    return matrix_transpose(solve_or_nan(r, matrix_transpose(x)))


# ------------------------------------------------------------------ LU decomposition


def _permute_rows(x: Array, order: Array) -> Array:
    return np.take_along_axis(x, order[..., None], -2)


# More matrices of at most ``_SMALL`` rows or columns are factored side by side.
_MANY, _SMALL = 8, 8
# Up to this many columns, column by column elimination is faster than recursion.
_UNBLOCKED_COLUMNS = 8


def _lu_in_place(a: Array) -> Array:
    """Factor matrices ``(count, rows, columns)`` in place and return the row permutation.

    Both triangles share one array. Recursive, so that most work is matrix products (S. Toledo,
    SIAM J. Matrix Anal. Appl. 18, 1997).
    """
    rows, columns = a.shape[-2:]
    if columns <= _UNBLOCKED_COLUMNS or rows <= 1:
        return _lu_unblocked(a)
    k = min(columns // 2, rows)
    left, right = a[..., :k], a[..., k:]
    order = _lu_in_place(left)
    right[...] = _permute_rows(right, order)
    unit_lower = np.tril(left[..., :k, :], -1) + np.eye(k, dtype=a.dtype)
    right[..., :k, :] = blocked_triangular_solve(unit_lower, right[..., :k, :], True)
    if rows == k:
        return order
    right[..., k:, :] -= np.matmul(left[..., k:, :], right[..., :k, :])
    lower_order = _lu_in_place(right[..., k:, :])
    left[..., k:, :] = _permute_rows(left[..., k:, :], lower_order)
    rest = np.take_along_axis(order[..., k:], lower_order, -1)
    return np.concatenate([order[..., :k], rest], -1)


def _lu_unblocked(a: Array) -> Array:
    """Factor matrices in place, column by column; return the row permutation."""
    count, rows, columns = a.shape
    matrices = np.arange(count)
    order = np.tile(np.arange(rows), (count, 1))
    for k in range(min(rows, columns)):
        column = a[:, k:, k]  # LAPACK's pivot criterion for complex numbers
        sizes = np.absolute(column.real) + np.absolute(column.imag)
        largest = k + sizes.argmax(1)
        for lines in (a, order):
            first = lines[:, k].copy()
            lines[:, k] = lines[matrices, largest]
            lines[matrices, largest] = first
        pivot = a[:, k : k + 1, k]
        # A column of zeros stays as it is.
        a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k : k + 1] * a[:, k : k + 1, k + 1 :]
    return order


def _lu_of_each(a: Array) -> Array:
    """Factor matrices in place, by LAPACK but for many small ones; return the row permutation."""
    if lapack_library() is None or (len(a) > _MANY and min(a.shape[-2:]) <= _SMALL):
        return _lu_in_place(a)
    orders = np.empty(a.shape[:-1], np.int64)
    double = np.result_type(a.dtype, np.float64)
    for k, matrix in enumerate(a):
        factors = np.array(matrix, double, order="F")
        orders[k] = factor_lu(factors)
        matrix[...] = factors
    return orders


def _lu_spec(a: Any) -> tuple[Spec, Spec, Spec]:
    dtype = check_matrices("lu", a)
    *batch, m, n = a.shape
    count = min(m, n)
    p = Spec((*batch, m, m), real_dtype_of(dtype))
    return p, Spec((*batch, m, count), dtype), Spec((*batch, count, n), dtype)


@on_host
def _lu(a: Any) -> tuple[Array, Array, Array]:
    p_spec, lower_spec, _ = _lu_spec(a)
    both = np.array(a, lower_spec.dtype, order="C")
    m, n = both.shape[-2:]
    count = min(m, n)
    order = np.broadcast_to(np.arange(m), both.shape[:-1])
    if both.size:
        order = _lu_of_each(both.reshape(-1, m, n)).reshape(order.shape)
    lower = np.tril(both[..., :count], -1) + np.eye(m, count, dtype=both.dtype)
    # Row k of the product is row order[k] of the matrix.
    p = np.swapaxes(np.eye(m, dtype=p_spec.dtype)[order], -1, -2)
    return p, lower, np.triu(both[..., :count, :])


def _lu_vjp(g_lower: Any, g_upper: Any, p: Any, lower: Any, upper: Any) -> Any:
    """VJP of the square block, then of the remaining columns or rows."""
    m, n = lower.shape[-2], upper.shape[-1]
    k = lower.shape[-1]
    first, last = _slice_rows(lower, 0, k), _slice_columns(upper, 0, k)
    inner = _strict_lower(matmul(matrix_transpose(first), _slice_rows(g_lower, 0, k)))
    inner = add(
        inner, _upper_triangle(matmul(_slice_columns(g_upper, 0, k), matrix_transpose(last)))
    )
    if n > k:
        g_wide, wide = _slice_columns(g_upper, k, n), _slice_columns(upper, k, n)
        inner = sub(inner, _strict_lower(matmul(g_wide, matrix_transpose(wide))))
    if m > k:
        g_tall, tall = _slice_rows(g_lower, k, m), _slice_rows(lower, k, m)
        inner = sub(inner, _upper_triangle(matmul(matrix_transpose(tall), g_tall)))
    lower_transposed = matrix_transpose(first)
    g_a = _solve_transposed_right(solve_or_nan(lower_transposed, inner), last)
    if n > k:
        g_a = concatenate([g_a, solve_or_nan(lower_transposed, g_wide)], -1)
    if m > k:
        g_a = concatenate([g_a, _solve_transposed_right(g_tall, last)], -2)
    return matmul(p, g_a)


def _lu_jvp(t: Any, p: Any, lower: Any, upper: Any) -> tuple[Any, Any, Any]:
    m, n = lower.shape[-2], upper.shape[-1]
    k = lower.shape[-1]
    first, last = _slice_rows(lower, 0, k), _slice_columns(upper, 0, k)
    t = matmul(matrix_transpose(p), t)
    inner = _slice_columns(_slice_rows(t, 0, k), 0, k)
    inner = _solve_transposed_right(solve_or_nan(first, inner), matrix_transpose(last))
    t_lower, t_upper = matmul(first, _strict_lower(inner)), matmul(_upper_triangle(inner), last)
    if n > k:
        moved = solve_or_nan(first, _slice_columns(t, k, n))
        wide = sub(moved, matmul(_strict_lower(inner), _slice_columns(upper, k, n)))
        t_upper = concatenate([t_upper, wide], -1)
    if m > k:
        moved = _solve_transposed_right(_slice_rows(t, k, m), matrix_transpose(last))
        tall = sub(moved, matmul(_slice_rows(lower, k, m), _upper_triangle(inner)))
        t_lower = concatenate([t_lower, tall], -2)
    return zeros_like(p), t_lower, t_upper


@op(
    results=("p", "lower", "upper"),
    primitive="decompose",
    vmap="leading",
    infer=_lu_spec,
    vjp={"a": lambda g_lower, g_upper, p, lower, upper: _lu_vjp(g_lower, g_upper, p, lower, upper)},
    jvp={"a": lambda t, p, lower, upper: _lu_jvp(t, p, lower, upper)},
    samples=[
        sample((3, 3), form=well_conditioned),
        sample((4, 2)),
        sample((2, 4)),
        sample((2, 2, 2), form=well_conditioned),
        sample((0, 2)),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject(HALF_MATRIX, error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def lu(a: Any, /) -> Any:
    """LU decomposition with partial pivoting, ``a = p @ lower @ upper``.

    ``p`` is a permutation matrix with derivative 0; ``lower`` has a unit diagonal. Derivatives of
    rank-deficient matrices are undefined: NaN.
    """
    return _lu(a)


# ------------------------------------------------------------------ QR decomposition


def _qr_spec(a: Any, mode: str) -> tuple[Spec, Spec]:
    dtype = check_matrices("qr_factors", a)
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    return Spec((*batch, m, k), dtype), Spec((*batch, k, n), dtype)


def _qr_mode(mode: Any) -> tuple[str]:
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise SettingError(f"qr_factors: mode={format_value(mode)}; choose 'reduced' or 'complete'")
    return (mode,)


def _basis_rotation(x: Any) -> Any:
    """Anti-Hermitian matrix with the strict lower triangle of ``x``; the diagonal of R is real."""
    below = _strict_lower(x)
    rotation = sub(below, adjoint_of(below))
    if x.dtype.kind != "c":
        return rotation
    return add(rotation, mul(mul(imag(x), np.eye(x.shape[-1], dtype=real_dtype_of(x.dtype))), 1j))


def _basis_rotation_vjp(g: Any) -> Any:
    """VJP of ``_basis_rotation``."""
    below = _strict_lower(sub(g, adjoint_of(g)))
    if g.dtype.kind != "c":
        return below
    return add(below, mul(mul(imag(g), np.eye(g.shape[-1], dtype=real_dtype_of(g.dtype))), 1j))


def _qr_vjp(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    m, n = q.shape[-2], r.shape[-1]
    k = min(m, n)
    first, g_first = _slice_columns(q, 0, k), _slice_columns(g_q, 0, k)
    r, g_r = _slice_rows(r, 0, k), _upper_triangle(_slice_rows(g_r, 0, k))
    left = matmul(matrix_transpose(first), g_first)
    out = conj(first)
    inner = matmul(out, _basis_rotation_vjp(sub(left, matmul(g_r, matrix_transpose(r)))))
    if m > k:
        inner = add(inner, sub(g_first, matmul(out, left)))
    if q.shape[-1] > k:
        q_rest, g_rest = _slice_columns(q, k, m), _slice_columns(g_q, k, m)
        mixed = adjoint_of(matmul(matrix_transpose(first), g_rest))
        inner = sub(inner, matmul(conj(q_rest), mixed))
    g_square, g_from_r = _solve_transposed_right(inner, _slice_columns(r, 0, k)), matmul(out, g_r)
    if n == k:
        return add(g_square, g_from_r)
    return concatenate(
        [add(g_square, _slice_columns(g_from_r, 0, k)), _slice_columns(g_from_r, k, n)], -1
    )


def _qr_jvp(t: Any, q: Any, r: Any) -> tuple[Any, Any]:
    m, n = q.shape[-2], r.shape[-1]
    k = min(m, n)
    first, top = _slice_columns(q, 0, k), _slice_rows(r, 0, k)
    moved = _solve_transposed_right(
        _slice_columns(t, 0, k), matrix_transpose(_slice_columns(top, 0, k))
    )
    inner = matmul(adjoint_of(first), moved)
    rotation = _basis_rotation(inner)
    t_q = matmul(first, rotation)
    if m > k:
        t_q = add(t_q, sub(moved, matmul(first, inner)))
    t_r = _upper_triangle(sub(matmul(adjoint_of(first), t), matmul(rotation, top)))
    if q.shape[-1] > k:
        mixed = adjoint_of(matmul(adjoint_of(_slice_columns(q, k, m)), moved))
        t_q = concatenate([t_q, neg(matmul(first, mixed))], -1)
        t_r = concatenate([t_r, zeros_like(_slice_rows(r, k, m))], -2)
    return t_q, t_r


@op(
    results=type(np.linalg.qr(np.eye(1))),
    primitive="decompose",
    vmap="leading",
    infer=_qr_spec,
    prepare=_qr_mode,
    vjp={"a": lambda g_Q, g_R, Q, R: _qr_vjp(g_Q, g_R, Q, R)},
    jvp={"a": lambda t, Q, R: _qr_jvp(t, Q, R)},
    samples=[
        sample((3, 3), form=well_conditioned),
        sample((3, 2)),
        sample((2, 3)),
        sample((2, 3, 2), mode="complete"),
        sample((0, 0)),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject((2, 2), mode="raw", error=SettingError, match="choose 'reduced' or 'complete'"),
        reject(HALF_MATRIX, error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def qr_factors(a: Any, /, mode: str = "reduced") -> Any:
    """QR decomposition ``a = Q @ R``: orthonormal columns and an upper triangle; see ``qr``."""
    return lapack.qr(a, mode)


@composite(
    numpy=[np.linalg.qr],
    samples=[
        sample((3, 2)),
        sample((2, 3), mode="complete"),
        sample((3, 2), mode="complete"),
        sample((2, 2, 3), mode="r"),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject((2, 2), mode="raw", error=SettingError, match="choose 'reduced' or 'complete'"),
    ],
)
def qr(a: Any, mode: str = "reduced") -> Any:
    """QR decomposition ``a = Q @ R``: orthonormal columns and an upper triangle.

    The derivative is defined if the first ``min(m, n)`` columns are linearly independent, and NaN
    otherwise. Columns of a complete ``Q`` beyond the columns of ``a`` are unique up to a rotation;
    derivatives are exact for functions that do not depend on it.

    Args:
        a: Matrices, ``(..., m, n)``.
        mode: ``"reduced"`` for ``min(m, n)`` columns, ``"complete"`` for a square ``Q``, ``"r"``
            for ``R`` alone.

    Raises:
        SettingError: for any other mode.

    >>> q, r = qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> np.round(np.abs(r), 12)
    array([[5. , 2.2],
           [0. , 0.4]])
    """
    if isinstance(mode, str) and mode == "r":
        return qr_factors(a, "reduced")[1]
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise SettingError(f"qr: mode={format_value(mode)}; choose 'reduced' or 'complete', or 'r'")
    return qr_factors(a, mode)


# ------------------------------------------------------------------ Cholesky decomposition


def _cholesky_spec(a: Any, upper: bool) -> Spec:
    return Spec(getattr(a, "shape", ()), check_square("cholesky", a))


def _cholesky_vjp(g: Any, out: Any, upper: bool) -> Any:
    """VJP after I. Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527."""
    factor, g = (adjoint_of(out), adjoint_of(g)) if upper else (out, g)
    inner = matmul(matrix_transpose(factor), g)
    inner = mul(inner, triangle_weights(inner, "L"))
    inner = triangular_solve(factor, inner, "T", True, False)
    inner = matrix_transpose(triangular_solve(factor, matrix_transpose(inner), "C", True, False))
    return hermitian_from_triangle_vjp(inner, "U" if upper else "L")


def _cholesky_jvp(t: Any, out: Any, upper: bool) -> Any:
    factor = adjoint_of(out) if upper else out
    moved = triangular_solve(
        factor, hermitian_from_triangle(t, "U" if upper else "L"), "N", True, False
    )
    moved = triangular_solve(factor, adjoint_of(moved), "N", True, False)
    t_factor = matmul(factor, mul(moved, triangle_weights(moved, "L")))
    return adjoint_of(t_factor) if upper else t_factor


@op(
    primitive="decompose",
    raises=True,
    lowering=lambda build, a, upper: build.cholesky_factor(
        build.cast(a, check_square("cholesky", a)), upper
    ),
    vmap="leading",
    infer=_cholesky_spec,
    prepare=lambda upper: (check_flag("cholesky", "upper", upper),),
    numpy=[np.linalg.cholesky],
    vjp={"a": _cholesky_vjp},
    jvp={"a": _cholesky_jvp},
    samples=[
        sample((3, 3), form=positive_definite),
        sample((2, 2), upper=True, form=positive_definite),
        sample((2, 2, 2), form=positive_definite),
        sample((0, 0)),
    ],
    rejects=[
        reject((2, 3), match="square matrices"),
        reject((2, 2), error=LinAlgError, match="not positive definite"),
        reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Cholesky decomposition of Hermitian positive definite matrices, ``a = c @ conj(c).T``.

    The factor is lower triangular, or with ``upper`` upper triangular, ``a = conj(u).T @ u``. Only
    that triangle of ``a`` is read and has a gradient: pass ``(a + conj(a).T) / 2`` for a Hermitian
    gradient. A matrix that is not positive definite raises ``LinAlgError``.
    """
    return lapack.cholesky(a, upper=upper)


publish(globals())
