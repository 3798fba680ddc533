"""A scalar run by NumPy gives what the same steps give on whole arrays, in any layout and dtype."""

import math

import numpy as np
import pytest

from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays


def bent(x, y):
    return select(x > y, math.exp(-abs(x)) * y, T(2) - x / y)


def by_hand(x, y):
    with np.errstate(all="ignore"):
        return np.where(x > y, np.exp(-np.abs(x)) * y, 2 - x / y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_what_numpy_gives_beyond_the_size_of_a_block(dtype):
    x, y = np.random.default_rng(0).normal(size=(2, 20_000)).astype(dtype)
    out = on_arrays(bent, x, y)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, by_hand(x, y))


def test_operands_broadcast_and_keep_their_values_in_any_layout():
    x = np.asfortranarray(np.random.default_rng(0).normal(size=(4, 6)))[::-1, ::2]
    y = np.array([[0.5], [1.0], [-2.0], [0.0]])
    before = x.copy(), y.copy()
    np.testing.assert_array_equal(on_arrays(bent, x, y), by_hand(x, y))
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize(
    ("x", "y", "dtype"),
    [
        (np.float16(0.5), 1.0, "float16"),
        (np.arange(3), 2, "float64"),
        (np.ones(2, np.int8), 2.0, "float16"),
        (np.ones(2, np.float32), 2.0, "float32"),
        (0.5, 1, "float64"),
        (np.ones((0, 2)), np.ones(2, np.float32), "float64"),
    ],
)
def test_the_dtype_is_that_of_numpys_own_functions(x, y, dtype):
    out = on_arrays(bent, x, y)
    assert out.dtype == dtype
    assert out.shape == np.broadcast_shapes(np.shape(x), np.shape(y))


def test_truths_are_joined_and_turned_round():
    within = lambda x: select(((x > T(0)) & (x < T(2))) | ~(x > T(-5)), T(1), T(0))  # noqa: E731
    np.testing.assert_array_equal(on_arrays(within, np.array([1.0, 3.0, -6.0])), [1, 0, 1])


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match="needs real numbers"):
        on_arrays(bent, 1j, 2.0)


def test_options_that_are_equal_but_not_the_same_have_programs_of_their_own():
    signed = lambda x, sign: math.copysign(x, T(sign))  # noqa: E731
    assert on_arrays(signed, np.ones(1), options=(0.0,)) == 1
    assert on_arrays(signed, np.ones(1), options=(-0.0,)) == -1


def test_a_number_that_does_not_vary_is_a_scalar_all_the_same():
    out = on_arrays(lambda x: T(3) * T(0.5) + T(0) * x, np.ones(3))
    np.testing.assert_array_equal(out, 1.5)
