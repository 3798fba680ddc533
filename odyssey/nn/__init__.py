"""Neural networks: activations, softmax, layers, as functions."""

from odyssey.nn.activations import gelu, log_sigmoid, mish, sigmoid, silu, softplus, softsign
from odyssey.nn.layers import linear
from odyssey.nn.rectifiers import (
    elu,
    hard_sigmoid,
    hard_swish,
    hard_tanh,
    leaky_relu,
    prelu,
    relu,
    relu6,
    selu,
)
from odyssey.nn.softmaxes import log_softmax, softmax

__all__ = [
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
]
