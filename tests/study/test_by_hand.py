"""Gradients by hand, the study's reference: they are those of central differences."""

import numpy as np
import pytest

from study.by_hand import run_forward
from study.experiments import dynamic, memory_ablation, overhead
from study.networks import network_inputs

SMALL = ("W1", "W2")
NETWORKS = [
    *SMALL,
    *[pytest.param(n, marks=pytest.mark.slow) for n in ("W3", "W4", "W4m", "W6", "W7")],
]


def along(loss_of, p, gradients, size=1e-6):
    """The derivative along a random direction: by central differences, and by the gradients."""
    rng = np.random.default_rng(1)
    direction = [rng.normal(size=a.shape) for a in p]
    ends = [
        loss_of([a + sign * size * d for a, d in zip(p, direction, strict=True)])
        for sign in (1, -1)
    ]
    inner = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    return (ends[0] - ends[1]) / (2 * size), inner


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_by_hand_has_the_slope_of_its_loss(name):
    p, batch = network_inputs(name, np.float64)
    gradients = run_forward(name, p, *batch)[1]()
    assert [g.shape for g in gradients] == [a.shape for a in p]
    # Longer steps pass kinks of relu: in W3 those of 1e-7 still do.
    size = {"W3": 1e-8, "W4m": 1e-9}.get(name, 1e-6)
    measured, wanted = along(lambda p: run_forward(name, p, *batch)[0], p, gradients, size)
    assert measured == pytest.approx(wanted, rel=1e-4)


def test_the_chain_by_hand_has_the_slope_of_its_loss():
    x, factor, addend = overhead.chain_inputs(8, np.float64)
    gradients = overhead.chain_by_hand([factor], x, addend)[1]()
    measured, wanted = along(lambda p: overhead.chain_by_hand(p, x, addend)[0], [factor], gradients)
    assert measured == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("varies", ["length", "depth"])
def test_references_of_varying_steps_are_central_differences(varies, monkeypatch):
    config = {"varies": varies, "steps": 1}
    found = dynamic.reference(config)
    p, sequences = dynamic.step_inputs(config, np.float64)

    def loss_of(p):
        monkeypatch.setattr(dynamic, "step_inputs", lambda *_: (p, sequences))
        return float(dynamic.reference(config)["loss"])

    measured, wanted = along(loss_of, p, [found["gradient0"], found["gradient1"]])
    assert measured == pytest.approx(wanted, rel=1e-6)


def test_the_reference_of_the_ablation_is_central_differences(monkeypatch):
    monkeypatch.setattr(memory_ablation, "UNITS", 5)
    monkeypatch.setattr(memory_ablation, "BATCH", 3)
    config = {"layers": 2}
    found = memory_ablation.reference(config)
    p, x, target = memory_ablation.network_inputs(2, np.float64)

    def loss_of(p):
        monkeypatch.setattr(memory_ablation, "network_inputs", lambda *_: (p, x, target))
        return float(memory_ablation.reference(config)["loss"])

    measured, wanted = along(loss_of, p, [found[f"gradient{k}"] for k in range(8)])
    assert measured == pytest.approx(wanted, rel=1e-6)
