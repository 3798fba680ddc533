"""The attention experiment: its reference, and its hypotheses on made-up records."""

import numpy as np
import pytest

from study.experiments import attention
from study.records import Records, judged
from support.study import header, sample


def records_of(materialized=2.0, tiled=1.0, slower=1.0):
    """Records of peaks that are powers of the length, and of times in a ratio."""
    lines = []
    exponents = {"materialized": materialized, "tiled": tiled}
    for system in ("taped", "compiled"):
        for form, exponent in exponents.items():
            for length in (64, 1024, 2048, 4096):
                # Below the lengths that count, nothing can be seen.
                peak = float(length) ** exponent if length >= attention.LONG else 0.0
                seconds = 1e-6 * length**2 * (slower if form == "tiled" else 1.0)
                metrics = {"peak_bytes": peak, "seconds": seconds, "cpu_seconds": seconds}
                config = {"length": length, "form": form, "causal": False}
                lines += [sample(system, k, 0.0, config=config, metrics=metrics) for k in (0, 1)]
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(attention.HYPOTHESES, records).items()}


def test_a_square_and_a_proportion_hold():
    assert set(outcomes(records_of()).values()) == {"held"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"materialized": 1.5}, "materialized"), ({"tiled": 1.5}, "tiled"), ({"slower": 1.5}, "time")],
    ids=["materialized", "tiled", "time"],
)
def test_each_hypothesis_is_refuted_by_what_it_says(changes, name):
    found = outcomes(records_of(**changes))
    assert [n for n, outcome in found.items() if outcome == "refuted"] == [name]


def test_short_lengths_alone_decide_nothing():
    short = [line for line in records_of().lines if line["config"]["length"] == 64]
    assert set(outcomes(Records(short, [header()])).values()) == {"undecided"}


def test_pictures_say_what_the_records_have():
    found = attention.pictures(records_of(materialized=1.9, tiled=1.1, slower=1.3))
    assert "all scores in memory, the peak of attention grows" in found[0].title
    assert "to the power 1.90 to 1.90" in found[0].title
    assert "to the power 1.10 to 1.10" in found[1].title
    assert "Tiles take 1.30 to 1.30 of the time" in found[2].title


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
@pytest.mark.parametrize("form", ["materialized", "tiled"])
def test_taped_attention_is_the_reference(form, causal, monkeypatch):
    monkeypatch.setitem(attention.WARM_LENGTHS, "taped", 4)
    config = {"length": 24, "form": form, "causal": causal}
    answer = attention.build("taped", config).answer()
    reference = attention.reference(config)
    for name, wanted in reference.items():
        np.testing.assert_allclose(answer[name], wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_the_gradients_of_the_reference_are_differences(causal, monkeypatch):
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=(1, 1, 5, attention.DIM)) for _ in range(4)]
    monkeypatch.setattr(attention, "operands", lambda length: drawn)
    config = {"length": 5, "form": "tiled", "causal": causal}
    exact = attention.reference(config)
    for k, name in enumerate("qkv"):
        direction = rng.normal(size=drawn[k].shape)
        ends = []
        original = drawn[k]
        for step in (1e-6, -1e-6):
            drawn[k] = original + step * direction
            ends.append(np.sum(attention.reference(config)["out"] * drawn[3]))
        drawn[k] = original
        slope = (ends[0] - ends[1]) / 2e-6
        assert np.sum(exact[name] * direction) == pytest.approx(slope, rel=1e-6)
