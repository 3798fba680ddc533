"""Sums over ranks: MPI's Allreduce beside announced, polled and ordered sums.

    python benchmarks/collectives.py                 # on 2 ranks
    python benchmarks/collectives.py -n 4 --rounds 200

Ways of one sum of float32 take turns on all ranks; what is shown is the least time of a block, in
microseconds, and the ratio of the least times of the ordered sum and Allreduce. It is the least
and no median, since each of these waits for the slowest rank, and so for whatever else runs on the
machine. The columns: ``Allreduce``, blocking, into another array; ``polled``, MPI's
Iallreduce, tested until it ends; ``fast``, ``group.all_reduce(x, "fast")``, which is announced and
has an end; ``ordered``, ``sum_slices`` and ``gather_slices``, as ``DataParallel`` calls them;
``all_reduce``, ``group.all_reduce(x)``. The last lines are what an announcement costs, which is a
``barrier``, and what collectives cost in a group of one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import odyssey as od

SIZES = (1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
BLOCK = 0.003  # seconds of a block, which fit between interruptions


def ways_of_sum(group: Any, count: int) -> dict[str, Callable[[], Any]]:
    """Return the ways of one sum, by name."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    x = np.zeros(count, np.float32)  # sums of sums stay finite
    out = np.empty_like(x)
    own = group.slices(count)[group.rank]
    parts = np.empty((group.size, own.stop - own.start), x.dtype)

    def polled() -> None:
        request = comm.Iallreduce(MPI.IN_PLACE, x, MPI.SUM)
        while not request.Test():
            pass

    def ordered() -> None:
        x[own] = group.sum_slices(x, parts)
        group.gather_slices(x)

    return {
        "copy": lambda: np.copyto(out, x),
        "Allreduce": lambda: comm.Allreduce(x, out, MPI.SUM),
        "polled": polled,
        "fast": lambda: group.all_reduce(x, "fast"),
        "ordered": ordered,
        "all_reduce": lambda: group.all_reduce(x),
    }


def seconds_of(group: Any, run: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of one call, of a block on all ranks."""
    group.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def least_seconds(group: Any, ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the least seconds of each way; the ways take turns."""
    repeats = {}
    for name, run in ways.items():
        run()
        once = max(min(seconds_of(group, run, 2) for _ in range(3)), 1e-7)
        repeats[name] = int(group.broadcast(max(1, int(BLOCK / once))))
    least = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, run in ways.items():
            least[name] = min(least[name], seconds_of(group, run, repeats[name]))
    return least


def run_rank(rounds: int) -> None:
    """Measure on all ranks, and print on rank 0."""
    group = od.distributed.world()
    group.print(f"{group.size} ranks, load {os.getloadavg()[0]:.1f}; microseconds")
    for size in SIZES:
        least = least_seconds(group, ways_of_sum(group, size // 4), rounds)
        if size == SIZES[0]:
            group.print(f"{'bytes':>12}" + "".join(f"{name:>12}" for name in least), "  ordered /")
        ratio = least["ordered"] / least["Allreduce"]
        group.print(
            f"{size:>12,}{''.join(f'{t * 1e6:12.1f}' for t in least.values())}{ratio:11.2f}"
        )
    least = least_seconds(group, {"barrier": group.barrier}, rounds)
    group.print(f"an announcement: {least['barrier'] * 1e6:.1f} us")
    alone = group.split(group.rank)
    for count in (1, 1 << 18):
        x = np.ones(count, np.float32)
        ways = {"copy": lambda x=x: np.array(x, order="C"), "one": lambda x=x: alone.all_reduce(x)}
        least = least_seconds(group, ways, rounds)
        group.print(
            f"all_reduce of {4 * count:,} bytes in a group of one: "
            f"{(least['one'] - least['copy']) * 1e6:.2f} us beyond the copy of "
            f"{least['copy'] * 1e6:.2f} us"
        )


def main() -> None:
    """Launch this file on several ranks, or measure as one of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-n", type=int, default=2, metavar="RANKS")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    if options.n < 2:
        raise SystemExit("a sum over ranks needs two of them")
    if od.distributed.world().size > 1:
        run_rank(options.rounds)
        return
    launch = [sys.executable, "-m", "odyssey", "launch", "-n", str(options.n)]
    script = [os.path.abspath(__file__), "-n", str(options.n), "--rounds", str(options.rounds)]
    raise SystemExit(subprocess.run([*launch, *script], check=False).returncode)


if __name__ == "__main__":
    main()
