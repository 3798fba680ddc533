"""Scalars on symbols, and the loops of several dtypes and options that come of them."""

import importlib.util
import math

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DTypeError
from odyssey.kernels import T, cpu_loop, select
from odyssey.kernels.scalars import Program, Term, program
from odyssey.ops import OPS
from support import scalar_cases
from support.together import together

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba, which compiles loops, is missing")

HALF = 0.5


def halved(x):
    return T(HALF) * math.exp(x)


def ran(scalar, *numbers, options=()):
    """What a scalar's program gives on Python numbers."""
    scope = {"math": math, "T": T}
    exec(program(scalar, len(numbers), options).python_source("found"), scope)
    return scope["found"](*numbers)


BRANCHING = {
    "a choice": lambda x: x if x > T(0) else T(-1) / x,
    "choices within": lambda x: (x if x > T(2) else T(2)) if x > T(1) else (x if x < T(0) else -x),
    "and": lambda x: T(1) if x > T(0) and x < T(2) else T(0),
    "or not": lambda x: T(1) if x > T(2) or not x > T(0) else T(0),
    "a chain": lambda x: T(1) if T(0) < x <= T(2) else T(0),
    "the larger": lambda x: max(x, T(1)) * min(x, T(2)),
    "the same question twice": lambda x: (x if x > T(0) else -x) + (T(1) if x > T(0) else T(2)),
    "select": lambda x: select((x > T(0)) & (x < T(2)), x, T(5)),
    "a helper and a constant of its module": lambda x: halved(x) + T(HALF),
}


@pytest.mark.parametrize("scalar", BRANCHING.values(), ids=list(BRANCHING))
def test_a_program_is_its_scalar_without_branches(scalar):
    for x in (-3.0, 0.5, 1.0, 1.5, 2.0, 7.0):
        assert ran(scalar, x) == scalar(x)
    text = program(scalar, 1).python_source("found")
    assert " and " not in text
    assert all(" if " not in line or line.lstrip().startswith("v") for line in text.splitlines())


def test_options_are_chosen_by_as_python_does():
    def gauss(x, kind, power, shift):
        if kind == "wide":
            x = x * T(0.5)
        for _ in range(power):
            x = x * x
        return x if shift is None else x + T(shift)

    assert ran(gauss, 3.0, options=("wide", 1, None)) == 2.25
    assert ran(gauss, 3.0, options=("narrow", 2, 1.0)) == 82.0
    assert program(gauss, 1, ("narrow", 0, None)).steps == []


def test_what_is_computed_twice_is_written_down_once():
    steps = program(lambda x: math.exp(x) * math.exp(x) + T(0.0) * T(-0.0), 1).steps
    assert [name for name, _ in steps] == ["math.exp", "mul", "T", "T", "mul", "add"]


def test_a_scalar_that_asks_too_much_is_refused():
    def rooted(x):
        while x > T(1):
            x = x * T(0.5)
        return x

    with pytest.raises(
        DTypeError, match=r"rooted has too many branches on its arguments; write select"
    ):
        program(rooted, 1)


def test_terms_refuse_what_is_no_number():
    with pytest.raises(TypeError, match="unsupported operand"):
        program(lambda x: x + "1", 1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Term(program(lambda x: x, 1), 0))


# ------------------------------------------------------------------ loops


@pytest.mark.slow
@needs_numba
def test_a_loop_takes_elements_of_several_dtypes():
    loop = cpu_loop(
        lambda c, x, y: select(c != T(0), x, y), [bool, "float32", "float64"], "float64"
    )
    c, x, y = np.array([True, False]), np.array([1, 2], np.float32), np.array([3.0, 4.0])
    out = np.empty(2)
    loop(c, x, y, out)
    np.testing.assert_array_equal(out, [1.0, 4.0])


@needs_numba
def test_a_loop_may_give_truth_values():
    out = np.empty(3, bool)
    cpu_loop(lambda x, y: x > y, [np.int64] * 2, bool)(np.arange(3), np.full(3, 1), out)
    np.testing.assert_array_equal(out, [False, False, True])


@pytest.mark.slow
@needs_numba
def test_a_loop_is_compiled_for_its_options():
    scaled = lambda x, by: x * T(by)  # noqa: E731
    x = np.arange(1.0, 4.0)
    out = np.empty(3)
    for by in (2, 2.5, True, -0.0, 0.0):
        cpu_loop(scaled, "float64", options=(by,))(x, out)
        np.testing.assert_array_equal(out, x * by)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(x * by))


@pytest.mark.slow
@needs_numba
def test_a_loop_knows_the_dtype_it_computes_in():
    for dtype in ("float32", "float64"):
        out = np.empty(1, dtype)
        cpu_loop(lambda x: x + T(T.eps), dtype)(np.ones(1, dtype), out)
        assert out[0] == np.nextafter(np.ones((), dtype), np.asarray(2, dtype))
    out = np.empty(1, np.int64)
    cpu_loop(lambda x: x + T(1) if T.kind == "i" else x, [np.int64], np.int64)(np.ones(1, int), out)
    assert out[0] == 2


