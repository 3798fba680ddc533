"""Singular values and vectors, and ranks.

Singular vectors are defined but for a factor, -1 or a complex phase, that a pair of them shares,
among equal singular values but for a rotation, and beyond the last singular value but for any
rotation. The derivative is that of the vectors that turn as little as they must: right for
whatever does not depend on those choices. Where singular values are equal, gradients of the values
are right and finite; those of the vectors, and second derivatives, are not defined, which
infinities and NaN show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, number
from odyssey.errors import DTypeError, LinAlgError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import eigh
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import real_part, rectangular, refuse_not_finite, square
from odyssey.ops.elementwise.arithmetic import add, mul, neg, sub
from odyssey.ops.elementwise.choice import keep_where, less, not_equal, where
from odyssey.ops.elementwise.complex_numbers import absolute, conj, real
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.reductions.variance import over_length
from odyssey.ops.structure.arrangement import flip
from odyssey.ops.structure.diagonals import diagonal
from odyssey.ops.structure.gathering import take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, expand_dims, matrix_transpose
from odyssey.ops.structure.sorting import argsort
from odyssey.spec import Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

_SVD = type(np.linalg.svd(np.eye(1)))
_HALF = np.eye(2, dtype=np.float16)


# ------------------------------------------------------------------ rules


def _parts(x: Any, count: int, columns: bool) -> tuple[Any, Any]:
    """The first columns or rows, which belong to singular values, and the others, if there are."""
    length = x.shape[-1] if columns else x.shape[-2]
    if length == count:
        return x, None
    first, last = slice(0, count), slice(count, length)
    whole = slice(None)
    keys = [(..., whole, part) if columns else (..., part, whole) for part in (first, last)]
    return getitem(x, keys[0]), getitem(x, keys[1])


def _beside(s: Any) -> tuple[Any, Any, Any, Any]:
    """Singular values as columns and rows, their gaps, and where these are none."""
    columns, rows = expand_dims(s, -2), expand_dims(s, -1)
    same = np.eye(s.shape[-1], dtype=bool)
    return columns, rows, where(same, 1, sub(columns, rows)), ~same


def _svd_pull(g_u: Any, g_s: Any, g_vh: Any, u: Any, s: Any, vh: Any) -> Any:
    count = s.shape[-1]
    (u, beyond_u), (vh, beyond_v) = _parts(u, count, True), _parts(vh, count, False)
    (g_u, g_beyond_u), (g_vh, g_beyond_v) = _parts(g_u, count, True), _parts(g_vh, count, False)
    columns, rows, gaps, apart = _beside(s)
    left = matmul(matrix_transpose(u), g_u)
    right = matmul(g_vh, matrix_transpose(vh))
    # What turns both sides alike goes with the gaps, what turns them apart with the sums.
    alike = over_length(keep_where(sub(left, right), apart), gaps)
    opposed = add(left, right)
    opposed = over_length(mul(sub(opposed, adjoint_of(opposed)), 0.5), add(columns, rows))
    inner = add(mul(add(alike, adjoint_of(alike)), 0.5), opposed)
    inner = add(inner, mul(expand_dims(g_s, -2), np.eye(count, dtype=s.dtype)))
    out_u, out_v = conj(u), conj(vh)
    found = matmul(matmul(out_u, inner), out_v)
    if u.shape[-2] > count:
        rest = over_length(sub(g_u, matmul(out_u, left)), columns)
        found = add(found, matmul(rest, out_v))
    if vh.shape[-1] > count:
        rest = over_length(sub(g_vh, matmul(right, out_v)), rows)
        found = add(found, matmul(out_u, rest))
    if beyond_u is not None:
        rest = over_length(adjoint_of(matmul(matrix_transpose(u), g_beyond_u)), columns)
        found = sub(found, matmul(matmul(conj(beyond_u), rest), out_v))
    if beyond_v is not None:
        rest = over_length(adjoint_of(matmul(g_beyond_v, matrix_transpose(vh))), rows)
        found = sub(found, matmul(matmul(out_u, rest), conj(beyond_v)))
    return found


def _svd_push(t: Any, u: Any, s: Any, vh: Any) -> tuple[Any, Any, Any]:
    count = s.shape[-1]
    (u, beyond_u), (vh, beyond_v) = _parts(u, count, True), _parts(vh, count, False)
    columns, rows, gaps, apart = _beside(s)
    onto_v, onto_u = matmul(t, adjoint_of(vh)), matmul(adjoint_of(u), t)
    inner = matmul(adjoint_of(u), onto_v)
    alike = over_length(keep_where(mul(add(inner, adjoint_of(inner)), 0.5), apart), gaps)
    opposed = over_length(mul(sub(inner, adjoint_of(inner)), 0.5), add(columns, rows))
    t_u = matmul(u, add(alike, opposed))
    t_vh = matmul(sub(opposed, alike), vh)
    if u.shape[-2] > count:
        t_u = add(t_u, over_length(sub(onto_v, matmul(u, inner)), columns))
    if vh.shape[-1] > count:
        t_vh = add(t_vh, over_length(sub(onto_u, matmul(inner, vh)), rows))
    if beyond_u is not None:
        turned = over_length(matmul(adjoint_of(beyond_u), onto_v), columns)
        t_u = concatenate([t_u, neg(matmul(u, adjoint_of(turned)))], -1)
    if beyond_v is not None:
        turned = over_length(matmul(onto_u, adjoint_of(beyond_v)), rows)
        t_vh = concatenate([t_vh, neg(matmul(adjoint_of(turned), vh))], -2)
    return t_u, real(diagonal(inner, 0, -2, -1)), t_vh


def _values_pull(g: Any, a: Any) -> Any:
    u, s, vh = svd_factors(a, False)
    kept = keep_where(g, not_equal(s, 0))
    return matmul(mul(conj(u), expand_dims(kept, -2)), conj(vh))


def _values_push(t: Any, a: Any) -> Any:
    u, s, vh = svd_factors(a, False)
    moved = real(sum(mul(conj(u), matmul(t, adjoint_of(vh))), -2))
    return keep_where(moved, not_equal(s, 0))


# ------------------------------------------------------------------ rows


def _factors_spec(a: Spec, full_matrices: bool) -> tuple[Spec, Spec, Spec]:
    dtype = rectangular("svd_factors", a)
    *batch, m, n = a.shape
    count = min(m, n)
    rows, columns = (m, n) if full_matrices else (count, count)
    s = Spec((*batch, count), real_part(dtype))
    return Spec((*batch, m, rows), dtype), s, Spec((*batch, columns, n), dtype)


def _values_spec(a: Spec) -> Spec:
    dtype = rectangular("svdvals", a)
    return Spec((*a.shape[:-2], min(a.shape[-2:])), real_part(dtype))


_NO_MATRICES = [
    reject((3,), match="wanted are matrices"),
    reject(_HALF, error=DTypeError, match="single or double"),
    reject(np.full((2, 2), np.nan), error=LinAlgError, match="SVD did not converge"),
]


@op(
    results=_SVD,
    primitive="decompose",
    raises=True,
    infer=_factors_spec,
    prepare=lambda full_matrices: (flag("svd_factors", "full_matrices", full_matrices),),
    vjp={"a": lambda g_U, g_S, g_Vh, U, S, Vh: _svd_pull(g_U, g_S, g_Vh, U, S, Vh)},
    jvp={"a": lambda t, U, S, Vh: _svd_push(t, U, S, Vh)},
    samples=[
        sample((2, 2)),
        sample((3, 2)),
        sample((2, 3)),
        sample((2, 3, 2), full_matrices=False),
        sample((2, 4), full_matrices=False),
        sample((0, 0)),
        sample((0, 2), full_matrices=False),
    ],
    rejects=_NO_MATRICES,
)
def svd_factors(a: Any, /, full_matrices: bool = True) -> Any:
    """Singular values and vectors of matrices, ``a = (U * S) @ Vh``; see ``svd``.

    With ``full_matrices`` the vectors are all of a basis.
    """
    refuse_not_finite("svd_factors", a)
    return lapack.svd(a, full_matrices)


@op(
    decomposition=lambda a: svd_factors(a, False)[1],
    raises=True,
    infer=_values_spec,
    numpy=[np.linalg.svdvals],
    vjp={"a": _values_pull},
    jvp={"a": _values_push},
    kinks="a singular value that is 0 has derivative 0",
    samples=[sample((3, 3)), sample((2, 3)), sample((2, 3, 2)), sample((1, 1)), sample((0, 2))],
    rejects=_NO_MATRICES,
)
def svdvals(a: Any, /) -> Any:
    """Singular values of matrices, falling.

    Where some are equal, second derivatives are not defined: infinities and NaN show it.
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
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    *,
    tape: Any = None,
) -> Any:
    """Singular values and vectors of matrices, ``a = (U * S) @ Vh``.

    Singular vectors are defined but for factors, and among equal singular values but for a
    rotation; derivatives are right for what does not depend on these. Where singular values are
    equal those of the vectors are not defined, and infinities and NaN show it.

    Args:
        a: Matrices, ``(..., m, n)``.
        full_matrices: Whether ``U`` and ``Vh`` are square; else they have as many columns, or
            rows, as there are singular values.
        compute_uv: Whether to return the vectors as well.
        hermitian: Whether ``a`` is Hermitian, which is faster; only its lower triangle is read.
        tape: The tape to record on.

    Returns:
        ``U``, ``S``, falling, and ``Vh``; or ``S`` alone.

    Raises:
        LinAlgError: where they are not found, as for matrices that are not finite.

    >>> np.round(svd(np.array([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False))
    array([4., 3.])
    """
    if hermitian:
        return _of_hermitian(a, compute_uv, tape)
    return svd_factors(a, full_matrices, tape=tape) if compute_uv else svdvals(a, tape=tape)


