"""GPU kernels in numba's simulator: `NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim`, a process apart."""

import math
import os

import numpy as np
import pytest

from odyssey.errors import DeviceError, DTypeError, ShapeError
from odyssey.kernels import T, cpu_softmax, cuda_loop, cuda_softmax, elementwise, softmax
from odyssey.kernels import cuda as device
from support import scalar_cases

pytestmark = [
    pytest.mark.cudasim,
    pytest.mark.skipif(
        os.environ.get("NUMBA_ENABLE_CUDASIM") != "1",
        reason="needs the CUDA simulator: NUMBA_ENABLE_CUDASIM=1 pytest -m cudasim",
    ),
]
SPECIAL = [-np.inf, -2.5, -0.0, 0.0, 0.5, 1.0, 1000.0, np.inf, np.nan]
by_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def assert_kernel_is_its_program_and_reference(name, row, options, dtype):
    numbers = np.array(SPECIAL, dtype)
    if scalar_cases.kernel_values(row, options, numbers.dtype) is None:  # of integers
        numbers = np.array(scalar_cases.WHOLE)
    # Of three operands only every third element, for each takes a thread of the simulator.
    grid = np.meshgrid(*[numbers] * len(row.arrays))
    inputs = [x.ravel()[:: 3 if len(grid) > 2 else 1].copy() for x in grid]
    with np.errstate(all="ignore"):
        made = row.reference(*inputs, *options).dtype
        # (nan_to_num names the largest number of its dtype.)
        wider = "f" if row.name != "nan_to_num" else ""
        wide = [x.astype(np.float64) if x.dtype.kind in wider else x for x in inputs]
        expected = np.asarray(row.reference(*wide, *options)).astype(made)
    kinds = ([inputs[0].dtype] * len(inputs), made, options)
    on_gpu = np.empty(len(inputs[0]), made)
    cuda_loop(row.scalar, *kinds)(*inputs, on_gpu)
    computed = scalar_cases.computed_in(on_gpu, inputs[0].dtype)
    by_steps = scalar_cases.by_numpy(row.scalar, inputs, options, computed)
    np.testing.assert_array_equal(on_gpu, by_steps, err_msg=name)
    if made.kind != "f":
        np.testing.assert_array_equal(on_gpu, expected, err_msg=name)
        return
    eps = np.finfo(dtype).eps
    if row.name in scalar_cases.CANCELLING:
        sizes = np.fmax.reduce([np.abs(np.where(np.isfinite(x), x, 0)) for x in inputs])
        with np.errstate(invalid="ignore"):
            near = np.abs(on_gpu - expected) <= 8 * eps * sizes
        expected = np.where(near, on_gpu, expected)
    np.testing.assert_allclose(on_gpu, expected, rtol=8 * eps, atol=eps, err_msg=name)


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# ------------------------------------------------------------------ elementwise


PARTS = 4  # so that processes have equal shares


@by_dtype
@pytest.mark.parametrize("part", range(PARTS))
def test_kernel_of_every_scalar_of_the_op_table_is_its_program_and_its_reference(part, dtype):
    cases = list(scalar_cases.CASES.items())[part::PARTS]
    assert cases
    for name, (row, options) in cases:
        assert_kernel_is_its_program_and_reference(name, row, options, dtype)


@by_dtype
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 65])
def test_kernel_writes_every_element_at_every_size(size, dtype):
    x = normal(size, dtype)
    out = np.full(size, 7, dtype)
    cuda_loop(lambda x: T(2) * x, dtype)(x, out)
    np.testing.assert_array_equal(out, 2 * x)


def test_kernel_strides_over_what_is_larger_than_its_grid():
    x = normal(device.threads_per_block() * device.max_blocks() + 3, "float32")
    out = np.empty_like(x)
    cuda_loop(lambda x: x + T(1), np.float32)(x, out)
    np.testing.assert_array_equal(out, x + np.float32(1))


def test_kernel_of_three_inputs_may_write_over_one():
    x, y, z = (normal(10, "float64", seed=k) for k in range(3))
    expected = x * y + z
    cuda_loop(lambda x, y, z: x * y + z, np.float64)(x, y, z, z)
    np.testing.assert_allclose(z, expected, rtol=1e-15)


def test_kernel_takes_device_arrays_and_leaves_the_result_on_the_device():
    from numba import cuda

    x = np.arange(5.0)
    out = cuda.device_array(5, np.float64)
    cuda_loop(lambda x: -x, np.float64)(cuda.to_device(x), out)
    np.testing.assert_array_equal(out.copy_to_host(), -x)


