"""Compiled kernels against the rows' own NumPy kernels, and against PyTorch where it is installed.

Forward and backward together, float32, one thread, all in one process, taking turns; medians of
process time. With names, only these cases.

    python benchmarks/kernels.py
    python benchmarks/kernels.py gelu softmax --rounds 15
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

from harness.sampling import interleaved  # noqa: E402
from odyssey import GradientTape, Variable, ops  # noqa: E402

BLOCK_SECONDS = 0.02


class Case(NamedTuple):
    """One function of arrays, here and in torch, with the shapes that it is timed at."""

    name: str
    ours: Callable[..., Any]
    torchs: Callable[..., Any] | None
    shapes: tuple[tuple[int, ...], ...]
    constants: tuple[Any, ...] = ()


LARGE, SMALL = (256, 1024), (8, 16)


def unary(name: str, ours: Callable[..., Any], torchs: Callable[..., Any] | None) -> list[Case]:
    return [Case(f"{name} {s[0]}x{s[1]}", ours, torchs, (s,)) for s in (LARGE, SMALL)]


def cases() -> list[Case]:
    torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
    f = torch.nn.functional if torch else None
    found = []
    for name, theirs in {
        "gelu": "gelu",
        "silu": "silu",
        "mish": "mish",
        "sigmoid": "sigmoid",
        "softplus": "softplus",
        "log_sigmoid": "logsigmoid",
        "elu": "elu",
        "selu": "selu",
        "hard_swish": "hardswish",
        "leaky_relu": "leaky_relu",
        "tanh": "tanh",
        "softmax": "softmax",
        "log_softmax": "log_softmax",
    }.items():
        last = {"dim": -1} if "softmax" in name else {}
        theirs_call = f and partial(getattr(f, theirs), **last)
        found += unary(name, getattr(ops, name), theirs_call)
    found += unary("erf", ops.erf, torch and torch.erf)
    for rows, classes in (LARGE, SMALL, (256, 10)):
        targets = np.random.default_rng(0).integers(0, classes, rows)
        from odyssey.losses import cross_entropy

        t = torch and torch.tensor(targets)
        theirs_call = f and (lambda x, t=t: f.cross_entropy(x, t))
        name = f"cross_entropy {rows}x{classes}"
        ours = lambda x, targets=targets: cross_entropy(x, targets)  # noqa: E731
        found.append(Case(name, ours, theirs_call, ((rows, classes),)))
    return found


def ours(case: Case, arrays: Sequence[Any], seed: Any) -> Callable[[], Any]:
    leaves = [Variable(x, requires_grad=True) for x in arrays]

    def run() -> Any:
        with GradientTape() as tape:
            out = case.ours(*leaves, *case.constants)
        return tape.gradient(out, leaves, seed)

    return run


def torchs(case: Case, arrays: Sequence[Any], seed: Any) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    cotangent = torch.tensor(seed)
    assert case.torchs is not None
    call = case.torchs

    def run() -> Any:
        return torch.autograd.grad(call(*leaves, *case.constants), leaves, cotangent)

    return run


def measure(case: Case, rounds: int, dtype: Any) -> dict[str, float]:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in case.shapes]
    out = case.ours(*arrays, *case.constants)
    seed = rng.normal(size=out.shape).astype(out.dtype)
    runs = {"odyssey": ours(case, arrays, seed), "numpy": ours(case, arrays, seed)}
    if case.torchs is not None:
        runs["torch"] = torchs(case, arrays, seed)
    samples = interleaved(
        runs,
        rounds,
        BLOCK_SECONDS,
        around=lambda name: ops.use_kernels("numpy") if name == "numpy" else nullcontext(),
    )
    return {name: samples.median(name) for name in runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases that begin with one of these; or all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    chosen = tuple(arguments.names)
    print(f"{'':28s}{'us':>10s}{'/ NumPy':>10s}{'/ torch':>10s}")
    for case in cases():
        if chosen and not case.name.startswith(chosen):
            continue
        found = measure(case, arguments.rounds, arguments.dtype)
        own = found["odyssey"]
        ratios = [
            own / found[name] if name in found else float("nan") for name in ("numpy", "torch")
        ]
        print(f"{case.name:28s}{own * 1e6:10.1f}{ratios[0]:10.2f}{ratios[1]:10.2f}", flush=True)


if __name__ == "__main__":
    main()
