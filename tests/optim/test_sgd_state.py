"""SGD saved and continued, and its pure pair, against the formulas in float64."""

import copy

import numpy as np
import pytest

from odyssey.errors import OdysseyError, ShapeError
from odyssey.optim import SGD, sgd
from support.sgd_cases import SETTINGS, SHAPES, problem, same, wide

# ------------------------------------------------------------------ saving


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_state_saved_mid_way_continues_exactly(settings, shapes):
    params, optimizer, _ = problem(SHAPES[shapes], **SETTINGS[settings])
    rng = np.random.default_rng(3)
    gradients = [[rng.normal(size=p.shape) for p in params] for _ in range(6)]

    def run(params, optimizer, steps):
        for step in steps:
            for p, g in zip(params, gradients[step], strict=True):
                p.grad = g
            optimizer.step()

    run(params, optimizer, range(3))
    saved = copy.deepcopy(optimizer.state_dict())
    twins = [wide(p.numpy()) for p in params]
    run(params, optimizer, range(3, 6))
    other = SGD(twins, 99.0)
    other.load_state_dict(saved)
    assert other.settings() == optimizer.settings()
    run(twins, other, range(3, 6))
    for p, twin in zip(params, twins, strict=True):
        np.testing.assert_array_equal(p.numpy(), twin.numpy())


def test_a_state_dict_is_a_copy_in_both_directions():
    params, optimizer, references = problem([(3,)], momentum=0.9)

    def step():
        params[0].grad = np.ones(3)
        references[0].step(np.ones(3))
        optimizer.step()

    step()
    saved = optimizer.state_dict()
    kept = copy.deepcopy(saved)
    optimizer.load_state_dict(saved)
    step()
    for before, after in zip(kept["state"], saved["state"], strict=True):
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])
    for record in saved["state"]:
        for value in record.values():
            value[...] = 0
    step()
    same(params, references)


def test_a_state_is_saved_before_the_first_step_too():
    params, optimizer, references = problem([(3,)], momentum=0.9)
    optimizer.load_state_dict(optimizer.state_dict())
    params[0].grad = np.ones(3)
    references[0].step(np.ones(3))
    optimizer.step()
    same(params, references)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (lambda s: s["state"].pop(), ShapeError, "load_state_dict: .*1 .*2"),
        (
            lambda s: s["state"][0].update(velocity=np.ones(7)),
            ShapeError,
            r"velocity of parameter p0 has shape \(7,\)",
        ),
        (
            lambda s: s["settings"].update(banana=1),
            OdysseyError,
            "load_state_dict: .*banana",
        ),
    ],
    ids=["count", "shape", "setting"],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(spoil, error, words):
    params, optimizer, references = problem([(3,), (2,)], momentum=0.9)

    def step():
        for p, reference in zip(params, references, strict=True):
            p.grad = np.ones(p.shape)
            reference.step(np.ones(p.shape))
        optimizer.step()

    step()
    saved = optimizer.state_dict()
    saved["settings"]["learning_rate"] = 77.0
    spoil(saved)
    with pytest.raises(error, match=words):
        optimizer.load_state_dict(saved)
    assert optimizer.learning_rate == 0.1
    step()
    same(params, references)


# ------------------------------------------------------------------ the pure pair


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_pure_pair_equals_the_holder_and_the_formulas(settings):
    params, optimizer, references = problem(SHAPES["mixed"], **SETTINGS[settings])
    rule = sgd(0.1, **SETTINGS[settings])
    tree = {f"p{k}": p.numpy().copy() for k, p in enumerate(params)}
    state = rule.init(tree)
    rng = np.random.default_rng(2)
    for _ in range(5):
        gradients = {name: rng.normal(size=p.shape) for name, p in tree.items()}
        for p, reference, g in zip(params, references, gradients.values(), strict=True):
            p.grad = g
            reference.step(g)
        optimizer.step()
        tree, state = rule.update(gradients, state, tree)
    same(params, references)
    for p, value in zip(params, tree.values(), strict=True):
        np.testing.assert_allclose(value, p.numpy(), rtol=1e-13, atol=1e-15)


def test_gradients_meet_their_parameters_by_key():
    rule, params = sgd(1.0), {"w": np.zeros(2), "b": np.zeros(2)}
    after, _ = rule.update({"b": np.zeros(2), "w": np.ones(2)}, rule.init(params), params)
    np.testing.assert_array_equal(after["w"], [-1.0, -1.0])
    np.testing.assert_array_equal(after["b"], [0.0, 0.0])
    with pytest.raises(ShapeError, match=r"update: the gradients .* differ at \['b'\]"):
        rule.update({"w": np.ones(2)}, rule.init(params), params)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_pure_pair_changes_no_argument(settings):
    rule = sgd(0.1, **SETTINGS[settings])
    params, gradients = {"w": np.ones(3), "b": [np.ones(())]}, {"w": np.ones(3), "b": [np.ones(())]}
    state = rule.init(params)
    params_1, state_1 = rule.update(gradients, state, params)
    kept = copy.deepcopy((params_1, state_1))
    first = rule.update(gradients, state_1, params_1)
    second = rule.update(gradients, *reversed(kept))
    np.testing.assert_array_equal(params["w"], np.ones(3))
    np.testing.assert_array_equal(gradients["w"], np.ones(3))
    np.testing.assert_array_equal(first[0]["w"], second[0]["w"])
    np.testing.assert_array_equal(first[0]["b"][0], second[0]["b"][0])