def _of_hermitian(a: Any, compute_uv: bool, tape: Any) -> Any:
    """Singular values are the sizes of eigenvalues; their signs go to the vectors of one side."""
    w, v = eigh(a, tape=tape)
    sizes = absolute(w, tape=tape)
    order = flip(argsort(sizes, tape=tape), -1, tape=tape)
    s = take_along_axis(sizes, order, -1, tape=tape)
    if not compute_uv:
        return s
    signs = take_along_axis(where(less(w, 0, tape=tape), -1.0, 1.0, tape=tape), order, -1)
    u = take_along_axis(v, expand_dims(order, -2, tape=tape), -1, tape=tape)
    signed = mul(u, expand_dims(astype(signs, s.dtype), -2), tape=tape)
    return _SVD(u, s, conj(matrix_transpose(signed, tape=tape), tape=tape))


# ------------------------------------------------------------------ ranks


def _rank_options(tol: Any, hermitian: Any, rtol: Any) -> tuple[Any, bool, Any]:
    if tol is not None and rtol is not None:
        raise ShapeError("matrix_rank: tol and rtol came; pass one of them")
    given = [
        None if value is None else number("matrix_rank", name, value, "[0, inf]")
        for name, value in (("tol", tol), ("rtol", rtol))
    ]
    return given[0], flag("matrix_rank", "hermitian", hermitian), given[1]


