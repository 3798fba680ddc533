"""The normal distribution and the error function without its fall, in many digits."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from support.exact import assert_exact

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath

import support.mp_reference as reference

RNG = np.random.default_rng(0)
INNER = RNG.uniform(-37, 9, 60)
SMALL = np.concatenate([s * 10 ** RNG.uniform(-30, 0, 20) for s in (1, -1)])
CHANCES = np.concatenate([RNG.uniform(0, 1, 30), 10 ** RNG.uniform(-30, 0, 15)])
FAR = -(10 ** RNG.uniform(1, 15, 15))
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.mark.slow
@pytest.mark.share(2, rest="slow")
@every_dtype
def test_values_err_by_a_few_units_in_the_last_place(dtype):
    grown = [*RNG.uniform(-26, 30, 60), *SMALL, *-FAR]
    assert_exact(ops.erfcx, reference.scaled_erfc, grown, dtype, ulps=5)
    chance = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
    assert_exact(ops.ndtr, chance, [*INNER, *SMALL], dtype, ulps=5)
    assert_exact(ops.log_ndtr, reference.log_ndtr, [*INNER, *SMALL, *FAR], dtype, ulps=5)
    assert_exact(ops.inverse_mills_ratio, reference.mills, [*INNER, *SMALL, *FAR], dtype, ulps=5)


@pytest.mark.share(2, rest="slow")
@every_dtype
def test_what_belongs_to_a_chance_errs_by_a_few_units_in_the_last_place(dtype):
    assert_exact(ops.ndtri, reference.ndtri, [*CHANCES, *(1 - CHANCES)], dtype, ulps=5)
    assert_exact(ops.erfcinv, reference.erfcinv, [*2 * CHANCES, *(2 - CHANCES)], dtype, ulps=5)
    assert_exact(ops.erfinv, reference.erfinv, [*2 * CHANCES - 1, *SMALL], dtype, ulps=5)


@pytest.mark.parametrize(("order", "ulps"), [(1, 8), (2, 40), (3, 40), (5, 80), (10, 800)])
def test_integrals_of_erfc_err_by_more_the_higher_their_order(order, ulps):
    x = [*RNG.uniform(-5, 9, 60), *SMALL[:20], *-FAR[:10]]
    wanted = lambda x: reference.scaled_erfc(x, order)  # noqa: E731
    assert_exact(lambda x: ops.scaled_erfc_integral(x, order=order), wanted, x, "float64", ulps)


def test_far_in_the_tail_two_derivatives_of_log_ndtr_are_those_of_a_parabola():
    x = Variable(np.array([-1e3, -1e8, -1e200]), requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            y = ops.log_ndtr(x)
        slope = inner.gradient(y, x, np.ones(3))
    np.testing.assert_allclose(slope.numpy() / -x.numpy(), [1 + 1e-6 - 2e-12, 1, 1], rtol=1e-15)
    bend = outer.gradient(slope, x, np.ones(3))
    np.testing.assert_allclose(bend, [-1 + 1e-6 - 6e-12, -1, -1], rtol=1e-15)
