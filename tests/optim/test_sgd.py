"""SGD against its formulas written out in float64, and its hold on the parameters."""

import warnings
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import MissingGradientError, OdysseyError
from odyssey.optim import SGD, step_runner
from support.faults import in_its_thread, interrupt
from support.sgd_cases import SETTINGS, SHAPES, problem, same, wide

# ------------------------------------------------------------------ the formulas


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_hundred_steps_of_sgd_equal_the_formulas(settings, shapes):
    params, optimizer, references = problem(SHAPES[shapes], **SETTINGS[settings])
    rng = np.random.default_rng(11)
    for step in range(100 if shapes == "small" else 10):
        for p, reference in zip(params, references, strict=True):
            if step == 5 and p is params[0]:
                p.grad = None
                continue
            g = rng.normal(size=p.shape)
            p.grad = g
            reference.step(g)
        optimizer.step(allow_missing=step == 5)
        optimizer.zero_grad()
    same(params, references)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_missing_gradient_in_the_first_step_starts_that_parameter_later(settings):
    params, optimizer, references = problem(SHAPES["small"], **SETTINGS[settings])
    rng = np.random.default_rng(12)
    for step in range(4):
        for k, (p, reference) in enumerate(zip(params, references, strict=True)):
            p.grad = None
            if step > k:
                g = rng.normal(size=p.shape)
                p.grad = g
                reference.step(g)
        optimizer.step(allow_missing=True)
    same(params, references)


def test_gradients_of_a_tape_move_the_parameters_downhill():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 1))
    target = 2.0 * x + 1.0
    w, b = wide([[0.0]]), wide([0.0])
    optimizer = SGD({"w": w, "b": b}, 0.1, momentum=0.5)
    for _ in range(200):
        with GradientTape() as tape:
            loss = od.mean_squared_error(x @ w + b, target)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert float(w) == pytest.approx(2.0, abs=1e-8)
    assert float(b) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64"])
def test_parameters_keep_their_dtype(name):
    w = Variable(np.ones(3, name), requires_grad=True)
    optimizer = SGD([w], 0.5, momentum=0.5, weight_decay=0.5)
    for _ in range(2):
        w.grad = np.ones(3)
        optimizer.step()
    # v1 = 1.5, p1 = 0.25; v2 = 0.75 + 1.125, p2 = 0.25 - 0.9375: all exact in binary
    assert w.dtype == np.dtype(name)
    np.testing.assert_array_equal(w.numpy(), np.full(3, -0.6875))


