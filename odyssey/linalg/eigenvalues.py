"""Eigenvalues and eigenvectors of general square matrices.

Results are always complex, so that the dtype does not depend on the values. Eigenvectors have
length 1 and are unique up to a phase; the derivative uses the gauge ``vdot(v, dv) = 0`` and is
exact for functions that do not depend on the phase. For equal eigenvalues, symmetric functions of
them have exact gradients if the matrix is diagonalizable; derivatives of the vectors are undefined.
Defective matrices have no derivatives. Undefined derivatives come out as infinities or NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import LinAlgError
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import NOT_SQUARE, check_square
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.choice import keep_where, where
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.reductions.variance import over_length
from odyssey.ops.structure.diagonals import diagonal
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

_EIG = type(np.linalg.eig(np.eye(1)))


def _complex_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


def _eigvals_spec(a: Any) -> Spec:
    dtype = _complex_dtype(check_square("eigvals", a))
    return Spec(a.shape[:-1], dtype)


def _eig_spec(a: Any) -> tuple[Spec, Spec]:
    dtype = _complex_dtype(check_square("eig", a))
    return Spec(a.shape[:-1], dtype), Spec(a.shape, dtype)


def _eig(a: Any) -> Any:
    dtype = _complex_dtype(check_square("eig", a))
    w, v = lapack.eig(a)
    return _EIG(w.astype(dtype, copy=False), v.astype(dtype, copy=False))


def _eigvals(a: Any) -> Any:
    dtype = _complex_dtype(check_square("eigvals", a))
    return lapack.eigvals(a).astype(dtype, copy=False)


# ------------------------------------------------------------------ rules


def _over_eigenvalue_gaps(x: Any, w: Any) -> Any:
    """``x[i, j] / (w[j] - w[i])``, 0 on the diagonal."""
    diagonal_mask = np.eye(x.shape[-1], dtype=bool)
    gaps = where(diagonal_mask, 1, sub(expand_dims(w, -2), expand_dims(w, -1)))
    return over_length(keep_where(x, ~diagonal_mask), gaps)


def _eig_vjp(g_w: Any, g_v: Any, w: Any, v: Any) -> Any:
    v_transposed = matrix_transpose(v)
    projection = sum(mul(g_v, v), -2, keepdims=True)
    inner = _over_eigenvalue_gaps(matmul(v_transposed, sub(g_v, mul(conj(v), projection))), w)
    inner = add(matmul(inner, v_transposed), mul(expand_dims(g_w, -1), v_transposed))
    return solve_or_nan(v_transposed, inner)


def _eig_jvp(t: Any, w: Any, v: Any) -> tuple[Any, Any]:
    inner = solve_or_nan(v, matmul(t, v))
    moved = matmul(v, _over_eigenvalue_gaps(inner, w))
    projection = sum(mul(conj(v), moved), -2, keepdims=True)
    return diagonal(inner, 0, -2, -1), sub(moved, mul(v, projection))


def _eigvals_vjp(g: Any, a: Any) -> Any:
    v_transposed = matrix_transpose(eig(a)[1])
    return solve_or_nan(v_transposed, mul(expand_dims(g, -1), v_transposed))


def _eigvals_jvp(t: Any, a: Any) -> Any:
    v = eig(a)[1]
    return diagonal(solve_or_nan(v, matmul(t, v)), 0, -2, -1)


# ------------------------------------------------------------------ rows


def _real_spectrum(x: Array) -> Array:
    """Matrices with real, well separated eigenvalues."""
    return x / 4 + np.diag(3.0 * np.arange(x.shape[-1]))


def _complex_spectrum(x: Array) -> Array:
    """Matrices with complex eigenvalues."""
    return x / 2 + 3.0 * (np.triu(np.ones_like(x), 1) - np.tril(np.ones_like(x), -1))


_REJECTS = [
    *NOT_SQUARE,
    reject(np.full((2, 2), np.nan), error=LinAlgError, match="infs or NaNs"),
]


@op(
    results=_EIG,
    primitive="decompose",
    raises=True,
    vmap="leading",
    infer=_eig_spec,
    numpy=[np.linalg.eig],
    vjp={
        "a": lambda g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors: _eig_vjp(
            g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors
        )
    },
    jvp={"a": lambda t, eigenvalues, eigenvectors: _eig_jvp(t, eigenvalues, eigenvectors)},
    samples=[
        sample((3, 3), form=_real_spectrum),
        sample((2, 2, 2), form=_real_spectrum),
        sample((1, 1)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=_REJECTS,
    precision="wide",
)
def eig(a: Any, /) -> Any:
    """Eigenvalues and eigenvectors, as columns, of square matrices; complex, in no order.

    For equal eigenvalues, derivatives of the vectors are undefined: infinities or NaN. Use ``eigh``
    for Hermitian matrices.
    """
    return _eig(a)


@op(
    decomposition=lambda a: eig(a)[0],
    raises=True,
    vmap="leading",
    infer=_eigvals_spec,
    kernel=_eigvals,
    numpy=[np.linalg.eigvals],
    vjp={"a": _eigvals_vjp},
    jvp={"a": _eigvals_jvp},
    samples=[
        sample((2, 2), form=_complex_spectrum),
        sample((3, 3), form=_complex_spectrum),
        sample((2, 3, 3), form=_complex_spectrum),
    ],
    rejects=_REJECTS,
    precision="wide",
)
def eigvals(a: Any, /) -> Any:
    """Eigenvalues of square matrices; complex, in no order.

    For equal eigenvalues, symmetric functions of them have exact gradients if the matrix is
    diagonalizable; otherwise gradients are NaN or very large.
    """
    return _eigvals(a)


publish(globals())
