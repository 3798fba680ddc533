"""Gradients without a tape, as parts of compiled programs."""

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, tree
from odyssey.errors import ShapeError

RNG = np.random.default_rng(0)
P, T, W = (RNG.uniform(0.1, 0.9, (3, 4)) for _ in range(3))
K, ROWS = np.array([0, 3, 1]), RNG.uniform(0.5, 1.0, 3)
FROZEN, TRAINED = Variable(T), Variable(T, requires_grad=True)
CASES = {
    "mse": lambda p, t: od.compute_mse_gradient(p, t),
    "mse, weighed": lambda p, t: od.compute_mse_gradient(p, t, weights=W, reduction="sum"),
    "mse, broadcast": lambda p, t: od.compute_mse_gradient(p, t, weights=ROWS[:, None]),
    "mse, one by one": lambda p, t: od.compute_mse_gradient(p, t, reduction="none"),
    "mse at a parameter": lambda p, t: od.compute_mse_gradient(TRAINED, p),
    "mse to a constant": lambda p, t: od.compute_mse_gradient(p, FROZEN),
    "mse, narrow": lambda p, t: od.compute_mse_gradient(p.astype(np.float32), t),
    "bce": lambda p, t: od.compute_bce_gradient(p, t),
    "bce, logits": lambda p, t: od.compute_bce_gradient(p, t, from_logits=True, weights=W),
    "ce": lambda p, t: od.compute_ce_gradient(p, K),
    "ce, smooth": lambda p, t: od.compute_ce_gradient(p, t, label_smoothing=0.1),
    "ce, weighed": lambda p, t: od.compute_ce_gradient(p, K, weights=ROWS, ignore_index=3),
    "by name": lambda p, t: od.compute_gradient(p, t, loss="bce"),
    "both, mse": lambda p, t: od.mse_loss_and_grad(p, t),
    "both, bce": lambda p, t: od.bce_loss_and_grad(p, t, weights=W),
    "both, ce": lambda p, t: od.ce_loss_and_grad(p, K, weights=ROWS, reduction="none"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_what_the_function_gives(name):
    fn, compiled = CASES[name], od.compile(CASES[name], check=True)
    for k in range(3):
        wanted, found = fn(P * 0.5**k, T), compiled(P * 0.5**k, T)
        assert type(found) is type(wanted)
        for one, other in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
            assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
            np.testing.assert_allclose(one, other, rtol=1e-13)
    assert compiled.statistics() == (1, 2, 1)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        pytest.param(lambda p: od.compute_mse_gradient(p, p[0]), "predictions", id="shapes"),
        pytest.param(lambda p: od.compute_ce_gradient(p, K + 9), "class numbers", id="classes"),
    ],
)
def test_what_is_refused_is_refused_alike(fn, says):
    compiled = od.compile(fn)
    for _ in range(3):
        with pytest.raises(ShapeError, match=says):
            compiled(P)


def test_a_step_by_hand_is_one_program():
    w = Variable(np.zeros((4, 2)), requires_grad=True)
    y = P @ np.ones((4, 2))

    @od.compile
    def step(x, y):
        slope = od.compute_mse_gradient(x @ w.detach(), y)
        w.assign(w.detach() - 0.5 * (x.T @ slope))

    expected = np.zeros((4, 2))
    for _ in range(5):
        step(P, y)
        expected -= 0.5 * (P.T @ (2 * (P @ expected - y) / y.size))
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)
    assert step.statistics().native == 4
