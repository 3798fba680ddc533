"""Derivatives at zero, infinity and NaN, of huge and tiny numbers: right, and NaN if there is none.

Every row of the table walks the corners: in reverse and forward mode, in two orders, in float64
and float32, against references in many digits. A new elementwise row needs one in mp_reference.
"""

import itertools
from functools import lru_cache

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.ops import OPS

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath
from mpmath import mp, mpf

import support.mp_reference as reference
from support.mp_reference import BINARY, SLOPES, UNARY

INF, NAN = np.inf, np.nan
DTYPES = ["float64", "float32"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(reference.DIGITS), np.errstate(all="ignore"):
        yield


def both_signs(numbers, dtype):
    return np.array([s * n for n in numbers for s in (1, -1)] + [NAN], dtype)


def corners(dtype):
    """Zero, infinity and NaN, the ends of domains, borders of pieces, the huge and the tiny."""
    limits = np.finfo(dtype)
    tiny, most = float(limits.tiny), float(limits.max)
    ends = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 6.0, INF, np.nextafter(limits.dtype.type(1), 2)]
    sizes = [float(limits.smallest_subnormal), 4 * tiny, 3 * tiny**0.5, 1e-8, 20.0, 89.0, 710.0]
    return both_signs([*ends, *sizes, 1e8, 3 * most**0.5, most / 4, most], dtype)


def few_corners(dtype):
    limits = np.finfo(dtype)
    tiny, most = float(limits.tiny), float(limits.max)
    return both_signs([0.0, 0.5, 1.0, 2.0, 4 * tiny, most / 4, INF], dtype)


# ------------------------------------------------------------------ what a rule gives


def plain(v):
    return v.numpy() if isinstance(v, Variable) else v


def slopes(tape, y, leaf, ones):
    """The derivative of each element in its own operand, by both modes."""
    if not y.requires_grad:
        return {"reverse": np.zeros_like(ones), "forward": np.zeros_like(ones)}
    return {
        "reverse": tape.gradient(y, leaf, ones, unused="zero"),
        "forward": tape.jvp(y, leaf, ones) if depends(tape, y, leaf) else np.zeros_like(ones),
    }


def depends(tape, y, leaf):
    return tape.gradient(y, leaf, np.ones_like(y.numpy()), unused="none") is not None


def derivatives(call, *operands):
    """The value, the partial derivatives, and those of these: by operand, by modes."""
    leaves = [Variable(x, requires_grad=True) for x in operands]
    ones = np.ones_like(operands[0])
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            out = call(*leaves)
        first = [slopes(inner, out, leaf, ones) for leaf in leaves]
    second = {}
    for (k, found), (n, leaf) in itertools.product(enumerate(first), enumerate(leaves)):
        for mode, slope in found.items():
            if isinstance(slope, Variable):
                bends = slopes(outer, slope, leaf, ones)
            else:
                bends = {"reverse": np.zeros_like(ones), "forward": np.zeros_like(ones)}
            second |= {(k, n, f"{other} over {mode}"): plain(b) for other, b in bends.items()}
    firsts = {(k, mode): plain(s) for k, found in enumerate(first) for mode, s in found.items()}
    return out.numpy(), firsts, second


def fits(got, wanted, limits, rounding, spread=0):
    """Whether ``got`` is ``wanted`` but for rounding, of it and of numbers of size ``spread``."""
    got, most = float(got), float(limits.max)
    if mpmath.isnan(wanted) or np.isnan(got):
        return bool(mpmath.isnan(wanted)) and np.isnan(got)
    if np.isinf(got):
        return abs(wanted) > most * (1 - 1e-6) and mpmath.sign(wanted) == np.sign(got)
    if abs(wanted) > most * (1 + float(limits.eps)):
        return False
    error = rounding * float(limits.eps) * (abs(wanted) + spread) + 4 * float(limits.tiny)
    return abs(mpf(got) - wanted) <= error


def complaint(found):
    return "\n".join(found[:10]) + (f"\nand {len(found) - 10} more" if len(found) > 10 else "")


# ------------------------------------------------------------------ functions of one number


def call_of(name, options):
    row = OPS[name.partition(",")[0]]
    return lambda *operands: row.call(*operands, **options)


@pytest.mark.share(4)
@every_dtype
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number_have_their_derivatives_at_the_corners(name, dtype):
    wanted = UNARY[name]
    x = corners(dtype)
    x = x[~np.isnan(x)] if wanted.chooses else x
    out, first, second = derivatives(call_of(name, wanted.options), x)
    limits, wrong = np.finfo(dtype), []
    for k, point in enumerate(x.tolist()):
        f, slope, bend = reference.of_one(wanted, point)
        spread = 1 if wanted.absolute else 0
        given = [
            ("value", out, f, int(wanted.periodic)),
            *((m, s, slope, spread) for (_, m), s in first.items()),
        ]
        given += [(m, s, bend, spread) for (*_, m), s in second.items()]
        for mode, got, want, size in given:
            if unsettled(wanted, point, want, got[k], " over " in mode):
                continue
            if wanted.overflows and abs(point) > limits.max / 100 and not np.isfinite(got[k]):
                continue
            if not fits(got[k], want, limits, wanted.rounding, size):
                wrong.append(f"{mode} at {point}: {got[k]}, wanted {mpmath.nstr(want, 17)}")
    assert not wrong, complaint(wrong)


