"""Every optimizer saved, loaded, copied and pickled mid-way goes on exactly."""

import copy
import pickle

import numpy as np
import pytest

from odyssey.errors import MissingGradientError, OdysseyError, ShapeError
from odyssey.optim import SGD, Adam
from support.optimizers import OPTIMIZERS, SHAPES, problem, step, wide

cases = pytest.mark.parametrize("case", OPTIMIZERS)


def go_on(params, optimizer):
    for seed in range(3, 6):
        step(params, optimizer, np.random.default_rng(seed))


def equal(params, others):
    for p, q in zip(params, others, strict=True):
        np.testing.assert_array_equal(p.numpy(), q.numpy())


@pytest.mark.parametrize("shapes", ["small", "mixed"])
@cases
def test_a_state_saved_mid_way_continues_exactly(case, shapes):
    params, optimizer, _ = problem(case, SHAPES[shapes])
    for seed in range(3):
        skip = {1} if seed == 1 else ()
        step(params, optimizer, np.random.default_rng(seed), skip=skip)
    saved = pickle.loads(pickle.dumps(optimizer.state_dict()))
    twins = [wide(p.numpy()) for p in params]
    go_on(params, optimizer)
    other = OPTIMIZERS[case][0](twins, learning_rate=99.0)
    other.load_state_dict(saved)
    assert other.settings() == optimizer.settings()
    go_on(twins, other)
    equal(params, twins)


@cases
def test_a_state_from_before_the_first_step_starts_anew(case):
    params, optimizer, references = problem(case, SHAPES["small"])
    fresh = optimizer.state_dict()
    step(params, optimizer, np.random.default_rng(1))
    optimizer.load_state_dict(fresh)
    for p, reference in zip(params, references, strict=True):
        p.assign(reference.p)
    for seed in range(3):
        step(params, optimizer, np.random.default_rng(seed), references)
    for p, reference in zip(params, references, strict=True):
        np.testing.assert_allclose(p.numpy(), reference.p, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))],
                         ids=["deepcopy", "pickle"])  # fmt: skip
@cases
def test_a_copy_goes_on_by_itself(case, duplicate):
    params, optimizer, _ = problem(case, SHAPES["mixed"])
    step(params, optimizer, np.random.default_rng(1))
    other = duplicate(optimizer)
    kept = [p.numpy().copy() for p in params]
    go_on(other.params, other)
    for p, value in zip(params, kept, strict=True):
        np.testing.assert_array_equal(p.numpy(), value)
    go_on(params, optimizer)
    equal(params, other.params)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))],
                         ids=["deepcopy", "pickle"])  # fmt: skip
def test_a_copy_with_a_frozen_parameter_forgets_gradients_and_steps(duplicate):
    a, b = wide([1.0]), wide([2.0])
    optimizer = SGD([a, b], 0.5)
    b.requires_grad = False
    a.grad = np.ones(1)
    other = duplicate(optimizer)
    other.zero_grad()
    other.params[0].grad = np.ones(1)
    other.step()
    assert [p.numpy().tolist() for p in (*other.params, a)] == [[0.5], [2.0], [1.0]]


def test_a_refused_first_step_makes_no_state():
    optimizer = SGD([wide([1.0])], 0.5, momentum=0.9)
    before = optimizer.state_dict()
    with pytest.raises(MissingGradientError):
        optimizer.step()
    assert optimizer.state_dict() == before


def grouped():
    a, b, c = wide([1.0]), wide([2.0]), wide([3.0])
    groups = [{"params": [a], "learning_rate": 0.5}, {"params": [b, c], "momentum": 0.5}]
    return (a, b, c), SGD(groups, 0.25, momentum=0.9)


def test_settings_of_groups_are_saved():
    params, optimizer = grouped()
    step(params, optimizer, np.random.default_rng(0))
    twins, other = grouped()
    other.learning_rate = 7.0
    other.groups[0].momentum = 0.1
    for p, q in zip(params, twins, strict=True):
        q.assign(p)
    other.load_state_dict(optimizer.state_dict())
    assert [g.settings() for g in other.groups] == [g.settings() for g in optimizer.groups]
    go_on(params, optimizer)
    go_on(twins, other)
    equal(params, twins)


def test_groups_of_other_sizes_are_refused_and_nothing_changes():
    params, optimizer = grouped()
    other = SGD([{"params": params[:2]}, {"params": params[2]}], 0.25, momentum=0.9)
    before = [g.settings() for g in other.groups]
    with pytest.raises(
        ShapeError, match=r"groups of \[1, 2\] parameters came for groups of \[2, 1\]"
    ):
        other.load_state_dict(optimizer.state_dict())
    assert [g.settings() for g in other.groups] == before


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda s: s["settings"].update(eps=-1.0), OdysseyError, "eps: -1.0 is negative"),
        (lambda s: s["settings"].pop("eps"), OdysseyError, "the settings are"),
        (
            lambda s: s["state"][0].update(square=np.ones(7)),
            ShapeError,
            r"square of parameter \[0\] has shape \(7,\), not \(2,\)",
        ),
        (
            lambda s: s["state"][0].update(steps=np.ones(1, int)),
            ShapeError,
            r"steps of parameter \[0\] has shape \(1,\), not \(\)",
        ),
    ],
    ids=["range", "missing", "shape", "steps"],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, error, words):
    w = wide([1.0, 2.0])
    optimizer = Adam([w])
    step([w], optimizer, np.random.default_rng(0))
    before = optimizer.state_dict()
    saved = optimizer.state_dict()
    saved["settings"]["learning_rate"] = 77.0
    spoil(saved)
    with pytest.raises(error, match=words):
        optimizer.load_state_dict(saved)
    assert optimizer.settings() == before["settings"]
    for name, value in optimizer.state_dict()["state"][0].items():
        np.testing.assert_array_equal(value, before["state"][0][name])
