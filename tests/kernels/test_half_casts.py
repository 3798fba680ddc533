"""Casts between half precision and float32: the bits that NumPy and ml_dtypes give."""

import ml_dtypes
import numpy as np
import pytest

from odyssey.kernels import half_casts
from odyssey.kernels.half_casts import narrow, widen

HALVES = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
EVERY_HALF = np.arange(1 << 16, dtype=np.uint16)

each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
each_way = pytest.mark.parametrize("instructions", [True, False], ids=["instructions", "integers"])


@pytest.fixture
def as_processor(monkeypatch):
    """Let float16 be converted by instructions, or on integers as on other processors."""

    def choose(instructions):
        if instructions and not half_casts._has_instructions():
            pytest.skip("this processor has no instructions for float16")
        monkeypatch.setattr(half_casts, "_has_instructions", lambda: instructions)

    return choose


def floats():
    """A million float32: random bits, and the neighbours of all multiples of 2**12 among them."""
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint64).astype(np.uint32)
    ties = np.arange(1 << 18, dtype=np.uint32) << np.uint32(14)  # NaN and subnormals are there too
    near = [ties + np.uint32(k) for k in (1 << 12, (1 << 12) + 1, (1 << 12) - 1)]
    return np.concatenate([drawn, *near]).view(np.float32)


def assert_same_bits(found, wanted):
    """Equal bits; of NaN of float16 it is enough that it is one of its sign."""
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
    bits = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(bits)[~nan], wanted.view(bits)[~nan])


@each_way
@each_half
def test_every_half_is_widened_exactly(as_processor, dtype, instructions):
    as_processor(instructions)
    halves = EVERY_HALF.view(dtype)
    with np.errstate(invalid="ignore"):
        assert_same_bits(widen(halves), halves.astype(np.float32))


@each_way
@each_half
def test_float32_is_rounded_as_numpy_and_ml_dtypes_round_it(as_processor, dtype, instructions):
    as_processor(instructions)
    x = floats()
    with np.errstate(all="ignore"):
        found = narrow(x, dtype)
        wanted = x.astype(dtype)
    assert found.dtype == dtype
    assert_same_bits(found, wanted)


def test_every_bit_of_bfloat16_is_that_of_ml_dtypes_payloads_of_nan_too():
    dtype = np.dtype(ml_dtypes.bfloat16)
    halves, x = EVERY_HALF.view(dtype), floats()
    with np.errstate(invalid="ignore"):
        wide, wanted = widen(halves), halves.astype(np.float32)
        found, rounded = narrow(x, dtype), x.astype(dtype)
    np.testing.assert_array_equal(wide.view(np.uint32), wanted.view(np.uint32))
    np.testing.assert_array_equal(found.view(np.uint16), rounded.view(np.uint16))


@each_half
def test_an_array_keeps_its_order_and_small_or_strided_ones_are_cast_as_well(dtype):
    x = np.random.default_rng(1).normal(size=(200, 300)).astype(np.float32)
    for array in (x, x.T, x[::2, ::3], x[:3], np.float32(0.1), x[:0]):
        half = narrow(array, dtype)
        np.testing.assert_array_equal(half, array.astype(dtype))
        np.testing.assert_array_equal(widen(half), array.astype(dtype).astype(np.float32))
    assert narrow(x.T, dtype).flags.f_contiguous


@each_way
def test_an_overflow_is_reported_as_numpy_reports_it(as_processor, instructions):
    as_processor(instructions)
    x = np.ones(1 << 14, np.float32)
    x[7] = 65519.0  # the largest that is rounded down
    with np.errstate(all="raise", under="ignore"):
        assert narrow(x, HALVES[0])[7] == 65504.0
        x[7] = np.inf
        assert narrow(x, HALVES[0])[7] == np.inf
        x[7] = 65520.0
        with pytest.raises(FloatingPointError, match="overflow encountered in cast"):
            narrow(x, HALVES[0])
        narrow(x, HALVES[1])


def test_an_underflow_is_reported_where_numpy_is_asked_to():
    x = np.full(1 << 14, 1e-6, np.float32)
    narrow(x, HALVES[0])
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underflow"):
        narrow(x, HALVES[0])
