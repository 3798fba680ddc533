"""The guess of each program beside its other ways: where would a plan be faster?

    python benchmarks/guesses.py
    python benchmarks/guesses.py --only product,W2

54 products, 30 layers of convolution with their gradients, 8 attentions, and the training steps W1
to W7. Each other way of each work runs in the whole program against the guess, in turns, on copies
of the states, on one thread: medians of ratios of process time, as `od.tune` does. Shown is the
time of the guess by that of the best way; 1.00 where the guess is the best. Those above 1.10 are
measured again, and listed at the end with their way and the reason, if it is known. Nothing is
stored.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402

import convolution  # noqa: E402
import odyssey as od  # noqa: E402
from harness.compiled_cases import batches_of, parameters_of  # noqa: E402
from odyssey import ops  # noqa: E402
from odyssey.compiler.tuning import _Runner as Runner  # noqa: E402
from odyssey.compiler.ways.contest import Contest, hold_contest  # noqa: E402
from odyssey.compiler.ways.plans import NO_PLAN, Plan  # noqa: E402
from peers import compiled_odyssey  # noqa: E402

MOST = 1.10
STEPS = ("W1", "W2", "W3", "W4", "W4m", "W6", "W7")

# Rows, inner size, columns: alone, and with the second matrix transposed.
PRODUCTS = (
    *((1, 64, 64), (1, 256, 256), (1, 768, 768), (1, 768, 3072), (1, 3072, 768), (1, 768, 8192)),
    *((2, 768, 768), (4, 768, 3072), (8, 768, 768), (64, 64, 1), (1000, 256, 1), (8192, 768, 1)),
    *((4096, 4, 16), (10000, 8, 8), (10000, 8, 1), (4096, 16, 4), (1000, 2, 2), (4, 2, 16)),
    *((16, 16, 16), (32, 784, 128), (64, 64, 64), (128, 128, 128), (256, 256, 256)),
    *((32, 128, 10), (256, 512, 512), (3, 3, 3), (512, 64, 512)),
)

# Batch, heads, length, width; causal; with gradients.
ATTENTIONS = (
    *(((8, 4, 128, 32), causal, True) for causal in (False, True)),
    *(((2, 4, 512, 64), causal, True) for causal in (False, True)),
    *(((1, 4, 1024, 64), causal, False) for causal in (False, True)),
    ((1, 12, 16, 64), False, True),
    ((4, 8, 64, 64), True, False),
)


# Why a guess is known to be beaten, by the beginning of the name of a program.
_GRADIENT = "the rule of this gradient, by stride and channels, is too coarse; tune finds the way"
REASONS = {
    "product (1, ": "alone, gemv is faster for some; the sum fuses casts, biases and residuals",
    "product (1000, 2)": "a product of some microseconds",
    "conv resnet 64 to 128": _GRADIENT,
    "conv resnet 512 at 7": _GRADIENT,
    "conv mobilenet stem": _GRADIENT,
    "conv mobilenet each of 64 to 56": _GRADIENT,
    "conv mobilenet each of 1024 at 7": _GRADIENT,
    "conv vgg 3 to 64": _GRADIENT,
}


class Found(NamedTuple):
    """A program with its best other way."""

    name: str
    contest: Contest
    plan: Plan

    @property
    def factor(self) -> float:
        """Time of the guess by that of the best way."""
        return max(1.0, 1 / self.contest.ratio)


def products(rng: Any) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for m, k, n in PRODUCTS:
        x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        yield f"product ({m}, {k}) @ ({k}, {n})", lambda x, w: x @ w, (x, w)
        turned = np.ascontiguousarray(w.T)
        yield f"product ({m}, {k}) @ ({n}, {k}).T", lambda x, w: x @ w.T, (x, turned)


def convolutions() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for layer in convolution.LAYERS:
        options = convolution.options_of(layer)

        def call(x: Any, w: Any, b: Any, g: Any, options: Any = options) -> Any:
            with od.GradientTape() as tape:
                leaves = [od.Variable(a, requires_grad=True) for a in (x, w, b)]
                y = ops.conv2d(*leaves, **options)
            return tape.gradient(y, leaves, g)

        yield f"conv {layer.name}", call, tuple(convolution.drawn(layer))


def attentions(rng: Any) -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for shape, causal, gradients in ATTENTIONS:

        def call(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return ops.scaled_dot_product_attention(q, k, v, causal=causal)

        def total(q: Any, k: Any, v: Any, call: Any = call) -> Any:
            return (call(q, k, v) * q).sum()

        args = tuple(rng.standard_normal(shape).astype(np.float32) for _ in range(3))
        title = f"attention {shape}{', causal' * causal}{', gradients' * gradients}"
        yield title, od.grad(total, (0, 1, 2)) if gradients else call, args


def steps() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for name in STEPS:
        yield name, compiled_odyssey.step_of(name, parameters_of(name)), batches_of(name)[0]


def best_of(name: str, fn: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> Found:
    """Return the best plan with one work computed otherwise, or with all that won."""
    step = od.compile(fn)
    step.precompile(*args)
    guess = Runner(step._dry_run(NO_PLAN, args, {}))
    best, winners, end = Found(name, Contest((), 1.0, 1.0), NO_PLAN), NO_PLAN, time.time() + seconds
    for choice in step._works(NO_PLAN, args, {}):
        for way in choice.ways[1:]:
            if time.time() > end:
                return best
            plan = NO_PLAN.with_way(choice.work, way.name)
            contest = against(guess, step, plan, args, 9)
            if contest.ratio < 1 / MOST:  # noise wins now and then
                contest = against(guess, step, plan, args, 25)
                if contest.is_won:
                    winners = winners.with_way(choice.work, way.name)
            if contest.ratio < best.contest.ratio:
                best = Found(name, contest, plan)
    if len(winners) > 1:
        contest = against(guess, step, winners, args, 25)
        if contest.ratio < best.contest.ratio:
            best = Found(name, contest, winners)
    return best


def against(guess: Any, step: Any, plan: Plan, args: tuple[Any, ...], rounds: int) -> Contest:
    other = Runner(step._dry_run(plan, args, {}))

    def reset() -> None:
        guess.reset()
        other.reset()

    settings = {"rounds": rounds, "block": 3_000_000, "reset": reset}
    return hold_contest(guess.block, other.block, time.thread_time_ns, Random(0), **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="beginnings of names, with commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="most seconds of a program")
    arguments = parser.parse_args()
    os.environ["ODYSSEY_CACHE"] = tempfile.mkdtemp(prefix="odyssey-guesses-")  # no measured plans
    only = tuple(filter(None, arguments.only.split(",")))
    rng = np.random.default_rng(0)
    found: list[Found] = []
    for cases in (products(rng), convolutions(), attentions(rng), steps()):
        for name, fn, args in cases:
            if only and not name.startswith(only):
                continue
            found.append(best_of(name, fn, args, arguments.seconds))
            print(f"{name:56s} {found[-1].factor:6.2f}  {short(found[-1])}", flush=True)
    listed = [one for one in found if one.factor > MOST]
    mean = math.exp(sum(math.log(one.factor) for one in found) / max(len(found), 1))
    print(f"\n{len(found)} programs, {len(listed)} above {MOST:.2f}, mean {mean:.3f}")
    for one in listed:
        known = [reason for name, reason in REASONS.items() if one.name.startswith(name)]
        print(f"{one.name}: {one.contest}, {next(iter(known), 'no reason is known')}\n  {one.plan}")


def short(found: Found) -> str:
    """Format the rows and ways of a plan."""
    if found.factor <= MOST:
        return ""
    return ", ".join(f"{work.row}: {way}" for work, way in found.plan.differences.items())


if __name__ == "__main__":
    main()
