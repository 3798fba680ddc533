"""Piecewise activation functions: ReLU and its variants, hard functions, shrinkage."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import (
    greater,
    greater_equal,
    keep_where,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    where,
)
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.complex_numbers import absolute, sign
from odyssey.ops.elementwise.elementary import exp, expm1, tanh
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.batching import example_specs
from odyssey.ops.structure.shape import reshape, shape_of
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import real_floating, real_options
from odyssey.table.samples import reject, sample, singles

# NumPy compares with an array of zeros three times faster than with a zero.
_SHORT, _ROW = 16384, 1024
_ZEROS = {np.dtype(char): np.zeros(_SHORT, char) for char in "fd"}
_ZERO = {dtype: zeros[0].reshape(()) for dtype, zeros in _ZEROS.items()}


def zero_of(x: Any) -> Any:
    """Return the zero to compare ``x`` with: a 0-d array for arrays, in two thirds of the time."""
    return _ZERO.get(x.dtype, 0) if type(x) is np.ndarray else 0


def _positive_part(x: Any) -> Any:
    """Return ``max(x, 0)``; that of -0.0 is 0.0, also where NumPy returns the first of equals."""
    return np.maximum(0, x) if getattr(x, "dtype", None) == np.float16 else np.maximum(x, 0)


def _relu(x: Any) -> Any:
    size = x.size if type(x) is np.ndarray else 0
    if size < _ROW or x.dtype not in _ZEROS or not x.flags.c_contiguous:
        zero = zero_of(x)
        return np.maximum(x, zero) if type(zero) is np.ndarray else _positive_part(x)
    zeros = _ZEROS[x.dtype]
    if size <= _SHORT:
        return np.maximum(x, zeros[:size].reshape(x.shape))
    out = np.empty_like(x)
    flat, into = x.reshape(-1), out.reshape(-1)
    end = size - size % _ROW
    np.maximum(flat[:end].reshape(-1, _ROW), zeros[:_ROW], out=into[:end].reshape(-1, _ROW))
    np.maximum(flat[end:], zeros[: size - end], out=into[end:])
    return out


_COMPLEX = reject(np.array([1j]), error=DTypeError, match="needs real numbers")


@op(
    real=True,
    elementwise=True,
    selects=True,
    kernel=_relu,
    scalar=lambda x: select(x <= T(0), T(0), x),
    vjp={"x": lambda g, out: keep_where(g, greater(out, zero_of(out)))},
    kinks="0 at 0",
    samples=singles(),
)
def relu(x: Any, /) -> Any:
    """Elementwise rectifier, ``max(x, 0)``."""
    return _positive_part(x)


def _where_between(g: Any, x: Any, low: float, high: float) -> Any:
    """Return ``g`` where ``x`` lies strictly between two numbers, else 0."""
    return keep_where(g, logical_and(greater(x, low), less(x, high)))


@op(
    real=True,
    elementwise=True,
    selects=True,
    scalar=lambda x: select(x <= T(0), T(0), select(x >= T(6), T(6), x)),
    decomposition=lambda x: where(greater_equal(x, 6), 6, relu(x)),
    vjp={"x": lambda g, out: _where_between(g, out, 0, 6)},
    kinks="0 at 0 and at 6",
    samples=[*singles(), sample((4, 3), low=4.0, high=8.0)],
)
def relu6(x: Any, /) -> Any:
    """Elementwise ``x`` between 0 and 6, and these beyond."""
    return np.minimum(_positive_part(x), 6)


def _leaky_scalar(x: Any, negative_slope: float) -> Any:
    return select(x > T(0), x, T(negative_slope) * x + T(0))


def _leaky_relu_rule(g: Any, x: Any, negative_slope: float) -> Any:
    above = greater(x, 0)
    right = keep_where(g, above)
    if negative_slope == 0:  # this is relu
        return right
    return add(right, mul(keep_where(g, logical_not(above)), negative_slope))


@op(
    elementwise=True,
    selects=True,
    prepare=real_options("leaky_relu", "negative_slope"),
    decomposition=lambda x, negative_slope: where(greater(x, 0), x, mul(negative_slope, x)),
    kernels=[scalar_loop(_leaky_scalar)],
    scalar=_leaky_scalar,
    vjp={"x": _leaky_relu_rule},
    kinks="negative_slope at 0",
    samples=[*singles(), sample((2, 3), negative_slope=0.3)],
    rejects=[
        _COMPLEX,
        reject((3,), negative_slope=None, error=DTypeError, match="pass a real number"),
    ],
)
def leaky_relu(x: Any, /, *, negative_slope: float = 0.01) -> Any:
    """Elementwise ``x`` where positive, ``negative_slope * x`` elsewhere."""
    x = real_floating(x)
    return _positive_part(x) + negative_slope * np.minimum(x, 0)


# ------------------------------------------------------------------ parametric ReLU


def _aligned_weight_shape(x_shape: Shape, weight_shape: Shape) -> Shape:
    """Return the shape in which a weight of ``prelu`` broadcasts to ``x``."""
    if weight_shape in ((), (1,)):
        return ()
    if len(weight_shape) == 1 and len(x_shape) > 1 and weight_shape[0] == x_shape[1]:
        return weight_shape + (1,) * (len(x_shape) - 2)
    raise ShapeError(
        f"prelu: weight {weight_shape} for x {x_shape}; "
        "pass one number, or one for each channel, x.shape[1]"
    )


def _prelu_x_rule(g: Any, x: Any, weight: Any) -> Any:
    aligned = _aligned_weight_shape(shape_of(x), shape_of(weight))
    above = greater(x, 0)
    left = keep_where(mul(g, reshape(weight, aligned)), logical_not(above))
    return add(keep_where(g, above), left)


def _where_not_positive(g: Any, x: Any) -> Any:
    return keep_where(mul(g, x), logical_not(greater(x, 0)))


def _prelu_weight_rule(g: Any, x: Any, weight_spec: Spec) -> Any:
    part = _where_not_positive(g, x)
    if weight_spec.size == 1:  # the sweep sums
        return part if part.shape else reshape(part, weight_spec.shape)
    return sum(part, (0, *range(2, part.ndim)))


def _prelu_weight_jvp(t: Any, x: Any) -> Any:
    return _where_not_positive(reshape(t, _aligned_weight_shape(shape_of(x), t.shape)), x)


def _infer_prelu(x: Spec, weight: Spec) -> Spec:
    _aligned_weight_shape(shape_of(x), shape_of(weight))
    ones = [np.ones((), s.dtype) if isinstance(s, Spec) else s for s in (x, weight)]
    try:
        return Spec(shape_of(x), _prelu(*ones).dtype)
    except TypeError as error:
        raise DTypeError(f"prelu: {error}; came x {x}, weight {weight}") from None


def _prelu(x: Any, weight: Any) -> Any:
    if np.iscomplexobj(x) or np.iscomplexobj(weight):
        raise TypeError("needs real numbers")
    aligned = _aligned_weight_shape(np.shape(x), np.shape(weight))
    if aligned != np.shape(weight):  # a Python number stays one, and weak
        weight = np.reshape(weight, aligned)
    if not np.isfinite(weight).all():
        return _prelu_infinite_weight(x, weight)
    return _positive_part(x) + weight * np.minimum(x, 0)


@ignore_fp_errors("invalid")
def _prelu_infinite_weight(x: Any, weight: Any) -> Any:
    # In a sum an infinite weight would be multiplied by 0 where it is not selected.
    return np.where(np.greater(x, 0), _positive_part(x), weight * np.minimum(x, 0))[()]


def _prelu_decomposition(x: Any, weight: Any) -> Any:
    aligned = reshape(weight, _aligned_weight_shape(shape_of(x), shape_of(weight)))
    return where(greater(x, 0), x, mul(aligned, x))


def _batch_prelu(batch: Batch, x: Any, weight: Any) -> Any:
    _infer_prelu(*example_specs(batch, (x, weight)))
    if batch.mapped[1]:
        return NotImplemented
    if getattr(weight, "size", 1) == 1:
        return prelu(x, weight)
    flat = reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    return reshape(prelu(flat, weight), x.shape)


@op(
    infer=_infer_prelu,
    vmap=_batch_prelu,
    decomposition=_prelu_decomposition,
    rearranges={"x": lambda c: c},
    vjp={"x": _prelu_x_rule, "weight": _prelu_weight_rule},
    jvp={"x": _prelu_x_rule, "weight": _prelu_weight_jvp},
    kinks="at 0 weight in x, 0 in weight",
    samples=[
        sample((2, 3), (3,)),
        sample((2, 3, 2), (3,)),
        sample((4,), ()),
        sample((2, 3), (1,)),
        sample((), (1,)),
        sample((), ()),
        sample((0, 3), (3,)),
    ],
    rejects=[
        reject((2, 3), (2,), match="one for each channel"),
        reject((3,), (3,), match="one for each channel"),
        reject(np.array([1j]), (), error=DTypeError, match="needs real numbers"),
    ],
)
def prelu(x: Any, weight: Any, /) -> Any:
    """Elementwise ``x`` where positive, ``weight * x`` elsewhere; a weight for each channel.

    The channels are axis 1 of ``x``; a single weight serves all of them.
    """
    return _prelu(x, weight)


# ------------------------------------------------------------------ ELU, CELU, SELU


def _exponential_rule(g: Any, x: Any, left: float, right: float) -> Any:
    """Return ``g`` times the derivative of ``right * x``, or ``left * (e**x - 1)`` below 0."""
    above = greater(x, 0)
    part = keep_where(mul(g, right), above)
    if left == 0:
        return part
    slope = exp(where(above, 0, x))
    return add(part, mul(mul(keep_where(g, logical_not(above)), left), slope))


@op(
    elementwise=True,
    selects={"x": lambda c, x, alpha: c if alpha else keep_where(c, greater(x, 0))},
    prepare=real_options("elu", "alpha"),
    decomposition=lambda x, alpha: where(greater(x, 0), x, mul(alpha, expm1(x))),
    scalar=lambda x, alpha: select(x > T(0), x, T(alpha) * math.expm1(x) + T(0)),
    vjp={"x": lambda g, x, alpha: _exponential_rule(g, x, alpha, 1.0)},
    kinks="alpha at 0",
    samples=[*singles(), sample((2, 3), alpha=0.3)],
    rejects=[_COMPLEX, reject((3,), alpha=1j, error=DTypeError, match="pass a real number")],
)
def elu(x: Any, /, *, alpha: float = 1.0) -> Any:
    """Elementwise ``x`` where positive, ``alpha * (e**x - 1)`` elsewhere."""
    x = real_floating(x)
    return _positive_part(x) + alpha * np.expm1(np.minimum(x, 0))


def _celu_options(alpha: Any) -> tuple[float, ...]:
    (alpha,) = real_options("celu", "alpha")(alpha)
    if alpha == 0:
        raise SettingError("celu: alpha is 0, by which it divides; pass another number")
    return (alpha,)


def _celu_rule(g: Any, x: Any, alpha: float) -> Any:
    above = greater(x, 0)
    slope = exp(div(where(above, 0, x), alpha))
    return add(keep_where(g, above), mul(keep_where(g, logical_not(above)), slope))


@op(
    elementwise=True,
    selects={"x": lambda c, x: c},
    prepare=_celu_options,
    decomposition=lambda x, alpha: where(greater(x, 0), x, mul(alpha, expm1(div(x, alpha)))),
    scalar=lambda x, alpha: select(x > T(0), x, T(alpha) * math.expm1(x / T(alpha)) + T(0)),
    vjp={"x": _celu_rule},
    kinks="1 at 0",
    samples=[*singles(), sample((2, 3), alpha=0.3)],
    rejects=[_COMPLEX, reject((3,), alpha=0, error=SettingError, match="alpha is 0")],
)
def celu(x: Any, /, *, alpha: float = 1.0) -> Any:
    """Elementwise ``x`` where positive, ``alpha * (e**(x / alpha) - 1)`` elsewhere."""
    x = real_floating(x)
    return _positive_part(x) + alpha * np.expm1(np.minimum(x, 0) / alpha)


# The fixed point of mean 0 and variance 1: G. Klambauer et al., Self-Normalizing Neural Networks,
# 2017, equation 14.
_SELU_SCALE = 1.0507009873554804934193349852946
_SELU_LEFT = _SELU_SCALE * 1.6732632423543772848170429916717


@op(
    elementwise=True,
    decomposition=lambda x: mul(_SELU_SCALE, elu(x, alpha=_SELU_LEFT / _SELU_SCALE)),
    scalar=lambda x: select(x > T(0), T(_SELU_SCALE) * x, T(_SELU_LEFT) * math.expm1(x) + T(0)),
    vjp={"x": lambda g, x: _exponential_rule(g, x, _SELU_LEFT, _SELU_SCALE)},
    kinks="the slope from the left, 1.758..., at 0",
    samples=singles(),
    rejects=[_COMPLEX],
)
def selu(x: Any, /) -> Any:
    """Elementwise elu with the scale and alpha that keep mean 0 and variance 1."""
    x = real_floating(x)
    return _SELU_SCALE * _positive_part(x) + _SELU_LEFT * np.expm1(np.minimum(x, 0))


# ------------------------------------------------------------------ hard sigmoid, swish, tanh


def _hard_sigmoid_scalar(x: Any) -> Any:
    return select(x <= T(-3), T(0), select(x >= T(3), T(1), (x + T(3)) / T(6)))


@op(
    elementwise=True,
    selects=True,
    aliases=["hardsigmoid"],
    scalar=lambda x: _hard_sigmoid_scalar(x),
    decomposition=lambda x: div(relu6(add(x, 3)), 6),
    vjp={"x": lambda g, x: _where_between(div(g, 6), x, -3, 3)},
    kinks="0 at -3 and at 3",
    samples=[*singles(), sample((4, 3), low=-5.0, high=5.0)],
    rejects=[_COMPLEX],
)
def hard_sigmoid(x: Any, /) -> Any:
    """Elementwise ``relu6(x + 3) / 6``."""
    return np.clip(real_floating(x) + 3, 0, 6) / 6


def _hard_swish_rule(g: Any, x: Any) -> Any:
    inside = mul(g, add(div(clip(x, -3.0, 3.0), 3), 0.5))
    bent = keep_where(inside, logical_and(greater(x, -3), less(x, 3)))
    return add(keep_where(g, greater_equal(x, 3)), bent)


@op(
    elementwise=True,
    # Not where the slope is 0: inside, at -1.5, it is so by value.
    selects={"x": lambda c, x: keep_where(c, greater(x, -3))},
    aliases=["hardswish"],
    scalar=lambda x: select(x < T(-3), T(-3), x) * _hard_sigmoid_scalar(x),
    decomposition=lambda x: mul(x, hard_sigmoid(x)),
    vjp={"x": _hard_swish_rule},
    kinks="0 at -3, 1 at 3",
    samples=[*singles(), sample((4, 3), low=-5.0, high=5.0)],
    rejects=[_COMPLEX],
)
def hard_swish(x: Any, /) -> Any:
    """Elementwise ``x * relu6(x + 3) / 6``."""
    x = real_floating(x)
    return np.maximum(x, -3) * (np.clip(x + 3, 0, 6) / 6)


def _hard_tanh_options(min_val: Any, max_val: Any) -> tuple[float, ...]:
    low, high = real_options("hard_tanh", "min_val", "max_val")(min_val, max_val)
    if not low <= high:
        raise SettingError(f"hard_tanh: min_val={low} is not at most max_val={high}")
    return low, high


@op(
    elementwise=True,
    selects=True,
    aliases=["hardtanh"],
    prepare=_hard_tanh_options,
    decomposition=lambda x, min_val, max_val: where(
        less_equal(x, min_val), min_val, where(greater_equal(x, max_val), max_val, x)
    ),
    scalar=lambda x, min_val, max_val: select(
        x < T(min_val), T(min_val), select(x > T(max_val), T(max_val), x)
    ),
    vjp={"x": lambda g, x, min_val, max_val: _where_between(g, x, min_val, max_val)},
    kinks="0 at min_val and at max_val",
    samples=[
        *singles(),
        sample((4, 3), min_val=-0.25, max_val=1.5),
        sample((3,), min_val=0.5, max_val=0.5),
    ],
    rejects=[_COMPLEX, reject((3,), min_val=2, error=SettingError, match="is not at most")],
)
def hard_tanh(x: Any, /, *, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Elementwise ``x`` between ``min_val`` and ``max_val``, and these beyond."""
    return np.clip(real_floating(x), min_val, max_val)


