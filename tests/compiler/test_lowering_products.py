"""Products, windows and random numbers in native programs."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.native_dispatch.entry import RAN
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)


def whole(fn, *args):
    """What a program without calls gives."""
    answer, got, made = run(fn, *args)
    assert answer == RAN
    assert not made.calls
    return got


# ------------------------------------------------------------------ random numbers

STATES = [[1, 2, 3], [2**64 - 1, 2**63, 2**64 - 1], [0, 0, 0], [5, 6, 2**64 - 2]]


@pytest.mark.parametrize("words", STATES, ids=str)
@pytest.mark.parametrize("count", [1, 3, 4, 5, 17, 100])
def test_random_numbers_are_those_of_numpys_philox(count, words):
    state = np.array(words, np.uint64)
    first = (words[2] - 1) % 2**256
    counter = np.frombuffer(first.to_bytes(32, "little"), "<u8")
    raw = np.random.Philox(counter=counter, key=state[:2]).random_raw(count)
    for dtype, digits in ((np.float64, 53), (np.float32, 24)):
        (got,) = whole(lambda s, d=dtype: ops.philox_uniform(s, shape=(count,), dtype=d), state)
        wanted = (raw >> np.uint64(64 - digits)).astype(dtype) * dtype(2.0**-digits)
        np.testing.assert_array_equal(got, wanted)


def test_what_is_dropped_is_what_an_eager_call_drops():
    x, state = RNG.normal(size=(33, 17)), np.array([7, 8, 9], np.uint64)

    def fn(x, s):
        return ops.philox_dropout(x, s, rate=0.3)

    (got,) = whole(fn, x, state)
    np.testing.assert_array_equal(got, fn(x, state))


# ------------------------------------------------------------------ products

SUBSCRIPTS = {
    "ab,bc->ac": ((3, 4), (4, 5)),
    "abc,cad->bda": ((2, 3, 4), (4, 2, 5)),
    "abc,ba->c": ((2, 3, 4), (3, 2)),
    "ab,cba->bc": ((2, 3), (4, 3, 2)),
    "a,b->ba": ((2,), (3,)),
    "ab,ab->": ((3, 4), (3, 4)),
    "abcd,dcbe->abe": ((2, 3, 4, 5), (5, 4, 3, 2)),
    ",ab->ba": ((), (2, 3)),
    "ab,bc->a": ((2, 0), (0, 3)),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize("text", SUBSCRIPTS)
def test_contractions_are_those_of_numpy(text, dtype):
    x, y = (np.asarray(RNG.normal(size=s) * 9).astype(dtype) for s in SUBSCRIPTS[text])
    (got,) = whole(lambda x, y: od.linalg.einsum(text, x, y), x, y)
    wanted = np.einsum(text, x.astype(np.float64), y.astype(np.float64))
    assert got.dtype == dtype
    bound = 0.0 if dtype == "i8" else 64 * np.finfo(dtype).eps * 81
    np.testing.assert_allclose(got, wanted, rtol=0, atol=bound)


# ------------------------------------------------------------------ windows

WINDOWS = [
    {"window": (2, 3)},
    {"window": 2, "stride": (2, 1), "padding": 1, "dilation": (1, 2)},
    {"window": 3, "stride": 3, "padding": ((2, 0), (0, 1))},
    {"window": 1, "stride": 4},
    {"window": (5, 1), "padding": 2, "stride": 2},
]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
def test_windows_and_their_sums_are_those_of_the_kernels(options):
    # Whole numbers, whose sums are exact in any order.
    x = RNG.integers(-9, 9, (2, 3, 6, 5)).astype(float)

    def columns(x):
        return ops.unfold(x, **options)

    (found,) = whole(columns, x)
    np.testing.assert_array_equal(found, columns(x))

    def images(c):
        return ops.fold(c, size=(6, 5), **options)

    (back,) = whole(images, found)
    np.testing.assert_array_equal(back, images(found))


@pytest.mark.parametrize("options", [{}, {"padding": 1}, {"stride": 2, "groups": 2}], ids=str)
def test_convolutions_and_their_derivatives_are_native(options):
    x = RNG.integers(-4, 4, (2, 4, 6, 5)).astype(float)
    weight = RNG.integers(-4, 4, (6, 4 // options.get("groups", 1), 3, 2)).astype(float)

    def fn(x, w):
        return od.grad(lambda x, w: ops.sum(ops.conv2d(x, w, **options) ** 2), argnums=(0, 1))(x, w)

    for a, b in zip(whole(fn, x, weight), fn(x, weight), strict=True):
        np.testing.assert_array_equal(a, b)


POOLS = [
    {"window": 2},
    {"window": (3, 2), "stride": (2, 1), "padding": (1, 0)},
    {"window": 2, "stride": 3},
    {"window": 2, "stride": 1, "dilation": 2},
    {"window": 3, "stride": 2, "ceil_mode": True},
    {"window": (5, 4)},
]


@pytest.mark.parametrize("options", POOLS, ids=str)
def test_the_largest_of_windows_has_the_gradient(options):
    x = RNG.integers(0, 4, (2, 3, 6, 5)).astype(float)
    x[0, 0, 2, 3] = x[1, 2, 0, 0] = x[1, 2, 0, 1] = np.nan

    def fn(x):
        out = ops.max_pool2d(x, **options)
        return out, od.grad(lambda x: ops.sum(ops.max_pool2d(x, **options) * 6))(x)

    for got, wanted in zip(whole(fn, x), fn(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=4e-16)


def test_windows_that_lie_apart_are_pooled_without_places():
    x = RNG.normal(size=(2, 3, 8, 8)).astype("f4")
    _, _, made = run(lambda x: od.grad(lambda x: ops.sum(ops.max_pool2d(x, window=2)))(x), x)
    kinds = {n.kind for n in made.plan.fused.order}
    assert not kinds & {"gather", "scatter"}


@pytest.mark.parametrize("shape", [(3, 40), (2, 3, 40), (1, 5), (7,)], ids=str)
def test_products_with_ones_are_sums(shape):
    x = RNG.integers(-9, 9, shape).astype("f4")
    column = np.ones((shape[-1], 1), "f4")
    answer, got, made = run(lambda x: ops.matmul(x, np.ones(shape[-1], "f4")), x)
    assert answer == RAN
    assert "product" not in {k.kind for k in made.plan.fused.kernels}
    np.testing.assert_array_equal(got[0], x.sum(-1))
    (got,) = whole(lambda x: ops.matmul(x, column), x)
    np.testing.assert_array_equal(got, x.sum(-1, keepdims=True))
