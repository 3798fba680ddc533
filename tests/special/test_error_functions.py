"""Few numbers take Python's error functions, many a series: both are right, at every size."""

import math

import mpmath
import numpy as np
import pytest

from odyssey import ops
from odyssey.special.error_functions import SCALAR_LOOP_SIZE

BOUNDS = {"erf": 1.5, "erfc": 6.0}
SIZES = {"one": 1, "few": SCALAR_LOOP_SIZE, "many": SCALAR_LOOP_SIZE + 1}


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", ["erf", "erfc"])
@pytest.mark.parametrize("count", SIZES.values(), ids=SIZES)
def test_both_ways_keep_to_the_stated_bound(name, kind, count):
    x = np.linspace(-5.0, 8.0, count).astype(kind)
    found, exact = getattr(ops, name)(x), getattr(mpmath, name)
    assert found.dtype == x.dtype
    with mpmath.workdps(40):
        for value, wanted in zip(found.tolist(), map(exact, x.tolist()), strict=True):
            ulp = float(np.spacing(np.abs(np.array(float(wanted), kind))))
            assert abs(mpmath.mpf(value) - wanted) <= BOUNDS[name] * ulp


@pytest.mark.parametrize("name", ["erf", "erfc"])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g", "i4"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3), (30, 20)], ids=str)
def test_results_have_the_shape_and_own_their_memory(name, kind, shape):
    x = np.ones(shape, kind)[()]
    found = getattr(ops, name)(x)
    assert found.shape == shape
    assert found.dtype == (np.float64 if kind == "i4" else x.dtype)
    assert shape == () or found.flags.owndata
    wanted = getattr(math, name)(1.0)
    assert np.allclose(found.astype(float), wanted, rtol=1e-3 if kind == "f2" else 1e-6)


@pytest.mark.parametrize("count", [1, SCALAR_LOOP_SIZE + 1])
def test_infinities_nan_and_what_underflows_are_as_ieee_has_them(count):
    for value, erf, erfc in (
        (math.inf, 1.0, 0.0),
        (-math.inf, -1.0, 2.0),
        (math.nan, math.nan, math.nan),
        (1e300, 1.0, 0.0),
        (-0.0, -0.0, 1.0),
    ):
        x = np.full(count, value)
        for found, wanted in ((ops.erf(x), erf), (ops.erfc(x), erfc)):
            assert np.array_equal(found, np.full(count, wanted), equal_nan=True)
            assert math.isnan(wanted) or (np.signbit(found) == np.signbit(wanted)).all()


def test_gelu_of_few_numbers_in_single_precision_is_rounded_twice_and_no_more():
    x = np.linspace(-12.5, 6.0, SCALAR_LOOP_SIZE).astype(np.float32)
    found = ops.gelu(x)
    assert found.dtype == np.float32
    with mpmath.workdps(40):
        for value, number in zip(found.tolist(), x.tolist(), strict=True):
            wanted = number * mpmath.ncdf(number)
            ulp = float(np.spacing(np.abs(np.float32(wanted))))
            assert abs(mpmath.mpf(value) - wanted) <= 1.5 * ulp
