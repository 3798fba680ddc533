"""Schedules against their formulas; together, in groups, saved and restored."""

import math

import numpy as np
import pytest

from odyssey.errors import OdysseyError
from odyssey.optim import (
    SGD,
    Adam,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
    WarmupCosineLR,
    WarmupLR,
)
from support.optimizers import wide

COUNT = 25


def optimizer_of(*rates):
    return SGD([{"params": wide(1.0), "learning_rate": rate} for rate in rates], 1.0)


def warm(t, base):
    return base * min((t + 1) / 5, 1.0)


def warm_from_zero(t, base):
    return base * min(t / 4, 1.0)


def warm_cosine(t, base):
    if t < 4:
        return warm(t, base)
    return 0.01 + (base - 0.01) * (1 + math.cos(math.pi * min((t - 4) / 10, 1.0))) / 2


def one_cycle(t, base):
    """Up from base to 4 base at 0.3 * 20 - 1 = 5, then down to base / 1e4 at 19."""
    t = min(t, 19)
    first, last, share = (base, 4 * base, t / 5) if t <= 5 else (4 * base, base / 1e4, (t - 5) / 14)
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


# What makes the schedule, and the rate after t steps.
SCHEDULES = {
    "step": (lambda o: StepLR(o, 3, gamma=0.5), lambda t, base: base * 0.5 ** (t // 3)),
    "every_step": (lambda o: StepLR(o, 1), lambda t, base: base * 0.1**t),
    "exponential": (lambda o: ExponentialLR(o, 0.9), lambda t, base: base * 0.9**t),
    "milestones": (
        lambda o: MultiStepLR(o, [2, 5, 5, 9], gamma=0.5),
        lambda t, base: base * 0.5 ** sum(t >= m for m in (2, 5, 5, 9)),
    ),
    "cosine": (
        lambda o: CosineAnnealingLR(o, 10, eta_min=0.01),
        lambda t, base: 0.01 + (base - 0.01) * (1 + math.cos(math.pi * t / 10)) / 2,
    ),
    "cosine_to_zero": (
        lambda o: CosineAnnealingLR(o, 7),
        lambda t, base: base * (1 + math.cos(math.pi * t / 7)) / 2,
    ),
    "warmup": (lambda o: WarmupLR(o, 4), warm),
    "function": (lambda o: LambdaLR(o, lambda t: 1 / (1 + t)), lambda t, base: base / (1 + t)),
    "cycle": (
        lambda o: OneCycleLR(o, [g.learning_rate * 4 for g in o.groups], 20, div_factor=4.0),
        one_cycle,
    ),
    "warmup_from_zero": (lambda o: WarmupLR(o, warmup_steps=4, start_factor=0.0), warm_from_zero),
    "no_warmup": (lambda o: WarmupLR(o, 0), lambda t, base: base),
    "warmup_cosine": (lambda o: WarmupCosineLR(o, 4, 14, eta_min=0.01), warm_cosine),
    "cosine_alone": (
        lambda o: WarmupCosineLR(o, warmup_steps=0, total_steps=10),
        lambda t, base: base * (1 + math.cos(math.pi * min(t / 10, 1.0))) / 2,
    ),
}
schedules = pytest.mark.parametrize("name", SCHEDULES)


def rates(optimizer):
    return [group.learning_rate for group in optimizer.groups]


@schedules
def test_a_schedule_follows_its_formula_in_every_group(name):
    make, formula = SCHEDULES[name]
    optimizer = optimizer_of(0.5, 0.2)
    schedule = make(optimizer)
    for t in range(COUNT):
        expected = [formula(t, 0.5), formula(t, 0.2)]
        np.testing.assert_allclose(rates(optimizer), expected, rtol=1e-12, atol=1e-15)
        schedule.step()
    assert schedule.steps == COUNT


@pytest.mark.parametrize("loads_first", ["optimizer", "schedule"])
@schedules
def test_a_schedule_saved_mid_way_continues_exactly(name, loads_first):
    make, _ = SCHEDULES[name]
    optimizer = optimizer_of(0.5, 0.2)
    schedule = make(optimizer)
    for _ in range(6):
        schedule.step()
    saved = schedule.state_dict(), optimizer.state_dict()
    other = optimizer_of(1.0, 1.0)
    if loads_first == "optimizer":
        other.load_state_dict(saved[1])
        copy = make(other)
        copy.load_state_dict(saved[0])
    else:
        copy = make(other)
        copy.load_state_dict(saved[0])
        other.load_state_dict(saved[1])
    for _ in range(10):
        assert rates(other) == rates(optimizer)
        schedule.step()
        copy.step()
    assert copy.state_dict() == schedule.state_dict()


def test_a_state_dict_is_a_copy():
    schedule = MultiStepLR(optimizer_of(0.5), [2])
    saved = schedule.state_dict()
    saved["base_rates"][0] = 9.0
    saved["milestones"][3] = 1
    assert schedule.base_rates == [0.5]
    assert 3 not in schedule.milestones


def test_schedules_are_used_together():
    optimizer = optimizer_of(1.0)
    both = [StepLR(optimizer, 2, gamma=0.5), ExponentialLR(optimizer, 0.9)]
    for _ in range(5):
        for schedule in both:
            schedule.step()
    assert optimizer.learning_rate == pytest.approx(0.9**5 * 0.5**2, rel=1e-14)


def test_a_rate_assigned_in_between_is_taken_further():
    optimizer = optimizer_of(1.0)
    schedule = ExponentialLR(optimizer, 0.5)
    schedule.step()
    optimizer.learning_rate = 8.0
    schedule.step()
    assert optimizer.learning_rate == 4.0


def test_the_scheduled_rate_is_the_one_of_the_step():
    w = wide(0.0)
    optimizer = SGD([w], 1.0)
    schedule = StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        w.grad = 1.0
        optimizer.step()
        schedule.step()
    assert float(w) == -1.75


# ------------------------------------------------------------------ plateaus


def reduced_at(measurements, **settings):
    """The steps, from 1, at which the rate was reduced."""
    optimizer = Adam([wide(1.0)], learning_rate=1.0)
    schedule = ReduceLROnPlateau(optimizer, factor=0.5, **settings)
    found = []
    for k, measurement in enumerate(measurements, 1):
        before = optimizer.learning_rate
        schedule.step(measurement)
        if optimizer.learning_rate != before:
            assert optimizer.learning_rate == max(before * 0.5, settings.get("min_lr", 0.0))
            found.append(k)
    return found


@pytest.mark.parametrize(
    ("measurements", "settings", "expected"),
    [
        ([5, 4, 3, 2, 1], {"patience": 0}, []),
        ([5, 5, 5, 5], {"patience": 0}, [2, 3, 4]),
        ([5, 5, 5, 5, 5, 5, 5], {"patience": 2}, [4, 7]),
        ([5, 5, 4, 4, 4, 4], {"patience": 2}, [6]),
        ([1, 2, 3, 4], {"patience": 0, "mode": "max"}, []),
        ([4, 3, 5, 5], {"patience": 0, "mode": "max"}, [2, 4]),
        ([10, 9.5, 8.5], {"patience": 0, "threshold": 0.1}, [2]),
        ([10, 9.5, 8.5], {"patience": 0, "threshold": 2.0, "threshold_mode": "abs"}, [2, 3]),
        ([10, 10.5, 11.5], {"patience": 0, "threshold": 0.1, "mode": "max"}, [2]),
        ([5] * 8, {"patience": 0, "cooldown": 2}, [2, 5, 8]),
        ([5] * 5, {"patience": 0, "min_lr": 0.3}, [2, 3]),
        ([5] * 4, {"patience": 0, "eps": 0.3}, [2]),
        ([5, math.nan, math.nan], {"patience": 1}, [3]),
        ([np.float32(5), np.array(5.0), wide(5.0).detach()], {"patience": 1}, [3]),
    ],
    ids=[
        "better",
        "at_once",
        "patient",
        "better_once",
        "more",
        "less",
        "threshold",
        "threshold_abs",
        "threshold_max",
        "cooldown",
        "floor",
        "eps",
        "nan",
        "kinds_of_number",
    ],
)
def test_the_rate_is_reduced_where_nothing_improves(measurements, settings, expected):
    assert reduced_at(measurements, **settings) == expected


def test_a_plateau_saved_mid_way_continues_exactly():
    losses = [5.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    optimizer, other = optimizer_of(1.0, 0.5), optimizer_of(1.0, 0.5)
    schedule = ReduceLROnPlateau(optimizer, patience=1, cooldown=1, min_lr=[0.3, 0.01])
    for loss in losses[:4]:
        schedule.step(loss)
    copy = ReduceLROnPlateau(other, patience=9)
    copy.load_state_dict(schedule.state_dict())
    for loss in losses[4:]:
        schedule.step(loss)
        copy.step(loss)
        assert rates(other) == rates(optimizer)
    assert rates(optimizer)[0] == 0.3


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o: StepLR(o, 0), "StepLR: step_size=0"),
        (lambda o: CosineAnnealingLR(o, 0), "CosineAnnealingLR: T_max=0"),
        (lambda o: WarmupLR(o, -1), "WarmupLR: warmup_steps=-1"),
        (lambda o: WarmupLR(o, 3, start_factor=2.0), "WarmupLR: start_factor=2.0"),
        (lambda o: WarmupCosineLR(o, 5, 5), "total_steps=5 must exceed warmup_steps=5"),
        (lambda o: ReduceLROnPlateau(o, factor=1.0), "factor=1.0; it must be below 1"),
        (lambda o: ReduceLROnPlateau(o, mode="low"), "mode='low'"),
        (lambda o: ReduceLROnPlateau(o, threshold_mode="low"), "threshold_mode='low'"),
        (lambda o: ReduceLROnPlateau(o, min_lr=[0.1, 0.2]), "2 min_lr came for 1 groups"),
        (lambda o: ExponentialLR([wide(1.0)], 0.5), "ExponentialLR: pass an optimizer"),
    ],
    ids=["size", "T_max", "warmup", "start", "total", "factor", "mode", "threshold", "min", "what"],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, words):
    with pytest.raises(OdysseyError, match=words):
        make(optimizer_of(1.0))


