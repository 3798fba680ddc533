"""Programs that threads share give what they give in one thread, bit for bit."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler import lowering
from odyssey.compiler.codegen import loops
from odyssey.compiler.machine import blas
from odyssey.compiler.machine.thread_count import requested_threads
from odyssey.compiler.runtime import executable
from odyssey.compiler.runtime.thread_pool import why_single_threaded
from odyssey.compiler.schedule import work_partition
from odyssey.errors import DTypeError, SettingError
from odyssey.optim import SGD
from support.cases import EVERY
from support.chosen import FLOATS, ONE, ONE_DERIVED, picked, some_rows
from support.compiled_rows import check, derivatives, forward, outcome, same_bits

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")


@pytest.fixture(autouse=True)
def nothing_is_said():
    yield
    od.set_threads(None)


@pytest.fixture
def all_is_cut(monkeypatch, tmp_path):
    """Small loops and products are shared as if they were large ones."""
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    for name, value in {
        **{"_MIN_PARALLEL_SECONDS": 1e-15, "_BLOCK_SECONDS": 1e-13, "_CACHE_LINE": 1},
        **{"_MAX_BLOCKS": 5, "_MAX_ROW_BLOCKS": 3},
        **{"_MIN_PARALLEL_GEMM": 1, "_GEMM_TILE": 1},
    }.items():
        monkeypatch.setattr(work_partition, name, value)
    monkeypatch.setattr(loops, "BLOCK", 4)


def program_of(compiled):
    """The latest program of a compiled function."""
    return next(iter(compiled._known.values())).programs[0][1].executable


def in_threads(fn, *args, counts=(1, 2, 3, 7)):
    """What a function gives compiled, which is the same for all numbers of threads."""
    compiled = od.compile(fn, check=True)
    compiled(*args)
    found = []
    for count in counts:
        od.set_threads(count)
        found.append([np.array(leaf) for leaf in od.tree.leaves(compiled(*args))])
    assert compiled.statistics().native == len(counts)
    assert program_of(compiled).shares
    for other in found[1:]:
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found[0], other, strict=True))
    return found[0]


# ------------------------------------------------------------------ large loops

# Odd sizes: no block is full that may be short.
LONG, WIDE, DEEP = (400_003,), (1003, 701), (31, 83, 97)


def of_shape(shape, count=1, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-2.0, 2.0, shape) for _ in range(count)]


CASES = {
    "a map": (lambda x: x * 2.0 + 1.0, LONG),
    "functions": (lambda x: ops.exp(x) * ops.tanh(x), LONG),
    "a sum": (ops.sum, LONG),
    "a mean, and a map": (lambda x: (ops.mean(x * x), ops.exp(x)), LONG),
    "extremes": (lambda x: (ops.max(x), ops.min(x), ops.sum(x)), LONG),
    "rows": (lambda x: ops.sum(ops.exp(x), axis=1), WIDE),
    "columns": (lambda x: ops.sum(ops.exp(x), axis=0), WIDE),
    "everything": (lambda x: ops.sum(ops.exp(x)), WIDE),
    "softmax": (lambda x: ops.softmax(x, axis=1), WIDE),
    "softmax of columns": (lambda x: ops.softmax(x, axis=0), WIDE),
    "the first axis": (lambda x: ops.sum(x, axis=0), DEEP),
    "the middle axis": (lambda x: ops.sum(x, axis=1), DEEP),
    "the last axis": (lambda x: ops.sum(x, axis=2), DEEP),
    "outer axes": (lambda x: ops.sum(x, axis=(0, 2)), DEEP),
    "turned": (lambda x: ops.transpose(x, (2, 0, 1)) * 3.0, DEEP),
    "a scan down": (lambda x: ops.cumsum(x, axis=0), WIDE),
    "a scan along": (lambda x: ops.cumsum(x, axis=1), WIDE),
    "a scan within": (lambda x: ops.cumsum(x, axis=1), DEEP),
    "a scan of many": (lambda x: ops.cumsum(x, axis=2), DEEP),
    "truths": (lambda x: (ops.any(x > 1.99, axis=1), x > 0), WIDE),
    "where the largest are": (lambda x: ops.argmax(x, axis=0), WIDE),
    "where they are in short lines": (lambda x: ops.argmax(x, axis=1), (5003, 131)),
}


SHORT = {
    "sums": lambda x: ops.sum(x, axis=1),
    "products": lambda x: ops.prod(x, axis=1),
    "means of squares": lambda x: ops.mean(x * x, axis=1),
    "layer_norm": lambda x: ops.layer_norm(x, axis=-1),
    "softmax": lambda x: ops.softmax(x, axis=1),
    "logsumexp": lambda x: ops.logsumexp(x, axis=1),
    "pairs": lambda x: ops.sum(ops.reshape(x, (x.shape[0], -1, 2)), axis=1),
    "a gradient": lambda x: od.grad(lambda v: ops.sum(ops.sin(v) * ops.sum(v, 1)[:, None]))(x),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [4, 6, 16, 34])
@pytest.mark.parametrize("case", SHORT)
def test_sums_of_short_rows_are_the_same_in_any_number_of_threads(case, width, dtype):
    """LLVM takes several rows at a time, and adds up those that are left in another order."""
    x = np.random.default_rng(1).normal(size=(50_021, width)).astype(dtype)
    in_threads(SHORT[case], x, counts=(1, 2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_a_large_loop_is_the_same_in_any_number_of_threads(case, dtype):
    fn, shape = CASES[case]
    (x,) = of_shape(shape)
    x = x.astype(dtype)
    got = in_threads(fn, x)
    # Sums of 4 x 10^5 numbers below 8: half an ulp of each of as many partial sums at most.
    bound = 4e5 * 8 * np.finfo(dtype).eps if dtype == "float64" else 0.05
    for a, b in zip(got, od.tree.leaves(fn(x.astype("float64"))), strict=True):
        np.testing.assert_allclose(a, np.array(b), rtol=3e-5, atol=bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        *(((150, 131), (131, 170)), ((3001, 65), (65, 33)), ((33, 65), (65, 3001))),
        *(
            ((8, 65, 33), (8, 33, 67)),
            ((2, 3, 95, 33), (2, 3, 33, 97)),
            ((1, 150, 131), (131, 170)),
        ),
    ],
    ids=str,
)
def test_a_large_product_is_the_same_in_any_number_of_threads(shapes, dtype):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in shapes)
    for fn in (ops.matmul, lambda a, b: ops.swapaxes(ops.swapaxes(b, -1, -2) @ _turned(a), -1, -2)):
        (got,) = in_threads(fn, a, b)
        assert np.array_equal(got, a @ b)  # small whole numbers: exact in any order


def _turned(a):
    return ops.swapaxes(a, -1, -2)


@pytest.mark.parametrize("length", [1, 7, 100_001])
def test_integers_and_halves_are_shared_too(length):
    x = np.arange(5 * length).reshape(length, 5) % 11
    if length > 1000:
        (got,) = in_threads(lambda x: ops.sum(x * x, axis=1), x)
        assert np.array_equal(got, (x * x).sum(axis=1))
    fn = od.compile(lambda x: ops.sum(x * x, axis=1), threads=2)
    for _ in range(2):
        assert np.array_equal(fn(x), (x * x).sum(axis=1))


# ------------------------------------------------------------------ a training step


def step_of(sizes, momentum=0.9):
    rng = np.random.default_rng(3)
    p = [
        Variable(rng.standard_normal(shape).astype("float32") * 0.1, requires_grad=True)
        for m, n in itertools.pairwise(sizes)
        for shape in ((m, n), (n,))
    ]
    optimizer = SGD(p, 0.05, momentum=momentum)

    def step(x, y):
        with GradientTape() as tape:
            h = x
            for k in range(0, len(p) - 2, 2):
                h = ops.tanh(h @ p[k] + p[k + 1])
            loss = od.losses.cross_entropy(h @ p[-2] + p[-1], y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, p


@pytest.mark.slow
def test_a_training_step_is_the_same_in_any_number_of_threads():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((301, 210)).astype("float32")
    y = rng.integers(0, 10, 301)
    found = {}
    for threads in (1, 2, 3, None):
        step, p = step_of((210, 330, 410, 10))
        compiled = od.compile(step, threads=threads, check=True)
        losses = [float(compiled(x, y)) for _ in range(6)]
        assert compiled.statistics().native >= 4
        assert program_of(compiled).shares
        found[threads] = [np.array(losses), *(v.numpy().copy() for v in p)]
    for other in (2, 3):
        pairs = zip(found[1], found[other], strict=True)
        assert all(a.tobytes() == b.tobytes() for a, b in pairs)
    # Eager: products and sums in another order, over six small steps.
    step, p = step_of((210, 330, 410, 10))
    losses = [float(step(x, y)) for _ in range(6)]
    for a, b in zip(found[2], [np.array(losses), *(v.numpy() for v in p)], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)


# ------------------------------------------------------------------ everything in blocks


@some_rows
def test_a_row_of_which_all_is_cut_is_the_row(row, all_is_cut):
    name = ONE[row.name]
    same_in_threads(*forward(*EVERY[name], picked(name, FLOATS)), name)


@pytest.mark.slow
@some_rows
def test_derivatives_of_which_all_is_cut_are_those_of_the_row(row, all_is_cut):
    name = ONE_DERIVED[row.name]
    same_in_threads(*derivatives(*EVERY[name], picked(name, FLOATS)), name)


def same_in_threads(fn, calls, name):
    od.set_threads(3)
    compiled = od.compile(fn)
    check(fn, calls, compiled, name)
    found = []
    for count in (1, 2, 3):
        od.set_threads(count)
        found.append(outcome(compiled, calls[-1])[0])
    for other in found[1:]:
        pairs = zip(found[0] or (), other or (), strict=True)
        assert all(same_bits(a, b) for a, b in pairs), name


def test_what_is_cut_in_these_tests_are_small_loops_and_products(all_is_cut):
    x = np.arange(1200.0).reshape(40, 30) / 100
    for fn in (ops.exp, ops.sum, lambda x: ops.cumsum(x, axis=0), lambda x: x @ x.T):
        in_threads(fn, x)


def test_a_state_that_is_read_as_a_number_and_written_over_is_read_before():
    w = Variable(np.arange(300_000.0), requires_grad=False)

    def step():
        w.assign(w * 0.5 + w[1])
        return w[0] * 2.0

    compiled = od.compile(step, threads=3)
    wanted = np.arange(300_000.0)
    for _ in range(6):
        compiled()
        wanted = wanted * 0.5 + wanted[1]
    assert np.array_equal(w.numpy(), wanted)
    assert compiled.statistics().native == 5


# ------------------------------------------------------------------ what is said


def test_one_thread_is_what_is_said_first():
    assert od.get_threads() == 1
    assert requested_threads() == 0
    od.set_threads(5)
    assert od.get_threads() == 5
    od.set_threads(None)
    assert od.get_threads() == 1


@pytest.mark.parametrize("value", [0, -1, 257, 10**30], ids=str)
@pytest.mark.parametrize("who", ["compile", "set_threads"])
def test_numbers_of_threads_that_cannot_be_are_refused_by_name(who, value):
    with pytest.raises(SettingError, match=f"{who}: .*=.*; it must be at"):
        _say(who, value)


@pytest.mark.parametrize("value", [1.5, "2", [2], np.ones(2)], ids=str)
@pytest.mark.parametrize("who", ["compile", "set_threads"])
def test_what_is_no_number_of_threads_is_refused_by_name(who, value):
    with pytest.raises(DTypeError, match=f"{who}: .* is not a whole number"):
        _say(who, value)
    assert od.get_threads() == 1


def _say(who, value):
    if who == "set_threads":
        od.set_threads(value)
    else:
        od.compile(threads=value)
        od.compile(ops.exp, threads=value)


def test_what_is_said_of_one_function_goes_before_what_is_said_of_all():
    x = np.ones(400_000)
    of_one = od.compile(lambda x: ops.exp(x), threads=2)
    of_all = od.compile(lambda x: ops.exp(x))
    for fn in (of_one, of_all):
        fn(x)
        fn(x)
    if why_single_threaded() is None:
        assert "threads: 1, the default" in of_all.explain(x)
    od.set_threads(3)
    if why_single_threaded() is None:
        assert "threads: 2" in of_one.explain(x)
        assert "threads: 3" in of_all.explain(x)


def test_a_decorator_takes_a_number_of_threads():
    @od.compile(threads=2)
    def double(x):
        return x * 2.0

    assert double(np.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_what_products_take_of_threads_is_put_back():
    get, put = blas.thread_setters()
    if not get:
        pytest.skip("NumPy's library of products lets nobody ask for its threads")
    import ctypes

    number, change = ctypes.CFUNCTYPE(ctypes.c_int)(get), ctypes.CFUNCTYPE(None, ctypes.c_int)(put)
    before = number()
    a = np.ones((256, 256))
    fn = od.compile(ops.matmul)
    try:
        for others in (2, 1):
            change(others)
            for threads in (1, 2, None):
                od.set_threads(threads)
                for _ in range(3):
                    assert np.array_equal(fn(a, a), np.full((256, 256), 256.0))
                assert number() == others
    finally:
        change(before)


def test_parts_of_a_loop_have_the_threads_of_the_function(monkeypatch):
    given = []
    made = executable.Executable.__init__

    def noted(self, *args, **named):
        made(self, *args, **named)
        given.append(self.threads)

    monkeypatch.setattr(executable.Executable, "__init__", noted)
    monkeypatch.setattr(lowering, "_MAX_UNROLLED", 0)
    xs = np.ones((4, 300_000))
    fn = od.compile(
        lambda xs: od.scan(lambda c, x: (c + ops.exp(x), c), xs[0] * 0.0, xs)[0], threads=2
    )
    for _ in range(3):
        got = fn(xs)
    assert fn.statistics().native
    assert given == [2, 2]
    np.testing.assert_allclose(got, np.full(300_000, 4 * np.e), rtol=1e-15)


SMALL_PRODUCTS = """
import os, time
import numpy as np, odyssey as od

