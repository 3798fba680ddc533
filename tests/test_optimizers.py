"""Every optimizer against its formulas, as a pure rule, in groups, frozen, and compiled."""

import dataclasses

import numpy as np
import pytest
from optimizers import OPTIMIZERS, SHAPES, Reference, draw, lars, problem, same, step, wide

import odyssey as od
from odyssey import GradientTape, Variable, optim
from odyssey.errors import DTypeError, OdysseyError, TapeError
from odyssey.optim import SGD, Adam, AdamW

cases = pytest.mark.parametrize("case", OPTIMIZERS)

# ------------------------------------------------------------------ the formulas


@pytest.mark.parametrize("shapes", SHAPES)
@cases
def test_a_hundred_steps_equal_the_formulas(case, shapes):
    params, optimizer, references = problem(case, SHAPES[shapes])
    rng = np.random.default_rng(11)
    for k in range(100 if shapes == "small" else 10):
        step(params, optimizer, rng, references, skip={0} if k == 5 else ())
    same(params, references)


@cases
def test_a_parameter_whose_gradient_comes_later_begins_later(case):
    params, optimizer, references = problem(case, SHAPES["small"])
    rng = np.random.default_rng(12)
    for k in range(4):
        step(params, optimizer, rng, references, skip=set(range(k, 3)))
    same(params, references)


@cases
def test_a_pure_rule_equals_the_holder_bit_for_bit(case):
    params, optimizer, _ = problem(case, SHAPES["mixed"])
    _, factory, _, settings = OPTIMIZERS[case]
    rule = factory(**settings)
    tree = {f"p{k}": p.numpy().copy() for k, p in enumerate(params)}
    state = rule.init(tree)
    rng = np.random.default_rng(2)
    for _ in range(5):
        grads = {name: draw(rng, p.shape) for name, p in tree.items()}
        kept = {name: p.copy() for name, p in tree.items()}
        before = tree
        for p, g in zip(params, grads.values(), strict=True):
            p.grad = g
        optimizer.step()
        tree, state = rule.update(grads, state, tree)
        for name, p in kept.items():
            np.testing.assert_array_equal(before[name], p)
    for p, value in zip(params, tree.values(), strict=True):
        np.testing.assert_array_equal(p.numpy(), value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases
def test_writing_in_place_equals_the_pure_step_bit_for_bit(case, dtype):
    params, optimizer, _ = problem(case, SHAPES["mixed"], dtype)
    twins, pure, _ = problem(case, SHAPES["mixed"], dtype)
    (group,) = pure.groups
    group.adopt(group.settings(), dataclasses.replace(group.rule(), in_place=None))
    for seed in range(4):
        step(params, optimizer, np.random.default_rng(seed))
        step(twins, pure, np.random.default_rng(seed))
    for p, twin in zip(params, twins, strict=True):
        assert p.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(p.numpy(), twin.numpy())
    for a, b in zip(optimizer.state_dict()["state"], pure.state_dict()["state"], strict=True):
        for name, value in a.items():
            np.testing.assert_array_equal(value, b[name])


@pytest.mark.parametrize("case", [c for c in OPTIMIZERS if not c.startswith("lars")])
def test_a_complex_parameter_moves_as_its_real_and_imaginary_part(case):
    params, optimizer, _ = problem(case, [(3,), (2, 2)], np.complex128)
    _, _, formula, settings = OPTIMIZERS[case]
    parts = [[Reference(part(p.numpy()), formula, settings) for part in (np.real, np.imag)]
             for p in params]  # fmt: skip
    pure = optimizer.rule()
    tree, state = [p.numpy().copy() for p in params], pure.init(params)
    rng = np.random.default_rng(5)
    for _ in range(20):
        grads = [draw(rng, p.shape, p.dtype) for p in params]
        for p, (real, imag), g in zip(params, parts, grads, strict=True):
            p.grad = g
            real.step(g.real)
            imag.step(g.imag)
        optimizer.step()
        tree, state = pure.update(grads, state, tree)
    for p, value, (real, imag) in zip(params, tree, parts, strict=True):
        np.testing.assert_allclose(p.numpy(), real.p + 1j * imag.p, rtol=1e-12)
        np.testing.assert_allclose(value, p.numpy(), rtol=1e-14)


def test_lars_takes_the_norm_of_a_complex_parameter_as_a_whole():
    params, optimizer, references = problem("lars_decay", [(3,), (2, 2)], np.complex128)
    pure, tree = optimizer.rule(), [p.numpy().copy() for p in params]
    state = pure.init(tree)
    rng = np.random.default_rng(5)
    for _ in range(20):
        step(params, optimizer, rng, references)
        tree, state = pure.update([p.grad for p in params], state, tree)
    same(params, references)
    for p, value in zip(params, tree, strict=True):
        np.testing.assert_allclose(value, p.numpy(), rtol=1e-13)


def test_lars_steps_at_the_full_rate_where_a_norm_is_0():
    start, g = np.zeros(3), np.array([1.0, -2.0, 0.0])
    w = wide(start)
    optimizer = optim.LARS([w], learning_rate=0.5, momentum=0.0)
    w.grad = g
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), -0.5 * g)
    np.testing.assert_array_equal(lars(start, g, {}, 0.5, 0.0), -0.5 * g)
    w.grad = np.zeros(3)
    optimizer.step()
    np.testing.assert_array_equal(w.numpy(), -0.5 * g)


