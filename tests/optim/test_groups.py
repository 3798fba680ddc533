"""Parameter groups, settings and frozen parameters, for every optimizer."""

import numpy as np
import pytest

from odyssey import Variable, optim
from odyssey.errors import DTypeError, OdysseyError
from odyssey.optim import SGD, Adam, AdamW
from support.optimizers import (
    OPTIMIZERS,
    SHAPES,
    Reference,
    draw,
    problem,
    same,
    shapes_for,
    step,
    wide,
)

cases = pytest.mark.parametrize("case", OPTIMIZERS)

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
    shapes = shapes_for(make, [(4,)] * 4)
    params = [wide(draw(np.random.default_rng(k), shape)) for k, shape in enumerate(shapes)]
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
    rest = {"lazy": True, "weight_decay": 0.0}
    together = Adam([{"params": a, **own}, {"params": b, **rest}], learning_rate=0.1)
    x, y = wide([1.0, -1.0]), wide([1.0, -1.0])
    apart = [Adam(x, learning_rate=0.1, **own), Adam(y, learning_rate=0.1, **rest)]
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
            "SGD: group 0 has lr, which is not a setting; there are learning_rate, momentum",
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
    with pytest.raises(OdysseyError, match="rate: not among the settings; there are learning_rate"):
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