def unsettled(wanted, point, want, got, is_second):
    """What ``kinks`` leaves open: second derivatives at the ends, the sign of a zero of a root."""
    if is_second and abs(point) in wanted.no_bend:
        return np.isnan(got)
    if is_second and wanted.beyond and np.isnan(got):
        return mpmath.isnan(reference.limit(wanted.f, point))
    return wanted.signed_zero and point == 0 and abs(got) == abs(want)


# ------------------------------------------------------------------ functions of two numbers


def partials(name):
    """The names of the partial derivatives of a row in a reference, by operands."""
    if name in SLOPES:
        owner, first, second = SLOPES[name]
        return BINARY[owner], {(0,): first, (1,): second}
    named = {(0,): "x", (1,): "y", (0, 0): "xx", (0, 1): "xy", (1, 0): "xy", (1, 1): "yy"}
    return BINARY[name], named


def pairs(name, numbers):
    """All pairs of numbers; but for those of a power that mpmath cannot follow to the limit."""
    wanted, _ = partials(name)
    x, y = (v.ravel() for v in np.meshgrid(numbers, numbers))
    keep = ~(np.isnan(x) | np.isnan(y)) if wanted.chooses else np.full(x.shape, True)
    if "power" in name:
        size = np.abs(y)
        near_one = np.isclose(np.abs([x, y]), 1) & (np.abs([x, y]) != 1)
        keep &= ~near_one.any(0) & ~((size > 0) & (size < 1e-30))
        keep &= ~((size < 1e-7) & (size > 0) & ((x == 0) | np.isinf(x)))
        # Beyond, y - 2 and y are the same number; their powers of a negative number are not.
        keep &= ~(np.signbit(x) & (size > 2.0 ** np.finfo(x.dtype).nmant))
    return x[keep], y[keep]


def overflown(got, want, point, limits):
    """Whether a second derivative of tiny numbers is NaN, or infinite and not just huge.

    Their squares and inverses are no numbers of the dtype any more.
    """
    if np.isfinite(got) or not any(0 < abs(v) < float(limits.tiny) ** 0.5 for v in point):
        return False
    return np.isnan(got) or mpmath.sign(want) == np.sign(got)


@lru_cache(maxsize=100_000)
def exact(name, part, *point):
    """A partial derivative at a point that is given in words, for 0.0 and -0.0 are equal."""
    x, y = map(float, point)
    stated = BINARY[name].stated(x, y)
    if part in stated:
        return mpf(stated[part])
    with mp.workdps(60):
        return reference.limit_of_two(getattr(BINARY[name], part), x, y, BINARY[name].reach)


def walk_pairs(name, dtype, numbers):
    wanted, parts = partials(name)
    owner = SLOPES[name][0] if name in SLOPES else name
    x, y = pairs(name, numbers)
    out, first, second = derivatives(OPS[name].call, x, y)
    given = {((k,), mode): v for (k, mode), v in first.items()}
    given |= {((k, n), mode): v for (k, n, mode), v in second.items()}
    limits, wrong = np.finfo(dtype), []
    for ((key, mode), values), i in itertools.product(given.items(), range(x.size)):
        if key not in parts:
            continue
        got, point = values[i], (float(x[i]), float(y[i]))
        want = exact(owner, parts[key], *map(repr, point))
        is_second = parts[key] not in ("x", "y")
        if np.isnan(got) and (np.isnan(out[i]) or np.isnan(point).any()):
            continue
        if is_second and overflown(got, want, point, limits):
            continue
        spread = 1 if wanted.absolute else 0
        if is_second and wanted.together and (size := abs(mpmath.mpc(*point))):
            spread = 1 / size**2
        rounding = 64
        if "power" in name and np.isfinite(point[0]) and point[0]:
            rounding *= 1 + abs(np.log(abs(point[0])))  # what rounding y - 1 is multiplied by
        if not fits(got, want, limits, rounding, spread):
            shown = mpmath.nstr(want, 17)
            wrong.append(f"{parts[key]}, {mode}, at {point}: {got}, wanted {shown}")
    assert not wrong, complaint(wrong)


@pytest.mark.share(4)
@every_dtype
@pytest.mark.parametrize("name", [*BINARY, *SLOPES])
def test_functions_of_two_numbers_have_their_derivatives_at_the_corners(name, dtype):
    walk_pairs(name, dtype, few_corners(dtype))


@pytest.mark.soak
@every_dtype
@pytest.mark.parametrize("name", [*BINARY, *SLOPES])
def test_functions_of_two_numbers_have_their_derivatives_at_all_corners(name, dtype):
    walk_pairs(name, dtype, corners(dtype))


