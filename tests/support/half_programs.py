"""Ops of many steps, which compiled code computes for halves in float32."""

import odyssey as od
from odyssey import ops

MANY_STEPS = {
    "softmax": lambda x, w: ops.softmax(x, axis=-1),
    "gelu": lambda x, w: ops.gelu(x),
    "norm": lambda x, w: od.nn.layer_norm(x),
    "product": lambda x, w: ops.matmul(x, w),
    "largest of rows": lambda x, w: ops.max(x, axis=1),
    "sum of columns": lambda x, w: ops.sum(x, axis=0),
    "sum": lambda x, w: ops.sum(x),
    "mean": lambda x, w: ops.mean(x, axis=0),
    "variance": lambda x, w: ops.var(x, axis=1),
    "running sums": lambda x, w: ops.cumsum(x, axis=0),
    "exponential": lambda x, w: ops.exp(x),
}


def is_native(compiled, *args):
    """Return whether a call runs a program without calls of Python."""
    lines = str(compiled.explain(*args)).split("\n")
    text = "\n".join([line for line in lines if ", guessed; or " not in line])
    return "called" not in text and "calls" not in text and "as it was written" not in text
