"""Eigenvalues and eigenvectors of any square matrices.

They are complex, also those of real matrices that have real ones, so that the type of the result
does not depend on its values. Eigenvectors have length 1 and are defined but for a phase; the
derivative is that of the vectors that do not turn, ``vdot(v, dv) = 0``: right for whatever does not
depend on phases. Where eigenvalues are equal, sums over them have right gradients as long as there
are as many eigenvectors; the vectors have none, and matrices that lack eigenvectors have none at
all, which infinities and NaN show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, LinAlgError
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import square
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


def _complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.result_type(dtype, np.complex64)


def _values_spec(a: Any) -> Spec:
    dtype = _complex(square("eigvals", a))
    return Spec(a.shape[:-1], dtype)


def _eigen_spec(a: Any) -> tuple[Spec, Spec]:
    dtype = _complex(square("eig", a))
    return Spec(a.shape[:-1], dtype), Spec(a.shape, dtype)


def _eig(a: Any) -> Any:
    dtype = _complex(square("eig", a))
    w, v = lapack.eig(a)
    return _EIG(w.astype(dtype, copy=False), v.astype(dtype, copy=False))


def _eigvals(a: Any) -> Any:
    dtype = _complex(square("eigvals", a))
    return lapack.eigvals(a).astype(dtype, copy=False)


# ------------------------------------------------------------------ rules


def _by_gaps(x: Any, w: Any) -> Any:
    """``x[i, j] / (w[j] - w[i])``, and 0 on the diagonal."""
    same = np.eye(x.shape[-1], dtype=bool)
    gaps = where(same, 1, sub(expand_dims(w, -2), expand_dims(w, -1)))
    return over_length(keep_where(x, ~same), gaps)


def _eigen_pull(g_w: Any, g_v: Any, w: Any, v: Any) -> Any:
    turned = matrix_transpose(v)
    along = sum(mul(g_v, v), -2, keepdims=True)
    inner = _by_gaps(matmul(turned, sub(g_v, mul(conj(v), along))), w)
    inner = add(matmul(inner, turned), mul(expand_dims(g_w, -1), turned))
    return solve_or_nan(turned, inner)


def _eigen_push(t: Any, w: Any, v: Any) -> tuple[Any, Any]:
    inner = solve_or_nan(v, matmul(t, v))
    moved = matmul(v, _by_gaps(inner, w))
    along = sum(mul(conj(v), moved), -2, keepdims=True)
    return diagonal(inner, 0, -2, -1), sub(moved, mul(v, along))


def _values_pull(g: Any, a: Any) -> Any:
    turned = matrix_transpose(eig(a)[1])
    return solve_or_nan(turned, mul(expand_dims(g, -1), turned))


def _values_push(t: Any, a: Any) -> Any:
    v = eig(a)[1]
    return diagonal(solve_or_nan(v, matmul(t, v)), 0, -2, -1)


# ------------------------------------------------------------------ rows


def _real_values(x: Array) -> Array:
    """Matrices of real eigenvalues, which stand apart."""
    return x / 4 + np.diag(3.0 * np.arange(x.shape[-1]))


def _turning(x: Array) -> Array:
    """Matrices of complex eigenvalues."""
    return x / 2 + 3.0 * (np.triu(np.ones_like(x), 1) - np.tril(np.ones_like(x), -1))


_REJECTS = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    reject(np.full((2, 2), np.nan), error=LinAlgError, match="infs or NaNs"),
]


@op(
    results=_EIG,
    primitive="decompose",
    raises=True,
    infer=_eigen_spec,
    numpy=[np.linalg.eig],
    vjp={
        "a": lambda g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors: _eigen_pull(
            g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors
        )
    },
    jvp={"a": lambda t, eigenvalues, eigenvectors: _eigen_push(t, eigenvalues, eigenvectors)},
    samples=[
        sample((3, 3), form=_real_values),
        sample((2, 2, 2), form=_real_values),
        sample((1, 1)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=_REJECTS,
)
def eig(a: Any, /) -> Any:
    """Eigenvalues and eigenvectors, as columns, of square matrices; complex, in no order.

    Where eigenvalues are equal the derivatives of vectors are not defined: infinities and NaN show
    it. Those of Hermitian matrices are found by ``eigh``.
    """
    return _eig(a)


@op(
    decomposition=lambda a: eig(a)[0],
    raises=True,
    infer=_values_spec,
    kernel=_eigvals,
    numpy=[np.linalg.eigvals],
    vjp={"a": _values_pull},
    jvp={"a": _values_push},
    samples=[
        sample((2, 2), form=_turning),
        sample((3, 3), form=_turning),
        sample((2, 3, 3), form=_turning),
    ],
    rejects=_REJECTS,
)
def eigvals(a: Any, /) -> Any:
    """Eigenvalues of square matrices; complex, in no order.

    Where some are equal, what does not depend on their order has right gradients, if there are as
    many eigenvectors; else NaN or large numbers show that there are none.
    """
    return _eigvals(a)


publish(globals())
