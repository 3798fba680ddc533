"""Two models that are trained by compiled steps, one after the other and each in a thread.

    python benchmarks/two_models.py

Each thread takes one core; with two that are idle the second way takes half of the time at best.
Shown are the least times of some rounds.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402
from odyssey import GradientTape, Variable, ops  # noqa: E402

WIDTH, LAYERS, BATCH = 64, 3, 1000
STEPS, ROUNDS = 150, 5


def step_of(seed: int) -> Callable[..., Any]:
    """The compiled step of a model of its own."""
    rng = np.random.default_rng(seed)
    weights = [
        Variable(rng.normal(size=(WIDTH, WIDTH)) * 0.05, requires_grad=True) for _ in range(LAYERS)
    ]
    optimizer = od.optim.Adam(weights, 1e-3)

    def step(x: Any) -> Any:
        with GradientTape() as tape:
            h = x
            for weight in weights:
                h = ops.gelu(h @ weight)
            loss = ops.mean((h - x) ** 2)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return od.compile(step)


def main() -> None:
    x = np.random.default_rng(0).normal(size=(BATCH, WIDTH))
    steps = [step_of(seed) for seed in (1, 2)]

    def train(step: Callable[..., Any]) -> None:
        for _ in range(STEPS):
            step(x)

    def in_turn() -> None:
        for step in steps:
            train(step)

    def at_once() -> None:
        threads = [threading.Thread(target=train, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    in_turn()
    samples = interleaved(
        {"in turn": in_turn, "at once": at_once}, ROUNDS, clock=time.perf_counter, repeats=1
    )
    turn, once = samples.best("in turn"), samples.best("at once")
    print(f"in turn {turn:.3f} s, at once {once:.3f} s: {turn / once:.2f} times")


if __name__ == "__main__":
    main()
