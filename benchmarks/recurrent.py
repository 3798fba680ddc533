"""Recurrent layers, forward and backward, beside PyTorch eager, on one thread.

    python benchmarks/recurrent.py
    python benchmarks/recurrent.py --only lstm --rounds 31

The two take turns in one process. The table shows the smallest process time of one call in
microseconds, and the ratio, for the layer over a sequence and the gradients of the inputs, the
weights and the biases for a cotangent that is given. Without PyTorch only odyssey is timed. The
exit status is 1 where gradients differ.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

Call = Callable[[], Any]


class Case(NamedTuple):
    """One layer over one sequence."""

    cell: str
    batch: int
    times: int
    inputs: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.cell}, batch {self.batch}, times {self.times}, width {self.width}"


SIZES = ((32, 30, 128, 128), (8, 30, 32, 32), (1, 100, 64, 64), (64, 20, 16, 256), (128, 50, 8, 32))
CASES = [Case(cell, *size) for cell in ("lstm", "gru", "rnn") for size in SIZES]
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def draw(case: Case, dtype: str) -> list[Any]:
    """Draw inputs, two weights, two biases and a cotangent."""
    rng = np.random.default_rng(0)
    wide = GATES[case.cell] * case.width
    shapes = ((case.times, case.batch, case.inputs), (wide, case.inputs), (wide, case.width))
    arrays = [rng.normal(size=shape) / np.sqrt(shape[-1]) for shape in shapes]
    arrays += [rng.normal(size=wide) / 10 for _ in range(2)]
    arrays.append(rng.normal(size=(case.times, case.batch, case.width)))
    return [array.astype(dtype) for array in arrays]


def ours(case: Case, dtype: str) -> Call:
    *arrays, g = draw(case, dtype)
    x, w_x, w_h, b_x, b_h = (od.Variable(a, requires_grad=True) for a in arrays)
    layer = getattr(od.ops, case.cell)
    biases = (b_x, b_h) if case.cell == "gru" else (b_x,)  # else one bias, the sum of the two
    if case.cell != "gru":
        b_x.assign(arrays[3] + arrays[4])

    def call() -> Any:
        with od.GradientTape() as tape:
            out = layer(x, None, w_x, w_h, *biases)[0]
        return tape.gradient(out, [x, w_x, w_h, *biases], g)

    return call


def theirs(case: Case, dtype: str) -> Call:
    x, w_x, w_h, b_x, b_h, g = map(torch.tensor, draw(case, dtype))
    made = getattr(torch.nn, case.cell.upper())
    layer = made(case.inputs, case.width).to(x.dtype)
    with torch.no_grad():
        for name, value in zip(
            ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"),
            (w_x, w_h, b_x, b_h),
            strict=True,
        ):
            getattr(layer, name).copy_(value)
    x.requires_grad_()
    parameters = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]

    def call() -> Any:
        return torch.autograd.grad(layer(x)[0], [x, *parameters], g)

    return call


def agree(calls: list[Call], dtype: str) -> bool:
    """Return whether gradients are equal but for rounding."""
    found = [call() for call in calls]
    bound = 2e-4 if dtype == "float32" else 1e-11
    return all(
        np.abs(np.asarray(a) - np.asarray(b)).max() <= bound * np.abs(np.asarray(b)).max()
        for a, b in zip(*(each[:3] for each in (found[0], found[-1])), strict=True)
    )


def main() -> int:
    """Run; see the head of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each")
    parser.add_argument("--dtype", default="float32", help="float32 or float64")
    arguments = parser.parse_args()
    if torch is not None:
        torch.set_num_threads(1)
    ratios, sound = [], True
    print(f"{'':<46}{'odyssey us':>12}{'torch us':>12}{'ratio':>8}")
    for case in (case for case in CASES if arguments.only in case.name):
        makers = (ours,) if torch is None else (ours, theirs)
        calls = [make(case, arguments.dtype) for make in makers]
        same = agree(calls, arguments.dtype)
        samples = interleaved(dict(enumerate(calls)), arguments.rounds, 0.004)
        times = [1e6 * samples.best(k) for k in range(len(calls))]
        ratios.append(times[0] / times[-1])
        sound = sound and same
        print(f"{case.name:<46}" + "".join(f"{t:>12.0f}" for t in times), end="")
        print(f"{ratios[-1]:>8.2f}" + ("" if same else "  DISAGREES"), flush=True)
    print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, largest {max(ratios):.2f}")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
