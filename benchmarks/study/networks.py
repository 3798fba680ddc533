"""The benchmarks' networks W1 … W7 in each system, as losses of parameters and a batch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from harness.compiled_cases import (
    BATCH,
    CASES,
    HEADS,
    TIMES,
    WIDTH,
    batches_of,
    chain,
    parameters_of,
)
from study.by_hand import run_forward
from study.passes import Passes, named_results, passes_of

NETWORKS = ("W1", "W2", "W3", "W4", "W4m", "W6", "W7")
"""W4 and W4m are chains of elementwise ops on a million numbers."""

CHAINS = ("W4", "W4m")

TITLES = {name: CASES[name].title for name in NETWORKS}


def network_inputs(name: str, dtype: Any = np.float32) -> tuple[list[Any], list[Any]]:
    """Return the parameters of a network, and a batch."""

    def cast(array: Any) -> Any:
        return array.astype(dtype) if array.dtype.kind == "f" else array

    return [cast(a) for a in parameters_of(name)], [cast(a) for a in batches_of(name)[0]]


def network_reference(name: str) -> dict[str, Any]:
    """Return loss and gradients in float64, by hand."""
    parameters, batch = network_inputs(name, np.float64)
    loss, backward = run_forward(name, parameters, *batch)
    return named_results(loss, backward())


def network_passes(system: str, name: str) -> Passes:
    """Return a network's passes in a system."""
    makers: dict[str, Callable[[str], Callable[..., Any] | None]] = {
        "numpy": lambda name: partial(run_forward, name),
        "odyssey": _odyssey_loss,
        "torch": _torch_loss,
        "jax": _jax_loss,
        "autograd": _autograd_loss,
    }
    library = {"taped": "odyssey", "compiled": "odyssey", "torch.compile": "torch"}
    known = library.get(system, system)
    loss = makers[known](name)
    losses = {} if loss is None else {known: loss}
    return passes_of(system, losses, *network_inputs(name))


def _odyssey_loss(name: str) -> Callable[..., Any]:
    from peers.compiled_odyssey import forward

    return partial(forward, name)


def _torch_loss(name: str) -> Callable[..., Any]:
    from peers.compiled_torch import forward

    return partial(forward, name)


def _jax_loss(name: str) -> Callable[..., Any]:
    from peers.compiled_jax import forward

    return partial(forward, name)


def _autograd_loss(name: str) -> Callable[..., Any] | None:
    """HIPS autograd has neither convolutions nor fused losses: the losses are written out."""
    if name == "W7":
        return None
    import autograd.numpy as anp

    class Names:
        """The functions of `chain`."""

        tanh, sqrt, exp, sin, log = anp.tanh, anp.sqrt, anp.exp, anp.sin, anp.log

        @staticmethod
        def relu(x: Any) -> Any:
            return anp.maximum(x, 0)

        @staticmethod
        def sigmoid(x: Any) -> Any:
            return 1 / (1 + anp.exp(-x))

    def softmax_parts(x: Any) -> tuple[Any, Any]:
        shifted = x - anp.max(x, axis=-1, keepdims=True)
        return shifted, anp.log(anp.sum(anp.exp(shifted), axis=-1, keepdims=True))

    def loss_of(p: Any, x: Any, *y: Any) -> Any:
        if name in CHAINS:
            return anp.sum(chain(name, p[0], x, Names))
        if name == "W6":
            parts = anp.reshape(anp.dot(x, p[0]), (BATCH, TIMES, 3, HEADS, WIDTH))
            heads = anp.transpose(parts, (2, 0, 3, 1, 4))
            q, k, v = heads[0], heads[1], heads[2]
            shifted, total = softmax_parts(
                anp.matmul(q, anp.transpose(k, (0, 1, 3, 2))) * WIDTH**-0.5
            )
            a = anp.transpose(anp.matmul(anp.exp(shifted - total), v), (0, 2, 1, 3))
            joined = anp.reshape(a, (BATCH, TIMES, HEADS * WIDTH))
            return anp.mean((anp.dot(joined, p[1]) - y[0]) ** 2)
        activation = Names.tanh if name == "W1" else Names.relu
        for k in range(0, len(p) - 2, 2):
            x = activation(anp.dot(x, p[k]) + p[k + 1])
        x = anp.dot(x, p[-2]) + p[-1]
        if name == "W1":
            return anp.mean((x - y[0]) ** 2)
        shifted, total = softmax_parts(x)
        return -anp.mean((shifted - total)[np.arange(len(y[0])), y[0]])

    return loss_of
