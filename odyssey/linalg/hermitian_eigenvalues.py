"""Eigenvalues and eigenvectors of Hermitian matrices.

NumPy reads one triangle of the matrix, and only that triangle has a gradient: the gradient of the
other triangle, and of imaginary parts on the diagonal, is 0. Pass ``(a + conj(a).T) / 2`` for a
Hermitian gradient.

Eigenvectors are unique up to a sign or complex phase, and up to a rotation among equal eigenvalues.
The derivative uses the gauge ``vdot(v, dv) = 0``; it is exact for functions that do not depend on
the phase. For equal eigenvalues, gradients of the eigenvalues are exact and finite; derivatives of
the eigenvectors, and second derivatives, are undefined and come out as infinities or NaN.

Second derivatives of eigenvalues contain ``(g[i] - g[j]) / (w[i] - w[j])`` for cotangents ``g``,
which for a symmetric function, such as ``sum(w**2)``, is finite however close the eigenvalues are.
``eigenvalue_pullback`` is the gradient as an op of its own, whose derivative has these quotients:
those of rounded vectors, which differ for close eigenvalues, never enter them. Gaps are those of
the eigenvalues that ``g`` was computed from; ``eigh`` and ``eigvalsh`` round differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_flag, format_value
from odyssey.errors import SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import check_square, lapack_dtype, real_dtype_of
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_or, where
from odyssey.ops.elementwise.complex_numbers import conj, real
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.reductions.variance import over_length
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec, spec_of
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Value

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
    weights = np.tri(n, k=-1, dtype=np.empty(0, x.dtype).real.dtype)
    weights[np.arange(n), np.arange(n)] = 0.5
    return weights if UPLO == "L" else np.ascontiguousarray(weights.T)


def hermitian_from_triangle(t: Any, UPLO: str) -> Any:
    """Hermitian matrix given by one triangle."""
    half = mul(t, triangle_weights(t, UPLO))
    return add(half, adjoint_of(half))


def hermitian_from_triangle_vjp(g: Any, UPLO: str) -> Any:
    """VJP of ``hermitian_from_triangle``."""
    return mul(add(g, adjoint_of(g)), triangle_weights(g, UPLO))


def differences(x: Any) -> Any:
    """``x[i] - x[j]`` for all pairs along the last axis, as an element ``[j, i]``."""
    return sub(expand_dims(x, -2), expand_dims(x, -1))


def _divide_by_gaps(x: Any, w: Any) -> Any:
    """``x[j, i] / (w[i] - w[j])``, 0 on the diagonal; for equal ``w``, 0 only where ``x`` is 0.

    The derivative of that 0 is infinite or NaN.
    """
    diagonal_mask = np.eye(x.shape[-1], dtype=bool)
    return over_length(where(diagonal_mask, 0, x), where(diagonal_mask, 1, differences(w)))


def times_quotient(x: Any, numerator: Any, denominator: Any, constant: bool) -> Any:
    """``x * numerator / denominator``, without a floating-point error where that is 0.

    There the result is 0 where ``x`` is 0, and where the numerator is 0 and ``constant``;
    elsewhere it is unknown, and NaN.
    """
    tie = equal(denominator, 0)
    known = logical_or(equal(x, 0), equal(numerator, 0)) if constant else equal(x, 0)
    ratio = div(numerator, where(tie, 1, denominator))
    limit = where(known, *np.array([0, np.nan], ratio.dtype))
    return mul(x, where(tie, limit, ratio))


def is_nothing(g: Any) -> bool:
    """Return whether a cotangent is of a result that nothing depends on."""
    return isinstance(g, np.ndarray) and not np.any(g)


def _eigh_vjp(g_w: Any, g_v: Any, a: Any, w: Any, v: Any, UPLO: str) -> Any:
    if isinstance(w, Value):  # an outer tape records: the derivatives of this gradient come next
        constant = not isinstance(g_w, Value)
        along_values = eigenvalue_pullback(g_w, a, UPLO, solver="eigh", constant=constant)
    else:
        along_values = _eigenvalues_vjp(g_w, v, UPLO)
    if is_nothing(g_v):
        return along_values
    transposed = matrix_transpose(v)
    inner = matmul(conj(v), _divide_by_gaps(matmul(transposed, g_v), w))
    return add(along_values, hermitian_from_triangle_vjp(matmul(inner, transposed), UPLO))


def _eigenvalues_vjp(g: Any, v: Any, UPLO: str) -> Any:
    inner = mul(conj(v), expand_dims(g, -2))
    return hermitian_from_triangle_vjp(matmul(inner, matrix_transpose(v)), UPLO)


def _eigh_jvp(t: Any, w: Any, v: Any, UPLO: str) -> tuple[Any, Any]:
    moved = matmul(hermitian_from_triangle(t, UPLO), v)
    projected = matmul(adjoint_of(v), moved)
    return real(sum(mul(conj(v), moved), -2)), matmul(v, _divide_by_gaps(projected, w))


def _eigvalsh_vjp(g: Any, a: Any, UPLO: str) -> Any:
    if isinstance(a, Value):
        constant = not isinstance(g, Value)
        return eigenvalue_pullback(g, a, UPLO, solver="eigvalsh", constant=constant)
    return _eigenvalues_vjp(g, eigh(a, UPLO)[1], UPLO)


def _eigvalsh_jvp(t: Any, a: Any, UPLO: str) -> Any:
    v = eigh(a, UPLO)[1]
    return real(sum(mul(conj(v), matmul(hermitian_from_triangle(t, UPLO), v)), -2))


def _pullback_slope(t: Any, cotangent: Any, a: Any, UPLO: str, solver: str, constant: bool) -> Any:
    """Derivative of ``eigenvalue_pullback`` in ``a`` along ``t``; it is symmetric."""
    g, (w, v) = real(cotangent), eigh(a, UPLO)
    w = eigvalsh(a, UPLO) if solver == "eigvalsh" else w
    turned = matmul(adjoint_of(v), matmul(hermitian_from_triangle(t, UPLO), v))
    turned = where(np.eye(a.shape[-1], dtype=bool), 0, turned)
    inner = times_quotient(turned, differences(g), differences(w), constant)
    moved = conj(matmul(matmul(v, inner), adjoint_of(v)))
    return hermitian_from_triangle_vjp(moved, UPLO)


# ------------------------------------------------------------------ rows


def _pullback_spec(cotangent: Spec, a: Spec, UPLO: str, solver: str, constant: bool) -> Spec:
    who = "eigenvalue_pullback"
    dtype = check_square(who, a)
    lapack_dtype(who, "cotangent", cotangent)
    if cotangent.shape != a.shape[:-1]:
        raise ShapeError(
            f"{who}: cotangent {cotangent.shape} for a {a.shape}; wanted is {a.shape[:-1]}"
        )
    return Spec(a.shape, np.result_type(real_dtype_of(cotangent.dtype), dtype))


@op(
    decomposition=lambda cotangent, a, UPLO, solver, constant: _eigenvalues_vjp(
        real(cotangent), eigh(a, UPLO)[1], UPLO
    ),
    raises=True,
    infer=_pullback_spec,
    prepare=lambda UPLO, solver, constant: (
        *_uplo_option("eigenvalue_pullback")(UPLO),
        check_choice("eigenvalue_pullback", "solver", solver, ("eigh", "eigvalsh")),
        check_flag("eigenvalue_pullback", "constant", constant),
    ),
    vjp={
        "cotangent": lambda t, a, UPLO, solver, constant: _eigvalsh_jvp(t, a, UPLO),
        "a": lambda t, cotangent, a, UPLO, solver, constant: _pullback_slope(
            t, cotangent, a, UPLO, solver, constant
        ),
    },
    jvp={
        "cotangent": lambda t, a, UPLO, solver, constant: _eigenvalues_vjp(
            t, eigh(a, UPLO)[1], UPLO
        ),
        "a": lambda t, cotangent, a, UPLO, solver, constant: _pullback_slope(
            t, cotangent, a, UPLO, solver, constant
        ),
    },
    kinks="for equal eigenvalues NaN, or 0 for equal cotangents that are constant",
    samples=[
        sample((3,), (3, 3)),
        sample((2, 3), (2, 3, 3), UPLO="U", solver="eigvalsh"),
        sample((0,), (0, 0)),
    ],
    rejects=[
        reject((3,), (2, 3), match="square matrices"),
        reject((2,), (3, 3), match=r"wanted is \(3,\)"),
        reject((2,), (2, 2), UPLO="X", error=SettingError, match="pass 'L' or 'U'"),
        reject((2,), (2, 2), solver="lu", error=SettingError, match="solver"),
    ],
)
def eigenvalue_pullback(
    cotangent: Any, a: Any, /, UPLO: str = "L", *, solver: str = "eigh", constant: bool = False
) -> Any:
    """VJP of the eigenvalues of Hermitian matrices ``a``, along their cotangent.

    ``solver`` names the op that computed the eigenvalues, ``"eigh"`` or ``"eigvalsh"``. For equal
    eigenvalues the derivative in ``a`` is known only where cotangents are equal and ``constant``.
    """
    spec = _pullback_spec(spec_of(cotangent), spec_of(a), UPLO, solver, constant)
    out = _eigenvalues_vjp(np.real(cotangent), lapack.eigh(a, UPLO)[1], UPLO)
    return np.asarray(out, spec.dtype)


_REJECTS = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject((2, 2), UPLO="X", error=SettingError, match="pass 'L' or 'U'"),
]


@op(
    results=type(np.linalg.eigh(np.eye(1))),
    primitive="decompose",
    raises=True,
    vmap="leading",
    infer=_eigh_spec,
    prepare=_uplo_option("eigh"),
    vjp={
        "a": lambda g_eigenvalues, g_eigenvectors, a, eigenvalues, eigenvectors, UPLO: _eigh_vjp(
            g_eigenvalues, g_eigenvectors, a, eigenvalues, eigenvectors, UPLO
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
    precision="wide",
)
def eigh(a: Any, /, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors, as columns, of Hermitian matrices.

    Only the triangle that is read has a gradient. For equal eigenvalues, derivatives of the
    vectors and second derivatives are undefined: infinities or NaN.
    """
    return lapack.eigh(a, UPLO)


@op(
    vmap="leading",
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
    precision="wide",
)
def eigvalsh(a: Any, /, UPLO: str = "L") -> Any:
    """Eigenvalues of Hermitian matrices, ascending; ``eigh`` returns the eigenvectors as well.

    Only the triangle that is read has a gradient. For equal eigenvalues, second derivatives are
    undefined: infinities or NaN.
    """
    return lapack.eigvalsh(a, UPLO)


publish(globals())
