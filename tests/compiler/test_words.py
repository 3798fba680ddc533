"""Words: what their arithmetic and their casts give is what NumPy's give, bit by bit."""

import operator

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.declarations import declarations
from odyssey.compiler.llvm.types import LLVM, MEMORY, TYPES, type_code
from odyssey.errors import DTypeError

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")
native = pytest.importorskip("support.native").native

WHOLE = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
FLOATING = ("f2", "f4", "f8")
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
BITS = ("and_", "or_", "xor", "lshift", "rshift")


def dtype_of(kind):
    return np.dtype(bool if kind == "b1" else kind)


def numbers(kind):
    dtype = dtype_of(kind)
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            sizes = np.array(
                [
                    *(0, 1, 2.5, 3, 7, 0.1, 1e-7, 6e-8, 1e-40, 1e-310, 65504, 65520, 1e300, np.inf),
                    *(127.5, 128, 255.9, 256, 32768.5, 2147483647.5, 2147483648.5, 3e9, 9.3e18),
                    *(1.9e19, 1 + 2**-11 + 2**-40, 1 + 3 * 2**-11, 1 + 2**-24 + 2**-50),
                    *(2.0**-25 + 2.0**-60, 65519.999999999, 1 + 2**-11 - 2**-40),
                ]
            ).astype(dtype)
        return np.concatenate([sizes, -sizes, [dtype.type(np.nan)]])
    limits = np.iinfo(dtype)
    wanted = (-100, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 100)
    wanted += (limits.min, limits.min + 1, limits.max - 1, limits.max)
    return np.array(sorted({v for v in wanted if limits.min <= v <= limits.max}), dtype)


def pairs(kind):
    return [x.ravel() for x in np.meshgrid(numbers(kind), numbers(kind))]


def assert_same_bits(got, wanted, *given):
    assert got.dtype == wanted.dtype
    bits = f"u{wanted.dtype.itemsize}"
    wrong = got.view(bits) != wanted.view(bits)
    if wanted.dtype.kind == "f":
        wrong &= ~(np.isnan(got) & np.isnan(wanted))  # any NaN
    k = np.flatnonzero(wrong)[:4]
    assert not k.size, [(*(x[i] for x in given), got[i], wanted[i]) for i in k]


@pytest.mark.parametrize("kind", [*WHOLE, *FLOATING])
@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *BITS])
def test_operators_are_numpys(name, kind):
    if kind in FLOATING and name in BITS:
        with pytest.raises(DTypeError, match="want integers"):
            native(getattr(operator, name), [kind] * 2, kind)
        return
    x, y = pairs(kind)
    with np.errstate(all="ignore"):
        wanted = getattr(operator, name)(x, y)
    got = native(getattr(operator, name), [kind] * 2, wanted.dtype)(x, y)
    assert_same_bits(got, wanted, x, y)


@pytest.mark.parametrize("name", ["add", "mul", "and_", "or_", "xor", *COMPARISONS])
def test_operators_of_truth_values_are_numpys(name):
    x, y = pairs("b1")
    wanted = getattr(operator, name)(x, y)
    assert_same_bits(native(getattr(operator, name), [bool] * 2, bool)(x, y), wanted, x, y)


@pytest.mark.parametrize("kind", [*WHOLE, *FLOATING])
@pytest.mark.parametrize("name", ["neg", "abs", "invert"])
def test_operators_of_one_number_are_numpys(name, kind):
    if kind in FLOATING and name == "invert":
        return
    x = numbers(kind)
    wanted = getattr(operator, name)(x)
    assert_same_bits(native(getattr(operator, name), [kind], kind)(x), wanted, x)


