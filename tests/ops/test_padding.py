"""Padding by statistics, ramps and point reflections: NumPy's values, and their gradients."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DTypeError, ShapeError

X = np.random.default_rng(0).normal(size=(3, 4))
WHOLE = np.array([[3, -8, 5], [7, 0, 2]])
CASES = {
    "mean": {"stat_length": ((1, 2), (3, 9))},
    "maximum": {},
    "minimum": {"stat_length": 2},
    "median": {"stat_length": 3},
    "linear_ramp": {"end_values": ((-1, 2), (5, 0))},
    "reflect": {"reflect_type": "odd"},
    "symmetric": {"reflect_type": "odd"},
}


@pytest.mark.parametrize("widths", [0, 1, ((2, 3), (0, 9)), ((11, 4), (1, 1))], ids=str)
@pytest.mark.parametrize("mode", CASES)
def test_each_mode_is_numpys_on_numbers_and_integers(mode, widths):
    for x in (X, WHOLE, X.astype(np.float32), X[:1], WHOLE[:, :1]):
        wanted = np.pad(x, widths, mode, **CASES[mode])
        got = ops.pad(x, widths, mode, **CASES[mode])
        assert got.dtype == wanted.dtype
        bound = 1e-13 if x.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(got, wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("ends", [3, -5, 2.5, (1, 250), 300], ids=str)
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.uint64, np.float16, np.float32])
def test_a_ramp_is_numpys_also_where_differences_lie_outside_of_the_dtype(dtype, ends):
    x = np.array([0, 5, 100, 1], dtype)
    wanted = np.pad(x, (3, 9), "linear_ramp", end_values=ends)
    np.testing.assert_array_equal(ops.pad(x, (3, 9), "linear_ramp", end_values=ends), wanted)
    step = od.compile(lambda v: np.pad(v, (3, 9), "linear_ramp", end_values=ends))
    for _ in range(3):
        np.testing.assert_array_equal(step(od.Variable(x)).numpy(), wanted)


@pytest.mark.parametrize("mode", CASES)
def test_each_mode_is_differentiable(mode):
    od.testing.check_gradients(lambda v: ops.pad(v, ((2, 1), (3, 2)), mode, **CASES[mode]), X)


def test_bad_settings_of_padding_are_refused_by_name():
    with pytest.raises(ShapeError, match="at least 1"):
        ops.pad(X, 1, "mean", stat_length=((1, 0), (2, 2)))
    with pytest.raises(DTypeError, match="ints only"):
        ops.pad(X, 1, "mean", stat_length=1.5)
    with pytest.raises(ShapeError, match="does not fit 2 axes"):
        ops.pad(X, 1, "linear_ramp", end_values=(1, 2, 3))
    with pytest.raises(ShapeError, match="no elements"):
        ops.pad(X[:0], 1, "maximum")
    np.testing.assert_array_equal(ops.pad(X[:, :0], ((1, 1), (0, 0)), "mean").shape, (5, 0))
