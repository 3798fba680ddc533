"""Weighted sums of exponentials and the logarithms of gamma functions of several dimensions."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError
from odyssey.testing import check_gradients

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(0)


def slopes(function, *operands, **options):
    leaves = [Variable(x, requires_grad=True) for x in operands]
    with GradientTape() as tape:
        out = function(*leaves, **options)
    return tape.gradient(out, leaves, np.ones(out.shape))


def test_large_exponents_do_not_overflow_and_small_ones_keep_their_digits():
    for shift in (1000.0, -1000.0, 0.0):
        got = ops.weighted_logsumexp(np.array([shift, shift + 1]), np.array([3.0, -0.5]))
        np.testing.assert_allclose(got - shift, np.log(3 - 0.5 * np.e), rtol=1e-13)


def test_what_weighs_nothing_may_be_anything():
    for x in (INF, 1e300, 900.0, -INF, 5.0):
        got = ops.weighted_logsumexp(np.array([2.0, x]), np.array([1.0, 0.0]))
        assert got == 2.0
        gradient, _ = slopes(
            lambda x, b: ops.weighted_logsumexp(x, b), np.array([2.0, x]), np.array([1.0, 0.0])
        )
        np.testing.assert_array_equal(gradient, [1.0, 0.0])


def test_a_weight_of_nothing_has_its_gradient():
    _, gradient = slopes(
        lambda x, b: ops.weighted_logsumexp(x, b), np.array([2.0, 3.0]), np.array([1.0, 0.0])
    )
    np.testing.assert_allclose(gradient, [1.0, np.e], rtol=1e-15)


def test_a_negative_sum_is_nan_unless_its_sign_is_told():
    x, b = np.zeros(2), np.array([1.0, -3.0])
    with np.errstate(invalid="ignore"):
        assert np.isnan(ops.weighted_logsumexp(x, b))
    size, sign = ops.weighted_logsumexp(x, b, return_sign=True)
    assert (size, sign) == (np.log(2.0), -1)


def test_a_sum_of_nothing_is_minus_infinity_with_the_sign_0():
    with np.errstate(divide="ignore"):
        size, sign = ops.weighted_logsumexp(
            np.array([-INF, 1.0]), np.array([2.0, 0.0]), return_sign=True
        )
        assert (size, sign) == (-INF, 0)
        size, sign = ops.weighted_logsumexp(np.zeros((0, 2)), np.ones(2), 0, return_sign=True)
    np.testing.assert_array_equal(size, [-INF, -INF])
    np.testing.assert_array_equal(sign, [0, 0])


def test_infinite_exponents_give_infinity():
    assert ops.weighted_logsumexp(np.array([INF, 0.0]), np.array([0.5, 2.0])) == INF


@pytest.mark.parametrize("axis", [None, 0, (0, 1), -1])
def test_values_are_scipys_and_there_are_two_derivatives(axis):
    special = pytest.importorskip("scipy.special", reason="SciPy, to compare with, is missing")
    x, b = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
    for got, wanted in zip(
        ops.weighted_logsumexp(x, b, axis, return_sign=True),
        special.logsumexp(x, axis, b, return_sign=True),
        strict=True,
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)
    check_gradients(lambda x, b: ops.weighted_logsumexp(x, b, axis, return_sign=True)[0], x, b)


@pytest.mark.parametrize("options", [{}, {"b": 2.0}, {"keepdims": True}, {"return_sign": True}])
@pytest.mark.parametrize("axis", [None, 0, (1, 0)])
def test_logsumexp_is_called_as_scipys(axis, options):
    special = pytest.importorskip("scipy.special", reason="SciPy, to compare with, is missing")
    x, b = RNG.normal(size=(3, 4)), RNG.normal(size=4)
    for more in (options, {"b": b, "return_sign": True} | options):
        got = ops.logsumexp(x, axis, **more)
        wanted = special.logsumexp(x, axis, **more)
        assert isinstance(got, tuple) == isinstance(wanted, tuple)
        for mine, theirs in zip(np.atleast_1d(got), np.atleast_1d(wanted), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-13)
    got = ops.logsumexp(x, axis, np.abs(b), True, True)
    wanted = special.logsumexp(x, axis, np.abs(b), True, True)
    np.testing.assert_allclose(got, wanted, rtol=1e-13)


def test_logsumexp_with_weights_has_two_derivatives_and_is_traced():
    x, b = RNG.normal(size=(2, 3)), RNG.normal(size=3)
    check_gradients(lambda x, b: ops.logsumexp(x, 1, b=b, return_sign=True)[0], x, b)
    step = od.compile(lambda x, b: ops.logsumexp(x, 1, b=ops.absolute(b)))
    wanted = np.log((np.abs(b) * np.exp(x)).sum(1))
    np.testing.assert_allclose(step.lower(x, b).evaluate(x, b)[0], wanted, rtol=1e-14)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"return_sign": "yes"}, "return_sign=.yes. is not a flag"),
        ({"b": 1.0, "weights": 2.0}, "logsumexp: got an unexpected keyword argument 'weights'"),
        ({"b": np.array([1j, 1j])}, "needs real numbers"),
    ],
)
def test_logsumexp_refuses_by_name(options, match):
    with pytest.raises(DTypeError, match=match):
        ops.logsumexp(np.zeros(2), **options)


def test_a_checkpoint_of_infinite_values_warns_of_nothing():
    x = np.array([1.0, 2.0])

    def masked(v):
        return ops.max(ops.where(np.array([True, False]), v, -INF))

    with GradientTape():  # an outer one, which compares derivatives with those of before
        gradient = od.grad(lambda v: od.checkpoint(masked)(v) * 2.0)(x)
    np.testing.assert_array_equal(gradient, [2.0, 0.0])
