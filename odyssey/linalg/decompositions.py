"""Factors of matrices: those of Gauss, lower and upper triangles, and orthogonal ones.

Where a matrix lacks rank, the derivatives of its factors are not defined: NaN shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, shown
from odyssey.errors import DTypeError, LinAlgError, SettingError
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import _read, _unread
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import definite, real_part, rectangular, regular, square
from odyssey.linalg.triangular_systems import solved_by_halves, triangular_solve
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

_HALF = np.eye(2, dtype=np.float16)

# ------------------------------------------------------------------ for rules


def _rows(x: Any, start: int, stop: int) -> Any:
    return getitem(x, (..., slice(start, stop), slice(None)))


def _columns(x: Any, start: int, stop: int) -> Any:
    return getitem(x, (..., slice(start, stop)))


def _below(x: Any) -> Any:
    """The lower triangle without the diagonal."""
    return keep_where(x, np.tri(*x.shape[-2:], k=-1, dtype=bool))


def _above(x: Any) -> Any:
    """The upper triangle with the diagonal."""
    return keep_where(x, ~np.tri(*x.shape[-2:], k=-1, dtype=bool))


def _divided(x: Any, r: Any) -> Any:
    """``x @ inv(r.T)``."""
    return matrix_transpose(solve_or_nan(r, matrix_transpose(x)))


# ------------------------------------------------------------------ the factors of Gauss


def _swapped(x: Array, order: Array) -> Array:
    return np.take_along_axis(x, order[..., None], -2)


# Below this many columns a step for each of them costs less than halves do.
_NARROW = 8


def _eliminate(a: Array) -> Array:
    """Factor matrices, ``(count, rows, columns)``, in place, both triangles in one.

    Returns the order of rows.

    By halves, after S. Toledo, SIAM J. Matrix Anal. Appl. 18 (1997): most is done by products.
    """
    rows, columns = a.shape[-2:]
    if columns <= _NARROW or rows <= 1:
        return _eliminate_narrow(a)
    k = min(columns // 2, rows)
    left, right = a[..., :k], a[..., k:]
    order = _eliminate(left)
    right[...] = _swapped(right, order)
    unit = np.tril(left[..., :k, :], -1) + np.eye(k, dtype=a.dtype)
    right[..., :k, :] = solved_by_halves(unit, right[..., :k, :], True)
    if rows == k:
        return order
    right[..., k:, :] -= np.matmul(left[..., k:, :], right[..., :k, :])
    later = _eliminate(right[..., k:, :])
    left[..., k:, :] = _swapped(left[..., k:, :], later)
    rest = np.take_along_axis(order[..., k:], later, -1)
    return np.concatenate([order[..., :k], rest], -1)


def _eliminate_narrow(a: Array) -> Array:
    count, rows, columns = a.shape
    each = np.arange(count)
    order = np.tile(np.arange(rows), (count, 1))
    for k in range(min(rows, columns)):
        column = a[:, k:, k]  # of complex numbers LAPACK takes the largest of these sums
        sizes = np.absolute(column.real) + np.absolute(column.imag)
        largest = k + sizes.argmax(1)
        for lines in (a, order):
            first = lines[:, k].copy()
            lines[:, k] = lines[each, largest]
            lines[each, largest] = first
        pivot = a[:, k : k + 1, k]
        # A column of zeros has nothing to divide.
        a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k : k + 1] * a[:, k : k + 1, k + 1 :]
    return order


def _lu_spec(a: Any) -> tuple[Spec, Spec, Spec]:
    dtype = rectangular("lu", a)
    *batch, m, n = a.shape
    count = min(m, n)
    p = Spec((*batch, m, m), real_part(dtype))
    return p, Spec((*batch, m, count), dtype), Spec((*batch, count, n), dtype)


def _lu(a: Any) -> tuple[Array, Array, Array]:
    p_spec, lower_spec, _ = _lu_spec(a)
    both = np.array(a, lower_spec.dtype, order="C")
    m, n = both.shape[-2:]
    count = min(m, n)
    order = np.broadcast_to(np.arange(m), both.shape[:-1])
    if both.size:
        order = _eliminate(both.reshape(-1, m, n)).reshape(order.shape)
    lower = np.tril(both[..., :count], -1) + np.eye(m, count, dtype=both.dtype)
    # Row k of the product is row order[k] of the matrix.
    p = np.swapaxes(np.eye(m, dtype=p_spec.dtype)[order], -1, -2)
    return p, lower, np.triu(both[..., :count, :])


def _lu_pull(g_lower: Any, g_upper: Any, p: Any, lower: Any, upper: Any) -> Any:
    """Of the square part, then of the columns or the rows beyond."""
    m, n = lower.shape[-2], upper.shape[-1]
    k = lower.shape[-1]
    first, last = _rows(lower, 0, k), _columns(upper, 0, k)
    inner = _below(matmul(matrix_transpose(first), _rows(g_lower, 0, k)))
    inner = add(inner, _above(matmul(_columns(g_upper, 0, k), matrix_transpose(last))))
    if n > k:
        g_wide, wide = _columns(g_upper, k, n), _columns(upper, k, n)
        inner = sub(inner, _below(matmul(g_wide, matrix_transpose(wide))))
    if m > k:
        g_tall, tall = _rows(g_lower, k, m), _rows(lower, k, m)
        inner = sub(inner, _above(matmul(matrix_transpose(tall), g_tall)))
    turned = matrix_transpose(first)
    found = _divided(solve_or_nan(turned, inner), last)
    if n > k:
        found = concatenate([found, solve_or_nan(turned, g_wide)], -1)
    if m > k:
        found = concatenate([found, _divided(g_tall, last)], -2)
    return matmul(p, found)


def _lu_push(t: Any, p: Any, lower: Any, upper: Any) -> tuple[Any, Any, Any]:
    m, n = lower.shape[-2], upper.shape[-1]
    k = lower.shape[-1]
    first, last = _rows(lower, 0, k), _columns(upper, 0, k)
    t = matmul(matrix_transpose(p), t)
    inner = _columns(_rows(t, 0, k), 0, k)
    inner = _divided(solve_or_nan(first, inner), matrix_transpose(last))
    t_lower, t_upper = matmul(first, _below(inner)), matmul(_above(inner), last)
    if n > k:
        moved = solve_or_nan(first, _columns(t, k, n))
        wide = sub(moved, matmul(_below(inner), _columns(upper, k, n)))
        t_upper = concatenate([t_upper, wide], -1)
    if m > k:
        moved = _divided(_rows(t, k, m), matrix_transpose(last))
        tall = sub(moved, matmul(_rows(lower, k, m), _above(inner)))
        t_lower = concatenate([t_lower, tall], -2)
    return zeros_like(p), t_lower, t_upper


@op(
    results=("p", "lower", "upper"),
    primitive="decompose",
    infer=_lu_spec,
    vjp={
        "a": lambda g_lower, g_upper, p, lower, upper: _lu_pull(g_lower, g_upper, p, lower, upper)
    },
    jvp={"a": lambda t, p, lower, upper: _lu_push(t, p, lower, upper)},
    samples=[
        sample((3, 3), form=regular),
        sample((4, 2)),
        sample((2, 4)),
        sample((2, 2, 2), form=regular),
        sample((0, 2)),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject(_HALF, error=DTypeError, match="single or double"),
    ],
)
def lu(a: Any, /) -> Any:
    """Factors of Gauss' elimination, ``a = p @ lower @ upper``, with the rows in another order.

    ``p`` puts rows back into place, and is constant; ``lower`` has ones on its diagonal. Of those
    that might stand there the largest number of a column is taken. Where a matrix lacks rank
    derivatives are not defined: NaN shows it.
    """
    return _lu(a)


# ------------------------------------------------------------------ orthogonal factors


def _qr_spec(a: Any, mode: str) -> tuple[Spec, Spec]:
    dtype = rectangular("qr_factors", a)
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    return Spec((*batch, m, k), dtype), Spec((*batch, k, n), dtype)


def _qr_mode(mode: Any) -> tuple[str]:
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise SettingError(f"qr_factors: mode={shown(mode)}; choose 'reduced' or 'complete'")
    return (mode,)


def _turn(x: Any) -> Any:
    """How much a basis turns: what is below the diagonal, and phases, which ``r`` has real."""
    below = _below(x)
    turn = sub(below, adjoint_of(below))
    if x.dtype.kind != "c":
        return turn
    return add(turn, mul(mul(imag(x), np.eye(x.shape[-1], dtype=real_part(x.dtype))), 1j))


def _turn_back(g: Any) -> Any:
    """The transpose of ``_turn``."""
    below = _below(sub(g, adjoint_of(g)))
    if g.dtype.kind != "c":
        return below
    return add(below, mul(mul(imag(g), np.eye(g.shape[-1], dtype=real_part(g.dtype))), 1j))


def _qr_pull(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    m, n = q.shape[-2], r.shape[-1]
    k = min(m, n)
    first, g_first = _columns(q, 0, k), _columns(g_q, 0, k)
    r, g_r = _rows(r, 0, k), _above(_rows(g_r, 0, k))
    left = matmul(matrix_transpose(first), g_first)
    out = conj(first)
    inner = matmul(out, _turn_back(sub(left, matmul(g_r, matrix_transpose(r)))))
    if m > k:
        inner = add(inner, sub(g_first, matmul(out, left)))
    if q.shape[-1] > k:
        beyond, g_beyond = _columns(q, k, m), _columns(g_q, k, m)
        turned = adjoint_of(matmul(matrix_transpose(first), g_beyond))
        inner = sub(inner, matmul(conj(beyond), turned))
    found, straight = _divided(inner, _columns(r, 0, k)), matmul(out, g_r)
    if n == k:
        return add(found, straight)
    return concatenate([add(found, _columns(straight, 0, k)), _columns(straight, k, n)], -1)


def _qr_push(t: Any, q: Any, r: Any) -> tuple[Any, Any]:
    m, n = q.shape[-2], r.shape[-1]
    k = min(m, n)
    first, top = _columns(q, 0, k), _rows(r, 0, k)
    moved = _divided(_columns(t, 0, k), matrix_transpose(_columns(top, 0, k)))
    inner = matmul(adjoint_of(first), moved)
    turn = _turn(inner)
    t_q = matmul(first, turn)
    if m > k:
        t_q = add(t_q, sub(moved, matmul(first, inner)))
    t_r = _above(sub(matmul(adjoint_of(first), t), matmul(turn, top)))
    if q.shape[-1] > k:
        turned = adjoint_of(matmul(adjoint_of(_columns(q, k, m)), moved))
        t_q = concatenate([t_q, neg(matmul(first, turned))], -1)
        t_r = concatenate([t_r, zeros_like(_rows(r, k, m))], -2)
    return t_q, t_r


@op(
    results=type(np.linalg.qr(np.eye(1))),
    primitive="decompose",
    infer=_qr_spec,
    prepare=_qr_mode,
    vjp={"a": lambda g_Q, g_R, Q, R: _qr_pull(g_Q, g_R, Q, R)},
    jvp={"a": lambda t, Q, R: _qr_push(t, Q, R)},
    samples=[
        sample((3, 3), form=regular),
        sample((3, 2)),
        sample((2, 3)),
        sample((2, 3, 2), mode="complete"),
        sample((0, 0)),
    ],
    rejects=[
        reject((3,), match="wanted are matrices"),
        reject((2, 2), mode="raw", error=SettingError, match="choose 'reduced' or 'complete'"),
        reject(_HALF, error=DTypeError, match="single or double"),
    ],
)
def qr_factors(a: Any, /, mode: str = "reduced") -> Any:
    """``Q``, of orthonormal columns, and ``R``, an upper triangle, of ``a = Q @ R``; see ``qr``."""
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
def qr(a: Any, mode: str = "reduced", *, tape: Any = None) -> Any:
    """Orthonormal columns and an upper triangle, ``a = Q @ R``.

    The derivative is defined where the first columns, as many as there are rows at most, are
    independent; NaN shows where they are not. Beyond as many columns as ``a`` has, those of a
    complete ``Q`` are defined but for a rotation: derivatives are right for what does not depend
    on it.

    Args:
        a: Matrices, ``(..., m, n)``.
        mode: ``"reduced"`` for as many columns as the shorter side has, ``"complete"`` for a square
            ``Q``, ``"r"`` for ``R`` alone.
        tape: The tape to record on.

    Raises:
        SettingError: for another mode.

    >>> q, r = qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> np.round(np.abs(r), 12)
    array([[5. , 2.2],
           [0. , 0.4]])
    """
    if isinstance(mode, str) and mode == "r":
        return qr_factors(a, "reduced", tape=tape)[1]
    if not isinstance(mode, str) or mode not in ("reduced", "complete"):
        raise SettingError(f"qr: mode={shown(mode)}; choose 'reduced' or 'complete', or 'r'")
    return qr_factors(a, mode, tape=tape)


# ------------------------------------------------------------------ Cholesky's factors


def _cholesky_spec(a: Any, upper: bool) -> Spec:
    return Spec(getattr(a, "shape", ()), square("cholesky", a))


def _lower(x: Any) -> Any:
    """The lower triangle, with half of the diagonal."""
    n = x.shape[-1]
    weights = (np.tri(n, k=-1) + np.eye(n) / 2).astype(np.empty(0, x.dtype).real.dtype)
    return mul(x, weights)


def _cholesky_pull(g: Any, out: Any, upper: bool) -> Any:
    """After I. Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527."""
    factor, g = (adjoint_of(out), adjoint_of(g)) if upper else (out, g)
    inner = _lower(matmul(matrix_transpose(factor), g))
    inner = triangular_solve(factor, inner, "T", True, False)
    inner = matrix_transpose(triangular_solve(factor, matrix_transpose(inner), "C", True, False))
    return _unread(inner, "U" if upper else "L")


def _cholesky_push(t: Any, out: Any, upper: bool) -> Any:
    factor = adjoint_of(out) if upper else out
    moved = triangular_solve(factor, _read(t, "U" if upper else "L"), "N", True, False)
    moved = triangular_solve(factor, adjoint_of(moved), "N", True, False)
    found = matmul(factor, _lower(moved))
    return adjoint_of(found) if upper else found


@op(
    primitive="decompose",
    raises=True,
    infer=_cholesky_spec,
    prepare=lambda upper: (flag("cholesky", "upper", upper),),
    numpy=[np.linalg.cholesky],
    vjp={"a": _cholesky_pull},
    jvp={"a": _cholesky_push},
    samples=[
        sample((3, 3), form=definite),
        sample((2, 2), upper=True, form=definite),
        sample((2, 2, 2), form=definite),
        sample((0, 0)),
    ],
    rejects=[
        reject((2, 3), match="square matrices"),
        reject((2, 2), error=LinAlgError, match="not positive definite"),
        reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    ],
)
def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """Cholesky's factors ``c`` of Hermitian positive definite matrices, ``a = c @ conj(c).T``.

    Triangles, lower ones; with ``upper``, upper ones ``u`` of ``a = conj(u).T @ u``. Only that
    triangle of ``a`` is read, and has a gradient: pass ``(a + conj(a).T) / 2`` for a Hermitian one.
    A matrix that is not positive definite raises ``LinAlgError``.
    """
    return lapack.cholesky(a, upper=upper)


publish(globals())
