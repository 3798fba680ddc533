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

def absolute(g: ArrayLike, x: ArrayLike) -> _Array: ...
abs = absolute
def add(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def add_along_axis(
    g: ArrayLike, indices: ArrayLike, axis: int | None = -1, *, x: ArrayLike = ...
) -> _Array: ...
def add_at(g: ArrayLike, key: Any, *, x: ArrayLike = ...) -> _Array: ...
def add_taken(
    g: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    mode: str = "raise",
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def angle(g: ArrayLike, x: ArrayLike, deg: bool = False) -> _Array: ...
def arccos(g: ArrayLike, x: ArrayLike) -> _Array: ...
acos = arccos
def arccosh(g: ArrayLike, x: ArrayLike) -> _Array: ...
acosh = arccosh
def arcsin(g: ArrayLike, x: ArrayLike) -> _Array: ...
asin = arcsin
def arcsinh(g: ArrayLike, x: ArrayLike) -> _Array: ...
asinh = arcsinh
def arctan(g: ArrayLike, x: ArrayLike) -> _Array: ...
atan = arctan
def arctan2(g: ArrayLike, y: ArrayLike, x: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in y and x."""
atan2 = arctan2
def arctanh(g: ArrayLike, x: ArrayLike) -> _Array: ...
atanh = arctanh
def astype(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def attention_pullback(
    g: ArrayLike,
    cotangent: ArrayLike,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    causal: bool = False,
    scale: float | None = None,
    operand: str = ...,
) -> tuple[_Array, _Array, _Array, _Array, _Array | None]:
    """The gradients in cotangent and q and k and v and mask."""
def avg_pool1d(
    g: ArrayLike,
    x_spec: Spec = ...,
    window: Any = ...,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def avg_pool2d(
    g: ArrayLike,
    x_spec: Spec = ...,
    window: Any = ...,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
avgpool2d = avg_pool2d
def avg_pool3d(
    g: ArrayLike,
    x_spec: Spec = ...,
    window: Any = ...,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def avg_pool_pullback(
    g: ArrayLike,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
    ceil_mode: bool = False,
    *,
    cotangent: ArrayLike = ...,
) -> _Array: ...
def bessel_j_quotient(g: ArrayLike, x: ArrayLike, order: int) -> _Array: ...
def bessel_quotient(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    order: int = ...,
    scaled: bool = False,
) -> _Array: ...
def beta(
    g: ArrayLike, a: ArrayLike, b: ArrayLike, out: ArrayLike, a_spec: Spec = ..., b_spec: Spec = ...
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
def betainc(g: ArrayLike, a: ArrayLike, b: ArrayLike, x: ArrayLike) -> _Array: ...
def betaln(
    g: ArrayLike, a: ArrayLike, b: ArrayLike, a_spec: Spec = ..., b_spec: Spec = ...
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
def binary_entropy(g: ArrayLike, p: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in p and y."""
def binary_entropy_with_logits(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def broadcast_to(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def cbrt(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def ceil(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def celu(g: ArrayLike, x: ArrayLike, alpha: float = 1.0) -> _Array: ...
def cholesky(
    g: ArrayLike, out: ArrayLike, upper: bool = False, *, a: ArrayLike = ...
) -> _Array: ...
def clip(g: ArrayLike, x: ArrayLike, a_min: Any = None, a_max: Any = None) -> _Array: ...
def cofactor_slope(g: ArrayLike, t: ArrayLike, a: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in t and a."""
def cofactors(g: ArrayLike, a: ArrayLike) -> _Array: ...
def concatenate(
    g: ArrayLike,
    x0_spec: Spec = ...,
    x1_spec: Spec = ...,
    axis: int | None = 0,
    *,
    x0: ArrayLike = ...,
    x1: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in x0 and x1."""
def conj(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def contract(g: ArrayLike, x: ArrayLike, y: ArrayLike, subscripts: str) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def conv1d(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    x_spec: Spec = ...,
    weight_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients in x and weight and bias."""
def conv2d(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    x_spec: Spec = ...,
    weight_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients in x and weight and bias."""
def conv3d(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    x_spec: Spec = ...,
    weight_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients in x and weight and bias."""
def convolution_input(
    g: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike,
    weight_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[_Array, _Array]:
    """The gradients in y and weight."""
def convolution_weight(
    g: ArrayLike,
    y: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[_Array, _Array]:
    """The gradients in y and x."""
def convolve(
    g: ArrayLike,
    a: ArrayLike,
    v: ArrayLike,
    a_spec: Spec = ...,
    v_spec: Spec = ...,
    mode: str = "full",
    method: str = "auto",
) -> tuple[_Array, _Array]:
    """The gradients in a and v."""
def copysign(g: ArrayLike, x1: ArrayLike, x2: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x1 and x2."""
def cos(g: ArrayLike, x: ArrayLike) -> _Array: ...
def cosh(g: ArrayLike, x: ArrayLike) -> _Array: ...
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
    """The gradients in x and y."""
def cumprod(g: ArrayLike, x: ArrayLike, x_spec: Spec = ..., axis: int | None = None) -> _Array: ...
def cumsum(
    g: ArrayLike, x_spec: Spec = ..., axis: int | None = None, *, x: ArrayLike = ...
) -> _Array: ...
def deg2rad(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
radians = deg2rad
def demanded(g: ArrayLike, *, x: ArrayLike = ..., holds: ArrayLike = ...) -> _Array: ...
def depthwise_conv2d(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    x_spec: Spec = ...,
    weight_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients in x and weight and bias."""
def depthwise_separable_conv2d(
    g: ArrayLike,
    x: ArrayLike,
    depthwise: ArrayLike,
    pointwise: ArrayLike,
    bias: ArrayLike | None = None,
    x_spec: Spec = ...,
    depthwise_spec: Spec = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> tuple[_Array, _Array, _Array, _Array | None]:
    """The gradients in x and depthwise and pointwise and bias."""
def det(g: ArrayLike, a: ArrayLike) -> _Array: ...
def dft(
    g: ArrayLike,
    inverse: bool = False,
    axis: int = -1,
    norm: str = "backward",
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def digamma(g: ArrayLike, x: ArrayLike) -> _Array: ...
psi = digamma
def digamma_derivative(g: ArrayLike, x: ArrayLike, order: int) -> _Array: ...
def direction(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def divide(
    g: ArrayLike, y: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...
) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
div = divide
def dynamic_slice(
    g: ArrayLike, start_indices: ArrayLike, x_spec: Spec = ..., *, x: ArrayLike = ...
) -> _Array: ...
def dynamic_update_slice(
    g: ArrayLike,
    start_indices: ArrayLike,
    update_spec: Spec = ...,
    *,
    x: ArrayLike = ...,
    update: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in x and update."""
def eig(
    g_eigenvalues: ArrayLike | None,
    g_eigenvectors: ArrayLike | None,
    eigenvalues: ArrayLike,
    eigenvectors: ArrayLike,
    *,
    a: ArrayLike = ...,
) -> _Array: ...
def eigenvalue_pullback(
    g: ArrayLike,
    cotangent: ArrayLike,
    a: ArrayLike,
    UPLO: str = "L",
    solver: str = "eigh",
    constant: bool = False,
) -> tuple[_Array, _Array]:
    """The gradients in cotangent and a."""
def eigh(
    g_eigenvalues: ArrayLike | None,
    g_eigenvectors: ArrayLike | None,
    a: ArrayLike,
    eigenvalues: ArrayLike,
    eigenvectors: ArrayLike,
    UPLO: str = "L",
) -> _Array: ...
def eigvals(g: ArrayLike, a: ArrayLike) -> _Array: ...
def eigvalsh(g: ArrayLike, a: ArrayLike, UPLO: str = "L") -> _Array: ...
def elu(g: ArrayLike, x: ArrayLike, alpha: float = 1.0) -> _Array: ...
def embedding(
    g: ArrayLike,
    indices: ArrayLike,
    weight_spec: Spec = ...,
    padding_index: int | None = None,
    *,
    weight: ArrayLike = ...,
) -> _Array: ...
def embedding_pullback(
    g: ArrayLike,
    indices: ArrayLike,
    padding_index: int | None = None,
    *,
    cotangent: ArrayLike = ...,
) -> _Array: ...
def entr(g: ArrayLike, x: ArrayLike) -> _Array: ...
def erf(g: ArrayLike, x: ArrayLike) -> _Array: ...
def erfc(g: ArrayLike, x: ArrayLike) -> _Array: ...
def erfcinv(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def erfcx(g: ArrayLike, x: ArrayLike) -> _Array: ...
def erfinv(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def euclidean_norm(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def exp(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def exp2(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def expm(g: ArrayLike, a: ArrayLike) -> _Array: ...
def expm1(g: ArrayLike, x: ArrayLike) -> _Array: ...
def exponential_moment(g: ArrayLike, x: ArrayLike, order: int) -> _Array: ...
def exprel(g: ArrayLike, x: ArrayLike) -> _Array: ...
def fabs(g: ArrayLike, x: ArrayLike) -> _Array: ...
def fix(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def floor(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def floor_divide(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def fmax(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def fmin(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def fmod(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def fold(
    g: ArrayLike,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def gamma(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def gammainc(g: ArrayLike, a: ArrayLike, x: ArrayLike, x_spec: Spec = ...) -> _Array: ...
def gammaincc(g: ArrayLike, a: ArrayLike, x: ArrayLike, x_spec: Spec = ...) -> _Array: ...
def gammaln(g: ArrayLike, x: ArrayLike) -> _Array: ...
lgamma = gammaln
def gelu(g: ArrayLike, x: ArrayLike, approximate: str = "none") -> _Array: ...
def gelu_slope(g: ArrayLike, x: ArrayLike, approximate: str = "none") -> _Array: ...
def getitem(g: ArrayLike, x_spec: Spec = ..., key: Any = ..., *, x: ArrayLike = ...) -> _Array: ...
def global_avg_pool2d(g: ArrayLike, x_spec: Spec = ..., *, x: ArrayLike = ...) -> _Array: ...
global_avgpool2d = global_avg_pool2d
def hard_shrink(g: ArrayLike, x: ArrayLike, lambd: float = 0.5) -> _Array: ...
hardshrink = hard_shrink
def hard_sigmoid(g: ArrayLike, x: ArrayLike) -> _Array: ...
hardsigmoid = hard_sigmoid
def hard_swish(g: ArrayLike, x: ArrayLike) -> _Array: ...
hardswish = hard_swish
def hard_tanh(
    g: ArrayLike, x: ArrayLike, min_val: float = -1.0, max_val: float = 1.0
) -> _Array: ...
hardtanh = hard_tanh
def heaviside(g: ArrayLike, x1: ArrayLike, *, x2: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients in x1 and x2."""
def hypot(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def i0(g: ArrayLike, x: ArrayLike) -> _Array: ...
def i0e(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def i1(g: ArrayLike, x: ArrayLike) -> _Array: ...
def i1e(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def identity(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
positive = identity
def imag(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def inv(g: ArrayLike, out: ArrayLike, *, a: ArrayLike = ...) -> _Array: ...
def inverse_mills_ratio(
    g: ArrayLike, x: ArrayLike, out: ArrayLike, x_spec: Spec = ...
) -> _Array: ...
def inverse_real_dft(
    g: ArrayLike, n: int, axis: int = -1, norm: str = "backward", *, x: ArrayLike = ...
) -> _Array: ...
def j0(g: ArrayLike, x: ArrayLike) -> _Array: ...
def j1(g: ArrayLike, x: ArrayLike) -> _Array: ...
def k0(g: ArrayLike, x: ArrayLike) -> _Array: ...
def k0e(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def k1(g: ArrayLike, x: ArrayLike) -> _Array: ...
def k1e(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def keep_where(g: ArrayLike, condition: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def kl_div(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def layer_norm(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-05,
) -> tuple[_Array, _Array | None, _Array | None]:
    """The gradients in x and weight and bias."""
def leaky_relu(g: ArrayLike, x: ArrayLike, negative_slope: float = 0.01) -> _Array: ...
def least_squares(
    g: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    out: ArrayLike,
    b_spec: Spec = ...,
    rcond: float | None = None,
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
def linear(
    g: ArrayLike, x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None
) -> tuple[_Array, _Array, _Array | None]:
    """The gradients in x and weight and bias."""
def linear_recurrence(
    g: ArrayLike,
    factors: ArrayLike,
    out: ArrayLike,
    axis: int = -1,
    reverse: bool = False,
    *,
    x: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in x and factors."""
def log(g: ArrayLike, x: ArrayLike) -> _Array: ...
def log10(g: ArrayLike, x: ArrayLike) -> _Array: ...
def log1p(g: ArrayLike, x: ArrayLike) -> _Array: ...
def log2(g: ArrayLike, x: ArrayLike) -> _Array: ...
def log_ndtr(g: ArrayLike, x: ArrayLike) -> _Array: ...
def log_sigmoid(g: ArrayLike, x: ArrayLike) -> _Array: ...
logsigmoid = log_sigmoid
log_expit = log_sigmoid
def log_softmax(g: ArrayLike, out: ArrayLike, axis: int = -1, *, x: ArrayLike = ...) -> _Array: ...
def log_softmax_pullback(
    g: ArrayLike, t: ArrayLike, z: ArrayLike, axis: int = -1
) -> tuple[_Array, _Array]:
    """The gradients in t and z."""
def logaddexp(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def logaddexp2(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def logcumsumexp(g: ArrayLike, x: ArrayLike, out: ArrayLike, axis: int = -1) -> _Array: ...
def logit(g: ArrayLike, x: ArrayLike) -> _Array: ...
def logsumexp(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def lu(
    g_p: ArrayLike | None,
    g_lower: ArrayLike | None,
    g_upper: ArrayLike | None,
    p: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    a: ArrayLike = ...,
) -> _Array: ...
def matmul(
    g: ArrayLike, x: ArrayLike, y: ArrayLike, x_spec: Spec = ..., y_spec: Spec = ...
) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def matrix_transpose(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def max(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def max_pool1d(
    g: ArrayLike,
    x: ArrayLike,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> _Array: ...
def max_pool2d(
    g: ArrayLike,
    x: ArrayLike,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> _Array: ...
maxpool2d = max_pool2d
def max_pool3d(
    g: ArrayLike,
    x: ArrayLike,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> _Array: ...
def max_pool_pullback(
    g: ArrayLike,
    x: ArrayLike,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    cotangent: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in cotangent and x."""
def max_pool_pushforward(
    g: ArrayLike,
    x: ArrayLike,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    t: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in t and x."""
def maximum(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def mean(
    g: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def median(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def min(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def minimum(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def mish(g: ArrayLike, x: ArrayLike) -> _Array: ...
def mish_slope(g: ArrayLike, x: ArrayLike) -> _Array: ...
def mod(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
remainder = mod
def multiply(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
mul = multiply
def nan_to_num(g: ArrayLike, x: ArrayLike) -> _Array: ...
def ndtr(g: ArrayLike, x: ArrayLike) -> _Array: ...
def ndtri(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def negative(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
neg = negative
def norm_pullback(
    g: ArrayLike,
    cotangent: ArrayLike,
    x: ArrayLike,
    inverse: ArrayLike,
    mean: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    axis: int | tuple[int, ...] | None = -1,
) -> tuple[_Array, _Array, _Array, _Array | None, _Array | None]:
    """The gradients in cotangent and x and inverse and mean and weight."""
def norm_weight_pullback(
    g: ArrayLike,
    cotangent: ArrayLike,
    x: ArrayLike,
    inverse: ArrayLike,
    mean: ArrayLike | None = None,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...] = ...,
) -> tuple[_Array, _Array, _Array, _Array | None]:
    """The gradients in cotangent and x and inverse and mean."""
def over_length(
    g: ArrayLike, length: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...
) -> tuple[_Array, _Array]:
    """The gradients in x and length."""
def percentile(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    q: Any = ...,
    axis: int | tuple[int, ...] | None = None,
    method: str = "linear",
) -> _Array: ...
def philox_dropout(
    g: ArrayLike, state: ArrayLike, rate: float = 0.5, shared: int = 0, *, x: ArrayLike = ...
) -> _Array: ...
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
    """The gradients in x and xp and fp."""
def pinv(g: ArrayLike, a: ArrayLike, out: ArrayLike, hermitian: bool = False) -> _Array: ...
def power(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
pow = power
def power_log(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def power_share(
    g: ArrayLike, x: ArrayLike, y: ArrayLike, base: float = 2.718281828459045
) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def power_slope(g: ArrayLike, x: ArrayLike, y: ArrayLike, out: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def prelu(
    g: ArrayLike, x: ArrayLike, weight: ArrayLike, weight_spec: Spec = ...
) -> tuple[_Array, _Array]:
    """The gradients in x and weight."""
def prod(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> _Array: ...
def prod_others(
    g: ArrayLike, x: ArrayLike, axis: int | tuple[int, ...] | None = None
) -> _Array: ...
def put_along_axis(
    g: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    *,
    x: ArrayLike = ...,
    values: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in x and values."""
def qr_factors(
    g_Q: ArrayLike | None, g_R: ArrayLike | None, Q: ArrayLike, R: ArrayLike, *, a: ArrayLike = ...
) -> _Array: ...
def quantile(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    q: Any = ...,
    axis: int | tuple[int, ...] | None = None,
    method: str = "linear",
) -> _Array: ...
def rad2deg(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
degrees = rad2deg
def real(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def real_dft(
    g: ArrayLike, x_spec: Spec = ..., axis: int = -1, norm: str = "backward", *, x: ArrayLike = ...
) -> _Array: ...
def reciprocal(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def recurrent_pullback(
    g: ArrayLike,
    cotangent: ArrayLike,
    x: ArrayLike,
    state: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    cell: str = ...,
    operand: str = ...,
) -> tuple[_Array, _Array, _Array, _Array, _Array | None]:
    """The gradients in cotangent and x and state and w and b."""
def recurrent_states(
    g: ArrayLike,
    x: ArrayLike,
    state: ArrayLike,
    w: ArrayLike,
    b: ArrayLike | None = None,
    out: ArrayLike = ...,
    cell: str = ...,
) -> tuple[_Array, _Array, _Array, _Array | None]:
    """The gradients in x and state and w and b."""
def rel_entr(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def relu(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def relu6(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def reshape(
    g: ArrayLike, x_spec: Spec = ..., order: str = "C", *, x: ArrayLike = ...
) -> _Array: ...
def reverse_cumsum(
    g: ArrayLike, x_spec: Spec = ..., axis: int | None = None, *, x: ArrayLike = ...
) -> _Array: ...
def rint(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def rms_norm(
    g: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike | None = None,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-06,
) -> tuple[_Array, _Array | None]:
    """The gradients in x and weight."""
def roll(
    g: ArrayLike, shift: Any, axis: int | tuple[int, ...] | None = None, *, x: ArrayLike = ...
) -> _Array: ...
def rope(
    g: ArrayLike, positions: ArrayLike, base: float = 10000.0, *, x: ArrayLike = ...
) -> _Array: ...
def round(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def rsqrt(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def sampled(
    g: ArrayLike,
    axis: int,
    lengths: tuple[int, int],
    mode: str,
    step: float,
    align_corners: bool = False,
    back: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def scaled_dot_product_attention(
    g: ArrayLike,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[_Array, _Array, _Array, _Array | None]:
    """The gradients in q and k and v and mask."""
def scaled_erfc_integral(g: ArrayLike, x: ArrayLike, order: int) -> _Array: ...
def segment_max(
    g: ArrayLike, data: ArrayLike, segment_ids: ArrayLike, out: ArrayLike
) -> _Array: ...
def segment_min(
    g: ArrayLike, data: ArrayLike, segment_ids: ArrayLike, out: ArrayLike
) -> _Array: ...
def segment_softmax(
    g: ArrayLike,
    segment_ids: ArrayLike,
    out: ArrayLike,
    num_segments: int | None = None,
    *,
    data: ArrayLike = ...,
) -> _Array: ...
def selu(g: ArrayLike, x: ArrayLike) -> _Array: ...
def setitem(
    g: ArrayLike,
    x_spec: Spec = ...,
    v_spec: Spec = ...,
    key: Any = ...,
    *,
    x: ArrayLike = ...,
    v: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in x and v."""
def sigmoid(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
expit = sigmoid
def sign(g: ArrayLike, x: ArrayLike, out: ArrayLike) -> _Array: ...
def silu(g: ArrayLike, x: ArrayLike) -> _Array: ...
swish = silu
def silu_slope(g: ArrayLike, x: ArrayLike) -> _Array: ...
def sin(g: ArrayLike, x: ArrayLike) -> _Array: ...
def sinc(g: ArrayLike, x: ArrayLike) -> _Array: ...
def sine_quotient(g: ArrayLike, x: ArrayLike, order: int) -> _Array: ...
def singular_value_pullback(
    g: ArrayLike, cotangent: ArrayLike, a: ArrayLike, solver: str = "values", constant: bool = False
) -> tuple[_Array, _Array]:
    """The gradients in cotangent and a."""
def sinh(g: ArrayLike, x: ArrayLike) -> _Array: ...
def slogdet(
    g_sign: ArrayLike | None, g_logabsdet: ArrayLike | None, a: ArrayLike, sign: ArrayLike
) -> _Array: ...
def soft_shrink(g: ArrayLike, x: ArrayLike, lambd: float = 0.5) -> _Array: ...
softshrink = soft_shrink
def softmax(g: ArrayLike, out: ArrayLike, axis: int = -1, *, x: ArrayLike = ...) -> _Array: ...
def softmax_cross_entropy(
    g: ArrayLike,
    logits: ArrayLike,
    targets: ArrayLike,
    logits_spec: Spec = ...,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> _Array: ...
def softmax_cross_entropy_slope(
    g: ArrayLike,
    logits: ArrayLike,
    targets: ArrayLike,
    logits_spec: Spec = ...,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> _Array: ...
def softmax_pullback(
    g: ArrayLike, t: ArrayLike, s: ArrayLike, axis: int = -1
) -> tuple[_Array, _Array]:
    """The gradients in t and s."""
def softplus(g: ArrayLike, x: ArrayLike, beta: float = 1.0) -> _Array: ...
def softsign(g: ArrayLike, x: ArrayLike) -> _Array: ...
def solve(
    g: ArrayLike, a: ArrayLike, out: ArrayLike, b_spec: Spec = ..., *, b: ArrayLike = ...
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
def solve_or_nan(
    g: ArrayLike, a: ArrayLike, out: ArrayLike, b_spec: Spec = ..., *, b: ArrayLike = ...
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
def sort(g: ArrayLike, x: ArrayLike, x_spec: Spec = ..., axis: int | None = -1) -> _Array: ...
def sqrt(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def sqrtm(g: ArrayLike, a: ArrayLike) -> _Array: ...
def square(g: ArrayLike, x: ArrayLike) -> _Array: ...
def squared_error_mean(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def std(
    g: ArrayLike,
    x: ArrayLike,
    out: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> _Array: ...
def subtract(g: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
sub = subtract
def sum(
    g: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def sum_to(g: ArrayLike, x_spec: Spec = ..., *, x: ArrayLike = ...) -> _Array: ...
def svd_factors(
    g_U: ArrayLike | None,
    g_S: ArrayLike | None,
    g_Vh: ArrayLike | None,
    a: ArrayLike,
    U: ArrayLike,
    S: ArrayLike,
    Vh: ArrayLike,
    full_matrices: bool = True,
) -> _Array: ...
def svdvals(g: ArrayLike, a: ArrayLike) -> _Array: ...
def take(
    g: ArrayLike,
    indices: ArrayLike,
    x_spec: Spec = ...,
    axis: int | None = None,
    mode: str = "raise",
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def take_along_axis(
    g: ArrayLike,
    indices: ArrayLike,
    x_spec: Spec = ...,
    axis: int | None = -1,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def tan(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def tanh(g: ArrayLike, out: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def threshold(g: ArrayLike, x: ArrayLike, threshold: float) -> _Array: ...
def transpose(
    g: ArrayLike, axes: int | tuple[int, ...] | None = None, *, x: ArrayLike = ...
) -> _Array: ...
def triangular_solve(
    g: ArrayLike,
    a: ArrayLike,
    out: ArrayLike,
    b_spec: Spec = ...,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    *,
    b: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in a and b."""
solve_triangular = triangular_solve
def trunc(g: ArrayLike, *, x: ArrayLike = ...) -> _Array: ...
def unfold(
    g: ArrayLike,
    x_spec: Spec = ...,
    window: Any = ...,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    *,
    x: ArrayLike = ...,
) -> _Array: ...
def update_rows(
    g: ArrayLike,
    start: ArrayLike,
    rows_spec: Spec = ...,
    axis: int = -2,
    wrap: bool = False,
    *,
    buffer: ArrayLike = ...,
    rows: ArrayLike = ...,
) -> tuple[_Array, _Array]:
    """The gradients in buffer and rows."""
def var(
    g: ArrayLike,
    x: ArrayLike,
    x_spec: Spec = ...,
    axis: int | tuple[int, ...] | None = None,
    ddof: float = 0,
    keepdims: bool = False,
) -> _Array: ...
def where(
    g: ArrayLike, condition: ArrayLike, *, x: ArrayLike = ..., y: ArrayLike = ...
) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def xlog1py(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def xlogy(g: ArrayLike, x: ArrayLike, y: ArrayLike) -> tuple[_Array, _Array]:
    """The gradients in x and y."""
def y0(g: ArrayLike, x: ArrayLike) -> _Array: ...
def y1(g: ArrayLike, x: ArrayLike) -> _Array: ...
def zeta(g: ArrayLike, x: ArrayLike, q: ArrayLike) -> _Array: ...
