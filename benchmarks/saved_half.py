"""Memory and time of eager steps whose tape stores what nodes save in half precision.

    python benchmarks/saved_half.py
    python benchmarks/saved_half.py --width 256 --batch 4096 --layers 4 --rounds 50

A network of 8 layers of 512 by 512 with gelu, a batch of 1024, in float32: what the tape holds
before the sweep; the peak of a step as Python's `tracemalloc` counts it (parameters and data are
there before); the least time of a step, of processor time on one thread, where the steps take
turns, and its ratio to that of the plain step; and how far gradients are from the plain step's: the
norm of the difference by the norm, over all parameters.
"""

from __future__ import annotations

import argparse
import os
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

SAVED = (None, "bfloat16", "float16")


class Network:
    """Layers with gelu, and a batch of data."""

    def __init__(self, width: int, batch: int, layers: int) -> None:
        rng = np.random.default_rng(0)

        def normal(*shape: int, scale: float = 1.0) -> Any:
            return (scale * rng.normal(size=shape)).astype(np.float32)

        def leaf(data: Any) -> Any:
            return od.Variable(data, requires_grad=True)

        self.x, self.y = normal(batch, width), normal(batch, width)
        self.weights = [leaf(normal(width, width, scale=width**-0.5)) for _ in range(layers)]
        self.biases = [leaf(np.zeros(width, np.float32)) for _ in range(layers)]

    def loss(self) -> Any:
        """Return the mean squared error."""
        h = self.x
        for w, b in zip(self.weights, self.biases, strict=True):
            h = od.nn.gelu(h @ w + b)
        return ((h - self.y) ** 2).mean()

    def step(self, saved: str | None) -> tuple[Any, list[Any], Any]:
        """Return the loss, the gradients, and what the tape held."""
        with od.GradientTape(saved=saved) as tape:
            loss = self.loss()
        memory = tape.memory()
        return loss.numpy(), tape.gradient(loss, [*self.weights, *self.biases]), memory


def norm(arrays: Sequence[Any]) -> float:
    """Return the norm over all arrays."""
    return float(np.sqrt(sum(float((np.asarray(a, np.float64) ** 2).sum()) for a in arrays)))


def peak_bytes(network: Network, saved: str | None) -> int:
    """Return the most bytes that a step holds beside what was there before."""
    tracemalloc.start()
    network.step(saved)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default in (("width", 512), ("batch", 1024), ("layers", 8), ("rounds", 20)):
        parser.add_argument(f"--{option}", type=int, default=default, help="default: %(default)s")
    arguments = parser.parse_args()
    network = Network(arguments.width, arguments.batch, arguments.layers)
    loss, gradients, plain = network.step(None)
    steps = {saved: network.step(saved) for saved in SAVED}
    peaks = {saved: peak_bytes(network, saved) for saved in SAVED}
    runs = {saved: partial(network.step, saved) for saved in SAVED}
    samples = interleaved(runs, arguments.rounds, clock=time.thread_time, repeats=1)
    print(
        f"{'saved':>10} {'held MB':>8} {'peak MB':>8} {'least ms':>9} {'ratio':>6} gradient  loss"
    )
    for saved in SAVED:
        value, found, memory = steps[saved]
        distance = norm([a - b for a, b in zip(found, gradients, strict=True)]) / norm(gradients)
        equal = "equal" if value.tobytes() == loss.tobytes() else "DIFFERS"
        least = samples.best(saved)
        print(
            f"{saved or 'plain':>10} {memory.total / 1e6:8.1f} {peaks[saved] / 1e6:8.1f} "
            f"{1e3 * least:9.1f} {least / samples.best(None):6.2f} {distance:8.1e}  {equal}"
        )
    assert all(memory.unrounded == plain.total for _, _, memory in steps.values())


if __name__ == "__main__":
    main()
