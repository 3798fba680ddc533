"""Linear and bilinear layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import ShapeError
from odyssey.linalg.einstein_summation import einsum
from odyssey.linalg.matrix_products import batch_matmul, matmul
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.shape import matrix_transpose, reshape, shape_of
from odyssey.spec import Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import PASS, composite, op, publish
from odyssey.table.samples import reject, sample


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    if x.ndim > 2 and x.size:
        # One product of two matrices: matmul would compute one for each leading index.
        flat = x.reshape(-1, x.shape[-1]).dot(weight.T)
        out = flat.reshape(*x.shape[:-1], weight.shape[0])
    else:
        out = np.matmul(x, weight.T)
    if bias is None:
        return out
    if out.ndim and out.dtype == bias.dtype:
        out += bias
        return out
    return out + bias


def _linear_kernel(x: Any, weight: Any, bias: Any) -> Any:
    x, weight = np.asarray(x), np.asarray(weight)
    _infer_linear(spec_of(x), spec_of(weight), bias if bias is None else spec_of(np.asarray(bias)))
    return _linear(x, weight, bias if bias is None else np.asarray(bias))


def _infer_linear(x: Spec, weight: Spec, bias: Spec | None) -> Spec:
    shapes: list[Any] = [getattr(a, "shape", ()) for a in (x, weight)]
    if not shapes[0] or len(shapes[1]) != 2 or shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(
            f"linear: x {shapes[0]} with weight {shapes[1]}; wanted are x (..., in) and weight "
            "(out, in)"
        )
    rows = shapes[1][0]
    if bias is None:
        return Spec((*x.shape[:-1], rows), np.result_type(x.dtype, weight.dtype))
    if getattr(bias, "shape", ()) != (rows,):
        raise ShapeError(
            f"linear: bias {getattr(bias, 'shape', ())} for weight {shapes[1]}; wanted is ({rows},)"
        )
    return Spec((*x.shape[:-1], rows), np.result_type(x.dtype, weight.dtype, bias.dtype))


def _weight_rule(g: Any, x: Any) -> Any:
    rows, columns = g.shape[-1], x.shape[-1]
    count = math.prod(x.shape[:-1])
    flat = x if x.ndim == 2 else reshape(x, (count, columns))
    over = g if g.ndim == 2 else reshape(g, (count, rows))
    return matmul(matrix_transpose(over), flat)


def _linear_decomposition(x: Any, weight: Any, bias: Any) -> Any:
    product = matmul(x, matrix_transpose(weight))
    return product if bias is None else add(product, bias)


def _batch_linear(batch: Batch, x: Any, weight: Any, bias: Any) -> Any:
    out = _infer_linear(*example_specs(batch, (x, weight, bias)))
    own_x, own_weight, own_bias = batch.mapped
    if not own_weight and not own_bias:
        return linear(x, weight, bias)
    if own_weight:
        rows = Batch(batch.size, (own_x, True))
        product = batch_matmul(rows, x, matrix_transpose(weight))
    else:
        product = linear(x, weight)
    if bias is None:
        return product
    ones = (1,) * (out.ndim - 1)
    return add(product, reshape(bias, (batch.size, *ones, bias.shape[-1])) if own_bias else bias)


@op(
    kernel=_linear_kernel,
    decomposition=_linear_decomposition,
    infer=_infer_linear,
    vmap=_batch_linear,
    vjp={
        "x": lambda g, weight: matmul(g, weight),
        "weight": lambda g, x: _weight_rule(g, x),
        "bias": PASS,
    },
    jvp={
        "x": lambda t, weight: linear(t, weight),
        "weight": lambda t, x: linear(x, t),
        "bias": PASS,
    },
    samples=[
        sample((2, 3), (4, 3), (4,)),
        sample((3,), (2, 3), (2,)),
        sample((2, 5, 3), (4, 3), (4,)),
        sample((2, 1, 3), (1, 3), (1,)),
        sample((0, 3), (2, 3), (2,)),
        sample((2, 0), (3, 0), (3,)),
        sample((2, 3), (4, 3), None),
        sample((2, 5, 3), (4, 3), None),
    ],
    rejects=[
        reject((2, 3), (3, 4), (4,), match=r"x \(..., in\) and weight"),
        reject((2, 3), (3,), (3,), match=r"weight \(3,\)"),
        reject((), (3, 1), None, match=r"x \(\)"),
        reject((2, 3), (4, 3), (2, 4), match=r"bias \(2, 4\)"),
    ],
    precision="low",
)
def linear(x: Any, weight: Any, bias: Any = None, /) -> Any:
    """Linear layer, ``x @ weight.T + bias``, for ``weight`` of shape (out, in)."""
    product = np.matmul(x, np.transpose(weight))
    return product if bias is None else product + bias


@composite(
    samples=[
        sample((2, 3), (2, 4), (5, 3, 4)),
        sample((2, 3), (2, 4), (5, 3, 4), (5,)),
        sample((3,), (2,), (1, 3, 2), (1,)),
        sample((0, 2), (0, 2), (3, 2, 2)),
    ],
    rejects=[
        reject((2, 3), (2, 4), (5, 4, 3), match="wanted are"),
        reject((2, 3), (3, 4), (5, 3, 4), match="wanted are"),
        reject((2, 3), (2, 4), (5, 3, 4), (4,), match="bias"),
    ],
)
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Any:
    """Bilinear layer: ``x1 @ weight[k] @ x2`` for each result k, plus a bias.

    Args:
        x1: Vectors, (..., n).
        x2: As many vectors, (..., m).
        weight: A matrix for each result, (out, n, m).
        bias: The summand of each result, (out,).

    Returns:
        Vectors, (..., out).

    Raises:
        ShapeError: If shapes do not fit.

    >>> bilinear(np.array([1.0, 2.0]), np.array([3.0]), np.ones((1, 2, 1)))
    array([9.])
    """
    shapes = [tuple(shape_of(v)) for v in (x1, x2, weight)]
    first, second, matrices = shapes
    fits = len(matrices) == 3 and first and second and first[:-1] == second[:-1]
    if not fits or (first[-1], second[-1]) != matrices[1:]:
        raise ShapeError(
            f"bilinear: x1 {first}, x2 {second}, weight {matrices}; wanted are (..., n), (..., m) "
            "and (out, n, m)"
        )
    out = einsum("...i,oij,...j->...o", x1, weight, x2)
    if bias is None:
        return out
    if tuple(shape_of(bias)) != matrices[:1]:
        raise ShapeError(f"bilinear: bias {shape_of(bias)}; wanted is {matrices[:1]}")
    return add(out, bias)


publish(globals())
