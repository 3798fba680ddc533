"""What kernels ask of data, programs ask too: where it does not hold, they do nothing."""

import numpy as np
import pytest

import odyssey as od
from odyssey import losses, ops
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, RAN
from odyssey.errors import OdysseyError
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

SCORES = np.random.default_rng(0).normal(size=(4, 3))
SIGNS = np.array([1.0, -1.0, 1.0, 1.0])
COLUMN = SCORES[:, 0].copy()
BY_CLASS = {
    "cross_entropy": losses.cross_entropy,
    "cross_entropy, sum": lambda x, t: losses.cross_entropy(x, t, reduction="sum"),
    "cross_entropy, smoothed": lambda x, t: losses.cross_entropy(x, t, label_smoothing=0.1),
    "nll": losses.nll,
    "multi_margin": losses.multi_margin,
    "slope": od.grad(losses.cross_entropy),
    "mass": lambda x, t: od.grad(lambda y: ops.sum(od.grad(losses.cross_entropy)(y, t) ** 2))(x),
}
DTYPES = ["int64", "int8", "uint8", "uint64"]


def refuses(fn, *args):
    """Whether an eager call raises, and whether a program refuses."""
    try:
        wanted = fn(*args)
    except OdysseyError:
        wanted = None
    answer, (got,), _ = run(fn, *args)
    assert (answer == CHECK_FAILED) == (wanted is None)
    if wanted is not None:
        assert answer == RAN
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    return wanted is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fn", BY_CLASS.values(), ids=BY_CLASS)
def test_a_class_that_there_is_not_is_refused(fn, dtype):
    assert not refuses(fn, SCORES, np.array([0, 2, 1, 1], dtype))
    assert refuses(fn, SCORES, np.array([0, 3, 1, 1], dtype))
    assert refuses(fn, SCORES, np.array([0, 2, 1, 127], dtype))
    if dtype[0] == "i":
        assert refuses(fn, SCORES, np.array([0, 2, -1, 1], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fn", [losses.cross_entropy, losses.nll], ids=["cross_entropy", "nll"])
def test_a_class_that_is_ignored_need_not_be_there(fn, dtype):
    def ignoring(number):
        return lambda x, t: fn(x, t, ignore_index=number)

    targets = np.array([0, 2, 100, 1], dtype)
    assert not refuses(ignoring(100), SCORES, targets)
    assert refuses(ignoring(99), SCORES, targets)
    assert refuses(ignoring(-1), SCORES, targets)


MARKED = {
    "hinge": losses.hinge,
    "soft_margin": losses.soft_margin,
    "hinge_embedding": losses.hinge_embedding,
}


@pytest.mark.parametrize("fn", MARKED.values(), ids=MARKED)
def test_marks_other_than_one_and_minus_one_are_refused(fn):
    assert not refuses(fn, COLUMN, SIGNS)
    for other in (0.0, 2.0, np.nan):
        assert refuses(fn, COLUMN, np.array([1.0, other, 1.0, -1.0]))


def test_negative_variances_are_refused_and_nan_is_not():
    def fn(x, v):
        return losses.gaussian_nll(x, np.zeros(4), v)

    assert not refuses(fn, COLUMN, np.abs(COLUMN))
    assert not refuses(fn, COLUMN, np.array([1.0, np.nan, 0.0, 2.0]))
    assert refuses(fn, COLUMN, np.array([1.0, -1e-300, 0.0, 2.0]))


def test_nothing_is_asked_of_probabilities_nor_of_no_classes():
    shares = np.full((4, 3), 1 / 3)
    assert not refuses(losses.cross_entropy, SCORES, shares)
    none = SCORES[:0], np.zeros(0, int)
    assert not refuses(lambda x, t: losses.cross_entropy(x, t, reduction="sum"), *none)


@pytest.mark.parametrize("number", [-1, 255, 256, 300, -(2**40)])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "int64", "bool"])
def test_a_number_that_a_dtype_does_not_have_is_compared_as_it_is(dtype, number):
    def fn(x):
        return [
            compare(*pair)
            for compare in (ops.equal, ops.less, ops.greater_equal, ops.not_equal)
            for pair in ((x, number), (number, x))
        ]

    x = np.array([0, 1, 255, 127, 200]).astype(dtype)
    answer, found, _ = run(fn, x)
    assert answer == RAN
    for got, wanted in zip(found, fn(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "fn", [ops.softmax, ops.log_softmax, ops.logsumexp, lambda x: od.nn.rms_norm(x, np.ones(3))]
)
def test_whole_numbers_are_floating_before_they_overflow(fn):
    x = np.array([[2**31 - 1, -5, 2**31 - 2], [-(2**31), 0, 3]], np.int32)
    answer, (got,), _ = run(fn, x)
    assert answer == RAN
    wanted = fn(x.astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
    np.testing.assert_allclose(fn(x), wanted, rtol=1e-14)


def test_powers_of_whole_numbers_that_are_not_known_before_raise_as_they_do():
    answer, (got,), _ = run(ops.power, np.array([2, -3]), np.array([5, 3]))
    assert answer == RAN
    np.testing.assert_array_equal(got, [32, -27])
    with pytest.raises(ValueError, match="negative integer powers"):
        run(ops.power, np.array([2, -3]), np.array([5, -1]))


@pytest.mark.parametrize("fn", [od.linalg.eigvalsh, od.linalg.svdvals, od.linalg.pinv])
def test_matrices_that_are_not_finite_raise_as_they_do(fn):
    assert run(fn, np.eye(3))[0] == RAN
    with pytest.raises(np.linalg.LinAlgError):
        run(fn, np.full((3, 3), np.nan))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool", "float32"])
def test_reciprocals_of_integers_are_those_of_numpy_also_at_zero(dtype):
    x = np.array([0, 1, 2, 3, 1, 0]).astype(dtype)
    answer, (got,), made = run(ops.reciprocal, x)
    assert answer == RAN
    assert not made.calls
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.reciprocal(x)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype
