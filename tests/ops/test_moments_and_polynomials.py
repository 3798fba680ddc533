"""Means with weights, covariances, polynomials: derivatives by formulas, at corners too."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5))


def gradients(call, *arrays, cotangent=None):
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape() as tape:
        out = call(*leaves)
    c = np.ones(out.shape, out.dtype) if cotangent is None else cotangent
    return out.numpy(), tape.gradient(out, leaves, c)


# ------------------------------------------------------------------ means and spreads


def test_a_mean_moves_with_a_weight_by_how_far_its_value_is_from_it():
    a, w = np.array([1.0, 4.0, -2.0]), np.array([0.5, 1.0, 2.0])
    mean, (of_a, of_w) = gradients(lambda a, w: ops.average(a, weights=w), a, w)
    np.testing.assert_allclose(mean, (a * w).sum() / w.sum(), rtol=1e-15)
    np.testing.assert_allclose(of_a, w / w.sum(), rtol=1e-15)
    np.testing.assert_allclose(of_w, (a - mean) / w.sum(), rtol=1e-14)


def test_weights_over_two_axes_stand_in_the_order_of_the_axes():
    a, w = RNG.normal(size=(2, 3, 4)), RNG.uniform(0.5, 1.0, (4, 2))
    wanted = np.average(a, axis=(2, 0), weights=w)
    np.testing.assert_allclose(ops.average(a, (2, 0), w), wanted, rtol=1e-14)


def test_the_sum_of_the_weights_comes_in_the_shape_of_the_mean():
    mean, total = ops.average(X, 1, np.arange(5.0), returned=True)
    assert mean.shape == total.shape == (3,)
    np.testing.assert_array_equal(total, 10.0)
    with pytest.raises(OdysseyError, match=r"^average: the weights sum to 0"):
        ops.average(X, 1, np.array([1.0, -1.0, 0.0, 0.0, 0.0]))


def test_weights_that_sum_to_0_are_refused_also_where_they_are_variables_and_compiled():
    w = np.array([1.0, -1.0, 0.0])
    with pytest.raises(OdysseyError, match=r"^average: the weights sum to 0"):
        ops.average(X[0, :3], weights=Variable(w, requires_grad=True))
    compiled = od.compile(lambda x, w: ops.average(x, weights=w))
    for _ in range(3):
        np.testing.assert_allclose(compiled(X[0, :3], w + 1), ops.average(X[0, :3], weights=w + 1))
        with pytest.raises(OdysseyError, match=r"^average: the weights sum to 0"):
            compiled(X[0, :3], w)


def test_the_spread_is_shared_among_equal_largest_and_among_equal_smallest_values():
    _, (slope,) = gradients(ops.ptp, np.array([3.0, 1.0, 3.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(slope, [1 / 2, -1 / 3, 1 / 2, 0, -1 / 3, -1 / 3], rtol=1e-15)
    _, (slope,) = gradients(ops.ptp, np.full(4, 2.0))
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_the_spread_to_infinity_moves_with_its_ends(bad):
    value, (slope,) = gradients(ops.ptp, np.array([1.0, bad, 2.0]))
    assert value == np.inf
    wanted = [-1, 1, 0] if bad > 0 else [0, -1, 1]
    np.testing.assert_array_equal(slope, wanted)


# ------------------------------------------------------------------ covariances


def test_the_gradient_of_a_covariance_is_that_of_products_of_deviations():
    c = RNG.normal(size=(3, 3))
    value, (slope,) = gradients(ops.cov, X, cotangent=c)
    away = X - X.mean(1, keepdims=True)
    np.testing.assert_allclose(value, away @ away.T / 4, rtol=1e-14)
    np.testing.assert_allclose(slope, (c + c.T) @ away / 4, rtol=1e-13, atol=1e-15)


def test_a_correlation_does_not_move_with_the_sizes_nor_the_means_of_the_variables():
    value, (slope,) = (
        gradients(
            lambda scale, shift: ops.corrcoef(X * scale[:, None] + shift[:, None])[0, 1],
            np.array([1.0, 2.0, 0.5]),
            np.array([0.0, 3.0, -1.0]),
        )[0],
        gradients(lambda s: ops.corrcoef(X * s[:, None])[0, 1], np.array([1.0, 2.0, 0.5]))[1],
    )
    np.testing.assert_allclose(value, np.corrcoef(X)[0, 1], rtol=1e-14)
    np.testing.assert_allclose(slope, 0, atol=1e-15)


def test_variables_that_go_along_have_a_correlation_of_1_at_most_and_a_slope_of_0():
    line = np.linspace(0.1, 0.9, 7)
    value, (slope,) = gradients(lambda x: ops.corrcoef(x), np.stack([line, 3 * line, -line]))
    assert np.abs(value).max() == 1
    np.testing.assert_allclose(slope, 0, atol=1e-14)


def test_covariances_of_too_few_observations_are_no_numbers_as_numpys():
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Degrees of freedom"):
        wanted = np.cov(np.array([[1.0], [2.0]]))
    np.testing.assert_array_equal(ops.cov(np.array([[1.0], [2.0]])), wanted)


@pytest.mark.parametrize(
    ("name", "weights", "match"),
    [
        ("fweights", np.array([1, -2, 3, 1, 1]), "fweights.* has a number below 0"),
        ("aweights", np.array([1.0, 2.0, -1.0, 1.0, 1.0]), "aweights.* has a number below 0"),
        ("fweights", np.array([1.0, 1.5, 3.0, 1.0, 1.0]), "not all are whole|are not whole"),
        ("aweights", np.array([1, 2, 1, 1, 1j]), "pass real numbers"),
    ],
    ids=["counts", "weights", "parts of an observation", "complex"],
)
def test_weights_of_which_there_is_no_covariance_are_refused(name, weights, match):
    compiled = od.compile(lambda x, w: ops.cov(x, **{name: w}))
    for call in (compiled, compiled, compiled, lambda x, w: ops.cov(x, **{name: Variable(w)})):
        with pytest.raises(OdysseyError, match=match):
            call(X, weights)


@pytest.mark.parametrize("weights", [[1.0, np.nan, 3.0, 1.0, 1.0], [1.0, 2.0, 3.0, 1.0, 1.0]])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_weights_that_are_nan_or_leave_no_freedom_give_numpys_covariances(weights):
    w = np.array(weights)
    wanted = np.cov(X, aweights=w, ddof=5)
    assert not np.isfinite(wanted).any()
    np.testing.assert_array_equal(ops.cov(X, aweights=w, ddof=5), wanted)
    leaf = Variable(w, requires_grad=True)
    np.testing.assert_array_equal(ops.cov(X, aweights=leaf, ddof=5).numpy(), wanted)


def test_complex_covariances_conjugate_the_second_variable():
    z = X + 1j * RNG.normal(size=(3, 5))
    np.testing.assert_allclose(ops.cov(z), np.cov(z), rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(ops.corrcoef(z), np.corrcoef(z), rtol=1e-13, atol=1e-15)


# ------------------------------------------------------------------ powers


def test_a_polynomial_has_its_derivative_and_the_powers_as_those_of_its_coefficients():
    p, x = np.array([2.0, -1.0, 0.5, 3.0]), np.array([0.0, 1.0, -2.0, 10.0])
    value, (of_p, of_x) = gradients(ops.polyval, p, x)
    np.testing.assert_allclose(value, 2 * x**3 - x**2 + 0.5 * x + 3, rtol=1e-15)
    np.testing.assert_allclose(of_x, 6 * x**2 - 2 * x + 0.5, rtol=1e-15)
    np.testing.assert_allclose(of_p, [(x**k).sum() for k in (3, 2, 1, 0)], rtol=1e-15)
    bend = od.hessian(lambda x: ops.sum(ops.polyval(p, x)))(x)
    np.testing.assert_allclose(bend, np.diag(12 * x - 2), rtol=1e-14)


def test_powers_have_their_slopes_at_0_and_at_negative_numbers():
    x = np.array([0.0, -2.0])
    _, (slope,) = gradients(lambda v: ops.vander(v, 4, increasing=True)[:, :3], x)
    np.testing.assert_array_equal(slope, [1, 1 - 4])
    np.testing.assert_array_equal(
        od.hessian(lambda v: ops.sum(ops.vander(v, 4)))(x).diagonal(), [2, 2 - 12]
    )


def test_a_polynomial_shows_infinite_and_missing_numbers_as_numpys_does():
    x = np.array([np.inf, np.nan, 2.0])
    with np.errstate(invalid="ignore"):
        value, (_, of_x) = gradients(ops.polyval, np.array([1.0, 1.0]), x)
        np.testing.assert_array_equal(value, np.polyval(np.array([1.0, 1.0]), x))
    assert of_x[2] == 1


# ------------------------------------------------------------------ angles and signs


def test_unwrapped_angles_move_with_every_angle_before_them_not_at_all():
    angles = np.array([0.0, 3.0, 6.0, 9.0, 12.0])
    wrapped = (angles + math.pi) % (2 * math.pi) - math.pi
    c = RNG.normal(size=5)
    value, (slope,) = gradients(ops.unwrap, wrapped, cotangent=c)
    np.testing.assert_allclose(value, angles, rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(slope, c)


def test_whole_angles_unwrap_to_whole_ones_as_numpys():
    for values, period in (([0, 1, 2, -1, 0], 4), ([2, 3, 4, 5, 2, 3], 4), ([0, 5, 9, 2], 7)):
        got = ops.unwrap(np.array(values), period=period)
        wanted = np.unwrap(np.array(values), period=period)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


def test_the_sign_of_a_zero_is_a_sign_and_the_slope_of_its_size_is_0():
    x, y = np.array([2.0, -3.0, 0.0, -0.0]), np.array([-0.0, -1.0, -1.0, 2.0])
    value, (of_x, of_y) = gradients(ops.copysign, x, y)
    np.testing.assert_array_equal(value, [-2, -3, 0, 0])
    np.testing.assert_array_equal(np.signbit(value), [True, True, True, False])
    np.testing.assert_array_equal(of_x, [-1, 1, 0, 0])
    np.testing.assert_array_equal(of_y, 0)


def test_a_step_moves_with_its_value_at_0_there_alone_even_beside_infinite_slopes():
    x, y = np.array([-1.0, 0.0, -0.0, 2.0]), np.array([0.5, 0.25, 4.0, 3.0])
    value, (of_x, of_y) = gradients(ops.heaviside, x, y, cotangent=np.array([np.inf, 1, 2, np.inf]))
    np.testing.assert_array_equal(value, [0, 0.25, 4, 1])
    np.testing.assert_array_equal(of_x, 0)
    np.testing.assert_array_equal(of_y, [0, 1, 2, 0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex128])
@pytest.mark.parametrize("ddof", [0, -1])
@pytest.mark.parametrize("name", ["std", "var", "nanstd", "nanvar"])
def test_moments_of_one_element_have_derivatives_of_0_to_second_order(name, ddof, dtype):
    x = Variable(np.array([[2.0], [-3.0]], dtype), requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            out = ops.sum(getattr(ops, name)(x, axis=1, ddof=ddof))
        slope = inner.gradient(out, x)
    assert slope.numpy().tolist() == [[0], [0]]
    assert outer.gradient(slope, x, np.ones((2, 1), dtype)).tolist() == [[0], [0]]
    assert outer.jvp(slope, x, np.ones((2, 1), dtype)).tolist() == [[0], [0]]
