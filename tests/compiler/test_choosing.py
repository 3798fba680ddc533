"""A plan takes of each work the fastest way that is known, and none outside of the tolerance."""

import itertools
import json
import math
from random import Random
from typing import NamedTuple

import pytest

from odyssey.compiler.ways.choosing import (
    check_tolerance,
    choose,
    choose_from,
    is_within,
    outcome_text,
    version_of,
)
from odyssey.compiler.ways.store import Outcome, Store, Verdict
from odyssey.errors import DTypeError, SettingError


class FakeWork(NamedTuple):
    """A work as plans know it."""

    text: str

    def __str__(self):
        return self.text


class FakeWay(NamedTuple):
    """A way as plans know it."""

    name: str
    error_bound: float | None
    version: str


GUESS = FakeWay("guess", None, "g1")


def verdict(work, way, graph="here", bound=0.5, **more):
    settings = {"error": 1e-7, "guess_error": 1e-7, "equal": False} | more
    if bound is not None:
        settings = {"ratio": 0.95 * bound} | settings
    return Verdict(str(work), way.name, version_of(way, GUESS), graph, bound=bound, **settings)


WORK, FAST = FakeWork("w"), FakeWay("fast", None, "1")
WORKS = [(WORK, (GUESS, FAST))]


def ways_of(choices):
    return {str(work): choice.way for work, choice in choices.items()}


def test_without_measurements_there_is_no_plan():
    assert choose(WORKS, []) == {}
    assert choose_from(None, WORKS, lambda: "here", 0.0) == {}


def test_a_way_that_won_is_taken():
    chosen = choose(WORKS, [verdict(WORK, FAST)], graph="here")
    assert ways_of(chosen) == {"w": "fast"}
    assert str(chosen[WORK]) == "measured x0.47 (<0.50)"
    assert chosen[WORK].is_own


def test_a_way_whose_bound_is_not_below_the_limit_is_not_taken():
    assert choose(WORKS, [verdict(WORK, FAST, bound=0.981, ratio=0.8)], graph="here") == {}


def test_a_verdict_of_another_graph_is_an_opinion_until_the_graph_has_its_own():
    other = verdict(WORK, FAST, graph="there")
    chosen = choose(WORKS, [other], graph="here")
    assert str(chosen[WORK]) == "measured x0.47 (<0.50), in another program"
    assert choose(WORKS, [verdict(WORK, FAST, bound=1.2), other], graph="here") == {}


def test_a_later_verdict_replaces_an_earlier_one():
    rows = [verdict(WORK, FAST, bound=0.5), verdict(WORK, FAST, bound=1.3)]
    assert choose(WORKS, rows, graph="here") == {}
    assert ways_of(choose(WORKS, rows[::-1], graph="here")) == {"w": "fast"}


def test_a_way_in_quarantine_is_not_taken_until_a_later_check_passes():
    rows = [verdict(WORK, FAST), verdict(WORK, FAST, bound=None, reason="it raised")]
    assert choose(WORKS, rows, graph="here") == {}
    checked = verdict(WORK, FAST, graph="", bound=None)
    assert ways_of(choose(WORKS, [*rows, checked], graph="here")) == {"w": "fast"}


def test_a_way_that_was_never_checked_is_not_taken():
    row = verdict(WORK, FAST, error=None, guess_error=None)
    assert choose(WORKS, [row], graph="here") == {}


def test_verdicts_on_another_version_of_way_or_guess_are_void():
    rows = [verdict(WORK, FAST)]
    newer, other = FAST._replace(version="2"), GUESS._replace(version="g2")
    assert choose([(WORK, (GUESS, newer))], rows, graph="here") == {}
    assert choose([(WORK, (other, FAST))], rows, graph="here") == {}


def test_the_end_of_a_tuning_decides_for_its_graph_and_tolerance():
    rows, ended = [verdict(WORK, FAST)], [Outcome("here", "0.0", "{}", 1.0, 1.1)]
    assert choose(WORKS, rows, ended, "here", 0.0) == {}
    assert ways_of(choose(WORKS, rows, ended, "here", 0.5)) == {"w": "fast"}
    again = Outcome("here", "0.0", outcome_text({WORK: "fast"}, WORKS), 0.5, 0.6)
    assert ways_of(choose(WORKS, rows, [*ended, again], "here", 0.0)) == {"w": "fast"}


def test_the_tolerance_bits_takes_equal_results_only():
    near, same = verdict(WORK, FAST), verdict(WORK, FAST, equal=True, error=1e-3)
    assert choose(WORKS, [near], graph="here", tolerance="bits") == {}
    assert ways_of(choose(WORKS, [same], graph="here", tolerance="bits")) == {"w": "fast"}


@pytest.mark.parametrize(
    ("tolerance", "bound", "error", "taken"),
    [
        (0.0, None, 3.9e-7, True),
        (0.0, None, 4.1e-7, False),
        (0.0, 1e-3, 4.1e-7, False),
        (1e-4, 1e-3, 4.1e-7, False),
        (1e-3, 1e-3, 9e-4, True),
        (1e-3, 1e-3, 2e-3, False),
        (1e-2, 1e-3, 2e-3, True),
        (1e-3, None, 9e-4, True),
        (1e-3, 0.5, 1e-7, True),  # as exact as the guess, whatever it declares
        (1e-3, None, math.inf, False),
    ],
)
def test_a_tolerance_is_never_exceeded(tolerance, bound, error, taken):
    row = verdict(WORK, FAST, error=error)
    assert is_within(tolerance, bound, row) is taken
    works = [(WORK, (GUESS, FAST._replace(error_bound=bound)))]
    assert bool(choose(works, [row], graph="here", tolerance=tolerance)) is taken