def test_nothing_is_raised_where_a_function_overflows_or_has_a_pole():
    out = np.empty(3)
    cuda_loop(lambda x: math.exp(x), np.float64)(np.full(3, 1000.0), out)
    assert np.isposinf(out).all()
    cuda_loop(lambda x: math.log(x) + T(1) / x, np.float64)(np.zeros(3), out)
    assert np.isnan(out).all()  # -inf + inf
    cuda_loop(lambda x: math.gamma(x) * math.erf(x), np.float64)(np.full(3, 1000.0), out)
    assert np.isposinf(out).all()
    roots = cuda_loop(lambda x, y: math.pow(x, y), np.float32)
    roots(*np.array([[-np.inf], [0.5]], np.float32), one := np.empty(1, np.float32))
    assert np.isposinf(one).all()  # as IEEE has it


def test_a_bare_constant_in_single_precision_is_refused_as_by_the_compiler():
    with pytest.raises(DTypeError, match=r"write T\(0.5\) instead of 0.5"):
        cuda_loop(lambda x: 0.5 * x, np.float32)
    out = np.empty(3, np.float32)
    cuda_loop(lambda x: T(0.5 * x), np.float32)(np.arange(3, dtype=np.float32), out)
    np.testing.assert_array_equal(out, [0.0, 0.5, 1.0])


def test_kernel_refuses_arrays_that_do_not_fit():
    loop = cuda_loop(lambda x, y: x + y, np.float32)
    x = np.zeros(4, np.float32)
    with pytest.raises(DTypeError, match="this loop is for float32"):
        loop(x, np.zeros(4), x)
    with pytest.raises(ShapeError, match="1-D and of one size"):
        loop(x, np.zeros(3, np.float32), x)
    with pytest.raises(ShapeError, match="1-D and of one size"):
        loop(*[np.zeros((2, 2), np.float32)] * 3)
    with pytest.raises(ShapeError, match="an array with gaps"):
        loop(x, x, np.zeros(8, np.float32)[::2])
    with pytest.raises(TypeError, match="2 arrays; want 2 inputs, then out"):
        loop(x, x)


def test_the_simulator_has_no_ptx():
    with pytest.raises(DeviceError, match="unset NUMBA_ENABLE_CUDASIM"):
        elementwise.cuda_ptx(lambda x: x, np.float32)


# ------------------------------------------------------------------ softmax


@by_dtype
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (1, 64), (1, 130)], ids=str)
def test_softmax_kernel_is_the_cpu_kernel(shape, dtype):
    x = 500 * normal(shape, dtype)  # so wide that only the row's true maximum avoids overflow
    on_gpu, on_cpu = np.empty_like(x), np.empty_like(x)
    cuda_softmax(x, on_gpu)
    cpu_softmax(x, on_cpu)
    # The two sums are taken in different orders; the terms are all positive.
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=16 * np.finfo(dtype).eps)


def test_softmax_kernel_has_the_special_values_of_the_cpu_kernel():
    inf, nan = np.inf, np.nan
    x = np.array([[nan, 1, 2], [-inf, -inf, -inf], [inf, 1, 2], [1, 2, -inf], [1e30, 0, 0]])
    on_gpu, on_cpu = np.empty_like(x), np.empty_like(x)
    cuda_softmax(x, on_gpu)
    cpu_softmax(x, on_cpu)
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-15)


def test_softmax_kernel_gives_equal_bits_twice():
    x = normal((1, 130), "float32")
    first, second = np.empty_like(x), np.empty_like(x)
    cuda_softmax(x, first)
    cuda_softmax(x, second)
    assert first.tobytes() == second.tobytes()


def test_softmax_kernel_strides_over_more_rows_than_its_grid():
    x = normal((device.max_blocks() + 1, 5), "float32")
    out = np.empty_like(x)
    cuda_softmax(x, out)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-6)


@pytest.fixture
def short_parts(monkeypatch):
    """Parts of a row have 16 columns, or a sixteenth of it if that is more."""
    monkeypatch.setattr(softmax, "_PART_ROUNDS", 1)


