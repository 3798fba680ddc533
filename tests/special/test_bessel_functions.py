"""Bessel functions, moments of exponentials, sums of powers and entropies, in many digits."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import NotDifferentiableError
from odyssey.testing import check_gradients
from support.exact import assert_exact

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath

import support.mp_reference as reference

INF, NAN = math.inf, math.nan
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.uniform(-40, 40, 100), 10 ** RNG.uniform(-30, 2.8, 60)])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@every_dtype
@pytest.mark.parametrize("n", [0, 1])
def test_bessel_functions_err_by_a_few_units_in_the_last_place(n, dtype):
    plain, scaled = (ops.i0, ops.i0e) if n == 0 else (ops.i1, ops.i1e)
    assert_exact(plain, lambda x: mpmath.besseli(n, x), X, dtype, ulps=4)
    fallen = lambda x: mpmath.besseli(n, x) * mpmath.exp(-abs(x))  # noqa: E731
    assert_exact(scaled, fallen, X, dtype, ulps=4)


@pytest.mark.parametrize(("n", "ulps"), [(2, 6), (5, 8), (10, 40)])
def test_their_quotients_err_by_more_the_higher_their_order(n, ulps):
    wanted = lambda x: reference.bessel(x, n)  # noqa: E731
    assert_exact(lambda x: ops.bessel_quotient(x, order=n), wanted, X, "float64", ulps)


@every_dtype
@pytest.mark.parametrize("n", [0, 1, 5, 20])
def test_moments_of_exponentials_err_by_a_few_units_in_the_last_place(n, dtype):
    ours = (lambda x: ops.exponential_moment(x, order=n)) if n else ops.exprel
    assert_exact(ours, lambda x: reference.moment(x, n), X, dtype, ulps=8)


def test_the_quotient_is_finite_where_its_exponential_is_not():
    got = float(ops.exprel(712.0))
    np.testing.assert_allclose(got, float(mpmath.expm1(712) / 712), rtol=1e-15)
    assert ops.exprel(717.0) == INF


@pytest.mark.parametrize("q", [1e-3, 0.3, 1.0, 2.5, 17.0])
def test_zeta_errs_by_a_few_units_in_the_last_place(q):
    x = [*RNG.uniform(1, 60, 60), *(1 + 10 ** RNG.uniform(-15, -1, 20))]
    assert_exact(lambda x: ops.zeta(x, q), lambda x: mpmath.zeta(x, q), x, "float64", ulps=6)


def test_zeta_at_the_ends_of_its_domain():
    x = [1.0, 0.5, 2.0, 2.0, INF, INF, INF, 2.0, 1e300, NAN]
    q = [2.0, 2.0, 0.0, -0.5, 0.5, 1.0, 2.0, INF, 3.0, 1.0]
    wanted = [INF, NAN, INF, NAN, INF, 1.0, 0.0, 0.0, 0.0, NAN]
    np.testing.assert_array_equal(ops.zeta(x, q), wanted)


def test_zeta_has_two_derivatives_in_its_second_operand_and_none_in_its_first():
    q = RNG.uniform(0.5, 5, 6)
    check_gradients(lambda q: ops.zeta(2.5, q), q)
    x = Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        y = ops.zeta(x, 2.0)
    with pytest.raises(NotDifferentiableError, match="zeta"):
        tape.gradient(y, x)


@every_dtype
def test_divergences_err_by_a_few_units_in_the_last_place_close_to_0_too(dtype):
    y = np.float32(0.7)
    apart = 1 + np.concatenate([s * 10 ** RNG.uniform(-6, 0, 60) for s in (0.99, -0.99)])
    x = [*(float(y) * apart), *10 ** RNG.uniform(-30, 30, 60)]

    def wanted(x):
        return x * mpmath.log(x / float(y)) - x + float(y)

    assert_exact(lambda x: ops.kl_div(x, y.astype(x.dtype)), wanted, x, dtype, ulps=8)


def test_divergences_are_infinite_outside_and_nan_of_nan():
    x = [0.0, 0.0, -0.5, 0.5, 0.5, NAN, 1.0, 1e-300, INF]
    y = [0.0, 2.0, 1.0, 0.0, -1.0, 1.0, NAN, 1e300, 1.0]
    wanted = [0.0, 0.0, INF, INF, INF, NAN, NAN, -1e-300 * math.log(1e300) * 2, INF]
    np.testing.assert_allclose(ops.rel_entr(x, y), wanted, rtol=1e-15)
    wanted = [0.0, 2.0, INF, INF, INF, NAN, NAN, 1e300]
    np.testing.assert_allclose(ops.kl_div(x[:-1], y[:-1]), wanted, rtol=1e-15)
    most, least = 1.7e308, 5e-324
    np.testing.assert_array_equal(ops.kl_div([most, least], [most, least]), 0)


def test_a_number_of_python_keeps_the_precision_of_the_other_operand():
    two, log = np.array([2.0]), math.log(2)
    assert ops.xlogy(1.0, 2.0) == log
    assert ops.xlogy(np.ones(1), 2) == log
    assert ops.xlogy(1, two) == log
    assert ops.xlogy(np.ones(1, np.float32), 2.0) == np.float32(log)
    assert ops.xlogy(1, np.array([2 + 0j])) == log


@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e"])
def test_bessel_functions_of_scipy_have_their_two_derivatives(name):
    pytest.importorskip("scipy.special", reason="SciPy, which computes them, is missing")
    check_gradients(getattr(ops, name), np.array([0.4, 1.0, 2.5, 7.0, 30.0]))


def test_bessel_functions_of_scipy_at_0():
    pytest.importorskip("scipy.special", reason="SciPy, which computes them, is missing")
    zero = Variable(np.zeros(1), requires_grad=True)
    for function, value, slope in ((ops.j0, 1, 0), (ops.j1, 0, 0.5), (ops.k0, INF, -INF)):
        with GradientTape() as tape:
            y = function(zero)
        assert y.numpy() == value
        with np.errstate(all="ignore"):
            assert tape.gradient(y, zero, np.ones(1)) == slope


NEAR_0 = (0.0, 1e-300, -1e-160, 1e-20, -1e-9, 1e-7, 1e-3, -0.5, 1.0, 1.01, 3.0, -20.0)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("n", [0, 1])
def test_derivatives_of_j0_and_j1_are_exact_near_0(n, order):
    pytest.importorskip("scipy.special", reason="SciPy, which computes them, is missing")
    f = (ops.j0, ops.j1)[n]
    for _ in range(order):
        f = od.grad(f)
    with mpmath.workdps(60):
        for x in NEAR_0:
            # At 0 from the even or odd power series.
            at_0 = {(0, 0): 1, (0, 2): -0.5, (0, 4): 0.375, (1, 1): 0.5, (1, 3): -0.375}
            wanted = mpmath.besselj(n, mpmath.mpf(x), derivative=order) if x else 0
            wanted = float(wanted) if x else at_0.get((n, order), 0)
            tolerance = {"rtol": 2e-15, "atol": 0 if abs(x) < 0.1 else 2e-15}
            np.testing.assert_allclose(f(np.float64(x)), wanted, **tolerance)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 10])
def test_quotients_of_bessel_functions_and_powers_are_exact(n):
    pytest.importorskip("scipy.special", reason="SciPy, which computes them, is missing")
    x = np.array([1e-300, 0.3, -1.0, 1.01, 2.0, -30.0])
    with mpmath.workdps(40):
        wanted = [float(mpmath.besselj(n, v) / mpmath.mpf(v) ** n) for v in x]
    np.testing.assert_allclose(ops.bessel_j_quotient(x, order=n), wanted, rtol=2e-14)
    halves = ops.bessel_j_quotient(np.array([-128, 1], np.int8), order=n)
    expected = ops.bessel_j_quotient(np.array([-128.0, 1.0]), order=n)
    np.testing.assert_allclose(halves, expected, rtol=1e-3, atol=1e-7)