def test_a_centered_rmsprop_survives_a_constant_gradient():
    w = wide([1.0])
    optimizer = optim.RMSprop([w], centered=True, alpha=0.1)
    for _ in range(200):
        w.grad = [0.1]
        optimizer.step()
    assert np.isfinite(w.numpy()).all()


@cases
def test_a_loss_of_a_tape_goes_down(case):
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=(16, 4)), rng.normal(size=(16, 1))
    w = wide(rng.normal(size=(4, 1)))
    optimizer = OPTIMIZERS[case][0]([w], **OPTIMIZERS[case][3])
    losses = []
    for _ in range(30):
        with GradientTape() as tape:
            loss = od.mean_squared_error(x @ w, target)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]


# ------------------------------------------------------------------ compiled


def training(case, dtype=np.float64):
    make, _, _, settings = OPTIMIZERS[case]
    rng = np.random.default_rng(1)
    w, b = (Variable(rng.normal(size=s).astype(dtype), True, name="p") for s in ((4, 3), (3,)))
    optimizer = make({"w": w, "b": b}, **settings)

    def train(x, y):
        with GradientTape() as tape:
            loss = od.mean_squared_error(od.ops.tanh(x @ w + b), y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train, optimizer, (w, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases
def test_compiled_steps_equal_eager_ones(case, dtype):
    rng = np.random.default_rng(3)
    batches = [[rng.normal(size=s).astype(dtype) for s in ((8, 4), (8, 3))] for _ in range(6)]
    eager, _, expected = training(case, dtype)
    train, optimizer, params = training(case, dtype)
    compiled = od.compile(train)
    for k, batch in enumerate(batches):
        eager(*batch)
        # Eager steps in between share parameters and state with the compiled ones.
        (train if k == 3 else compiled)(*batch)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for p, q in zip(params, expected, strict=True):
        assert p.dtype == np.dtype(dtype)
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=tolerance, atol=tolerance)
    assert {int(s["steps"]) for s in optimizer.state_dict()["state"]} == {6}


@cases
def test_compiled_steps_follow_the_learning_rate(case):
    rng = np.random.default_rng(3)
    batches = [[rng.normal(size=s) for s in ((8, 4), (8, 3))] for _ in range(4)]
    eager, other, expected = training(case)
    train, optimizer, params = training(case)
    compiled = od.compile(train)
    for k, batch in enumerate(batches):
        optimizer.learning_rate = other.learning_rate = 0.1 / (k + 1)
        eager(*batch)
        compiled(*batch)
    for p, q in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-12)


def test_a_compiled_step_reads_gradients_from_before_the_trace():
    w = wide([1.0, 2.0])
    optimizer = SGD([w], learning_rate=0.5)
    compiled = od.compile(optimizer.step)
    for g in ([1.0, 1.0], [2.0, -2.0]):
        w.grad = g
        compiled()
    np.testing.assert_array_equal(w.numpy(), [-0.5, 2.5])


def test_a_compiled_step_goes_on_from_a_loaded_state():
    rng = np.random.default_rng(3)
    batch = [rng.normal(size=s) for s in ((8, 4), (8, 3))]
    eager, other, expected = training("adam")
    train, optimizer, params = training("adam")
    compiled = od.compile(train)
    eager(*batch)
    for _ in range(3):
        compiled(*batch)
    optimizer.load_state_dict(other.state_dict())
    for p, q in zip(params, expected, strict=True):
        p.assign(q)
    eager(*batch)
    compiled(*batch)
    for p, q in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-12)


