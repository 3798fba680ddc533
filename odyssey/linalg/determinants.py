"""Determinants, and their logarithms.

The gradient of a determinant is the matrix of its cofactors, which a singular matrix has as well.
Both it and its derivative are made from singular values without dividing by one: of
``a = u @ diag(s) @ vh``, the cofactors are those of ``diag(s)``, turned back by ``u`` and ``vh``.
So two derivatives of ``det`` are right wherever they exist, which is everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import solve_or_nan
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import real_part, regular, square
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.complex_numbers import imag, real
from odyssey.ops.elementwise.elementary import log
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.shape import expand_dims, matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

_HALF = np.eye(2, dtype=np.float16)
_NO_SQUARES = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject(_HALF, error=DTypeError, match="single or double"),
]

# ------------------------------------------------------------------ cofactors


def _without_one(s: Array) -> Array:
    """For each number the product of the others."""
    if not s.shape[-1]:
        return s
    ones = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], -1), -1)[..., ::-1]
    out: Array = before * after
    return out


def _without_two(s: Array) -> Array:
    """For each pair of numbers the product of the others; 0 on the diagonal."""
    n = s.shape[-1]
    out = np.zeros((*s.shape, n), s.dtype)
    for i in range(n):
        out[..., i, i + 1 :] = s[..., :i].prod(-1, keepdims=True) * _without_one(s[..., i + 1 :])
    found: Array = out + np.swapaxes(out, -1, -2)
    return found


def _turning(a: Any) -> tuple[Array, Array, Array, Any]:
    """Singular factors, and the determinant of the first and the last.

    Of matrices that are not finite, of which LAPACK may seek them for ever, the values are NaN.
    """
    lost = ~np.isfinite(a).all((-2, -1))
    if lost.any():
        a = np.where(lost[..., None, None], np.eye(a.shape[-1], dtype=a.dtype), a)
    u, s, vh = lapack.svd(a)
    s[lost] = np.nan
    return u, s, vh, lapack.det(np.matmul(u, vh))[..., None, None]


_NEXT, _LAST = np.array([1, 2, 0]), np.array([2, 0, 1])


def _crossed(x: Array, y: Array) -> Array:
    """For each row the cross product of the next row of ``x`` with the one after it of ``y``."""
    x, y = x[..., _NEXT, :], y[..., _LAST, :]
    found: Array = x[..., _NEXT] * y[..., _LAST] - x[..., _LAST] * y[..., _NEXT]
    return found


def _of_two(a: Array) -> Array:
    """The cofactors of matrices of two rows."""
    found: Array = a[..., ::-1, ::-1] * np.array([[1, -1], [-1, 1]], a.dtype)
    return found


def _cofactors(a: Any) -> Any:
    a = np.asarray(a, square("cofactors", a))
    if a.shape[-1] in (2, 3):  # in a fifth of the time
        return _of_two(a) if a.shape[-1] == 2 else _crossed(a, a)
    u, s, vh, turn = _turning(a)
    found = np.matmul(np.conj(u) * _without_one(s)[..., None, :], np.conj(vh))
    return np.asarray(found * turn, u.dtype)


def _slope_spec(t: Any, a: Any) -> Spec:
    who = "cofactor_slope"
    left, right = square(who, t, "t"), square(who, a)
    if t.shape != a.shape:
        raise ShapeError(f"{who}: t has shape {t.shape}, a {a.shape}; wanted are equal ones")
    return Spec(a.shape, np.result_type(left, right))


def _cofactor_slope(t: Any, a: Any) -> Any:
    spec = _slope_spec(t, a)
    if a.shape[-1] in (2, 3):
        a, t = np.asarray(a, spec.dtype), np.asarray(t, spec.dtype)
        return _of_two(t) if a.shape[-1] == 2 else _crossed(t, a) + _crossed(a, t)
    u, s, vh, turn = _turning(a)
    e = np.conj(np.matmul(np.matmul(vh, np.conj(np.swapaxes(t, -1, -2))), u))
    e = np.swapaxes(e, -1, -2)  # u^H t vh^H
    pairs = _without_two(s)
    line = np.einsum("...ij,...jj->...i", pairs, e)
    inner = -pairs * np.swapaxes(e, -1, -2)
    places = np.arange(s.shape[-1])
    inner[..., places, places] = line
    found = np.matmul(np.matmul(np.conj(u), inner), np.conj(vh)) * turn
    return np.asarray(found, spec.dtype)


def _cofactor_bend(h: Any, t: Any, a: Any) -> Any:
    """The third derivative of the determinant along ``h`` and ``t``; NaN for singular matrices."""
    inverse = solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype))
    along_t, along_h = matmul(inverse, t), matmul(inverse, h)
    trace_t, trace_h = _trace(along_t), _trace(along_h)
    whole = sub(mul(trace_t, trace_h), _trace(matmul(along_t, along_h)))
    mixed = add(matmul(along_t, along_h), matmul(along_h, along_t))
    mixed = sub(mixed, add(mul(trace_h, along_t), mul(trace_t, along_h)))
    found = add(mul(whole, inverse), matmul(mixed, inverse))
    return mul(expand_dims(det(a), (-2, -1)), matrix_transpose(found))


def _trace(x: Any) -> Any:
    """Of each matrix, as one of a single element."""
    return expand_dims(sum(mul(x, np.eye(x.shape[-1], dtype=x.dtype)), (-2, -1)), (-2, -1))


@op(
    primitive="decompose",
    infer=_slope_spec,
    kernel=_cofactor_slope,
    vjp={
        "t": lambda g, a: cofactor_slope(g, a),
        "a": lambda g, t, a: _cofactor_bend(g, t, a),
    },
    jvp={
        "t": lambda t, a: cofactor_slope(t, a),
        "a": lambda t_a, t, a: _cofactor_bend(t_a, t, a),
    },
    # Of smaller matrices it is linear in both, and so is what differences would be compared with.
    samples=[
        sample((3, 3), (3, 3), form=regular),
        sample((2, 3, 3), (2, 3, 3), form=regular),
        sample((0, 0), (0, 0)),
    ],
    rejects=[
        reject((2, 3), (2, 3), match="square matrices"),
        reject((2, 2), (3, 3), match="wanted are equal ones"),
        reject(_HALF, (2, 2), error=DTypeError, match="single or double"),
    ],
)
def cofactor_slope(t: Any, a: Any, /) -> Any:
    """The derivative of ``cofactors(a)`` along ``t``, of which matrices may be singular."""
    return _cofactor_slope(t, a)


@op(
    primitive="decompose",
    infer=lambda a: Spec(getattr(a, "shape", ()), square("cofactors", a)),
    vjp={"a": lambda g, a: cofactor_slope(g, a)},
    jvp={"a": lambda t, a: cofactor_slope(t, a)},
    samples=[
        sample((3, 3)),
        sample((2, 3, 3)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=_NO_SQUARES,
)
def cofactors(a: Any, /) -> Any:
    """The cofactors of square matrices, by which ``det`` grows with each element.

    They are ``det(a) * inv(a).T`` where there is an inverse. Third derivatives need one.
    """
    return _cofactors(a)


# ------------------------------------------------------------------ determinants


@op(
    primitive="decompose",
    infer=lambda a: Spec(getattr(a, "shape", ())[:-2], square("det", a)),
    numpy=[np.linalg.det],
    vjp={"a": lambda g, a: mul(expand_dims(g, (-2, -1)), cofactors(a))},
    jvp={"a": lambda t, a: sum(mul(t, cofactors(a)), (-2, -1))},
    samples=[
        sample((3, 3)),
        sample((3, 2, 2)),
        sample((0, 0)),
        sample((0, 2, 2)),
    ],
    rejects=_NO_SQUARES,
)
def det(a: Any, /) -> Any:
    """Determinants of square matrices.

    Two derivatives are right for singular matrices as well; for these the third is NaN.
    """
    return lapack.det(a)


def _log_spec(a: Spec) -> tuple[Spec, Spec]:
    dtype = square("slogdet", a)
    return Spec(a.shape[:-2], dtype), Spec(a.shape[:-2], real_part(dtype))


def _log_slope(a: Any) -> Any:
    """The derivative of the logarithm of the determinant: the inverse, transposed."""
    return matrix_transpose(solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype)))


def _log_pull(g_sign: Any, g_logabsdet: Any, sign: Any, a: Any) -> Any:
    if a.dtype.kind == "c":  # the sign turns with the imaginary part of the logarithm
        g_logabsdet = add(g_logabsdet, mul(imag(mul(g_sign, sign)), 1j))
    return mul(expand_dims(g_logabsdet, (-2, -1)), _log_slope(a))


def _log_push(t: Any, sign: Any, a: Any) -> tuple[Any, Any]:
    moved = sum(mul(t, _log_slope(a)), (-2, -1))
    if a.dtype.kind != "c":
        return zeros_like(sign), moved
    return mul(mul(sign, imag(moved)), 1j), real(moved)


@op(
    results=type(np.linalg.slogdet(np.eye(1))),
    primitive="decompose",
    infer=_log_spec,
    numpy=[np.linalg.slogdet],
    vjp={
        "a": lambda g_sign, g_logabsdet, sign, a: _log_pull(g_sign, g_logabsdet, sign, a),
    },
    jvp={"a": lambda t, sign, a: _log_push(t, sign, a)},
    samples=[
        sample((3, 3), form=regular),
        sample((2, 2, 2), form=lambda x: -regular(x)),
        sample((1, 1)),
        sample((0, 0)),
    ],
    rejects=_NO_SQUARES,
)
def slogdet(a: Any, /) -> Any:
    """Sign and logarithm of the size of determinants, which cannot overflow.

    The sign of real matrices is a step, of derivative 0. A singular matrix has the sign 0, the
    logarithm -inf, and NaN for its gradient.
    """
    return lapack.slogdet(a)


@composite(
    samples=[
        sample((3, 3), form=regular),
        sample((2, 2, 2), form=regular),
        sample((0, 0)),
    ],
    rejects=[reject((2, 3), match="square matrices")],
)
def logdet(a: Any, *, tape: Any = None) -> Any:
    """Logarithms of determinants: NaN where a real one is negative, -inf where it is 0.

    Args:
        a: Square matrices.
        tape: The tape to record on.

    Raises:
        ShapeError: for matrices that are not square.

    >>> float(logdet(np.diag([2.0, 0.5])))
    0.0
    """
    sign, size = slogdet(a, tape=tape)
    return add(size, log(sign, tape=tape), tape=tape)


publish(globals())
