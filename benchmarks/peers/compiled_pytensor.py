"""The workloads of `compiled.py` in PyTensor, by numba, with updates of shared variables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from harness.compiled_cases import BATCH, CASES, HEADS, MOMENTUM, TIMES, WIDTH, chain

pytensor.config.floatX = "float32"


class Names:
    """The functions of `chain`."""

    tanh, sqrt, exp, sin, log, sigmoid = pt.tanh, pt.sqrt, pt.exp, pt.sin, pt.log, pt.sigmoid

    @staticmethod
    def relu(x: Any) -> Any:
        return pt.maximum(x, np.float32(0))


def forward(name: str, p: list[Any], x: Any, *y: Any) -> Any:
    """The loss of a workload."""
    if name in ("W4", "W4m"):
        return chain(name, p[0], x, Names).sum()
    if name == "W6":
        heads = (x @ p[0]).reshape((BATCH, TIMES, 3, HEADS, WIDTH)).transpose((2, 0, 3, 1, 4))
        q, k, v = heads[0], heads[1], heads[2]
        a = pt.special.softmax(q @ k.transpose((0, 1, 3, 2)) * np.float32(WIDTH**-0.5), axis=-1)
        joined = (a @ v).transpose((0, 2, 1, 3)).reshape((BATCH, TIMES, HEADS * WIDTH))
        return pt.mean((joined @ p[1] - y[0]) ** 2)
    activation = pt.tanh if name in ("W1", "deep") else Names.relu
    for k in range(0, len(p) - 2, 2):
        x = activation(x @ p[k] + p[k + 1])
    x = x @ p[-2] + p[-1]
    if name in ("W1", "deep"):
        return pt.mean((x - y[0]) ** 2)
    shifted = x - x.max(axis=1, keepdims=True)
    sums = pt.log(pt.exp(shifted).sum(axis=1))
    return (sums - shifted[pt.arange(y[0].shape[0]), y[0]]).mean()


def build(name: str, kind: str, parameters: list[Any], threads: int) -> Callable[..., Any]:
    """A compiled step; how many threads there are is said in the environment."""
    if name == "W7":
        raise SystemExit("its convolutions do not run by numba, so it sits W7 out")
    # Of several batches each is a shape of its own: tensors of their kind take all.
    symbols = [pt.TensorType(str(a.dtype), shape=a.shape)() for a in _arguments_of(name, kind)]
    if name == "small":
        x, y = symbols
        step = pytensor.function([x, y], pt.tanh(x * y + x), mode="NUMBA")
    else:
        p = [pytensor.shared(a) for a in parameters]
        loss = forward(name, p, *symbols)
        updates = (_adam if name == "digits" else _momentum)(p, pt.grad(loss, p), CASES[name].rate)
        step = pytensor.function(symbols, loss, updates=updates, mode="NUMBA")
    return lambda *batch: step(*batch)


def _arguments_of(name: str, kind: str) -> tuple[Any, ...]:
    from harness.compiled_cases import batches_of

    return batches_of(name)[0]


def _momentum(p: list[Any], grads: list[Any], rate: float) -> list[Any]:
    updates = []
    for a, g in zip(p, grads, strict=True):
        v = pytensor.shared(np.zeros_like(a.get_value()))
        moved = np.float32(MOMENTUM) * v + g
        updates += [(v, moved), (a, a - np.float32(rate) * moved)]
    return updates


def _adam(p: list[Any], grads: list[Any], rate: float) -> list[Any]:
    f = np.float32
    count = pytensor.shared(f(0))
    steps = count + f(1)
    updates = [(count, steps)]
    for a, g in zip(p, grads, strict=True):
        m, v = (pytensor.shared(np.zeros_like(a.get_value())) for _ in range(2))
        first, second = f(0.9) * m + f(0.1) * g, f(0.999) * v + f(0.001) * g * g
        root = pt.sqrt(second / (f(1) - f(0.999) ** steps)) + f(1e-8)
        change = f(rate) * (first / (f(1) - f(0.9) ** steps)) / root
        updates += [(m, first), (v, second), (a, a - change)]
    return updates


def number(result: Any) -> float:
    """What a step gave, as one number."""
    return float(np.sum(result))
