"""Elementwise binary cross entropy, of probabilities or of logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.nn.activations.smooth import sigmoid, softplus
from odyssey.ops.elementwise.arithmetic import add, div, maximum, mul, neg, sub
from odyssey.ops.elementwise.elementary import log
from odyssey.ops.structure.shape import astype
from odyssey.table.declare import op, publish
from odyssey.table.samples import sample
from odyssey.table.shape_rules import floating_dtype


def _clipped_logs(p: Any) -> tuple[Any, Any]:
    """Return the logarithms of ``p`` and ``1 - p``, clipped at -100 so that losses stay finite."""
    # e**-100 is 3.7e-44; the inner bound avoids the warning of log(0).
    yes, no = (log(maximum(q, 3.7e-44)) for q in (p, sub(1, p)))
    return maximum(yes, -100.0), maximum(no, -100.0)


def _as_floats(x: Any, y: Any) -> tuple[Any, Any]:
    """Cast both to the dtype of the result, in which a Python number is weak: integers wrap."""
    dtype = np.result_type(x, y)
    dtype = floating_dtype(dtype) if dtype.kind in "biu" else dtype
    return np.asarray(x, dtype), np.asarray(y, dtype)


def _binary_entropy_p_vjp(g: Any, p: Any, y: Any) -> Any:
    return mul(g, div(sub(p, y), maximum(mul(p, sub(1, p)), 1e-12)))


def _binary_entropy_y_vjp(g: Any, p: Any) -> Any:
    if hasattr(p, "dtype") and p.dtype != g.dtype:
        p = astype(p, g.dtype)  # 1 - p of integers would be 64-bit
    yes, no = _clipped_logs(p)
    return mul(g, sub(no, yes))


def _binary_entropy_decomposition(p: Any, y: Any) -> Any:
    yes, no = maximum(log(p), -100), maximum(log(sub(1, p)), -100)
    return neg(add(mul(y, yes), mul(sub(1, y), no)))


_log = ignore_fp_errors("divide")(np.log)


def _clip_log(logarithm: Any) -> Any:
    return select(logarithm < T(-100), T(-100), logarithm)


_PROBABLE = (
    sample((2, 3), (2, 3), low=0.1, high=0.9),
    sample((3,), (3,), low=0.1, high=0.9),
    sample((), (), low=0.1, high=0.9),
)


@op(
    real=True,
    elementwise=True,
    decomposition=_binary_entropy_decomposition,
    scalar=lambda p, y: -(y * _clip_log(math.log(p)) + (T(1) - y) * _clip_log(math.log(T(1) - p))),
    vjp={"p": _binary_entropy_p_vjp, "y": _binary_entropy_y_vjp},
    kinks="the logarithms are clipped at -100, and p (1 - p) in the derivative at 1e-12",
    samples=_PROBABLE,
    precision="wide",
)
def binary_entropy(p: Any, y: Any, /) -> Any:
    """Elementwise ``-(y log p + (1 - y) log(1 - p))`` for probabilities ``p``."""
    p, y = _as_floats(p, y)
    yes, no = np.maximum(_log(p), -100), np.maximum(_log(1 - p), -100)
    return -(y * yes + (1 - y) * no)


@op(
    real=True,
    elementwise=True,
    decomposition=lambda x, y: sub(softplus(x), mul(x, y)),
    scalar=lambda x, y: select(x < T(0), T(0), x) - x * y + math.log1p(math.exp(-abs(x))),
    vjp={
        "x": lambda g, x, y: mul(g, sub(sigmoid(x), y)),
        "y": lambda g, x: neg(mul(g, x)),
    },
    kinks="the derivative in x is exact to the rounding of 1; for infinite x it is the limit, "
    "even where the result is NaN",
    samples=[sample((2, 3), (2, 3)), sample((3,), (3,)), sample((), ())],
    precision="wide",
)
def binary_entropy_with_logits(x: Any, y: Any, /) -> Any:
    """Elementwise binary cross entropy of ``sigmoid(x)``, without overflow for any ``x``."""
    x, y = _as_floats(x, y)
    return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))


publish(globals())
