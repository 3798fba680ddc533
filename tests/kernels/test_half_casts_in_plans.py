"""Casts of half precision as single calls in C, for plans that are committed at once."""

import ml_dtypes
import numpy as np
import pytest

from odyssey.devices.commit import commit
from odyssey.kernels.half_casts import LEAST_SIZE, cast_call, take_assigned_call

halves = pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
PATTERNS = np.arange(1 << 16).astype(np.uint16)


@halves
def test_a_call_widens_every_pattern_as_numpy_does(dtype):
    x, out = PATTERNS.view(dtype), np.empty(1 << 16, np.float32)
    commit([cast_call(x, out)])
    np.testing.assert_array_equal(out, x.astype(np.float32))
    assert (np.signbit(out) == np.signbit(x.astype(np.float32))).all()


@halves
def test_a_call_rounds_numbers_and_ties_of_all_sizes_as_numpy_does(dtype):
    exact = PATTERNS.view(dtype).astype(np.float32)
    bits = exact.view(np.uint32)
    half_a_unit = np.uint32(0x1000 if dtype is np.float16 else 0x8000)
    with np.errstate(invalid="ignore"):
        between = exact * np.float32(1.0003)
    x = np.concatenate([exact, (bits + half_a_unit).view(np.float32), between])
    out = np.empty(len(x), dtype)
    commit([cast_call(x, out)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(dtype)
    # In float32, since NumPy finds no NaN of bfloat16.
    np.testing.assert_array_equal(out.astype(np.float32), expected.astype(np.float32))


@halves
def test_small_arrays_and_reported_underflow_are_left_to_numpy(dtype):
    half, single = np.zeros(LEAST_SIZE, dtype), np.zeros(LEAST_SIZE, np.float32)
    assert cast_call(half[1:], single[1:]) is None
    assert cast_call(single[1:], half[1:]) is None
    assert take_assigned_call(single[1:], single[1:], single[1:]) is None
    with np.errstate(under="raise"):
        assert (cast_call(single, half) is None) == (dtype is np.float16)


def test_what_is_assigned_replaces_what_differs_and_nan():
    rounded, assigned, out = (np.zeros(LEAST_SIZE, np.float32) for _ in range(3))
    rounded[:5] = [1, 1, np.nan, -0.0, np.inf]
    assigned[:5] = [1, 2, np.nan, 0.0, np.inf]
    out[:5] = [1.1, 1.1, 7, -1e-9, 70_000]
    commit([take_assigned_call(rounded, assigned, out)])
    np.testing.assert_array_equal(out[:5], np.float32([1.1, 2, np.nan, -1e-9, 70_000]))
