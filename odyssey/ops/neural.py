"""Softmax and fused losses: ops that do in one pass what composition does in many."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops.activations import sigmoid
from odyssey.ops.arithmetic import div, maximum, mul, neg, sub
from odyssey.ops.elementary import log
from odyssey.ops.reductions import mean_of, sum
from odyssey.ops.shape import astype, normalize_axes
from odyssey.spec import Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ softmax


_NO_AXES = reject((), axis=-1, match="does not fit an array of 0 axes")


def _softmax_rule(g: Any, out: Any, axis: int) -> Any:
    """The Jacobian diag(s) - s s^T is symmetric, so it serves both directions."""
    return mul(out, sub(g, sum(mul(g, out), axis, keepdims=True)))


def _axis_checked(who: str) -> Any:
    def infer(x: Spec, axis: int) -> Spec:
        normalize_axes(who, axis, x.ndim)
        return Spec(x.shape, np.result_type(x.dtype, np.float16))

    return infer


def _shifted(x: Any, axis: int) -> Any:
    if not x.ndim:
        raise ValueError("a number without axes has no softmax")
    # Subtracting the largest element keeps exp from overflowing. An axis of no elements has none.
    if x.dtype.kind in "biu":
        x = x.astype(np.result_type(x, np.float16))
    return x - (np.maximum.reduce(x, axis, keepdims=True) if x.size else x)


def softmax_of(x: Any, axis: int) -> Any:
    """The softmax of an array, for kernels."""
    e = _shifted(x, axis)
    np.exp(e, e)
    e /= np.add.reduce(e, axis, keepdims=True)
    return e


def log_softmax_of(x: Any, axis: int) -> Any:
    """The logarithm of the softmax of an array, for kernels."""
    z = _shifted(x, axis)
    z -= np.log(np.add.reduce(np.exp(z), axis, keepdims=True))
    return z


@op(
    real=True,
    infer=_axis_checked("softmax"),
    vjp={"x": _softmax_rule},
    jvp={"x": lambda t, out, axis: _softmax_rule(t, out, axis)},
    kinks="NaN where an element is inf, or all are -inf, as the result is",
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit"), _NO_AXES],
)
def softmax(x: Any, /, axis: int = -1) -> Any:
    """Exponentials along ``axis`` divided by their sum."""
    return softmax_of(x, axis)


@op(
    real=True,
    infer=_axis_checked("log_softmax"),
    vjp={
        "x": lambda g, x, axis: sub(g, mul(softmax(x, axis), sum(g, axis, keepdims=True))),
    },
    jvp={
        "x": lambda t, x, axis: sub(t, sum(mul(t, softmax(x, axis)), axis, keepdims=True)),
    },
    kinks="NaN where an element is inf, or all are -inf, as the result is",
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit"), _NO_AXES],
)
def log_softmax(x: Any, /, axis: int = -1) -> Any:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
    return log_softmax_of(x, axis)


# ------------------------------------------------------------------ mean squared error


def _squared_error_spec(x: Spec, y: Spec) -> Spec:
    if x.shape != y.shape:
        raise ShapeError(
            f"mean_squared_error: predictions {x.shape} and targets {y.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )
    return Spec((), np.result_type(x.dtype, y.dtype, np.float16))


def _squared_error_rule(g: Any, x: Any, y: Any) -> Any:
    d = sub(x, y)  # whose size is known where x is a number
    return mul(mul(g, 2 / (d.size or 1)), d)


def _squared_error_forward(t: Any, x: Any, y: Any) -> Any:
    d = sub(x, y)
    return mul(sum(mul(t, d)), 2 / (d.size or 1))


@op(
    infer=_squared_error_spec,
    vjp={
        "x": _squared_error_rule,
        "y": lambda g, x, y: neg(_squared_error_rule(g, x, y)),
    },
    jvp={
        "x": _squared_error_forward,
        "y": lambda t, x, y: neg(_squared_error_forward(t, x, y)),
    },
    samples=[sample((2, 3), (2, 3)), sample((), ()), sample((4,), (4,))],
    rejects=[reject((2, 3), (3,), match="differ")],
)
def squared_error_mean(x: Any, y: Any, /) -> Any:
    """Mean of ``(x - y)**2`` over all elements of real arrays of one shape."""
    if getattr(x, "shape", ()) != getattr(y, "shape", ()):
        raise _failure_of(_squared_error_spec, x, y)
    d = np.subtract(x, y)
    dtype = d.dtype
    if dtype.kind != "f":
        raise DTypeError(f"mean_squared_error: needs real floating numbers, came {dtype}")
    flat = d.ravel()
    if dtype.char == "e":  # whose squares soon add up to more than its largest number
        return np.float16(mean_of(np.square(flat, dtype=np.float32), d.size or 1))
    return flat.dot(flat) / (d.size or 1)


def _failure_of(infer: Any, *arrays: Any) -> OdysseyError:
    try:
        infer(*(Spec(np.shape(a), np.asarray(a).dtype) for a in arrays))
    except OdysseyError as error:
        return error
    raise AssertionError("the spec rule accepted what the kernel refused")


# ------------------------------------------------------------------ binary cross entropy


def _clipped_logs(p: Any) -> tuple[Any, Any]:
    """Logarithms of ``p`` and ``1 - p``, at least -100, so that a sure mistake stays finite."""
    # e**-100 is 3.7e-44; the inner bound keeps log from warning of 0.
    yes, no = (log(maximum(q, 3.7e-44)) for q in (p, sub(1, p)))
    return maximum(yes, -100.0), maximum(no, -100.0)


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Both in their common dtype: a Python number must not turn float32 into float64."""
    dtype = np.result_type(x, y)
    return np.asarray(x, dtype), np.asarray(y, dtype)


