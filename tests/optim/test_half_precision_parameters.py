"""Optimizers of half-precision parameters: state and master weights in float32."""

import copy

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.devices.half_dtypes import bfloat16
from odyssey.errors import DTypeError
from odyssey.optim import clipping
from odyssey.optim.flat_parameters import SMALL_SIZE
from support.optimizers import OPTIMIZERS, optimizer_classes, shapes_for

HALF, BRAIN = np.dtype(np.float16), bfloat16()
SCALES = np.geomspace(1e-4, 1e4, 9)
cases = pytest.mark.parametrize("case", OPTIMIZERS)
halves = pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)


def settings_of_case(case):
    """Settings with which 100 steps along gradients of 1e4 stay in float16's range."""
    settings = dict(OPTIMIZERS[case][3])
    return settings | {"learning_rate": 1e-3} if case == "sgd" else settings


def half(shape, seed=7, dtype=HALF):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def made(case, shapes, dtype=HALF):
    starts = [half(s, 7 + k, dtype) for k, s in enumerate(shapes)]
    params = [Variable(start, requires_grad=True) for start in starts]
    return params, OPTIMIZERS[case][0](params, **settings_of_case(case))


def draw_gradient(rng, size, dtype=HALF):
    """Gradients of about 1e-4 to 1e4, each element with a size of its own, and some zeros."""
    g = rng.normal(size=size) * np.resize(SCALES, size)
    return np.where(rng.random(size) < 0.05, 0.0, g).astype(dtype)


def test_the_cases_are_all_optimizers():
    assert {make.__name__ for make, *_ in OPTIMIZERS.values()} == set(optimizer_classes())


@pytest.mark.share(4)
@pytest.mark.parametrize("alone", [False, True], ids=["packed", "alone"])
@halves
@cases
def test_a_hundred_master_steps_follow_float64_and_are_rounded_once(case, dtype, alone):
    shapes = shapes_for(OPTIMIZERS[case][0], [(SMALL_SIZE,)] if alone else [(9,), (18,)])
    params, optimizer = made(case, shapes, dtype)
    formula, states = OPTIMIZERS[case][2], [{} for _ in params]
    rng = np.random.default_rng(3)
    longest = [np.zeros(p.shape) for p in params]
    for _ in range(6 if alone else 100):
        expected = []
        for before, p, state in zip(masters(optimizer), params, states, strict=True):
            p.grad = g = draw_gradient(rng, p.size, dtype).reshape(p.shape)
            known = decided_signs(case, state, g.astype(float))
            new = formula(before, g.astype(float), state, **settings_of_case(case))
            expected.append((before, new, known))
        optimizer.step()
        pairs = zip(masters(optimizer), params, expected, longest, strict=True)
        for found, p, (before, new, known), length in pairs:
            assert p.dtype == dtype
            assert np.isfinite(found).all()
            np.testing.assert_array_equal(p.numpy(), found.astype(dtype))
            # Two roundings to float32, and the error of float32 sums in the length of a step, which
            # may be a sum of longer ones that cancel.
            bound = 1.5 * np.spacing(np.abs(new).astype(np.float32)).astype(float)
            bound += 1e-6 * np.maximum(length, np.abs(new - before), out=length)
            bound += 1e-3 * np.abs(new - before) if "centered" in case else 2e-5 * abs(new - before)
            assert (np.abs(found - new)[known] <= bound[known]).all()


def masters(optimizer):
    """The master weights of all parameters in float64; before the first step the parameters."""
    states = optimizer.state_dict()["state"]
    pairs = zip(optimizer.params, states, strict=True)
    return [np.asarray(s.get("master", p.numpy())).astype(float) for p, s in pairs]


def decided_signs(case, state, g):
    """Where the sign that Lion takes is not one of a sum that cancels in float32."""
    if not case.startswith("lion") or "m" not in state:
        return np.ones(g.shape, bool)
    share = settings_of_case(case).get("betas", (0.9, 0.99))[0]
    parts = share * state["m"], (1 - share) * g
    return np.abs(sum(parts)) >= 1e-5 * np.maximum(*map(np.abs, parts))