@needs_numba
@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((["int16", "int16"],), "no kernels for int16"),
        ((["float64"],), "1 dtypes for the 2 numbers"),
        (("float64", "complex128"), "no kernels for complex128"),
        (("float64", None, (np.ones(3),)), "is not a number, a word or None"),
    ],
)
def test_a_loop_refuses_dtypes_and_options_that_kernels_do_not_have(arguments, match):
    options = arguments[2:] and "o"
    scalar = (lambda x, y, o: x) if options else (lambda x, y: x)
    with pytest.raises(DTypeError, match=match):
        cpu_loop(scalar, *arguments)


# ------------------------------------------------------------------ the scalars of the table


def test_every_row_that_works_by_element_has_a_scalar_or_is_the_call_of_a_library():
    others = {row.name for row in OPS.values() if row.elementwise and not row.scalar}
    called = {row.name for row in OPS.values() if row.primitive == "call"}
    assert others == called, (
        f"{sorted(others ^ called)}: an elementwise row has scalar= or primitive='call', and only "
        "such a row has primitive='call'"
    )


def check_without_branches(row, options, monkeypatch):
    """Raise AssertionError where a scalar asks a number for its truth."""
    asked = []
    monkeypatch.setattr(Program, "decide", lambda self, term: asked.append(term) or True)
    for dtype in ("float32", "float64", "int64", "bool"):
        program(row.scalar, len(row.arrays), options, dtype)
    assert not asked, (
        f"op {row.name}: scalar= branches on {asked[0]}, by if, and, or, not, max or min; write "
        "select(condition, x, y), and join comparisons by & and |"
    )


@pytest.mark.parametrize("case", scalar_cases.CASES)
def test_a_scalar_asks_no_number_for_its_truth(case, monkeypatch):
    check_without_branches(*scalar_cases.CASES[case], monkeypatch)


@pytest.mark.parametrize(
    "scalar",
    [
        lambda x: x if x > T(0) else T(0),
        lambda x: max(x, T(0)),
        lambda x: select(x > T(0) and x < T(1), x, T(0)),
    ],
    ids=["if", "max", "and"],
)
def test_a_scalar_that_branches_is_told_how_to_choose(scalar, monkeypatch):
    @od.op(elementwise=True, scalar=scalar)
    def ramp(x, /):
        return np.maximum(x, 0)

    with pytest.raises(AssertionError, match=r"^op ramp: scalar= branches on v\d.*; write select"):
        check_without_branches(ramp.row, (), monkeypatch)


@together("dtype", scalar_cases.DTYPES)
@pytest.mark.parametrize("case", scalar_cases.CASES)
def test_a_scalar_is_the_kernel_at_special_numbers_of_every_dtype(case, dtype):
    row, options = scalar_cases.CASES[case]
    found = scalar_cases.kernel_values(row, options, dtype)
    if found is None:
        return
    operands, wanted = found
    computed = scalar_cases.computed_in(wanted, dtype)
    got = scalar_cases.by_numpy(row.scalar, operands, options, computed)
    got = np.broadcast_to(got, wanted.shape).astype(wanted.dtype)
    scalar_cases.assert_is_kernel(row, got, wanted, operands)


def test_every_scalar_is_compared_in_a_floating_dtype_or_on_bits():
    bits = {"bitwise_and", "bitwise_or", "bitwise_xor", "invert"}
    for row, options in scalar_cases.CASES.values():
        dtype = np.dtype("int64" if row.name in bits else "float64")
        assert scalar_cases.kernel_values(row, options, dtype) is not None


def test_a_wrong_scalar_is_noticed():
    row, options = scalar_cases.CASES["maximum"]
    operands, wanted = scalar_cases.kernel_values(row, options, np.dtype("float64"))
    forgetful = lambda x, y: select(x > y, x, y)  # noqa: E731  # of NaN in x
    got = scalar_cases.by_numpy(forgetful, operands, options, wanted.dtype)
    with pytest.raises(AssertionError):
        scalar_cases.assert_is_kernel(row, got, wanted, operands)


def compile_and_compare(row, options, dtype):
    """The CPU loop of a scalar agrees with the kernel; returns it."""
    operands, wanted = scalar_cases.kernel_values(row, options, dtype)
    loop = cpu_loop(row.scalar, [dtype] * len(operands), wanted.dtype, options)
    out = np.empty_like(wanted)
    loop(*operands, out)
    scalar_cases.assert_is_kernel(row, out, wanted, operands)
    return loop


@pytest.mark.share(9)
@needs_numba
@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
@pytest.mark.parametrize(
    "name", ["where", "greater", "isinf", "clip", "sign", "rint", "gelu", "maximum", "power"]
)
def test_loops_of_scalars_agree_with_kernels(name, dtype):
    case = next(case for case in scalar_cases.CASES.values() if case[0].name == name)
    if scalar_cases.kernel_values(*case, np.dtype(dtype)) is not None:
        compile_and_compare(*case, np.dtype(dtype))


@needs_numba
@pytest.mark.soak
@together("dtype", scalar_cases.DTYPES)
@pytest.mark.parametrize("case", scalar_cases.CASES)
def test_loops_of_every_scalar_agree_with_kernels(case, dtype):
    if scalar_cases.kernel_values(*scalar_cases.CASES[case], dtype) is not None:
        compile_and_compare(*scalar_cases.CASES[case], dtype)