@pytest.mark.parametrize("to", [*WHOLE, *FLOATING, "b1"])
@pytest.mark.parametrize("kind", [*WHOLE, *FLOATING, "b1"])
def test_casts_are_numpys(kind, to):
    x = numbers(kind)
    with np.errstate(all="ignore"):
        # One at a time: NumPy's loops over several differ where an unsigned number is out of range.
        wanted = np.array([v.astype(dtype_of(to)) for v in x], dtype_of(to))
    got = native(lambda v: v, [dtype_of(kind)], dtype_of(to))(x)
    assert_same_bits(got, wanted, x)


@pytest.mark.parametrize("by", [0, 3, 7, 31, 40, 63])
def test_shifts_by_known_numbers_are_numpys(by):
    for kind in WHOLE:
        x = numbers(kind)
        y = np.full(x.size, by, kind)
        for name in ("lshift", "rshift"):
            wanted = getattr(operator, name)(x, y)
            got = native(lambda w, name=name: getattr(operator, name)(w, by), [kind], kind)(x)
            assert_same_bits(got, wanted, x)


def test_two_types_meet_in_that_of_numpy():
    code = FunctionBuilder()
    of_numpy = [kind for kind in TYPES[:-1] if kind != "f2b"]
    for x in of_numpy:
        for y in of_numpy:
            if x == y == "b1":
                continue
            found = LLVMValue(code, x, "%x") + LLVMValue(code, y, "%y")
            assert found.type == type_code(np.result_type(dtype_of(x), dtype_of(y)))


@pytest.mark.parametrize(
    ("kind", "number", "wanted"),
    [("f4", 1e300, "f4"), ("i4", 2, "i4"), ("i4", 0.5, "f8"), ("b1", 2, "i8"), ("b1", True, "b1")],
)
def test_a_number_of_pythons_takes_the_type_beside_it(kind, number, wanted):
    word = LLVMValue(FunctionBuilder(), kind, "%x")
    assert (word * number).type == (number * word).type == wanted


def test_numpys_numbers_leave_arithmetic_to_words():
    word = LLVMValue(FunctionBuilder(), "f4", "%x")
    for found in (np.float32(2) * word, word * np.float32(2), np.float64(2) + word):
        assert isinstance(found, LLVMValue)
        assert found.type == "f4"


def test_constants_are_known_and_wrap():
    code = FunctionBuilder()
    assert code.const("f4", 0.1).number == float(np.float32(0.1))
    assert code.const("i1", 255).number == -1
    assert code.const("u1", -1).number == 255
    assert code.const("b1", 2).number is True
    assert code.const("f4", 1e300).number == np.inf
    assert LLVMValue(code, "f4", "%x").number is None


def test_a_word_has_no_truth_and_no_hash():
    word = LLVMValue(FunctionBuilder(), "f4", "%x")
    with pytest.raises(TypeError, match="choose by select"):
        bool(word)
    with pytest.raises(TypeError, match="unhashable"):
        hash(word)


def test_truth_values_have_no_difference_and_no_powers_of_integers_are_unknown():
    code = FunctionBuilder()
    truth, whole = LLVMValue(code, "b1", "%x"), LLVMValue(code, "i4", "%y")
    with pytest.raises(DTypeError, match="truth values have no difference"):
        truth - truth
    with pytest.raises(DTypeError, match="known and not negative"):
        whole**whole
    with pytest.raises(DTypeError, match="known and not negative"):
        whole**-1


@pytest.mark.parametrize("by", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5])
def test_known_small_powers_are_those_of_numpy(by):
    x = np.concatenate([numbers("f8"), np.random.default_rng(0).normal(size=100)])
    with np.errstate(all="ignore"):
        wanted = np.power(x, float(by))
        unit = np.spacing(np.abs(wanted))
    got = native(lambda w: w**by, [np.float64], np.float64)(x)
    np.testing.assert_array_equal(got[~np.isfinite(wanted)], wanted[~np.isfinite(wanted)])
    none = wanted == 0
    np.testing.assert_array_equal(np.signbit(got[none]), np.signbit(wanted[none]))
    some = np.isfinite(wanted)
    most = 0 if by in (0, 1) else 2
    assert np.all(np.abs(got[some] - wanted[some]) <= most * unit[some])