publish(globals())


def _shrink_options(who: str) -> Any:
    """Return a function that checks ``lambd``, at least 0 as in PyTorch."""
    real = real_options(who, "lambd")

    def check_lambd(lambd: Any) -> tuple[float, ...]:
        (far,) = real(lambd)
        return (check_number(who, "lambd", far, "[0, inf)"),)

    return check_lambd


def _where_outside(g: Any, x: Any, lambd: float) -> Any:
    """Return ``g`` outside of [-lambd, lambd], else 0; 0 for NaN."""
    return keep_where(g, logical_or(greater(x, lambd), less(x, -lambd)))


@op(
    elementwise=True,
    selects=True,
    aliases=["hardshrink"],
    prepare=_shrink_options("hard_shrink"),
    decomposition=lambda x, lambd: where(less_equal(absolute(x), lambd), 0, x),
    scalar=lambda x, lambd: select(abs(x) <= T(lambd), T(0), x),
    vjp={"x": lambda g, x, lambd: _where_outside(g, x, lambd)},
    kinks="0 at lambd and at -lambd",
    samples=[*singles(), sample((4, 3), lambd=1.25)],
    rejects=[_COMPLEX, reject((3,), lambd=-1, error=SettingError, match="must not be negative")],
)
def hard_shrink(x: Any, /, *, lambd: float = 0.5) -> Any:
    """Elementwise ``x``; 0 between ``-lambd`` and ``lambd``."""
    x = real_floating(x)
    return np.where(np.abs(x) <= lambd, x.dtype.type(0), x)


