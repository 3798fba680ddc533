"""The backward functions of all ops, ``od.backward.<op>(g, ...)``, with their types.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from numpy.typing import ArrayLike, NDArray

from odyssey.spec import Spec

__all__ = [
    "TABLE",
]

_Array: TypeAlias = NDArray[Any]

TABLE: Mapping[str, Callable[..., Any]]

def absolute(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``absolute`` in x."""
abs = absolute

def add(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients of ``add`` in x, y."""

def add_along_axis(
    g: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``add_along_axis`` in x."""

def add_at(g: ArrayLike, key: Any, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``add_at`` in x."""

def add_taken(
    g: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    mode: str = "raise",
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``add_taken`` in x."""

def angle(g: ArrayLike, x: ArrayLike, deg: bool = False) -> _Array:
    """The gradients of ``angle`` in x."""

def arccos(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arccos`` in x."""
acos = arccos

def arccosh(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arccosh`` in x."""
acosh = arccosh

def arcsin(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arcsin`` in x."""
asin = arcsin

def arcsinh(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arcsinh`` in x."""
asinh = arcsinh

def arctan(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arctan`` in x."""
atan = arctan

def arctan2(g: ArrayLike, y: ArrayLike, x: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``arctan2`` in y, x."""
atan2 = arctan2

def arctanh(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``arctanh`` in x."""
atanh = arctanh

def astype(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``astype`` in x."""

def binary_entropy(g: ArrayLike, p: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``binary_entropy`` in p, y."""

def binary_entropy_with_logits(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``binary_entropy_with_logits`` in x, y."""

def broadcast_to(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``broadcast_to`` in x."""

def cbrt(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``cbrt`` in x."""

def ceil(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``ceil`` in x."""

def clip(g: ArrayLike, x: ArrayLike, a_min: Any = None, a_max: Any = None) -> _Array:
    """The gradients of ``clip`` in x."""

def concatenate(
    g: ArrayLike,
    x0_spec: Spec = ...,
    x1_spec: Spec = ...,
    axis: int | None = 0,
    *,
    x0: ArrayLike = ...,
    x1: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``concatenate`` in x0, x1."""

def conj(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``conj`` in x."""

def contract(g: ArrayLike, x: ArrayLike, y: ArrayLike, subscripts: str) -> tuple[_Array, _Array]:
    """The gradients of ``contract`` in x, y."""

def cos(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``cos`` in x."""

def cosh(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``cosh`` in x."""

def cross(
    g: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    x_spec: Spec = ...,
    y_spec: Spec = ...,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
) -> tuple[_Array, _Array]:
    """The gradients of ``cross`` in x, y."""

def cumprod(g: ArrayLike, x: ArrayLike, x_spec: Spec = ..., axis: int | None = None) -> _Array:
    """The gradients of ``cumprod`` in x."""

def cumsum(
    g: ArrayLike,
    x_spec: Spec = ...,
    axis: int | None = None,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``cumsum`` in x."""

def deg2rad(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``deg2rad`` in x."""
radians = deg2rad

def direction(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``direction`` in x, y."""

def divide(
    g: ArrayLike,
    y: ArrayLike,
    out: ArrayLike,
    *,
    x: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``divide`` in x, y."""
div = divide

def elu(g: ArrayLike, x: ArrayLike, alpha: float = 1.0) -> _Array:
    """The gradients of ``elu`` in x."""

def erf(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``erf`` in x."""

def erfc(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``erfc`` in x."""

def exp(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``exp`` in x."""

def exp2(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``exp2`` in x."""

def expm1(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``expm1`` in x."""

def fabs(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``fabs`` in x."""

def fix(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``fix`` in x."""

def floor(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``floor`` in x."""

def floor_divide(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients of ``floor_divide`` in x, y."""

def fmax(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``fmax`` in x, y."""

def fmin(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``fmin`` in x, y."""

def gelu(g: ArrayLike, x: ArrayLike, approximate: str = "none") -> _Array:
    """The gradients of ``gelu`` in x."""

def getitem(g: ArrayLike, x_spec: Spec = ..., key: Any = ..., *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``getitem`` in x."""

def hard_sigmoid(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``hard_sigmoid`` in x."""
hardsigmoid = hard_sigmoid

def hard_swish(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``hard_swish`` in x."""
hardswish = hard_swish

def hard_tanh(g: ArrayLike, x: ArrayLike, min_val: float = -1.0, max_val: float = 1.0) -> _Array:
    """The gradients of ``hard_tanh`` in x."""
hardtanh = hard_tanh

def hypot(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``hypot`` in x, y."""

def identity(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``identity`` in x."""

def imag(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``imag`` in x."""

def keep_where(g: ArrayLike, condition: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``keep_where`` in x."""

def leaky_relu(g: ArrayLike, x: ArrayLike, negative_slope: float = 0.01) -> _Array:
    """The gradients of ``leaky_relu`` in x."""

def linear(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients of ``linear`` in x, weight, bias."""

def linear_recurrence(
    g: ArrayLike,
    factors: ArrayLike,
    out: ArrayLike,
    axis: int = -1,
    reverse: bool = False,
    *,
    x: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``linear_recurrence`` in x, factors."""

def log(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``log`` in x."""

def log10(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``log10`` in x."""

def log1p(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``log1p`` in x."""

def log2(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``log2`` in x."""

def log_sigmoid(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``log_sigmoid`` in x."""
logsigmoid = log_sigmoid
log_expit = log_sigmoid

def log_softmax(g: ArrayLike, x: ArrayLike, axis: int = -1) -> _Array:
    """The gradients of ``log_softmax`` in x."""

def logaddexp(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``logaddexp`` in x, y."""

def logaddexp2(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``logaddexp2`` in x, y."""

def logit(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``logit`` in x."""

def logsumexp(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``logsumexp`` in x."""

def matmul(
    g: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    x_spec: Spec = ...,
    y_spec: Spec = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``matmul`` in x, y."""

def matrix_transpose(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``matrix_transpose`` in x."""

def max(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``max`` in x."""

def maximum(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``maximum`` in x, y."""

def mean(
    g: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``mean`` in x."""

def min(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``min`` in x."""

def minimum(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``minimum`` in x, y."""

def mish(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``mish`` in x."""

def mod(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``mod`` in x, y."""
remainder = mod

def multiply(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``multiply`` in x, y."""
mul = multiply

def nan_to_num(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``nan_to_num`` in x."""

def negative(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``negative`` in x."""
neg = negative

def over_length(
    g: ArrayLike,
    length: ArrayLike,
    out: ArrayLike,
    *,
    x: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``over_length`` in x, length."""

def piecewise_linear(
    g: ArrayLike,
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    xp_spec: Spec = ...,
    fp_spec: Spec = ...,
    left: float | None = None,
    right: float | None = None,
) -> tuple[_Array, _Array, _Array]:
    """The gradients of ``piecewise_linear`` in x, xp, fp."""

def power(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``power`` in x, y."""
pow = power

def power_log(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``power_log`` in x, y."""

def power_share(
    g: ArrayLike,
    x: ArrayLike,
    y: ArrayLike,
    base: float = 2.718281828459045,
) -> tuple[_Array, _Array]:
    """The gradients of ``power_share`` in x, y."""

def power_slope(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``power_slope`` in x, y."""

def prelu(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    weight_spec: Spec = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``prelu`` in x, weight."""

def prod(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``prod`` in x."""

def rad2deg(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``rad2deg`` in x."""
degrees = rad2deg

def real(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``real`` in x."""

def reciprocal(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``reciprocal`` in x."""

def relu(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``relu`` in x."""

def relu6(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``relu6`` in x."""

def reshape(g: ArrayLike, x_spec: Spec = ..., order: str = "C", *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``reshape`` in x."""

def rint(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``rint`` in x."""

def roll(
    g: ArrayLike,
    shift: Any,
    axis: int | tuple[int, ...] | None = None,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``roll`` in x."""

def round(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``round`` in x."""

def rsqrt(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array:
    """The gradients of ``rsqrt`` in x."""

def selu(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``selu`` in x."""

def setitem(
    g: ArrayLike,
    x_spec: Spec = ...,
    v_spec: Spec = ...,
    key: Any = ...,
    *,
    x: ArrayLike = ...,
    v: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``setitem`` in x, v."""

def sigmoid(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``sigmoid`` in x."""
expit = sigmoid

def sign(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array:
    """The gradients of ``sign`` in x."""

def silu(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``silu`` in x."""
swish = silu

def sin(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``sin`` in x."""

def sinc(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``sinc`` in x."""

def sine_quotient(g: ArrayLike, x: ArrayLike, order: int) -> _Array:
    """The gradients of ``sine_quotient`` in x."""

def sinh(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``sinh`` in x."""

def softmax(g: ArrayLike, out: ArrayLike, axis: int = -1, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``softmax`` in x."""

def softmax_cross_entropy(
    g: ArrayLike,
    logits: ArrayLike,
    targets: ArrayLike,
    logits_spec: Spec = ...,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> _Array:
    """The gradients of ``softmax_cross_entropy`` in logits."""

def softmax_cross_entropy_slope(
    g: ArrayLike,
    logits: ArrayLike,
    targets: ArrayLike,
    logits_spec: Spec = ...,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> _Array:
    """The gradients of ``softmax_cross_entropy_slope`` in logits."""

def softplus(g: ArrayLike, x: ArrayLike, beta: float = 1.0) -> _Array:
    """The gradients of ``softplus`` in x."""

def softsign(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``softsign`` in x."""

def sort(g: ArrayLike, x: ArrayLike, x_spec: Spec = ..., axis: int | None = -1) -> _Array:
    """The gradients of ``sort`` in x."""

def sqrt(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``sqrt`` in x."""

def square(g: ArrayLike, x: ArrayLike) -> _Array:
    """The gradients of ``square`` in x."""

def squared_error_mean(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``squared_error_mean`` in x, y."""

def std(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``std`` in x."""

def subtract(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients of ``subtract`` in x, y."""
sub = subtract

def sum(
    g: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``sum`` in x."""

def sum_to(g: ArrayLike, x_spec: Spec = ..., *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``sum_to`` in x."""

def take(
    g: ArrayLike,
    indices: ArrayLike,
    x_spec: Spec = ...,
    axis: int | None = None,
    mode: str = "raise",
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``take`` in x."""

def take_along_axis(
    g: ArrayLike,
    indices: ArrayLike,
    x_spec: Spec = ...,
    axis: int | None = -1,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``take_along_axis`` in x."""

def tan(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``tan`` in x."""

def tanh(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``tanh`` in x."""

def transpose(
    g: ArrayLike,
    axes: int | tuple[int, ...] | None = None,
    *,
    x: ArrayLike = ...,
) -> _Array:
    """The gradients of ``transpose`` in x."""

def trunc(g: ArrayLike, *, x: ArrayLike = ...) -> _Array:
    """The gradients of ``trunc`` in x."""

def var(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> _Array:
    """The gradients of ``var`` in x."""

def where(
    g: ArrayLike,
    condition: ArrayLike,
    *,
    x: ArrayLike = ...,
    y: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients of ``where`` in x, y."""

def xlogy(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients of ``xlogy`` in x, y."""
