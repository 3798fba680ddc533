"""The workloads of `compiled.py` in JAX: the whole step under one jit, with donated buffers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from harness.compiled_cases import BATCH, CASES, HEADS, MOMENTUM, TIMES, WIDTH, chain


class Names:
    """The functions of `chain`."""

    tanh, sqrt, exp, sin, log = jnp.tanh, jnp.sqrt, jnp.exp, jnp.sin, jnp.log
    relu, sigmoid = staticmethod(jax.nn.relu), staticmethod(jax.nn.sigmoid)


def _convolved(x: Any, weight: Any, bias: Any, padding: int) -> Any:
    ends = [(padding, padding)] * 2
    return jax.lax.conv_general_dilated(x, weight, (1, 1), ends) + bias[None, :, None, None]


def _pooled(x: Any) -> Any:
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def forward(name: str, p: list[Any], x: Any, *y: Any) -> Any:
    """The loss of a workload."""
    if name in ("W4", "W4m"):
        return chain(name, p[0], x, Names).sum()
    if name == "W6":
        q, k, v = (x @ p[0]).reshape(BATCH, TIMES, 3, HEADS, WIDTH).transpose(2, 0, 3, 1, 4)
        a = jax.nn.softmax(q @ k.swapaxes(-1, -2) * (WIDTH**-0.5), -1)
        joined = (a @ v).transpose(0, 2, 1, 3).reshape(BATCH, TIMES, HEADS * WIDTH)
        return jnp.mean((joined @ p[1] - y[0]) ** 2)
    if name == "W7":
        for k, padding in ((0, 2), (2, 0)):
            x = _pooled(jax.nn.relu(_convolved(x, p[k], p[k + 1], padding)))
        x, p = x.reshape(x.shape[0], -1), p[4:]
    activation = jnp.tanh if name in ("W1", "deep") else jax.nn.relu
    for k in range(0, len(p) - 2, 2):
        x = activation(x @ p[k] + p[k + 1])
    x = x @ p[-2] + p[-1]
    if name in ("W1", "deep"):
        return jnp.mean((x - y[0]) ** 2)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[0][:, None], 1))


def build(name: str, kind: str, parameters: list[Any], threads: int) -> Callable[..., Any]:
    """A compiled step; the number of threads is said in the environment."""
    if name == "small":
        step = jax.jit(lambda x, y: jnp.tanh(x * y + x))
    else:
        step = _stepped(name, [jnp.array(a) for a in parameters])
    known: dict[int, Any] = {}

    def run(*batch: Any) -> Any:
        if id(batch) not in known:
            known[id(batch)] = batch, [jnp.array(a) for a in batch]
        # A queue of steps would hide what they cost.
        return jax.block_until_ready(step(*known[id(batch)][1]))

    return run


def _stepped(name: str, p: list[Any]) -> Callable[..., Any]:
    rate = CASES[name].rate
    update = _adam if name == "digits" else _momentum

    def whole(held: Any, *batch: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: forward(name, p, *batch))(held[0])
        return update(held, grads, rate), loss

    compiled = jax.jit(whole, donate_argnums=0)
    held = [(p, [jnp.zeros_like(a) for a in p], [jnp.zeros_like(a) for a in p], jnp.zeros(()))]

    def step(*batch: Any) -> Any:
        held[0], loss = compiled(held[0], *batch)
        return loss

    return step


def _momentum(held: Any, grads: Any, rate: float) -> Any:
    p, first, second, count = held
    first = [MOMENTUM * v + g for v, g in zip(first, grads, strict=True)]
    return [a - rate * v for a, v in zip(p, first, strict=True)], first, second, count


def _adam(held: Any, grads: Any, rate: float) -> Any:
    p, first, second, count = held
    count = count + 1.0
    first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
    second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
    steps = [
        (m / (1.0 - 0.9**count)) / (jnp.sqrt(v / (1.0 - 0.999**count)) + 1e-8)
        for m, v in zip(first, second, strict=True)
    ]
    return [a - rate * s for a, s in zip(p, steps, strict=True)], first, second, count


def number(result: Any) -> float:
    """What a step gave, as one number."""
    return float(result.sum())
