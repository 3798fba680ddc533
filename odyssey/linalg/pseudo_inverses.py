"""Pseudo-inverses and least squares.

The derivative is that among matrices of the same rank, after G. H. Golub and V. Pereyra, SIAM J.
Numer. Anal. 10 (1973). It rests on no singular vectors, and is right where singular values are
equal. A matrix that lacks rank has neighbours of higher rank, whose pseudo-inverses are far away:
no derivative tells of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, number
from odyssey.errors import DTypeError, LinAlgError, SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.hermitian_eigenvalues import _read, _unread
from odyssey.linalg.matrix_products import adjoint_of, matmul
from odyssey.linalg.matrix_shapes import (
    batch_of,
    precision,
    rectangular,
    refuse_not_finite,
    regular,
    square,
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

_NO_MATRICES = [
    reject((3,), match="wanted are matrices"),
    reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    reject(np.full((2, 2), np.nan), error=LinAlgError, match="SVD did not converge"),
]

# ------------------------------------------------------------------ pseudo-inverses


def _pinv_spec(a: Spec, *options: Any) -> Spec:
    dtype = square("pinv", a) if options[1] else rectangular("pinv", a)
    return Spec((*a.shape[:-2], *a.shape[:-3:-1]), dtype)


def _cutoff(who: str, rcond: Any) -> float | None:
    return None if rcond is None else number(who, "rcond", rcond, "[0, inf]")


def _pinv_options(rcond: Any, hermitian: Any, rtol: Any) -> tuple[float, bool, None]:
    if rcond is not None and rtol is not None:
        raise SettingError("pinv: rcond and rtol came, which mean the same; pass one of them")
    found = _cutoff("pinv", rtol if rcond is None else rcond)
    return 1e-15 if found is None else found, flag("pinv", "hermitian", hermitian), None


def _pinv(a: Any, rcond: float, hermitian: bool, rtol: None) -> Any:
    if not np.size(a):  # of which NumPy keeps integers
        spec = _pinv_spec(a, rcond, hermitian)
        return np.zeros(spec.shape, spec.dtype)
    if not hermitian:
        refuse_not_finite("pinv", a)
    return lapack.pinv(a, rcond, hermitian)


def _pinv_pull(g: Any, a: Any, out: Any, hermitian: bool) -> Any:
    """After G. H. Golub and V. Pereyra, SIAM J. Numer. Anal. 10 (1973), for constant rank."""
    a = _read(a, "L") if hermitian else a
    turned = matrix_transpose(out)
    onto = matmul(turned, g)
    tall = matmul(conj(out), sub(onto, matmul(onto, matrix_transpose(matmul(a, out)))))
    short = sub(g, matmul(matrix_transpose(a), onto))
    wide = matmul(matmul(short, turned), conj(out))
    found = sub(adjoint_of(add(tall, wide)), matmul(onto, turned))
    return _unread(found, "L") if hermitian else found


def _pinv_push(t: Any, a: Any, out: Any, hermitian: bool) -> Any:
    a, t = (_read(a, "L"), _read(t, "L")) if hermitian else (a, t)
    moved, length = adjoint_of(t), matmul(out, adjoint_of(out))
    tall = matmul(length, sub(moved, matmul(matmul(moved, a), out)))
    wide = matmul(sub(moved, matmul(matmul(out, a), moved)), matmul(adjoint_of(out), out))
    return sub(add(tall, wide), matmul(matmul(out, t), out))


@op(
    primitive="decompose",
    raises=True,
    infer=_pinv_spec,
    prepare=_pinv_options,
    kernel=_pinv,
    numpy=[np.linalg.pinv],
    vjp={"a": _pinv_pull},
    jvp={"a": _pinv_push},
    samples=[
        sample((3, 2)),
        sample((2, 3, 3), form=regular),
        sample((2, 3), rcond=0.01),
        sample((2, 2), hermitian=True, form=regular),
        sample((0, 2)),
    ],
    rejects=[
        *_NO_MATRICES,
        reject((2, 3), hermitian=True, match="square matrices"),
        reject((2, 3), rcond=0.1, rtol=0.1, error=SettingError, match="which mean the same"),
    ],
)
def pinv(
    a: Any, /, rcond: float | None = None, hermitian: bool = False, *, rtol: float | None = None
) -> Any:
    """Pseudo-inverses, of Moore and Penrose: ``pinv(a) @ b`` are least squares of ``a @ x - b``.

    Singular values up to ``rcond``, or ``rtol``, times the largest count as 0; 1e-15 by default.
    The derivative is that among matrices of the same rank. With ``hermitian`` only the lower
    triangle is read, and has a gradient.
    """
    return _pinv(a, *_pinv_options(rcond, hermitian, rtol))


# ------------------------------------------------------------------ least squares


def _squares_spec(a: Any, b: Any, rcond: float | None) -> Spec:
    who = "least_squares"
    left = rectangular(who, a)
    shape: Shape = getattr(b, "shape", ())
    rows = shape[-1:] if len(shape) < 2 else shape[-2:-1]
    if rows != a.shape[-2:-1]:
        raise ShapeError(
            f"{who}: a has shape {a.shape}, b {shape}; b must have {a.shape[-2]} rows too"
        )
    dtype = np.result_type(left, precision(who, "b", b))
    if len(shape) == 1:
        return Spec((*a.shape[:-2], a.shape[-1]), dtype)
    return Spec((*batch_of(who, a.shape[:-2], shape[:-2]), a.shape[-1], shape[-1]), dtype)


def _least_squares(a: Any, b: Any, rcond: float | None) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    refuse_not_finite("least_squares", a)
    if a.ndim == 2 and b.ndim in (1, 2):
        return lapack.lstsq(a, b, rcond)[0]
    spec = _squares_spec(a, b, rcond)
    right = b[:, None] if b.ndim == 1 else b
    batch = spec.shape[:-1] if b.ndim == 1 else spec.shape[:-2]
    left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    out = np.empty((*batch, a.shape[-1], right.shape[-1]), spec.dtype)
    for place in np.ndindex(batch):
        out[place] = lapack.lstsq(left[place], right[place], rcond)[0]
    return out.reshape(spec.shape)


def _share(a: Any, dtype: Any, rcond: float | None) -> float:
    """Up to which part of the largest a singular value counts as 0."""
    if rcond is not None and rcond >= 0:
        return rcond
    eps = float(np.finfo(dtype).eps)
    return eps if rcond is not None else eps * sorted(a.shape[-2:])[-1]


def _columns(v: Any, vector: bool) -> Any:
    return reshape(v, (*v.shape, 1)) if vector else v


def _squares_pull_a(g: Any, a: Any, b: Any, out: Any, rcond: float | None) -> Any:
    vector = b.ndim == 1
    g, b, out = _columns(g, vector), _columns(b, vector), _columns(out, vector)
    inverse = pinv(a, _share(a, out.dtype, rcond), False, rtol=None)
    onto = matmul(matrix_transpose(inverse), g)
    rest = sub(b, matmul(a, out))
    tall = matmul(matmul(conj(inverse), onto), matrix_transpose(rest))
    short = sub(g, matmul(matrix_transpose(a), onto))
    wide = matmul(short, matrix_transpose(matmul(adjoint_of(inverse), out)))
    return sub(adjoint_of(add(tall, wide)), matmul(onto, matrix_transpose(out)))


def _squares_push_a(t: Any, a: Any, b: Any, out: Any, rcond: float | None) -> Any:
    vector = b.ndim == 1
    b, out = _columns(b, vector), _columns(out, vector)
    inverse = pinv(a, _share(a, out.dtype, rcond), False, rtol=None)
    moved = adjoint_of(t)
    tall = matmul(adjoint_of(inverse), matmul(moved, sub(b, matmul(a, out))))
    wide = matmul(moved, matmul(adjoint_of(inverse), out))
    found = add(matmul(inverse, sub(tall, matmul(t, out))), sub(wide, _through(inverse, a, wide)))
    return reshape(found, found.shape[:-1]) if vector else found


def _through(inverse: Any, a: Any, x: Any) -> Any:
    return matmul(inverse, matmul(a, x))


def _squares_pull_b(g: Any, a: Any, out: Any, b_spec: Spec, rcond: float | None) -> Any:
    vector = len(b_spec.shape) == 1
    inverse = pinv(a, _share(a, out.dtype, rcond), False, rtol=None)
    found = matmul(matrix_transpose(inverse), _columns(g, vector))
    return reshape(found, found.shape[:-1]) if vector else found


def _squares_push_b(t: Any, a: Any, out: Any, b_spec: Spec, rcond: float | None) -> Any:
    return matmul(pinv(a, _share(a, out.dtype, rcond), False, rtol=None), t)


def _squares_options(rcond: Any) -> tuple[float | None]:
    # NumPy had -1 for the precision of the machine, which any number below 0 still means to LAPACK.
    found = None if rcond is None else number("least_squares", "rcond", rcond)
    return (found,)


@op(
    decomposition=lambda a, b, rcond: _by_pinv(a, b, rcond),
    raises=True,
    infer=_squares_spec,
    prepare=_squares_options,
    kernel=_least_squares,
    vjp={"a": _squares_pull_a, "b": _squares_pull_b},
    jvp={"a": _squares_push_a, "b": _squares_push_b},
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
)
def least_squares(a: Any, b: Any, /, *, rcond: float | None = None) -> Any:
    """The shortest ``x`` of those that make ``a @ x - b`` shortest; see ``lstsq``."""
    return _least_squares(a, b, rcond)


def _by_pinv(a: Any, b: Any, rcond: float | None) -> Any:
    dtype = np.result_type(a.dtype, b.dtype)
    return matmul(pinv(a, _share(a, dtype, rcond), False, rtol=None), b)


@composite(
    numpy=[np.linalg.lstsq],
    samples=[
        sample((3, 2), (3,), low=-0.5, high=0.5),
        sample((4, 2), (4, 2), low=-0.5, high=0.5),
        sample((2, 3), (2, 1)),
    ],
    rejects=[reject((3, 2), (2,), match="b must have 3 rows too")],
)
def lstsq(a: Any, b: Any, rcond: float | None = None, *, tape: Any = None) -> Any:
    """The shortest ``x`` of those that make ``a @ x - b`` shortest.

    Args:
        a: Matrices, ``(..., m, n)``.
        b: A vector, or matrices of columns.
        rcond: Singular values up to this part of the largest count as 0; by default the rounding
            of the longer side.
        tape: The tape to record on.

    Returns:
        ``x``; the squares of the lengths of ``a @ x - b``, for each column; the rank of ``a``; its
        singular values. As in NumPy, squares are missing where ``m <= n``, or where the rank of a
        single matrix is known and below ``n``.

    Raises:
        LinAlgError: where singular values are not found, as for matrices that are not finite.

    >>> x, rest, rank, s = lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))
    >>> x, rest, int(rank)
    (array([2.]), array([2.]), 1)
    """
    x = least_squares(a, b, rcond=rcond, tape=tape)
    m, n = shape_of(a)[-2:]
    s = svdvals(a, tape=tape)
    share = _share(np.empty((m, n)), s.dtype, rcond)
    most = max(s, -1, keepdims=True) if m and n else 0.0
    rank = astype(sum(greater(s, mul(most, share)), -1), np.int32)
    known = array_of(rank)
    if m <= n or (not isinstance(known, Symbol) and not known.shape and known < n):
        return x, np.zeros(0, s.dtype), rank, s
    vector = len(shape_of(b)) == 1
    columns, found = (reshape(v, (*shape_of(v), 1), tape=tape) if vector else v for v in (b, x))
    rest = sub(columns, matmul(a, found, tape=tape), tape=tape)
    squares = real(mul(rest, conj(rest, tape=tape), tape=tape), tape=tape)
    return x, sum(squares, -2, tape=tape), rank, s


publish(globals())
