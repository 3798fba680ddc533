"""Training steps that read few rows of a large table, beside PyTorch's sparse steps.

    python benchmarks/sparse_rows.py
    python benchmarks/sparse_rows.py --rows 100000 --batch 256 --rounds 50

A table of 500,000 rows of 32 float32, of which a step reads and updates 64, eager and compiled,
with SGD, AdaGrad and lazy Adam, beside ``torch.nn.Embedding(sparse=True)`` with SGD, Adagrad and
SparseAdam; and eager with a dense gradient. All take turns in one process, on one thread; what is
shown are the least times in microseconds, and their ratios to PyTorch's. Without PyTorch only
odyssey is timed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

Step = Callable[[], Any]

OPTIMIZERS = {
    "SGD": lambda table: od.optim.SGD([table], 0.1),
    "AdaGrad": lambda table: od.optim.AdaGrad([table], 0.1),
    "Adam": lambda table: od.optim.Adam([table], 0.1, lazy=True),
}
THEIRS = {"SGD": "SGD", "AdaGrad": "Adagrad", "Adam": "SparseAdam"}


def own_step(name: str, data: Any, batches: Any, sparse: bool, compiled: bool) -> Step:
    """Return a training step of odyssey, each call with the next batch."""
    table = od.Variable(data, requires_grad=True, sparse_grad=sparse)
    optimizer = OPTIMIZERS[name](table)

    def step(ids: Any) -> Any:
        optimizer.zero_grad()
        with od.GradientTape() as tape:
            loss = (od.nn.embedding(ids, table) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        return loss

    run, order = od.compile(step) if compiled else step, cycle(batches)
    return lambda: run(next(order))


def torch_step(name: str, data: Any, batches: Any) -> Step:
    """Return a training step of PyTorch."""
    layer = torch.nn.Embedding(*data.shape, sparse=True, _weight=torch.tensor(data))
    optimizer = getattr(torch.optim, THEIRS[name])(list(layer.parameters()), lr=0.1)
    order = cycle(map(torch.tensor, batches))

    def step() -> Any:
        optimizer.zero_grad()
        loss = (layer(next(order)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main() -> None:
    """Print the times of all optimizers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=30)
    given = parser.parse_args()
    od.set_threads(1)
    if torch is not None:
        torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(given.rows, given.width)).astype(np.float32)
    batches = [rng.integers(0, given.rows, given.batch) for _ in range(8)]
    for name in OPTIMIZERS:
        steps = {} if torch is None else {"PyTorch": torch_step(name, data, batches)}
        for kind, sparse, compiled in [
            ("eager", True, False),
            ("compiled", True, True),
            ("eager, dense", False, False),
        ]:
            steps[kind] = own_step(name, data, batches, sparse, compiled)
        for step in steps.values():
            for _ in range(10):
                step()
        samples = interleaved(steps, given.rounds, clock=time.perf_counter, repeats=1)
        for kind in steps:
            least = samples.best(kind)
            ratio = f"{least / samples.best('PyTorch'):8.2f}" if "PyTorch" in steps else ""
            print(f"{name:8} {kind:13} {1e6 * least:10.1f} us {ratio}")


if __name__ == "__main__":
    main()
