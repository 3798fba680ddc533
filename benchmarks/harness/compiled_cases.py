"""What `compiled.py` times: training steps as data, the same for every implementation.

A step is forward, loss, backward, SGD with momentum 0.9 (`digits`: Adam) and cleared gradients, in
float32; `small` is a function alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

MOMENTUM = 0.9
HEADS, TIMES, WIDTH, BATCH = 4, 128, 32, 8
"""Of the attention in W6."""

DEEP = 80
"""Equal layers of `deep`."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Args:
        title: One line for the table.
        rate: The learning rate.
        bar: The largest ratio to PyTorch eager that the project wants.
        bar_eager: The largest ratio to odyssey's own eager step.
        batches: How many batches take turns.
        most: The most steps of a block. Where a slope stays 0, its momentum is below the normal
            range after some 900 steps, and some processors take longer for such numbers: without a
            bound, whoever is fast gets there, and who is slow does not.
    """

    title: str
    rate: float = 0.01
    bar: float | None = None
    bar_eager: float | None = 1.0
    batches: int = 1
    most: int = 1_000_000


CASES = {
    "W1": Case("MLP 2-16-1, batch 4, tanh, mean squared error", 0.1, 0.008),
    "W2": Case("MLP 784-128-10, batch 32, relu, cross-entropy", 0.01, 0.40),
    "W3": Case("MLP 784-512-512-10, batch 256, relu, cross-entropy", 0.01, 0.84),
    "W4": Case("20 elementwise ops with transcendentals on a million numbers", 1e-4, 0.15, most=40),
    "W4m": Case("20 cheap elementwise ops on a million numbers", 1e-4, 0.038, most=40),
    "W6": Case("softmax attention: batch 8, 4 heads, 128 times, 32 wide", 0.1, 0.65),
    "W7": Case("LeNet, 28 by 28, batch 32", 0.01, 0.50),
    "digits": Case("MLP 64-32-10, Adam, minibatches of 32", 1e-3, None, 0.25, 8),
    "small": Case("a function of three ops on 8 numbers; us a call"),
    "deep": Case(f"MLP of {DEEP} layers of 64, batch 32, tanh; how long it takes to compile"),
}


def _linear(rng: Any, fan_in: int, fan_out: int) -> list[Any]:
    weight = rng.standard_normal((fan_in, fan_out)) * fan_in**-0.5
    return [weight, np.zeros(fan_out)]


def parameters_of(name: str) -> list[Any]:
    """The parameters that a workload starts from."""
    # RandomState: NumPy promises its stream for ever, and the peers' NumPy versions may differ.
    rng = np.random.RandomState(0)
    sizes = {
        "W1": (2, 16, 1),
        "W2": (784, 128, 10),
        "W3": (784, 512, 512, 10),
        "digits": (64, 32, 10),
        "deep": (64,) * (DEEP + 1),
    }
    if name in sizes:
        pairs = zip(sizes[name][:-1], sizes[name][1:], strict=True)
        found = [part for pair in pairs for part in _linear(rng, *pair)]
    elif name in ("W4", "W4m"):
        found = [rng.standard_normal(1_000_000)]
    elif name == "W6":
        m = HEADS * WIDTH
        found = [rng.standard_normal((m, 3 * m)) * m**-0.5, rng.standard_normal((m, m)) * m**-0.5]
    elif name == "W7":
        found = [rng.standard_normal((6, 1, 5, 5)) * 0.2, np.zeros(6)]
        found += [rng.standard_normal((16, 6, 5, 5)) * 0.08, np.zeros(16)]
        for pair in ((400, 120), (120, 84), (84, 10)):
            found += _linear(rng, *pair)
    else:
        found = []
    return [np.asarray(a, np.float32) for a in found]


def batches_of(name: str) -> list[tuple[Any, ...]]:
    """The arguments of a step, a tuple for each batch."""
    rng = np.random.RandomState(1)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    def batch() -> tuple[Any, ...]:
        m = HEADS * WIDTH
        if name == "W1":
            x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
            return x, np.array([[0], [1], [1], [0]], np.float32)
        if name in ("W4", "W4m"):
            return (normal(1_000_000),)
        if name == "W6":
            return normal(BATCH, TIMES, m), normal(BATCH, TIMES, m)
        if name == "W7":
            return normal(32, 1, 28, 28), rng.randint(0, 10, 32)
        if name == "small":
            return normal(8), normal(8)
        if name == "deep":
            return normal(32, 64), normal(32, 64)
        rows, width = {"W2": (32, 784), "W3": (256, 784), "digits": (32, 64)}[name]
        return normal(rows, width), rng.randint(0, 10, rows)

    return [batch() for _ in range(CASES[name].batches)]


def chain(name: str, x: Any, c: Any, m: Any) -> Any:
    """The 20 ops of W4 and of W4m, with the functions of the namespace `m`."""
    if name == "W4m":
        h = x
        for _ in range(4):
            h = m.relu(h * c + x) * 0.5 - c
        return h
    h = m.tanh(x * c + x)
    h = m.exp(m.sqrt(h * h + 1.0) * 0.5) - c
    h = m.sigmoid(m.sin(h) * x + c)
    h = m.log(h + 1.0)
    return m.relu(h * h - 0.1) / 2.0 + x