@op(
    elementwise=True,
    selects=True,
    aliases=["softshrink"],
    prepare=_shrink_options("soft_shrink"),
    decomposition=lambda x, lambd: where(
        less_equal(absolute(x), lambd), 0, sub(x, mul(lambd, sign(x)))
    ),
    scalar=lambda x, lambd: select(
        x > T(lambd), x - T(lambd), select(x < T(-lambd), x + T(lambd), select(x != x, x, T(0)))
    ),
    vjp={"x": lambda g, x, lambd: _where_outside(g, x, lambd)},
    kinks="0 at lambd and at -lambd",
    samples=[*singles(), sample((4, 3), lambd=1.25)],
    rejects=[_COMPLEX, reject((3,), lambd=-1, error=SettingError, match="must not be negative")],
)
def soft_shrink(x: Any, /, *, lambd: float = 0.5) -> Any:
    """Elementwise ``x`` moved towards 0 by ``lambd``; 0 between ``-lambd`` and ``lambd``."""
    x = real_floating(x)
    return np.maximum(x - lambd, 0) + np.minimum(x + lambd, 0)


@op(
    elementwise=True,
    selects=True,
    prepare=real_options("threshold", "threshold", "value"),
    decomposition=lambda x, threshold, value: where(less_equal(x, threshold), value, x),
    scalar=lambda x, threshold, value: select(x <= T(threshold), T(value), x),
    vjp={"x": lambda g, x, threshold: keep_where(g, greater(x, threshold))},
    kinks="0 at the threshold",
    samples=[*singles(threshold=0.5, value=-1.0), sample((4, 3), threshold=-0.25, value=7)],
    rejects=[
        reject(np.array([1j]), threshold=0, value=0, error=DTypeError, match="needs real numbers"),
        reject((3,), threshold="a", value=0, error=DTypeError, match="pass a real number"),
    ],
)
def threshold(x: Any, /, *, threshold: float, value: float) -> Any:
    """Elementwise ``x`` above ``threshold``, and ``value`` elsewhere."""
    x = real_floating(x)
    return np.where(x <= threshold, x.dtype.type(value), x)


@composite(
    aliases=["tanhshrink"],
    samples=[*singles()],
)
def tanh_shrink(x: Any) -> Any:
    """Elementwise ``x - tanh(x)``.

    Args:
        x: Numbers, real or complex.

    >>> tanh_shrink(np.array([-10.0, 0.0, 10.0]))
    array([-9.,  0.,  9.])
    """
    return sub(x, tanh(x))


publish(globals())
