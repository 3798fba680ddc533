"""Predicates of hypotheses: outcomes from intervals, and exponents of power laws."""

import numpy as np
import pytest

from study.contract import Estimate
from study.predicates import all_of, at_least, at_most, between, largest, power


def estimate(low, high):
    return Estimate((low + high) / 2, low, high, 5)


@pytest.mark.parametrize(
    ("interval", "below", "above"),
    [
        ((1, 2), "held", "refuted"),
        ((4, 5), "refuted", "held"),
        ((2, 4), "undecided", "undecided"),
        ((3, 3), "held", "held"),
    ],
    ids=["below", "above", "across", "at the bound"],
)
def test_an_interval_across_a_bound_decides_nothing(interval, below, above):
    assert at_most(estimate(*interval), 3) == below
    assert at_least(estimate(*interval), 3) == above


def test_a_quantity_between_bounds_is_above_one_and_below_the_other():
    assert between(estimate(2, 3), 1, 4) == "held"
    assert between(estimate(0, 0.5), 1, 4) == "refuted"
    assert between(estimate(0.5, 2), 1, 4) == "undecided"


def test_one_refutation_refutes_and_nothing_is_undecided():
    assert all_of(["held", "refuted", "undecided"]) == "refuted"
    assert all_of(["held", "undecided"]) == "undecided"
    assert all_of(["held", "held"]) == "held"
    assert all_of([]) == "undecided"


def test_the_exponent_of_a_power_law_is_found_with_its_interval():
    exact = power([(x, estimate(3 * x**0.5, 3 * x**0.5)) for x in (1, 10, 1000)])
    np.testing.assert_allclose([exact.median, exact.low, exact.high], 0.5, atol=1e-12)
    # Ends that move by a factor e over a range of e² tilt the line by 1 in all.
    wide = power([(x, Estimate(x, x / np.e**0.5, x * np.e**0.5, 5)) for x in (1, np.e**2)])
    np.testing.assert_allclose([wide.low, wide.high], [0.5, 1.5])


def test_the_largest_estimate_comes_with_its_name():
    assert list(largest({"a": estimate(1, 1), "b": estimate(2, 2)})) == ["b"]
    assert largest({}) == {}
