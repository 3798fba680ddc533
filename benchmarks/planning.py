"""How long it takes to lower, plan, verify and write down programs of some thousand instructions.

    python benchmarks/planning.py
    python benchmarks/planning.py --instructions 500,1000,2000,4000

Each is a training step, gradients and update included: `chain` of cheap elementwise ops, `layers`
of a deep MLP, `parts` that are cut out, computed with and joined again, and `branches` that all
read one array. Shown are the fastest of three, in milliseconds of processor time.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.codegen.module import generate_code
from odyssey.compiler.lowering import lower
from odyssey.compiler.machine.blas import blas_addresses
from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule.verify import verify

STAGES = ("lower", "plan", "verify", "generate")


def chain(w: Any, count: int) -> Any:
    """`count` ops one after the other."""
    for k in range(count // 2):
        w = ops.tanh(w) if k % 10 == 0 else w * 0.99 + 0.01
    return w


def layers(w: Any, count: int) -> Any:
    """A deep MLP that shares its weights."""
    h = w
    for _ in range(count // 2):
        h = ops.tanh(h @ w)
    return h


def parts(w: Any, count: int) -> Any:
    """Halves that are changed and joined."""
    for _ in range(count // 5):
        w = ops.concatenate([w[8:] * 2.0, w[:8] + 1.0], axis=0)
    return w


def branches(w: Any, count: int) -> Any:
    """Sums of functions of one array."""
    total = w
    for k in range(count // 3):
        total = total + ops.exp(w * (0.1 + k))
    return total


def graph_of(shape: Callable[..., Any], instructions: int) -> Any:
    """The graph of a training step that has about so many instructions."""
    few, many = (len(_traced(shape, count).instructions) for count in (60, 120))
    count = 60 + (instructions - few) * 60 // (many - few)
    return _traced(shape, count)


def _traced(shape: Callable[..., Any], count: int) -> Any:
    w = Variable(np.eye(16), requires_grad=True)

    def step() -> Any:
        with GradientTape() as tape:
            loss = ops.sum(shape(w, count))
        w.assign(w - 0.01 * tape.gradient(loss, w))
        return loss

    return od.compile(step).lower().graph


def measured(graph: Any) -> dict[str, float]:
    """Milliseconds of each stage, the fastest of three."""
    best = dict.fromkeys(STAGES, float("inf"))
    for _ in range(3):
        times = [time.process_time()]
        low = lower(graph)
        times.append(time.process_time())
        made = plan(low, {})
        times.append(time.process_time())
        verify(made)
        times.append(time.process_time())
        generate_code(made, 0, blas_addresses(), separate_fallible=False)
        times.append(time.process_time())
        for stage, a, b in zip(STAGES, times[:-1], times[1:], strict=True):
            best[stage] = min(best[stage], 1e3 * (b - a))
    return best


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instructions", default="500,1000,2000,4000")
    sizes = [int(size) for size in parser.parse_args().instructions.split(",")]
    print(f"{'program':<10} {'instructions':>12} " + " ".join(f"{s:>11}" for s in STAGES))
    for shape in (chain, layers, parts, branches):
        for size in sizes:
            graph = graph_of(shape, size)
            times = measured(graph)
            row = " ".join(f"{times[stage]:>11.1f}" for stage in STAGES)
            print(f"{shape.__name__:<10} {len(graph.instructions):>12} {row}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
