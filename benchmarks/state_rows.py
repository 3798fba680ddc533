"""Time of compiled steps that write a row into a state, by the bytes of the state.

    python benchmarks/state_rows.py
    python benchmarks/state_rows.py --megabytes 1 75 300 --rounds 500

Steps: a row by ``dynamic_update_slice``; a row by an index that is traced; a token of ``od.Cache``
with 12 layers, 24 states; and a ``while_loop`` of 300 steps that carries a state, which makes two
passes over it, for each call and not for each step. A step costs what its rows cost if the state is
written in place. Medians of processor time on one thread, where the sizes take turns; the arena of
the program is beside them.
"""

from __future__ import annotations

import argparse
import os
import re
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
from odyssey import ops  # noqa: E402

HEADS, DIM, LAYERS = 12, 64, 12
ROW = np.ones((HEADS, 1, DIM), np.float32)


def rows_of(megabytes: float, states: int = 1) -> int:
    """Return how many rows some states of so many bytes in all have."""
    return max(16, int(megabytes * 1e6 / (4 * HEADS * DIM * states)))


def put(x: Any, row: Any, at: Any) -> Any:
    return ops.dynamic_update_slice(x, row, (0, at, 0))


def keys_and_length(rows: int) -> tuple[Any, Any]:
    return od.Variable(np.zeros((HEADS, rows, DIM), np.float32)), od.Variable(np.array(0))


def by_slice(megabytes: float) -> tuple[Callable[..., Any], Callable[[], None]]:
    keys, length = keys_and_length(rows_of(megabytes))

    def step(row: Any) -> None:
        keys.assign(put(keys, row, length))
        length.assign((length + 1) % 8)

    return od.compile(step, copies="error"), lambda: None


def by_index(megabytes: float) -> tuple[Callable[..., Any], Callable[[], None]]:
    keys, length = keys_and_length(rows_of(megabytes))

    def step(row: Any) -> None:
        keys[:, ops.identity(length)] = row[:, 0]
        length.assign((length + 1) % 8)

    return od.compile(step, copies="error"), lambda: None


def by_cache(megabytes: float) -> tuple[Callable[..., Any], Callable[[], None]]:
    rows = {"keys": (HEADS, DIM), "values": (HEADS, DIM)}
    cache = od.Cache(rows, rows_of(megabytes, 2 * LAYERS), layers=LAYERS)

    def step(row: Any) -> None:
        for layer in range(LAYERS):
            cache[layer].put(keys=row * (layer + 1.0), values=row)
        cache.advance(1)

    return od.compile(step, copies="error"), lambda: cache.truncate(0)


def in_loop(megabytes: float) -> tuple[Callable[..., Any], Callable[[], None]]:
    keys, _ = keys_and_length(rows_of(megabytes))

    def step(row: Any) -> None:
        def write(carry: Any) -> Any:
            return put(carry[0], row, carry[1] % 8), carry[1] + 1

        keys.assign(od.while_loop(lambda c: c[1] < 300, write, (keys, np.array(0)))[0])

    return od.compile(step), lambda: None


STEPS = {
    "a row by dynamic_update_slice": by_slice,
    "a row by a traced index": by_index,
    "a token of a cache of 12 layers": by_cache,
    "300 rows in a while_loop": in_loop,
}


def arena_of(step: Any) -> int:
    """Return the bytes of the arena of a step's program."""
    found = re.search(r"arena: ([0-9,]+) bytes", step.explain(ROW))
    assert found is not None
    return int(found[1].replace(",", ""))


def measure(make: Callable[..., Any], sizes: Sequence[float], rounds: int) -> list[str]:
    """Return time and arena of a step for each size, where the sizes take turns."""
    steps = [make(size) for size in sizes]
    for step, _ in steps:
        step.precompile(ROW)

    def prepared(index: int) -> Any:
        steps[index][1]()
        return nullcontext()

    runs = {index: partial(step, ROW) for index, (step, _) in enumerate(steps)}
    samples = interleaved(runs, rounds, clock=time.thread_time, repeats=1, around=prepared)
    return [
        f"{size:g} MB: {1e6 * samples.median(k):.1f} us, arena {arena_of(step):,} B"
        for k, (size, (step, _)) in enumerate(zip(sizes, steps, strict=True))
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1.0, 75.0])
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args(arguments)
    for name, make in STEPS.items():
        rounds = min(given.rounds, 20) if make is in_loop else given.rounds
        print(f"{name}: {'; '.join(measure(make, given.megabytes, rounds))}")


if __name__ == "__main__":
    main()