def test_a_rate_assigned_while_a_graph_is_traced_is_refused():
    w = wide(1.0)
    optimizer = Adam([w])

    def train():
        optimizer.learning_rate = 0.5

    with pytest.raises(TapeError, match="learning_rate: assigned while a graph is traced"):
        od.compile(train)()
    assert optimizer.learning_rate == 1e-3


# ------------------------------------------------------------------ groups


def test_groups_have_rates_of_their_own():
    a, b = wide(1.0), wide(1.0)
    optimizer = SGD([{"params": [a], "learning_rate": 0.5}, {"params": {"b": b}}], 0.25)
    a.grad = b.grad = 1.0
    optimizer.step()
    assert (float(a), float(b)) == (0.5, 0.75)
    optimizer.groups[1].learning_rate = 0.125
    optimizer.step()
    assert (float(a), float(b)) == (0.0, 0.625)
    optimizer.learning_rate = 1.0
    assert [group.learning_rate for group in optimizer.groups] == [1.0, 1.0]
    optimizer.step()
    assert (float(a), float(b)) == (-1.0, -0.375)


@cases
def test_groups_equal_optimizers_of_their_own(case):
    make, _, formula, settings = OPTIMIZERS[case]
    params = [wide(draw(np.random.default_rng(k), (4,))) for k in range(4)]
    rates = (0.03, settings.get("learning_rate", 0.02))
    optimizer = make(
        [{"params": params[:1], "learning_rate": rates[0]}, {"params": params[1:]}],
        **settings | {"learning_rate": rates[1]},
    )
    references = [
        Reference(p.numpy(), formula, settings | {"learning_rate": rates[min(k, 1)]})
        for k, p in enumerate(params)
    ]
    rng = np.random.default_rng(6)
    for _ in range(10):
        step(params, optimizer, rng, references)
    same(params, references)


def test_every_setting_may_differ_by_group():
    a, b = wide([1.0, -1.0]), wide([1.0, -1.0])
    own = {"betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.1, "amsgrad": True}
    together = Adam([{"params": a, **own}, {"params": b}], learning_rate=0.1)
    x, y = wide([1.0, -1.0]), wide([1.0, -1.0])
    apart = [Adam(x, learning_rate=0.1, **own), Adam(y, learning_rate=0.1)]
    for k in range(5):
        for p in (a, b, x, y):
            p.grad = [1.0, 0.1 * k]
        together.step()
        for optimizer in apart:
            optimizer.step()
    np.testing.assert_array_equal(a.numpy(), x.numpy())
    np.testing.assert_array_equal(b.numpy(), y.numpy())
    assert together.settings() == {"learning_rate": 0.1}


def test_a_setting_that_differs_is_read_by_group_only():
    optimizer = SGD([{"params": wide(1.0), "learning_rate": 0.5}, {"params": wide(2.0)}], 0.25)
    with pytest.raises(OdysseyError, match=r"groups differ, \[0.5, 0.25\]; read groups\[i\]"):
        _ = optimizer.learning_rate
    assert optimizer.momentum == 0.0


def test_an_assignment_that_one_group_refuses_changes_none():
    a, b = wide(1.0), wide(1.0)
    groups = [{"params": a}, {"params": b, "nesterov": True}]
    optimizer = SGD(groups, 0.1, momentum=0.9)
    with pytest.raises(OdysseyError, match="nesterov=True needs momentum"):
        optimizer.momentum = 0.0
    assert optimizer.momentum == 0.9


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda w, v: SGD([{"params": w, "lr": 0.1}], 0.1),
            OdysseyError,
            "SGD: group 0 has lr, which is no setting; there are learning_rate, momentum",
        ),
        (
            lambda w, v: SGD([{"params": w}, {"weights": v}], 0.1),
            OdysseyError,
            "SGD: group 1 has no 'params'",
        ),
        (
            lambda w, v: SGD([{"params": w}, {"params": {"x": w}}], 0.1),
            OdysseyError,
            r"SGD: parameter \[1\]\['params'\]\['x'\] came twice",
        ),
        (
            lambda w, v: SGD([{"params": w}, {"params": []}], 0.1),
            OdysseyError,
            r"SGD: there are no parameters in \[1\]\['params'\]",
        ),
        (
            lambda w, v: SGD([{"params": w, "learning_rate": -1.0}], 0.1),
            OdysseyError,
            "learning_rate: -1.0 is negative",
        ),
        (lambda w, v: Adam([w], betas=(0.9, 1.0)), OdysseyError, r"Adam: betas=\(0.9, 1.0\)"),
        (lambda w, v: Adam([w], betas=0.9), DTypeError, "Adam: betas=0.9; pass two numbers"),
        (lambda w, v: Adam([w], eps=-1e-8), OdysseyError, "Adam: eps: -1e-08 is negative"),
        (lambda w, v: AdamW([w], weight_decay=-1), OdysseyError, "AdamW: weight_decay: -1 is"),
        (lambda w, v: optim.RMSprop([w], alpha=1.5), OdysseyError, "RMSprop: alpha=1.5"),
        (lambda w, v: optim.AdaGrad([w], lr_decay=-1), OdysseyError, "AdaGrad: lr_decay: -1 is"),
        (lambda w, v: optim.Lion([w], betas=(-0.1, 0.9)), OdysseyError, "Lion: betas="),
        (lambda w, v: optim.LARS([w], "fast"), DTypeError, "LARS: learning_rate='fast' is no"),
    ],
    ids=[
        "unknown_setting",
        "no_params",
        "twice",
        "empty_group",
        "rate_of_a_group",
        "betas_range",
        "betas_count",
        "eps",
        "decay",
        "alpha",
        "lr_decay",
        "lion_betas",
        "no_number",
    ],
)
def test_settings_that_make_no_sense_are_refused(make, error, words):
    with pytest.raises(error, match=words):
        make(wide(1.0), wide(2.0))


