"""odyssey: automatic differentiation on an explicit tape, with one table of ops.

>>> import odyssey as od
>>> w = od.Variable(3.0, requires_grad=True)
>>> with od.GradientTape() as tape:
...     loss = (w - 1.0) ** 2
>>> float(tape.gradient(loss, w))
4.0
"""

from typing import TYPE_CHECKING, Any

from odyssey import backward, errors, fft, linalg, losses, nn, ops, special, tree
from odyssey.devices.heap import keep_freed_memory
from odyssey.ops import no_grad, op
from odyssey.table import registry
from odyssey.tape import Gradients, GradientTape
from odyssey.variable import Variable

if TYPE_CHECKING:
    from odyssey import devices, distributed, init, optim, testing
    from odyssey.autocasting import autocast
    from odyssey.batching import batches
    from odyssey.cache import Cache
    from odyssey.compiler import Dim, compile, get_threads, set_threads
    from odyssey.compiler.tuning import tune
    from odyssey.compiler.ways.plans import Plan, plans
    from odyssey.losses import *  # noqa: F403
    from odyssey.metric_log import MetricLog
    from odyssey.ops.random.generator import Generator, seed
    from odyssey.saving import (
        TensorSource,
        list_tensors,
        load,
        load_tensors,
        save,
        save_tensors,
    )
    from odyssey.sparse_rows import SparseRows
    from odyssey.spec import Spec
    from odyssey.tape.report import TapeNode
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
        vmap,
        while_loop,
    )
    from odyssey.tree_summary import summary

__version__ = "0.1.0"

keep_freed_memory()
del keep_freed_memory

__all__ = [
    "Cache",
    "Dim",
    "Generator",
    "GradientTape",
    "Gradients",
    "MetricLog",
    "Plan",
    "SparseRows",
    "Spec",
    "TapeNode",
    "TensorSource",
    "Variable",
    "autocast",
    "backward",
    "batches",
    "checkpoint",
    "compile",
    "cond",
    "custom_vjp",
    "devices",
    "distributed",
    "errors",
    "fft",
    "get_threads",
    "grad",
    "hessian",
    "hvp",
    "init",
    "jacobian",
    "jvp",
    "linalg",
    "list_tensors",
    "load",
    "load_tensors",
    "losses",
    "nn",
    "no_grad",
    "op",
    "ops",
    "optim",
    "plans",
    "save",
    "save_tensors",
    "scan",
    "seed",
    "set_threads",
    "special",
    "stop_gradient",
    "summary",
    "testing",
    "tree",
    "tune",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
__all__ += losses.__all__

# Rooms that load when they, or what is taken from them, are first asked for: half of the import.
_ROOMS = {
    "autocasting": "autocast",
    "batching": "batches",
    "cache": "Cache",
    "compiler": "Dim compile get_threads set_threads",
    "compiler.tuning": "tune",
    "compiler.ways.plans": "Plan plans",
    "devices": "",
    "distributed": "",
    "init": "",
    "metric_log": "MetricLog",
    "objective": "",
    "ops.random.generator": "Generator seed",
    "optim": "",
    "saving": "TensorSource list_tensors load load_tensors save save_tensors",
    "sparse_rows": "SparseRows",
    "spec": "Spec",
    "tape.report": "TapeNode",
    "testing": "",
    "transforms": """
        checkpoint cond custom_vjp grad hessian hvp jacobian jvp scan stop_gradient value_and_grad
        vjp vmap while_loop
    """,
    "tree_summary": "summary",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load what a name stands for when it is first asked for."""
    if name in _ROOMS:
        return registry.load_module(f"odyssey.{name}")  # Python binds it
    if name in _HOMES:
        home: Any = registry.load_module(f"odyssey.{_HOMES[name]}")
    elif name in losses.__all__:
        home = losses
    else:
        raise registry.missing_attribute_error(__name__, name)
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
