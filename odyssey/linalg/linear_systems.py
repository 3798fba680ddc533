"""Systems of linear equations, and inverses.

The derivative of ``a @ x = b`` is a system with the same matrix, so that all orders of it come
down to one row, ``solve_or_nan``. That one raises nothing: in a sweep, one singular matrix of many
gives NaN for its own gradient and leaves those of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from odyssey.checks import whole
from odyssey.errors import DTypeError, LinAlgError, SettingError, ShapeError
from odyssey.linalg import lapack
from odyssey.linalg.matrix_products import matmul
from odyssey.linalg.matrix_shapes import batch_of, precision, regular, square
from odyssey.ops.elementwise.arithmetic import neg
from odyssey.ops.structure.shape import matrix_transpose, reshape, shape_of, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.declare import composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

# ------------------------------------------------------------------ shapes


def system(who: str, a: Any, b: Any) -> Spec:
    """The spec of ``x`` in ``a @ x = b``, where ``b`` of one axis is a vector."""
    left = square(who, a)
    shape: Shape = getattr(b, "shape", ())
    if not shape:
        raise ShapeError(f"{who}: b is a number; wanted is a vector, or matrices of columns")
    right = precision(who, "b", b)
    n = a.shape[-1]
    if shape[-2:][0] != n:
        raise ShapeError(
            f"{who}: b has shape {shape}, of which {shape[-2:][0]} equations; a has {a.shape}, "
            f"wanted are {n}"
        )
    dtype = np.result_type(left, right)
    if len(shape) == 1:
        return Spec((*a.shape[:-2], n), dtype)
    return Spec((*batch_of(who, a.shape[:-2], shape[:-2]), *shape[-2:]), dtype)


def _inverse_spec(a: Any) -> Spec:
    return Spec(getattr(a, "shape", ()), square("inv", a))


# ------------------------------------------------------------------ kernels


def _solve_or_nan(a: Any, b: Any) -> Any:
    with suppress(np.linalg.LinAlgError):
        return lapack.solve(a, b)
    spec = system("solve_or_nan", a, b)  # raises, where shapes do not fit
    vector = np.ndim(b) == 1
    right = np.broadcast_to(b[:, None] if vector else b, (*spec.shape, 1) if vector else spec.shape)
    left = np.broadcast_to(a, (*right.shape[:-2], *np.shape(a)[-2:]))
    out = np.full(right.shape, np.nan, spec.dtype)
    for place in np.ndindex(right.shape[:-2]):
        try:
            out[place] = lapack.solve(left[place], right[place])
        except np.linalg.LinAlgError:
            continue
    return out[..., 0] if vector else out


# ------------------------------------------------------------------ rules


def column(v: Any) -> Any:
    """Vectors on the last axis as matrices of one column."""
    return reshape(v, (*v.shape, 1))


def _solved(a: Any, b: Any, vector: bool) -> Any:
    """``solve_or_nan`` of columns, which are vectors on the last axis where these are vectors."""
    if not vector:
        return solve_or_nan(a, b)
    columns = solve_or_nan(a, column(b))
    return reshape(columns, columns.shape[:-1])


def _pull_matrix(g: Any, a: Any, out: Any, b_spec: Spec) -> Any:
    vector = len(b_spec.shape) == 1
    pulled = _solved(matrix_transpose(a), g, vector)
    if vector:
        return neg(matmul(column(pulled), matrix_transpose(column(out))))
    return neg(matmul(pulled, matrix_transpose(out)))


def _push_matrix(t: Any, a: Any, out: Any, b_spec: Spec) -> Any:
    if len(b_spec.shape) > 1:
        return neg(solve_or_nan(a, matmul(t, out)))
    moved = solve_or_nan(a, matmul(t, column(out)))
    return neg(reshape(moved, moved.shape[:-1]))


_SYSTEM_RULES: dict[str, Any] = {
    "vjp": {
        "a": _pull_matrix,
        "b": lambda g, a, b_spec: _solved(matrix_transpose(a), g, len(b_spec.shape) == 1),
    },
    "jvp": {"a": _push_matrix, "b": lambda t, a, b_spec: solve_or_nan(a, t)},
}

# ------------------------------------------------------------------ rows


_SYSTEMS = [
    sample((3, 3), (3,), form=regular),
    sample((3, 3), (3, 2), form=regular),
    sample((2, 1, 2, 2), (3, 2, 1), form=regular),
    sample((2, 2, 2), (2,), form=regular),
    sample((0, 0), (0, 2)),
    sample((0, 2, 2), (2, 1), form=regular),
]
NO_SYSTEMS = [
    reject((2, 3), (2,), match="square matrices"),
    reject((3,), (3,), match="square matrices"),
    reject((2, 2), (3,), match="of which 3 equations"),
    reject((2, 2), (), match="b is a number"),
    reject((3, 2, 2), (2, 2, 1), match="do not broadcast"),
    reject(np.eye(2, dtype=np.float16), (2,), error=DTypeError, match="single or double"),
]


@op(
    primitive="decompose",
    infer=lambda a, b: system("solve_or_nan", a, b),
    kernel=_solve_or_nan,
    **_SYSTEM_RULES,
    samples=_SYSTEMS,
    rejects=NO_SYSTEMS,
)
def solve_or_nan(a: Any, b: Any, /) -> Any:
    """``x`` of ``a @ x = b``, as ``solve`` has it, but NaN where ``a`` is singular."""
    return _solve_or_nan(a, b)


@op(
    decomposition=lambda a, b: solve_or_nan(a, b),
    raises=True,
    infer=lambda a, b: system("solve", a, b),
    numpy=[np.linalg.solve],
    **_SYSTEM_RULES,
    samples=_SYSTEMS,
    rejects=[*NO_SYSTEMS, reject((2, 2), (2,), error=LinAlgError, match="Singular matrix")],
)
def solve(a: Any, b: Any, /) -> Any:
    """``x`` of ``a @ x = b``: square matrices, and a vector, or matrices of columns.

    A ``b`` of one axis is one vector for all matrices; else its last two axes are columns.
    A singular matrix raises ``LinAlgError``.
    """
    return lapack.solve(a, b)


@op(
    decomposition=lambda a: solve_or_nan(a, np.eye(a.shape[-1], dtype=a.dtype)),
    raises=True,
    infer=_inverse_spec,
    numpy=[np.linalg.inv],
    vjp={"a": lambda g, out: _between(g, matrix_transpose(out))},
    jvp={"a": lambda t, out: _between(t, out)},
    samples=[
        sample((3, 3), form=regular),
        sample((2, 2, 2), form=regular),
        sample((1, 1), form=regular),
        sample((0, 0)),
    ],
    rejects=[
        reject((2, 3), match="square matrices"),
        reject((2, 2), error=LinAlgError, match="Singular matrix"),
        reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
    ],
)
def inv(a: Any, /) -> Any:
    """Inverses of square matrices; a singular one raises ``LinAlgError``."""
    return lapack.inv(a)


def _between(g: Any, inverse: Any) -> Any:
    return neg(matmul(matmul(inverse, g), inverse))


# ------------------------------------------------------------------ tensors


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
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None, *, tape: Any = None) -> Any:
    """``x`` of ``tensordot(a, x, x.ndim) = b``.

    Args:
        a: Array whose first axes are those of ``b``, and the others those of ``x``; as many
            elements are on these as on those.
        b: Array of any shape.
        axes: Axes of ``a`` that are put behind the others first.
        tape: The tape to record on.

    Raises:
        ShapeError: where the axes do not fit. LinAlgError: where there is no such ``x``.

    >>> tensorsolve(np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.array([[2.0, 2.0]]))
    array([1. , 0.5])
    """
    shape, wanted = shape_of(a), shape_of(b)
    if axes is not None:
        moved = normalize_axes("tensorsolve", tuple(axes), len(shape))
        moved = tuple(int(k) % len(shape) for k in axes) if moved else ()
        order = (*(k for k in range(len(shape)) if k not in moved), *moved)
        a, shape = transpose(a, order, tape=tape), tuple(shape[k] for k in order)
    if shape[: len(wanted)] != wanted:
        raise ShapeError(
            f"tensorsolve: a has shape {shape}, b {wanted}; a must begin with the axes of b"
        )
    found = shape[len(wanted) :]
    count, unknown = math.prod(wanted), math.prod(found)
    if count != unknown:
        raise ShapeError(
            f"tensorsolve: a of shape {shape} has {count} equations for {unknown} unknowns; "
            "as many of both are wanted"
        )
    matrix = reshape(a, (count, count), tape=tape)
    return reshape(solve(matrix, reshape(b, (count,), tape=tape), tape=tape), found, tape=tape)


@composite(
    numpy=[np.linalg.tensorinv],
    samples=[sample((2, 3, 6)), sample((6, 2, 3), ind=1), sample((2, 2, 2, 2))],
    rejects=[
        reject((2, 3, 5), match="6 rows and 5 columns"),
        reject((2, 2), ind=0, error=SettingError, match="ind=0; it must be at least 1"),
    ],
)
def tensorinv(a: Any, ind: int = 2, *, tape: Any = None) -> Any:
    """The inverse of what ``tensordot(a, x, x.ndim)`` does with ``x``.

    Args:
        a: Array with as many elements on its first axes as on the others.
        ind: How many axes are the first.
        tape: The tape to record on.

    Returns:
        An array whose axes are the others of ``a``, then the first.

    Raises:
        ShapeError: where the axes do not fit. LinAlgError: where there is no inverse.

    >>> tensorinv(np.array([[[2.0, 0.0], [0.0, 4.0]]])).shape
    (2, 1, 2)
    """
    shape, ind = shape_of(a), whole("tensorinv", "ind", ind, 1)
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise ShapeError(
            f"tensorinv: a of shape {shape} has, with ind={ind}, {rows} rows and {columns} "
            "columns; as many of both are wanted"
        )
    inverse = inv(reshape(a, (rows, columns), tape=tape), tape=tape)
    return reshape(inverse, shape[ind:] + shape[:ind], tape=tape)


publish(globals())
