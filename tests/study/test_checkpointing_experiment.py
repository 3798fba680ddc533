"""The checkpointing experiment: its reference, and its hypotheses on made-up records."""

import numpy as np
import pytest

from study.experiments import checkpointing
from study.experiments.checkpointing import LAYERS, predicted_results, result_bytes
from study.records import Records, judged
from support.study import header, sample


def records_of(peak=lambda k: predicted_results(LAYERS, k), time=1.33):
    """Records of peaks in results, and of times beside a step without checkpoints."""
    lines = []
    for system in checkpointing.ODYSSEY:
        for every in checkpointing.EVERY:
            seconds = time if every else 1.0
            metrics = {
                "peak_bytes": peak(every) * result_bytes(),
                "seconds": seconds,
                "cpu_seconds": seconds,
            }
            config = {"layers": LAYERS, "every": every}
            lines += [sample(system, k, 0.0, config=config, metrics=metrics) for k in (0, 1)]
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(checkpointing.HYPOTHESES, records).items()}


def test_the_textbook_holds():
    assert set(outcomes(records_of()).values()) == {"held"}


def test_the_textbook_has_its_least_peak_at_the_root():
    cut = [k for k in checkpointing.EVERY if k]
    assert min(cut, key=lambda k: predicted_results(LAYERS, k)) ** 2 == LAYERS


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"peak": lambda k: 64.0 + k}, ["root", "textbook"]),
        ({"peak": lambda k: 2.0 * predicted_results(LAYERS, k)}, ["textbook"]),
        ({"time": 2.0}, ["time"]),
    ],
    ids=["nothing saved", "twice the textbook", "two more runs"],
)
def test_each_hypothesis_is_refuted_by_what_it_says(changes, names):
    found = outcomes(records_of(**changes))
    assert [n for n, outcome in found.items() if outcome == "refuted"] == names


def test_nothing_measured_is_undecided_and_has_no_pictures():
    empty = Records([], [header()])
    assert set(outcomes(empty).values()) == {"undecided"}
    assert checkpointing.pictures(empty) == []


def test_pictures_say_where_the_records_have_the_least_peak():
    memory, time = checkpointing.pictures(records_of())
    assert "a checkpoint every 8 of 64 layers" in memory.title
    assert "up to 33% of a step" in time.title


@pytest.mark.parametrize("every", [0, 1, 2], ids=["without", "each layer", "pairs"])
def test_taped_steps_are_the_reference(every, monkeypatch):
    monkeypatch.setattr(checkpointing, "WIDTH", 8)
    monkeypatch.setattr(checkpointing, "BATCH", 5)
    config = {"layers": 4, "every": every}
    answer = checkpointing.build("taped", config).answer()
    for name, wanted in checkpointing.reference(config).items():
        np.testing.assert_allclose(answer[name], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_the_gradients_of_the_reference_are_differences(monkeypatch):
    monkeypatch.setattr(checkpointing, "WIDTH", 4)
    monkeypatch.setattr(checkpointing, "BATCH", 3)
    weights, batch = checkpointing.inputs(3)
    exact = checkpointing.reference({"layers": 3, "every": 0})
    direction = np.random.default_rng(0).normal(size=(4, 4))
    for name, layer in (("first", 0), ("last", 2)):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [w.astype(np.float64) for w in weights]
            moved[layer] = moved[layer] + step * direction
            monkeypatch.setattr(checkpointing, "inputs", lambda n, moved=moved: (moved, batch))
            ends.append(checkpointing.reference({"layers": 3, "every": 0})["loss"])
        slope = (ends[0] - ends[1]) / 2e-5
        assert np.sum(exact[name] * direction) == pytest.approx(slope, rel=1e-6)
