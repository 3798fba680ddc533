"""Running folds, products and scattered sums by compiled loops: NumPy's numbers, bit for bit."""

import importlib.util
import math
from fractions import Fraction

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError, OutOfRangeError
from odyssey.ops import OPS
from odyssey.spec import Spec

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("numba"), reason="numba, which compiles kernels, is missing"
)
RNG = np.random.default_rng(0)
SHAPES = [((9, 7), 1), ((9, 7), 0), ((3, 4, 5), 1), ((17,), 0), ((8, 1), 1), ((1, 5), 0)]


def compiled(name):
    return OPS[name].kernels[0].run


def special(shape, dtype):
    choices = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0, 1e-30]
    return RNG.choice(choices, shape, p=[0.05, 0.05, 0.02, 0.02, 0.02, 0.4, 0.4, 0.04]).astype(
        dtype
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_running_folds_have_the_bits_of_numpy(shape, axis, dtype):
    for x in (RNG.normal(size=shape).astype(dtype), special(shape, dtype)):
        with np.errstate(all="ignore"):
            for name in ("cumsum", "cumprod", "reverse_cumsum"):
                wanted = OPS[name].reference(x, axis)
                got = compiled(name)(x, axis)
                np.testing.assert_array_equal(got.view(f"i{x.itemsize}"), bits(wanted, got))
            factors = RNG.permutation(x.reshape(-1)).reshape(shape)
            for reverse in (False, True):
                wanted = OPS["linear_recurrence"].reference(x, factors, axis, reverse)
                got = compiled("linear_recurrence")(x, factors, axis, reverse)
                np.testing.assert_array_equal(got, wanted)


def bits(wanted, got):
    """Of what was wanted; a NaN has the bits of any other."""
    same = np.where(np.isnan(wanted) & np.isnan(got), got, wanted)
    return same.view(f"i{same.itemsize}")


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 23])
def test_the_products_of_the_others_are_exact_with_zeros(n):
    for zeros in (0, 1, 2):
        x = RNG.integers(1, 4, size=(3, n)).astype(float)
        x[1, : min(zeros, n)] = 0
        wanted = np.array([[np.prod(np.delete(row, k)) for k in range(n)] for row in x])
        np.testing.assert_array_equal(compiled("prod_others")(x, 1), wanted.reshape(3, n))
        np.testing.assert_array_equal(
            compiled("prod_others")(x.T.copy(), 0), wanted.reshape(3, n).T
        )
        np.testing.assert_array_equal(compiled("prod")(x, 1, False), np.prod(x, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_partial_products_of_a_lane_may_leave_the_range(dtype):
    large = np.finfo(dtype).max ** 0.75
    x = np.tile(np.array([large, 1 / large], dtype), (3, 32))
    x[1, 5] = 0
    x[2, 1::2] = np.inf
    with np.errstate(all="ignore"):
        got = compiled("prod")(x, 1, False)
        np.testing.assert_array_equal(got, np.prod(x, 1))
    np.testing.assert_allclose(got[:2], [1, 0], 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_others_may_leave_the_range_on_the_way(dtype, axis):
    large = np.finfo(dtype).max ** 0.3
    x = np.tile(np.repeat(np.array([large, 1 / large], dtype), 32), (4, 1))
    x[2:] = x[2, ::-1]
    others = 1 / x[[1, 3], 40]
    x[[1, 3], 40] = 0
    x = x if axis else x.T.copy()
    with np.errstate(all="ignore"):
        got = compiled("prod_others")(x, axis)
    got, lines = (got, x) if axis else (got.T, x.T)
    np.testing.assert_allclose(got[[0, 2]], 1 / lines[[0, 2]], rtol=1e-4)
    assert np.flatnonzero(got[1]).tolist() == np.flatnonzero(got[3]).tolist() == [40]
    np.testing.assert_allclose(got[[1, 3], 40], others, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 15, 16, 17, 40])
def test_each_product_of_others_is_rounded_once_a_factor(n, dtype):
    x = RNG.uniform(0.5, 2, (5, n)).astype(dtype)
    for axis, lines in ((1, x), (0, x.T.copy())):
        got = compiled("prod_others")(lines, axis)
        for row, found in zip(x, got if axis else got.T, strict=True):
            for k in range(n):
                exact = math.prod(map(Fraction, np.delete(row, k).tolist()), start=Fraction(1))
                assert abs(Fraction(float(found[k])) / exact - 1) <= n * np.finfo(dtype).eps


@pytest.mark.slow
def test_a_running_place_takes_the_only_axis_that_none_means():
    x = RNG.normal(size=9)
    for name in ("running_argmax", "running_argmin"):
        np.testing.assert_array_equal(compiled(name)(x, None), compiled(name)(x, 0))


def scattered(x, places, shape):
    out = np.zeros(shape)
    for place, number in zip(places, x, strict=True):
        out[place] += number
    return out


def test_repeats_add_up_in_their_order():
    x = RNG.normal(size=(50, 3)) * 10.0 ** RNG.integers(-8, 8, size=(50, 3))
    places = RNG.integers(-4, 4, 50)
    spec = Spec((4, 3), x.dtype)
    got = compiled("add_taken")(x, places, 0, "raise", spec)
    np.testing.assert_array_equal(got, scattered(x, places, (4, 3)))
    flat = compiled("add_taken")(x[:, 0], places, 0, "raise", Spec((4,), x.dtype))
    np.testing.assert_array_equal(flat, scattered(x[:, 0], places, (4,)))


@pytest.mark.parametrize("place", [4, -5])
def test_an_index_that_there_is_not_is_refused_as_numpy_does(place):
    places = np.zeros((400, 30), int)
    places[7, 5] = place
    x = np.ones((400, 4))
    match = f"index {place} is out of bounds"
    with ops.use_kernels():
        with pytest.raises(OdysseyError, match=match):
            ops.take_along_axis(x, places, 1)
        spec = Spec((400, 4), x.dtype)
        with pytest.raises(OdysseyError, match=match):
            ops.add_along_axis(np.ones((400, 30)), places, axis=1, spec=spec)
        with pytest.raises(OdysseyError, match=match):
            ops.add_taken(np.ones(30), places[7], axis=0, spec=Spec((4,), x.dtype))
        with pytest.raises(OdysseyError, match="does not fit"):
            ops.cumsum(x, 2)


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("shape", [(0, 4), (0, 0), (3, 0, 0)], ids=str)
def test_what_was_taken_of_nothing_goes_back_as_nothing(shape, mode, device):
    w = Variable(np.zeros(shape), requires_grad=True)
    with ops.use_kernels(device):
        with GradientTape() as tape:
            out = ops.take(w, np.array([[1, 0], [2, -3]]), axis=-1, mode=mode)
        assert tape.gradient(out, w, np.ones(out.shape)).shape == shape


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_an_unsigned_index_is_never_counted_from_the_end(device):
    places = np.array([[2**64 - 1], [0]], np.uint64)
    with ops.use_kernels(device), pytest.raises(OutOfRangeError, match="18446744073709551615"):
        ops.take_along_axis(np.ones((2, 3)), places, axis=1)