a = np.ones((256, 512), np.float32)
weights = [np.ones((512, 10), np.float32), np.ones((512, 40), np.float32)]
multiply = od.compile(lambda a, b, c: (a @ b, a @ c), threads=1)
for _ in range(3):
    multiply(a, *weights)
time.sleep(0.3)  # until the threads that the first call woke sleep again

tasks = os.listdir("/proc/self/task")
def used():
    stats = [open(f"/proc/self/task/{t}/stat").read().rpartition(")")[2].split() for t in tasks]
    return sum(int(s[11]) + int(s[12]) for t, s in zip(tasks, stats) if t != str(os.getpid()))

before, end = used(), time.perf_counter() + 0.4
while time.perf_counter() < end:
    multiply(a, *weights)
print(used() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="nobody tells of threads here")
def test_products_too_small_to_be_shared_wake_no_thread_of_the_library_where_one_is_asked_for():
    if not all(blas.thread_setters()):
        pytest.skip("NumPy's library of products lets nobody ask for its threads")
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment["OPENBLAS_NUM_THREADS"] = "2"
    command = [sys.executable, "-c", SMALL_PRODUCTS]
    told = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert int(told.stdout) <= 2, "hundredths of seconds of other threads"  # 40 of them without


@pytest.mark.share(1)
@pytest.mark.parametrize("number", [10**6, 10**5000], ids=["a million", "of 5001 digits"])
def test_more_threads_than_there_may_be_are_refused_in_words(number):
    for ask in (od.set_threads, lambda number: od.compile(ops.exp, threads=number)):
        with pytest.raises(SettingError, match="it must be at most"):
            ask(number)