def synthetic(rng):
    """Return works, and what is known of them, on a graph of up to eight works."""
    works, rows = [], []
    for k in range(rng.randint(1, 8)):
        work = FakeWork(f"work{k}")
        others = [
            FakeWay(f"way{j}", rng.choice([None, 1e-3, 1e-1]), "1")
            for j in range(rng.randint(0, 3))
        ]
        works.append((work, (GUESS, *others)))
        for way in others:
            for graph in rng.sample(["here", "there", "elsewhere"], rng.randint(0, 3)):
                ratio = rng.choice([0.3, 0.6, 0.9, 0.97, 1.1]) * (1 + 0.01 * rng.random())
                more = {"error": rng.choice([0.0, 1e-7, 5e-7, 1e-4, 1e-2])}
                more |= {"equal": rng.random() < 0.2, "ratio": ratio, "bound": 1.03 * ratio}
                if rng.random() < 0.1:
                    more["reason"] = "it raised"
                rows.append(verdict(work, way, graph, **more))
    rng.shuffle(rows)
    return works, rows


def brute_force(works, rows, tolerance):
    """Return the plan with the smallest product of ratios, of all plans that are allowed."""

    def ratio(work, way):
        """Return the ratio of a way, or None where it may not be used; written anew."""
        if way is GUESS:
            return 1.0
        known = [r for r in rows if (r.work, r.way) == (str(work), way.name)]
        if not known or known[-1].reason:
            return None
        own = [r for r in known if r.graph == "here"]
        timed = (own or known)[-1]
        if timed.bound >= 0.98:
            return None
        error, guess = known[-1].error, known[-1].guess_error
        exact = known[-1].equal if tolerance == "bits" else known[-1].equal or error <= 4 * guess
        near = tolerance != "bits" and error <= tolerance and (way.error_bound or 0) <= tolerance
        return timed.ratio if exact or near else None

    best, lowest = [], 1.0
    for plan in itertools.product(
        *[[(way.name, ratio(w, way)) for way in ways] for w, ways in works]
    ):
        ratios = [one for _, one in plan]
        if None not in ratios and math.prod(ratios) < lowest:
            best, lowest = plan, math.prod(ratios)
    pairs = zip(works, best, strict=bool(best))
    return {str(work): name for (work, _), (name, _) in pairs if name != "guess"}


@pytest.mark.slow
def test_the_choice_equals_brute_force_on_500_random_graphs():
    chosen = 0
    for seed in range(500):
        rng = Random(seed)
        works, rows = synthetic(rng)
        tolerance = rng.choice(["bits", 0.0, 1e-4, 1e-2, 1.0])
        plan = ways_of(choose(works, rows, (), "here", tolerance))
        assert plan == brute_force(works, rows, tolerance), seed
        chosen += len(plan)
    assert chosen > 500


def test_the_choice_equals_brute_force_on_some_random_graphs():
    for seed in range(500, 515):
        rng = Random(seed)
        works, rows = synthetic(rng)
        works, tolerance = works[:4], rng.choice(["bits", 0.0, 1e-4, 1e-2, 1.0])
        plan = ways_of(choose(works, rows, (), "here", tolerance))
        assert plan == brute_force(works, rows, tolerance), seed


def test_a_store_gives_the_choices_of_its_rows(tmp_path):
    store = Store(tmp_path / "store" / "m", {"processor": "a"})
    assert choose_from(store, WORKS, lambda: "here", 0.0) == {}
    assert store.add(verdicts=[verdict(WORK, FAST)])
    assert ways_of(choose_from(store, WORKS, lambda: "here", 0.0)) == {"w": "fast"}
    assert store.add(outcomes=[Outcome("here", "0.0", "{}", 1.0, 1.0)])
    assert choose_from(store, WORKS, lambda: "here", 0.0) == {}


def test_a_outcome_plan_that_is_not_one_is_passed_over():
    texts = ("[]", json.dumps({"w": 3}), json.dumps({"w": ["fast"]}))
    for text in texts:
        ended = [Outcome("here", "0.0", text, 1.0, 1.0)]
        taken = choose(WORKS, [verdict(WORK, FAST)], ended, "here", 0.0)
        assert len(taken) == (text == "[]")


@pytest.mark.parametrize("wrong", ["exact", -1e-9, math.inf, math.nan])
def test_a_tolerance_that_is_none_is_refused(wrong):
    with pytest.raises(SettingError, match=r"^compile: tolerance="):
        check_tolerance("compile", wrong)


def test_a_tolerance_is_bits_or_a_number():
    assert check_tolerance("compile", "bits") == "bits"
    assert check_tolerance("compile", 0) == 0.0
    with pytest.raises(DTypeError, match=r"^compile: tolerance="):
        check_tolerance("compile", None)
