"""Compiled products of few rows: sums along rows, BLAS for vectors, or tiles that read once."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.passes import row_products
from support.executables import run

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def threads_are_unset():
    yield
    od.set_threads(None)


def drawn(*shape, dtype="f4"):
    """Standard normal numbers."""
    return RNG.standard_normal(shape).astype(dtype)


def assert_close(got, x, y, factor=16.0):
    """Raise AssertionError unless a product has the error of sums in about its precision."""
    wanted = x.astype("f8") @ y.astype("f8")
    size = np.abs(x).astype("f8") @ np.abs(y).astype("f8")
    eps = np.finfo(got.dtype).eps
    assert got.shape == wanted.shape
    assert np.all(np.abs(got - wanted) <= factor * eps * size)


def kinds(made):
    """The kinds of a program's kernels."""
    return [kernel.kind for kernel in made.plan.fused.kernels]


SHAPES = {
    "a row": ((1, 40), (30, 40)),
    "a vector": ((40,), (30, 40)),
    "a long row": ((1, 1500), (7, 1500)),
    "rows of a batch": ((3, 1, 40), (3, 30, 40)),
    "rows of two batches": ((2, 3, 1, 20), (2, 3, 9, 20)),
    "one row for a batch": ((1, 40), (3, 30, 40)),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", SHAPES)
def test_a_row_times_a_matrix_that_lies_along_the_inner_axis_is_a_loop(kind, dtype):
    x, w = (drawn(*shape, dtype=dtype) for shape in SHAPES[kind])
    _, (got,), made = run(lambda x, w: x @ ops.matrix_transpose(w), x, w)
    assert kinds(made) == ["loops"]
    assert_close(got, x, np.swapaxes(w, -1, -2))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(30, 1), (30,)], ids=str)
def test_a_matrix_times_a_column_is_a_loop(shape, dtype):
    w, x = drawn(70, 30, dtype=dtype), drawn(*shape, dtype=dtype)
    _, (got,), made = run(lambda w, x: w @ x, w, x)
    assert kinds(made) == ["loops"]
    assert_close(got, w, x)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_row_times_a_matrix_that_lies_across_calls_blas_for_vectors(dtype):
    x, w = drawn(1, 60, dtype=dtype), drawn(60, 90, dtype=dtype)
    _, (got,), made = run(lambda x, w: x @ w, x, w)
    assert kinds(made) == ["product"]
    letter = "s" if dtype == "f4" else "d"
    assert f"call void @ody_{letter}gemv" in made.module.text
    assert f"call void @ody_{letter}gemm" not in made.module.text
    assert_close(got, x, w)


def test_a_bias_and_a_residual_are_added_in_the_loop_of_the_product():
    x, w, b = drawn(1, 50), drawn(40, 50), drawn(40)

    def layer(x, w, b, r):
        return ops.linear(x, w, b) * 2.0 + r

    r = drawn(1, 40)
    _, (got,), made = run(layer, x, w, b, r)
    assert kinds(made) == ["loops"]
    np.testing.assert_allclose(got, (x @ w.T + b) * 2 + r, rtol=1e-4, atol=1e-4)


def test_a_function_of_a_product_is_a_loop_of_its_own_which_has_vectors():
    x, w = drawn(1, 50), drawn(40, 50)
    _, (got,), made = run(lambda x, w: ops.tanh(x @ w.T), x, w)
    assert kinds(made) == ["loops", "loops"]
    np.testing.assert_allclose(got, np.tanh(x @ w.T), rtol=1e-4, atol=1e-5)


def test_short_sums_stay_products():
    _, _, made = run(lambda x, w: x @ w.T, drawn(1, 8), drawn(8, 8))
    assert kinds(made) == ["product"]


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("turned", [True, False], ids=["along", "across"])
def test_special_numbers_times_zero_are_not_a_number_as_in_numpy(turned, special):
    x, w = drawn(1, 40), drawn(40, 30)
    w[7, 3], x[0, 7], w[11, 20], x[0, 12] = special, 0.0, special, np.inf
    w[12, 5], w[12, 6] = 0.0, -np.inf
    given = np.ascontiguousarray(w.T) if turned else w
    with np.errstate(all="ignore"):
        _, (got,), _ = run(lambda x, w: x @ (ops.matrix_transpose(w) if turned else w), x, given)
        wanted = (x[0, :, None].astype("f8") * w).sum(0)[None]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    infinite = np.isinf(wanted)
    np.testing.assert_array_equal(got[infinite], wanted[infinite])


