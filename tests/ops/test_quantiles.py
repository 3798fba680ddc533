"""Medians and quantiles at ties, at NaN, under each method, and of what they do not choose."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError
from odyssey.ops.reductions.quantiles import METHODS

NAN, INF = np.nan, np.inf


def gradient(call, x, grad=None):
    leaf = Variable(np.asarray(x), requires_grad=True)
    with GradientTape() as tape:
        out = call(leaf)
    return tape.gradient(out, leaf, grad)


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        ([3.0, 1.0, 2.0], [0, 0, 1]),
        ([4.0, 1.0, 3.0, 2.0], [0, 0, 0.5, 0.5]),
        ([2.0, 2.0, 1.0, 5.0, 2.0], [1 / 3, 1 / 3, 0, 0, 1 / 3]),
        ([1.0, 2.0, 2.0, 2.0, 3.0, 4.0], [0, 1 / 3, 1 / 3, 1 / 3, 0, 0]),
        ([1.0, 1.0, 2.0, 2.0], [0.25] * 4),
        ([1.0, NAN, 2.0], [0, 1, 0]),
        ([NAN, 1.0, NAN, 2.0], [0.5, 0, 0.5, 0]),
        ([-INF, 0.0, INF], [0, 1, 0]),
    ],
)
def test_equal_elements_share_the_gradient_of_a_median_and_a_nan_takes_it(x, wanted):
    np.testing.assert_allclose(gradient(ops.median, x), wanted, rtol=1e-15)
    leaf = Variable(np.asarray(x), requires_grad=True)
    with GradientTape() as tape:
        out = ops.median(leaf)
    direction = np.arange(1.0, len(x) + 1)
    np.testing.assert_allclose(tape.jvp(out, leaf, direction), direction @ wanted, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_under_each_method_a_quantile_is_numpys_and_its_gradient_the_weights(method, n):
    rng = np.random.default_rng(n)
    x = rng.permutation(np.arange(n, dtype=float) ** 2)
    for q in (0.0, 0.13, 0.25, 0.5, 0.62, 0.9, 1.0):
        call = lambda v, q=q: ops.quantile(v, q, method=method)  # noqa: E731
        assert call(x) == np.quantile(x, q, method=method)
        # It is linear in the elements while their order stays: its weights give it back.
        weights = gradient(call, x)
        np.testing.assert_allclose(weights @ x, call(x), rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-14)
        assert np.count_nonzero(weights) <= 2


@pytest.mark.parametrize(
    ("x", "q", "wanted"),
    [
        ([1.0, 2.0, INF], 0.5, 2.0),
        ([-INF, 1.0, 2.0], 0.0, -INF),
        ([1.0, INF, INF], 1.0, INF),
        ([-INF, 0.0, INF], 0.25, -INF),
        ([INF, 1.0, NAN], 0.0, NAN),
    ],
)
def test_a_quantile_of_infinite_elements_is_the_element_where_it_is_one(x, q, wanted):
    for call in (lambda v: ops.quantile(v, q, -1), lambda v: ops.percentile(v, 100 * q, -1)):
        np.testing.assert_array_equal(call(np.array(x)), wanted)
        np.testing.assert_array_equal(call(np.array([x, [1.0, 1.0, 1.0]])), [wanted, 1.0])


def test_what_a_median_does_not_choose_is_not_poisoned():
    for call in (ops.median, lambda v: ops.quantile(v, 0.5), lambda v: ops.percentile(v, 50)):
        with np.errstate(invalid="ignore"):
            slopes = gradient(lambda v, call=call: call(ops.sqrt(v)), [0.0, 4.0, 9.0])
        np.testing.assert_array_equal(slopes, [0, 0.25, 0])


def test_percentiles_are_quantiles_in_percent():
    x = np.random.default_rng(0).normal(size=(4, 5))
    for q in (0, 30, [10.0, 99.0]):
        np.testing.assert_array_equal(ops.percentile(x, q, axis=0), np.percentile(x, q, axis=0))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_several_quantiles_of_single_precision_are_single_where_numpys_are_double(dtype):
    x = np.array([1.0, 2.0, 4.0], dtype)
    out = ops.quantile(x, [0.25, 0.75])
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, [1.5, 3])


def test_truth_values_and_small_integers_have_medians_in_double_precision():
    for x in (np.array([True, False, True, False]), np.array([1, 0, 0, 1], np.int8)):
        for out in (ops.median(x), ops.quantile(x, 0.5)):
            assert out.dtype == np.float64
            assert out == 0.5


def test_a_quantile_of_integers_that_is_one_of_them_is_an_integer():
    x = np.array([4, 1, 3, 9])
    for method in METHODS:
        got, wanted = ops.quantile(x, 0.4, method=method), np.quantile(x, 0.4, method=method)
        assert (got, np.asarray(got).dtype) == (wanted, wanted.dtype)


def test_which_quantile_is_asked_for_is_static():
    q = Variable(0.5, requires_grad=True)
    with GradientTape(), pytest.raises(DTypeError, match="it is static"):
        ops.quantile(np.arange(3.0), q)
    with pytest.raises(DTypeError, match="complex"):
        ops.median(np.array([1j, 2.0]))
