"""Intervals and tests of the study: levels that are known, and differences that are found."""

import math

import numpy as np
import pytest
from scipy import stats

from harness.statistics import bootstrap_median, holm, sign_test
from study.records import estimate_of

ROUNDS, RUNS = 15, 800


def level_of_interval(rounds):
    """Probability that the interval leaves out the median of any continuous distribution.

    The ends are order statistics X(j) and X(n + 1 - j): the interval leaves it out where at most
    j - 1 of n values are on one side.
    """
    _, low, high = bootstrap_median(np.arange(1, rounds + 1))
    assert low == int(low)
    assert high == rounds + 1 - low
    return 2 * sum(math.comb(rounds, k) for k in range(int(low))) / 2**rounds


@pytest.mark.parametrize("rounds", [5, 9, 15, 31])
def test_the_interval_has_a_level_near_five_percent_whatever_the_distribution(rounds):
    assert 0.02 < level_of_interval(rounds) < 0.075


def two_systems(kind, rng, size):
    """Times of two systems that do the same, in rounds: what they share, and what is their own."""
    own = rng.lognormal(0, 0.03, (2, size, ROUNDS))
    shared = np.ones((size, ROUNDS))
    if kind == "drift":
        shared = 1 + np.linspace(0, 1, ROUNDS) * rng.uniform(0, 2, (size, 1))
    elif kind == "busy moments":
        shared = 1 + 3 * (rng.random((size, ROUNDS)) < 0.2)
        own *= 1 + rng.pareto(1.5, own.shape) * 0.02  # some of one system alone
    elif kind == "slow waves":
        shared = np.exp(np.cumsum(rng.normal(0, 0.2, (size, ROUNDS)), axis=1))
    elif kind == "heavy tails":
        own = 1 + np.abs(rng.standard_cauchy(own.shape)) * 0.05
    elif kind == "two speeds":
        own *= np.where(rng.random(own.shape) < 0.5, 1.0, 1.3)
    return own * shared


KINDS = ["even", "drift", "busy moments", "slow waves", "heavy tails", "two speeds"]


def differing(times):
    """Share of runs that find a difference."""
    found = 0
    for mine, base in zip(*times, strict=True):
        found += estimate_of(list(mine / base)).differs_from(1.0)
    return found / len(times[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_equal_systems_differ_as_often_as_the_level_says(kind):
    level = level_of_interval(ROUNDS)
    found = differing(two_systems(kind, np.random.default_rng(1), RUNS))
    assert found <= 0.05
    assert abs(found - level) <= 4 * math.sqrt(level * (1 - level) / RUNS)


@pytest.mark.slow
# Own noise of 30 % in half of the samples, or heavy tails, hide a tenth in 15 rounds.
@pytest.mark.parametrize("kind", ["even", "drift", "busy moments", "slow waves"])
def test_a_planted_tenth_is_found_where_noise_is_smaller(kind):
    times = two_systems(kind, np.random.default_rng(2), RUNS)
    times[0] *= 1.1
    assert differing(times) >= 0.95


@pytest.mark.slow
def test_intervals_cover_the_median_of_skewed_values_as_often_as_they_say():
    rng = np.random.default_rng(3)
    for rounds in (5, 15):
        level = level_of_interval(rounds)
        missed = 0
        for values in rng.exponential(1.0, (RUNS, rounds)):
            _, low, high = bootstrap_median(values)
            missed += not low <= math.log(2) <= high
        assert abs(missed / RUNS - level) <= 4 * math.sqrt(level * (1 - level) / RUNS)


def test_the_bootstrap_is_that_of_scipy():
    for seed, rounds in ((0, 5), (1, 14), (2, 15)):
        values = np.random.default_rng(seed).lognormal(0, 1, rounds)
        median, low, high = bootstrap_median(values)
        drawn = stats.bootstrap(
            (values,), np.median, n_resamples=9999, method="percentile", rng=seed, batch=500
        ).bootstrap_distribution
        assert median == np.median(values)
        # Draws differ, so each end is near the quantile of the other's draws.
        assert np.quantile(drawn, 0.02) <= low <= np.quantile(drawn, 0.03)
        assert np.quantile(drawn, 0.97) <= high <= np.quantile(drawn, 0.98)


def test_one_value_is_its_own_interval_and_none_is_refused():
    assert bootstrap_median([3.0]) == (3.0, 3.0, 3.0)
    assert bootstrap_median([1.0, math.inf, math.inf]) == (math.inf, 1.0, math.inf)
    with pytest.raises(ValueError, match="no values came; at least one is needed"):
        bootstrap_median([])


def test_the_test_of_signs_is_that_of_scipy():
    rng = np.random.default_rng(4)
    for rounds in (1, 5, 14, 15):
        values = rng.normal(0.4, 1, rounds)
        wanted = stats.binomtest(int(np.sum(values > 0.2)), rounds).pvalue
        assert sign_test(values, 0.2) == pytest.approx(wanted, rel=1e-12)
    assert sign_test([1.0, 1.0], 1.0) == 1.0
    assert sign_test([1.0, 2.0, 2.0], 1.0) == 0.5  # the equal one is left out


def test_holm_corrects_as_the_paper_does():
    p = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert holm(p) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(holm(p)) == list(p)
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_estimates_are_noisy_where_the_interval_is_wide_or_the_clocks_differ():
    steady = [1.0, 1.01, 1.02, 1.03, 1.04]
    assert not estimate_of(steady).noisy
    assert estimate_of(steady, clocks=0.21).noisy
    assert estimate_of([1.0, 1.1, 1.2, 1.3, 1.4]).noisy
    assert not estimate_of([0.0] * 5).noisy
