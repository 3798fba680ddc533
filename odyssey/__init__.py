"""odyssey: automatic differentiation on an explicit tape, with one table of ops.

>>> import odyssey as od
>>> w = od.Variable(3.0, requires_grad=True)
>>> with od.GradientTape() as tape:
...     loss = (w - 1.0) ** 2
>>> float(tape.gradient(loss, w))
4.0
"""

from importlib import import_module
from types import ModuleType

from odyssey import backward, errors, linalg, losses, nn, ops, optim, special
from odyssey.compiler import compile
from odyssey.losses import (
    LossAndGrad,
    bce_loss_and_grad,
    binary_cross_entropy,
    ce_loss_and_grad,
    compute_bce_gradient,
    compute_ce_gradient,
    compute_gradient,
    compute_mse_gradient,
    cross_entropy,
    focal,
    hinge,
    huber,
    kl_divergence,
    mean_absolute_error,
    mean_squared_error,
    mse_loss_and_grad,
    nll,
    smooth_l1,
)
from odyssey.ops import no_grad, op
from odyssey.saving import load, save
from odyssey.tape import Gradients, GradientTape, TapeNode
from odyssey.transforms import (
    checkpoint,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
)
from odyssey.variable import Variable

__version__ = "0.1.0"

__all__ = [
    "GradientTape",
    "Gradients",
    "LossAndGrad",
    "TapeNode",
    "Variable",
    "backward",
    "bce_loss_and_grad",
    "binary_cross_entropy",
    "checkpoint",
    "ce_loss_and_grad",
    "compile",
    "compute_bce_gradient",
    "compute_ce_gradient",
    "compute_gradient",
    "compute_mse_gradient",
    "cross_entropy",
    "custom_vjp",
    "errors",
    "focal",
    "grad",
    "hessian",
    "hinge",
    "huber",
    "hvp",
    "jacobian",
    "jvp",
    "kl_divergence",
    "linalg",
    "load",
    "losses",
    "mean_absolute_error",
    "mean_squared_error",
    "mse_loss_and_grad",
    "nll",
    "nn",
    "no_grad",
    "op",
    "ops",
    "optim",
    "save",
    "smooth_l1",
    "special",
    "stop_gradient",
    "testing",
    "value_and_grad",
    "vjp",
]


def __getattr__(name: str) -> ModuleType:
    """Import ``odyssey.testing`` when it is first asked for; programs that run do without."""
    if name == "testing":
        return import_module("odyssey.testing")
    raise AttributeError(f"odyssey has no attribute {name!r}")
