"""Transforms: derivatives of functions, checkpointing, custom rules, and control flow.

They nest in one another and in tapes. Where no tape records around them their results are plain
arrays; inside a tape, or inside another transform, they are Variables on it.

>>> import odyssey as od
>>> float(od.grad(od.grad(lambda x: x**3))(2.0))
12.0
"""

from odyssey.transforms.batching import vmap
from odyssey.transforms.checkpointing import checkpoint
from odyssey.transforms.control_flow.cond import cond
from odyssey.transforms.control_flow.scan import scan
from odyssey.transforms.control_flow.while_loop import while_loop
from odyssey.transforms.custom import custom_vjp
from odyssey.transforms.forward import hvp, jvp
from odyssey.transforms.jacobians import hessian, jacobian
from odyssey.transforms.reverse import grad, stop_gradient, value_and_grad, vjp

__all__ = [
    "checkpoint",
    "cond",
    "custom_vjp",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "scan",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]


def __dir__() -> list[str]:
    return sorted(__all__)