@halves
@cases
def test_the_state_is_float32_and_is_saved_and_restored_as_it_is(case, dtype, tmp_path):
    shapes = shapes_for(OPTIMIZERS[case][0], [(9,), (2,)])
    params, optimizer = made(case, shapes, dtype)
    others, other = made(case, shapes, dtype)
    rng = np.random.default_rng(5)

    def steps(*optimizers):
        for k in range(2):
            g = draw_gradient(rng, 9, dtype)
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


@pytest.mark.share(8)
@halves
@cases
def test_the_pure_rule_equals_the_holder_bit_for_bit(case, dtype):
    params, optimizer = made(case, shapes_for(OPTIMIZERS[case][0], [(9,), ()]), dtype)
    rule = OPTIMIZERS[case][1](**settings_of_case(case))
    tree = [p.numpy().copy() for p in params]
    state = rule.init(tree)
    rng = np.random.default_rng(2)
    for k in range(6):
        drawn = draw_gradient(rng, 9, dtype), draw_gradient(rng, 9, dtype)[k]
        grads = [g.reshape(p.shape) for p, g in zip(params, drawn, strict=True)]
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        with np.errstate(over="raise" if k == 3 else "warn"):  # results come before the writes
            optimizer.step()
        tree, state = rule.update(grads, state, tree)
        for p, value in zip(params, tree, strict=True):
            assert value.dtype == dtype
            np.testing.assert_array_equal(p.numpy(), value)


@pytest.mark.share(8)
@halves
@cases
def test_compiled_steps_equal_eager_ones(case, dtype):
    x = np.random.default_rng(1).normal(size=(8, 4)).astype(dtype)

    def training():
        params, optimizer = made(case, [(4, 3), (1, 3) if case.startswith("muon") else (3,)], dtype)

        def train(x):
            with GradientTape() as tape:
                loss = ((x @ params[0] + params[1]) ** 2).mean() * dtype.type(1e-3)
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
        assert q.dtype == dtype
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


# ------------------------------------------------------------------ master weights


@halves
@pytest.mark.parametrize("size", [3, SMALL_SIZE + 1], ids=["packed", "alone"])
def test_steps_below_the_rounding_of_a_parameter_add_up(size, dtype):
    w = Variable(np.ones(size, dtype), requires_grad=True)
    optimizer = od.optim.SGD([w], 1e-4)  # float16 has 4.9e-4 between numbers below 1
    for _ in range(100):
        w.grad = np.ones(size, dtype)
        optimizer.step()
    assert (w.numpy() == dtype.type(0.99)).all()


@halves
def test_adam_with_gradients_of_one_zero_and_a_thousandth_follows_float64(dtype):
    gradients = np.array([1, 0, 1e-3], dtype)

    def train(kind, compiles):
        w = Variable(np.ones(3, kind), requires_grad=True)
        optimizer = od.optim.Adam([w])

        def step(g):
            with GradientTape() as tape:
                loss = (w * g).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

        step = od.compile(step) if compiles else step
        for _ in range(30):
            step(gradients.astype(kind))
        assert not compiles or step.statistics().native == 29
        return w, optimizer.state_dict()["state"][0]

    expected, _ = train(np.float64, compiles=False)
    eager, state = train(dtype, compiles=False)
    compiled, other = train(dtype, compiles=True)
    np.testing.assert_allclose(state["master"], expected.numpy(), rtol=1e-6)
    for w in (eager, compiled):
        np.testing.assert_array_equal(w.numpy(), state["master"].astype(dtype))
    for name in state:
        np.testing.assert_array_equal(state[name], other[name])


