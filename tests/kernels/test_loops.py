"""Loops that numba compiles when they are called, and when ops run them by themselves."""

import importlib.util
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.cli.commands import main
from odyssey.errors import DeviceError
from odyssey.kernels import T, generated, loops
from odyssey.kernels.loops import loop
from odyssey.ops import Kernel
from odyssey.table import kernel_selection

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
def test_a_loop_refuses_to_write_to_an_array_that_is_not_contiguous():
    with pytest.raises(AssertionError, match="contiguous"):
        thirds(np.ones(3, np.float32), np.empty(6, np.float32)[::2])


@needs_numba
def test_a_loop_may_be_called_first_from_many_threads_at_once():
    x, found = np.arange(3.0), []
    for _ in range(5):
        fresh = loop(lambda x: x[0] + x[2])
        start = threading.Barrier(8)

        def call(fresh=fresh, start=start):
            start.wait()
            found.append(fresh(x))

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [2.0] * 40


@pytest.mark.slow
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
        "print(sum(sums.summed._dispatcher.stats.cache_hits.values()))"
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


@pytest.mark.slow
@needs_numba
def test_what_is_made_of_a_scalar_is_kept_on_disk_and_another_process_takes_it_over(tmp_path):
    program = (
        "import numpy as np, odyssey as od\n"
        "x = np.linspace(-3, 3, 1 << 14)\n"
        "w = od.Variable(x, requires_grad=True)\n"
        "with od.GradientTape() as tape:\n"
        "    y = od.nn.gelu(w)\n"
        "g = tape.gradient(y, w, x)\n"
        "import sys\n"
        "found = [m for n, m in sys.modules.items() if n.startswith('odyssey_loop_')]\n"
        "made = [m.elements._dispatcher for m in found]\n"
        "print(len(made), sum(sum(m.stats.cache_hits.values()) for m in made), g.sum())\n"
    )
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        found.append(done.stdout.split())
    assert [words[:2] for words in found] == [["1", "0"], ["1", "1"]]
    assert found[0][2] == found[1][2]


@needs_numba
def test_where_nothing_can_be_written_loops_are_compiled_all_the_same(monkeypatch, tmp_path):
    (tmp_path / "odyssey").write_text("a file where the folder would be")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made = generated.elementwise_loop(lambda x: x * T(2.5), 1, np.dtype(float))
    out = np.empty(3)
    made(np.ones(3), out)
    np.testing.assert_array_equal(out, 2.5)


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

    monkeypatch.setattr(kernel_selection, "SIZES", {"sized": 10})
    fits = Kernel("noted", kernel, when=lambda x, y, axis: axis == 0, with_residual=leaving)
    run, forward = kernel_selection.select_by_size(
        "sized", [fits], 2, lambda x, y, axis: None, None
    )
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


def test_a_kernel_runs_by_itself_where_it_pays_and_in_a_block_for_kernels_anywhere(monkeypatch):
    def named(name, pays):
        return Kernel(name, lambda x: name, with_residual=lambda x: (name, x), pays=pays)

    monkeypatch.setattr(kernel_selection, "SIZES", {"sized": 10})
    kernels = [named("wide", lambda x: x.shape[-1] > 5), named("long", lambda x: x.size > 100)]
    run, forward = kernel_selection.select_by_size(
        "sized", kernels, 1, lambda x: "usual", lambda x: ("usual", x)
    )
    for shape, wanted in {
        (2, 6): "wide",
        (6, 2): "usual",
        (60, 2): "long",
        (1, 6): "usual",
    }.items():
        x = np.zeros(shape)
        assert (run(x), forward(x)[0]) == (wanted, wanted)
        with ops.use_kernels():
            assert (run(x), forward(x)[0]) == ("wide", "wide")


def test_a_block_for_numpy_says_that_no_kernel_runs_by_itself(sized):
    run, _, ran = sized
    large = np.zeros(10)
    with ops.use_kernels("numpy"):
        assert run(large, large, 0) is None
        with ops.use_kernels():
            assert run(large[:1], large[:1], 0).size == 1  # at any size
    assert run(large, large, 0) is large
    assert ran == [(1,), (10,)]


def test_a_process_may_say_that_no_kernel_runs_by_itself():
    program = "from odyssey.table import kernel_selection; print(kernel_selection.SIZE_FACTOR)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"ODYSSEY_KERNELS": "numpy", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[inf]"


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


# ------------------------------------------------------------------ python -m odyssey warmup


@pytest.mark.slow
@needs_numba
def test_warmup_compiles_forward_and_backward_loops_of_both_dtypes(tmp_path):
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "odyssey", "warmup", "elu"],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        assert "1 of 1  elu" in done.stdout
        found.append(sorted((tmp_path / "odyssey" / "kernels").glob("odyssey_loop_*.py")))
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def test_warmup_names_the_ops_that_run_loops(capsys):
    with pytest.raises(SystemExit, match=r"no compiled loops for add; the ops with .*gelu"):
        main(["warmup", "add"])
