"""The launcher: the number of ranks, their output and environment, and statuses."""

import pytest

from odyssey.distributed.launcher import choose_rank_count
from support.ranks import run_ranks

HELLO = """
import os, sys
import odyssey as od
group = od.distributed.world()
print("out", group.rank, group.size, sys.argv[1:])
print("err", group.rank, file=sys.stderr)
"""


@pytest.mark.slow
def test_lines_of_ranks_are_tagged_but_those_of_rank_0():
    result = run_ranks(2, HELLO, "--flag", "a b", "--", "", "--timeout")
    assert result.status == 0, result.stderr
    arguments = "['--flag', 'a b', '--', '', '--timeout']"
    assert sorted(result.stdout.splitlines()) == [
        f"out 0 2 {arguments}",
        f"rank 1: out 1 2 {arguments}",
    ]
    assert sorted(line for line in result.stderr.splitlines() if "err" in line) == [
        "err 0",
        "rank 1: err 1",
    ]


@pytest.mark.parametrize(
    ("low", "high", "cores", "left", "wanted"),
    [
        (4, 4, 2, 4, 4),
        (1, 8, 2, 8, 2),
        (1, 8, 6, 8, 4),
        (1, 8, 64, 8, 8),
        (1, 8, 64, 7, 4),
        (2, 8, 64, 1, 2),
        (5, 7, 64, 7, 7),
        (3, 3, 1, 2, 3),
        (1, 1, 1, 0, 1),
    ],
)
def test_a_range_gives_the_largest_power_of_two_for_which_there_are_cores(
    low, high, cores, left, wanted
):
    assert choose_rank_count(low, high, cores, left) == wanted
