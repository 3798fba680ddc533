"""Linear systems and inverses.

Derivatives of ``a @ x = b`` of any order are systems with the same matrix, solved by one row,
``solve_or_nan``. It raises nothing: in a backward pass, one singular matrix in a batch has a
gradient of NaN and the others are unaffected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from odyssey.checks import check_int
from odyssey.errors import DTypeError, LinAlgError, SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.matrix_products import as_column, matmul
from odyssey.linalg.matrix_shapes import (
    broadcast_batches,
    check_square,
    lapack_dtype,
    well_conditioned,
)
from odyssey.ops.elementwise.arithmetic import neg
from odyssey.ops.elementwise.choice import equal
from odyssey.ops.structure.batching import align
from odyssey.ops.structure.shape import matrix_transpose, moveaxis, reshape, shape_of, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

# ------------------------------------------------------------------ shapes


def solve_spec(who: str, a: Any, b: Any) -> Spec:
    """Return the spec of ``x`` in ``a @ x = b``; ``b`` of one axis is a vector."""
    left = check_square(who, a)
    shape: Shape = getattr(b, "shape", ())
    if not shape:
        raise ShapeError(f"{who}: b is a number; pass a vector, or matrices of columns")
    right = lapack_dtype(who, "b", b)
    n = a.shape[-1]
    if shape[-2:][0] != n:
        raise ShapeError(
            f"{who}: b has shape {shape}, which is {shape[-2:][0]} equations; a has shape "
            f"{a.shape}, which needs {n}"
        )
    dtype = np.result_type(left, right)
    if len(shape) == 1:
        return Spec((*a.shape[:-2], n), dtype)
    return Spec((*broadcast_batches(who, a.shape[:-2], shape[:-2]), *shape[-2:]), dtype)


def _inv_spec(a: Any) -> Spec:
    return Spec(getattr(a, "shape", ()), check_square("inv", a))


# ------------------------------------------------------------------ kernels


def _solve_or_nan(a: Any, b: Any) -> Any:
    with suppress(np.linalg.LinAlgError):
        return lapack.solve(a, b)
    spec = solve_spec("solve_or_nan", a, b)  # raises if shapes do not fit
    vector = np.ndim(b) == 1
    right = np.broadcast_to(b[:, None] if vector else b, (*spec.shape, 1) if vector else spec.shape)
    left = np.broadcast_to(a, (*right.shape[:-2], *np.shape(a)[-2:]))
    out = np.full(right.shape, np.nan, spec.dtype)
    for index in np.ndindex(right.shape[:-2]):
        try:
            out[index] = lapack.solve(left[index], right[index])
        except np.linalg.LinAlgError:
            continue
    return out[..., 0] if vector else out


# ------------------------------------------------------------------ rules


def _solve_columns(a: Any, b: Any, vector: bool) -> Any:
    """``solve_or_nan`` where ``b`` holds vectors on its last axis if ``vector`` is set."""
    if not vector:
        return solve_or_nan(a, b)
    columns = solve_or_nan(a, as_column(b))
    return reshape(columns, columns.shape[:-1])


def _solve_a_vjp(g: Any, a: Any, out: Any, b_spec: Spec) -> Any:
    vector = len(b_spec.shape) == 1
    pulled = _solve_columns(matrix_transpose(a), g, vector)
    if vector:
        return neg(matmul(as_column(pulled), matrix_transpose(as_column(out))))
    return neg(matmul(pulled, matrix_transpose(out)))


def _solve_a_jvp(t: Any, a: Any, out: Any, b_spec: Spec) -> Any:
    if len(b_spec.shape) > 1:
        return neg(solve_or_nan(a, matmul(t, out)))
    moved = solve_or_nan(a, matmul(t, as_column(out)))
    return neg(reshape(moved, moved.shape[:-1]))


_SYSTEM_RULES: dict[str, Any] = {
    "vjp": {
        "a": _solve_a_vjp,
        "b": lambda g, a, b_spec: _solve_columns(matrix_transpose(a), g, len(b_spec.shape) == 1),
    },
    "jvp": {"a": _solve_a_jvp, "b": lambda t, a, b_spec: solve_or_nan(a, t)},
}

# ------------------------------------------------------------------ rows


def batch_system(solution: Callable[[Any, Any], Any], batch: Batch, a: Any, b: Any) -> Any:
    """Batch rule of ``solution(a, b)``: one matrix for all examples is factored once."""
    left, right = batch.ndim(0, a), batch.ndim(1, b)
    if left < 2 or not right:
        raise ShapeError("solve: a is not a matrix, or b is a number; pass matrices and vectors")
    if right == 1 and not batch.mapped[1]:
        return solution(a, b)  # one vector for all matrices
    if left == 2 and right <= 2 and not batch.mapped[0]:
        first = moveaxis(b, 0, 1)  # the examples are columns
        shape = first.shape
        out = solution(a, reshape(first, (shape[0], math.prod(shape[1:]))))
        return moveaxis(reshape(out, shape), 1, 0)
    ndim = max(left, right)
    matrices = align(a, batch.mapped[0], ndim)
    if right > 1:
        return solution(matrices, align(b, batch.mapped[1], ndim))
    out = solution(matrices, align(as_column(b), True, ndim))
    return reshape(out, out.shape[:-1])


def lower_system(build: Any, a: Any, b: Any, spec: Spec, solution: Callable[..., Any]) -> Any:
    """Lower a system: ``solution(a, b)`` solves it for matrices of columns with all batch axes."""
    vector = b.ndim == 1
    columns = build.cast(as_column(b) if vector else b, spec.dtype)
    shape = (*spec.shape, 1) if vector else spec.shape
    out = solution(build.cast(a, spec.dtype), build.broadcast(columns, shape))
    return build.reshape(out, spec.shape)


def _lower_solve(build: Any, a: Any, b: Any, checked: bool) -> Any:
    spec = solve_spec("solve", a, b)
    return lower_system(build, a, b, spec, lambda a, b: build.solution(a, b, checked))


def _lower_inverse(build: Any, a: Any) -> Any:
    shape = (a.shape[-1], a.shape[-1])
    identity = equal(build.index(shape, 0), build.index(shape, 1))
    return _lower_solve(build, a, build.cast(identity, _inv_spec(a).dtype), checked=True)


_SYSTEMS = [
    sample((3, 3), (3,), form=well_conditioned),
    sample((3, 3), (3, 2), form=well_conditioned),
    sample((2, 1, 2, 2), (3, 2, 1), form=well_conditioned),
    sample((2, 2, 2), (2,), form=well_conditioned),
    sample((0, 0), (0, 2)),
    sample((0, 2, 2), (2, 1), form=well_conditioned),
]
BAD_SYSTEMS = [
    reject((2, 3), (2,), match="square matrices"),
    reject((3,), (3,), match="square matrices"),
    reject((2, 2), (3,), match="which is 3 equations"),
    reject((2, 2), (), match="b is a number"),
    reject((3, 2, 2), (2, 2, 1), match="do not broadcast"),
    reject(np.eye(2, dtype=np.float16), (2,), error=DTypeError, match="single or double"),
]


@op(
    primitive="decompose",
    lowering=lambda build, a, b: _lower_solve(build, a, b, checked=False),
    vmap=lambda batch, a, b: batch_system(solve_or_nan, batch, a, b),
    infer=lambda a, b: solve_spec("solve_or_nan", a, b),
    kernel=_solve_or_nan,
    **_SYSTEM_RULES,
    samples=_SYSTEMS,
    rejects=BAD_SYSTEMS,
)
def solve_or_nan(a: Any, b: Any, /) -> Any:
    """Solution ``x`` of ``a @ x = b`` as by ``solve``, but NaN for singular matrices."""
    return _solve_or_nan(a, b)


@op(
    decomposition=lambda a, b: solve_or_nan(a, b),
    lowering=lambda build, a, b: _lower_solve(build, a, b, checked=True),
    raises=True,
    vmap=lambda batch, a, b: batch_system(solve, batch, a, b),
    infer=lambda a, b: solve_spec("solve", a, b),
    numpy=[np.linalg.solve],
    **_SYSTEM_RULES,
    samples=_SYSTEMS,
    rejects=[*BAD_SYSTEMS, reject((2, 2), (2,), error=LinAlgError, match="Singular matrix")],
    precision="wide",
)
def solve(a: Any, b: Any, /) -> Any:
    """Solution ``x`` of the linear system ``a @ x = b`` with square matrices ``a``.

    If ``b`` has one axis, it is one vector for all matrices; otherwise its last two axes are
    matrices of columns. A singular matrix raises ``LinAlgError``.
    """
    return lapack.solve(a, b)


@op(
    decomposition=lambda a: solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype)),
    lowering=_lower_inverse,
    raises=True,
    vmap="leading",
    infer=_inv_spec,
    numpy=[np.linalg.inv],
    vjp={"a": lambda g, out: _inv_derivative(g, matrix_transpose(out))},
    jvp={"a": lambda t, out: _inv_derivative(t, out)},
    samples=[
        sample((3, 3), form=well_conditioned),
        sample((2, 2, 2), form=well_conditioned),
        sample((1, 1), form=well_conditioned),
        sample((0, 0)),
    ],
    rejects=[
        reject((2, 3), match="square matrices"),
        reject((2, 2), error=LinAlgError, match="Singular matrix"),
        reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    ],
    precision="wide",
)
def inv(a: Any, /) -> Any:
    """Inverses of square matrices; a singular one raises ``LinAlgError``."""
    return lapack.inv(a)


def _inv_derivative(g: Any, inverse: Any) -> Any:
    """Return ``-inverse @ g @ inverse``."""
    return neg(matmul(matmul(inverse, g), inverse))


# ------------------------------------------------------------------ tensor equations


@composite(
    numpy=[np.linalg.tensorsolve],
    samples=[
        sample((2, 3, 6), (2, 3)),
        sample((2, 2, 2, 2), (2, 2), axes=(0,)),
        sample((1, 1), (1,), low=1.0),
    ],
    rejects=[
        reject((2, 3, 5), (2, 3), match="6 equations for 5 unknowns"),
        reject((2, 2), (3,), match="begin with the axes of b"),
    ],
)
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """Solution ``x`` of the tensor equation ``tensordot(a, x, x.ndim) = b``.

    Args:
        a: Array whose first axes are those of ``b`` and the others those of ``x``; both products
            of lengths are equal.
        b: Array of any shape.
        axes: Axes of ``a`` to move to the end first.

    Raises:
        ShapeError: if the axes do not fit.
        LinAlgError: if the equation is singular.

    >>> tensorsolve(np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.array([[2.0, 2.0]]))
    array([1. , 0.5])
    """
    shape, equation_shape = shape_of(a), shape_of(b)
    if axes is not None:
        moved = normalize_axes("tensorsolve", tuple(axes), len(shape))
        moved = tuple(int(k) % len(shape) for k in axes) if moved else ()
        order = (*(k for k in range(len(shape)) if k not in moved), *moved)
        a, shape = transpose(a, order), tuple(shape[k] for k in order)
    if shape[: len(equation_shape)] != equation_shape:
        raise ShapeError(
            f"tensorsolve: a has shape {shape}, b {equation_shape}; a must begin with the axes of b"
        )
    unknown_shape = shape[len(equation_shape) :]
    count, unknowns = math.prod(equation_shape), math.prod(unknown_shape)
    if count != unknowns:
        raise ShapeError(
            f"tensorsolve: a of shape {shape} has {count} equations for {unknowns} unknowns; "
            "both numbers must be equal"
        )
    matrix = reshape(a, (count, count))
    return reshape(solve(matrix, reshape(b, (count,))), unknown_shape)


@composite(
    numpy=[np.linalg.tensorinv],
    samples=[sample((2, 3, 6)), sample((6, 2, 3), ind=1), sample((2, 2, 2, 2))],
    rejects=[
        reject((2, 3, 5), match="6 rows and 5 columns"),
        reject((2, 2), ind=0, error=SettingError, match="ind=0; it must be at least 1"),
    ],
)
def tensorinv(a: Any, ind: int = 2) -> Any:
    """Inverse of the linear map ``x -> tensordot(a, x, x.ndim)``.

    Args:
        a: Array whose first ``ind`` axes hold as many elements as the others.
        ind: Number of first axes.

    Returns:
        An array with the other axes of ``a`` first, then the first ``ind``.

    Raises:
        ShapeError: if the axes do not fit.
        LinAlgError: if the map is singular.

    >>> tensorinv(np.array([[[2.0, 0.0], [0.0, 4.0]]])).shape
    (2, 1, 2)
    """
    shape, ind = shape_of(a), check_int("tensorinv", "ind", ind, 1)
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise ShapeError(
            f"tensorinv: a of shape {shape} has, with ind={ind}, {rows} rows and {columns} "
            "columns; both numbers must be equal"
        )
    inverse = inv(reshape(a, (rows, columns)))
    return reshape(inverse, shape[ind:] + shape[:ind])


publish(globals())
