"""Medians with intervals by bootstrap, tests of signs, and Holm's correction."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

DRAWS = 10_000
SEED = 0


@lru_cache(maxsize=64)
def _middle_ranks(rounds: int, draws: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Ranks of the two middle values of each draw, for any values of that many rounds.

    The median of a draw depends on the values by their ranks alone, so that the draws of one seed
    are made once.
    """
    drawn = np.sort(np.random.default_rng(seed).integers(0, rounds, (draws, rounds)), axis=1)
    return drawn[:, (rounds - 1) // 2], drawn[:, rounds // 2]


def bootstrap_median(
    values: ArrayLike, draws: int = DRAWS, seed: int = SEED
) -> tuple[float, float, float]:
    """Median, and its 95 % interval by bootstrap over the values (Efron 1979, percentiles).

    Args:
        values: One number for each round, at least one.
        draws: Resamples of all rounds, with replacement.
        seed: Of the resamples.

    Returns:
        The median, the lower and the upper end. A single value is its own interval; where a value
        is not finite the ends are not finite either.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not ordered.size:
        raise ValueError("bootstrap_median: no values came; at least one is needed")
    below, above = _middle_ranks(ordered.size, draws, seed)
    with np.errstate(invalid="ignore"):  # inf - inf
        medians = np.sort((ordered[below] + ordered[above]) / 2)
        median = (ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
    # Values that were seen, not numbers between them: those of infinities are no numbers.
    ends = int(0.025 * (draws - 1)), math.ceil(0.975 * (draws - 1))
    return float(median), float(medians[ends[0]]), float(medians[ends[1]])


def sign_test(values: ArrayLike, bound: float) -> float:
    """Two-sided probability of so uneven a split around `bound`, were it the median.

    The exact test of signs: it makes no assumption on the distribution, and tests the median, as
    `bootstrap_median` estimates it. Values equal to the bound are left out.

    Args:
        values: One number for each round.
        bound: The median of the hypothesis that there is no effect, such as 1 for a ratio.
    """
    given = np.asarray(values, np.float64)
    above, below = int(np.sum(given > bound)), int(np.sum(given < bound))
    count = above + below
    tail = sum(math.comb(count, k) for k in range(min(above, below) + 1)) / 2**count
    return min(1.0, 2 * tail)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values of several hypotheses (Holm 1979).

    Args:
        p_values: By the name of the hypothesis.

    Returns:
        Corrected p-values; those of at most 0.05 hold together with an error of 5 % at most.
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def neighbour_ratios(mine: Mapping[int, float], base: Mapping[int, float]) -> Sequence[float]:
    """Ratios of the values of each round that both have."""
    return [value / base[k] for k, value in mine.items() if base.get(k)]
