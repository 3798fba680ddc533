"""Time of a put into caches of two sizes, compiled and eager.

    python benchmarks/caches.py
    python benchmarks/caches.py --layers 24 --heads 8 --dim 128 --capacity 4096 --rounds 500

One row of keys and of values goes into each layer of a cache, by default of 12 layers with 12
heads of 64 in float32, of a capacity of 16 (1 MB) and of 1024 (75 MB). What is printed is the
median of the processor time of one thread, where the two take turns, and the arena of the program,
which would have room for a buffer if one were copied.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402

import odyssey as od  # noqa: E402
from harness.sampling import interleaved  # noqa: E402


def make_step(cache: Any) -> Callable[[Any], None]:
    """Return a step that puts one row into each layer."""

    def step(rows: Any) -> None:
        for layer in cache:
            layer.put(k=rows, v=rows)
        cache.advance(1)

    return step


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("layers", 12), ("heads", 12), ("dim", 64), ("capacity", 1024)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args(argv)
    shape = options.heads, options.dim
    rows = np.ones((options.heads, 1, options.dim), np.float32)
    caches: dict[tuple[str, int], od.Cache] = {}
    steps: dict[tuple[str, int], Callable[[], None]] = {}
    for capacity in (16, options.capacity):
        cache = od.Cache({"k": shape, "v": shape}, capacity, layers=options.layers)
        compiled = od.compile(make_step(cache), copies="error")
        for _ in range(4):
            compiled(rows)
        arena = next(line for line in str(compiled.explain(rows)).splitlines() if "arena" in line)
        size = 2 * options.layers * rows.nbytes * capacity / 1e6
        print(f"capacity {capacity}: buffers of {size:.1f} MB; {arena}")
        for name, step in (("compiled", compiled), ("eager", make_step(cache))):
            caches[name, capacity] = cache
            steps[name, capacity] = partial(step, rows)

    def emptied(name: tuple[str, int]) -> Any:
        caches[name].truncate(2)
        return nullcontext()

    samples = interleaved(steps, options.rounds, repeats=1, clock=time.thread_time, around=emptied)
    for name, capacity in steps:
        middle = samples.median((name, capacity)) * 1e6
        print(f"{name}, capacity {capacity}: {middle:.1f} us for {options.layers} layers")


if __name__ == "__main__":
    main()
