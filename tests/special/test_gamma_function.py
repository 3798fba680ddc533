"""The gamma family in many digits, at its poles, and near its zeros."""

import math

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from support.exact import assert_exact

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(0)
ABOVE = np.concatenate([RNG.uniform(0, 5, 100), 10 ** RNG.uniform(-30, 1.5, 100)])
BELOW = -RNG.uniform(0, 20, 200)
WIDE = np.concatenate([ABOVE, 10 ** RNG.uniform(1.5, 30, 50)])
CLOSE = np.concatenate([c + 1e-5 * RNG.normal(size=20) for c in (1.0, 1.4616321449683622, 2.0)])


def size_of_gamma(x):
    return mpmath.loggamma(x) if x > 9 else mpmath.log(abs(mpmath.gamma(x)))


def order(n):
    return lambda x: mpmath.polygamma(n, x)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_err_by_a_few_units_in_the_last_place(dtype):
    assert_exact(ops.gammaln, size_of_gamma, [*WIDE, *CLOSE], dtype, ulps=4)
    assert_exact(ops.gamma, mpmath.gamma, [*ABOVE, *CLOSE, *BELOW], dtype, ulps=4)
    assert_exact(ops.digamma, order(0), [*WIDE, *CLOSE], dtype, ulps=4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_below_zero_they_err_by_a_few_roundings_of_one(dtype):
    assert_exact(ops.gammaln, size_of_gamma, BELOW, dtype, ulps=4, beside=1)
    assert_exact(ops.digamma, order(0), BELOW, dtype, ulps=4, beside=1)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 20, 21, 60, 100])
def test_derivatives_of_digamma_err_by_as_many_units_as_their_order(n):
    x = [*ABOVE[::5], *BELOW[:20]]
    assert_exact(lambda x: ops.polygamma(n, x), order(n), x, "float64", ulps=4 + 2 * n)


def test_at_their_poles_they_are_infinite_where_both_sides_agree_and_else_nan():
    x = np.array([0.0, -0.0, -1.0, -20.0, -1e300, -INF])
    np.testing.assert_array_equal(ops.gammaln(x), INF)
    np.testing.assert_array_equal(ops.gamma(x), [INF, -INF, NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(ops.digamma(x), [-INF, INF, NAN, NAN, NAN, NAN])
    np.testing.assert_array_equal(ops.polygamma(1, x), INF)
    np.testing.assert_array_equal(ops.polygamma(2, x), [-INF, INF, NAN, NAN, NAN, NAN])


def test_gamma_of_whole_numbers_is_the_factorial_to_a_unit_in_the_last_place():
    n = np.arange(1, 171)
    wanted = np.array([float(math.factorial(k - 1)) for k in n])
    np.testing.assert_allclose(ops.gamma(n), wanted, rtol=6e-16)
    assert ops.gamma(172.0) == INF
    assert ops.gamma(-200.5) == 0


def test_orders_may_be_an_array_beside_numbers():
    orders, x = np.array([[0], [1], [4]]), np.array([0.5, 2.5])
    got = ops.polygamma(orders, x)
    wanted = [[float(mpmath.polygamma(int(n), v)) for v in x] for n in orders[:, 0]]
    np.testing.assert_allclose(got, wanted, rtol=4e-15)
    assert ops.polygamma(np.zeros((0, 1), int), x).shape == (0, 2)


def test_a_derivative_of_the_hundredth_order_has_none_itself():
    v = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = ops.polygamma(100, v)
    with pytest.raises(Exception, match="order is 101; orders go from 1 to 100"):
        tape.gradient(y, v)
