"""Steps that a truth value may skip: ``optimizer.step(where=flag)``, eager and compiled."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.half_dtypes import bfloat16
from odyssey.errors import DTypeError, MissingGradientError, ShapeError
from support.optimizers import OPTIMIZERS, optimizer_classes

# One case of each optimizer.
CASES = {make.__name__: (make, settings) for make, _, _, settings in OPTIMIZERS.values()}
optimizers = pytest.mark.parametrize("case", CASES)


def saved(optimizer):
    """All that a step changes, as bytes."""
    states = optimizer.state_dict()["state"]
    slots = [{n: np.asarray(v).tobytes() for n, v in s.items()} for s in states]
    return [p.numpy().tobytes() for p in optimizer.params], slots


def training(case, dtype=np.float32):
    """An optimizer of two matrices, and a step whose gradients are the rows that are passed."""
    make, settings = CASES[case]
    params = [Variable(np.full((2, 3), k + 1.0, dtype), True, name=f"p{k}") for k in range(2)]
    optimizer = make(params, **settings)

    def step(g):
        with GradientTape() as tape:
            loss = (params[0] * g[0]).sum() + (params[1] * g[1]).sum()
        tape.backward(loss)
        finite = [ops.all(ops.isfinite(p.grad)) for p in params]
        optimizer.step(where=ops.logical_and(*finite))
        optimizer.zero_grad()

    return optimizer, step


def test_the_cases_are_all_optimizers():
    assert set(CASES) == set(optimizer_classes())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16()], ids=str)
@optimizers
def test_where_it_is_false_nothing_changes_and_compiled_steps_equal_eager_ones(case, dtype):
    if case == "LARS":  # its norms are sums, whose order a program may change
        pytest.skip("compared in test_norms_in_a_skipped_step")
    eager, step = training(case, dtype)
    other, compiled = training(case, dtype)
    compiled = od.compile(compiled, warn=False)
    rng = np.random.default_rng(1)
    exact, taken = case not in ("Adafactor", "Muon"), 0
    for k in range(9):
        g = rng.normal(size=(2, 2, 3)).astype(dtype)
        skipped = k in (0, 1, 2, 3, 6)
        if skipped:
            g[k % 2, 0, 1] = np.nan if k % 2 else np.inf
        befores = saved(eager), saved(other)
        with np.errstate(invalid="ignore"):  # the loss
            step(g)
            compiled(g)
        for optimizer, before in zip((eager, other), befores, strict=True):
            if skipped:
                assert saved(optimizer)[0] == before[0]
                # A compiled step that is skipped gives a new optimizer its first state.
                assert not before[1][0] or saved(optimizer) == before
        taken += not skipped
        for optimizer in (eager, other):
            assert optimizer.state_dict()["state"][0].get("steps", 0) == taken
        if exact:
            assert saved(eager)[0] == saved(other)[0]
    if exact:
        assert saved(eager) == saved(other)
    assert compiled.statistics().native == 8


def test_an_eager_step_that_is_skipped_leaves_even_a_new_optimizer_as_it_was():
    w = Variable([3.0], True)
    optimizer = od.optim.Adam([w])
    w.grad = [1.0]
    for flag in (False, np.False_, np.array(False), Variable(np.array(False))):
        optimizer.step(where=flag)
    assert optimizer.state_dict()["state"] == [{}]
    assert w.numpy() == 3.0
    for flag in (True, np.True_, np.array(True), Variable(np.array(True))):
        optimizer.step(where=flag)
    assert optimizer.state_dict()["state"][0]["steps"] == 4


@pytest.mark.parametrize("lazy", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float32", "float16"])
def test_sparse_rows_and_their_state_stay_where_a_step_is_skipped(lazy, dtype):
    def training():
        table = Variable(np.ones((5, 2), dtype), True, sparse_grad=True)
        optimizer = od.optim.Adam([table], 0.1, lazy=lazy)

        def step(rows, factor, flag):
            with GradientTape() as tape:
                loss = (ops.embedding(rows, table) * factor).sum()
            tape.backward(loss)
            optimizer.step(where=flag)
            optimizer.zero_grad()

        return optimizer, step

    eager, step = training()
    other, compiled = training()
    compiled = od.compile(compiled, warn=False)
    rows = np.array([3, 1, 3])
    for k in range(8):
        flag = np.array(k not in (0, 4))
        factor = np.arange(6, dtype=dtype).reshape(3, 2) - (dtype(np.nan) if k == 4 else k)
        before = saved(other)
        with np.errstate(invalid="ignore"):
            step(rows, factor, flag)
            compiled(rows, factor, flag)
        if k == 4:
            assert saved(other) == before
        assert saved(eager)[0] == saved(other)[0]
    assert saved(eager) == saved(other)
    assert compiled.statistics().native == 7
    moved = np.asarray(eager.params[0].numpy() != 1).any(1).tolist()
    assert moved == [False, True, False, True, False]


def test_frozen_parameters_and_those_without_a_gradient_stay_with_any_flag():
    def training():
        a, b, c = (Variable(np.ones(2), True, name=n) for n in "abc")
        optimizer = od.optim.SGD([{"params": [a, b]}, {"params": c}], 0.5, momentum=0.9)
        b.requires_grad = False

        def step(flag):
            with GradientTape() as tape:
                loss = (a * b).sum()
            tape.backward(loss)
            optimizer.step(where=flag, allow_missing=True)
            optimizer.zero_grad()

        return optimizer, step

    eager, step = training()
    other, compiled = training()
    compiled = od.compile(compiled, warn=False)
    for flag in (True, True, False, True):
        step(np.array(flag))
        compiled(np.array(flag))
    assert saved(eager)[0] == saved(other)[0]
    # Three steps of momentum: 0.5 (1 + 1.9 + 2.71).
    assert eager.params[0].numpy() == pytest.approx(1 - 0.5 * 5.61)
    assert [p.numpy().tolist() for p in eager.params[1:]] == [[1, 1], [1, 1]]


def test_a_flag_that_python_knows_is_no_part_of_the_program():
    w = Variable(np.ones(2), True)
    optimizer = od.optim.SGD([w], 0.5)

    @od.compile
    def step(on):
        with GradientTape() as tape:
            loss = w.sum()
        tape.backward(loss)
        optimizer.step(where=on)
        optimizer.zero_grad()

    for on in (True, False, True, False, False, True):
        step(on)
    assert w.numpy().tolist() == [-0.5, -0.5]


def test_a_schedule_counts_its_own_steps_whatever_the_flag():
    def training():
        w = Variable(np.ones(2), True)
        optimizer = od.optim.SGD([w], 0.5)
        schedule = od.optim.ExponentialLR(optimizer, 0.5)

        def step(flag):
            with GradientTape() as tape:
                loss = w.sum()
            tape.backward(loss)
            optimizer.step(where=flag)
            optimizer.zero_grad()
            schedule.step()

        return w, optimizer, step

    (w, one, eager), (v, two, compiled) = training(), training()
    compiled = od.compile(compiled)
    for flag in (True, False, True, False, True):
        eager(np.array(flag))
        compiled(np.array(flag))
    assert w.numpy()[0] == v.numpy()[0] == 1 - 0.5 * (1 + 1 / 4 + 1 / 16)
    assert one.learning_rate == two.learning_rate == 0.5**6


@pytest.mark.parametrize(
    ("flag", "error", "words"),
    [
        (1, DTypeError, "where=1; pass one truth value"),
        (None, DTypeError, "where=None"),
        ("yes", DTypeError, "where='yes'"),
        (np.array(1.0), DTypeError, "pass one truth value"),
        (np.array([True, True]), ShapeError, r"shape \(2,\)"),
        (np.array([True]), ShapeError, r"shape \(1,\)"),
    ],
)
def test_a_flag_that_is_no_truth_value_is_refused_and_nothing_moves(flag, error, words):
    w = Variable([3.0], True)
    optimizer = od.optim.SGD([w], 0.5)
    w.grad = [1.0]
    with pytest.raises(error, match=words):
        optimizer.step(where=flag)
    assert w.numpy() == 3.0


def test_a_missing_gradient_is_named_whatever_the_flag():
    optimizer = od.optim.SGD([Variable([3.0], True, name="w")], 0.5)
    for flag in (True, False):
        with pytest.raises(MissingGradientError, match="parameter w"):
            optimizer.step(where=flag)


def test_lbfgs_refuses_a_flag_by_name():
    w = Variable([3.0], True)
    with pytest.raises(DTypeError, match=r"LBFGS.step: where=False; .* if statement"):
        od.optim.LBFGS(w).step(lambda: None, where=False)


def test_norms_in_a_skipped_step_of_lars_leave_no_trace():
    eager, step = training("LARS")
    other, compiled = training("LARS")
    compiled = od.compile(compiled, warn=False)
    rng = np.random.default_rng(1)
    for k in range(6):
        g = rng.normal(size=(2, 2, 3)).astype(np.float32)
        g[0, 0, 0] = np.inf if k == 3 else 1
        before = saved(other)
        step(g)
        compiled(g)
        assert (saved(other) == before) is (k == 3)
    for p, q in zip(eager.params, other.params, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-6)
