"""Whole numbers in compiled functions: cast and rounded to what NumPy gives, bit by bit."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")


WHOLE = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = (*WHOLE, "bool", "float16", "float32", "float64")
# Around the ends of every dtype, and beyond what float64 holds.
NUMBERS = [0, 1, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62 + 5]
NUMBERS += [2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
NUMBERS += [-n for n in NUMBERS]


def numbers(dtype):
    limits = np.iinfo(dtype)
    return np.array([n for n in NUMBERS if limits.min <= n <= limits.max], dtype)


def agree(fn, *args):
    compiled = od.compile(fn)
    with np.errstate(all="ignore"):
        wanted = fn(*args)
        for _ in range(2):
            got = compiled(*args)
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)
    return compiled


@pytest.mark.parametrize("given", WHOLE)
def test_whole_numbers_are_cast_to_any_dtype_without_a_float_between(given):
    x = numbers(given)
    for dtype in DTYPES:
        agree(lambda x, dtype=dtype: x.astype(dtype), x)
        agree(lambda x, dtype=dtype: ops.astype(x, dtype), x[-1])


def test_casts_between_signed_and_unsigned_numbers_wrap_round_in_programs():
    x = np.array([2**63 - 1, -(2**63), 2**53 + 1, -1])
    wanted = np.array([2**63 - 1, 2**63, 2**53 + 1, 2**64 - 1], np.uint64)
    compiled = agree(lambda x: ops.astype(x, np.uint64), x)
    np.testing.assert_array_equal(compiled(x), wanted)
    back = agree(lambda x: ops.astype(x, np.int64), wanted)
    np.testing.assert_array_equal(back(wanted), x)


def test_numbers_that_are_written_into_others_of_the_other_sign_keep_their_bits():
    x = numbers("uint64")

    def fn(x):
        made = np.zeros(x.shape, np.int64)
        return ops.setitem(made, ops.astype(x, np.int64), slice(None))

    agree(fn, x)


@pytest.mark.parametrize("decimals", [0, 1, -1, -2, -3, -5, -19, -20, 45, -45, 310, -310])
@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_are_rounded_to_tens_as_numpy_rounds_them(dtype, decimals):
    limits = np.iinfo(dtype)
    near = [5, 14, 15, 16, 25, 35, 45, 50, 105, 115, 149, 150, 151, 250]
    near += [-n for n in near]
    x = np.array([n for n in near if limits.min <= n <= limits.max], dtype)
    x = np.concatenate([x, numbers(dtype)])
    # What is rounded beyond the dtype is undefined: NumPy warns, and its loops differ.
    with np.errstate(all="ignore"):
        power = np.float64(10.0) ** -decimals
        made = np.rint(x / power) * power
    x = x[(made >= limits.min) & (made < 2.0 ** (limits.max.bit_length()))] if decimals < 0 else x
    agree(lambda x: np.round(x, decimals), x)
    agree(lambda x: ops.round(x, decimals), x)
    if x.size:
        agree(lambda x: np.around(x, decimals), x[0])


@pytest.mark.parametrize("decimals", [0, 1, 2, 3, 5, 20, -1, -2, -5, -20, 310, -310])
def test_half_precision_is_rounded_to_digits_as_numpy_rounds_it(decimals):
    x = [15, 25, 0.15, 0.25, 1.05, 1.005, 0.1234, 1000.5, 2049, 65504, 6e-8, 0.0, 0.5, np.inf]
    x = np.array([*x, *(-n for n in x), np.nan], np.float16)
    agree(lambda x: np.round(x, decimals), x)
    agree(lambda x: np.signbit(np.round(x, decimals)), x[:-1])
    agree(lambda x: ops.round(x, decimals), x[4])
