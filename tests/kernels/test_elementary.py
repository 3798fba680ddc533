"""Functions without branches: their errors in units in the last place, and special values."""

import importlib.util

import mpmath
import numpy as np
import pytest

from odyssey.kernels.elementary import BOUNDS, fast
from odyssey.kernels.loops import Loop

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba, which compiles loops, is missing"
)
every_function = pytest.mark.parametrize("name", list(BOUNDS))
REFERENCES = {  # what mpmath 1.3 lacks
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
}
both = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])


def computed(name, x):
    function = fast(x.dtype)[name]

    def run(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    out = np.empty_like(x)
    Loop(run)(x, out)
    return out


def arguments(name, dtype, count):
    """Any bits, and numbers of the sizes at which a function does something."""
    rng = np.random.default_rng(0)
    whole = np.int32 if dtype is np.float32 else np.int64
    bits = rng.integers(np.iinfo(whole).min, np.iinfo(whole).max, count, dtype=whole).view(dtype)
    sizes = 10.0 ** rng.uniform(-8, 2.85, count)
    near = 1 + rng.normal(size=count // 4) * 1e-3
    x = np.concatenate([bits, rng.normal(size=count), sizes, -sizes, near]).astype(dtype)
    x = x[np.isfinite(x)]
    if name == "erfc":
        return np.minimum(x, 1e5)  # beyond, mpmath has no answer, and this is 0
    if name in ("log", "log2", "log10"):
        return np.abs(x[x != 0])
    return x[x > -1] if name == "log1p" else x


@pytest.mark.slow
@pytest.mark.share(10)
@both
@every_function
def test_errors_lie_within_the_bounds_that_are_stated(name, dtype):
    x = arguments(name, dtype, 300)
    limits = np.finfo(dtype)
    reference = REFERENCES.get(name) or getattr(mpmath, name)
    with mpmath.workprec(160):
        for number, got in zip(x, computed(name, x), strict=True):
            exact = reference(mpmath.mpf(float(number)))
            size = abs(exact)
            if size > float(limits.max):
                # The halfway to the next number, which there is none of, may round either way.
                assert np.isinf(got) or size < float(limits.max) * (1 + float(limits.eps)), number
                continue
            normal = size >= float(limits.tiny)
            unit = (
                float(np.spacing(dtype(float(size))))
                if normal
                else 2.0 * float(limits.smallest_subnormal)
            )
            assert abs(mpmath.mpf(float(got)) - exact) <= BOUNDS[name] * unit, (number, got)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan]
WANTED = {
    "exp2": [1, 1, np.inf, 0, np.nan],
    "log2": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
    "log10": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
    "exp": [1, 1, np.inf, 0, np.nan],
    "expm1": [0.0, -0.0, np.inf, -1, np.nan],
    "log": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
    "log1p": [0.0, -0.0, np.inf, np.nan, np.nan],
    "tanh": [0.0, -0.0, 1, -1, np.nan],
    "erf": [0.0, -0.0, 1, -1, np.nan],
    "erfc": [1, 1, 0, 2, np.nan],
}


@pytest.mark.slow
@pytest.mark.share(10)
@both
@every_function
def test_special_values_are_those_of_ieee(name, dtype):
    got = computed(name, np.array(SPECIAL, dtype))
    wanted = np.array(WANTED[name], dtype)
    np.testing.assert_array_equal(got, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


@pytest.mark.slow
@pytest.mark.share(2, rest="slow")
@both
def test_logarithms_of_what_they_have_no_value_for(dtype):
    np.testing.assert_array_equal(computed("log", np.array([-1.0, -1e-40], dtype)), np.nan)
    np.testing.assert_array_equal(computed("log1p", np.array([-1.0], dtype)), -np.inf)
    np.testing.assert_array_equal(computed("log1p", np.array([-1.5], dtype)), np.nan)
