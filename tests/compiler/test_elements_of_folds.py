"""Folds add and multiply in any order, but each element is computed as it was written."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

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
