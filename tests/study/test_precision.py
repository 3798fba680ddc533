"""The precision experiment: its reference, and its hypotheses on made-up records."""

import numpy as np
import pytest

from study.experiments import precision
from study.records import Records, judged
from support.study import header, sample

LOSSES = {("float16", True): 1.02, ("bfloat16", False): 0.99, ("float16", False): 1.5}


def records_of(losses=LOSSES, held=0.55, time=1.1):
    """Records of five seeds: final losses and times are those of float32 times a factor."""
    lines = []
    for name, scaled in precision.FORMATS:
        half = name != "float32"
        for seed in precision.SEEDS:
            final = 0.01 * (1 + seed) * losses.get((name, scaled), 1.0)
            metrics = {f"loss_at_{point}": 1.0 for point in precision.POINTS} | {
                "final_loss": final,
                "peak_bytes": 2.0,
                "cpu_seconds": 1e-3 * (time if half else 1.0),
            }
            config = {"format": name, "scaled": scaled, "seed": seed, "steps": 2000}
            counts = {"held_bytes": 100 * held if half else 100}
            for system in precision.SYSTEMS:
                lines.append(sample(system, 0, 0.0, config=config, metrics=metrics, counts=counts))
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(precision.HYPOTHESES, records).items()}


def test_halves_that_end_where_float32_does_hold():
    assert set(outcomes(records_of()).values()) == {"held"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"losses": {**LOSSES, ("float16", True): 1.06}}, "float16"),
        ({"losses": {**LOSSES, ("bfloat16", False): 0.9}}, "bfloat16"),
        ({"losses": {**LOSSES, ("float16", False): 1.0}}, "scaling"),
        ({"held": 0.7}, "memory"),
        ({"time": 2.0}, "time"),
    ],
    ids=["float16", "bfloat16", "scaling", "memory", "time"],
)
def test_each_hypothesis_is_refuted_by_what_it_says(changes, name):
    found = outcomes(records_of(**changes))
    assert [n for n, outcome in found.items() if outcome == "refuted"] == [name]


def test_nothing_measured_is_undecided():
    assert set(outcomes(Records([], [header()])).values()) == {"undecided"}


def test_pictures_say_the_ratio_that_the_records_have():
    for factor in (1.02, 1.23):
        losses = {**LOSSES, ("float16", True): factor}
        pictures = precision.pictures(records_of(losses))
        assert f"ends at {factor} of float32's loss" in pictures[0].title
        assert "float16, scaled" in pictures[0].table()
        assert "hold 0.550 to 0.550 of what float32 holds" in pictures[-1].title
        assert "take 1.10 to 1.10 times as long" in pictures[-1].title


def test_the_reference_has_the_gradient_of_its_loss():
    values = [v.astype(np.float64) for v in precision._parameters(0)]
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(6, 64)), rng.integers(0, 10, 6)
    _, slope = precision._exact_loss(values, x, y)
    for k in range(10):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [v.copy() for v in values]
            moved[-1][k] += step
            ends.append(precision._exact_loss(moved, x, y)[0])
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope[k], rel=1e-6)