def _rank_spec(a: Spec, *options: Any) -> Spec:
    if options[1]:
        square("matrix_rank", a)
    elif a.ndim > 1:
        rectangular("matrix_rank", a)
    return Spec(a.shape[:-2], np.dtype(np.intp))


def _matrix_rank(a: Any, tol: Any, hermitian: bool, rtol: Any) -> Any:
    if np.ndim(a) > 1 and not np.size(a):  # which early releases of NumPy 2 refuse
        ranks = _rank_spec(Spec(np.shape(a), np.asarray(a).dtype), tol, hermitian, rtol)
        return np.zeros(ranks.shape, ranks.dtype)[()]
    return np.asarray(lapack.matrix_rank(a, tol, hermitian, rtol=rtol), np.intp)[()]


@op(
    primitive="decompose",
    raises=True,
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
        reject(_HALF, error=DTypeError, match="single or double"),
    ],
)
def matrix_rank(
    a: Any, /, tol: float | None = None, hermitian: bool = False, *, rtol: float | None = None
) -> Any:
    """Ranks of matrices: how many singular values are above ``tol``, or ``rtol`` of the largest.

    By default above the rounding of the longer side. A vector has rank 1, or 0 where it is 0.
    """
    return _matrix_rank(a, tol, hermitian, rtol)


publish(globals())
