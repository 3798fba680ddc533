"""Products, running sums and the logistic function, at sizes where they are made in parts."""

import math

import mpmath
import numpy as np
import pytest

import odyssey as od
from odyssey import ops


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13, 64, 101])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_the_gradient_of_a_product_is_the_product_of_the_others(n, zeros):
    x = np.random.default_rng(n).uniform(0.5, 1.5, (n, 3)) * 1.0
    x[: min(zeros, n), 1] = 0.0
    expected = [[math.prod(np.delete(x[:, k], i)) for k in range(3)] for i in range(n)]
    got = od.grad(lambda v: ops.sum(ops.prod(v, 0)))(x)
    np.testing.assert_allclose(got, expected, rtol=4e-16 * n)
    turned = od.grad(lambda v: ops.sum(ops.prod(v, 1)))(x.T.copy())
    np.testing.assert_array_equal(turned, got.T)


@pytest.mark.parametrize("n", [2, 3, 5, 6])
def test_the_second_derivative_of_a_product_leaves_two_out(n):
    x = np.random.default_rng(n).uniform(0.5, 1.5, n)
    expected = [
        [0.0 if i == j else math.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)
    ]
    np.testing.assert_allclose(od.hessian(ops.prod)(x), expected, rtol=1e-14)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, -3])
def test_the_gradient_of_a_running_sum_is_one_from_the_end(axis):
    x = np.random.default_rng(0).standard_normal((4, 5, 6))
    weights = np.cumsum(x, axis) * 0 + np.random.default_rng(1).standard_normal(
        x.size if axis is None else x.shape
    )
    got = od.grad(lambda v: ops.sum(ops.cumsum(v, axis) * weights))(x)
    along = 0 if axis is None else axis
    expected = np.flip(np.cumsum(np.flip(weights, along), along), along).reshape(x.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_logistic_function_is_exact_to_a_few_roundings_everywhere(dtype):
    info = np.finfo(dtype)
    edge = float(np.log(info.max))
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1.1 * edge, 40, 300), [-edge, -0.0, 0.0]]).astype(dtype)
    got = ops.sigmoid(x)
    expected = [1 / (1 + mpmath.exp(-mpmath.mpf(float(value)))) for value in x]
    for value, y, right in zip(x, got, expected, strict=True):
        bound = 4 * info.eps * right + info.smallest_subnormal
        assert abs(mpmath.mpf(float(y)) - right) <= bound, value
    limits = ops.sigmoid(np.array([-np.inf, np.inf, np.nan], dtype))
    assert limits[:2].tolist() == [0.0, 1.0]
    assert np.isnan(limits[2])


def test_an_element_of_the_logistic_function_does_not_depend_on_the_others():
    x = np.random.default_rng(0).uniform(-30, 30, 200)
    alone = ops.sigmoid(x)
    for beside in (-np.inf, -720.0, np.nan):
        assert (ops.sigmoid(np.append(x, beside))[:-1] == alone).all()
    assert [float(ops.sigmoid(value)) for value in x[:20]] == alone[:20].tolist()