def softmax_in_double(x):
    x = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(x - x.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


def assert_parts_are_numpys(x, parts, monkeypatch):
    launched, usual = [], device.launch
    monkeypatch.setattr(
        device, "launch", lambda *args: (launched.append(args[:2]), usual(*args))[1]
    )
    out = np.empty_like(x)
    cuda_softmax(x, out)
    names = [kernel.__name__ for kernel, _ in launched]
    assert names == ["_cuda_rows_kernel", "_cuda_scale_kernel"][: 1 if parts == 1 else 2]
    assert {blocks for _, blocks in launched} == {len(x) * parts}
    # The exponent is rounded, so the error grows with the distance from the largest element.
    limits, expected = np.finfo(x.dtype), softmax_in_double(x)
    distance = x.max(1, keepdims=True).astype(np.float64) - x
    bound = limits.eps * (16 + distance) * expected + limits.tiny
    assert (np.abs(out - expected) <= bound).all()


@by_dtype
@pytest.mark.parametrize(
    ("shape", "parts"),
    [((2, 16), 1), ((3, 17), 2), ((1, 33), 3), ((1, 256), 16), ((5, 257), 16)],
    ids=str,
)
def test_softmax_kernel_shares_a_long_row_among_blocks(
    shape, parts, dtype, short_parts, monkeypatch
):
    # So wide that only the largest of all parts avoids overflow; sums of the others vanish.
    assert_parts_are_numpys(30 * normal(shape, dtype), parts, monkeypatch)


def test_softmax_kernel_shares_rows_of_more_than_128_elements_a_thread(monkeypatch):
    columns = 128 * device.threads_per_block()
    assert_parts_are_numpys(normal((1, columns), "float32"), 1, monkeypatch)
    monkeypatch.undo()
    assert_parts_are_numpys(normal((1, columns + 1), "float32"), 2, monkeypatch)


def test_softmax_kernel_of_parts_has_the_special_values_of_a_row(short_parts):
    x = normal((8, 40), "float64")  # parts of 16, 16 and 8 columns
    x[0, 20], x[1, 39], x[2, 0] = np.nan, np.inf, np.inf
    x[3], x[4, :16], x[5, 16:] = -np.inf, -np.inf, -np.inf
    x[6], x[6, 33], x[7, 16:32] = -np.inf, np.nan, np.nan
    out = np.empty_like(x)
    cuda_softmax(x, out)
    expected = softmax_in_double(x)
    assert np.isnan(expected[[0, 1, 2, 3, 6, 7]]).all()
    assert np.isfinite(expected[[4, 5]]).all()
    np.testing.assert_allclose(out, expected, rtol=1e-14, atol=0)


def test_softmax_kernel_of_parts_may_write_over_its_operand_on_the_device(short_parts):
    from numba import cuda

    x = normal((2, 35), "float64")
    there = cuda.to_device(x)
    cuda_softmax(there, there)
    np.testing.assert_allclose(there.copy_to_host(), softmax_in_double(x), rtol=1e-14)


def test_softmax_kernel_of_parts_is_right_after_a_launch_that_failed(short_parts, monkeypatch):
    x, usual, failing = normal((2, 35), "float64"), device.launch, ["_cuda_scale_kernel"]
    given = x.copy()

    def launch(kernel, *work):
        if failing == [kernel.__name__]:
            failing.clear()
            raise ArithmeticError("the launch")
        usual(kernel, *work)

    monkeypatch.setattr(device, "launch", launch)
    with pytest.raises(ArithmeticError):
        cuda_softmax(x, np.empty_like(x))
    np.testing.assert_array_equal(x, given)
    out = np.empty_like(x)
    cuda_softmax(x, out)
    np.testing.assert_allclose(out, softmax_in_double(x), rtol=1e-14)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_softmax_kernel_of_nothing_is_nothing(shape):
    cuda_softmax(np.empty(shape), np.empty(shape))


def test_softmax_kernel_refuses_what_does_not_fit():
    x = np.zeros((2, 3))
    with pytest.raises(ShapeError, match="must be \\(rows, columns\\)"):
        cuda_softmax(np.zeros(3), np.zeros(3))
    with pytest.raises(ShapeError, match="not C-contiguous"):
        cuda_softmax(x, np.zeros((3, 2)).T)
    with pytest.raises(DTypeError, match="x is float64 and out float32"):
        cuda_softmax(x, np.zeros((2, 3), np.float32))


# ------------------------------------------------------------------ kernels of rows


def test_a_row_runs_its_gpu_kernel_in_a_block():
    from odyssey import nn, ops
    from odyssey.ops import OPS

    kernels = [(row, k) for row in OPS.values() for k in row.kernels if k.device == "cuda"]
    assert "softmax" in [row.name for row, _ in kernels]
    for dtype in ("float32", "float64"):
        for shape in ((3, 7), (2, 3, 5), (4,), (5, 1)):
            x = 3 * normal(shape, dtype)
            usual = nn.softmax(x)
            with ops.use_kernels("cuda"):
                found = nn.softmax(x)
                across = nn.softmax(x, axis=0)  # which the kernel does not take, but for vectors
            assert found.dtype == x.dtype
            np.testing.assert_allclose(found, usual, rtol=16 * np.finfo(dtype).eps)
            np.testing.assert_allclose(across, nn.softmax(x, axis=0), rtol=16 * np.finfo(dtype).eps)
