"""Words of bfloat16: casts, arithmetic and comparisons against ml_dtypes, bit by bit."""

import operator

import ml_dtypes
import numpy as np
import pytest

from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.types import LLVM, MEMORY, common_type, dtype_of_code, type_code
from odyssey.errors import DTypeError

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")
native = pytest.importorskip("support.native").native

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WHOLE = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


def singles(count, seed=0):
    """Float32 of any bits: subnormals, infinities and payloads of NaN, and ties of bfloat16."""
    rng = np.random.default_rng(seed)
    some = rng.integers(0, 1 << 32, count // 2, np.uint64).astype(np.uint32)
    upper = rng.integers(0, 1 << 16, count // 4, np.uint64).astype(np.uint32) << 16
    lower = rng.choice([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], count // 4).astype(np.uint32)
    nans = rng.integers(1, 1 << 23, count // 16, np.uint64).astype(np.uint32) | 0x7F800000
    subnormals = rng.integers(0, 1 << 23, count // 16, np.uint64).astype(np.uint32)
    rare = np.concatenate([nans, nans | 1 << 31, subnormals, subnormals | 1 << 31])
    special = np.array([0, 1 << 31, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000], np.uint32)
    return np.concatenate([some, upper | lower, rare, special]).view(np.float32)


def test_every_pattern_of_bfloat16_is_widened_as_in_ml_dtypes_and_comes_back():
    x = PATTERNS.view(BFLOAT16)
    wide = native(lambda v: v, [BFLOAT16], np.float32)(x)
    np.testing.assert_array_equal(bits(wide), bits(x.astype(np.float32)))
    back = native(lambda v: v, [np.float32], BFLOAT16)(wide)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(back), bits(x.astype(np.float32).astype(BFLOAT16)))


def test_moving_every_pattern_keeps_its_bits():
    x = PATTERNS.view(BFLOAT16)
    np.testing.assert_array_equal(bits(native(lambda v: v, [BFLOAT16], BFLOAT16)(x)), PATTERNS)


def test_float32_of_any_bits_is_rounded_as_in_ml_dtypes():
    x = singles(1_100_000)
    assert x.size > 1_000_000
    got = native(lambda v: v, [np.float32], BFLOAT16)(x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(bits(got), bits(x.astype(BFLOAT16)))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, bool, *WHOLE], ids=str)
def test_numbers_of_other_types_are_cast_as_in_ml_dtypes(dtype):
    rng, dtype = np.random.default_rng(3), np.dtype(dtype)
    if dtype.kind == "f":
        x = rng.integers(0, 256, 20_000 * dtype.itemsize, np.uint8).view(dtype)
        with np.errstate(all="ignore"):
            near = np.nextafter(singles(20_000, 1).astype(np.float64), np.inf)
            x = np.concatenate([x, near.astype(dtype)])
    elif dtype.kind == "b":
        x = np.array([False, True])
    else:
        x = rng.integers(0, 256, 20_000 * dtype.itemsize, np.uint8).view(dtype)
    with np.errstate(all="ignore"):
        wanted = x.astype(BFLOAT16)
    np.testing.assert_array_equal(bits(native(lambda v: v, [dtype], BFLOAT16)(x)), bits(wanted))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, bool, *WHOLE], ids=str)
def test_bfloat16_is_cast_to_other_types_as_its_float32(dtype):
    x = PATTERNS.view(BFLOAT16)
    with np.errstate(all="ignore"):
        # One by one: NumPy's vectorized loops differ where an unsigned number is out of range.
        wanted = np.array([v.astype(dtype) for v in x.astype(np.float32)])
    got = native(lambda v: v, [BFLOAT16], dtype)(x)
    different = bits(got) != bits(wanted)
    if wanted.dtype.kind == "f":
        different &= ~(np.isnan(got) & np.isnan(wanted))
    assert not different.any(), (x[different][:3], got[different][:3], wanted[different][:3])


def rounded(values):
    return values.astype(np.float32).astype(BFLOAT16)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv"])
def test_arithmetic_is_that_of_float32_rounded_once(name):
    rng, apply = np.random.default_rng(7), getattr(operator, name)
    x, y = (PATTERNS[rng.permutation(1 << 16)].view(BFLOAT16) for _ in range(2))
    with np.errstate(all="ignore"):
        wanted = rounded(apply(x.astype(np.float32), y.astype(np.float32)))
    got = native(apply, [BFLOAT16] * 2, BFLOAT16)(x, y)
    # The sign of a NaN that arithmetic makes is the processor's choice.
    missing = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), missing)
    np.testing.assert_array_equal(bits(got)[~missing], bits(wanted)[~missing])


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_comparisons_are_those_of_float32(name):
    rng, apply = np.random.default_rng(8), getattr(operator, name)
    x, y = (PATTERNS[rng.permutation(1 << 16)].view(BFLOAT16) for _ in range(2))
    x[:1000] = y[:1000]
    wanted = apply(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_array_equal(native(apply, [BFLOAT16] * 2, bool)(x, y), wanted)


@pytest.mark.parametrize("name", ["neg", "abs"])
def test_signs_are_those_of_the_bits(name):
    wanted = PATTERNS ^ 0x8000 if name == "neg" else PATTERNS & 0x7FFF
    got = native(getattr(operator, name), [BFLOAT16], BFLOAT16)(PATTERNS.view(BFLOAT16))
    np.testing.assert_array_equal(bits(got), wanted)


@pytest.mark.parametrize("by", [2, 3, -1, 0.5, 1.7])
def test_powers_are_those_of_float32_rounded_once(by):
    x = np.abs(np.random.default_rng(0).normal(size=400)).astype(BFLOAT16)
    got = native(lambda w: w**by, [BFLOAT16], BFLOAT16)(x).astype(np.float64)
    # 1.7 itself is a number of bfloat16 here, as x is.
    exact = np.power(x.astype(np.float64), float(np.asarray(by, BFLOAT16)))
    assert np.max(np.abs(got - exact) / exact) <= 2.0**-8 * 1.01


def test_types_have_the_names_of_bfloat16():
    assert type_code(BFLOAT16) == "f2b"
    assert dtype_of_code("f2b") == BFLOAT16
    assert (LLVM["f2b"], MEMORY["f2b"]) == ("float", "i16")
    with pytest.raises(DTypeError, match="no native code for"):
        type_code(np.dtype([("x", "u2")]))
    with pytest.raises(DTypeError, match="no native code for"):
        type_code("V2")


PROMOTIONS = {"f2b": "f2b", "f4": "f4", "f8": "f8", "c8": "c8", "c16": "c16", "b1": "f2b"}
PROMOTIONS |= {"i1": "f2b", "u1": "f2b", "i2": "f4", "i8": "f8"}


@pytest.mark.parametrize(("other", "wanted"), PROMOTIONS.items(), ids=list(PROMOTIONS))
def test_bfloat16_beside_another_type_takes_the_wider(other, wanted):
    assert common_type("f2b", other) == common_type(other, "f2b") == wanted
    x, y = (LLVMValue(FunctionBuilder(), kind, "%x") for kind in ("f2b", other))
    assert (x + y).type == wanted


def test_bfloat16_beside_float16_is_refused_by_name():
    x, y = (LLVMValue(FunctionBuilder(), kind, "%x") for kind in ("f2b", "f2"))
    with pytest.raises(DTypeError, match="float16 beside bfloat16; cast one"):
        x * y


def test_constants_are_rounded_to_bfloat16():
    code = FunctionBuilder()
    assert code.const("f2b", 0.1).number == float(ml_dtypes.bfloat16(0.1))
    assert code.const("f2b", 1e39).number == np.inf
    assert (LLVMValue(code, "f2b", "%x") * 0.1).type == "f2b"
