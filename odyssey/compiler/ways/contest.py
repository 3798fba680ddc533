"""Contests: a champion and a challenger run in turns, and the ratio of their times is bounded.

Called by ``tuning``. The two run in each round, in random order, so that whatever slows the machine
slows both. The ratio of a contest is the median over its rounds. It is bounded from above by an
order statistic, which assumes nothing about the noise: a challenger wins if the bound, and not the
ratio, is below ``WINS_BELOW``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import comb, inf
from random import Random
from statistics import median
from typing import NamedTuple

__all__ = [
    "FIRST_ROUNDS",
    "NO_BOUND",
    "ROUNDS",
    "WINS_BELOW",
    "Contest",
    "contest_of",
    "format_ratio",
    "hold_contest",
    "upper_bound",
]

FIRST_ROUNDS = 5
"""Rounds after which a challenger that clearly loses is sent home."""

ROUNDS = 25
"""Rounds of a contest that is not decided before."""

WINS_BELOW = 0.98
"""A challenger wins if the upper bound of the median ratio is below this."""

NO_BOUND = 1e9
"""A bound that is stored where there is none, after few rounds."""

_LOSES_ABOVE = 1.05

# Probability that the median lies above its upper bound.
_RISK = 0.025

# Nanoseconds that one of the two runs in a round, if a run takes less.
_BLOCK = 10_000_000


class Contest(NamedTuple):
    """Times of a champion and a challenger.

    Attributes:
        pairs: For each round the nanoseconds of a run of the champion, and of the challenger.
        ratio: Median over the rounds of the challenger's time to the champion's.
        bound: Upper 97.5 % bound of that median; infinity where the rounds are too few for one.
    """

    pairs: tuple[tuple[float, float], ...]
    ratio: float
    bound: float

    @property
    def is_won(self) -> bool:
        """Return whether the challenger is faster beyond doubt."""
        return self.bound < WINS_BELOW

    def __str__(self) -> str:
        return format_ratio(self.ratio, self.bound).rstrip()


def format_ratio(ratio: float | None, bound: float | None) -> str:
    """Format a ratio with its bound, as far as they are known, in front of other words."""
    if ratio is None:
        return ""
    return (
        f"x{ratio:.2f} " if bound is None or bound >= NO_BOUND else f"x{ratio:.2f} (<{bound:.2f}) "
    )


def hold_contest(
    champion: Callable[[int], object],
    challenger: Callable[[int], object],
    clock: Callable[[], int],
    rng: Random,
    rounds: int = ROUNDS,
    block: int = _BLOCK,
    reset: Callable[[], object] = lambda: None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Contest:
    """Run a champion and a challenger in turns.

    Args:
        champion: ``champion(n)`` runs the champion ``n`` times.
        challenger: The same for the challenger.
        clock: Returns nanoseconds.
        rng: Decides who runs first in a round.
        rounds: Rounds, unless the first ones decide.
        block: Nanoseconds of a block of runs, if one run takes less.
        reset: Is called before each block, outside of the time.
        goes_on: Is asked before each round; false ends the contest with the rounds that were run.

    Returns:
        The contest. Of one without rounds the ratio is 1 and the bound infinite.
    """
    runners = champion, challenger
    counts = [_calibrate(run, clock, block, reset) for run in runners]
    pairs: list[tuple[float, float]] = []
    while len(pairs) < rounds and goes_on():
        order = [0, 1]
        rng.shuffle(order)
        spent = [0.0, 0.0]
        for k in order:
            reset()
            start = clock()
            runners[k](counts[k])
            spent[k] = max(clock() - start, 1) / counts[k]
        pairs.append((spent[0], spent[1]))
        if len(pairs) == FIRST_ROUNDS < rounds and _median_ratio(pairs) > _LOSES_ABOVE:
            break
    return contest_of(pairs)


def contest_of(pairs: Sequence[tuple[float, float]]) -> Contest:
    """Return the contest of such times."""
    return Contest(
        tuple(pairs), _median_ratio(pairs), upper_bound([own / base for base, own in pairs])
    )


def _calibrate(
    run: Callable[[int], object], clock: Callable[[], int], block: int, reset: Callable[[], object]
) -> int:
    """Return how many runs fill a block; the first runs warm caches, and are not counted."""
    reset()
    run(1)
    count, most = 1, 1 << 20
    while count < most:
        reset()
        start = clock()
        run(count)
        spent = max(clock() - start, 1)
        if 4 * spent >= block:
            return max(1, min(most, count * block // spent))
        count = min(most, max(2 * count, min(16 * count, count * block // (2 * spent))))
    return count


def _median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return median([own / base for base, own in pairs]) if pairs else 1.0


def upper_bound(ratios: Sequence[float]) -> float:
    """Return the upper 97.5 % bound of a median: an order statistic, by the sign test."""
    position = _bound_position(len(ratios))
    return inf if position is None else sorted(ratios)[position]


@cache
def _bound_position(count: int) -> int | None:
    """Return the smallest position, from 0, of a sorted sample that bounds the median.

    The element at position ``k`` lies below the median if more than ``k`` elements do, each with
    probability 1/2.
    """
    tail, position = 0, None
    for k in range(count - 1, -1, -1):
        tail += comb(count, k + 1)
        if tail > _RISK * 2**count:
            break
        position = k
    return position
