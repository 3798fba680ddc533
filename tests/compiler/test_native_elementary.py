"""Elementary functions as native code: errors in units in the last place, and special values."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest

from odyssey.compiler.llvm.elementary import BOUNDS, define_formulas, formula_symbol
from odyssey.compiler.llvm.scalar_programs import call_math

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")
support = pytest.importorskip("support.native")

OF_TWO = ("atan2", "hypot", "pow")
every_function = pytest.mark.parametrize("name", list(BOUNDS))
both = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
REFERENCES = {
    "pow": mpmath.power,
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
}
# Where mpmath takes long, and results are known: rounded to 0, 1 or infinity long before.
MOST = {"exp": 1e4, "exp2": 1e4, "expm1": 1e4, "sinh": 1e4, "cosh": 1e4, "tanh": 1e4}
MOST |= {"erf": 1e4, "erfc": 1e4}


def computed(name, *arrays):
    return made(name, arrays[0].dtype, len(arrays))(*arrays)


@cache
def made(name, dtype, count):
    return support.native(lambda *w: call_math(w[0].code, name, *w), [dtype] * count, dtype)


def numbers(dtype, count, seed):
    """Any bits, and numbers of the sizes at which functions do something."""
    rng = np.random.default_rng(seed)
    whole = np.int32 if dtype is np.float32 else np.int64
    bits = rng.integers(np.iinfo(whole).min, np.iinfo(whole).max, count, dtype=whole).view(dtype)
    sizes = 10.0 ** rng.uniform(-8, 2.85, count) * rng.choice([-1, 1], count)
    units = rng.uniform(-1, 1, count)
    near = rng.choice([-1, 1], count) * (1 + rng.normal(size=count) * 1e-3)
    drawn = np.concatenate([rng.normal(size=count), sizes, units, near]).astype(dtype)
    return np.concatenate([bits, drawn])


def arguments(name, dtype):
    x = numbers(dtype, 120, 0)
    rng = np.random.default_rng(1)
    if name in OF_TWO:
        y = rng.permutation(numbers(dtype, 120, 2))
        x, y = np.concatenate([x, x[:200]]), np.concatenate([y, x[:200] * dtype(0.75)])
        if name == "pow":
            x = np.abs(x)
            y[::3] = rng.integers(-9, 12, y[::3].size)
        some = np.isfinite(x) & np.isfinite(y) & (x != 0)
        return [x[some], y[some]]
    x = x[np.isfinite(x)]
    x = np.clip(x, -MOST[name], MOST[name]) if name in MOST else x
    if name in ("log", "log2", "log10"):
        return [np.abs(x[x != 0])]
    if name in ("asin", "acos", "atanh"):
        return [x[np.abs(x) < 1]]
    if name == "acosh":
        return [1 + np.abs(x[np.abs(x) < 1e30])]
    return [x[x > -1] if name == "log1p" else x]


@both
@every_function
def test_errors_lie_within_the_bounds_that_are_stated(name, dtype):
    given = arguments(name, dtype)
    limits = np.finfo(dtype)
    reference = REFERENCES.get(name) or getattr(mpmath, name)
    seen = 0
    with mpmath.workprec(160):
        for *x, got in zip(*given, computed(name, *given), strict=True):
            exact = reference(*[mpmath.mpf(float(v)) for v in x])
            size = abs(exact)
            if size > float(limits.max):
                # The halfway to the next number, which there is none of, may round either way.
                assert np.isinf(got) or size < float(limits.max) * (1 + float(limits.eps)), x
                continue
            normal = size >= float(limits.tiny)
            unit = float(np.spacing(dtype(float(size)))) if normal else limits.smallest_subnormal
            bound = BOUNDS[name] if normal else BOUNDS[name] + 0.5  # it is rounded once more
            assert abs(mpmath.mpf(float(got)) - exact) <= bound * float(unit), (x, got)
            seen += normal
    assert seen > 100


@both
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size_are_reduced(name, dtype):
    rng = np.random.default_rng(0)
    limits = np.finfo(dtype)
    far = {"float32": 2.0**16, "float64": 2.0**30}[dtype.__name__]
    angles = [
        2.0 ** rng.uniform(10, limits.maxexp, 200),
        2.0 ** rng.uniform(0, np.log2(far), 200),
        # What lies nearest to a multiple of pi / 2, of float64 and of float32.
        [6381956970095103 * 2.0**797, 16367173 * 2.0**72, float(limits.max)][limits.bits == 32 :],
        np.arange(1, 40) * math.pi / 2,
        far * (1 + np.arange(-2, 3) * float(limits.eps)),
    ]
    x = np.concatenate(angles).astype(dtype)
    with mpmath.workprec(1400):
        for number, got in zip(x, computed(name, x), strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(number)))
            most = BOUNDS[name] * float(np.spacing(dtype(abs(float(exact)))))
            assert abs(float(got) - exact) <= most, (number, got)


def specials(dtype):
    limits = np.finfo(dtype)
    sizes = [0, 0.5, 1, 1.5, 2, 3, 10, 1e10, limits.tiny, limits.smallest_subnormal, limits.max]
    sizes += [1 - limits.epsneg, 1 + limits.eps, math.inf]
    return np.array([*sizes, *[-v for v in sizes], math.nan], dtype)


def by_libm(name, *values):
    """What C's function gives; Python's raises where that is infinite or NaN."""
    reference = getattr(np, {"pow": "power", "atan2": "arctan2"}.get(name, name), None)
    if reference is None and name.startswith("a"):
        reference = getattr(np, f"arc{name[1:]}")
    if reference is None:
        reference = np.vectorize(getattr(math, name), otypes=[float])
    with np.errstate(all="ignore"):
        return reference(*[v.astype(float) for v in values])


@both
@every_function
def test_special_values_are_those_of_c(name, dtype):
    given = [specials(dtype)]
    if name in OF_TWO:
        given = [x.ravel() for x in np.meshgrid(given[0], given[0])]
    got = computed(name, *given)
    with np.errstate(all="ignore"):
        wanted = by_libm(name, *given).astype(dtype)
        unit = np.spacing(np.abs(wanted))
        far = ~(np.abs(got - wanted) <= 4 * unit) & (got != wanted)
    wrong = np.isnan(got) != np.isnan(wanted)
    wrong |= far & ~np.isnan(wanted)
    wrong |= (wanted == 0) & (np.signbit(got) != np.signbit(wanted))
    k = np.flatnonzero(wrong)[:4]
    assert not k.size, [(*(x[i] for x in given), got[i], wanted[i]) for i in k]


@both
@every_function
def test_no_function_keeps_a_loop_from_vectorizing(name, dtype):
    kind = "f4" if dtype is np.float32 else "f8"
    kinds = [kind] * (1 + (name in OF_TWO))
    text = support.text_of(lambda *w: call_math(w[0].code, name, *w), kinds, kind)
    optimized = support.optimized(text)
    body = optimized[optimized.index("@run(") :].split("\n}")[0]
    assert "vector.body" in body


@both
@pytest.mark.parametrize("name", ["exp", "sin", "log", "pow"])
def test_a_number_has_one_result_wherever_it_stands(name, dtype):
    x = np.abs(numbers(dtype, 40, 3))
    given = [x, x[::-1].copy()] if name in OF_TWO else [x]
    together = computed(name, *given)
    alone = [computed(name, *[v[k : k + 1] for v in given])[0] for k in range(0, x.size, 7)]
    np.testing.assert_array_equal(alone, together[::7])


def test_definitions_are_of_what_is_called_alone():
    assert define_formulas("call double @sin(double %x)") == ""
    text = define_formulas("%a = call float @odyssey.exp.f4(float %x)")
    assert text.count("define ") == 1
    assert "define internal float @odyssey.exp.f4(float %x0) alwaysinline" in text
    assert formula_symbol("lgamma", "f8") is None
