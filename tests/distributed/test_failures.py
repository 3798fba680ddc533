"""Failures of one rank: all ranks end in time, the status is not 0, and the reason is named."""

import os
import re

import pytest

from support.ranks import run_ranks

SCRIPT = """
import ctypes, os, signal, sys, time
import numpy as np
import odyssey as od

group, kind = od.distributed.world(), sys.argv[1]
for step in range(4):
    if step == 2 and group.rank == 1:
        print("fails at", time.monotonic(), flush=True)
        if kind == "raises": 1 / 0
        if kind == "exits with 3": sys.exit(3)
        if kind == "exits with 0": sys.exit(0)
        if kind == "leaves with 0": os._exit(0)
        if kind == "is killed": os.kill(os.getpid(), signal.SIGKILL)
        if kind == "reads address 0": ctypes.string_at(0)
        if kind == "is stopped": os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "loops":
            while True: pass
        if kind == "comes late": time.sleep(1.0)
        if kind == "has another size":
            group.all_reduce(np.ones(50_000))
        elif kind == "calls another collective":
            group.broadcast(np.ones(1000))
    group.all_reduce(np.ones(100_000))
print("waited", group.waited, "by", time.monotonic())
"""

CALL = r"all_reduce(?:, [a-z ]+)?\(float64 \(100000,\)[^)]*\)"
LAST = rf"computed after {CALL} \(collective \d+\)"
WAITED = rf"rank 0 was ended, since another rank failed; it waited in {CALL}"
LATE = rf"rank (\d): DistributedError: {CALL}: rank \1 waited [34]\.\d s in collective \d+; "

# The status, and what standard error says, as regular expressions.
KINDS = {
    "raises": (
        1,
        [r'rank 1:   File ".*script.py", line 10', "ZeroDivisionError: division by zero", WAITED],
    ),
    "exits with 3": (3, [r"rank 1 ended with status 3: sys.exit\(3\)", WAITED]),
    "exits with 0": (
        75,
        [rf"rank 0( \(this one\))? calls {CALL}; rank 1.* has reached the end of its script"],
    ),
    "leaves with 0": (
        70,
        [rf"rank 1 ended with status 0 before the end of the script; it {LAST}", WAITED],
    ),
    "is killed": (137, [rf"rank 1 was killed by signal 9 \(SIGKILL\).*{LAST}", WAITED]),
    "reads address 0": (
        139,
        ["rank 1: Fatal Python error: Segmentation fault", rf"rank 1 was killed by .*{LAST}"],
    ),
    "is stopped": (75, [LATE + rf".*rank 1 computes since .* after {CALL}", "rank 1 was ended"]),
    "loops": (75, [LATE + rf".*rank 1 computes since .* after {CALL}", "rank 1 was ended"]),
    "has another size": (
        75,
        [rf"rank 0.* calls {CALL}; rank 1.* calls {CALL.replace('100000', '50000')}"],
    ),
    "calls another collective": (
        75,
        [rf"rank 0.* calls {CALL}; rank 1.* calls broadcast\(float64 \(1000,\), root 0\)"],
    ),
    "comes late": (0, []),
}


def slowness():
    """How many times longer all takes, since processes outnumber the cores."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def check_failure(kind, ranks, mpi):
    timeout = 3
    status, texts = KINDS[kind]
    result = run_ranks(ranks, SCRIPT, kind, timeout=timeout, mpi=mpi)
    assert result.status == status, result.stderr
    for text in texts:
        assert re.search(text, result.stderr), (text, result.stderr)
    failed_at = float(re.search(r"rank 1: fails at (\S+)", result.stdout).group(1))
    if kind == "comes late":
        waited = re.findall(r"(?:rank (\d): )?waited (\S+)", result.stdout)
        waited = {int(rank or 0): float(seconds) for rank, seconds in waited}
        assert sorted(waited) == list(range(ranks))
        assert min(waited, key=waited.get) == 1  # the straggler waits least
        assert waited[0] > 0.9
    else:
        assert result.ended - failed_at < timeout + 2 * slowness(), result.stderr
        assert "waited" not in result.stdout
        named = re.findall(r"odyssey launch: rank (\d)", result.stderr)
        assert sorted(map(int, named)) == list(range(ranks))


# The others take the same ways through the launcher.
COVER = ["raises", "exits with 0", "leaves with 0", "is killed", "is stopped", "comes late"]
COVER += ["calls another collective"]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=pytest.mark.slow if k in COVER else pytest.mark.soak) for k in KINDS],
)
def test_a_failure_of_one_of_two_ranks_ends_both(kind):
    check_failure(kind, 2, "mpich")


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_of_one_of_four_ranks_ends_all(kind):
    check_failure(kind, 4, "mpich")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raises", "leaves with 0", "is stopped"])
def test_a_failure_under_open_mpi_ends_all(kind):
    check_failure(kind, 2, "openmpi")


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_under_open_mpi_ends_all(kind, ranks):
    check_failure(kind, ranks, "openmpi")
