"""Data-parallel steps: two ranks beside one, and a group of one beside the optimizer alone.

    python benchmarks/data_parallel.py               # W3 on 1 and 2 ranks, W2 in a group of one
    python benchmarks/data_parallel.py -n 4 --shards 4 --rounds 9

Each row is a workload of ``compiled.py``, with one BLAS thread a rank. Ranks: wall-clock
milliseconds of a step, the median of the blocks of each run, and the ratio of one rank to several,
from runs that take turns; what a rank waited in collectives is beside it. Ranks need as many idle
cores. Alone: processor microseconds of a step by ``DataParallel`` with one shard and of one by the
optimizer itself, in turns in one process, and the median of the ratios of neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.compiled_cases import batches_of, parameters_of  # noqa: E402
from odyssey import GradientTape, Variable, losses, ops  # noqa: E402

BLOCKS, STEPS = 9, 8  # of a run


def make(name: str) -> tuple[list[Any], Any]:
    """Return the parameters of a workload, and their optimizer."""
    params = [Variable(p, requires_grad=True) for p in parameters_of(name)]
    return params, od.optim.SGD(params, 0.01, momentum=0.9)


def loss_of(params: list[Any], x: Any, y: Any) -> Any:
    """Return the loss of a network of dense layers."""
    h = x
    for k in range(0, len(params), 2):
        h = h @ params[k] + params[k + 1]
        if k + 2 < len(params):
            h = ops.relu(h)
    return losses.cross_entropy(h, y)


def parallel_step(name: str, shards: int | None, is_compiled: bool) -> Callable[[], None]:
    """Return a data-parallel step of a workload."""
    params, optimizer = make(name)
    parallel = od.distributed.DataParallel(optimizer, shards=shards)
    (batch,) = batches_of(name)
    gradients = od.compile(lambda x, y: od.grad(lambda p: loss_of(p, x, y))(params))

    def eager() -> None:
        for part in parallel.shards(batch):
            with GradientTape() as tape:
                loss = loss_of(params, *part)
            parallel.backward(tape, loss)
        parallel.step()

    def compiled() -> None:
        for part in parallel.shards(batch):
            parallel.add(gradients(*part))
        parallel.step()

    if is_compiled:
        parallel.precompile(gradients, batch)
    return compiled if is_compiled else eager


def plain_step(name: str, is_compiled: bool) -> Callable[[], None]:
    """Return the same step by the optimizer itself."""
    params, optimizer = make(name)
    ((x, y),) = batches_of(name)
    gradients = od.compile(lambda x, y: od.grad(lambda p: loss_of(p, x, y))(params))

    def eager() -> None:
        with GradientTape() as tape:
            loss = loss_of(params, x, y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    def compiled() -> None:
        for p, g in zip(params, gradients(x, y), strict=True):
            p.grad = g
        optimizer.step()
        optimizer.zero_grad()

    if is_compiled:
        gradients.precompile(x, y)
    return compiled if is_compiled else eager


def run_rank(name: str, shards: int, is_compiled: bool) -> None:
    """Print the milliseconds of a step on these ranks, and what is waited of them."""
    group = od.distributed.world()
    step = parallel_step(name, shards, is_compiled)
    for _ in range(4):
        step()
    times, waited = [], group.waited
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        times.append((time.perf_counter() - start) / STEPS * 1e3)
    waited = (group.waited - waited) / (BLOCKS * STEPS) * 1e3
    group.print(json.dumps([float(np.median(times)), waited]))


def launched(ranks: int, name: str, shards: int, is_compiled: bool) -> tuple[float, float]:
    """Return what a run on some ranks prints."""
    words = [str(shards), "compiled" if is_compiled else "eager"]
    command = [
        sys.executable,
        "-m",
        "odyssey",
        "launch",
        "-n",
        str(ranks),
        os.path.abspath(__file__),
    ]
    run = subprocess.run(
        [*command, "--rank", name, *words], check=True, capture_output=True, text=True
    )
    milliseconds, waited = json.loads(run.stdout)
    return milliseconds, waited


def compare_ranks(name: str, ranks: int, shards: int, rounds: int) -> None:
    """Print a workload on one rank and on several."""
    for is_compiled in (False, True):
        pairs = []
        for _ in range(rounds):
            one, _ = launched(1, name, shards, is_compiled)
            several, waited = launched(ranks, name, shards, is_compiled)
            pairs.append((one, several, waited, one / several))
        one, several, waited, ratio = np.median(pairs, axis=0)
        print(
            f"{name} {'compiled' if is_compiled else 'eager':<9} 1 rank {one:7.2f} ms, "
            f"{ranks} ranks {several:7.2f} ms ({waited:.2f} waiting): {ratio:.2f} times as fast"
        )


def compare_alone(name: str, rounds: int) -> None:
    """Print a workload in a group of one beside the optimizer alone."""
    for is_compiled in (False, True):
        steps = plain_step(name, is_compiled), parallel_step(name, None, is_compiled)
        found = []
        for k in range(rounds + 1):
            times = []
            for step in steps:
                start = time.process_time()
                for _ in range(20):
                    step()
                times.append((time.process_time() - start) / 20 * 1e6)
            if k:  # the first compiles and fills caches
                found.append((*times, times[1] / times[0]))
        plain, parallel, ratio = np.median(found, axis=0)
        print(
            f"{name} {'compiled' if is_compiled else 'eager':<9} optimizer {plain:7.1f} us, "
            f"DataParallel {parallel:7.1f} us: {ratio:.3f}; least {np.min(found, axis=0)[0]:.1f} "
            f"and {np.min(found, axis=0)[1]:.1f}"
        )


def main() -> None:
    """Compare, or run as one of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-n", type=int, default=2, metavar="RANKS")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        name, shards, kind = options.rank
        run_rank(name, int(shards), kind == "compiled")
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    compare_alone("W2", 20 * options.rounds)
    compare_ranks("W3", options.n, options.shards, options.rounds)


if __name__ == "__main__":
    main()
