"""Optimizers of float16 parameters: state and arithmetic in float32, rounded once a step."""

import copy

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.optim import clipping
from odyssey.optim.flat_parameters import SMALL_SIZE
from support.optimizers import OPTIMIZERS, optimizer_classes, shapes_for

HALF = np.dtype(np.float16)
SCALES = np.geomspace(1e-4, 1e4, 9)
cases = pytest.mark.parametrize("case", OPTIMIZERS)


def settings_of_case(case):
    """Settings with which 100 steps along gradients of 1e4 stay in float16's range."""
    settings = dict(OPTIMIZERS[case][3])
    return settings | {"learning_rate": 1e-3} if case == "sgd" else settings


def half(shape, seed=7):
    return np.random.default_rng(seed).normal(size=shape).astype(HALF)


def made(case, shapes):
    params = [Variable(half(s, 7 + k), requires_grad=True) for k, s in enumerate(shapes)]
    return params, OPTIMIZERS[case][0](params, **settings_of_case(case))


def draw_gradient(rng, size):
    """Gradients of about 1e-4 to 1e4, each element with a size of its own, and some zeros."""
    g = rng.normal(size=size) * np.resize(SCALES, size)
    return np.where(rng.random(size) < 0.05, 0.0, g).astype(HALF)


def test_the_cases_are_all_optimizers():
    assert {make.__name__ for make, *_ in OPTIMIZERS.values()} == set(optimizer_classes())


@pytest.mark.share(2)
@pytest.mark.parametrize("alone", [False, True], ids=["packed", "alone"])
@cases
def test_a_hundred_steps_follow_float64_within_the_rounding_of_float16(case, alone):
    shapes = shapes_for(OPTIMIZERS[case][0], [(SMALL_SIZE,)] if alone else [(9,), (18,)])
    params, optimizer = made(case, shapes)
    formula, states = OPTIMIZERS[case][2], [{} for _ in params]
    rng = np.random.default_rng(3)
    for _ in range(6 if alone else 100):
        expected = []
        for p, state in zip(params, states, strict=True):
            p.grad = g = draw_gradient(rng, p.size).reshape(p.shape)
            before = p.numpy().astype(float)
            known = decided_signs(case, state, g.astype(float))
            new = formula(before, g.astype(float), state, **settings_of_case(case))
            expected.append((before, new, known))
        optimizer.step()
        for p, (before, new, known) in zip(params, expected, strict=True):
            found = p.numpy()
            assert found.dtype == HALF
            assert np.isfinite(found).all()
            # Half a unit in the last place, and the error of float32 sums in the length of a step.
            bound = 0.501 * np.spacing(np.abs(new).astype(HALF)).astype(float)
            bound += 1e-3 * np.abs(new - before) if "centered" in case else 2e-5 * abs(new - before)
            assert (np.abs(found - new)[known] <= bound[known]).all()


def decided_signs(case, state, g):
    """Where the sign that Lion takes is not one of a sum that cancels in float32."""
    if not case.startswith("lion") or "m" not in state:
        return np.ones(g.shape, bool)
    share = settings_of_case(case).get("betas", (0.9, 0.99))[0]
    parts = share * state["m"], (1 - share) * g
    return np.abs(sum(parts)) >= 1e-5 * np.maximum(*map(np.abs, parts))


