"""CUDA kernels of scans give the running results of NumPy, in its order."""

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

from odyssey import ops
from odyssey.compiler.cuda.program import Launch
from support.cuda_programs import run_step

RNG = np.random.default_rng(0)


def outputs_of(fn, *args):
    _, runs = run_step(fn, *args)
    runs.assert_equal_bits()
    return runs.run.outputs()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c8"])
def test_running_sums_along_any_axis_are_numpys_to_the_bit(axis, dtype):
    x = RNG.integers(-9, 9, (5, 9, 4)).astype(dtype) / np.array(3 if dtype != "i4" else 1, dtype)
    x = x.astype(dtype)
    (found,) = outputs_of(lambda x: ops.cumsum(x, axis), x)
    np.testing.assert_array_equal(found, np.cumsum(x, axis, dtype=dtype))


def test_one_long_line_is_scanned_by_one_thread_and_many_by_many():
    for shape, axis in (((400,), 0), ((3, 200), 0)):
        x = RNG.normal(size=shape)
        _, runs = run_step(lambda x, axis=axis: ops.cumprod(x, axis), x)
        np.testing.assert_array_equal(runs.run.outputs()[0], np.cumprod(x, axis))
        (launch,) = [s for s in runs.run.program.steps if isinstance(s, Launch)]
        assert launch.grid == (1 if len(shape) == 1 else 3)


def test_strided_operands_are_scanned_where_they_lie():
    x = RNG.normal(size=(8, 10))
    (found,) = outputs_of(lambda x: ops.cumsum(ops.transpose(x)[::-2, 1:], 1), x)
    np.testing.assert_array_equal(found, np.cumsum(x.T[::-2, 1:], 1))


@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrences_take_the_factor_of_each_step(reverse):
    x, factors = RNG.normal(size=(4, 9)), RNG.normal(size=(4, 9))
    (found,) = outputs_of(lambda x, f: ops.linear_recurrence(x, f, reverse=reverse), x, factors)
    expected = x.copy()
    for k in range(1, 9):
        if reverse:
            expected[:, 8 - k] += factors[:, 9 - k] * expected[:, 9 - k]
        else:
            expected[:, k] += factors[:, k] * expected[:, k - 1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
