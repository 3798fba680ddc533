"""CPU kernels against NumPy in higher precision, and what the GPU door does without a GPU."""

import importlib.util
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from odyssey.errors import DeviceError, DTypeError, ShapeError
from odyssey.kernels import T, cpu_loop, cpu_softmax, elementwise, softmax
from support import scalar_cases

ROOT = Path(__file__).parents[2]
HAS_NUMBA = importlib.util.find_spec("numba") is not None
pytestmark = pytest.mark.skipif(not HAS_NUMBA, reason="numba, which compiles kernels, is missing")
DTYPES = ["float32", "float64"]
SPECIAL = [-np.inf, -1000.0, -2.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 1.0, 3.0, 1000.0, np.inf, np.nan]

# name: (scalar, reference)
SCALARS = {
    "add": (lambda x, y: x + y, np.add),
    "sub": (lambda x, y: x - y, np.subtract),
    "mul": (lambda x, y: x * y, np.multiply),
    "div": (lambda x, y: x / y, np.divide),
    "pow": (lambda x, y: x**y, np.power),
    "neg": (lambda x: -x, np.negative),
    "exp": (lambda x: math.exp(x), np.exp),
    "log": (lambda x: math.log(x), np.log),
    "tanh": (lambda x: math.tanh(x), np.tanh),
    "relu": (lambda x: x if not (x <= T(0)) else T(0), lambda x: np.maximum(x, 0)),
    "sqrt": (lambda x: math.sqrt(x), np.sqrt),
    "abs": (lambda x: abs(x), np.abs),
    "sigmoid": (
        lambda x: T(1) / (T(1) + math.exp(-x)) if x >= T(0) else math.exp(x) / (T(1) + math.exp(x)),
        lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
    ),
    "sin": (lambda x: math.sin(x), np.sin),
    "cos": (lambda x: math.cos(x), np.cos),
}
by_name = pytest.mark.parametrize("name", SCALARS)
by_dtype = pytest.mark.parametrize("dtype", DTYPES)


def arity(scalar):
    return scalar.__code__.co_argcount


def in_float64(reference, inputs, dtype):
    """The reference, computed in float64 and rounded once."""
    with np.errstate(all="ignore"):
        return reference(*[x.astype(np.float64) for x in inputs]).astype(dtype)


def normal(shape, dtype, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def numpy_softmax(x, dtype):
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return (e / e.sum(axis=1, keepdims=True)).astype(dtype)


def run_python(program, **environment):
    """Standard output of a program in a fresh interpreter."""
    env = {k: v for k, v in os.environ.items() if k != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=env | environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------ elementwise


@pytest.mark.slow
@pytest.mark.share(4)
@by_dtype
@by_name
def test_cpu_loop_agrees_with_numpy_on_every_pair_of_special_values(name, dtype):
    scalar, reference = SCALARS[name]
    inputs = [x.ravel() for x in np.meshgrid(*[np.array(SPECIAL, dtype)] * arity(scalar))]
    out = np.empty_like(inputs[0])
    cpu_loop(scalar, dtype)(*inputs, out)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(out, in_float64(reference, inputs, dtype), rtol=4 * eps)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, 2, 63, 1025])
@by_dtype
@by_name
def test_cpu_loop_agrees_with_numpy_at_every_size(name, dtype, size):
    scalar, reference = SCALARS[name]
    inputs = [np.abs(normal(size, dtype, seed=k)) for k in range(arity(scalar))]
    out = np.full(size, 7, dtype)
    cpu_loop(scalar, dtype)(*inputs, out)
    expected = in_float64(reference, inputs, dtype)
    # The sums and logarithms that cancel are as exact as their operands, which are around 1.
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(out, expected, rtol=4 * eps, atol=eps)


@by_dtype
@by_name
def test_cpu_loop_may_write_over_its_input(name, dtype):
    scalar, _ = SCALARS[name]
    inputs = [np.abs(normal(100, dtype, seed=k)) for k in range(arity(scalar))]
    apart = np.empty(100, dtype)
    loop = cpu_loop(scalar, dtype)
    loop(*inputs, apart)
    loop(*inputs, inputs[0])
    np.testing.assert_array_equal(inputs[0], apart)


@by_name
def test_float32_loop_holds_no_double_precision_instruction(name):
    loop = cpu_loop(SCALARS[name][0], np.float32)
    for text in loop.inspect_llvm().values():
        assert "double" not in text


@pytest.mark.slow
def test_float32_loops_of_the_op_table_are_the_kernels_and_hold_no_double_precision_instruction():
    loops = walk_loops("float32", lambda name: crc32(name.encode()) % 4 == 0)
    assert_single_precision(loops)


