"""Triangular linear systems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_flag, format_value
from odyssey.devices.device_versions import on_host
from odyssey.errors import DTypeError, LinAlgError, SettingError
from odyssey.kernels.lapack_library import lapack_library, solve_triangle
from odyssey.linalg import lapack
from odyssey.linalg.linear_systems import (
    BAD_SYSTEMS,
    batch_system,
    lower_system,
    solve_or_nan,
    solve_spec,
)
from odyssey.linalg.matrix_products import as_column, matmul
from odyssey.linalg.matrix_shapes import positive_definite, well_conditioned
from odyssey.ops.elementwise.arithmetic import neg
from odyssey.ops.elementwise.choice import keep_where, where
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.structure.shape import matrix_transpose, reshape
from odyssey.spec import Array, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample

# Up to this size LAPACK solves the triangle directly; at a quarter of it call overhead dominates.
_UNBLOCKED_SIZE = 64


def blocked_triangular_solve(a: Array, b: Array, lower: bool) -> Array:
    """Solve by recursive halving: nearly all work is matrix products."""
    n = a.shape[-1]
    if n <= _UNBLOCKED_SIZE:
        if not lower:
            return lapack.solve(a, b)
        # Reversing both axes gives an upper triangle, for which LAPACK does not pivot.
        return lapack.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    k = n // 2
    first, last = slice(None, k), slice(k, None)
    if not lower:
        first, last = last, first
    x = blocked_triangular_solve(a[..., first, first], b[..., first, :], lower)
    rest = b[..., last, :] - np.matmul(a[..., last, first], x)
    y = blocked_triangular_solve(a[..., last, last], rest, lower)
    return np.concatenate([x, y] if lower else [y, x], axis=-2)


# Solutions of more matrices of at most ``_UNBLOCKED_SIZE`` rows are by one call of NumPy's.
_MANY = 8


@on_host
def _solve_triangular(a: Any, b: Any, trans: str, lower: bool, unit_diagonal: bool) -> Any:
    spec = solve_spec("triangular_solve", a, b)
    a = np.asarray(a, spec.dtype)
    columns = b[:, None] if np.ndim(b) == 1 else b
    shape = (*spec.shape, 1) if np.ndim(b) == 1 else spec.shape
    if a.shape[-1] > _UNBLOCKED_SIZE or math.prod(shape[:-2]) <= _MANY:
        double = np.result_type(spec.dtype, np.float64)
        if np.shape(columns) != shape:
            columns = np.broadcast_to(columns, shape)
        x = np.array(columns, double, order="C")
        if _solve_in_place(np.asarray(a, double), x, trans, lower, unit_diagonal):
            return np.asarray(x, spec.dtype).reshape(spec.shape)
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=bool)
        a = np.where(eye, a.dtype.type(1), a)
    if trans != "N":
        a, lower = np.swapaxes(a, -1, -2), not lower
    if trans == "C":
        a = np.conjugate(a)
    x = blocked_triangular_solve(a, np.broadcast_to(columns, shape), lower)
    return np.asarray(x, spec.dtype).reshape(spec.shape)


def _solve_in_place(a: Array, x: Array, trans: str, lower: bool, unit_diagonal: bool) -> bool:
    """Solve each system by LAPACK; False, with ``x`` unchanged, if it cannot be called."""
    if lapack_library() is None:
        return False
    regular = unit_diagonal or 0 in x.shape[:-2] or a.diagonal(0, -2, -1).all()
    if not regular:
        raise np.linalg.LinAlgError("Singular matrix")
    if x.ndim == 2:
        return solve_triangle(a, x, trans, lower, unit_diagonal)
    a = np.broadcast_to(a, (*x.shape[:-2], *a.shape[-2:]))
    for index in np.ndindex(x.shape[:-2]):
        solve_triangle(a[index], x[index], trans, lower, unit_diagonal)
    return True


def _triangular_options(trans: Any, lower: Any, unit_diagonal: Any) -> tuple[str, bool, bool]:
    """Validate the options and return ``trans`` as "N", "T" or "C"."""
    codes = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}
    code = codes.get(trans) if isinstance(trans, (int, str, np.integer)) else None
    if code is None:
        raise SettingError(
            f"triangular_solve: trans={format_value(trans)}; pass 0 or 'N' for a, 1 or 'T' for its "
            "transpose, 2 or 'C' for its conjugate transpose"
        )
    who = "triangular_solve"
    return code, check_flag(who, "lower", lower), check_flag(who, "unit_diagonal", unit_diagonal)


def _opposite_trans(trans: str) -> str:
    """``trans`` of the transposed system; for ``C`` the caller conjugates ``a``."""
    return "T" if trans == "N" else "N"


def _triangular_b_vjp(
    g: Any, a: Any, b_spec: Spec, trans: str, lower: bool, unit_diagonal: bool
) -> Any:
    """Cotangent of ``b``: the solution of the transposed system."""
    matrix = conj(a) if trans == "C" else a
    if len(b_spec.shape) > 1:
        return triangular_solve(matrix, g, _opposite_trans(trans), lower, unit_diagonal)
    columns = triangular_solve(matrix, as_column(g), _opposite_trans(trans), lower, unit_diagonal)
    return reshape(columns, columns.shape[:-1])


def _read_triangle(x: Any, lower: bool, unit_diagonal: bool) -> Any:
    """Keep the elements of the triangle that is read."""
    n = x.shape[-1]
    below = np.tri(n, k=-1 if unit_diagonal else 0, dtype=bool)
    return keep_where(x, below if lower else below.T)


def _triangular_a_vjp(
    g: Any,
    a: Any,
    out: Any,
    b_spec: Spec,
    trans: str,
    lower: bool,
    unit_diagonal: bool,
) -> Any:
    pulled = _triangular_b_vjp(g, a, b_spec, trans, lower, unit_diagonal)
    left, right = (as_column(v) if len(b_spec.shape) == 1 else v for v in (pulled, out))
    slope = neg(
        matmul(left, matrix_transpose(right))
    )  # with respect to the transposed or conjugated matrix
    if trans != "N":
        slope = matrix_transpose(slope)
    if trans == "C":
        slope = conj(slope)
    return _read_triangle(slope, lower, unit_diagonal)


def _triangular_a_jvp(
    t: Any,
    a: Any,
    out: Any,
    b_spec: Spec,
    trans: str,
    lower: bool,
    unit_diagonal: bool,
) -> Any:
    moved = _read_triangle(t, lower, unit_diagonal)
    if trans != "N":
        moved = matrix_transpose(moved)
    if trans == "C":
        moved = conj(moved)
    vector = len(b_spec.shape) == 1
    moved = matmul(moved, as_column(out) if vector else out)
    t_x = neg(triangular_solve(a, moved, trans, lower, unit_diagonal))
    return reshape(t_x, t_x.shape[:-1]) if vector else t_x


def _triangular_by_solve(a: Any, b: Any, trans: str, lower: bool, unit_diagonal: bool) -> Any:
    matrix = _read_triangle(a, lower, False)
    if unit_diagonal:
        matrix = where(np.eye(a.shape[-1], dtype=bool), 1, matrix)
    if trans != "N":
        matrix = matrix_transpose(matrix)
    return solve_or_nan(conj(matrix) if trans == "C" else matrix, b)


def _lower_triangular_solve(build: Any, a: Any, b: Any, *options: Any) -> Any:
    spec = solve_spec("triangular_solve", a, b)
    return lower_system(build, a, b, spec, lambda a, b: build.triangular_solution(a, b, *options))


@op(
    decomposition=_triangular_by_solve,
    lowering=_lower_triangular_solve,
    raises=True,
    aliases=["solve_triangular"],
    prepare=_triangular_options,
    vmap=lambda batch, a, b, trans, lower, unit_diagonal: batch_system(
        lambda a, b: triangular_solve(a, b, trans, lower, unit_diagonal), batch, a, b
    ),
    infer=lambda a, b, *ways: solve_spec("triangular_solve", a, b),
    vjp={"a": _triangular_a_vjp, "b": _triangular_b_vjp},
    jvp={
        "a": _triangular_a_jvp,
        "b": lambda t, a, b_spec, trans, lower, unit_diagonal: triangular_solve(
            a, t, trans, lower, unit_diagonal
        ),
    },
    samples=[
        sample((3, 3), (3,), form=well_conditioned),
        sample((3, 3), (3, 2), trans="T", lower=True, form=well_conditioned),
        sample((2, 1, 2, 2), (3, 2, 1), trans=2, form=well_conditioned),
        sample((2, 2, 2), (2,), lower=True, unit_diagonal=True, form=well_conditioned),
        sample((0, 0), (0, 2)),
    ],
    rejects=[
        *BAD_SYSTEMS,
        reject((2, 2), (2,), trans=3, error=SettingError, match="pass 0 or 'N' for a"),
        reject((2, 2), (2,), error=LinAlgError, match="Singular matrix"),
    ],
    precision="wide",
)
def triangular_solve(
    a: Any, b: Any, /, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False
) -> Any:
    """Solution ``x`` of ``a @ x = b``, reading only the upper, or ``lower``, triangle of ``a``.

    ``trans`` 1 or "T" solves with the transpose of ``a``, 2 or "C" with the conjugate transpose.
    With ``unit_diagonal`` the diagonal is taken as ones and not read. Elements that are not read
    have a gradient of 0. A zero on the diagonal raises ``LinAlgError``.
    """
    return _solve_triangular(a, b, *_triangular_options(trans, lower, unit_diagonal))


@composite(
    samples=[
        sample([(3, 3), True], (3,), form=positive_definite),
        sample([(2, 2), False], (2, 3), form=well_conditioned),
        sample([(3, 2, 2), True], (2, 1), form=positive_definite),
    ],
    rejects=[
        reject([np.eye(2), True], (3,), match="which is 3 equations"),
        reject(np.eye(3), (3,), error=DTypeError, match="pass a pair"),
    ],
)
def cho_solve(c_and_lower: Any, b: Any) -> Any:
    """Solution ``x`` of ``a @ x = b``, given the Cholesky factor of ``a``.

    Args:
        c_and_lower: The factor and whether it is lower triangular: ``(cholesky(a), True)``.
        b: A vector, or matrices of columns.

    Raises:
        LinAlgError: if the factor has a zero on its diagonal.

    >>> c = np.array([[2.0, 0.0], [1.0, 1.0]])
    >>> cho_solve((c, True), np.array([4.0, 4.0]))
    array([0., 2.])
    """
    if not isinstance(c_and_lower, (tuple, list)) or len(c_and_lower) != 2:
        raise DTypeError("cho_solve: pass a pair, the factor and whether it is a lower triangle")
    c, lower = c_and_lower
    lower = check_flag("cho_solve", "lower", lower)
    first, second = ("N", "C") if lower else ("C", "N")
    middle = triangular_solve(c, b, first, lower)
    return triangular_solve(c, middle, second, lower)


publish(globals())