def test_parameters_of_several_dtypes_share_an_optimizer():
    a = Variable(np.ones(2, np.float32), requires_grad=True)
    b = wide(np.ones(3))
    a.grad, b.grad = np.ones(2), np.full(3, 2.0)
    SGD([a, b], 0.5).step()
    assert (a.dtype, b.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(a.numpy(), [0.5, 0.5])
    np.testing.assert_array_equal(b.numpy(), [0.0, 0.0, 0.0])


def test_gradients_in_any_memory_order_are_read_right():
    w = wide(np.zeros((130, 140)))
    small = wide(np.zeros((2, 3)))
    g = np.arange(130.0 * 140.0).reshape(140, 130).T
    with GradientTape() as tape:
        y = w * 1.0
        z = small.T
    tape.backward((y, z), (g, np.arange(6.0).reshape(3, 2)))
    SGD([w, small], 1.0).step()
    np.testing.assert_array_equal(w.numpy(), -g)
    np.testing.assert_array_equal(small.numpy(), -np.arange(6.0).reshape(3, 2).T)


# ------------------------------------------------------------------ what it takes, and settings


@dataclass
class Layer:
    w: Variable
    b: Variable


@pytest.mark.parametrize(
    "wrap",
    [
        lambda w, b: [w, b],
        lambda w, b: (w, [b]),
        lambda w, b: {"w": w, "b": {"deep": b}},
        lambda w, b: Layer(w, b),
        lambda w, b: [Layer(w, b)],
        lambda w, b: (p for p in (w, b)),
    ],
    ids=["list", "nest", "dict", "dataclass", "list_of_dataclasses", "generator"],
)
def test_parameters_come_in_any_tree(wrap):
    w, b = wide(1.0), wide(2.0)
    optimizer = SGD(wrap(w, b), 0.5)
    w.grad, b.grad = 1.0, 2.0
    optimizer.step()
    assert (float(w), float(b)) == (0.5, 1.0)


def test_a_single_parameter_may_come_bare():
    w = wide(1.0)
    optimizer = SGD(w, 0.5)
    w.grad = 1.0
    optimizer.step()
    assert float(w) == 0.5


def test_a_missing_gradient_is_named_by_name_or_by_place():
    named, nameless = wide(1.0, name="bias"), wide(1.0)
    with pytest.raises(MissingGradientError, match=r"SGD.step: parameter bias has no gradient"):
        SGD([named], 0.1).step()
    optimizer = SGD({"deep": [named, nameless]}, 0.1)
    named.grad = 1.0
    with pytest.raises(MissingGradientError, match=r"parameter \['deep'\]\[1\] has no gradient"):
        optimizer.step()
    assert float(named) == 1.0


def test_allow_missing_leaves_such_parameters_where_they_are():
    a, b = wide(1.0), wide(1.0)
    a.grad = 1.0
    SGD([a, b], 0.25).step(allow_missing=True)
    assert (float(a), float(b)) == (0.75, 1.0)


def test_zero_grad_forgets_every_gradient():
    a, b = wide(1.0), wide(1.0)
    a.grad = b.grad = 1.0
    SGD([a, b], 0.25).zero_grad()
    assert a.grad is None
    assert b.grad is None


def test_the_learning_rate_is_assignable_and_schedules_work():
    w = wide(0.0)
    optimizer = SGD([w], 1.0)
    for rate in (1.0, 0.5, 0.25, 0.0):
        optimizer.learning_rate = rate
        assert optimizer.learning_rate == rate
        w.grad = 1.0
        optimizer.step()
    assert float(w) == -1.75
    with pytest.raises(OdysseyError, match="learning_rate: -1 is negative"):
        optimizer.learning_rate = -1
    assert optimizer.learning_rate == 0.0


def test_the_learning_rate_scales_the_step_not_the_velocity():
    params, optimizer, references = problem([(3,)], momentum=0.9)
    for rate in (0.1, 0.01, 0.5):
        optimizer.learning_rate = references[0].rate = rate
        params[0].grad = np.ones(3)
        references[0].step(np.ones(3))
        optimizer.step()
    same(params, references)


# ------------------------------------------------------------------ parameters stay Variables


def test_two_optimizers_on_the_same_parameters_both_move_them():
    params, first, _ = problem(SHAPES["mixed"], momentum=0.9)
    second = SGD(params, 0.05, momentum=0.5)
    positions = [p.numpy().copy() for p in params]
    fast, slow = [np.zeros(p.shape) for p in params], [np.zeros(p.shape) for p in params]
    rng = np.random.default_rng(5)
    for _ in range(4):
        for optimizer, velocities, momentum, rate in (
            (first, fast, 0.9, 0.1),
            (second, slow, 0.5, 0.05),
        ):
            for k, p in enumerate(params):
                g = rng.normal(size=p.shape)
                p.grad = g
                velocities[k] = momentum * velocities[k] + g
                positions[k] = positions[k] - rate * velocities[k]
            optimizer.step()
    for p, position in zip(params, positions, strict=True):
        np.testing.assert_allclose(p.numpy(), position, rtol=1e-12, atol=1e-14)


def test_parameters_may_be_assigned_between_steps():
    params, optimizer, references = problem(SHAPES["mixed"], momentum=0.9)
    for round in range(3):
        for p, reference in zip(params, references, strict=True):
            p.grad = np.ones(p.shape)
            reference.step(np.ones(p.shape))
        optimizer.step()
        params[round].assign(0.25)
        references[round].p = np.full(params[round].shape, 0.25)
    same(params, references)


def test_a_step_is_seen_by_a_tape_that_still_needs_the_old_value():
    w = wide([1.0, 2.0])
    optimizer = SGD([w], 0.1)
    with GradientTape() as tape:
        y = (w * w).sum()
    w.grad = np.ones(2)
    optimizer.step()
    with pytest.raises(od.errors.MutationError, match="assigned after this tape recorded"):
        tape.backward(y)


def test_parameters_stay_read_only_leaves_with_their_names_and_ids():
    params, optimizer, _ = problem(SHAPES["mixed"])
    before = [(p.id, p.name, p.shape, p.dtype) for p in params]
    for p in params:
        p.grad = np.ones(p.shape)
    optimizer.step()
    assert [(p.id, p.name, p.shape, p.dtype) for p in params] == before
    for p in params:
        assert p.is_leaf
        assert p.requires_grad
        assert not p.data.flags.writeable
    for a, b in pairwise(params):
        a.assign(9.0)
        assert not np.any(b.numpy() == 9.0)


def test_a_step_changes_no_gradient():
    params, optimizer, _ = problem(SHAPES["mixed"], momentum=0.9, weight_decay=0.1)
    for p in params:
        p.grad = np.ones(p.shape)
    for _ in range(2):
        optimizer.step()
    for p in params:
        np.testing.assert_array_equal(p.grad, np.ones(p.shape))


@in_its_thread
def test_an_overflow_of_an_interrupted_step_is_not_told_of_by_a_later_one():
    for n in count(1):
        w = Variable(np.full(3, 1e308), requires_grad=True)
        optimizer = SGD([w], learning_rate=100.0)
        w.grad = np.full(3, -1e308)
        try:
            with warnings.catch_warnings(), interrupt(n, within=step_runner.__file__) as fired:
                warnings.simplefilter("ignore", RuntimeWarning)
                optimizer.step()
        except KeyboardInterrupt:
            pass
        w.assign(np.zeros(3))
        w.grad = np.ones(3)
        optimizer.step()  # a warning is an error here
        if not fired:
            break
    assert n > 5
