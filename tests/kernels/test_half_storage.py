"""Storage of float32 numbers in 16 bits."""

import ml_dtypes
import numpy as np
import pytest

from odyssey.kernels import half_storage
from odyssey.kernels.half_storage import round_to_halves, widen_halves

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
BOTH_DTYPES = pytest.mark.parametrize("name", ["bfloat16", "float16"])
BOTH_WAYS = pytest.mark.parametrize("with_loops", [True, False], ids=["loop", "numpy"])


def _numbers_of_all_sizes(name):
    """Random bits of float32 that stay finite, and exact ties between neighbours."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << 32, 1 << 17, dtype=np.uint64).astype(np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    ties = np.concatenate([ties, (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)])
    tiny = np.array([1, 0x80000001, 0x7FFF], np.uint32)
    numbers = np.concatenate([bits, ties, tiny]).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        finite = np.isfinite(numbers) & np.isfinite(numbers.astype(DTYPES[name]).astype("f4"))
    return numbers[finite]


@BOTH_WAYS
@BOTH_DTYPES
def test_rounding_equals_that_of_the_dtype_but_for_what_would_become_zero(name, with_loops):
    numbers = _numbers_of_all_sizes(name)
    with np.errstate(under="ignore"):
        expected = numbers.astype(DTYPES[name]).view(np.uint16)
    found = round_to_halves(numbers, name, with_loops)
    vanishes = (expected & 0x7FFF == 0) & (numbers != 0)
    assert vanishes.any()
    expected = np.where(vanishes, expected | 1, expected)
    np.testing.assert_array_equal(found, expected)


@BOTH_WAYS
@BOTH_DTYPES
def test_all_finite_patterns_come_back_as_the_numbers_that_they_mean(name, with_loops):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    meant = patterns.view(DTYPES[name]).astype(np.float32)
    finite = np.isfinite(meant)
    wide = widen_halves(patterns, name, with_loops)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide[finite].view("u4"), meant[finite].view("u4"))
    # And are stored as they were.
    np.testing.assert_array_equal(round_to_halves(wide[finite], name), patterns[finite])


@BOTH_WAYS
def test_nan_stays_nan_and_infinity_infinity_in_bfloat16(with_loops):
    bits = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000], np.uint32)
    numbers = np.concatenate([bits.view(np.float32), np.ones(1 << 14, np.float32)])
    wide = widen_halves(round_to_halves(numbers, "bfloat16", with_loops), "bfloat16")
    assert np.isnan(wide[:3]).all()
    np.testing.assert_array_equal(np.signbit(wide[:3]), [False, True, False])
    np.testing.assert_array_equal(wide[3:], numbers[3:])


@BOTH_WAYS
@pytest.mark.parametrize(
    ("name", "largest", "next_larger"),
    [
        ("bfloat16", 0x7F7F7FFF, 0x7F7F8000),
        ("float16", 0x477FEFFF, 0x477FF000),  # 65519.996, 65520
    ],
)
def test_an_array_with_a_number_that_would_become_infinite_is_refused(
    name, largest, next_larger, with_loops
):
    numbers = np.ones(1 << 14, np.float32)
    numbers.view(np.uint32)[77] = largest
    assert round_to_halves(numbers, name, with_loops) is not None
    numbers.view(np.uint32)[77] = next_larger
    assert round_to_halves(numbers, name, with_loops) is None
    assert round_to_halves(-numbers, name, with_loops) is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_float16_refuses_what_is_not_finite(value):
    assert round_to_halves(np.float32([1, value]), "float16") is None


@BOTH_DTYPES
def test_without_numba_numpy_rounds(name, monkeypatch):
    numbers = np.linspace(-3, 3, 1 << 15, dtype=np.float32)
    expected = round_to_halves(numbers, name)
    monkeypatch.setattr(half_storage, "has_numba", lambda: False)
    for loop in ("_round_to_bfloat16", "_round_to_float16", "_widen_bits"):
        monkeypatch.delattr(half_storage, loop)
    found = round_to_halves(numbers, name)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        widen_halves(found, name), found.view(DTYPES[name]).astype(np.float32)
    )


@BOTH_DTYPES
def test_an_empty_array_is_stored(name):
    empty = np.zeros(0, np.float32)
    assert widen_halves(round_to_halves(empty, name), name).shape == (0,)
