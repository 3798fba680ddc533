"""Mean squared error as a fused row."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import div, mul, neg, square, sub
from odyssey.ops.reductions.reduce import mean_loss, sum
from odyssey.ops.structure.batching import example_specs, flatten_examples
from odyssey.ops.structure.half_precision import (
    compute_in_float32,
    narrow_half,
    widen_half,
)
from odyssey.spec import Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample


def _squared_error_spec(x: Any, y: Any) -> Spec:
    if x.shape != y.shape:
        raise ShapeError(
            f"mean_squared_error: predictions {x.shape} and targets {y.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )
    return Spec((), np.result_type(x.dtype, y.dtype, np.float16))


def _squared_error_decomposition(x: Any, y: Any) -> Any:
    d = sub(x, y)
    return div(sum(square(d)), d.size or 1)


def _batch_squared_error(batch: Batch, x: Any, y: Any) -> Any:
    _squared_error_spec(*example_specs(batch, (x, y)))
    d = sub(x, y)
    flat = flatten_examples(widen_half(d))
    return narrow_half(div(sum(square(flat), 1), flat.shape[1] or 1), d.dtype)


def _squared_error_vjp(g: Any, x: Any, y: Any) -> Any:
    d = sub(x, y)  # d has a size even if x is a number
    return mul(mul(g, 2 / (d.size or 1)), d)


def _squared_error_jvp(t: Any, x: Any, y: Any) -> Any:
    d = sub(x, y)
    return mul(sum(mul(t, d)), 2 / (d.size or 1))


@op(
    infer=_squared_error_spec,
    vmap=_batch_squared_error,
    decomposition=compute_in_float32(_squared_error_decomposition, 2),
    vjp={
        "x": _squared_error_vjp,
        "y": lambda g, x, y: neg(_squared_error_vjp(g, x, y)),
    },
    jvp={
        "x": _squared_error_jvp,
        "y": lambda t, x, y: neg(_squared_error_jvp(t, x, y)),
    },
    samples=[sample((2, 3), (2, 3)), sample((), ()), sample((4,), (4,))],
    rejects=[reject((2, 3), (3,), match="differ")],
    precision="wide",
)
def squared_error_mean(x: Any, y: Any, /) -> Any:
    """Mean of ``(x - y)**2`` over all elements of real arrays of one shape."""
    if getattr(x, "shape", ()) != getattr(y, "shape", ()):
        _squared_error_spec(np.asarray(x), np.asarray(y))  # raises
    d = np.subtract(x, y)
    dtype = d.dtype
    if dtype.kind != "f":
        raise DTypeError(f"mean_squared_error: needs real floating numbers, came {dtype}")
    flat = d.ravel()
    if dtype.char == "e":  # float16 sums of squares overflow
        return mean_loss(np.square(flat, dtype=np.float32), d.size or 1).astype(np.float16)
    return flat.dot(flat) / (d.size or 1)


publish(globals())
