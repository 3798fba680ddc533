"""Normalization and embeddings, forward and backward, beside PyTorch eager, on one thread.

    python benchmarks/normalization.py
    python benchmarks/normalization.py --only layer --rounds 15

The three take turns in one process: odyssey, odyssey without compiled loops, and PyTorch, which may
be missing. What is shown are medians of process time in microseconds, and ratios, for a tape, the
call, and the gradients of all operands for a cotangent that is given.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402
from odyssey import ops  # noqa: E402
from odyssey.table.kernel_selection import SIZE_FACTOR  # noqa: E402

try:
    import torch
    import torch.nn.functional as theirs
except ImportError:
    torch = None

Call = Callable[..., Any]


class Case(NamedTuple):
    """One call of both, with the operands that are differentiated and the shape of the result."""

    name: str
    operands: list[Any]
    shape: tuple[int, ...]
    ours: Call
    theirs: Call


def cases(dtype: str) -> Iterator[Case]:
    """Every case in one dtype."""
    rng = np.random.default_rng(0)

    def drawn(*shapes: tuple[int, ...]) -> list[Any]:
        return [rng.normal(size=shape).astype(dtype) for shape in shapes]

    for shape in ((8, 16), (64, 512), (256, 1024)):
        last = shape[1:]
        yield Case(
            f"layer_norm {shape}",
            drawn(shape, last, last),
            shape,
            ops.layer_norm,
            lambda x, w, b: theirs.layer_norm(x, w.shape, w, b),
        )
        yield Case(
            f"rms_norm {shape}",
            drawn(shape, last),
            shape,
            ops.rms_norm,
            lambda x, w: theirs.rms_norm(x, w.shape, w, 1e-6),
        )
    for shape in ((8, 16, 28, 28), (32, 6, 24, 24)):
        channels = shape[1:2]
        yield Case(
            f"batch_norm {shape}",
            drawn(shape, channels, channels),
            shape,
            lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
            lambda x, w, b: theirs.batch_norm(x, None, None, w, b, True),
        )
    for count, rows, dim in ((100_000, 10_000, 64), (100_000, 50_000, 32), (100_000, 1000, 128)):
        indices = rng.integers(0, rows, count)
        yield Case(
            f"embedding {count} of {rows} by {dim}",
            drawn((rows, dim)),
            (count, dim),
            lambda w, indices=indices: ops.embedding(indices, w),
            lambda w, indices=indices: theirs.embedding(torch.from_numpy(indices), w),
        )


def ours(case: Case, g: Any, compiled: bool) -> Callable[[], None]:
    """One step of odyssey."""
    leaves = [od.Variable(x, requires_grad=True) for x in case.operands]

    def step() -> None:
        before, SIZE_FACTOR[0] = SIZE_FACTOR[0], 1.0 if compiled else math.inf
        with od.GradientTape() as tape:
            y = case.ours(*leaves)
        tape.backward(y, g)
        for leaf in leaves:
            leaf.zero_grad()
        SIZE_FACTOR[0] = before

    return step


def of_torch(case: Case, g: Any) -> Callable[[], None]:
    """One step of PyTorch."""
    leaves = [torch.tensor(x, requires_grad=True) for x in case.operands]
    cotangent = torch.tensor(g)

    def step() -> None:
        case.theirs(*leaves).backward(cotangent)
        for leaf in leaves:
            leaf.grad = None

    return step


def main() -> None:
    """Time all cases, or those whose names have a word."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(1)
    for dtype in ("float32", "float64"):
        for case in cases(dtype):
            if options.only not in case.name:
                continue
            g = np.random.default_rng(1).normal(size=case.shape).astype(dtype)
            steps = [ours(case, g, True), ours(case, g, False)]
            steps += [of_torch(case, g)] if torch is not None else []
            samples = interleaved(dict(enumerate(steps)), options.rounds)
            mine, plain, *other = (1e6 * samples.median(k) for k in range(len(steps)))
            line = f"{case.name:36} {dtype}  {mine:8.0f} us, {mine / plain:.2f} of NumPy's time"
            print(line + "".join(f", {mine / t:.2f} of torch's" for t in other), flush=True)


if __name__ == "__main__":
    main()
