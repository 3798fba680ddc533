"""The small-data experiment: trainers against each other, and hypotheses on made-up records."""

import importlib.util
import sys

import numpy as np
import pytest

from study import datasets, small_training
from study.contract import NotApplicable
from study.experiments import small_data
from study.records import Records, judged
from support.study import header, sample

TIMES = {"numpy": 0.4, "taped": 0.9, "compiled": 2.0, "torch": 4.0, "jax": 3.0, "autograd": 0.8}


def records_of(times=TIMES, steps=220, trained=0.2, arrived=1.0):
    """Records of five rounds of digits: seconds by system, and the steps of the taped one."""
    lines = []
    for system, seconds in times.items():
        metrics = {
            "seconds": seconds,
            "cpu_seconds": seconds,
            "steps": float(steps if system == "taped" else 220),
            "reached": 0.98,
            "arrived": arrived,
            "import_seconds": 0.2,
            "first_seconds": 0.1,
            "train_seconds": trained * seconds,
        }
        config = {"problem": "digits", "cache": "empty"}
        lines += [sample(system, k, 0.0, config=config, metrics=metrics) for k in range(5)]
    return Records(lines, [header()])


def outcomes(records):
    return {n: v.outcome for n, v in judged(small_data.HYPOTHESES, records).items()}


def test_what_is_expected_holds():
    assert set(outcomes(records_of()).values()) == {"held"}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"steps": 300}, ["same-steps"]),
        ({"arrived": 0.0}, ["same-steps"]),
        ({"trained": 0.8}, ["overhead"]),
        ({"times": {**TIMES, "compiled": 0.5}}, ["compiling"]),
        ({"times": {**TIMES, "torch": 0.5}}, ["peers"]),
    ],
    ids=["other steps", "missed", "training takes the time", "compiling pays", "a peer is sooner"],
)
def test_each_hypothesis_is_refuted_by_what_it_says(changes, names):
    found = outcomes(records_of(**changes))
    assert [n for n, outcome in found.items() if outcome == "refuted"] == names


def test_peers_that_are_missing_leave_their_hypothesis_undecided():
    own = {n: t for n, t in TIMES.items() if n in ("numpy", "taped", "compiled")}
    assert outcomes(records_of(own))["peers"] == "undecided"


def test_pictures_say_who_arrives_first():
    assert "NumPy by hand arrives first" in small_data.pictures(records_of())[0].title
    faster = {**TIMES, "taped": 0.1}
    assert "odyssey taped arrives first" in small_data.pictures(records_of(faster))[0].title


@pytest.fixture
def data(monkeypatch):
    """Made-up digits and patients in place of scikit-learn's, few of them."""
    rng = np.random.RandomState(0)
    rows = rng.uniform(size=(80, 64)).astype(np.float32)
    digits = datasets.Split(rows[:64], rng.randint(0, 10, 64), rows[64:], rng.randint(0, 10, 16))
    x = rng.normal(size=(140, 10)).astype(np.float32)
    y = (x[:, :1] + 0.1 * rng.normal(size=(140, 1))).astype(np.float32)
    diabetes = datasets.Split(x[:118], y[:118], x[118:], y[118:])
    found = {"digits": digits, "diabetes": diabetes}
    monkeypatch.setattr(small_training, "load", lambda name, folder=None: found[name])
    return found


@pytest.mark.parametrize("name", ["digits", "diabetes"])
@pytest.mark.parametrize("system", ["numpy", "taped"])
def test_first_losses_are_those_of_float64(system, name, data):
    problem = small_training.PROBLEMS[name]
    trainer = small_training.TRAINERS[system](problem, small_training.parameters(problem))
    losses = small_training.first_losses(name, trainer.step, 2)
    wanted = small_data.reference({"problem": name})["losses"]
    np.testing.assert_allclose(losses, wanted[:2], rtol=1e-5)


@pytest.mark.peers
@pytest.mark.parametrize("system", ["compiled", "torch", "jax", "autograd"])
def test_peers_take_the_steps_of_float64(system, data):
    library = {"compiled": "odyssey"}.get(system, system)
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    problem = small_training.PROBLEMS["digits"]
    trainer = small_training.TRAINERS[system](problem, small_training.parameters(problem))
    losses = small_training.first_losses("digits", trainer.step, 2)
    wanted = small_data.reference({"problem": "digits"})["losses"]
    np.testing.assert_allclose(losses, wanted[:2], rtol=1e-5)


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_gradients_by_hand_are_differences(name, data):
    problem = small_training.PROBLEMS[name]
    values = [v.astype(np.float64) for v in small_training.parameters(problem)]
    x, y = data[name].x[:9].astype(np.float64), data[name].y[:9]
    _, gradients = small_training.loss_and_gradients(problem, values, x, y)
    rng = np.random.default_rng(0)
    for k, slope in enumerate(gradients):
        direction = rng.normal(size=slope.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [v + step * direction if n == k else v for n, v in enumerate(values)]
            ends.append(small_training.loss_and_gradients(problem, moved, x, y)[0])
        assert np.sum(slope * direction) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


def test_the_target_of_diabetes_is_the_best_linear_model(data):
    split = data["diabetes"]
    best = small_training.target("diabetes", split)
    columns = np.column_stack([split.x, np.ones(len(split.x))])
    normal = np.linalg.solve(columns.T @ columns, columns.T @ split.y)
    assert best == pytest.approx(np.mean((columns @ normal - split.y) ** 2), rel=1e-4)


def test_arrays_are_kept_for_interpreters_without_the_library(tmp_path):
    path = tmp_path / "diabetes.npz"
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.normal(size=(442, 10)), y=rng.normal(size=442))
    split = datasets.diabetes(tmp_path)
    assert split.x.shape == (354, 10)
    assert split.test_y.shape == (88, 1)
    every = np.concatenate([split.x, split.test_x])
    np.testing.assert_allclose([every.mean(0), every.std(0) - 1], 0, atol=1e-6)


def test_without_the_library_and_its_arrays_nothing_applies(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(NotApplicable, match=r"diabetes: neither scikit-learn nor .*diabetes\.npz"):
        datasets.diabetes(tmp_path)
