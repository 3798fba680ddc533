"""Sorting, running folds, products and scattered sums, with gradients, beside PyTorch eager.

    python benchmarks/scans.py
    python benchmarks/scans.py --case sort,cumsum --rounds 15
    python benchmarks/scans.py --numpy

Both take turns in one process, on one thread; what is shown are medians of process time in
microseconds, and their ratio, of forward and backward. Without PyTorch only odyssey is timed. With
``--numpy`` it does without compiled kernels. The exit status is 1 where gradients differ.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402
from odyssey import ops  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

RNG = np.random.default_rng(0)
PLACES = RNG.integers(0, 1024, (256, 1024))
ROWS = RNG.integers(0, 1000, 20_000)

Case = tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Any, Any], Any]]

# By name a shape, the call of ours, and that of torch's.
CASES: dict[str, Case] = {
    "sort": ((256, 1024), lambda x: ops.sort(x), lambda t, x: t.sort(x)[0]),
    "sort, one line": ((100_000,), lambda x: ops.sort(x), lambda t, x: t.sort(x)[0]),
    "cumsum": ((256, 1024), lambda x: ops.cumsum(x, 1), lambda t, x: t.cumsum(x, 1)),
    "cumsum, columns": ((1000, 100), lambda x: ops.cumsum(x, 0), lambda t, x: t.cumsum(x, 0)),
    "cumprod": ((256, 1024), lambda x: ops.cumprod(x, 1), lambda t, x: t.cumprod(x, 1)),
    "prod": ((256, 1024), lambda x: ops.prod(x, 1), lambda t, x: t.prod(x, 1)),
    "prod, all": ((1000, 100), lambda x: ops.prod(x), lambda t, x: t.prod(x)),
    "median": ((256, 1023), lambda x: ops.median(x, 1), lambda t, x: t.median(x, 1)[0]),
    "quantile": (
        (256, 1024),
        lambda x: ops.quantile(x, 0.3, 1),
        lambda t, x: t.quantile(x, 0.3, 1),
    ),
    "topk": ((256, 1024), lambda x: ops.topk(x, 10)[0], lambda t, x: t.topk(x, 10)[0]),
    "cummax": ((256, 1024), lambda x: ops.cummax(x)[0], lambda t, x: t.cummax(x, 1)[0]),
    "logcumsumexp": (
        (256, 1024),
        lambda x: ops.logcumsumexp(x),
        lambda t, x: t.logcumsumexp(x, 1),
    ),
    "gather": (
        (256, 1024),
        lambda x: ops.gather(x, PLACES, axis=1),
        lambda t, x: t.gather(x, 1, t.from_numpy(PLACES)),
    ),
    "index_add": (
        (20_000, 16),
        lambda x: ops.index_add(np.zeros((1000, 16), x.dtype), ROWS, x, axis=0),
        lambda t, x: t.index_add(t.zeros((1000, 16), dtype=x.dtype), 0, t.from_numpy(ROWS), x),
    ),
    "index_select": (
        (1000, 16),
        lambda x: ops.index_select(x, ROWS, axis=0),
        lambda t, x: t.index_select(x, 0, t.from_numpy(ROWS)),
    ),
}


def ours(x: Any, call: Callable[[Any], Any]) -> Callable[[], Any]:
    leaf = od.Variable(x, requires_grad=True)

    def run() -> Any:
        with od.GradientTape() as tape:
            y = call(leaf)
        return tape.gradient(y, leaf, np.ones(y.shape, y.dtype))

    return run


def theirs(x: Any, call: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    leaf = torch.tensor(x, requires_grad=True)

    def run() -> Any:
        y = call(torch, leaf)
        return torch.autograd.grad(y, leaf, torch.ones_like(y))[0]

    return run


def _show(name: str, dtype: str, rounds: int) -> bool:
    shape, call, their_call = CASES[name]
    # Around 1, so that products of many stay numbers; no two alike, for ties are shared otherwise.
    x = RNG.permutation(np.linspace(0.95, 1.05, math.prod(shape))).reshape(shape).astype(dtype)
    runs = [ours(x, call)] + ([theirs(x, their_call)] if torch else [])
    results = [np.asarray(run()) for run in runs]
    samples = interleaved(dict(enumerate(runs)), rounds)
    medians = [1e6 * samples.median(k) for k in range(len(runs))]
    line = f"{name:<18}{dtype:<10}{medians[0]:>10.0f}"
    if torch is None:
        print(line)
        return True
    bound = 1e-9 if dtype == "float64" else 1e-3
    agrees = np.allclose(*results, rtol=bound, atol=bound)
    print(
        f"{line}{medians[1]:>10.0f}{medians[0] / medians[1]:>8.2f}{'' if agrees else '  DIFFERS'}"
    )
    return bool(agrees)


def main() -> int:
    """Run; the exit status is 1 where gradients differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", help="some of the names, comma-separated (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="samples of each peer")
    parser.add_argument("--numpy", action="store_true", help="without compiled kernels")
    arguments = parser.parse_args()
    asked = arguments.case.split(",") if arguments.case else [""]
    names = [name for name in CASES if any(name.startswith(word) for word in asked)]
    if torch is not None:
        torch.set_num_threads(1)
    print(f"{'case':<18}{'dtype':<10}{'odyssey':>10}{'torch':>10}{'ratio':>8}   us")
    with ops.use_kernels("numpy") if arguments.numpy else nullcontext():
        sound = [
            _show(n, dtype, arguments.rounds) for n in names for dtype in ("float64", "float32")
        ]
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())