def test_a_state_of_another_schedule_is_refused_and_nothing_changes():
    optimizer = optimizer_of(1.0)
    schedule = StepLR(optimizer, 2)
    with pytest.raises(OdysseyError, match="load_state_dict: came"):
        schedule.load_state_dict(ExponentialLR(optimizer_of(0.5), 0.5).state_dict())
    with pytest.raises(OdysseyError, match="rates of 2 groups came for 1"):
        schedule.load_state_dict(StepLR(optimizer_of(0.5, 0.5), 2).state_dict())
    assert (optimizer.learning_rate, schedule.steps, schedule.base_rates) == (1.0, 0, [1.0])


def test_a_function_for_each_group_and_none_of_them_saved():
    optimizer = optimizer_of(1.0, 2.0)
    schedule = LambdaLR(optimizer, [lambda t: 1 + t, lambda t: 10.0**-t])
    schedule.step()
    assert [group.learning_rate for group in optimizer.groups] == [2.0, 0.2]
    assert "lr_lambda" not in schedule.state_dict()
    other = LambdaLR(optimizer_of(1.0, 2.0), [lambda t: 5 + t, lambda t: 1])
    other.load_state_dict(schedule.state_dict())
    other.step()
    assert [group.learning_rate for group in other.optimizer.groups] == [7.0, 2.0]
    for wrong, text in (
        ([lambda t: 1], "1 functions came for 2 groups"),
        (3, "LambdaLR: 3"),
        (lambda t: "x", "lr_lambda='x'"),
    ):
        with pytest.raises(OdysseyError, match=text):
            LambdaLR(optimizer, wrong)
    assert [group.learning_rate for group in optimizer.groups] == [2.0, 0.2]


