"""Singular value decomposition and matrix rank.

Singular vectors are unique up to a sign or complex phase that each pair shares, up to a rotation
among equal singular values, and up to any rotation beyond the last singular value. The derivative
uses the gauge of least rotation; it is exact for functions that do not depend on these choices. For
equal singular values, gradients of the values are exact and finite; derivatives of the vectors, and
second derivatives, are undefined and come out as infinities or NaN. Second derivatives at close
singular values are those of ``singular_value_pullback``, as in ``hermitian_eigenvalues``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_flag, check_number
from odyssey.errors import DTypeError, LinAlgError, SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import differences, eigh, is_nothing, times_quotient
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import (
    HALF_MATRIX,
    NOT_MATRICES,
    check_matrices,
    check_square,
    lapack_dtype,
    real_dtype_of,
    require_finite,
)
from odyssey.ops.elementwise.arithmetic import add, mul, neg, sub
from odyssey.ops.elementwise.choice import keep_where, less, logical_and, not_equal, where
from odyssey.ops.elementwise.complex_numbers import absolute, conj, real
from odyssey.ops.reductions.reduce import any as any_of
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.reductions.variance import over_length
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.batching import flatten_examples
from odyssey.ops.structure.diagonals import diagonal
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, expand_dims, matrix_transpose
from odyssey.ops.structure.sorting import argsort
from odyssey.spec import Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Value

_SVD = type(np.linalg.svd(np.eye(1)))


# ------------------------------------------------------------------ rules


def _split_basis(x: Any, count: int, columns: bool) -> tuple[Any, Any]:
    """Split a basis into the first ``count`` columns or rows and the rest, or None."""
    length = x.shape[-1] if columns else x.shape[-2]
    if length == count:
        return x, None
    first, last = slice(0, count), slice(count, length)
    head, tail = (
        (..., slice(None), part) if columns else (..., part, slice(None)) for part in (first, last)
    )
    return getitem(x, head), getitem(x, tail)


def _singular_value_gaps(s: Any) -> tuple[Any, Any, Any, Any]:
    """Singular values as columns and as rows, their differences, and the off-diagonal mask."""
    columns, rows = expand_dims(s, -2), expand_dims(s, -1)
    diagonal_mask = np.eye(s.shape[-1], dtype=bool)
    return columns, rows, where(diagonal_mask, 1, sub(columns, rows)), ~diagonal_mask


def _svd_vjp(g_u: Any, g_s: Any, g_vh: Any, a: Any, u: Any, s: Any, vh: Any, full: bool) -> Any:
    if isinstance(s, Value):  # an outer tape records: the derivatives of this gradient come next
        solver, constant = "full" if full else "reduced", not isinstance(g_s, Value)
        along_values = singular_value_pullback(g_s, a, solver=solver, constant=constant)
    else:
        along_values = _along_singular_values(g_s, u, s, vh)
    if is_nothing(g_u) and is_nothing(g_vh):
        return along_values
    return add(along_values, _singular_vectors_vjp(g_u, g_vh, u, s, vh))


def _along_singular_values(g: Any, u: Any, s: Any, vh: Any) -> Any:
    count = s.shape[-1]
    u, vh = _split_basis(u, count, True)[0], _split_basis(vh, count, False)[0]
    return matmul(mul(conj(u), expand_dims(g, -2)), conj(vh))


def _singular_vectors_vjp(g_u: Any, g_vh: Any, u: Any, s: Any, vh: Any) -> Any:
    count = s.shape[-1]
    (u, null_u), (vh, null_v) = _split_basis(u, count, True), _split_basis(vh, count, False)
    (g_u, g_null_u), (g_vh, g_null_v) = (
        _split_basis(g_u, count, True),
        _split_basis(g_vh, count, False),
    )
    columns, rows, gaps, off_diagonal = _singular_value_gaps(s)
    left = matmul(matrix_transpose(u), g_u)
    right = matmul(g_vh, matrix_transpose(vh))
    # Common rotations of both sides divide by differences, opposite rotations by sums.
    common = over_length(keep_where(sub(left, right), off_diagonal), gaps)
    opposite = add(left, right)
    opposite = over_length(mul(sub(opposite, adjoint_of(opposite)), 0.5), add(columns, rows))
    inner = add(mul(add(common, adjoint_of(common)), 0.5), opposite)
    out_u, out_v = conj(u), conj(vh)
    g_a = matmul(matmul(out_u, inner), out_v)
    if u.shape[-2] > count:
        rest = over_length(sub(g_u, matmul(out_u, left)), columns)
        g_a = add(g_a, matmul(rest, out_v))
    if vh.shape[-1] > count:
        rest = over_length(sub(g_vh, matmul(right, out_v)), rows)
        g_a = add(g_a, matmul(out_u, rest))
    if null_u is not None:
        rest = over_length(adjoint_of(matmul(matrix_transpose(u), g_null_u)), columns)
        g_a = sub(g_a, matmul(matmul(conj(null_u), rest), out_v))
    if null_v is not None:
        rest = over_length(adjoint_of(matmul(g_null_v, matrix_transpose(vh))), rows)
        g_a = sub(g_a, matmul(matmul(out_u, rest), conj(null_v)))
    return g_a


def _svd_jvp(t: Any, u: Any, s: Any, vh: Any) -> tuple[Any, Any, Any]:
    count = s.shape[-1]
    (u, null_u), (vh, null_v) = _split_basis(u, count, True), _split_basis(vh, count, False)
    columns, rows, gaps, off_diagonal = _singular_value_gaps(s)
    onto_v, onto_u = matmul(t, adjoint_of(vh)), matmul(adjoint_of(u), t)
    inner = matmul(adjoint_of(u), onto_v)
    common = over_length(keep_where(mul(add(inner, adjoint_of(inner)), 0.5), off_diagonal), gaps)
    opposite = over_length(mul(sub(inner, adjoint_of(inner)), 0.5), add(columns, rows))
    t_u = matmul(u, add(common, opposite))
    t_vh = matmul(sub(opposite, common), vh)
    if u.shape[-2] > count:
        t_u = add(t_u, over_length(sub(onto_v, matmul(u, inner)), columns))
    if vh.shape[-1] > count:
        t_vh = add(t_vh, over_length(sub(onto_u, matmul(inner, vh)), rows))
    if null_u is not None:
        turned = over_length(matmul(adjoint_of(null_u), onto_v), columns)
        t_u = concatenate([t_u, neg(matmul(u, adjoint_of(turned)))], -1)
    if null_v is not None:
        turned = over_length(matmul(onto_u, adjoint_of(null_v)), rows)
        t_vh = concatenate([t_vh, neg(matmul(adjoint_of(turned), vh))], -2)
    return t_u, real(diagonal(inner, 0, -2, -1)), t_vh


def _svdvals_vjp(g: Any, a: Any) -> Any:
    if isinstance(a, Value):
        constant = not isinstance(g, Value)
        return singular_value_pullback(g, a, solver="values", constant=constant)
    return _singular_value_pullback(g, a, "values")


def _singular_value_pullback(g: Any, a: Any, solver: str) -> Any:
    u, s, vh = svd_factors(a, solver == "full")
    g = keep_where(g, not_equal(s, 0)) if solver == "values" else g
    return _along_singular_values(g, u, s, vh)


def _pullback_slope(t: Any, cotangent: Any, a: Any, solver: str, constant: bool) -> Any:
    """Derivative of ``singular_value_pullback`` in ``a`` along ``t``; it is symmetric."""
    g, (u, s, vh) = real(cotangent), svd_factors(a, solver == "full")
    s = svdvals(a) if solver == "values" else s
    count = s.shape[-1]
    (u, _), (vh, _) = _split_basis(u, count, True), _split_basis(vh, count, False)
    onto_v, onto_u = matmul(t, adjoint_of(vh)), matmul(adjoint_of(u), t)
    inner = matmul(adjoint_of(u), onto_v)
    across = adjoint_of(inner)
    symmetric, skew = mul(add(inner, across), 0.5), mul(sub(inner, across), 0.5)
    # On the diagonal nothing turns, but svdvals does not say how a singular value leaves 0.
    skipped = np.eye(count, dtype=bool)
    if solver == "values":
        skipped = logical_and(skipped, not_equal(expand_dims(s, -2), 0))
    symmetric = where(skipped, 0, symmetric)
    turned = times_quotient(symmetric, differences(g), differences(s), constant)
    g_sums, s_sums = (add(expand_dims(x, -2), expand_dims(x, -1)) for x in (g, s))
    turned = add(turned, times_quotient(skew, g_sums, s_sums, constant))
    moved = matmul(matmul(u, turned), vh)
    if u.shape[-2] > count:
        rest = sub(onto_v, matmul(u, inner))
        rest = times_quotient(rest, expand_dims(g, -2), expand_dims(s, -2), constant)
        moved = add(moved, matmul(rest, vh))
    if vh.shape[-1] > count:
        rest = sub(onto_u, matmul(inner, vh))
        rest = times_quotient(rest, expand_dims(g, -1), expand_dims(s, -1), constant)
        moved = add(moved, matmul(u, rest))
    return conj(moved)


def _svdvals_jvp(t: Any, a: Any, solver: str = "values") -> Any:
    u, s, vh = svd_factors(a, False)
    moved = real(sum(mul(conj(u), matmul(t, adjoint_of(vh))), -2))
    return keep_where(moved, not_equal(s, 0)) if solver == "values" else moved


# ------------------------------------------------------------------ rows


def _svd_factors_spec(a: Spec, full_matrices: bool) -> tuple[Spec, Spec, Spec]:
    dtype = check_matrices("svd_factors", a)
    *batch, m, n = a.shape
    count = min(m, n)
    rows, columns = (m, n) if full_matrices else (count, count)
    s = Spec((*batch, count), real_dtype_of(dtype))
    return Spec((*batch, m, rows), dtype), s, Spec((*batch, columns, n), dtype)


def _svdvals_spec(a: Spec) -> Spec:
    dtype = check_matrices("svdvals", a)
    return Spec((*a.shape[:-2], min(a.shape[-2:])), real_dtype_of(dtype))


def _pullback_spec(cotangent: Spec, a: Spec, solver: str, constant: bool) -> Spec:
    who = "singular_value_pullback"
    dtype = check_matrices(who, a)
    lapack_dtype(who, "cotangent", cotangent)
    wanted = (*a.shape[:-2], min(a.shape[-2:]))
    if cotangent.shape != wanted:
        raise ShapeError(f"{who}: cotangent {cotangent.shape} for a {a.shape}; wanted is {wanted}")
    return Spec(a.shape, np.result_type(real_dtype_of(cotangent.dtype), dtype))


@op(
    decomposition=lambda cotangent, a, solver, constant: _singular_value_pullback(
        real(cotangent), a, solver
    ),
    raises=True,
    infer=_pullback_spec,
    prepare=lambda solver, constant: (
        check_choice("singular_value_pullback", "solver", solver, ("values", "reduced", "full")),
        check_flag("singular_value_pullback", "constant", constant),
    ),
    vjp={
        "cotangent": lambda t, a, solver, constant: _svdvals_jvp(t, a, solver),
        "a": lambda t, cotangent, a, solver, constant: _pullback_slope(
            t, cotangent, a, solver, constant
        ),
    },
    jvp={
        "cotangent": lambda t, a, solver, constant: _singular_value_pullback(real(t), a, solver),
        "a": lambda t, cotangent, a, solver, constant: _pullback_slope(
            t, cotangent, a, solver, constant
        ),
    },
    kinks="NaN for equal singular values or 0; 0 for equal or zero cotangents that are constant",
    samples=[
        sample((3,), (3, 3)),
        sample((2, 2), (2, 3, 2), solver="full"),
        sample((2,), (2, 4), solver="reduced"),
        sample((0,), (0, 2)),
    ],
    rejects=[
        reject((3,), (3,), match="wanted are matrices"),
        reject((3,), (2, 3), match=r"wanted is \(2,\)"),
        reject((2,), (2, 2), solver="lu", error=SettingError, match="solver"),
    ],
)
def singular_value_pullback(
    cotangent: Any, a: Any, /, *, solver: str = "values", constant: bool = False
) -> Any:
    """VJP of the singular values of matrices ``a``, along their cotangent.

    ``solver`` names what computed them: ``"values"``, ``svdvals``, whose derivative at 0 is 0; or
    the ``"reduced"`` or ``"full"`` decomposition. For singular values that are equal, or 0, the
    derivative in ``a`` is known only where cotangents are equal, or 0, and ``constant``.
    """
    spec = _pullback_spec(spec_of(cotangent), spec_of(a), solver, constant)
    return np.asarray(_singular_value_pullback(np.real(cotangent), a, solver), spec.dtype)


_SVD_REJECTS = [
    *NOT_MATRICES,
    reject(np.full((2, 2), np.nan), error=LinAlgError, match="SVD did not converge"),
]


@op(
    results=_SVD,
    primitive="decompose",
    raises=True,
    vmap="leading",
    infer=_svd_factors_spec,
    prepare=lambda full_matrices: (check_flag("svd_factors", "full_matrices", full_matrices),),
    vjp={
        "a": lambda g_U, g_S, g_Vh, a, U, S, Vh, full_matrices: _svd_vjp(
            g_U, g_S, g_Vh, a, U, S, Vh, full_matrices
        )
    },
    jvp={"a": lambda t, U, S, Vh: _svd_jvp(t, U, S, Vh)},
    samples=[
        sample((2, 2)),
        sample((3, 2)),
        sample((2, 3)),
        sample((2, 3, 2), full_matrices=False),
        sample((2, 4), full_matrices=False),
        sample((0, 0)),
        sample((0, 2), full_matrices=False),
    ],
    rejects=_SVD_REJECTS,
    precision="wide",
)
def svd_factors(a: Any, /, full_matrices: bool = True) -> Any:
    """Singular value decomposition, ``a = (U * S) @ Vh``; see ``svd``.

    With ``full_matrices`` ``U`` and ``Vh`` are square.
    """
    require_finite("svd_factors", a)
    return lapack.svd(a, full_matrices)


@op(
    decomposition=lambda a: svd_factors(a, False)[1],
    raises=True,
    vmap="leading",
    infer=_svdvals_spec,
    numpy=[np.linalg.svdvals],
    vjp={"a": _svdvals_vjp},
    jvp={"a": lambda t, a: _svdvals_jvp(t, a)},
    kinks="a singular value that is 0 has derivative 0",
    samples=[sample((3, 3)), sample((2, 3)), sample((2, 3, 2)), sample((1, 1)), sample((0, 2))],
    rejects=_SVD_REJECTS,
    precision="wide",
)
def svdvals(a: Any, /) -> Any:
    """Singular values of matrices, descending.

    For equal singular values, second derivatives are undefined: infinities or NaN.
    """
    return lapack.svd(a, compute_uv=False)


@composite(
    numpy=[np.linalg.svd],
    samples=[
        sample((3, 2)),
        sample((2, 2, 3), full_matrices=False),
        sample((3, 3), compute_uv=False),
        sample((3, 3), hermitian=True, form=lambda x: x + np.conj(x.T)),
        sample((2, 2), compute_uv=False, hermitian=True),
    ],
    rejects=[reject((3,), match="wanted are matrices")],
)
def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    """Singular value decomposition, ``a = (U * S) @ Vh``.

    Singular vectors are unique up to phases, and up to a rotation among equal singular values;
    derivatives are exact for functions that do not depend on these. For equal singular values,
    derivatives of the vectors are undefined: infinities or NaN.

    Args:
        a: Matrices, ``(..., m, n)``.
        full_matrices: Whether ``U`` and ``Vh`` are square; otherwise they have ``min(m, n)``
            columns, or rows.
        compute_uv: Whether to return the vectors as well.
        hermitian: Whether ``a`` is Hermitian; faster, and reads only the lower triangle.

    Returns:
        ``U``, ``S``, descending, and ``Vh``; or ``S`` alone.

    Raises:
        LinAlgError: if the SVD fails, as for matrices that are not finite.

    >>> np.round(svd(np.array([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False))
    array([4., 3.])
    """
    if hermitian:
        return _svd_of_hermitian(a, compute_uv)
    return svd_factors(a, full_matrices) if compute_uv else svdvals(a)


def _svd_of_hermitian(a: Any, compute_uv: bool) -> Any:
    """SVD by ``eigh``: absolute values of eigenvalues, with their signs moved into ``Vh``."""
    w, v = eigh(a)
    sizes = absolute(w)
    order = flip(argsort(sizes), -1)
    s = take_along_axis(sizes, order, -1)
    if not compute_uv:
        return s
    signs = take_along_axis(where(less(w, 0), -1.0, 1.0), order, -1)
    u = take_along_axis(v, expand_dims(order, -2), -1)
    signed = mul(u, expand_dims(astype(signs, s.dtype), -2))
    return _SVD(u, s, conj(matrix_transpose(signed)))


# ------------------------------------------------------------------ matrix rank


def _rank_options(tol: Any, hermitian: Any, rtol: Any) -> tuple[Any, bool, Any]:
    if tol is not None and rtol is not None:
        raise ShapeError("matrix_rank: tol and rtol came; pass one of them")
    tolerances = [
        None if value is None else check_number("matrix_rank", name, value, "[0, inf]")
        for name, value in (("tol", tol), ("rtol", rtol))
    ]
    return tolerances[0], check_flag("matrix_rank", "hermitian", hermitian), tolerances[1]


def _rank_spec(a: Spec, *options: Any) -> Spec:
    if options[1]:
        check_square("matrix_rank", a)
    elif a.ndim > 1:
        check_matrices("matrix_rank", a)
    return Spec(a.shape[:-2], np.dtype(np.intp))


def _batch_matrix_rank(batch: Batch, a: Any, tol: Any, hermitian: bool, rtol: Any) -> Any:
    if batch.ndim(0, a) < 2:  # the rank of a vector: 0 if it is 0
        if hermitian:
            raise ShapeError("matrix_rank: hermitian=True for a vector; pass square matrices")
        return astype(any_of(not_equal(flatten_examples(a), 0), 1), np.intp)
    return matrix_rank(a, tol, hermitian, rtol=rtol)


def _matrix_rank(a: Any, tol: Any, hermitian: bool, rtol: Any) -> Any:
    if np.ndim(a) > 1 and not np.size(a):  # early releases of NumPy 2 reject these
        ranks = _rank_spec(Spec(np.shape(a), np.asarray(a).dtype), tol, hermitian, rtol)
        return np.zeros(ranks.shape, ranks.dtype)[()]
    return np.asarray(lapack.matrix_rank(a, tol, hermitian, rtol=rtol), np.intp)[()]


@op(
    primitive="decompose",
    raises=True,
    vmap=_batch_matrix_rank,
    infer=_rank_spec,
    prepare=_rank_options,
    kernel=_matrix_rank,
    numpy=[np.linalg.matrix_rank],
    samples=[
        sample((3, 2)),
        sample((2, 3, 3), rtol=0.5),
        sample((3, 3), tol=1.0, hermitian=True),
        sample((3,)),
        sample((0, 2)),
    ],
    rejects=[
        reject((2, 2), tol=0.1, rtol=0.1, match="pass one of them"),
        reject((2, 3), hermitian=True, match="square matrices"),
        reject(HALF_MATRIX, error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def matrix_rank(
    a: Any, /, tol: float | None = None, hermitian: bool = False, *, rtol: float | None = None
) -> Any:
    """Matrix rank: the number of singular values above ``tol``, or ``rtol`` times the largest.

    The default is machine precision times the longer side. A vector has rank 1, or 0 if it is 0.
    """
    return _matrix_rank(a, tol, hermitian, rtol)


publish(globals())