def _binary_p_rule(g: Any, p: Any, y: Any) -> Any:
    return mul(g, div(sub(p, y), maximum(mul(p, sub(1, p)), 1e-12)))


def _binary_y_rule(g: Any, p: Any) -> Any:
    if hasattr(p, "dtype") and p.dtype != g.dtype:
        p = astype(p, g.dtype)  # 1 - p of integers would be of 64 bits
    yes, no = _clipped_logs(p)
    return mul(g, sub(no, yes))


_PROBABLE = (
    sample((2, 3), (2, 3), low=0.1, high=0.9),
    sample((3,), (3,), low=0.1, high=0.9),
    sample((), (), low=0.1, high=0.9),
)


@op(
    real=True,
    elementwise=True,
    vjp={"p": _binary_p_rule, "y": _binary_y_rule},
    kinks="the logarithms are clipped at -100, and p (1 - p) in the derivative at 1e-12",
    samples=_PROBABLE,
)
def binary_entropy(p: Any, y: Any, /) -> Any:
    """Elementwise ``-(y log p + (1 - y) log(1 - p))`` for probabilities ``p``."""
    p, y = _alike(p, y)
    with np.errstate(divide="ignore"):
        yes, no = np.maximum(np.log(p), -100), np.maximum(np.log(1 - p), -100)
    return -(y * yes + (1 - y) * no)


@op(
    real=True,
    elementwise=True,
    vjp={
        "x": lambda g, x, y: mul(g, sub(sigmoid(x), y)),
        "y": lambda g, x: neg(mul(g, x)),
    },
    kinks="the derivative in x is exact to the rounding of 1; of an infinite x it is the limit, "
    "where the result is NaN too",
    samples=[sample((2, 3), (2, 3)), sample((3,), (3,)), sample((), ())],
)
def binary_entropy_with_logits(x: Any, y: Any, /) -> Any:
    """Elementwise binary cross entropy of ``sigmoid(x)``, without overflow for any ``x``."""
    x, y = _alike(x, y)
    return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))


publish(globals())