@pytest.mark.parametrize("turned", [True, False], ids=["along", "across"])
def test_gradients_of_a_row_are_right_to_second_order(turned):
    x, w, v = drawn(1, 30, dtype="f8"), drawn(30, 25, dtype="f8"), drawn(1, 30, dtype="f8")
    given = np.ascontiguousarray(w.T) if turned else w

    def loss(x, w):
        return ops.sum(ops.tanh(x @ (ops.matrix_transpose(w) if turned else w)) ** 2)

    def slopes(x, w):
        return od.grad(loss, argnums=(0, 1))(x, w)

    def second(x, w):
        return od.grad(lambda x, w: ops.sum(od.grad(loss)(x, w) * v), argnums=(0, 1))(x, w)

    t = np.tanh(x @ w)
    outer = 2 * t * (1 - t * t)
    dw = x.T @ outer
    _, (gx, gw), _ = run(slopes, x, given)
    np.testing.assert_allclose(gx, outer @ w.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gw, dw.T if turned else dw, rtol=1e-12, atol=1e-12)
    # d/dx of sum(v . (2 t (1 - t^2)) w^T) = ((2 - 8 t^2 + 6 t^4) * (v w)) w^T
    bend = (2 - 8 * t**2 + 6 * t**4) * (v @ w)
    _, (hx, hw), _ = run(second, x, given)
    hw_wanted = x.T @ bend + v.T @ outer
    np.testing.assert_allclose(hx, bend @ w.T, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(hw, hw_wanted.T if turned else hw_wanted, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("turned", [True, False], ids=["along", "across"])
def test_any_number_of_threads_gives_the_same_bits(turned):
    x, w = drawn(1, 300), drawn(300, 2000)
    given = np.ascontiguousarray(w.T) if turned else w
    compiled = od.compile(lambda x, w: x @ (ops.matrix_transpose(w) if turned else w), check=True)
    compiled(x, given)
    found = []
    for count in (1, 2, 3):
        od.set_threads(count)
        found.append(np.asarray(compiled(x, given)))
    assert compiled.statistics().native >= 3
    assert_close(found[0], x, w)
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_a_state_that_is_stored_turned_is_read_along_its_memory():
    x, memory = drawn(1, 40), drawn(30, 40)
    v = od.Variable(memory.T)
    _, (got,), made = run(lambda x: x @ v, x)
    assert not v.data.flags.c_contiguous
    assert kinds(made) == ["loops"]
    assert_close(got, x, memory.T)


def test_one_program_for_all_numbers_of_columns():
    compiled = od.compile(
        lambda x, w: x @ ops.matrix_transpose(w), dynamic={"w": {0: od.Dim("rows")}}, check=True
    )
    x = drawn(1, 64)
    for rows in (50, 51, 80, 333, 17):
        w = drawn(rows, 64)
        assert_close(np.asarray(compiled(x, w)), x, w.T)
    assert compiled.statistics().native >= 2


@pytest.mark.parametrize("shapes", [((1, 0), (600, 0)), ((1, 600), (0, 600))], ids=str)
def test_empty_products_are_zeros_or_empty(shapes):
    x, w = (drawn(*shape) for shape in shapes)
    _, (got,), _ = run(lambda x, w: x @ ops.matrix_transpose(w), x, w)
    np.testing.assert_array_equal(got, x @ w.T)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_matrix_of_half_precision_is_read_as_it_lies_and_summed_in_float32(half):
    pytest.importorskip("ml_dtypes")
    x, w = drawn(1, 300), ops.astype(drawn(400, 300), half)
    _, (got,), made = run(lambda x, w: x @ ops.matrix_transpose(ops.astype(w, "float32")), x, w)
    assert kinds(made) == ["loops"]
    assert made.plan.arena < 1000
    assert_close(got, x, w.astype("f4").T)


# ------------------------------------------------------------------ few rows

VIEWS = {
    "across": lambda w: w,
    "along": lambda w: ops.matrix_transpose(w),
}


def viewed(way, w):
    """A matrix in memory, of which the way shows the values of w."""
    return w if way == "across" else np.ascontiguousarray(np.swapaxes(w, -1, -2))


@pytest.mark.share(8, rest="slow")
@pytest.mark.parametrize("way", VIEWS)
@pytest.mark.parametrize("rows", [2, 3, 5, 8])
def test_few_rows_read_the_matrix_once_and_call_no_library(rows, way):
    for inner, columns, dtype in ((70, 90, "f4"), (67, 5003, "f4"), (4500, 70, "f8")):
        x, w = drawn(rows, inner, dtype=dtype), drawn(inner, columns, dtype=dtype)
        _, (got,), made = run(lambda x, w: x @ VIEWS[way](w), x, viewed(way, w))
        assert kinds(made) == ["product"]
        assert "gemm(" not in made.module.text
        assert_close(got, x, w)


@pytest.mark.parametrize("way", VIEWS)
def test_few_columns_are_few_rows_of_the_transpose(way):
    w, x = drawn(120, 70), drawn(70, 5)
    _, (got,), made = run(lambda w, x: VIEWS[way](w) @ x, viewed(way, w), x)
    assert "gemm(" not in made.module.text
    assert_close(got, w, x)


@pytest.mark.parametrize("way", VIEWS)
def test_batches_of_few_rows_and_products_written_in_any_order_of_axes(way):
    x, w = drawn(3, 4, 80), drawn(3, 80, 70)

    def turned(x, w):
        return ops.matrix_transpose(x @ VIEWS[way](w)) * 1.0

    _, (got,), _ = run(lambda x, w: x @ VIEWS[way](w), x, viewed(way, w))
    assert_close(got, x, w)
    _, (got,), _ = run(turned, x, viewed(way, w))
    assert_close(np.swapaxes(got, -1, -2), x, w)


@pytest.mark.parametrize("way", VIEWS)
def test_few_rows_have_the_same_bits_in_any_number_of_threads(way):
    x, w = drawn(3, 300), drawn(300, 2011)
    given = viewed(way, w)
    compiled = od.compile(lambda x, w: x @ VIEWS[way](w), check=True)
    compiled(x, given)
    found = []
    for count in (None, 1, 2, 3):
        od.set_threads(count)
        found.append(np.asarray(compiled(x, given)))
    assert compiled.statistics().native >= 4
    assert_close(found[0], x, w)
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("rows", [1, 4])
def test_a_product_of_few_rows_is_added_to_a_state_in_place(rows):
    x, w, before = drawn(rows, 90, dtype="f8"), drawn(90, 80, dtype="f8"), drawn(rows, 80)
    v = od.Variable(before.astype("f8"))
    step = od.compile(lambda x, w: v.assign(v * 0.5 + x @ w), check=True)
    wanted = before.astype("f8")
    for _ in range(3):
        step(x, w)
        wanted = wanted * 0.5 + x @ w
    assert step.statistics().native >= 1
    np.testing.assert_allclose(v.numpy(), wanted, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ half precision


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("way", VIEWS)
@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_few_rows_read_a_matrix_of_half_precision_as_it_lies(rows, way, half):
    pytest.importorskip("ml_dtypes")
    x, w = drawn(rows, 75), ops.astype(drawn(75, 530), half)
    _, (got,), made = run(lambda x, w: x @ VIEWS[way](ops.astype(w, "float32")), x, viewed(way, w))
    assert made.plan.arena < 75 * 530
    assert_close(got, x, w.astype("f4"))
    _, (again,), made = run(
        lambda x, w: x @ ops.astype(VIEWS[way](w), "float32"), x, viewed(way, w)
    )
    assert made.plan.arena < 75 * 530
    np.testing.assert_array_equal(again, got)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("way", VIEWS)
def test_few_columns_read_a_matrix_of_half_precision_as_it_lies(way, half):
    pytest.importorskip("ml_dtypes")
    w, x = ops.astype(drawn(530, 75), half), drawn(75, 3)
    _, (got,), made = run(lambda w, x: ops.astype(VIEWS[way](w), "float32") @ x, viewed(way, w), x)
    assert made.plan.arena < 75 * 530
    assert_close(got, w.astype("f4"), x)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_halves_times_halves_are_summed_in_float32_and_rounded_once(half):
    pytest.importorskip("ml_dtypes")
    x, w = ops.astype(drawn(2, 75), half), ops.astype(drawn(75, 530), half)
    _, (got,), made = run(lambda x, w: x @ w, x, w)
    assert got.dtype == x.dtype
    assert made.plan.arena < 75 * 530
    wanted = x.astype("f8") @ w.astype("f8")
    eps = 2.0**-11 if half == "float16" else 2.0**-8
    bound = np.abs(wanted) * eps + 1e-5 * (np.abs(x).astype("f8") @ np.abs(w).astype("f8"))
    assert np.all(np.abs(got.astype("f8") - wanted) <= bound)


def test_gradients_of_a_product_with_a_half_matrix_are_right_both_ways():
    w = ops.astype(drawn(60, 90), "float16")
    x, v = drawn(2, 60), drawn(2, 90)

    def slopes(x, w):
        return od.grad(lambda x, w: ops.sum(x @ ops.astype(w, "float32") * v), argnums=(0, 1))(x, w)

    _, (gx, gw), _ = run(slopes, x, w)
    assert_close(gx, v, w.astype("f4").T)
    assert gw.dtype == np.float16
    np.testing.assert_allclose(gw.astype("f8"), x.T.astype("f8") @ v, rtol=2e-3, atol=1e-3)

    def change(x, w):
        return od.jvp(lambda x: x @ ops.astype(w, "float32"), [x], [x * 2.0])[1]

    _, (t,), _ = run(change, x, w)
    assert_close(t, 2 * x, w.astype("f4"))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("way", VIEWS)
def test_many_rows_cast_a_large_matrix_of_half_precision_in_blocks(way, half, monkeypatch):
    pytest.importorskip("ml_dtypes")
    monkeypatch.setattr(row_products, "_BLOCK", 1 << 12)
    x, w = drawn(2, 9, 100), ops.astype(drawn(100, 530), half)
    _, (got,), made = run(lambda x, w: x @ VIEWS[way](ops.astype(w, "float32")), x, viewed(way, w))
    blocks = kinds(made).count("product")
    assert blocks > 5
    assert made.plan.arena <= 2 * 4 * 100 * 530 / blocks
    assert_close(got, x, w.astype("f4"))
    left, right = viewed(way, w), drawn(530, 9)
    _, (got,), made = run(lambda w, x: ops.astype(VIEWS[way](w), "float32") @ x, left, right)
    assert kinds(made).count("product") > 3
    assert_close(got, w.astype("f4"), right)


def test_gradients_through_blocks_of_a_half_matrix_are_right(monkeypatch):
    monkeypatch.setattr(row_products, "_BLOCK", 1 << 12)
    x, v, w = drawn(9, 100), drawn(9, 90), ops.astype(drawn(90, 100), "float16")

    def slopes(x, w):
        return od.grad(lambda x, w: ops.sum(ops.linear(x, w) * v), argnums=(0, 1))(x, w)

    _, (gx, gw), made = run(slopes, x, w)
    assert_close(gx, v, w.astype("f4"))
    np.testing.assert_allclose(gw.astype("f8"), v.T.astype("f8") @ x, rtol=2e-3, atol=1e-3)
    assert kinds(made).count("product") == 3  # two blocks of w, and the gradient of w


# ------------------------------------------------------------------ short sums

THIN = {
    "tall": ((500, 4), (4, 16)),
    "tall, few columns": ((900, 8), (8, 3)),
    "wide": ((16, 5), (5, 700)),
    "a batch": ((3, 300, 6), (3, 6, 12)),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("way", VIEWS)
@pytest.mark.parametrize("kind", THIN)
def test_products_with_short_sums_are_loops_without_a_call(kind, way, dtype):
    x, w = (drawn(*shape, dtype=dtype) for shape in THIN[kind])
    _, (got,), made = run(lambda x, w: x @ VIEWS[way](w), x, viewed(way, w))
    called = "gemm(" in made.module.text
    assert called == (kind == "wide" and way == "along")  # the long operand lies across
    assert_close(got, x, w)


def test_short_sums_have_the_same_bits_in_any_number_of_threads():
    x, w = drawn(20011, 8), drawn(16, 8)
    compiled = od.compile(lambda x, w: x @ w.T, check=True)
    compiled(x, w)
    found = []
    for count in (None, 1, 2, 3):
        od.set_threads(count)
        found.append(np.asarray(compiled(x, w)))
    assert_close(found[0], x, w.T)
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_numbers_in_short_sums_and_few_rows_are_as_in_numpy(special):
    for shapes in (((300, 4), (4, 16)), ((3, 70), (70, 90)), ((9, 4), (4, 1000))):
        x, w = (drawn(*shape) for shape in shapes)
        x[1, 2], w[2, 3], w[1, 5] = 0.0, special, -special
        with np.errstate(all="ignore"):
            for way in VIEWS:
                _, (got,), _ = run(lambda x, w, way=way: x @ VIEWS[way](w), x, viewed(way, w))
                wanted = (x[:, :, None].astype("f8") * w).sum(1)
                np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
                infinite = np.isinf(wanted)
                np.testing.assert_array_equal(got[infinite], wanted[infinite])
