"""Loops that numba compiles when they are called, and when ops run them by themselves."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DeviceError
from odyssey.kernels import loops
from odyssey.kernels.loops import loop
from odyssey.ops import Kernel
from odyssey.table import choosing

HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba, which compiles loops, is missing")


@loop
def thirds(x, out):
    for i in range(x.size):
        out[i] = x[i] / np.float32(3)


@loop
def weighted(x, weight, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = doubled(x[i, j]) * weight


@loop
def doubled(number):
    return number + number


@loop(reassociate=True)
def total(x):
    found = x.dtype.type(0)
    for i in range(x.size):
        found += x[i]
    return found


@needs_numba
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_loop_runs_on_arrays_of_any_layout_and_calls_others(dtype):
    x = np.arange(12, dtype=dtype).reshape(3, 4)
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (x, frozen, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        out = np.empty((3, 4), dtype)
        weighted(given, np.dtype(dtype).type(3), out)
        np.testing.assert_array_equal(out, x * 6)


@needs_numba
def test_a_loop_returns_numbers_and_sums_in_any_order_keep_nan_and_infinity():
    x = np.random.default_rng(0).normal(size=1001)
    assert total(x) == pytest.approx(np.sum(x), rel=1e-13)
    assert total(np.array([1.0, np.inf])) == np.inf
    assert np.isnan(total(np.array([np.inf, -np.inf, 1.0])))


@needs_numba
def test_a_loop_refuses_to_write_where_there_are_gaps():
    with pytest.raises(AssertionError, match="gaps"):
        thirds(np.ones(3, np.float32), np.empty(6, np.float32)[::2])


@needs_numba
def test_machine_code_is_kept_on_disk(tmp_path):
    (tmp_path / "sums.py").write_text(
        "from odyssey.kernels.loops import loop\n\n\n"
        "@loop\ndef summed(x):\n    s = 0.0\n    for i in range(x.size):\n        s += x[i]\n"
        "    return s\n"
    )
    program = (
        "import numpy as np, sums\n"
        "assert sums.summed(np.ones(3)) == 3\n"
        "print(sum(sums.summed._made.stats.cache_hits.values()))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        for _ in range(2)
    ]
    assert [(done.stdout.strip(), done.stderr) for done in found] == [("0", ""), ("1", "")]


def test_without_numba_a_loop_says_what_is_missing(monkeypatch):
    def missing(name=""):
        raise DeviceError("kernels: numba cannot be imported")

    monkeypatch.setattr(loops, "numba_module", missing)
    with pytest.raises(DeviceError, match="numba cannot be imported"):
        loop(lambda x: x)(np.ones(2))


# ------------------------------------------------------------------ by themselves


@pytest.fixture
def sized(monkeypatch):
    """An op that runs a kernel from 10 elements on, and what ran."""
    ran = []

    def kernel(x, y, axis):
        ran.append(x.shape)
        return x

    def leaving(x, y, axis):
        ran.append("leaving")
        return x, x

    monkeypatch.setattr(choosing, "SIZES", {"sized": 10})
    fits = Kernel("noted", kernel, when=lambda x, y, axis: axis == 0, with_residual=leaving)
    run, forward = choosing.by_size("sized", [fits], 2, lambda x, y, axis: None, None)
    return run, forward, ran


def test_the_largest_operand_decides_whether_a_kernel_runs_by_itself(sized):
    run, forward, ran = sized
    small, large = np.zeros(9), np.zeros(10)
    assert run(small, small, 0) is None
    assert run(small, 1.0, 0) is None
    assert run(large, small, 0) is large
    assert run(small, large, 0) is small
    assert run(large, large, 1) is None  # which the kernel does not take
    assert forward(small, small, 0) is None
    assert forward(large, small, 0) == (large, large)
    assert ran == [(10,), (9,), "leaving"]


def test_a_block_for_numpy_says_that_no_kernel_runs_by_itself(sized):
    run, _, ran = sized
    large = np.zeros(10)
    with ops.use_kernels("numpy"):
        assert run(large, large, 0) is None
        with ops.use_kernels():
            assert run(large, large, 0) is None  # whose own kernels the block runs instead
    assert run(large, large, 0) is large
    assert ran == [(10,)]


def test_a_process_may_say_that_no_kernel_runs_by_itself():
    program = "from odyssey.table import choosing; print(choosing.COMPILED)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"ODYSSEY_KERNELS": "numpy", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[False]"


def test_blocks_for_numpy_and_for_kernels_nest_in_any_order(monkeypatch):
    ran = []

    def run(x, axis):
        ran.append(len(ran))
        return np.full(x.shape, 0.5)

    monkeypatch.setattr(ops.OPS["softmax"], "kernels", (Kernel("noted", run),))
    x = np.zeros((1, 4))
    with ops.use_kernels():
        with ops.use_kernels("numpy"):
            od.nn.softmax(x)
            assert ran == []
            with ops.use_kernels():
                od.nn.softmax(x)
            assert ran == [0]
            od.nn.softmax(x)
        od.nn.softmax(x)
    assert ran == [0, 1]
