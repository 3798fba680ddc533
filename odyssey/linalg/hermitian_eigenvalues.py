"""Eigenvalues and eigenvectors of Hermitian matrices.

NumPy reads one triangle of its matrices. So does the derivative: the other triangle, and imaginary
parts on the diagonal, have a gradient of 0. Who wants a Hermitian gradient passes
``(a + conj(a).T) / 2``.

Eigenvectors are defined but for a factor, -1 or a complex phase, and among equal eigenvalues but
for a rotation. The derivative is that of the vectors that do not turn, ``vdot(v, dv) = 0``: right
for whatever does not depend on the factor. Where eigenvalues are equal, gradients of the values are
right and finite; those of the vectors, and second derivatives, are not defined, which infinities
and NaN show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.errors import SettingError
from odyssey.linalg import lapack
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import real_part, square
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, logical_or, where
from odyssey.ops.elementwise.complex_numbers import conj, real
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes and options


def _values_spec(a: Spec, UPLO: str) -> Spec:
    dtype = square("eigvalsh", a)
    return Spec(a.shape[:-1], real_part(dtype))


def _eigen_spec(a: Spec, UPLO: str) -> tuple[Spec, Spec]:
    dtype = square("eigh", a)
    return Spec(a.shape[:-1], real_part(dtype)), Spec(a.shape, dtype)


def _triangle(who: str) -> Any:
    def prepare(UPLO: Any) -> tuple[str]:
        if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
            raise SettingError(f"{who}: UPLO={shown(UPLO)}; pass 'L' or 'U', the triangle to read")
        return (UPLO.upper(),)

    return prepare


# ------------------------------------------------------------------ rules


def _weights(x: Any, UPLO: str) -> Array:
    """1 where a matrix is read, and 1/2 on its diagonal, to which both triangles add."""
    n = x.shape[-1]
    strict = np.tri(n, k=-1)
    weights = (strict if UPLO == "L" else strict.T) + np.eye(n) / 2
    return weights.astype(np.empty(0, x.dtype).real.dtype)


def _read(t: Any, UPLO: str) -> Any:
    """The Hermitian matrix of which NumPy reads one triangle."""
    half = mul(t, _weights(t, UPLO))
    return add(half, conj(matrix_transpose(half)))


def _unread(g: Any, UPLO: str) -> Any:
    """The transpose of ``_read``."""
    return mul(add(g, conj(matrix_transpose(g))), _weights(g, UPLO))


def _gaps(x: Any, w: Any) -> Any:
    """``x[j, i] / (w[i] - w[j])``, 0 on the diagonal; of equal ``w``, 0 only where ``x`` is."""
    gaps = sub(expand_dims(w, -2), expand_dims(w, -1))
    idle = logical_and(equal(gaps, 0), equal(x, 0))
    idle = logical_or(idle, np.eye(x.shape[-1], dtype=bool))
    return where(idle, 0, div(x, where(idle, 1, gaps)))


def _eigen_rule(g_w: Any, g_v: Any, w: Any, v: Any, UPLO: str) -> Any:
    left = conj(v)
    inner = _gaps(matmul(matrix_transpose(v), g_v), w)
    inner = add(matmul(left, inner), mul(left, expand_dims(g_w, -2)))
    return _unread(matmul(inner, matrix_transpose(v)), UPLO)


def _eigen_push(t: Any, w: Any, v: Any, UPLO: str) -> tuple[Any, Any]:
    moved = matmul(_read(t, UPLO), v)
    turned = matmul(conj(matrix_transpose(v)), moved)
    return real(sum(mul(conj(v), moved), -2)), matmul(v, _gaps(turned, w))


def _values_rule(g: Any, a: Any, UPLO: str) -> Any:
    v = eigh(a, UPLO)[1]
    return _unread(matmul(mul(conj(v), expand_dims(g, -2)), matrix_transpose(v)), UPLO)


def _values_push(t: Any, a: Any, UPLO: str) -> Any:
    v = eigh(a, UPLO)[1]
    return real(sum(mul(conj(v), matmul(_read(t, UPLO), v)), -2))


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
    infer=_eigen_spec,
    prepare=_triangle("eigh"),
    vjp={
        "a": lambda g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors, UPLO: _eigen_rule(
            g_eigenvalues, g_eigenvectors, eigenvalues, eigenvectors, UPLO
        )
    },
    jvp={
        "a": lambda t, eigenvalues, eigenvectors, UPLO: _eigen_push(
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
    """Eigenvalues, rising, and eigenvectors, as columns, of Hermitian matrices.

    Only the triangle that is read has a gradient. Where eigenvalues are equal, derivatives of the
    vectors, and second ones, are not defined: infinities and NaN show it.
    """
    return lapack.eigh(a, UPLO)


@op(
    infer=_values_spec,
    decomposition=lambda a, UPLO: eigh(a, UPLO)[0],
    raises=True,
    prepare=_triangle("eigvalsh"),
    vjp={"a": _values_rule},
    jvp={"a": _values_push},
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
    """Eigenvalues of Hermitian matrices, rising; ``eigh`` gives the eigenvectors as well.

    Only the triangle that is read has a gradient. Where eigenvalues are equal, second derivatives
    are not defined: infinities and NaN show it.
    """
    return lapack.eigvalsh(a, UPLO)


publish(globals())
