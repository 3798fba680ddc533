"""Eager products with a large matrix of half precision, which is cast in blocks."""

import tracemalloc

import numpy as np
import pytest

from odyssey import ops
from odyssey.errors import ShapeError
from odyssey.kernels import half_products

pytest.importorskip("ml_dtypes", reason="ml_dtypes, which has bfloat16, is missing")

RNG = np.random.default_rng(0)
HALVES = ("float16", "bfloat16")
LAYOUTS = {
    "rows first": lambda w: w,
    "columns first": lambda w: np.ascontiguousarray(w.T).T,
    "every other column": lambda w: np.repeat(w, 2, axis=1)[:, ::2],
    "rows reversed": lambda w: np.ascontiguousarray(w[::-1])[::-1],
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Matrices of some thousand elements have several blocks."""
    monkeypatch.setattr(half_products, "_BLOCK", 1 << 9)
    monkeypatch.setattr(half_products, "_BLOCK_OF_MANY", 1 << 10)


def drawn(*shape):
    """Standard normal numbers in float32."""
    return RNG.standard_normal(shape).astype("f4")


def assert_close(got, x, w):
    """Raise AssertionError unless a product has the error of sums in float32."""
    wanted = x.astype("f8") @ w.astype("f8")
    size = np.abs(x).astype("f8") @ np.abs(w).astype("f8")
    assert got.shape == wanted.shape
    assert np.all(np.abs(got - wanted) <= 16 * np.finfo("f4").eps * size)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(60,), (1, 60), (3, 60), (70, 60), (2, 5, 60), (0, 60)], ids=str)
def test_rows_times_a_matrix_of_half_precision(small_blocks, shape, layout, half):
    x, w = drawn(*shape), LAYOUTS[layout](ops.astype(drawn(60, 97), half))
    got = ops.matmul(x, w)
    assert got.dtype == np.float32
    assert_close(got, x, w)
    if w.T.shape == (97, 60):
        assert_close(ops.linear(x, w.T), x, w)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(97,), (97, 1), (97, 40)], ids=str)
def test_a_matrix_of_half_precision_times_columns(small_blocks, shape, layout, half):
    w, x = LAYOUTS[layout](ops.astype(drawn(60, 97), half)), drawn(*shape)
    got = ops.matmul(w, x)
    assert got.dtype == np.float32
    assert_close(got, w, x)


@pytest.mark.parametrize("half", HALVES)
def test_halves_times_halves_and_a_bias_are_rounded_once(small_blocks, half):
    x, w, b = (ops.astype(drawn(*shape), half) for shape in ((4, 60), (97, 60), (97,)))
    got = ops.linear(x, w, b)
    assert got.dtype == x.dtype
    wanted = x.astype("f8") @ w.T.astype("f8") + b.astype("f8")
    eps = 2.0**-11 if half == "float16" else 2.0**-8
    size = np.abs(x).astype("f8") @ np.abs(w.T).astype("f8")
    assert np.all(np.abs(got.astype("f8") - wanted) <= eps * np.abs(wanted) + 2e-6 * size)
    wide = ops.linear(x.astype("f4"), w, drawn(97) * 0)
    assert wide.dtype == np.float32
    assert_close(wide, x, w.T)


def test_special_numbers_are_those_of_numpy(small_blocks):
    x, w = drawn(2, 60), ops.astype(drawn(60, 97), "bfloat16")
    x[0, 3], w[3, 4], w[7, 9], x[1, 8] = 0.0, np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(ops.matmul(x, w), x @ w.astype("f4"), rtol=1e-4, atol=1e-4)


def test_shapes_that_do_not_fit_are_refused_as_ever(small_blocks):
    w = ops.astype(drawn(60, 97), "float16")
    with pytest.raises(ShapeError, match="inner sizes differ"):
        ops.matmul(drawn(3, 61), w)
    with pytest.raises(ShapeError, match="bias"):
        ops.linear(drawn(3, 97), w, drawn(61))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", ["linear", "rows", "columns", "along"])
def test_no_float32_copy_of_the_matrix_is_made(kind, half):
    w = ops.astype(drawn(2000, 1500), half)
    calls = {
        "linear": lambda: ops.linear(np.ones((2, 1500), "f4"), w),
        "rows": lambda: ops.matmul(np.ones((2, 2000), "f4"), w),
        "columns": lambda: ops.matmul(w, np.ones((1500, 2), "f4")),
        "along": lambda: ops.matmul(np.ones((2, 1500), "f4"), w.T),
    }
    calls[kind]()
    tracemalloc.start()
    calls[kind]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # the matrix has 12 MB in float32