@pytest.mark.parametrize("make", [lambda w: SGD(w, 1.0, momentum=0.5), Adam], ids=["sgd", "adam"])
def test_a_cycle_lets_the_momentum_fall_while_the_rate_climbs(make):
    optimizer = make([wide(1.0)])
    schedule = OneCycleLR(optimizer, 1.0, 11, pct_start=0.5, cycle_momentum=True)
    found = []
    for _ in range(12):
        settings = optimizer.settings()
        found.append(settings["betas"][0] if "betas" in settings else settings["momentum"])
        schedule.step()
    marks = [0.9 + 0.05 * math.cos(math.pi * t / 4.5) for t in range(5)]
    np.testing.assert_allclose(found[:5], marks, rtol=1e-14)
    assert found[10] == found[11] == pytest.approx(0.95, rel=1e-14)


def test_a_cycle_that_cannot_be_is_refused():
    optimizer = optimizer_of(1.0, 2.0)
    for named, text in (
        ({"max_lr": [1.0]}, "1 rates came for 2 groups"),
        ({"pct_start": 1.5}, "pct_start=1.5"),
        ({"total_steps": 1.5}, "total_steps=1.5"),
        ({"anneal_strategy": "sin"}, "anneal_strategy='sin'"),
    ):
        with pytest.raises(OdysseyError, match=text):
            OneCycleLR(optimizer, **{"max_lr": 1.0, "total_steps": 10, **named})
    from odyssey.optim import AdaGrad

    with pytest.raises(OdysseyError, match="AdaGrad has neither momentum nor betas"):
        OneCycleLR(AdaGrad([wide(1.0)]), 1.0, 10, cycle_momentum=True)
    assert [group.learning_rate for group in optimizer.groups] == [1.0, 2.0]