@pytest.mark.parametrize("kind", FLOATING)
@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_what_known_numbers_give_is_known_where_it_is_small_and_is_numpys(name, kind):
    apply, code, some = getattr(operator, name), FunctionBuilder(), numbers(kind)
    known = 0
    for one in some:
        for other in some[::3]:
            with np.errstate(all="ignore"):
                wanted = apply(one, other)
            got = apply(code.const(kind, one), code.const(kind, other)).number
            assert (got is None) == (not abs(wanted) < 1e4), (one, other)
            if got is not None:
                known += 1
                assert np.array(got, kind).tobytes() == np.array(wanted, kind).tobytes()
    assert known > 100


@pytest.mark.parametrize("y", [2, 3, -1, 0.5])
def test_the_slope_of_a_known_small_power_needs_no_power(y):
    compiled = od.compile(lambda x: od.grad(lambda x: (x**y).sum())(x))
    for _ in range(2):
        compiled(np.ones(3))
    text = compiled.code(np.ones(3))
    assert "sqrt" in text or y != 0.5
    assert "odyssey.pow" not in text


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_squares_inverses_and_roots_are_rounded_once(kind):
    x = np.abs(np.random.default_rng(0).normal(size=100)).astype(kind)
    for by, wanted in ((2, x * x), (-1, 1 / x), (0.5, np.sqrt(x))):
        got = native(lambda w, by=by: w**by, [kind], kind)(x)
        np.testing.assert_array_equal(got, wanted)


def test_powers_of_integers_wrap():
    x = numbers("i4")
    for by in (0, 1, 2, 5, 13):
        got = native(lambda w, by=by: w**by, ["i4"], "i4")(x)
        np.testing.assert_array_equal(got, x**by)


def test_bits_are_those_of_the_number():
    x = numbers("f4")
    np.testing.assert_array_equal(native(lambda w: w.view("i4"), ["f4"], "i4")(x), x.view("i4"))


def test_code_of_refuses_what_no_word_is():
    for dtype in (np.clongdouble, np.dtype(">f4"), "M8[s]", object):
        with pytest.raises(DTypeError, match="no native code for"):
            type_code(dtype)


def test_types_have_names_in_registers_and_in_memory():
    assert set(TYPES) == set(LLVM) == set(MEMORY)
    assert (LLVM["b1"], MEMORY["b1"]) == ("i1", "i8")
    assert (LLVM["f2"], MEMORY["f2"]) == ("float", "half")


def test_declarations_are_of_libm_and_llvm_and_of_nothing_else():
    text = """
    declare double @llvm.fabs.f64(double)
    %a = call double @llvm.fabs.f64(double %x)
    %b = call <4 x float> @llvm.fma.v4f32(<4 x float> %p, <4 x float> %q, <4 x float> %r)
    %c = call nnan double @pow(double %a, double %x)
    call void @llvm.memcpy.p0.p0.i64(ptr align 8 %p, ptr %q, i64 8, i1 false)
    call void @product(ptr %p)
    """
    assert declarations(text).splitlines() == [
        "declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)",
        "declare double @pow(double, double) nounwind willreturn memory(none)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    ]


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_whole_numbers_with_and_without_a_sign_are_compared_exactly(name):
    # Both are 2.0**60 in double precision, in which other ops bring them together.
    x = np.array([2**60, 2**60 + 1, 2**64 - 1, 5], np.uint64)
    compare = getattr(operator, name)
    step = od.compile(compare)
    for y in (np.array([2**60 + 1, 2**60, -1, 5]), np.array([-1, 0, 1, 5], np.int8)):
        for a, b in ((x, y), (y, x)):
            for _ in range(3):
                got = step(od.Variable(a), od.Variable(b)).numpy()
                assert got.tolist() == compare(a, b).tolist()
