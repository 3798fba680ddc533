"""Eigenvalues and eigenvectors of Hermitian matrices.

NumPy reads one triangle of the matrix, and only that triangle has a gradient: the gradient of the
other triangle, and of imaginary parts on the diagonal, is 0. Pass ``(a + conj(a).T) / 2`` for a
Hermitian gradient.

Eigenvectors are unique up to a sign or complex phase, and up to a rotation among equal eigenvalues.
The derivative uses the gauge ``vdot(v, dv) = 0``; it is exact for functions that do not depend on
the phase. For equal eigenvalues, gradients of the eigenvalues are exact and finite; derivatives of
the eigenvectors, and second derivatives, are undefined and come out as infinities or NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.errors import SettingError
from odyssey.linalg import lapack
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import check_square, real_dtype_of
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, logical_or, where
from odyssey.ops.elementwise.complex_numbers import conj, real
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes and options


def _eigvalsh_spec(a: Spec, UPLO: str) -> Spec:
    dtype = check_square("eigvalsh", a)
    return Spec(a.shape[:-1], real_dtype_of(dtype))


def _eigh_spec(a: Spec, UPLO: str) -> tuple[Spec, Spec]:
    dtype = check_square("eigh", a)
    return Spec(a.shape[:-1], real_dtype_of(dtype)), Spec(a.shape, dtype)


def _uplo_option(who: str) -> Any:
    """Return the function that validates the option UPLO."""

    def normalize_uplo(UPLO: Any) -> tuple[str]:
        if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
            raise SettingError(
                f"{who}: UPLO={format_value(UPLO)}; pass 'L' or 'U', the triangle to read"
            )
        return (UPLO.upper(),)

    return normalize_uplo


# ------------------------------------------------------------------ rules


def triangle_weights(x: Any, UPLO: str) -> Array:
    """Weights 1 in the triangle that is read, 1/2 on the diagonal, and 0 elsewhere."""
    n = x.shape[-1]
    strict = np.tri(n, k=-1)
    weights = (strict if UPLO == "L" else strict.T) + np.eye(n) / 2
    return weights.astype(np.empty(0, x.dtype).real.dtype)


def hermitian_from_triangle(t: Any, UPLO: str) -> Any:
    """Hermitian matrix given by one triangle."""
    half = mul(t, triangle_weights(t, UPLO))
    return add(half, adjoint_of(half))


def hermitian_from_triangle_vjp(g: Any, UPLO: str) -> Any:
    """VJP of ``hermitian_from_triangle``."""
    return mul(add(g, adjoint_of(g)), triangle_weights(g, UPLO))


def _divide_by_gaps(x: Any, w: Any) -> Any:
    """``x[j, i] / (w[i] - w[j])``, 0 on the diagonal; for equal ``w``, 0 only where ``x`` is 0."""
    gaps = sub(expand_dims(w, -2), expand_dims(w, -1))
    skipped = logical_and(equal(gaps, 0), equal(x, 0))
    skipped = logical_or(skipped, np.eye(x.shape[-1], dtype=bool))
    return where(skipped, 0, div(x, where(skipped, 1, gaps)))


def _eigh_vjp(g_w: Any, g_v: Any, w: Any, v: Any, UPLO: str) -> Any:
    left = conj(v)
    inner = _divide_by_gaps(matmul(matrix_transpose(v), g_v), w)
    inner = add(matmul(left, inner), mul(left, expand_dims(g_w, -2)))
    return hermitian_from_triangle_vjp(matmul(inner, matrix_transpose(v)), UPLO)


def _eigh_jvp(t: Any, w: Any, v: Any, UPLO: str) -> tuple[Any, Any]:
    moved = matmul(hermitian_from_triangle(t, UPLO), v)
    projected = matmul(adjoint_of(v), moved)
    return real(sum(mul(conj(v), moved), -2)), matmul(v, _divide_by_gaps(projected, w))


def _eigvalsh_vjp(g: Any, a: Any, UPLO: str) -> Any:
    v = eigh(a, UPLO)[1]
    return hermitian_from_triangle_vjp(
        matmul(mul(conj(v), expand_dims(g, -2)), matrix_transpose(v)), UPLO
    )


def _eigvalsh_jvp(t: Any, a: Any, UPLO: str) -> Any:
    v = eigh(a, UPLO)[1]
    return real(sum(mul(conj(v), matmul(hermitian_from_triangle(t, UPLO), v)), -2))


# ------------------------------------------------------------------ rows

_REJECTS = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject((2, 2), UPLO="X", error=SettingError, match="pass 'L' or 'U'"),
]


@op(
    results=type(np.linalg.eigh(np.eye(1))),
    primitive="decompose",
    raises=True,
    infer=_eigh_spec,
    prepare=_uplo_option("eigh"),
    vjp={
        "a": lambda g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors, UPLO: _eigh_vjp(
            g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors, UPLO
        )
    },
    jvp={
        "a": lambda t, eigenvalues, eigenvectors, UPLO: _eigh_jvp(
            t, eigenvalues, eigenvectors, UPLO
        )
    },
    numpy=[np.linalg.eigh],
    samples=[
        sample((3, 3)),
        sample((4, 4), UPLO="U"),
        sample((2, 3, 3)),
        sample((1, 1)),
        sample((0, 2, 2)),
        sample((0, 0)),
    ],
    rejects=_REJECTS,
)
def eigh(a: Any, /, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors, as columns, of Hermitian matrices.

    Only the triangle that is read has a gradient. For equal eigenvalues, derivatives of the
    vectors and second derivatives are undefined: infinities or NaN.
    """
    return lapack.eigh(a, UPLO)


@op(
    infer=_eigvalsh_spec,
    decomposition=lambda a, UPLO: eigh(a, UPLO)[0],
    raises=True,
    prepare=_uplo_option("eigvalsh"),
    vjp={"a": _eigvalsh_vjp},
    jvp={"a": _eigvalsh_jvp},
    numpy=[np.linalg.eigvalsh],
    samples=[
        sample((3, 3)),
        sample((4, 4), UPLO="U"),
        sample((2, 3, 3)),
        sample((1, 1)),
        sample((0, 2, 2)),
        sample((0, 0)),
    ],
    rejects=_REJECTS,
)
def eigvalsh(a: Any, /, UPLO: str = "L") -> Any:
    """Eigenvalues of Hermitian matrices, ascending; ``eigh`` returns the eigenvectors as well.

    Only the triangle that is read has a gradient. For equal eigenvalues, second derivatives are
    undefined: infinities or NaN.
    """
    return lapack.eigvalsh(a, UPLO)


publish(globals())
