"""odyssey: automatic differentiation on an explicit tape, with one table of ops.

>>> import odyssey as od
>>> w = od.Variable(3.0, requires_grad=True)
>>> with od.GradientTape() as tape:
...     loss = (w - 1.0) ** 2
>>> float(tape.gradient(loss, w))
4.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odyssey import backward, errors, fft, linalg, losses, nn, objective, ops, optim, special
from odyssey.compiler import Dim, compile, get_threads, set_threads
from odyssey.devices.heap import keep_freed_memory
from odyssey.ops import no_grad, op
from odyssey.ops.draws.generator import Generator
from odyssey.saving import load, save
from odyssey.table.published import no_attribute
from odyssey.tape import Gradients, GradientTape, TapeNode
from odyssey.transforms import (
    checkpoint,
    cond,
    custom_vjp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    scan,
    stop_gradient,
    value_and_grad,
    vjp,
    while_loop,
)
from odyssey.variable import Variable

if TYPE_CHECKING:
    from odyssey.losses import *  # noqa: F403

__version__ = "0.1.0"

optim.scipy_objective = objective.scipy_objective

keep_freed_memory()
del keep_freed_memory

__all__ = [
    "Dim",
    "Generator",
    "GradientTape",
    "Gradients",
    "TapeNode",
    "Variable",
    "backward",
    "checkpoint",
    "compile",
    "cond",
    "custom_vjp",
    "errors",
    "fft",
    "get_threads",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linalg",
    "load",
    "losses",
    "nn",
    "no_grad",
    "op",
    "ops",
    "optim",
    "save",
    "scan",
    "set_threads",
    "special",
    "stop_gradient",
    "testing",  # noqa: F405  (see __getattr__)
    "value_and_grad",
    "vjp",
    "while_loop",
]
__all__ += losses.__all__


def __getattr__(name: str) -> Any:
    """Import losses and ``odyssey.testing`` when they are first asked for."""
    if name == "testing":
        return import_module("odyssey.testing")
    if name in losses.__all__:
        value = globals()[name] = getattr(losses, name)
        return value
    raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