@pytest.mark.soak
def test_all_float32_loops_are_the_kernels_and_hold_no_double_precision_instruction():
    assert_single_precision(walk_loops("float32"))


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
def test_all_loops_of_other_dtypes_are_the_kernels(dtype):
    assert walk_loops(dtype)


def assert_single_precision(loops):
    narrow = {name: loop for name, (loop, made) in loops.items() if made != np.float64}
    texts = {name: "".join(loop.inspect_llvm().values()) for name, loop in narrow.items()}
    assert texts
    assert [name for name, text in texts.items() if "double" in text] == []


def walk_loops(dtype, chosen=lambda _: True):
    """Assert that loops of scalars are the kernels; return them, and the dtypes of results."""
    dtype, loops = np.dtype(dtype), {}
    once = {row.name: (row, options) for row, options in scalar_cases.CASES.values()}
    assert len(once) > 80
    for name, (row, options) in once.items():
        found = scalar_cases.kernel_values(row, options, dtype) if chosen(name) else None
        if found is None:  # not for this dtype
            continue
        operands, wanted = found
        out = np.empty_like(wanted)
        loop = cpu_loop(row.scalar, [dtype] * len(operands), wanted.dtype, options)
        loop(*operands, out)
        scalar_cases.assert_is_kernel(row, out, wanted, operands)
        loops[name] = loop, wanted.dtype
    return loops


def test_loops_are_built_once_for_a_scalar_and_a_dtype():
    scalar = SCALARS["add"][0]
    assert cpu_loop(scalar, "float32") is cpu_loop(scalar, np.float32)
    assert cpu_loop(scalar, np.float32) is not cpu_loop(scalar, np.float64)


def test_cpu_loop_reads_a_read_only_array():
    x = np.arange(3.0)
    x.flags.writeable = False
    out = np.empty(3)
    cpu_loop(SCALARS["neg"][0], np.float64)(x, out)
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize(
    "x",
    [np.zeros(4), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2]],
    ids=["dtype", "rank", "layout"],
)
def test_cpu_loop_refuses_an_array_it_was_not_compiled_for(x):
    with pytest.raises(TypeError, match="No matching definition"):
        cpu_loop(SCALARS["neg"][0], np.float32)(x, np.empty(4, np.float32))


@pytest.mark.parametrize("sizes", [(3, 4, 4), (4, 3, 4), (4, 4, 3)], ids=str)
def test_cpu_loop_refuses_sizes_that_differ(sizes):
    with pytest.raises(ValueError, match="sizes differ"):
        cpu_loop(SCALARS["add"][0], np.float64)(*map(np.zeros, sizes))


@pytest.mark.parametrize("dtype", ["int64", "float16", "complex128", "bool", ">f4"])
def test_kernels_refuse_other_dtypes(dtype):
    with pytest.raises(DTypeError, match="cast to float32 or float64"):
        cpu_loop(SCALARS["neg"][0], dtype)
    with pytest.raises(DTypeError, match="cast to float32 or float64"):
        cpu_softmax(np.zeros((2, 2), dtype), np.zeros((2, 2), dtype))


def test_a_bare_constant_that_makes_float32_float64_is_refused():
    with pytest.raises(DTypeError, match=r"write T\(0\.5\) instead of 0\.5"):
        cpu_loop(lambda x: 0.5 * x, np.float32)


def test_a_scalar_must_be_a_plain_function_of_positional_numbers():
    scale = 2.0
    with pytest.raises(DTypeError, match="plain function"):
        cpu_loop(math.exp, np.float64)
    with pytest.raises(DTypeError, match="plain function"):
        cpu_loop(lambda x: scale * x, np.float64)
    with pytest.raises(DTypeError, match="without defaults"):
        cpu_loop(lambda x, y=1: x, np.float64)
    with pytest.raises(DTypeError, match="without defaults"):
        cpu_loop(lambda *x: 1, np.float64)
    with pytest.raises(DTypeError, match="one or more"):
        cpu_loop(lambda: T(1), np.float64)


# ------------------------------------------------------------------ softmax


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 7), (5, 10), (4, 127), (4, 129), (2, 1000)])
@by_dtype
def test_cpu_softmax_agrees_with_numpy(shape, dtype):
    x = 10 * normal(shape, dtype)
    out = np.empty_like(x)
    cpu_softmax(x, out)
    # exp carries the rounding of x - max, up to 60 here, into its relative error.
    np.testing.assert_allclose(out, numpy_softmax(x, dtype), rtol=64 * np.finfo(dtype).eps)


