"""Running extremes at ties and NaN; running sums of exponentials far from each other."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError

mpmath = pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("x", "indices"),
    [
        ([1.0, 3.0, 3.0, 2.0], [0, 1, 2, 2]),
        ([2.0, 1.0, 2.0, 2.0], [0, 0, 2, 3]),
        ([1.0, NAN, 5.0, NAN, 2.0], [0, 1, 1, 3, 3]),
        ([-INF, -INF, INF, INF], [0, 1, 2, 3]),
        ([-0.0, 0.0, -0.0], [0, 1, 2]),
    ],
)
def test_of_equal_extremes_the_latest_counts_and_has_the_gradient(x, indices):
    for call, sign in ((ops.cummax, 1.0), (ops.cummin, -1.0)):
        leaf = Variable(sign * np.array(x), requires_grad=True)
        with GradientTape() as tape:
            values, places = call(leaf)
        np.testing.assert_array_equal(places, indices)
        np.testing.assert_array_equal(values.numpy(), sign * np.array(x)[indices])
        weights = np.arange(1.0, len(x) + 1)
        wanted = np.bincount(indices, weights, len(x))
        np.testing.assert_array_equal(tape.gradient(values, leaf, weights), wanted)


def test_complex_numbers_have_no_running_extremes():
    with pytest.raises(DTypeError, match="no order"):
        ops.cummax(np.array([1j]))


FAR = [
    [800.0, -800.0, 0.0, 799.5],
    [-1e300, 1e300, -1e300, -1e300],
    [0.0, 0.0, 0.0, 0.0],
    [-745.0, -710.0, 1e-300, 1e-3],
]


@pytest.mark.parametrize("x", FAR, ids=str)
def test_running_sums_of_exponentials_have_values_and_slopes_of_many_digits(x):
    weights = np.array([1.5, -0.75, 0.5, 2.0])
    with mpmath.workdps(700):
        big = [mpmath.mpf(v) for v in x]
        tops = [max(big[: k + 1]) for k in range(4)]
        scaled = [[mpmath.exp(v - tops[k]) for v in big[: k + 1]] for k in range(4)]
        sums = [mpmath.fsum(row) for row in scaled]
        values = [float(mpmath.log(s) + top) for s, top in zip(sums, tops, strict=True)]
        slopes = [
            float(mpmath.fsum(weights[k] * scaled[k][j] / sums[k] for k in range(j, 4)))
            for j in range(4)
        ]
    leaf = Variable(np.array(x), requires_grad=True)
    with GradientTape(persistent=True) as tape:
        out = ops.logcumsumexp(leaf)
    np.testing.assert_allclose(out.numpy(), values, rtol=1e-15)
    np.testing.assert_allclose(tape.gradient(out, leaf, weights), slopes, rtol=1e-13, atol=1e-300)
    moved = tape.jvp(out, leaf, np.ones(4))
    np.testing.assert_allclose(moved, np.ones(4), rtol=1e-14)


def test_where_all_so_far_are_minus_infinity_the_slope_is_0():
    leaf = Variable(np.array([-INF, -INF, 1.0, -INF]), requires_grad=True)
    with GradientTape() as tape:
        out = ops.logcumsumexp(leaf)
    np.testing.assert_array_equal(out.numpy(), [-INF, -INF, 1, 1])
    np.testing.assert_array_equal(tape.gradient(out, leaf, np.ones(4)), [0, 0, 2, 0])
