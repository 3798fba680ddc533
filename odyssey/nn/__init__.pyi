"""Neural networks: activations, softmax, layers, as functions.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, Operand, Plain, Scalar, Unary, V

__all__ = [
    "attention_pullback",
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
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
]

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
    """The cotangent of one operand of ``scaled_dot_product_attention``, for that of its result."""
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

@overload
def elu(x: V, /, *, alpha: float = 1.0, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``alpha * (e**x - 1)`` elsewhere."""
@overload
def elu(x: Scalar, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Any: ...
@overload
def elu(x: Plain, /, *, alpha: float = 1.0, tape: Tape | None = None) -> Array: ...

@overload
def gelu(x: V, /, *, approximate: str = "none", tape: Tape | None = None) -> V:
    """Elementwise ``x`` times the chance that a standard normal number is below ``x``."""
@overload
def gelu(x: Scalar, /, *, approximate: str = "none", tape: Tape | None = None) -> Any: ...
@overload
def gelu(x: Plain, /, *, approximate: str = "none", tape: Tape | None = None) -> Array: ...
hard_sigmoid: Unary
"""Elementwise ``relu6(x + 3) / 6``."""
hard_swish: Unary
"""Elementwise ``x * relu6(x + 3) / 6``."""

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
log_sigmoid: Unary
"""Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""

@overload
def log_softmax(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
@overload
def log_softmax(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...
mish: Unary
"""Elementwise ``x * tanh(log(1 + e**x))``."""

@overload
def prelu(x: V, weight: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise ``x`` where positive, ``weight * x`` elsewhere; a weight for each channel."""
@overload
def prelu(x: Plain, weight: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def prelu(x: Plain, weight: Plain, /, *, tape: Tape | None = None) -> Array: ...
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
    epsilon: float = 1e-06,
    tape: Tape | None = None,
) -> V:
    """``x`` over the root of its mean square along ``axis``, times ``weight`` if there is one."""
@overload
def rms_norm(
    x: Plain,
    weight: V,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    epsilon: float = 1e-06,
    tape: Tape | None = None,
) -> V: ...
@overload
def rms_norm(
    x: Plain,
    weight: Plain | None = None,
    /,
    *,
    axis: int | tuple[int, ...] | None = -1,
    epsilon: float = 1e-06,
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
    """Values averaged by how well keys fit queries, ``softmax(scale * q @ k.T + mask) @ v``."""
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
silu: Unary
"""Elementwise ``x * sigmoid(x)``, also called swish."""

@overload
def softmax(x: V, /, axis: int = -1, *, tape: Tape | None = None) -> V:
    """Exponentials along ``axis`` divided by their sum."""
@overload
def softmax(x: Plain, /, axis: int = -1, *, tape: Tape | None = None) -> Array: ...

@overload
def softplus(x: V, /, *, beta: float = 1.0, tape: Tape | None = None) -> V:
    """Elementwise ``log(1 + e**(beta x)) / beta``, exact at every size: there is no threshold."""
@overload
def softplus(x: Scalar, /, *, beta: float = 1.0, tape: Tape | None = None) -> Any: ...
@overload
def softplus(x: Plain, /, *, beta: float = 1.0, tape: Tape | None = None) -> Array: ...
softsign: Unary
"""Elementwise ``x / (1 + |x|)``."""
