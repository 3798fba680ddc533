"""Neural networks: activations, softmax, layers, as functions.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike

from odyssey.spec import Spec
from odyssey.table.protocols import Tape
from odyssey.table.signatures import (
    Array,
    ArrayOrScalar,
    AveragePooling,
    Convolution,
    Dropout,
    MaxPooling,
    Operand,
    Plain,
    Scalar,
    TransposedConvolution,
    Unary,
    Unpooling,
    V,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "attention_pullback",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "avg_pool_pullback",
    "batch_norm",
    "bilinear",
    "cdist",
    "celu",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution_input",
    "convolution_weight",
    "cosine_similarity",
    "depthwise_conv2d",
    "depthwise_separable_conv2d",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "embedding_bag",
    "embedding_pullback",
    "fold",
    "geglu",
    "gelu",
    "gelu_slope",
    "global_avg_pool2d",
    "glu",
    "grid_sample",
    "group_norm",
    "gru",
    "gru_cell",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "instance_norm",
    "interpolate",
    "layer_norm",
    "leaky_relu",
    "linear",
    "local_response_norm",
    "log_sigmoid",
    "log_softmax",
    "log_softmax_pullback",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "lstm",
    "lstm_cell",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool_indices",
    "max_pool_pullback",
    "max_pool_pushforward",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mish_slope",
    "multi_head_attention",
    "norm_pullback",
    "norm_weight_pullback",
    "normalize",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "recurrent_pullback",
    "recurrent_states",
    "relu",
    "relu6",
    "rms_norm",
    "rnn",
    "rnn_cell",
    "rope",
    "sampled",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "silu_slope",
    "soft_shrink",
    "softmax",
    "softmax_pullback",
    "softmin",
    "softplus",
    "softsign",
    "swiglu",
    "tanh_shrink",
    "threshold",
    "unfold",
]

@overload
def adaptive_avg_pool1d(x: V, *, size: Any, tape: Tape | None = None) -> V:
    """Adaptive average pooling over the last axis: the mean of each of ``size`` windows."""
@overload
def adaptive_avg_pool1d(x: Plain, *, size: Any, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def adaptive_avg_pool2d(x: V, *, size: Any, tape: Tape | None = None) -> V:
    """Adaptive average pooling over the last two axes: the mean of each of ``size`` windows."""
@overload
def adaptive_avg_pool2d(x: Plain, *, size: Any, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def adaptive_avg_pool3d(x: V, *, size: Any, tape: Tape | None = None) -> V:
    """Adaptive average pooling over the last three axes: the mean of each of ``size`` windows."""
@overload
def adaptive_avg_pool3d(x: Plain, *, size: Any, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def adaptive_max_pool1d(
    x: V, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> V:
    """Adaptive max pooling over the last axis: the maximum of each of ``size`` windows."""
@overload
def adaptive_max_pool1d(
    x: Plain, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def adaptive_max_pool2d(
    x: V, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> V:
    """Adaptive max pooling over the last two axes: the maximum of each of ``size`` windows."""
@overload
def adaptive_max_pool2d(
    x: Plain, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def adaptive_max_pool3d(
    x: V, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> V:
    """Adaptive max pooling over the last three axes: the maximum of each of ``size`` windows."""
@overload
def adaptive_max_pool3d(
    x: Plain, *, size: Any, return_indices: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def affine_grid(theta: V, size: Any, *, align_corners: bool = False, tape: Tape | None = None) -> V:
    """The places that affine maps give to the elements of images, for ``grid_sample``."""
@overload
def affine_grid(
    theta: Plain, size: Any, *, align_corners: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def attention_pullback(
    cotangent: V,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> V:
    """VJP of ``scaled_dot_product_attention`` in one operand."""
@overload
def attention_pullback(
    cotangent: Plain,
    q: V,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def attention_pullback(
    cotangent: Plain,
    q: Plain,
    k: V,
    v: Operand,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def attention_pullback(
    cotangent: Plain,
    q: Plain,
    k: Plain,
    v: V,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def attention_pullback(
    cotangent: Plain,
    q: Plain,
    k: Plain,
    v: Plain,
    mask: V,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def attention_pullback(
    cotangent: Plain,
    q: Plain,
    k: Plain,
    v: Plain,
    mask: Plain | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
    tape: Tape | None = None,
) -> Array: ...
avg_pool1d: AveragePooling
"""Mean of each window over the last axis."""
avg_pool2d: AveragePooling
"""Mean of each window over the last two axes."""
avgpool2d = avg_pool2d
avg_pool3d: AveragePooling
"""Mean of each window over the last three axes."""

@overload
def avg_pool_pullback(
    cotangent: V,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """VJP of average pooling of an array of ``spec``: spread each cotangent over its window."""
@overload
def avg_pool_pullback(
    cotangent: Plain,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def batch_norm(
    x: V,
    running_mean: Operand | None = None,
    running_var: Operand | None = None,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V:
    """Batch norm: standardize each channel by its batch in training, else by running statistics."""
@overload
def batch_norm(
    x: Plain,
    running_mean: V,
    running_var: Operand | None = None,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def batch_norm(
    x: Plain,
    running_mean: Plain | None,
    running_var: V,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def batch_norm(
    x: Plain,
    running_mean: Plain | None,
    running_var: Plain | None,
    weight: V,
    bias: Operand | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def batch_norm(
    x: Plain,
    running_mean: Plain | None,
    running_var: Plain | None,
    weight: Plain | None,
    bias: V,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def batch_norm(
    x: Plain,
    running_mean: Plain | None = None,
    running_var: Plain | None = None,
    weight: Plain | None = None,
    bias: Plain | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def bilinear(
    x1: V, x2: Operand, weight: Operand, bias: Operand | None = None, *, tape: Tape | None = None
) -> V:
    """Bilinear layer: ``x1 @ weight[k] @ x2`` for each result k, plus a bias."""
@overload
def bilinear(
    x1: Plain, x2: V, weight: Operand, bias: Operand | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def bilinear(
    x1: Plain, x2: Plain, weight: V, bias: Operand | None = None, *, tape: Tape | None = None
) -> V: ...
@overload
def bilinear(x1: Plain, x2: Plain, weight: Plain, bias: V, *, tape: Tape | None = None) -> V: ...
@overload
def bilinear(
    x1: Plain, x2: Plain, weight: Plain, bias: Plain | None = None, *, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def cdist(
    x1: V, x2: Operand, *, p: float = 2.0, squared: bool = False, tape: Tape | None = None
) -> V:
    """Pairwise distances between two sets of vectors."""
@overload
def cdist(
    x1: Plain, x2: V, *, p: float = 2.0, squared: bool = False, tape: Tape | None = None
) -> V: ...
@overload
def cdist(
    x1: Plain, x2: Plain, *, p: float = 2.0, squared: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def celu(x: V, /, *, alpha: float = 1.0, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``alpha * (e**(x / alpha) - 1)`` elsewhere."""
