"""Every workload of these benchmarks as it is written and compiled: is any slower compiled?

    python benchmarks/both_ways.py
    python benchmarks/both_ways.py --only conv,gelu --rounds 9

Both take turns in one process, on one thread. Shown are the medians of process time in
microseconds, their ratio, and what the first calls cost beyond those that follow. The exit status
is 1 where a workload is slower compiled than eager by more than `--slack`, or gives other numbers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402

import contractions  # noqa: E402
import convolution  # noqa: E402
import kernels  # noqa: E402
import normalization  # noqa: E402
import odyssey as od  # noqa: E402
import pooling  # noqa: E402
import scans  # noqa: E402
from harness.compiled_cases import batches_of, parameters_of  # noqa: E402
from harness.everyday_cases import everyday_inputs  # noqa: E402
from harness.sampling import block, interleaved, repeated  # noqa: E402
from harness.workloads import CHAIN_LENGTH  # noqa: E402
from odyssey import GradientTape, Variable, ops  # noqa: E402
from peers import compiled_odyssey, everyday_odyssey  # noqa: E402

BLOCK_SECONDS = 0.03
FIRST = 4
STEPS = ("W1", "W2", "W3", "W4", "W4m", "W6", "W7", "digits", "small")

# Masks, and options of a size that a program must not have a kernel for each unit of.
SIZED: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "softmax of what a mask leaves": (
        (64, 1000),
        lambda x: ops.softmax(ops.where(np.tri(64, 1000, 900, bool), x, -np.inf), -1),
    ),
    "causal attention": ((3, 4, 128, 32), lambda x: _attention(x, True)),
    "causal attention of 600": ((3, 4, 600, 32), lambda x: _attention(x, True)),
    "causal attention of 1024": ((3, 4, 1024, 32), lambda x: _attention(x, True)),
    "attention of 1024": ((3, 4, 1024, 32), lambda x: _attention(x, False)),
    "avg_pool2d 14": ((8, 16, 28, 28), lambda x: ops.avg_pool2d(x, window=14)),
    "avg_pool2d 7 by 1": ((8, 16, 28, 28), lambda x: ops.avg_pool2d(x, window=7, stride=1)),
    "avg_pool1d 100": ((8, 16, 1000), lambda x: ops.avg_pool1d(x, window=100)),
    "lp_pool1d 100": ((8, 16, 1000), lambda x: ops.lp_pool1d(x, p=2, window=100)),
    "fold 14 by 14": (
        (2, 588, 16),
        lambda x: ops.fold(x, size=(56, 56), window=14, stride=14),
    ),
    "conv_transpose2d 7 by 2": (
        (8, 16, 14, 14),
        lambda x: ops.conv_transpose2d(x, np.ones((16, 8, 7, 7), x.dtype), stride=2),
    ),
    "quantiles": ((200, 50), lambda x: ops.quantile(x, np.linspace(0, 1, 20), axis=0)),
    "differences": ((1000,), lambda x: ops.diff(x, n=20)),
}


def _attention(x: Any, causal: bool) -> Any:
    return ops.scaled_dot_product_attention(x[0], x[1], x[2], causal=causal)


Run = Callable[..., Any]
Workload = tuple[str, Run, tuple[Any, ...]]


def differentiated(call: Run, operands: list[Any]) -> Run:
    """A call with the gradients of the sum of its result."""
    leaves = [Variable(x, requires_grad=True) for x in operands]

    def run() -> Any:
        with GradientTape() as tape:
            total = ops.sum(call(*leaves))
        return tape.gradient(total, leaves)

    return run


def pulled(call: Run, operands: list[Any]) -> Run:
    """A call with the gradients for a drawn cotangent: of its sum a normalized array has none."""
    leaves = [Variable(x, requires_grad=True) for x in operands]
    given = call(*operands)
    cotangent = np.random.default_rng(0).standard_normal(given.shape).astype(given.dtype)

    def run() -> Any:
        with GradientTape() as tape:
            out = call(*leaves)
        return tape.gradient(out, leaves, cotangent)

    return run


def chain() -> Run:
    """The chain of `record`, with its sweep."""
    b = np.full(8, 0.01, np.float32)

    def long(h: Any) -> Any:
        for _ in range(CHAIN_LENGTH):
            h = h + b
        return h

    return differentiated(long, [np.ones(8, np.float32)])


def workloads() -> Iterator[Workload]:
    """Each with its name, the function, and its arguments; the same numbers at each call."""
    for name in STEPS:
        step = compiled_odyssey.step_of(name, parameters_of(name))
        yield name, step, batches_of(name)[0]
    yield f"record {CHAIN_LENGTH} ops", chain(), ()
    for name, run in everyday_odyssey.cases(everyday_inputs()).items():
        yield f"everyday {name}", run, ()
    yield from of_the_others(np.random.default_rng(0))


def of_the_others(rng: Any) -> Iterator[Workload]:
    """Of the programs that time single ops."""
    for layer in convolution.LAYERS:
        yield f"conv {layer.name}", convolution.ours(layer), ()
    for dtype in ("float32", "float64"):
        for name, (shape, call, _) in scans.CASES.items():
            x = rng.uniform(0.5, 1.5, shape).astype(dtype)
            yield f"scan {name} {dtype}", differentiated(call, [x]), ()
        for case in normalization.cases(dtype):
            yield f"norm {case.name} {dtype}", pulled(case.ours, case.operands), ()
        for case in kernels.cases():
            arrays = [rng.normal(size=shape).astype(dtype) for shape in case.shapes]
            yield f"kernel {case.name} {dtype}", differentiated(case.ours, arrays), ()
        for name, (shape, call) in SIZED.items():
            x = rng.normal(size=shape).astype(dtype)
            yield f"sized {name} {dtype}", pulled(call, [x]), ()
        for shape in pooling.SHAPES:
            x = rng.normal(size=shape).astype(dtype)
            for case in pooling.CASES:
                run = pooling.ours(case, x)
                yield f"pool {case.op} {case.ours} {shape[1]} {dtype}", run, ()
    for name, (subscripts, shapes) in contractions.CASES.items():
        arrays = [rng.normal(size=shape) for shape in shapes]

        def call(*given: Any, subscripts: str = subscripts) -> Any:
            return ops.einsum(subscripts, *given)

        yield f"einsum {name}", differentiated(call, arrays), ()


def arrays_of(result: Any) -> list[Any]:
    return [
        np.asarray(part.detach().numpy() if isinstance(part, Variable) else part)
        for part in od.tree.leaves(result)
    ]


def alike(one: Any, other: Any) -> bool:
    """Whether two results are the same but for rounding."""
    pairs = list(zip(arrays_of(one), arrays_of(other), strict=True))
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and bool(np.abs(a - b).max(initial=0.0) <= 1e-3 * np.abs(b).max(initial=1e-3))
        for a, b in pairs
        if a.dtype.kind in "fc"
    )


def show(name: str, run: Run, args: tuple[Any, ...], rounds: int, slack: float) -> bool:
    """Measure one workload and print its line; return whether all is well."""
    first_result = run(*args)
    compiled = od.compile(run)
    call, compiled_call = partial(run, *args), partial(compiled, *args)
    first = block(repeated(compiled_call), FIRST, time.process_time) * FIRST
    # A step changes what it trains, and so has other results later.
    agree = name in STEPS or alike(compiled_call(), first_result)
    samples = interleaved({"compiled": compiled_call, "eager": call}, rounds, BLOCK_SECONDS)
    eager, native = samples.median("eager"), samples.median("compiled")
    ratio = samples.ratio("compiled", "eager")
    slower = ratio > 1 + slack
    note = ("  SLOWER" if slower else "") + ("" if agree else "  DISAGREES")
    extra = max(0.0, first - FIRST * native)
    line = f"{name:<48}{eager * 1e6:>12.1f}{native * 1e6:>12.1f}{ratio:>8.3f}{extra:>9.3f}{note}"
    print(line, flush=True)
    return agree and not slower


def main() -> int:
    """Run; see the head of this file for the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default="", help="words, separated by commas; a workload has one in its name")
    add("--rounds", type=int, default=5, help="samples of each way")
    add("--slack", type=float, default=0.05, help="how much slower is still as fast")
    arguments = parser.parse_args()
    words = arguments.only.split(",")
    print(f"{'workload':<48}{'eager us':>12}{'compiled us':>12}{'ratio':>8}{'first s':>9}")
    sound = True
    for name, run, args in workloads():
        if any(word in name for word in words):
            sound = show(name, run, args, arguments.rounds, arguments.slack) and sound
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
