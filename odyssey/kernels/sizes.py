"""Minimum sizes for compiled kernels: from how many elements on an op uses them by default.

Sizes count the elements of the largest operand and are measured. Below them NumPy is as fast, or
importing numba (0.4 seconds) takes longer than a kernel saves. Ops without an entry use their
compiled kernels only in ``with od.ops.use_kernels():``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["OPTIMIZER_STEP", "SIZES"]

OPTIMIZER_STEP = "optimizer step"
"""What the table calls the steps of optimizers, which are not in it."""

SIZES: Mapping[str, int] = MappingProxyType(
    {
        # 0.7 of it in single precision, 0.75 to 0.85 backward, 0.9 in double; most is products.
        "scaled_dot_product_attention": 32768,
        "attention_pullback": 32768,
        # On one core 0.3 to 0.8 of NumPy's time; of windows of four 0.3 to 0.5.
        "max_pool2d": 65536,
        "avg_pool2d": 65536,
        # 0.2 of it for windows of four, 0.3 for others; 0.1 to 0.2.
        "max_pool_pullback": 16384,
        "avg_pool_pullback": 16384,
        # Of neighbours and their weights, as bilinear interpolation reads them: 0.2 to 0.5 of it.
        "sampled": 16384,
        # 0.5 to 0.75 of it for few channels, from the fewest elements on; others lose 5 of 40 us
        # with the look whether loops fit.
        "conv1d": 512,
        "conv2d": 512,
        "conv3d": 1 << 14,
        "convolution_input": 512,
        "convolution_weight": 512,
        "depthwise_conv2d": 512,
        "depthwise_separable_conv2d": 1 << 13,
        "add_along_axis": 1 << 14,
        "add_at": 10_000,
        "add_taken": 10_000,
        "cumprod": 10_000,
        "cumsum": 10_000,
        "linear_recurrence": 4_000,  # element by element in NumPy: 20 to 80 times as long
        # 0.5 to 0.6 of it along the last axes; along others, which are left to NumPy, checking if a
        # loop fits takes 2 us.
        "prod": 1 << 14,
        "prod_others": 10_000,
        "reverse_cumsum": 10_000,
        "take_along_axis": 1 << 14,
        "running_argmax": 10_000,
        "running_argmin": 10_000,
        "elu": 1 << 15,
        "erf": 1 << 14,
        "erfc": 1 << 14,
        "gelu": 1 << 14,
        "hard_swish": 1 << 15,
        "leaky_relu": 1 << 15,
        "log_sigmoid": 1 << 15,
        "mish": 1 << 14,
        "selu": 1 << 15,
        "sigmoid": 1 << 15,
        "silu": 1 << 14,
        "softplus": 1 << 15,
        # Elements updated by a step, times its NumPy calls: 0.2 to 0.8 of its time.
        # A step of SGD of 100,000, in cache, gains nothing beside the products of its network.
        OPTIMIZER_STEP: 500_000,
        # 0.3 to 0.4 of it.
        "softmax": 1 << 14,
        "log_softmax": 1 << 14,
        "softmax_pullback": 1 << 14,
        "log_softmax_pullback": 1 << 14,
        "softmax_cross_entropy": 1 << 14,
        # 0.3 to 0.5 of it; of embeddings 0.3 to 0.7.
        "layer_norm": 1 << 15,
        "rms_norm": 1 << 15,
        "norm_pullback": 1 << 15,
        "norm_weight_pullback": 1 << 15,
        "embedding_pullback": 1 << 15,
        # Of products with the inputs. 0.2 to 0.6 of it, most for narrow states.
        "recurrent_states": 1 << 14,
        "recurrent_pullback": 1 << 14,
    }
)
"""By op."""