@overload
def celu(x: Scalar, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Any: ...
@overload
def celu(x: Plain, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Array: ...

@overload
def channel_shuffle(x: V, *, groups: int, tape: Tape | None = None) -> V:
    """Channel shuffle: the first channel of each group, then the second of each, and so on."""
@overload
def channel_shuffle(x: Plain, *, groups: int, tape: Tape | None = None) -> ArrayOrScalar: ...
conv1d: Convolution
"""Convolution of signals: at each position, the sum of a window times a weight."""
conv2d: Convolution
"""Convolution of images: at each position, the sum of a window times a weight."""
conv3d: Convolution
"""Convolution of volumes: at each position, the sum of a window times a weight."""
conv_transpose1d: TransposedConvolution
"""Transposed convolution: each element adds the window, times itself, to the result."""
conv_transpose2d: TransposedConvolution
"""Transposed convolution: each element adds the window, times itself, to the result."""
conv_transpose3d: TransposedConvolution
"""Transposed convolution: each element adds the window, times itself, to the result."""

@overload
def convolution_input(
    y: V,
    weight: Operand,
    /,
    size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> V:
    """VJP of a convolution in its images, for the cotangent of its result."""
@overload
def convolution_input(
    y: Plain,
    weight: V,
    /,
    size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def convolution_input(
    y: Plain,
    weight: Plain,
    /,
    size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def convolution_weight(
    y: V,
    x: Operand,
    /,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> V:
    """VJP of a convolution in its weight, for the cotangent of its result."""
@overload
def convolution_weight(
    y: Plain,
    x: V,
    /,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def convolution_weight(
    y: Plain,
    x: Plain,
    /,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def cosine_similarity(
    x1: V, x2: Operand, *, axis: int = -1, eps: float = 1e-08, tape: Tape | None = None
) -> V:
    """Cosine similarity: the dot product of vectors over the product of their lengths."""
@overload
def cosine_similarity(
    x1: Plain, x2: V, *, axis: int = -1, eps: float = 1e-08, tape: Tape | None = None
) -> V: ...
@overload
def cosine_similarity(
    x1: Plain, x2: Plain, *, axis: int = -1, eps: float = 1e-08, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def depthwise_conv2d(
    x: V,
    weight: Operand,
    bias: Operand | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V:
    """Depthwise convolution: ``conv2d`` with a group for each channel."""
@overload
def depthwise_conv2d(
    x: Plain,
    weight: V,
    bias: Operand | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V: ...
@overload
def depthwise_conv2d(
    x: Plain,
    weight: Plain,
    bias: V,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V: ...
@overload
def depthwise_conv2d(
    x: Plain,
    weight: Plain,
    bias: Plain | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> Array: ...

@overload
def depthwise_separable_conv2d(
    x: V,
    depthwise: Operand,
    pointwise: Operand,
    bias: Operand | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V:
    """Depthwise separable convolution: a depthwise, then a pointwise (1x1) convolution."""
@overload
def depthwise_separable_conv2d(
    x: Plain,
    depthwise: V,
    pointwise: Operand,
    bias: Operand | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V: ...
@overload
def depthwise_separable_conv2d(
    x: Plain,
    depthwise: Plain,
    pointwise: V,
    bias: Operand | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V: ...
@overload
def depthwise_separable_conv2d(
    x: Plain,
    depthwise: Plain,
    pointwise: Plain,
    bias: V,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V: ...
@overload
def depthwise_separable_conv2d(
    x: Plain,
    depthwise: Plain,
    pointwise: Plain,
    bias: Plain | None = None,
    /,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> Array: ...
dropout: Dropout
"""Dropout: in training zero numbers at random and scale the others."""
dropout1d: Dropout
"""Dropout of whole channels of ``x``, of shape (N, C, L)."""
dropout2d: Dropout
"""Dropout of whole channels of ``x``, of shape (N, C, H, W)."""
dropout3d: Dropout
"""Dropout of whole channels of ``x``, of shape (N, C, D, H, W)."""

@overload
def elu(x: V, /, *, alpha: float = 1.0, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``alpha * (e**x - 1)`` elsewhere."""
@overload
def elu(x: Scalar, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Any: ...
@overload
def elu(x: Plain, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Array: ...

@overload
def embedding(
    indices: V, weight: Operand, /, *, padding_index: int | None = None, tape: Tape | None = None
) -> V:
    """The rows of ``weight`` that ``indices`` name."""
@overload
def embedding(
    indices: Plain, weight: V, /, *, padding_index: int | None = None, tape: Tape | None = None
) -> V: ...
@overload
def embedding(
    indices: Plain, weight: Plain, /, *, padding_index: int | None = None, tape: Tape | None = None
) -> Array: ...

@overload
def embedding_bag(
    indices: V, weight: Operand, *, mode: str = "mean", tape: Tape | None = None
) -> V:
    """The mean, the sum or the largest, by element, of the rows that each bag of indices names."""
@overload
def embedding_bag(
    indices: Plain, weight: V, *, mode: str = "mean", tape: Tape | None = None
) -> V: ...
@overload
def embedding_bag(
    indices: Plain, weight: Plain, *, mode: str = "mean", tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def embedding_pullback(
    cotangent: V,
    indices: Operand,
    /,
    *,
    padding_index: int | None = None,
    spec: Spec,
    tape: Tape | None = None,
) -> V:
    """A cotangent of ``embedding``, added up in rows of a matrix like ``spec``, in its order."""
@overload
def embedding_pullback(
    cotangent: Plain,
    indices: V,
    /,
    *,
    padding_index: int | None = None,
    spec: Spec,
    tape: Tape | None = None,
) -> V: ...
@overload
def embedding_pullback(
    cotangent: Plain,
    indices: Plain,
    /,
    *,
    padding_index: int | None = None,
    spec: Spec,
    tape: Tape | None = None,
) -> Array: ...

@overload
def fold(
    x: V,
    /,
    *,
    size: Any,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V:
    """Sum columns of windows into images: the transpose of ``unfold``."""
@overload
def fold(
    x: Plain,
    /,
    *,
    size: Any,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> Array: ...

@overload
def geglu(x: V, *, axis: int = -1, tape: Tape | None = None) -> V:
    """Gated linear unit: the first half of ``x`` times the gelu of the second."""
@overload
def geglu(x: Plain, *, axis: int = -1, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def gelu(x: V, /, *, approximate: str = "none", tape: Tape | None = None) -> V:
    """Elementwise ``x`` times the chance that a standard normal number is below ``x``."""
@overload
def gelu(x: Scalar, /, *, approximate: str = "none", tape: Tape | None = None) -> Any: ...
@overload
def gelu(x: Plain, /, *, approximate: str = "none", tape: Tape | None = None) -> Array: ...

@overload
def gelu_slope(x: V, /, *, approximate: str = "none", tape: Tape | None = None) -> V:
    """Elementwise derivative of ``gelu``."""
@overload
def gelu_slope(x: Scalar, /, *, approximate: str = "none", tape: Tape | None = None) -> Any: ...
@overload
def gelu_slope(x: Plain, /, *, approximate: str = "none", tape: Tape | None = None) -> Array: ...

@overload
def global_avg_pool2d(x: V, /, *, tape: Tape | None = None) -> V:
    """Mean of each image over its last two axes, which are kept at length 1."""
@overload
def global_avg_pool2d(x: Plain, /, *, tape: Tape | None = None) -> Array: ...
global_avgpool2d = global_avg_pool2d

@overload
def glu(x: V, *, axis: int = -1, tape: Tape | None = None) -> V:
    """Gated linear unit: the first half of ``x`` times the sigmoid of the second."""
@overload
def glu(x: Plain, *, axis: int = -1, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def grid_sample(
    x: V,
    grid: Any,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    tape: Tape | None = None,
) -> V:
    """Images read at places of a grid, from -1 to 1 along each axis, and between them."""
@overload
def grid_sample(
    x: Plain,
    grid: Any,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def group_norm(
    x: V,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    groups: int,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V:
    """Group norm: standardize each group of channels, times ``weight``, plus ``bias``."""
@overload
def group_norm(
    x: Plain,
    weight: V,
    bias: Operand | None = None,
    *,
    groups: int,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def group_norm(
    x: Plain,
    weight: Plain | None,
    bias: V,
    *,
    groups: int,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def group_norm(
    x: Plain,
    weight: Plain | None = None,
    bias: Plain | None = None,
    *,
    groups: int,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def gru(
    x: V, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None, *, tape: Tape | None = None
) -> tuple[V, V]:
    """Gated recurrent unit (GRU) over a sequence: ``gru_cell`` at each time."""
@overload
def gru(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b_x: Any = None,
    b_h: Any = None,
    *,
    tape: Tape | None = None,
) -> tuple[Array, Array]: ...

@overload
def gru_cell(
    x: V, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None, *, tape: Tape | None = None
) -> V:
    """One step of a gated recurrent unit (GRU)."""
@overload
def gru_cell(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b_x: Any = None,
    b_h: Any = None,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def hard_shrink(x: V, /, *, lambd: float = 0.5, tape: Tape | None = None) -> V:
    """Elementwise ``x``; 0 between ``-lambd`` and ``lambd``."""
@overload
def hard_shrink(x: Scalar, /, *, lambd: float = 0.5, tape: Tape | None = None) -> Any: ...
@overload
def hard_shrink(x: Plain, /, *, lambd: float = 0.5, tape: Tape | None = None) -> Array: ...
hardshrink = hard_shrink
hard_sigmoid: Unary
"""Elementwise ``relu6(x + 3) / 6``."""
hardsigmoid = hard_sigmoid
hard_swish: Unary
"""Elementwise ``x * relu6(x + 3) / 6``."""
hardswish = hard_swish

@overload
def hard_tanh(
    x: V, /, *, min_val: float = -1.0, max_val: float = 1.0, tape: Tape | None = None
) -> V:
    """Elementwise ``x`` between ``min_val`` and ``max_val``, and these beyond."""
@overload
def hard_tanh(
    x: Scalar, /, *, min_val: float = -1.0, max_val: float = 1.0, tape: Tape | None = None
) -> Any: ...
@overload
def hard_tanh(
    x: Plain, /, *, min_val: float = -1.0, max_val: float = 1.0, tape: Tape | None = None
) -> Array: ...
hardtanh = hard_tanh

@overload
def instance_norm(
    x: V,
    weight: Operand | None = None,
    bias: Operand | None = None,
    *,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V:
    """Instance norm: standardize each channel of each image, times ``weight``, plus ``bias``."""
@overload
def instance_norm(
    x: Plain,
    weight: V,
    bias: Operand | None = None,
    *,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def instance_norm(
    x: Plain, weight: Plain | None, bias: V, *, eps: float = 1e-05, tape: Tape | None = None
) -> V: ...
@overload
def instance_norm(
    x: Plain,
    weight: Plain | None = None,
    bias: Plain | None = None,
    *,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def interpolate(
    x: V,
    *,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    tape: Tape | None = None,
) -> V:
    """Images of another size, each element made of those that lie around its place."""
@overload
def interpolate(
    x: Plain,
    *,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def layer_norm(
    x: V,
    weight: Operand | None = None,
    bias: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V:
    """Layer norm: ``(x - mean) / deviation`` along ``axis``, times ``weight``, plus ``bias``."""
@overload
def layer_norm(
    x: Plain,
    weight: V,
    bias: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def layer_norm(
    x: Plain,
    weight: Plain | None,
    bias: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> V: ...
@overload
def layer_norm(
    x: Plain,
    weight: Plain | None = None,
    bias: Plain | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-05,
    tape: Tape | None = None,
) -> Array: ...

@overload
def leaky_relu(x: V, /, *, negative_slope: float = 0.01, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``negative_slope * x`` elsewhere."""
@overload
def leaky_relu(x: Scalar, /, *, negative_slope: float = 0.01, tape: Tape | None = None) -> Any: ...
@overload
def leaky_relu(x: Plain, /, *, negative_slope: float = 0.01, tape: Tape | None = None) -> Array: ...

@overload
def linear(x: V, weight: Operand, bias: Operand | None = None, /, *, tape: Tape | None = None) -> V:
    """Linear layer, ``x @ weight.T + bias``, for ``weight`` of shape (out, in)."""
@overload
def linear(
    x: Plain, weight: V, bias: Operand | None = None, /, *, tape: Tape | None = None
) -> V: ...
@overload
def linear(x: Plain, weight: Plain, bias: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def linear(
    x: Plain, weight: Plain, bias: Plain | None = None, /, *, tape: Tape | None = None
) -> Array: ...

@overload
def local_response_norm(
    x: V,
    *,
    size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    k: float = 1.0,
    tape: Tape | None = None,
) -> V:
    """Local response norm: ``x / (k + alpha * m)**beta``, m a mean square over channels."""
@overload
def local_response_norm(
    x: Plain,
    *,
    size: int,
    alpha: float = 0.0001,
    beta: float = 0.75,
    k: float = 1.0,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
log_sigmoid: Unary
"""Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""
logsigmoid = log_sigmoid
log_expit = log_sigmoid

@overload
def log_softmax(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
@overload
def log_softmax(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...

@overload
def log_softmax_pullback(t: V, z: Operand, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """VJP of ``log_softmax``, from its result ``z``."""
@overload
def log_softmax_pullback(t: Plain, z: V, /, axis: int = -1, *, tape: Tape | None = None) -> V: ...
@overload
def log_softmax_pullback(
    t: Plain, z: Plain, /, axis: int = -1, *, tape: Tape | None = None
) -> Array: ...

@overload
def lp_pool1d(x: V, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None) -> V:
    """Lp pooling over the last axis: ``sum(x**p)**(1 / p)`` of each window."""
@overload
def lp_pool1d(
    x: Plain, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def lp_pool2d(x: V, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None) -> V:
    """Lp pooling over the last two axes: ``sum(x**p)**(1 / p)`` of each window."""
@overload
def lp_pool2d(
    x: Plain, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def lp_pool3d(x: V, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None) -> V:
    """Lp pooling over the last three axes: ``sum(x**p)**(1 / p)`` of each window."""
@overload
def lp_pool3d(
    x: Plain, *, p: float, window: Any, stride: Any = None, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def lstm(
    x: V, state: Any, w_x: Any, w_h: Any, b: Operand | None = None, *, tape: Tape | None = None
) -> tuple[V, tuple[V, V]]:
    """Long short-term memory (LSTM) over a sequence: ``lstm_cell`` at each time."""
@overload
def lstm(
    x: Plain, state: Any, w_x: Any, w_h: Any, b: V, *, tape: Tape | None = None
) -> tuple[V, tuple[V, V]]: ...
@overload
def lstm(
    x: Plain, state: Any, w_x: Any, w_h: Any, b: Plain | None = None, *, tape: Tape | None = None
) -> tuple[Array, tuple[Array, Array]]: ...

@overload
def lstm_cell(
    x: V, state: Any, w_x: Any, w_h: Any, b: Operand | None = None, *, tape: Tape | None = None
) -> tuple[V, V]:
    """One step of a long short-term memory (LSTM)."""
@overload
def lstm_cell(
    x: Plain, state: Any, w_x: Any, w_h: Any, b: V, *, tape: Tape | None = None
) -> tuple[V, V]: ...
@overload
def lstm_cell(
    x: Plain, state: Any, w_x: Any, w_h: Any, b: Plain | None = None, *, tape: Tape | None = None
) -> tuple[Array, Array]: ...
max_pool1d: MaxPooling
"""Largest element of each window over the last axis; NaN if one is NaN."""
max_pool2d: MaxPooling
"""Largest element of each window over the last two axes; NaN if one is NaN."""
maxpool2d = max_pool2d
max_pool3d: MaxPooling
"""Largest element of each window over the last three axes; NaN if one is NaN."""

@overload
def max_pool_indices(
    x: V,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Index of the first maximum of each window in its flattened image; a constant."""
@overload
def max_pool_indices(
    x: Plain,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def max_pool_pullback(
    cotangent: V,
    x: Operand,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """VJP of max pooling: share each cotangent evenly among the maxima of its window."""
@overload
def max_pool_pullback(
    cotangent: Plain,
    x: V,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def max_pool_pullback(
    cotangent: Plain,
    x: Plain,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def max_pool_pushforward(
    t: V,
    x: Operand,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """JVP of max pooling: mean of ``t`` over the maxima of each window of ``x``."""
@overload
def max_pool_pushforward(
    t: Plain,
    x: V,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> V: ...
@overload
def max_pool_pushforward(
    t: Plain,
    x: Plain,
    /,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...
max_unpool1d: Unpooling
"""Max unpooling of signals: ``x`` at ``indices``, else 0; the inverse of ``max_pool1d``."""
max_unpool2d: Unpooling
"""Max unpooling of images: ``x`` at ``indices``, else 0; the inverse of ``max_pool2d``."""
max_unpool3d: Unpooling
"""Max unpooling of volumes: ``x`` at ``indices``, else 0; the inverse of ``max_pool3d``."""
mish: Unary
"""Elementwise ``x * tanh(log(1 + e**x))``."""
mish_slope: Unary
"""Elementwise derivative of ``mish``."""

@overload
def multi_head_attention(
    q: V,
    k: Operand,
    v: Operand,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: Operand | None = None,
    causal: bool = False,
    tape: Tape | None = None,
) -> V:
    """Multi-head attention with projections, as in a transformer."""
@overload
def multi_head_attention(
    q: Plain,
    k: V,
    v: Operand,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: Operand | None = None,
    causal: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def multi_head_attention(
    q: Plain,
    k: Plain,
    v: V,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: Operand | None = None,
    causal: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def multi_head_attention(
    q: Plain,
    k: Plain,
    v: Plain,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: V,
    causal: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def multi_head_attention(
    q: Plain,
    k: Plain,
    v: Plain,
    w_q: Any,
    w_k: Any,
    w_v: Any,
    w_o: Any,
    b_q: Any = None,
    b_k: Any = None,
    b_v: Any = None,
    b_o: Any = None,
    *,
    heads: int,
    mask: Plain | None = None,
    causal: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def norm_pullback(
    cotangent: V,
    x: Operand,
    inverse: Operand,
    mean: Operand | None = None,
    weight: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> V:
    """VJP of ``weight * (x - mean) * inverse`` in ``x``, including through both moments."""
@overload
def norm_pullback(
    cotangent: Plain,
    x: V,
    inverse: Operand,
    mean: Operand | None = None,
    weight: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: V,
    mean: Operand | None = None,
    weight: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: Plain,
    mean: V,
    weight: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: Plain,
    mean: Plain | None,
    weight: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: Plain,
    mean: Plain | None = None,
    weight: Plain | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    tape: Tape | None = None,
) -> Array: ...

@overload
def norm_weight_pullback(
    cotangent: V,
    x: Operand,
    inverse: Operand,
    mean: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...],
    tape: Tape | None = None,
) -> V:
    """VJP of ``weight * (x - mean) * inverse`` in ``weight``, of ``shape``."""
@overload
def norm_weight_pullback(
    cotangent: Plain,
    x: V,
    inverse: Operand,
    mean: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...],
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_weight_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: V,
    mean: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...],
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_weight_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: Plain,
    mean: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...],
    tape: Tape | None = None,
) -> V: ...
@overload
def norm_weight_pullback(
    cotangent: Plain,
    x: Plain,
    inverse: Plain,
    mean: Plain | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    shape: tuple[int, ...],
    tape: Tape | None = None,
) -> Array: ...

@overload
def normalize(
    x: V, *, p: float = 2.0, axis: int = 1, eps: float = 1e-12, tape: Tape | None = None
) -> V:
    """Normalize vectors to p-norm 1."""
@overload
def normalize(
    x: Plain, *, p: float = 2.0, axis: int = 1, eps: float = 1e-12, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def pairwise_distance(
    x1: V,
    x2: Operand,
    *,
    p: float = 2.0,
    eps: float = 1e-06,
    keepdims: bool = False,
    squared: bool = False,
    tape: Tape | None = None,
) -> V:
    """Distance of vectors along the last axis: ``sum(|x1 - x2 + eps|**p)**(1 / p)``."""
@overload
def pairwise_distance(
    x1: Plain,
    x2: V,
    *,
    p: float = 2.0,
    eps: float = 1e-06,
    keepdims: bool = False,
    squared: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def pairwise_distance(
    x1: Plain,
    x2: Plain,
    *,
    p: float = 2.0,
    eps: float = 1e-06,
    keepdims: bool = False,
    squared: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def pdist(x: V, *, p: float = 2.0, squared: bool = False, tape: Tape | None = None) -> V:
    """Pairwise distances between the rows of a matrix."""
@overload
def pdist(
    x: Plain, *, p: float = 2.0, squared: bool = False, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def pixel_shuffle(x: V, *, upscale_factor: int, tape: Tape | None = None) -> V:
    """Pixel shuffle: rearrange (..., C r², H, W) to (..., C, H r, W r)."""
@overload
def pixel_shuffle(x: Plain, *, upscale_factor: int, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def pixel_unshuffle(x: V, *, downscale_factor: int, tape: Tape | None = None) -> V:
    """Pixel unshuffle: rearrange (..., C, H r, W r) to (..., C r², H, W)."""
@overload
def pixel_unshuffle(
    x: Plain, *, downscale_factor: int, tape: Tape | None = None
) -> ArrayOrScalar: ...

@overload
def prelu(x: V, weight: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``weight * x`` elsewhere; a weight for each channel."""
@overload
def prelu(x: Plain, weight: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def prelu(x: Plain, weight: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def recurrent_pullback(
    cotangent: V,
    x: Operand,
    state: Operand,
    w: Operand,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> V:
    """VJP of ``recurrent_states`` in one operand."""
@overload
def recurrent_pullback(
    cotangent: Plain,
    x: V,
    state: Operand,
    w: Operand,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_pullback(
    cotangent: Plain,
    x: Plain,
    state: V,
    w: Operand,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_pullback(
    cotangent: Plain,
    x: Plain,
    state: Plain,
    w: V,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_pullback(
    cotangent: Plain,
    x: Plain,
    state: Plain,
    w: Plain,
    b: V,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_pullback(
    cotangent: Plain,
    x: Plain,
    state: Plain,
    w: Plain,
    b: Plain | None = None,
    /,
    *,
    cell: str,
    operand: str,
    tape: Tape | None = None,
) -> Array: ...

@overload
def recurrent_states(
    x: V,
    state: Operand,
    w: Operand,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    tape: Tape | None = None,
) -> V:
    """States of a recurrent cell after each step, (times, states, ..., width)."""
@overload
def recurrent_states(
    x: Plain,
    state: V,
    w: Operand,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_states(
    x: Plain,
    state: Plain,
    w: V,
    b: Operand | None = None,
    /,
    *,
    cell: str,
    tape: Tape | None = None,
) -> V: ...
@overload
def recurrent_states(
    x: Plain, state: Plain, w: Plain, b: V, /, *, cell: str, tape: Tape | None = None
) -> V: ...
@overload
def recurrent_states(
    x: Plain,
    state: Plain,
    w: Plain,
    b: Plain | None = None,
    /,
    *,
    cell: str,
    tape: Tape | None = None,
) -> Array: ...
relu: Unary
"""Elementwise rectifier, ``max(x, 0)``."""
relu6: Unary
"""Elementwise ``x`` between 0 and 6, and these beyond."""

@overload
def rms_norm(
    x: V,
    weight: Operand | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-06,
    tape: Tape | None = None,
) -> V:
    """RMS norm: ``x`` over its root mean square along ``axis``, times ``weight`` if given."""
@overload
def rms_norm(
    x: Plain,
    weight: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-06,
    tape: Tape | None = None,
) -> V: ...
@overload
def rms_norm(
    x: Plain,
    weight: Plain | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    eps: float = 1e-06,
    tape: Tape | None = None,
) -> Array: ...

@overload
def rnn(
    x: V,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: Operand | None = None,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> tuple[V, V]:
    """A simple recurrent layer over a sequence: ``rnn_cell`` at each time."""
@overload
def rnn(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: V,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> tuple[V, V]: ...
@overload
def rnn(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: Plain | None = None,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> tuple[Array, Array]: ...

@overload
def rnn_cell(
    x: V,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: Operand | None = None,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> V:
    """One step of a simple recurrent layer, ``tanh(x @ w_x.T + h @ w_h.T + b)``."""
@overload
def rnn_cell(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: V,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> V: ...
@overload
def rnn_cell(
    x: Plain,
    h: Any,
    w_x: Any,
    w_h: Any,
    b: Plain | None = None,
    *,
    activation: str = "tanh",
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def rope(x: V, positions: Operand, /, *, base: float = 10000.0, tape: Tape | None = None) -> V:
    """Rotary position embedding: rotate pairs of elements by angles that grow with the position."""
@overload
def rope(x: Plain, positions: V, /, *, base: float = 10000.0, tape: Tape | None = None) -> V: ...
@overload
def rope(
    x: Plain, positions: Plain, /, *, base: float = 10000.0, tape: Tape | None = None
) -> Array: ...

@overload
def sampled(
    x: V,
    /,
    axis: int,
    lengths: tuple[int, int],
    mode: str,
    step: float,
    align_corners: bool = False,
    back: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Elements along an axis between, or beside, those of ``x``; ``interpolate`` is made of it."""
@overload
def sampled(
    x: Plain,
    /,
    axis: int,
    lengths: tuple[int, int],
    mode: str,
    step: float,
    align_corners: bool = False,
    back: bool = False,
    *,
    tape: Tape | None = None,
) -> Array: ...

@overload
def scaled_dot_product_attention(
    q: V,
    k: Operand,
    v: Operand,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    tape: Tape | None = None,
) -> V:
    """Scaled dot-product attention, ``softmax(scale * q @ k.T + mask) @ v``."""
@overload
def scaled_dot_product_attention(
    q: Plain,
    k: V,
    v: Operand,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def scaled_dot_product_attention(
    q: Plain,
    k: Plain,
    v: V,
    mask: Operand | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def scaled_dot_product_attention(
    q: Plain,
    k: Plain,
    v: Plain,
    mask: V,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def scaled_dot_product_attention(
    q: Plain,
    k: Plain,
    v: Plain,
    mask: Plain | None = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    tape: Tape | None = None,
) -> Array: ...
selu: Unary
"""Elementwise elu with the scale and alpha that keep mean 0 and variance 1."""
sigmoid: Unary
"""Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
expit = sigmoid
silu: Unary
"""Elementwise ``x * sigmoid(x)``, also called swish."""
swish = silu
silu_slope: Unary
"""Elementwise derivative of ``silu``."""

@overload
def soft_shrink(x: V, /, *, lambd: float = 0.5, tape: Tape | None = None) -> V:
    """Elementwise ``x`` moved towards 0 by ``lambd``; 0 between ``-lambd`` and ``lambd``."""
@overload
def soft_shrink(x: Scalar, /, *, lambd: float = 0.5, tape: Tape | None = None) -> Any: ...
@overload
def soft_shrink(x: Plain, /, *, lambd: float = 0.5, tape: Tape | None = None) -> Array: ...
softshrink = soft_shrink

@overload
def softmax(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Softmax: exponentials along ``axis`` divided by their sum."""
@overload
def softmax(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...

@overload
def softmax_pullback(t: V, s: Operand, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """The cotangent of what ``softmax`` was given, of that of its result, ``t``, and its result."""
@overload
def softmax_pullback(t: Plain, s: V, /, axis: int = -1, *, tape: Tape | None = None) -> V: ...
@overload
def softmax_pullback(
    t: Plain, s: Plain, /, axis: int = -1, *, tape: Tape | None = None
) -> Array: ...

@overload
def softmin(x: V, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Softmin: exponentials of ``-x`` along ``axis`` divided by their sum."""
@overload
def softmin(x: Plain, axis: int = -1, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def softplus(x: V, /, *, beta: float = 1.0, tape: Tape | None = None) -> V:
    """Elementwise ``log(1 + e**(beta x)) / beta``, exact at every size: there is no threshold."""
@overload
def softplus(x: Scalar, /, *, beta: float = 1.0, tape: Tape | None = None) -> Any: ...
@overload
def softplus(x: Plain, /, *, beta: float = 1.0, tape: Tape | None = None) -> Array: ...
softsign: Unary
"""Elementwise ``x / (1 + |x|)``."""

@overload
def swiglu(x: V, *, axis: int = -1, tape: Tape | None = None) -> V:
    """Gated linear unit: the first half of ``x`` times the silu, or swish, of the second."""
@overload
def swiglu(x: Plain, *, axis: int = -1, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def tanh_shrink(x: V, *, tape: Tape | None = None) -> V:
    """Elementwise ``x - tanh(x)``."""
@overload
def tanh_shrink(x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
tanhshrink = tanh_shrink

@overload
def threshold(x: V, /, *, threshold: float, value: float, tape: Tape | None = None) -> V:
    """Elementwise ``x`` above ``threshold``, and ``value`` elsewhere."""
@overload
def threshold(x: Scalar, /, *, threshold: float, value: float, tape: Tape | None = None) -> Any: ...
@overload
def threshold(
    x: Plain, /, *, threshold: float, value: float, tape: Tape | None = None
) -> Array: ...

@overload
def unfold(
    x: V,
    /,
    *,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> V:
    """Unfold sliding windows of images into columns."""
@overload
def unfold(
    x: Plain,
    /,
    *,
    window: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    tape: Tape | None = None,
) -> Array: ...

@overload
def one_hot(
    indices: V,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: Tape | None = None,
) -> V:
    """One-hot encoding: ones at the given class indices and zeros elsewhere; a constant."""
@overload
def one_hot(
    indices: Plain,
    num_classes: int,
    *,
    dtype: DTypeLike = ...,
    axis: int = -1,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: V,
    std: Operand = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random numbers normally distributed with a mean and a standard deviation."""
@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: Plain = 0.0,
    std: V,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def random_normal(
    shape: int | Sequence[int],
    *,
    mean: Plain = 0.0,
    std: Plain = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: V,
    high: Operand = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V:
    """Random numbers uniformly distributed in the interval ``[low, high)``."""
@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: Plain = 0.0,
    high: V,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> V: ...
@overload
def random_uniform(
    shape: int | Sequence[int],
    *,
    low: Plain = 0.0,
    high: Plain = 1.0,
    dtype: DTypeLike = ...,
    rng: Any = None,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