@pytest.mark.parametrize("compiles", [False, True], ids=["eager", "compiled"])
@halves
@pytest.mark.parametrize("case", ["sgd", "adam_settings", "lars", "adafactor", "muon"])
def test_a_master_follows_what_is_assigned_and_keeps_what_is_not(case, dtype, compiles):
    shapes = shapes_for(OPTIMIZERS[case][0], [(4, 3)])
    params, optimizer = made(case, shapes, dtype)
    w, settings = params[0], settings_of_case(case)
    formula, reference = OPTIMIZERS[case][2], {}

    def step(g):
        with GradientTape() as tape:
            loss = (w * g).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    step = od.compile(step) if compiles else step
    rng = np.random.default_rng(4)
    expected = w.numpy().astype(float)
    for k in range(8):
        if k in (3, 5):
            w.assign(np.where(np.arange(12).reshape(4, 3) % 2, w.numpy(), dtype.type(k)))
            expected[np.arange(12).reshape(4, 3) % 2 == 0] = k
        g = rng.normal(size=(4, 3)).astype(dtype)
        step(g)
        expected = formula(expected, g.astype(float), reference, **settings)
        found = optimizer.state_dict()["state"][0]["master"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(w.numpy(), found.astype(dtype))


def test_the_master_of_a_parameter_that_is_infinite_or_nan_is_finite_or_follows():
    w = Variable(np.array([65000, 1, np.nan], HALF), requires_grad=True)
    optimizer = od.optim.SGD([w], 1000.0)
    with np.errstate(over="ignore"):
        for g in (-1.0, 1.0):
            w.grad = np.array([g, 0, 0], HALF)
            optimizer.step()
            assert np.isinf(w.numpy()[0]) == (g < 0)
    assert w.numpy()[:2].tolist() == [64992.0, 1.0]  # 65000 rounded to float16
    w.assign(np.array([1, np.inf, 2], HALF))
    w.grad = np.zeros(3, HALF)
    optimizer.step()
    assert w.numpy().tolist() == [1.0, np.inf, 2.0]


def test_rows_of_a_table_have_master_weights_that_follow_assignments():
    table = Variable(np.ones((4, 2), HALF), requires_grad=True, sparse_grad=True)
    optimizer = od.optim.SGD([table], 1e-4)
    rows = np.array([2, 0, 2])

    def step():
        with GradientTape() as tape:
            loss = od.ops.embedding(rows, table).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    compiled = od.compile(step)
    for k in range(100):
        (step if k % 2 else compiled)()
    assert table.numpy().tolist() == [[HALF.type(0.99)] * 2, [1, 1], [HALF.type(0.98)] * 2, [1, 1]]
    table.assign(np.full((4, 2), 2, HALF))
    for step_ in (step, compiled):
        step_()
    master = optimizer.state_dict()["state"][0]["master"]
    np.testing.assert_allclose(master[[0, 2], 0], [2 - 2e-4, 2 - 4e-4], rtol=1e-7)
    assert compiled.statistics().native >= 49


def test_a_state_without_master_weights_takes_them_from_the_parameters():
    params, optimizer = made("adam", [(9,)])
    params[0].grad = np.ones(9, HALF)
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"] = [{n: v for n, v in s.items() if n != "master"} for s in saved["state"]]
    optimizer.load_state_dict(saved)
    master = optimizer.state_dict()["state"][0]["master"]
    assert master.dtype == np.float32
    np.testing.assert_array_equal(master, params[0].numpy().astype(np.float32))
    params[0].assign(np.ones(9, HALF))  # parameters that are loaded after the state
    params[0].grad = np.ones(9, HALF)
    optimizer.step()
    np.testing.assert_allclose(params[0].numpy().astype(float), 0.999, atol=5e-4)


def test_a_state_with_master_weights_is_refused_where_parameters_are_float32():
    params, optimizer = made("adam", [(9,)])
    params[0].grad = np.ones(9, HALF)
    optimizer.step()
    w = Variable(np.ones(9, np.float32), requires_grad=True, name="w")
    other = od.optim.Adam([w])
    with pytest.raises(DTypeError, match=r"parameter w has master weights.* it is float32; .*drop"):
        other.load_state_dict(optimizer.state_dict())
    assert other.state_dict()["state"] == [{}]


def test_a_mix_of_dtypes_in_groups_steps_each_in_its_own():
    shapes = [(3,), (20_000,)]
    dtypes = [np.float16, np.float32, np.float64]
    params = [Variable(np.ones(s, d), requires_grad=True) for d in dtypes for s in shapes]
    groups = [{"params": params[::2]}, {"params": params[1::2], "learning_rate": 2e-4}]
    optimizer = od.optim.SGD(groups, 1e-4)
    for _ in range(50):
        for p in params:
            p.grad = np.ones(p.shape, p.dtype)
        optimizer.step()
    for k, (p, state) in enumerate(zip(params, _states_of(optimizer), strict=True)):
        found = state["master"] if p.dtype == HALF else p.numpy()
        assert ("master" in state) == (p.dtype == HALF)
        np.testing.assert_allclose(found, 0.99 if k % 2 else 0.995, rtol=1e-5)


def _states_of(optimizer):
    """The states of parameters, in the order of three pairs."""
    first = optimizer.state_dict()["state"]
    return [s for pair in zip(first[:3], first[3:], strict=True) for s in pair]


def test_a_parameter_that_is_frozen_and_assigned_starts_from_there_when_thawed():
    w = Variable(np.ones(3, HALF), requires_grad=True)
    v = Variable(np.ones(3, HALF), requires_grad=True)
    optimizer = od.optim.SGD([w, v], 1e-4)

    def step():
        for p in (w, v):
            p.grad = np.ones(3, HALF) if p.requires_grad else None
        optimizer.step()

    step()
    w.requires_grad = False
    step()
    w.assign(np.full(3, 3, HALF))
    step()
    w.requires_grad = True
    step()
    masters = [s["master"][0] for s in optimizer.state_dict()["state"]]
    np.testing.assert_allclose(masters, [3 - 1e-4, 1 - 4e-4], rtol=1e-7)


def test_averages_that_are_swapped_in_and_out_leave_the_master_weights():
    w = Variable(np.ones(3, HALF), requires_grad=True)
    optimizer, ema = od.optim.SGD([w], 1e-4), od.optim.EMA([w], 0.5)
    for _ in range(10):
        w.grad = np.ones(3, HALF)
        optimizer.step()
        ema.update()
    ema.swap()
    ema.swap()
    w.grad = np.zeros(3, HALF)
    optimizer.step()
    master = optimizer.state_dict()["state"][0]["master"]
    np.testing.assert_allclose(master, 1 - 1e-3, rtol=1e-6)


def test_a_rule_with_a_slot_called_master_is_refused_for_half_precision_alone():
    rule = od.optim.Rule(("master",), lambda g, state, p: (p, state))
    assert set(rule.init([np.ones(2)])[0]) == {"steps", "master"}
    with pytest.raises(DTypeError, match="float16, whose state has a slot of its own, 'master'"):
        rule.init([np.ones(2, HALF)])


def test_lbfgs_minimizes_over_half_precision_parameters():
    w = Variable(np.array([3, -2], HALF), requires_grad=True)
    optimizer = od.optim.LBFGS(w)

    def closure():
        with GradientTape() as tape:
            loss = ((w.astype(np.float32) - np.float32([1, 0.5])) ** 2).sum()
        tape.backward(loss)
        return loss

    optimizer.step(closure)
    assert w.numpy().tolist() == [1, 0.5]


@halves
def test_blocks_of_a_large_parameter_equal_the_pure_rule_bit_for_bit(dtype):
    size = 2 * 65_536 + 20_001  # two blocks with compiled casts, and a part of one
    start = np.linspace(-3, 3, size).astype(dtype)
    w = Variable(start, requires_grad=True)
    optimizer, rule = od.optim.SGD([w], 1e-4, momentum=0.9), od.optim.sgd(1e-4, momentum=0.9)
    p, state = start, rule.init([start])
    for k in range(4):
        w.grad = g = np.linspace(k - 1, 1, size).astype(dtype)
        if k == 2:
            p = np.where(np.arange(size) % 3, p, dtype.type(-0.0))
            w.assign(p)
        optimizer.step()
        (p,), state = rule.update([g], state, [p])
    np.testing.assert_array_equal(w.numpy().view(np.uint16), p.view(np.uint16))
    for name, value in optimizer.state_dict()["state"][0].items():
        np.testing.assert_array_equal(value, state[0][name])