@cases
def test_the_state_is_float32_and_is_saved_and_restored_as_it_is(case, tmp_path):
    shapes = shapes_for(OPTIMIZERS[case][0], [(9,), (2,)])
    params, optimizer = made(case, shapes)
    others, other = made(case, shapes)
    rng = np.random.default_rng(5)

    def steps(*optimizers):
        for k in range(2):
            g = draw_gradient(rng, 9)
            for one in optimizers:
                first, second = one.params
                first.grad = g.reshape(first.shape)
                second.grad = g[k : k + 2].reshape(second.shape)
                one.step()

    steps(optimizer)
    saved = optimizer.state_dict()
    arrays = [v for s in saved["state"] for n, v in s.items() if n != "steps"]
    assert {v.dtype for v in arrays} <= {np.dtype(np.float32)}
    assert all(np.isfinite(v).all() for v in arrays)
    od.save(tmp_path / "state.npz", {"optimizer": optimizer, "params": params})
    od.load(tmp_path / "state.npz", {"optimizer": other, "params": others})
    copied, third = copy.deepcopy((params, optimizer))
    third.load_state_dict(saved)
    steps(optimizer, other, third)
    for p, q, r in zip(params, others, copied, strict=True):
        assert p.numpy().tolist() == q.numpy().tolist() == r.numpy().tolist()


def test_a_state_of_float16_from_an_earlier_version_is_taken():
    params, optimizer = made("adam", [(9,)])
    params[0].grad = np.ones(9, HALF)
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"] = [
        {n: np.asarray(v).astype(HALF) if n != "steps" else v for n, v in s.items()}
        for s in saved["state"]
    ]
    fresh_params, fresh = made("adam", [(9,)])
    fresh.load_state_dict(saved)
    fresh_params[0].grad = np.ones(9, HALF)
    fresh.step()
    assert np.isfinite(fresh_params[0].numpy()).all()
    assert fresh.state_dict()["state"][0]["mean"].dtype == np.float32


@pytest.mark.share(4)
@cases
def test_the_pure_rule_equals_the_holder_bit_for_bit(case):
    params, optimizer = made(case, shapes_for(OPTIMIZERS[case][0], [(9,), ()]))
    rule = OPTIMIZERS[case][1](**settings_of_case(case))
    tree = [p.numpy().copy() for p in params]
    state = rule.init(tree)
    rng = np.random.default_rng(2)
    for k in range(6):
        drawn = draw_gradient(rng, 9), draw_gradient(rng, 9)[k]
        grads = [g.reshape(p.shape) for p, g in zip(params, drawn, strict=True)]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        with np.errstate(over="raise" if k == 3 else "warn"):  # results come before the writes
            optimizer.step()
        tree, state = rule.update(grads, state, tree)
        for p, value in zip(params, tree, strict=True):
            assert value.dtype == HALF
            np.testing.assert_array_equal(p.numpy(), value)


@pytest.mark.share(4)
@cases
def test_compiled_steps_equal_eager_ones(case):
    x = np.random.default_rng(1).normal(size=(8, 4)).astype(HALF)

    def training():
        params, optimizer = made(case, [(4, 3), (1, 3) if case.startswith("muon") else (3,)])

        def train(x):
            with GradientTape() as tape:
                loss = ((x @ params[0] + params[1]) ** 2).mean() * HALF.type(1e-3)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return params, optimizer, train

    params, optimizer, eager = training()
    others, other, train = training()
    compiled = od.compile(train)
    for k in range(6):
        eager(x)
        (train if k == 3 else compiled)(x)  # an eager step between them shares the state
    for p, q in zip(params, others, strict=True):
        assert q.dtype == HALF
        unit = np.spacing(np.abs(p.numpy())).astype(float)
        assert (np.abs(p.numpy().astype(float) - q.numpy()) <= 2 * unit).all()
    for s, t in zip(optimizer.state_dict()["state"], other.state_dict()["state"], strict=True):
        for name in s:
            assert np.asarray(s[name]).dtype == np.asarray(t[name]).dtype
            np.testing.assert_allclose(s[name], t[name], rtol=2e-2, atol=1e-6)


def test_small_gradients_that_a_clipping_has_scaled_still_move_parameters():
    w = Variable(np.ones(4, HALF), requires_grad=True)
    optimizer = od.optim.Adam([w], 0.01)
    for _ in range(3):
        w.grad = np.full(4, 6e4, HALF)
        clipping.clip_grad_norm([w], 1e-4)
        optimizer.step()
    np.testing.assert_allclose(w.numpy().astype(float), 0.97, atol=1e-3)
