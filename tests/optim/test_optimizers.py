"""Every optimizer against its formulas, as a pure rule, and compiled."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, optim
from odyssey.errors import DTypeError, OdysseyError, ShapeError, TapeError
from odyssey.optim import SGD, Adam
from support.optimizers import (
    OPTIMIZERS,
    SHAPES,
    Reference,
    draw,
    lars,
    problem,
    same,
    step,
    wide,
)

cases = pytest.mark.parametrize("case", OPTIMIZERS)
ELEMENTWISE = [c for c in OPTIMIZERS if not c.startswith(("lars", "adafactor", "muon"))]

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


@pytest.mark.share(12, rest="slow")
@cases
def test_a_compiled_pure_rule_is_one_program_for_all_steps(case):
    _, factory, _, settings = OPTIMIZERS[case]
    rule, rng = factory(**settings), np.random.default_rng(3)
    compiled = od.compile(rule.update, fullgraph=True)
    trees = [{"w": draw(rng, (3, 2))}] * 2
    states = [rule.init(tree) for tree in trees]
    for _ in range(6):
        grads = {"w": draw(rng, (3, 2))}
        steps = zip((rule.update, compiled), states, trees, strict=True)
        trees, states = zip(*[do(grads, s, p) for do, s, p in steps], strict=True)
    np.testing.assert_allclose(trees[1]["w"], trees[0]["w"], rtol=1e-12)
    assert compiled.statistics().programs == 1


@pytest.mark.parametrize(
    "case", [c for c in OPTIMIZERS if not c.startswith(("lars", "adafactor", "muon"))]
)
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
    shapes = (4, 3), (1, 3) if make is optim.Muon else (3,)
    w, b = (Variable(rng.normal(size=s).astype(dtype), True, name="p") for s in shapes)
    optimizer = make({"w": w, "b": b}, **settings)

    def train(x, y):
        with GradientTape() as tape:
            loss = od.mean_squared_error(od.ops.tanh(x @ w + b), y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train, optimizer, (w, b)


@pytest.mark.share(4)
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


def test_a_rate_assigned_in_what_is_compiled_is_assigned_once_a_call_and_in_no_graph():
    optimizer = Adam([wide(1.0)])

    @od.compile
    def train():
        optimizer.learning_rate *= 0.5
        return optimizer.learning_rate

    with pytest.raises(TapeError, match="learning_rate: assigned while a graph is traced"):
        train.lower()
    assert [train() for _ in range(4)] == [5e-4, 2.5e-4, 1.25e-4, 6.25e-5]
    assert optimizer.learning_rate == 6.25e-5
    assert "step the schedule, outside" in train.explain()


@pytest.mark.parametrize("caught", [False, True])
def test_a_schedule_that_is_stepped_in_what_is_compiled_goes_as_it_does_eagerly(caught):
    def training_with_a_schedule():
        w = Variable(np.ones(3), requires_grad=True)
        optimizer = od.optim.SGD([w], learning_rate=0.1, momentum=0.9)
        schedule = od.optim.StepLR(optimizer, step_size=2, gamma=0.5)

        def step(x):
            with GradientTape() as tape:
                loss = (w * w * x).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            try:
                schedule.step()
            except TapeError:
                if not caught:
                    raise
            return loss

        return step, lambda: (w.numpy().tolist(), optimizer.learning_rate, schedule.steps)

    (step, stands), (other, wanted) = training_with_a_schedule(), training_with_a_schedule()
    compiled, x = od.compile(step), np.arange(3.0)
    for _ in range(5):
        assert compiled(x).item() == other(x).item()
        assert stands() == wanted()


def test_a_parameter_frozen_when_a_step_is_compiled_stays():
    train, _, (w, b) = training("adam")
    b.requires_grad = False
    before = b.numpy().copy()
    start = w.numpy().copy()
    od.compile(train)(np.ones((8, 4)), np.ones((8, 3)))
    np.testing.assert_array_equal(b.numpy(), before)
    assert not np.array_equal(w.numpy(), start)


@pytest.mark.parametrize(("kind", "name"), [(optim.Adafactor, "Adafactor"), (optim.Muon, "Muon")])
def test_complex_parameters_are_refused_where_the_rule_has_no_meaning_for_them(kind, name):
    w = Variable(np.ones((2, 2), complex), True)
    optimizer = kind([w])
    w.grad = np.ones((2, 2), complex)
    with pytest.raises(DTypeError, match=f"^{name}: a parameter is complex"):
        optimizer.step()
    np.testing.assert_array_equal(w.numpy(), np.ones((2, 2)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 2, 2)])
def test_muon_refuses_what_is_no_matrix(shape):
    w = wide(np.ones(shape))
    w.grad = np.ones(shape)
    with pytest.raises(ShapeError, match=r"^Muon: a parameter has shape .*another optimizer"):
        optim.Muon([w]).step()


def test_adafactor_remembers_rows_and_columns_alone():
    optimizer = optim.Adafactor([wide(np.ones((3, 50, 40))), wide(np.ones(7))])
    optimizer.step(allow_missing=True)
    for p in optimizer.params:
        p.grad = np.ones(p.shape)
    optimizer.step()
    first, second = optimizer.state_dict()["state"]
    assert {n: np.shape(v) for n, v in first.items()} == {
        "steps": (),
        "rows": (3, 50, 1),
        "columns": (3, 1, 40),
        "square": (0,),
    }
    assert second["square"].shape == (7,)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"eps": 1e-3}, "eps=0.001; pass two numbers"),
        ({"eps": (-1.0, 1e-3)}, "eps=-1.0"),
        ({"beta2_decay": 0.5}, "beta2_decay=0.5"),
        ({"d": 0.5}, "d=0.5"),
    ],
    ids=str,
)
def test_settings_of_adafactor_are_checked(settings, text):
    with pytest.raises(OdysseyError, match=text):
        optim.Adafactor([wide(1.0)], **settings)


@pytest.mark.parametrize(
    "settings", [{"ns_steps": 1.5}, {"adjust_lr_fn": "none"}, {"ns_coefficients": (1.0, 2.0)}]
)
def test_settings_of_muon_are_checked(settings):
    with pytest.raises(OdysseyError, match=next(iter(settings))):
        optim.Muon([wide(np.ones((2, 2)))], **settings)
