"""Folds add and multiply in any order, but each element is computed as it was written."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

# LLVM takes short loops apart, of which it sees all elements at a time, and not long ones.
COUNTS = pytest.mark.parametrize("count", [2, 3, 4, 7, 16, 33, 100, 1000])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def compiled(fn, *args):
    run = od.compile(fn)
    for _ in range(2):
        run(*args)
    assert run.statistics().native
    return run(*args)


@COUNTS
@DTYPES
def test_sums_do_not_cancel_what_elements_have_in_common(count, dtype):
    far = dtype(2 / np.finfo(dtype).eps)
    x = np.arange(count).astype(dtype) % 4 * 2
    for call in (
        lambda x: ops.sum((x + far) - far),
        lambda x: ops.sum((x + far).reshape(1, -1) - far, 1),
        lambda x: ops.mean((x + far) - far) * count,
    ):
        np.testing.assert_allclose(compiled(call, x), x.sum(), rtol=1e-5)


@COUNTS
@DTYPES
def test_a_factor_of_all_elements_stays_within_the_sum(count, dtype):
    most = np.finfo(dtype).max
    x = np.full(count, most / 2, dtype)
    for call in (
        lambda x: ops.sum(x * 2.0**-20),
        lambda x: ops.mean(x / 2.0**20) * count,
        lambda x: ops.sum(x.reshape(-1, 1) * 2.0**-20, 0),
    ):
        np.testing.assert_allclose(compiled(call, x), most / 2 * 2.0**-20 * count, rtol=1e-5)


@COUNTS
@DTYPES
def test_a_factor_of_all_elements_stays_within_the_product(count, dtype):
    large = dtype(np.finfo(dtype).max ** 0.75)
    x = np.full(count, large, dtype)
    for call in (
        lambda x: ops.prod(x * (1 / large)),
        lambda x: ops.prod(x.reshape(-1, 1) / large, 0),
        lambda x: ops.prod(ops.sqrt(x) * ops.sqrt(1 / large)),
        lambda x: ops.prod(large / x),
    ):
        np.testing.assert_allclose(compiled(call, x), 1.0, rtol=1e-3)


@pytest.mark.parametrize("name", ["max", "min"])
@DTYPES
def test_extremes_of_what_a_mask_leaves_take_several_elements_at_a_time(name, dtype):
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(64, 1000)).astype(dtype), rng.random((64, 1000)) < 0.5
    x[0, :3], x[1, 999] = (np.nan, np.inf, -np.inf), np.nan
    mask[2], mask[0, 0], mask[1, 999], mask[3], x[3] = False, False, True, True, -0.0
    nothing = -np.inf if name == "max" else np.inf
    for call in (
        lambda x: getattr(np.where(mask, x, nothing), name)(-1),
        lambda x: getattr(np.where(mask, x, nothing) * 2, name)(),
        lambda x: getattr(np.where(x > 0, x, nothing), name)(-1),
    ):
        run = od.compile(call)
        for _ in range(3):
            np.testing.assert_array_equal(run(x), call(x))
            np.testing.assert_array_equal(np.signbit(run(x)), np.signbit(call(x)))
        assembly, packed = run.code(x, assembly=True), "ps" if dtype == np.float32 else "pd"
        assert f"{name}{packed}" in assembly


@pytest.mark.slow
def test_what_is_masked_by_position_takes_as_much_work_as_what_is_not():
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 40, 8))

    def work(causal):
        def loss(q, k, v):
            return (ops.scaled_dot_product_attention(q, k, v, causal=causal) ** 2).sum()

        run = od.compile(od.grad(loss, argnums=(0, 1, 2)))
        for _ in range(3):
            run(q, k, v)
        kernels = run.profile(q, k, v).kernels
        return len(kernels), sum(kernel.flops for kernel in kernels)

    (free, most), (causal, found) = work(False), work(True)
    assert causal == free
    assert found < 1.1 * most  # it was 1.6: weights were computed again for each gradient


FOLDS_OF_NONE = {
    "sum": lambda one: np.sum(one[:0]),
    "rows": lambda one: np.sum(np.broadcast_to(one, (0, 1)), 0),
    "running": lambda one: np.sum(np.cumsum(one[np.array([], int)])),
    "prod": lambda one: np.prod(np.broadcast_to(one, (3, 0)), 1),
    "product": lambda one: np.ones((3, 0)) @ np.broadcast_to(one, (0, 2)),
}


@pytest.mark.parametrize("fold", FOLDS_OF_NONE.values(), ids=FOLDS_OF_NONE)
def test_a_number_that_is_repeated_no_times_is_folded_natively(fold):
    def total(x):
        return np.sum(fold(x * 2.0 + 1.0) * 3.0) + x[0]

    compiled = od.compile(od.value_and_grad(total), check=True)
    for k in range(3):
        x = np.array([1.5 + k])
        value, slope = compiled(x)
        assert value == total(x)
        assert slope == [1.0]
    assert compiled.explain(x).startswith("a program of")


MEANS = [(n, dtype) for n in (100, 600, 1000, 4096) for dtype in (np.float32, np.float64)]


# Partial sums are added in float64: those of float32 are exact.
@pytest.mark.parametrize(("n", "dtype"), [*MEANS, (100_000, np.float32)])
def test_compiled_means_err_by_two_units_in_the_last_place(n, dtype):
    rng = np.random.default_rng(0)
    for x in (np.full(n, 100.1, dtype), rng.uniform(1, 2, n).astype(dtype)):
        for given in (x, np.stack([x, x])):
            compiled = od.compile(lambda x: x.mean(-1))
            for _ in range(2):
                got = compiled(given)
            wanted = given.astype(np.longdouble).mean(-1)
            assert (np.abs(got - wanted) <= 2 * np.spacing(wanted.astype(dtype))).all()
