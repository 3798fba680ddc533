"""Evidence of a Gaussian process and its gradient, beside PyTorch and JAX, in float64.

    python benchmarks/gaussian_process.py
    python benchmarks/gaussian_process.py --points 100 --rounds 50

The log marginal likelihood of a squared exponential kernel with two length scales, an amplitude
and a noise: a Cholesky decomposition and a triangular solution, and the gradient by the four
hyperparameters. All take turns in one process, on one thread; what is shown are minima of wall
time in milliseconds, and their ratios. A peer that is not installed is left out. The exit status is
1 where values or gradients differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402
from odyssey import ops  # noqa: E402

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None

START = np.array([0.1, 0.2, 0.3, -2.0])
"""Logarithms of amplitude, two length scales and noise."""

Run = Callable[[], tuple[float, Any]]


def _evidence(xp: Any, solve: Any, differences: Any, y: Any, eye: Any) -> Callable[[Any], Any]:
    """The negative log marginal likelihood, by the functions of a library."""

    def negative_log_likelihood(p: Any) -> Any:
        distances = ((differences * xp.exp(-p[1:3])) ** 2).sum(-1)
        kernel = xp.exp(p[0]) * xp.exp(-0.5 * distances) + xp.exp(p[3]) * eye
        factor = xp.linalg.cholesky(kernel)
        white = solve(factor, y)
        half = 0.5 * (white * white).sum() + xp.log(xp.diagonal(factor)).sum()
        return half + 0.5 * len(y) * np.log(2 * np.pi)

    return negative_log_likelihood


def _odyssey(data: tuple[Any, ...]) -> dict[str, Run]:
    solve = lambda a, b: od.linalg.solve_triangular(a, b, lower=True)  # noqa: E731

    class Namespace:
        exp, log, diagonal, linalg = ops.exp, ops.log, ops.diagonal, od.linalg

    gradient = od.value_and_grad(_evidence(Namespace, solve, *data))
    compiled = od.compile(gradient)
    return {"odyssey": lambda: compiled(START), "odyssey eager": lambda: gradient(START)}


def _torch(data: tuple[Any, ...]) -> dict[str, Run]:
    torch.set_num_threads(1)
    given = [torch.tensor(one) for one in data]
    solve = lambda a, b: torch.linalg.solve_triangular(a, b[:, None], upper=False)  # noqa: E731
    value = _evidence(torch, solve, *given)

    def run() -> tuple[float, Any]:
        p = torch.tensor(START, requires_grad=True)
        loss = value(p)
        loss.backward()
        return loss.item(), p.grad.numpy()

    return {"torch": run}


def _jax(data: tuple[Any, ...]) -> dict[str, Run]:
    from jax.scipy.linalg import solve_triangular

    jax.config.update("jax_enable_x64", True)
    given = [jax.numpy.asarray(one) for one in data]
    solve = lambda a, b: solve_triangular(a, b, lower=True)  # noqa: E731
    run = jax.jit(jax.value_and_grad(_evidence(jax.numpy, solve, *given)))
    p = jax.numpy.asarray(START)
    return {"jax": lambda: jax.block_until_ready(run(p))}


def main() -> None:
    """Time everyone, and print minima and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    n = options.points
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (n, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.standard_normal(n)
    data = x[:, None, :] - x[None, :, :], y, np.eye(n)
    runs = _odyssey(data)
    runs |= _torch(data) if torch else {}
    runs |= _jax(data) if jax else {}
    value, gradient = runs["odyssey eager"]()
    wrong = []
    for name, run in runs.items():
        for _ in range(3):
            loss, slope = run()
        if not np.allclose([float(loss), *slope], [float(value), *gradient], rtol=1e-7):
            wrong.append(name)
    samples = interleaved(runs, options.rounds, clock=time.perf_counter, repeats=1)
    for name in runs:
        seconds = samples.best(name)
        ratios = [
            f"{seconds / samples.best(peer):.2f} of {peer}"
            for peer in ("torch", "jax")
            if peer in runs
        ]
        print(f"{name:<16}{seconds * 1e3:9.2f} ms   {', '.join(ratios)}")
    if wrong:
        sys.exit(f"values or gradients differ: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
