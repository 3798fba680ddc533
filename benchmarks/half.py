"""Float16 and bfloat16 beside float32, eager and compiled: the same calls, on one thread.

    python benchmarks/half.py
    python benchmarks/half.py --only matmul --rounds 15

The three take turns in one process. What is shown are medians of process time in microseconds, and
ratios to float32: of a call on plain arrays, and of one on a tape with its gradients; then of both
in compiled functions. On a processor arithmetic happens in float32, so what halves bring is memory,
and the ratio their price.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402
from odyssey import ops  # noqa: E402

DTYPES = ("float32", "float16", "bfloat16")


class Case(NamedTuple):
    """A call, and the shapes of its operands."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]
    goal: float = 3.0  # the most that float16 may take, as a ratio to float32


def cases() -> Iterator[Case]:
    """Every case."""
    square = (1000, 1000)
    yield Case("matmul", (square, square), ops.matmul, 1.3)
    yield Case("linear", ((256, 512), (512, 512), (512,)), ops.linear, 1.3)
    yield Case("x * 2 + 1", (square,), lambda x: ops.add(ops.mul(x, 2.0), 1.0))
    yield Case("x + y", (square, square), ops.add)
    yield Case("x + bias", (square, (1000,)), ops.add)
    yield Case("exp", (square,), ops.exp)
    yield Case("tanh(x * 2 + 1)", (square,), lambda x: ops.tanh(ops.add(ops.mul(x, 2.0), 1.0)))
    yield Case("relu", (square,), ops.relu)
    yield Case("gelu", (square,), ops.gelu)
    yield Case("sum", (square,), ops.sum)
    yield Case("sum along rows", (square,), lambda x: ops.sum(x, -1))
    yield Case("max along rows", (square,), lambda x: ops.max(x, -1))
    yield Case("cumsum", (square,), lambda x: ops.cumsum(x, -1))
    yield Case("softmax", (square,), lambda x: ops.softmax(x, axis=-1))
    yield Case("layer_norm", (square, (1000,), (1000,)), ops.layer_norm)
    yield Case(
        "conv2d",
        ((8, 16, 28, 28), (16, 16, 3, 3)),
        lambda x, w: ops.conv2d(x, w, padding=1),
        1.3,
    )
    yield Case("attention", ((4, 4, 64, 32),) * 3, ops.scaled_dot_product_attention)
    yield Case("mean_squared_error", (square, square), od.losses.mean_squared_error)
    yield Case("sort", (square,), lambda x: ops.sort(x, -1))
    yield Case("transpose", (square,), lambda x: ops.transpose(x))
    yield Case("x * 2, of 8", ((8,),), lambda x: ops.mul(x, 2.0))


def with_gradients(case: Case, operands: list[Any]) -> Callable[[], Any]:
    """Return a function that records the call and takes the gradients of its operands."""
    leaves = [od.Variable(v, requires_grad=True) for v in operands]
    seed = np.ones_like(case.call(*operands))

    def run() -> Any:
        with od.GradientTape() as tape:
            out = case.call(*leaves)
        return tape.gradient(out, leaves, seed)

    return run


def compiled(call: Callable[..., Any], operands: list[Any]) -> Callable[[], Any]:
    """Return a compiled call of a function, after its compilation."""
    program = od.compile(call)
    for _ in range(3):
        program(*operands)
    return lambda: program(*operands)


def slopes(case: Case) -> Callable[..., Any]:
    """Return a function of arrays that takes the gradients of all of them."""

    def run(*operands: Any) -> Any:
        leaves = [od.Variable(v, requires_grad=True) for v in operands]
        with od.GradientTape() as tape:
            out = case.call(*leaves)
        return tape.gradient(out, leaves, ops.ones_like(out))

    return run


def compare(case: Case, rounds: int) -> None:
    """Print the lines of a case."""
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=shape).astype(np.float32) for shape in case.shapes]
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for dtype in DTYPES:
        operands = [ops.astype(v, dtype) for v in drawn]
        calls["call", dtype] = lambda operands=operands: case.call(*operands)
        calls["with gradients", dtype] = with_gradients(case, operands)
        calls["compiled", dtype] = compiled(case.call, operands)
        calls["its gradients", dtype] = compiled(slopes(case), operands)
    for what in ("call", "with gradients", "compiled", "its gradients"):
        runs = {dtype: calls[what, dtype] for dtype in DTYPES}
        samples = interleaved(runs, rounds, 0.003)
        base, *halves = (1e6 * samples.median(dtype) for dtype in DTYPES)
        ratios = "".join(f"{half:10.1f} {half / base:6.2f}" for half in halves)
        over = "  over the goal" if what == "call" and halves[0] > case.goal * base else ""
        print(f"{case.name:20}{what:15}{base:10.1f}{ratios}{over}", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    print(f"{'':35}{'float32':>10}{'float16':>10}{'ratio':>7}{'bfloat16':>10}{'ratio':>7}")
    for case in cases():
        if given.only in case.name:
            compare(case, given.rounds)


if __name__ == "__main__":
    main()