@by_dtype
def test_cpu_softmax_has_the_special_values_of_numpys_formula(dtype):
    x = np.array(
        [
            [1, 2, 3],
            [np.nan, 1, 2],
            [1, 2, np.nan],
            [-np.inf, -np.inf, -np.inf],
            [np.inf, 1, 2],
            [1, 2, -np.inf],
            [1e30, 1e30, -1e30],
            [np.nan, np.nan, np.nan],
        ],
        dtype,
    )
    out = np.empty_like(x)
    cpu_softmax(x, out)
    np.testing.assert_allclose(out, numpy_softmax(x, dtype), rtol=8 * np.finfo(dtype).eps)


@by_dtype
def test_cpu_softmax_of_a_long_row_sums_to_one(dtype):
    x = normal((2, 100_000), dtype)
    cpu_softmax(x, x)
    total = x.astype(np.float64).sum(axis=1)
    # 128 + 100000 / 128 roundings bound the error of the row's sum.
    np.testing.assert_allclose(total, 1, rtol=910 * np.finfo(dtype).eps / 2)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_cpu_softmax_of_nothing_is_nothing(shape):
    cpu_softmax(np.empty(shape), np.empty(shape))


def test_cpu_softmax_reads_any_layout_and_writes_over_its_input():
    x = normal((6, 5), "float64")
    expected = numpy_softmax(x, "float64")
    out = np.empty((6, 5))
    cpu_softmax(np.asfortranarray(x), out)
    np.testing.assert_allclose(out, expected, rtol=1e-14)
    cpu_softmax(x, x)
    np.testing.assert_array_equal(x, out)


def test_cpu_softmax_refuses_what_does_not_fit():
    x = np.zeros((2, 3))
    with pytest.raises(ShapeError, match="must be \\(rows, columns\\)"):
        cpu_softmax(np.zeros(3), np.zeros(3))
    with pytest.raises(ShapeError, match=r"x \(2, 3\), out \(3, 2\)"):
        cpu_softmax(x, np.zeros((3, 2)))
    with pytest.raises(ShapeError, match="not C-contiguous"):
        cpu_softmax(x, np.zeros((3, 2)).T)
    with pytest.raises(DTypeError, match="x is float64 and out float32"):
        cpu_softmax(x, np.zeros((2, 3), np.float32))


def test_float32_softmax_holds_no_double_precision_instruction():
    for text in softmax._cpu_rows(np.dtype(np.float32)).inspect_llvm().values():
        assert "double" not in text


# ------------------------------------------------------------------ without a GPU


def test_importing_the_kernels_does_not_import_numba():
    loaded = run_python(
        "import sys, odyssey.kernels\n"
        "print(*[name for name in sys.modules if name.partition('.')[0] == 'numba'])"
    )
    assert loaded.split() == []


def test_a_gpu_kernel_without_a_gpu_says_what_is_missing_and_what_to_do():
    said = run_python(
        "import numpy as np\n"
        "from numba import cuda\n"
        "from odyssey.errors import DeviceError\n"
        "from odyssey.kernels import cuda_loop, cuda_softmax\n"
        "x = np.zeros((2, 2))\n"
        "for call in (lambda: cuda_loop(lambda x: x, x.dtype), lambda: cuda_softmax(x, x)):\n"
        "    try:\n"
        "        print('a GPU exists' if cuda.is_available() else call())\n"
        "    except DeviceError as error:\n"
        "        print(error)\n"
    )
    if "a GPU exists" in said:
        pytest.skip("this machine has a CUDA GPU")
    for line in said.splitlines():
        assert line.startswith("cuda: no GPU can be used: ")
        assert "NUMBA_ENABLE_CUDASIM=1" in line
        assert 'pip install "odyssey[cuda]"' in line
    assert len(said.splitlines()) == 2


def ptx_or_skip(build, *arguments):
    try:
        return build(*arguments)
    except DeviceError as error:
        pytest.skip(str(error))


@by_dtype
@by_name
def test_elementwise_kernel_compiles_to_ptx(name, dtype):
    text = ptx_or_skip(elementwise.cuda_ptx, SCALARS[name][0], dtype)
    assert ".target sm_90" in text
    # CUDA's own sin and cos reduce large float32 arguments in double precision.
    if dtype == "float32" and name not in ("sin", "cos"):
        assert not re.search(r"\.f64\b", text)


@pytest.mark.slow
@by_dtype
def test_softmax_kernels_compile_to_ptx(dtype):
    rows, scale = ptx_or_skip(softmax.cuda_ptx, dtype)
    assert ".shared" in rows
    assert "bar.sync" in rows
    assert ".target sm_90" in scale
    if dtype == "float32":
        assert not re.search(r"\.f64\b", rows + scale)
