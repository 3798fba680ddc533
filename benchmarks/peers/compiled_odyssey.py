"""The workloads of `compiled.py` in odyssey, as they are written and compiled."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import odyssey as od
from harness.compiled_cases import BATCH, CASES, HEADS, MOMENTUM, TIMES, WIDTH, chain
from odyssey import GradientTape, Variable, ops
from odyssey.optim import SGD, Adam


def forward(name: str, p: list[Any], x: Any, *y: Any) -> Any:
    """The loss of a workload."""
    if name in ("W4", "W4m"):
        return ops.sum(chain(name, p[0], x, ops))
    if name == "W6":
        q, k, v = ops.transpose(
            ops.reshape(x @ p[0], (BATCH, TIMES, 3, HEADS, WIDTH)), (2, 0, 3, 1, 4)
        )
        a = ops.softmax(q @ ops.swapaxes(k, -1, -2) * (WIDTH**-0.5), axis=-1)
        joined = ops.reshape(ops.transpose(a @ v, (0, 2, 1, 3)), (BATCH, TIMES, HEADS * WIDTH))
        return od.losses.mean_squared_error(joined @ p[1], *y)
    if name == "W7":
        for k, padding in ((0, 2), (2, 0)):
            h = ops.relu(ops.conv2d(x, p[k], p[k + 1], padding=padding))
            x = ops.max_pool2d(h, window=2)
        x, p = ops.reshape(x, (x.shape[0], -1)), p[4:]
    activation = ops.tanh if name in ("W1", "deep") else ops.relu
    for k in range(0, len(p) - 2, 2):
        x = activation(x @ p[k] + p[k + 1])
    x = x @ p[-2] + p[-1]
    return (
        od.losses.mean_squared_error(x, *y)
        if name in ("W1", "deep")
        else od.losses.cross_entropy(x, *y)
    )


def step_of(name: str, parameters: list[Any]) -> Callable[..., Any]:
    """One step as a user writes it."""
    if name == "small":
        return lambda x, y: ops.tanh(x * y + x)
    p = [Variable(a, requires_grad=True, name=f"p{k}") for k, a in enumerate(parameters)]
    rate = CASES[name].rate
    optimizer = Adam(p, rate) if name == "digits" else SGD(p, rate, momentum=MOMENTUM)

    def step(*batch: Any) -> Any:
        with GradientTape() as tape:
            loss = forward(name, p, *batch)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def build(name: str, kind: str, parameters: list[Any], threads: int) -> Callable[..., Any]:
    """A step, eager or compiled."""
    step = step_of(name, parameters)
    if kind == "eager":
        return step
    takes = signature(od.compile).parameters
    return od.compile(step, **({"threads": threads} if threads > 1 and "threads" in takes else {}))


def number(result: Any) -> float:
    """What a step gave, as one number."""
    return float(ops.sum(result))
