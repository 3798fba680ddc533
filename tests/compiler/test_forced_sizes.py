"""Small programs that take the ways of large ones give what they are written to give."""

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.machine.jit import unavailable_reason
from support.bounded import within_bounds
from support.cases import EVERY, every_row
from support.chosen import BY_ROW, DERIVED, FLOATS, ONE, picked, some_rows
from support.compiled_programs import run
from support.compiled_rows import check, derivatives, forward, outcome, plain
from support.forced import CHOICES, forced
from support.programs import seeded
from support.seeds import SEED
from support.stated_steps import StatedStep

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))

DTYPES = ("float16", "float32", "complex128", "int64", "uint8", "bool", "float64", "complex64")
# Units of rounding, of numbers of about 1, some dozen steps after they were.
UNITS = 1 << 14


def same_as_written(seed, dtype):
    """Compare a step over states eagerly and compiled; tell how often that was native."""
    one, other = StatedStep(seed, dtype), StatedStep(seed, dtype)
    with forced(seed):
        compiled = od.compile(other.step)
        for k in range(4):
            args = one.arguments(10 * seed + k)
            for memory, copy in zip(one.memories, other.memories, strict=True):
                copy[...] = memory
            for v, w in zip(one.variables, other.variables, strict=True):
                w.assign(v)
            wanted, error = outcome(one.step, args)
            got, its_error = outcome(compiled, args)
            assert error == its_error, one.source
            if error is not None:
                return 0
            pairs = zip((*wanted, *one.variables), (*got, *other.variables), strict=True)
            pairs = [(plain(a), plain(b)) for a, b in pairs]
            pairs += zip(one.memories, other.memories, strict=True)
            for a, b in pairs:
                bound = UNITS * np.finfo(dtype).eps * max(1.0, np.abs(a).max(initial=0.0))
                np.testing.assert_allclose(b, a, rtol=0, atol=bound, err_msg=one.source)
    return compiled.statistics().native


def holds(name, seed, made=forward):
    """Raise AssertionError unless a sample is the same whatever sizes the compiler goes by."""
    with np.errstate(all="ignore"):
        dtype = DTYPES[seed % len(DTYPES)] if made is forward else picked(name, FLOATS)
        fn, calls = made(*EVERY[name], dtype)
        if outcome(fn, calls[0])[1] is None:
            with forced(seed):
                check(fn, calls, what=(name, dtype, seed))


@pytest.mark.slow
def test_steps_over_states_that_lie_in_any_way_are_as_written():
    native = [same_as_written(seed, "float64") for seed in range(8)]
    assert sum(count > 0 for count in native) > 4


@pytest.mark.slow
def test_random_steps_are_as_written_whatever_sizes_the_compiler_goes_by():
    for seed in range(2):
        with forced(seed), within_bounds():
            run(seeded(seed, 60), seed)


@some_rows
def test_a_row_is_the_same_in_any_dtype_whatever_sizes_the_compiler_goes_by(row):
    holds(ONE[row.name], len(row.name))


def test_each_constant_is_there_and_is_put_back():
    before = {key: getattr(*key) for each in CHOICES.values() for one in each for key in one}
    with forced(0):
        changed = [key for key, value in before.items() if getattr(*key) is not value]
    assert len(changed) > 12
    assert all(getattr(*key) is value for key, value in before.items())


# ------------------------------------------------------------------ in soaks


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_60_steps_over_states_are_as_written(dtype):
    for seed in range(60):
        same_as_written(SEED + 1000 + seed, dtype)


@pytest.mark.soak
@pytest.mark.parametrize("twenty", range(2))
def test_40_random_steps_are_as_written_whatever_sizes_the_compiler_goes_by(twenty):
    for seed in range(SEED + 2000 + 20 * twenty, SEED + 2020 + 20 * twenty):
        with forced(seed):
            run(seeded(seed, 120), seed, dtype=[np.float64, np.float32][seed % 2])


@pytest.mark.soak
@every_row
def test_samples_are_the_same_whatever_sizes_the_compiler_goes_by(row):
    for name in list(BY_ROW[row.name])[:1]:
        holds(name, len(row.name))
    for name in DERIVED[row.name][:1]:
        holds(name, 7, derivatives)
