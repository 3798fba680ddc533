"""Triangular systems, and Cholesky's factors, which are triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import flag, shown
from odyssey.errors import DTypeError, LinAlgError, SettingError
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import NO_SYSTEMS, column, solve_or_nan, system
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import definite, precision, regular
from odyssey.ops.elementwise.arithmetic import neg
from odyssey.ops.elementwise.choice import keep_where, where
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.shape import matrix_transpose, reshape
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ triangular systems

# Up to this size LAPACK solves a triangle in one piece; below a quarter of it calls would count.
_PIECE = 64


def solved_by_halves(a: Array, b: Array, lower: bool) -> Array:
    """Solve by halves: nearly all of the work is in products of matrices."""
    n = a.shape[-1]
    if n <= _PIECE:
        if not lower:
            return lapack.solve(a, b)
        # Turned by half a circle it is an upper triangle, in which LAPACK finds nothing to swap.
        return lapack.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    k = n // 2
    first, last = slice(None, k), slice(k, None)
    if not lower:
        first, last = last, first
    x = solved_by_halves(a[..., first, first], b[..., first, :], lower)
    rest = b[..., last, :] - np.matmul(a[..., last, first], x)
    y = solved_by_halves(a[..., last, last], rest, lower)
    return np.concatenate([x, y] if lower else [y, x], axis=-2)


def _solve_triangular(a: Any, b: Any, trans: str, lower: bool, unit_diagonal: bool) -> Any:
    spec = system("triangular_solve", a, b)
    a = np.asarray(a, np.result_type(spec.dtype, precision("triangular_solve", "a", a)))
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=bool)
        a = np.where(eye, a.dtype.type(1), a)
    if trans != "N":
        a, lower = np.swapaxes(a, -1, -2), not lower
    if trans == "C":
        a = np.conjugate(a)
    columns = b[:, None] if np.ndim(b) == 1 else b
    shape = (*spec.shape, 1) if np.ndim(b) == 1 else spec.shape
    x = solved_by_halves(a, np.broadcast_to(columns, shape), lower)
    return np.asarray(x, spec.dtype).reshape(spec.shape)


def _ways(trans: Any, lower: Any, unit_diagonal: Any) -> tuple[str, bool, bool]:
    words = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}
    way = words.get(trans) if isinstance(trans, (int, str, np.integer)) else None
    if way is None:
        raise SettingError(
            f"triangular_solve: trans={shown(trans)}; pass 0 or 'N' for a, 1 or 'T' for its "
            "transpose, 2 or 'C' for the conjugate of that"
        )
    who = "triangular_solve"
    return way, flag(who, "lower", lower), flag(who, "unit_diagonal", unit_diagonal)


def _turned(trans: str) -> str:
    """Of which matrix the transpose is meant; of ``C`` the conjugate of ``a`` itself."""
    return "T" if trans == "N" else "N"


def _triangular_pull(
    g: Any, a: Any, b_spec: Spec, trans: str, lower: bool, unit_diagonal: bool
) -> Any:
    """The cotangent of ``b``: a solution with the transpose of what was solved with."""
    matrix = conj(a) if trans == "C" else a
    if len(b_spec.shape) > 1:
        return triangular_solve(matrix, g, _turned(trans), lower, unit_diagonal)
    columns = triangular_solve(matrix, column(g), _turned(trans), lower, unit_diagonal)
    return reshape(columns, columns.shape[:-1])


def _half(x: Any, lower: bool, unit_diagonal: bool) -> Any:
    """The elements that are read, which the transpose of reading has, too."""
    n = x.shape[-1]
    below = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
    return keep_where(x, below if lower else below.T)


def _triangular_pull_matrix(
    g: Any,
    a: Any,
    out: Any,
    b_spec: Spec,
    trans: str,
    lower: bool,
    unit_diagonal: bool,
) -> Any:
    pulled = _triangular_pull(g, a, b_spec, trans, lower, unit_diagonal)
    left, right = (column(v) if len(b_spec.shape) == 1 else v for v in (pulled, out))
    slope = neg(matmul(left, matrix_transpose(right)))  # with respect to what was solved with
    if trans != "N":
        slope = matrix_transpose(slope)
    if trans == "C":
        slope = conj(slope)
    return _half(slope, lower, unit_diagonal)


def _triangular_push_matrix(
    t: Any,
    a: Any,
    out: Any,
    b_spec: Spec,
    trans: str,
    lower: bool,
    unit_diagonal: bool,
) -> Any:
    moved = _half(t, lower, unit_diagonal)
    if trans != "N":
        moved = matrix_transpose(moved)
    if trans == "C":
        moved = conj(moved)
    vector = len(b_spec.shape) == 1
    moved = matmul(moved, column(out) if vector else out)
    found = neg(triangular_solve(a, moved, trans, lower, unit_diagonal))
    return reshape(found, found.shape[:-1]) if vector else found


def _by_solving(a: Any, b: Any, trans: str, lower: bool, unit_diagonal: bool) -> Any:
    matrix = _half(a, lower, False)
    if unit_diagonal:
        matrix = where(np.eye(a.shape[-1], dtype=bool), 1, matrix)
    if trans != "N":
        matrix = matrix_transpose(matrix)
    return solve_or_nan(conj(matrix) if trans == "C" else matrix, b)


@op(
    decomposition=_by_solving,
    raises=True,
    aliases=["solve_triangular"],
    prepare=_ways,
    infer=lambda a, b, *ways: system("triangular_solve", a, b),
    vjp={"a": _triangular_pull_matrix, "b": _triangular_pull},
    jvp={
        "a": _triangular_push_matrix,
        "b": lambda t, a, b_spec, trans, lower, unit_diagonal: triangular_solve(
            a, t, trans, lower, unit_diagonal
        ),
    },
    samples=[
        sample((3, 3), (3,), form=regular),
        sample((3, 3), (3, 2), trans="T", lower=True, form=regular),
        sample((2, 1, 2, 2), (3, 2, 1), trans=2, form=regular),
        sample((2, 2, 2), (2,), lower=True, unit_diagonal=True, form=regular),
        sample((0, 0), (0, 2)),
    ],
    rejects=[
        *NO_SYSTEMS,
        reject((2, 2), (2,), trans=3, error=SettingError, match="pass 0 or 'N' for a"),
        reject((2, 2), (2,), error=LinAlgError, match="Singular matrix"),
    ],
)
def triangular_solve(
    a: Any, b: Any, /, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """``x`` of ``a @ x = b``, of ``a`` a triangle alone: the upper one, or the ``lower`` one.

    With ``trans`` 1 or "T" the transpose of ``a`` stands in its place, with 2 or "C" the conjugate
    transpose. With ``unit_diagonal`` the diagonal counts as ones and is not read. What is not read
    has a gradient of 0. A zero on the diagonal raises ``LinAlgError``.
    """
    return _solve_triangular(a, b, *_ways(trans, lower, unit_diagonal))


@composite(
    samples=[
        sample([(3, 3), True], (3,), form=definite),
        sample([(2, 2), False], (2, 3), form=regular),
        sample([(3, 2, 2), True], (2, 1), form=definite),
    ],
    rejects=[
        reject([np.eye(2), True], (3,), match="of which 3 equations"),
        reject(np.eye(3), (3,), error=DTypeError, match="pass a pair"),
    ],
)
def cho_solve(c_and_lower: Any, b: Any, *, tape: Any = None) -> Any:
    """``x`` of ``a @ x = b``, of the Cholesky factor of ``a``.

    Args:
        c_and_lower: The factor, and whether it is a lower triangle: ``(cholesky(a), True)``.
        b: A vector, or matrices of columns.
        tape: The tape to record on.

    Raises:
        LinAlgError: where the factor has a zero on its diagonal.

    >>> c = np.array([[2.0, 0.0], [1.0, 1.0]])
    >>> cho_solve((c, True), np.array([4.0, 4.0]))
    array([0., 2.])
    """
    if not isinstance(c_and_lower, (tuple, list)) or len(c_and_lower) != 2:
        raise DTypeError("cho_solve: pass a pair, the factor and whether it is a lower triangle")
    c, lower = c_and_lower
    lower = flag("cho_solve", "lower", lower)
    first, second = ("N", "C") if lower else ("C", "N")
    middle = triangular_solve(c, b, first, lower, tape=tape)
    return triangular_solve(c, middle, second, lower, tape=tape)


publish(globals())