def test_a_setting_that_a_group_lacks_cannot_be_assigned_to_it():
    optimizer = SGD([wide(1.0)], 0.1)
    with pytest.raises(OdysseyError, match="rate: no setting; there are learning_rate"):
        optimizer.groups[0].rate = 0.5
    with pytest.raises(AttributeError, match="SGD has no 'betas'"):
        _ = optimizer.betas


def test_numbers_of_numpy_do_not_widen_float32():
    w = Variable(np.ones(3, np.float32), requires_grad=True)
    optimizer = Adam([w], np.float64(0.1), betas=np.array([0.9, 0.99]), eps=np.float64(1e-8))
    optimizer.learning_rate = np.float64(0.5)
    tree, state = [w.numpy().copy()], optimizer.rule().init([w])
    w.grad = np.ones(3)
    (value,), _ = optimizer.rule().update([w.grad], state, tree)
    optimizer.step()
    assert value.dtype == w.dtype == np.float32
    np.testing.assert_array_equal(value, w.numpy())


def test_turning_amsgrad_on_between_steps_starts_its_state():
    w, v = wide([1.0]), wide([1.0])
    one, other = Adam([w]), Adam([v], amsgrad=True)
    for p, optimizer in ((w, one), (v, other)):
        p.grad = [1.0]
        optimizer.step()
    one.amsgrad = True
    for p, optimizer in ((w, one), (v, other)):
        p.grad = [2.0]
        optimizer.step()
    np.testing.assert_array_equal(w.numpy(), v.numpy())


# ------------------------------------------------------------------ frozen parameters


@cases
def test_a_frozen_parameter_stays_and_goes_on_when_thawed(case):
    params, optimizer, references = problem(case, SHAPES["small"])
    rng = np.random.default_rng(8)
    step(params, optimizer, rng, references)
    params[1].requires_grad = False
    for _ in range(3):
        for k in (0, 2):
            g = draw(rng, params[k].shape)
            params[k].grad = g
            references[k].step(g)
        optimizer.step()
    same(params, references)
    params[1].requires_grad = True
    for _ in range(3):
        step(params, optimizer, rng, references)
    same(params, references)


def test_a_frozen_parameter_ignores_the_gradient_that_it_still_has():
    a, b = wide(1.0), wide(1.0)
    optimizer = SGD([a, b], 0.5)
    a.grad = b.grad = 1.0
    b.requires_grad = False
    optimizer.step()
    assert (float(a), float(b)) == (0.5, 1.0)


def test_an_optimizer_of_frozen_parameters_alone_does_nothing():
    w = wide(1.0)
    optimizer = Adam([w])
    w.requires_grad = False
    optimizer.step()
    assert float(w) == 1.0


def test_a_parameter_frozen_when_a_step_is_compiled_stays():
    train, _, (w, b) = training("adam")
    b.requires_grad = False
    before = b.numpy().copy()
    start = w.numpy().copy()
    od.compile(train)(np.ones((8, 4)), np.ones((8, 3)))
    np.testing.assert_array_equal(b.numpy(), before)
    assert not np.array_equal(w.numpy(), start)
