"""Variance, standard deviation, and the logarithm of a sum of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.ops.arithmetic import div, mul, sub
from odyssey.ops.choice import equal, where
from odyssey.ops.complex_numbers import conj, real
from odyssey.ops.elementary import exp
from odyssey.ops.reductions import count, mean, reduced_shape, spread, sum
from odyssey.ops.samples import reject, sample
from odyssey.ops.table import op, publish
from odyssey.spec import Spec

_FOLDS = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample((4, 1), axis=0),
)
_NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")

# ------------------------------------------------------------------ variance and deviation


def _freedom(axis: Any, ddof: float, keepdims: bool, correction: float | None) -> tuple[Any, ...]:
    """``correction`` is NumPy's second name of ``ddof``."""
    return axis, ddof if correction is None else correction, keepdims, None


def _moment_infer(name: str) -> Any:
    def infer(x: Spec, axis: Any, ddof: float, keepdims: bool, correction: None) -> Spec:
        dtype = np.zeros((), np.result_type(x.dtype, np.float16)).real.dtype
        if x.dtype.kind in "biu":
            dtype = np.dtype(np.float64)
        return Spec(reduced_shape(name, x.shape, axis, keepdims), dtype)

    return infer


def _pull_of_var(x: Any, axis: Any, ddof: float) -> Any:
    """The derivative of the variance, ``2 (x - mean) / (n - ddof)``."""
    left = count(x, axis) - ddof
    away = sub(x, mean(x, axis, keepdims=True))
    if x.dtype.kind == "c":
        away = conj(away)
    # Without a degree of freedom the variance is no number, nor is its slope.
    return mul(away, 2.0 / left if left > 0 else np.nan)


def _var_rule(g: Any, x: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool) -> Any:
    return mul(spread(g, x_spec, axis, keepdims), _pull_of_var(x, axis, ddof))


def _var_forward(t: Any, x: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    moved = sum(mul(t, _pull_of_var(x, axis, ddof)), axis, keepdims=keepdims)
    return real(moved) if x.dtype.kind == "c" else moved


_MOMENTS = (
    *_FOLDS[:3],
    sample((2, 3), axis=1, ddof=1),
    sample((3, 2), axis=0, correction=0.5),
)


def _var(x: Any, axis: Any, ddof: float, keepdims: bool, correction: None) -> Any:
    return np.var(x, axis, ddof=ddof, keepdims=keepdims)


@op(
    kernel=_var,
    numpy=[np.var],
    prepare=_freedom,
    infer=_moment_infer("var"),
    vjp={"x": _var_rule},
    jvp={"x": _var_forward},
    samples=[*_MOMENTS, sample(())],
    rejects=[_NO_AXIS],
)
def var(
    x: Any,
    /,
    axis: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
) -> Any:
    """Variance over ``axis``: the sum of ``|x - mean|**2`` over the count less ``ddof``."""
    return np.var(x, axis, ddof=ddof, keepdims=keepdims)


def _half_over(out: Any) -> Any:
    """The derivative of the root at a variance: ``1 / (2 out)``, and 0 at 0."""
    return where(equal(out, 0), 0, div(0.5, where(equal(out, 0), 1, out)))


def _std_rule(
    g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, ddof: float, keepdims: bool
) -> Any:
    return _var_rule(mul(g, _half_over(out)), x, x_spec, axis, ddof, keepdims)


def _std_forward(t: Any, x: Any, out: Any, axis: Any, ddof: float, keepdims: bool) -> Any:
    return mul(_var_forward(t, x, axis, ddof, keepdims), _half_over(out))


def _std(x: Any, axis: Any, ddof: float, keepdims: bool, correction: None) -> Any:
    return np.std(x, axis, ddof=ddof, keepdims=keepdims)


@op(
    kernel=_std,
    numpy=[np.std],
    prepare=_freedom,
    infer=_moment_infer("std"),
    vjp={"x": _std_rule},
    jvp={"x": _std_forward},
    kinks="0 where all elements are equal",
    samples=_MOMENTS,
    rejects=[_NO_AXIS],
)
def std(
    x: Any,
    /,
    axis: Any = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    correction: float | None = None,
) -> Any:
    """Standard deviation over ``axis``, the root of the variance."""
    return np.std(x, axis, ddof=ddof, keepdims=keepdims)


# ------------------------------------------------------------------ logsumexp


def _weights(x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    """The softmax over ``axis``: e to the distance from the result, 0 where all are -inf."""
    # -inf - -inf is no number; where the result is -inf any finite one in its place gives 0.
    finite = where(equal(out, -np.inf), 0, out)
    return exp(sub(x, spread(finite, x_spec, axis, keepdims)))


def _logsumexp_rule(g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    return mul(spread(g, x_spec, axis, keepdims), _weights(x, out, x_spec, axis, keepdims))


def _logsumexp_forward(t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    return sum(mul(t, _weights(x, out, x_spec, axis, keepdims)), axis, keepdims=keepdims)


def _logsumexp_spec(x: Spec, axis: Any, keepdims: bool) -> Spec:
    dtype = np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    return Spec(reduced_shape("logsumexp", x.shape, axis, keepdims), dtype)


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    # Subtracting the largest keeps exp from overflowing; an infinite one must not meet itself.
    top = np.max(x.real, axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.real.dtype.type(0))
    with np.errstate(divide="ignore", over="ignore"):
        out = np.log(np.add.reduce(np.exp(x - top), axis, keepdims=True)) + top
    return out.reshape(reduced_shape("logsumexp", x.shape, axis, keepdims))[()]


@op(
    kernel=_logsumexp,
    infer=_logsumexp_spec,
    vjp={"x": _logsumexp_rule},
    jvp={"x": _logsumexp_forward},
    kinks="0 where all elements are -inf",
    samples=[*_FOLDS, sample((0, 3), axis=1)],
    rejects=[_NO_AXIS],
)
def logsumexp(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Logarithm of the sum of exponentials over ``axis``, without overflow; -inf of nothing."""
    return _logsumexp(x, axis, keepdims)


publish(globals())
