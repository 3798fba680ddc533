"""Pseudo-inverses and least squares.

The derivative is the one at constant rank (G. H. Golub and V. Pereyra, SIAM J. Numer. Anal. 10,
1973). It needs no singular vectors and is exact for equal singular values. The pseudo-inverse is
discontinuous where the rank changes; there the derivative does not describe all neighbors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_flag, check_number
from odyssey.errors import DTypeError, LinAlgError, SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import (
    hermitian_from_triangle,
    hermitian_from_triangle_vjp,
)
from odyssey.linalg.matrix_products import adjoint_of, as_column, matmul
from odyssey.linalg.matrix_shapes import (
    NOT_MATRICES,
    broadcast_batches,
    check_matrices,
    check_square,
    lapack_dtype,
    require_finite,
    well_conditioned,
)
from odyssey.linalg.singular_values import svdvals
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.choice import greater
from odyssey.ops.elementwise.complex_numbers import conj, real
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Symbol, array_of

# ------------------------------------------------------------------ pseudo-inverses


def _pinv_spec(a: Spec, *options: Any) -> Spec:
    dtype = check_square("pinv", a) if options[1] else check_matrices("pinv", a)
    return Spec((*a.shape[:-2], *a.shape[:-3:-1]), dtype)


def _cutoff_option(who: str, rcond: Any) -> float | None:
    return None if rcond is None else check_number(who, "rcond", rcond, "[0, inf]")


def _pinv_options(rcond: Any, hermitian: Any, rtol: Any) -> tuple[float, bool, None]:
    if rcond is not None and rtol is not None:
        raise SettingError("pinv: rcond and rtol came, which mean the same; pass only one")
    cutoff = _cutoff_option("pinv", rtol if rcond is None else rcond)
    return 1e-15 if cutoff is None else cutoff, check_flag("pinv", "hermitian", hermitian), None


def _pinv(a: Any, rcond: float, hermitian: bool, rtol: None) -> Any:
    if not np.size(a):  # NumPy would return integers
        spec = _pinv_spec(a, rcond, hermitian)
        return np.zeros(spec.shape, spec.dtype)
    if not hermitian:
        require_finite("pinv", a)
    return lapack.pinv(a, rcond, hermitian)


def _pinv_vjp(g: Any, a: Any, out: Any, hermitian: bool) -> Any:
    """VJP at constant rank; see the module docstring."""
    a = hermitian_from_triangle(a, "L") if hermitian else a
    inverse_transposed = matrix_transpose(out)
    projected = matmul(inverse_transposed, g)
    tall = matmul(conj(out), sub(projected, matmul(projected, matrix_transpose(matmul(a, out)))))
    row_residual = sub(g, matmul(matrix_transpose(a), projected))
    wide = matmul(matmul(row_residual, inverse_transposed), conj(out))
    g_a = sub(adjoint_of(add(tall, wide)), matmul(projected, inverse_transposed))
    return hermitian_from_triangle_vjp(g_a, "L") if hermitian else g_a


def _pinv_jvp(t: Any, a: Any, out: Any, hermitian: bool) -> Any:
    a, t = (
        (hermitian_from_triangle(a, "L"), hermitian_from_triangle(t, "L")) if hermitian else (a, t)
    )
    moved, length = adjoint_of(t), matmul(out, adjoint_of(out))
    tall = matmul(length, sub(moved, matmul(matmul(moved, a), out)))
    wide = matmul(sub(moved, matmul(matmul(out, a), moved)), matmul(adjoint_of(out), out))
    return sub(add(tall, wide), matmul(matmul(out, t), out))


@op(
    primitive="decompose",
    raises=True,
    vmap="leading",
    infer=_pinv_spec,
    prepare=_pinv_options,
    kernel=_pinv,
    numpy=[np.linalg.pinv],
    vjp={"a": _pinv_vjp},
    jvp={"a": _pinv_jvp},
    samples=[
        sample((3, 2)),
        sample((2, 3, 3), form=well_conditioned),
        sample((2, 3), rcond=0.01),
        sample((2, 2), hermitian=True, form=well_conditioned),
        sample((0, 2)),
    ],
    rejects=[
        *NOT_MATRICES,
        reject(np.full((2, 2), np.nan), error=LinAlgError, match="SVD did not converge"),
        reject((2, 3), hermitian=True, match="square matrices"),
        reject((2, 3), rcond=0.1, rtol=0.1, error=SettingError, match="which mean the same"),
    ],
    precision="wide",
)
def pinv(
    a: Any, /, rcond: float | None = None, hermitian: bool = False, *, rtol: float | None = None
) -> Any:
    """Moore–Penrose pseudo-inverse; ``pinv(a) @ b`` minimizes ``norm(a @ x - b)``.

    Singular values up to ``rcond``, or ``rtol``, times the largest are treated as 0; by default
    1e-15. The derivative assumes constant rank. With ``hermitian`` only the lower triangle is read
    and has a gradient.
    """
    return _pinv(a, *_pinv_options(rcond, hermitian, rtol))


# ------------------------------------------------------------------ least squares


def _least_squares_spec(a: Any, b: Any, rcond: float | None) -> Spec:
    who = "least_squares"
    left = check_matrices(who, a)
    shape: Shape = getattr(b, "shape", ())
    rows = shape[-1:] if len(shape) < 2 else shape[-2:-1]
    if rows != a.shape[-2:-1]:
        raise ShapeError(
            f"{who}: a has shape {a.shape}, b {shape}; b must have {a.shape[-2]} rows too"
        )
    dtype = np.result_type(left, lapack_dtype(who, "b", b))
    if len(shape) == 1:
        return Spec((*a.shape[:-2], a.shape[-1]), dtype)
    return Spec((*broadcast_batches(who, a.shape[:-2], shape[:-2]), a.shape[-1], shape[-1]), dtype)


def _least_squares(a: Any, b: Any, rcond: float | None) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    require_finite("least_squares", a)
    if a.ndim == 2 and b.ndim in (1, 2):
        return lapack.lstsq(a, b, rcond)[0]
    spec = _least_squares_spec(a, b, rcond)
    right = b[:, None] if b.ndim == 1 else b
    batch = spec.shape[:-1] if b.ndim == 1 else spec.shape[:-2]
    left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    out = np.empty((*batch, a.shape[-1], right.shape[-1]), spec.dtype)
    for index in np.ndindex(batch):
        out[index] = lapack.lstsq(left[index], right[index], rcond)[0]
    return out.reshape(spec.shape)


def _relative_cutoff(a: Any, dtype: Any, rcond: float | None) -> float:
    """Fraction of the largest singular value up to which singular values are treated as 0."""
    if rcond is not None and rcond >= 0:
        return rcond
    eps = float(np.finfo(dtype).eps)
    return eps if rcond is not None else eps * sorted(a.shape[-2:])[-1]


def _truncated_pinv(a: Any, dtype: Any, rcond: float | None) -> Any:
    """Pseudo-inverse with the cutoff of ``least_squares``."""
    return pinv(a, _relative_cutoff(a, dtype, rcond), False, rtol=None)


def _least_squares_a_vjp(g: Any, a: Any, b: Any, out: Any, rcond: float | None) -> Any:
    vector = b.ndim == 1
    if vector:
        g, b, out = as_column(g), as_column(b), as_column(out)
    inverse = _truncated_pinv(a, out.dtype, rcond)
    projected = matmul(matrix_transpose(inverse), g)
    residual = sub(b, matmul(a, out))
    tall = matmul(matmul(conj(inverse), projected), matrix_transpose(residual))
    row_residual = sub(g, matmul(matrix_transpose(a), projected))
    wide = matmul(row_residual, matrix_transpose(matmul(adjoint_of(inverse), out)))
    return sub(adjoint_of(add(tall, wide)), matmul(projected, matrix_transpose(out)))


def _least_squares_a_jvp(t: Any, a: Any, b: Any, out: Any, rcond: float | None) -> Any:
    vector = b.ndim == 1
    if vector:
        b, out = as_column(b), as_column(out)
    inverse = _truncated_pinv(a, out.dtype, rcond)
    moved = adjoint_of(t)
    tall = matmul(adjoint_of(inverse), matmul(moved, sub(b, matmul(a, out))))
    wide = matmul(moved, matmul(adjoint_of(inverse), out))
    t_x = add(
        matmul(inverse, sub(tall, matmul(t, out))), sub(wide, matmul(inverse, matmul(a, wide)))
    )
    return reshape(t_x, t_x.shape[:-1]) if vector else t_x


def _least_squares_b_vjp(g: Any, a: Any, out: Any, b_spec: Spec, rcond: float | None) -> Any:
    vector = len(b_spec.shape) == 1
    inverse = _truncated_pinv(a, out.dtype, rcond)
    g_b = matmul(matrix_transpose(inverse), as_column(g) if vector else g)
    return reshape(g_b, g_b.shape[:-1]) if vector else g_b


def _least_squares_b_jvp(t: Any, a: Any, out: Any, b_spec: Spec, rcond: float | None) -> Any:
    return matmul(_truncated_pinv(a, out.dtype, rcond), t)


def _least_squares_options(rcond: Any) -> tuple[float | None]:
    # A negative number means machine precision to LAPACK, as -1 did in NumPy.
    return (None if rcond is None else check_number("least_squares", "rcond", rcond),)


@op(
    decomposition=lambda a, b, rcond: _least_squares_by_pinv(a, b, rcond),
    raises=True,
    infer=_least_squares_spec,
    prepare=_least_squares_options,
    kernel=_least_squares,
    vjp={"a": _least_squares_a_vjp, "b": _least_squares_b_vjp},
    jvp={"a": _least_squares_a_jvp, "b": _least_squares_b_jvp},
    samples=[
        sample((3, 2), (3,)),
        sample((4, 2), (4, 2)),
        sample((2, 3), (2, 1)),
        sample((2, 3, 2), (3, 1)),
        sample((2, 3, 2), (3,), rcond=1e-9),
        sample((0, 2), (0,)),
    ],
    rejects=[
        reject((3, 2), (2,), match="b must have 3 rows too"),
        reject((3,), (3,), match="wanted are matrices"),
        reject(np.eye(2, dtype=np.float16), (2,), error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def least_squares(a: Any, b: Any, /, *, rcond: float | None = None) -> Any:
    """Minimum-norm least-squares solution of ``a @ x = b``; see ``lstsq``."""
    return _least_squares(a, b, rcond)


def _least_squares_by_pinv(a: Any, b: Any, rcond: float | None) -> Any:
    return matmul(_truncated_pinv(a, np.result_type(a.dtype, b.dtype), rcond), b)


@composite(
    numpy=[np.linalg.lstsq],
    samples=[
        sample((3, 2), (3,), low=-0.5, high=0.5),
        sample((4, 2), (4, 2), low=-0.5, high=0.5),
        sample((2, 3), (2, 1)),
    ],
    rejects=[reject((3, 2), (2,), match="b must have 3 rows too")],
)
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """Minimum-norm least-squares solution of ``a @ x = b``.

    Args:
        a: Matrices, ``(..., m, n)``.
        b: A vector, or matrices of columns.
        rcond: Singular values up to this fraction of the largest are treated as 0; by default
            machine precision times the longer side.

    Returns:
        ``x``; the squared norm of the residual ``a @ x - b`` of each column; the rank of ``a``;
        its singular values. As in NumPy, the residuals are empty if ``m <= n``, or if the rank of
        a single matrix is concrete and below ``n``.

    Raises:
        LinAlgError: if the SVD fails, as for matrices that are not finite.

    >>> x, residual, rank, s = lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))
    >>> x, residual, int(rank)
    (array([2.]), array([2.]), 1)
    """
    x = least_squares(a, b, rcond=rcond)
    m, n = shape_of(a)[-2:]
    s = svdvals(a)
    cutoff = _relative_cutoff(np.empty((m, n)), s.dtype, rcond)
    largest = max(s, -1, keepdims=True) if m and n else 0.0
    rank = astype(sum(greater(s, mul(largest, cutoff)), -1), np.int32)
    concrete = array_of(rank)
    if m <= n or (not isinstance(concrete, Symbol) and not concrete.shape and concrete < n):
        return x, np.zeros(0, s.dtype), rank, s
    vector = len(shape_of(b)) == 1
    columns, solution = (reshape(v, (*shape_of(v), 1)) if vector else v for v in (b, x))
    residual = sub(columns, matmul(a, solution))
    squares = real(mul(residual, conj(residual)))
    return x, sum(squares, -2), rank, s


publish(globals())