@every_dtype
def test_powers_of_negative_numbers_keep_their_sign_where_one_less_is_the_same_exponent(dtype):
    y = np.array([2.0 ** (np.finfo(dtype).nmant + 2)], dtype)
    leaf = Variable(np.array([-1.0], dtype), requires_grad=True)
    for exponent in (y, -y):
        with GradientTape() as tape:
            out = leaf**exponent
        assert tape.gradient(out, leaf, np.ones(1, dtype)) == -exponent


# ------------------------------------------------------------------ complex numbers

HOLOMORPHIC = [
    *(
        "negative",
        "square",
        "exp",
        "log",
        "expm1",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "reciprocal",
        "rsqrt",
        "sigmoid",
    ),
    *(
        "tanh",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "arcsin",
        "arccos",
        "arctan",
        "arcsinh",
        "arccosh",
        "arctanh",
    ),
]


def complex_corners():
    """Zero and the poles; far out, close to zero and in between, off the branch cuts."""
    poles = [0.0, 1.0, -1.0, 1j, -1j]
    sizes = [1e-300, 1e-160, 1e-8, 0.75, 3.0, 40.0, 1e8, 1e150]
    return np.array(poles + [size * d for size in sizes for d in (1 + 0.5j, 0.5 - 1j)])


def of_complex(function, z):
    try:
        return mpmath.mpc(function(mpmath.mpc(z)))
    except (ZeroDivisionError, ValueError, OverflowError):
        return mpmath.mpc(mp.inf)


def fits_complex(got, want, second):
    """Where a derivative is no number of the dtype, it is infinite or NaN; else it is right."""
    if not mpmath.isfinite(want.real) or abs(want) > 1e305:
        return not np.isfinite(got)
    # Products and quotients of very large or small complex numbers may overflow on their way.
    if not np.isfinite(got):
        return second or bool(np.isnan(got))
    return abs(mpmath.mpc(got) - want) <= 1e-13 * (abs(want) + 1) + 1e-300


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_functions_of_complex_numbers_have_their_derivatives_at_the_corners(name):
    z = Variable(complex_corners(), requires_grad=True)
    ones = np.ones(z.shape, complex)
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            out = OPS[name].call(z)
        back, move = inner.gradient(out, z, ones), inner.jvp(out, z, ones)
    # The gradient of a holomorphic function is the conjugate of its derivative.
    given = [("reverse", np.conj(back.numpy()), UNARY[name].slope)]
    given.append(("forward", move.numpy(), UNARY[name].slope))
    if move.requires_grad:
        given.append(("forward over forward", outer.jvp(move, z, ones), UNARY[name].bend))
        bend = np.conj(outer.gradient(move, z, ones))
        given.append(("reverse over forward", bend, UNARY[name].bend))
    wrong = []
    for mode, values, function in given:
        for point, got in zip(z.numpy().tolist(), values.tolist(), strict=True):
            want = of_complex(function, point)
            if not fits_complex(got, want, " over " in mode):
                wrong.append(f"{mode} at {point}: {got}, wanted {mpmath.nstr(want, 15)}")
    assert not wrong, complaint(wrong)


def test_the_size_and_the_sign_of_complex_numbers_are_right_or_nan_at_their_corners():
    most = 1.3e308
    z = np.array([0j, most + most * 1j, 5e-324 + 0j, complex(INF, 1), complex(INF, INF)])
    leaf = Variable(z, requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            size = ops.absolute(leaf)
        slope = inner.gradient(size, leaf, np.ones(5))
        turn = ops.sign(leaf)
    half = 0.5**0.5 * (1 + 1j)
    np.testing.assert_allclose(slope.numpy()[:4], [0, half, 1, 1], rtol=1e-15)
    np.testing.assert_allclose(turn.numpy()[:4], [0, half, 1, 1], rtol=1e-15)
    assert np.isnan(slope.numpy()[4])
    assert np.isnan(turn.numpy()[4])
    for bend in (
        outer.gradient(slope, leaf, np.ones(5, complex)),
        outer.jvp(slope, leaf, np.ones(5, complex)),
        outer.gradient(turn, leaf, np.ones(5, complex)),
        outer.jvp(turn, leaf, np.ones(5, complex)),
    ):
        assert np.isnan(bend[[0, 4]]).all()
        np.testing.assert_array_equal(bend[3], 0)


# ------------------------------------------------------------------ the table is walked


ELSEWHERE = {"where", "keep_where", "binary_entropy", "nan_to_num", "zeta", "beta", "betaln"}
# What SciPy computes.
ELSEWHERE |= {"gammainc", "gammaincc", "betainc"}
ELSEWHERE |= {"bessel_j_quotient", "j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e"}


def test_every_row_that_works_by_element_has_a_reference():
    known = {name.partition(",")[0] for name in UNARY} | {*BINARY, *SLOPES} | ELSEWHERE
    rows = {row.name for row in OPS.values() if row.elementwise and any(row.vjp.values())}
    missing = sorted(rows - known)
    assert not missing, f"add {missing} to UNARY or BINARY in tests/support/mp_reference.py"
