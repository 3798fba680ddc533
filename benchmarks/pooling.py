"""Pooling and resampling, forward and backward, beside PyTorch eager.

    python benchmarks/pooling.py
    python benchmarks/pooling.py max_pool2d interpolate --rounds 31

Both take turns in one process, on one thread; what is shown are medians of process time in
microseconds, for a call under a tape of its own with its gradient, and their ratio. With names,
only these ops. Without PyTorch only odyssey is timed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

BLOCK_SECONDS = 0.02


class Case(NamedTuple):
    """One op with its options, here and in torch."""

    op: str
    ours: dict[str, Any]
    theirs: dict[str, Any]


CASES = (
    Case("max_pool2d", {"window": 2}, {"kernel_size": 2}),
    Case(
        "max_pool2d",
        {"window": 3, "stride": 2, "padding": 1},
        {"kernel_size": 3, "stride": 2, "padding": 1},
    ),
    Case("avg_pool2d", {"window": 2}, {"kernel_size": 2}),
    Case("adaptive_avg_pool2d", {"size": 5}, {"output_size": 5}),
    Case("interpolate", {"scale": 2}, {"scale_factor": 2}),
    Case("interpolate", {"scale": 2, "mode": "bilinear"}, {"scale_factor": 2, "mode": "bilinear"}),
    Case("interpolate", {"scale": 2, "mode": "bicubic"}, {"scale_factor": 2, "mode": "bicubic"}),
    Case("pixel_unshuffle", {"downscale_factor": 2}, {"downscale_factor": 2}),
)
SHAPES = ((2, 1, 8, 8), (8, 32, 32, 32))


def ours(case: Case, x: Any) -> Callable[[], Any]:
    op = getattr(od.ops, case.op)
    w = od.Variable(x, requires_grad=True)
    g = np.ones(op(x, **case.ours).shape, x.dtype)

    def step() -> None:
        with od.GradientTape() as tape:
            y = op(w, **case.ours)
        tape.backward(y, g)
        w.zero_grad()

    return step


def theirs(case: Case, x: Any) -> Callable[[], Any]:
    op = getattr(torch.nn.functional, case.op)
    w = torch.tensor(x, requires_grad=True)
    g = torch.ones_like(op(w, **case.theirs))

    def step() -> None:
        op(w, **case.theirs).backward(g)
        w.grad = None

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    if torch:
        torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for case in CASES:
        if arguments.ops and case.op not in arguments.ops:
            continue
        for shape in SHAPES:
            for dtype in ("float32", "float64"):
                x = rng.normal(size=shape).astype(dtype)
                steps = [ours(case, x), *([theirs(case, x)] if torch else [])]
                samples = interleaved(dict(enumerate(steps)), arguments.rounds, BLOCK_SECONDS)
                own, *others = (1e6 * samples.median(k) for k in range(len(steps)))
                label = f"{case.op} {case.ours} {shape} {dtype}"
                beside = f"  torch {others[0]:9.1f}  ratio {own / others[0]:.2f}" if others else ""
                print(f"{label:90} {own:9.1f}{beside}", flush=True)


if __name__ == "__main__":
    main()
