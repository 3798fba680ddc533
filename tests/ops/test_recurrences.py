"""Running products and linear recurrences: exact derivatives, with zeros too, of any order."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.cases import assert_same


def by_hand(x, factors):
    out = [x[0]]
    for v, f in zip(x[1:], factors[1:], strict=True):
        out.append(v + f * out[-1])
    return np.array(out)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_the_recurrence_is_its_definition_in_both_directions(dtype):
    rng = np.random.default_rng(0)
    x, f = (rng.normal(size=6).astype(dtype) for _ in range(2))
    rtol = 1e-5 if dtype is np.float32 else 1e-14
    got = ops.linear_recurrence(x, f)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, by_hand(x, f), rtol=rtol)
    # In reverse a factor leads from its own place to the one before.
    turned = np.roll(f[::-1], 1)
    wanted = by_hand(x[::-1], turned)[::-1]
    np.testing.assert_allclose(ops.linear_recurrence(x, f, reverse=True), wanted, rtol=rtol)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reverse", [False, True])
def test_lines_of_a_matrix_recur_one_by_one(axis, reverse):
    rng = np.random.default_rng(1)
    x, f = rng.normal(size=(2, 3, 4))
    got = ops.linear_recurrence(x, f, axis=axis, reverse=reverse) if x.ndim == 2 else None
    lines = zip(*(np.moveaxis(v, axis, -1) for v in (x, f, got)), strict=True)
    for line, factors, found in lines:
        wanted = ops.linear_recurrence(line, factors, reverse=reverse)
        np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_one_direction_is_the_transposed_of_the_other():
    f = np.random.default_rng(2).normal(size=5)
    forth = np.stack([ops.linear_recurrence(e, f) for e in np.eye(5)])
    back = np.stack([ops.linear_recurrence(e, f, reverse=True) for e in np.eye(5)])
    np.testing.assert_allclose(forth, back.T, rtol=1e-15)


def test_a_discounted_sum_has_the_powers_of_the_discount_for_gradient():
    rewards = Variable(np.ones(4), requires_grad=True)
    with GradientTape() as tape:
        returns = ops.linear_recurrence(rewards, np.full(4, 0.5), reverse=True)
        first = returns[0]
    assert first.item() == 1.875
    assert tape.gradient(first, rewards).tolist() == [1.0, 0.5, 0.25, 0.125]


# ------------------------------------------------------------------ running products

POSITIONS = [[0, 2, 3], [2, 0, 3, 0], [0, 0, 5], [7], [0], [-1, 2, 0, 3, 5]]


@pytest.mark.parametrize("x", POSITIONS, ids=str)
def test_running_products_are_exact_with_zeros_to_second_order(x):
    x = np.array(x, float)
    n = len(x)
    jacobian = np.zeros((n, n))
    for k, j in itertools.product(range(n), repeat=2):
        jacobian[k, j] = np.prod(np.delete(x[: k + 1], j)) if j <= k else 0.0
    assert_same(od.jacobian(ops.cumprod)(x), jacobian)
    hessian = np.zeros((n, n))
    for k, i, j in itertools.product(range(n), repeat=3):
        if i != j and max(i, j) <= k:
            hessian[i, j] += np.prod(np.delete(x[: k + 1], [i, j]))
    assert_same(od.hessian(lambda v: ops.sum(ops.cumprod(v)))(x), hessian)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_numpys_options_of_running_products_work_on_variables(axis):
    x = np.random.default_rng(3).normal(size=(2, 3))
    w = Variable(x, requires_grad=True)
    with GradientTape():
        assert_same(np.cumprod(w, axis).numpy(), np.cumprod(x, axis))
        assert_same(np.cumprod(a=w, axis=axis).numpy(), np.cumprod(x, axis))
        single = np.cumprod(w, axis, dtype=np.float32)
    assert_same(single.numpy(), np.cumprod(x.astype(np.float32), axis))


def test_a_running_product_that_underflows_keeps_its_gradient():
    # Dividing the products, which are 0 from the second on, would lose it.
    x = np.array([1e-200, 1e-200, 1e10])
    gradient = od.grad(lambda v: ops.cumprod(v)[2])(x)
    np.testing.assert_allclose(gradient, [1e-190, 1e-190, 0.0], rtol=1e-14)


def test_running_products_of_integers_are_numpys():
    x = np.array([[1, 2], [3, 4]], np.int8)
    assert_same(ops.cumprod(x, 1), np.cumprod(x, 1))
