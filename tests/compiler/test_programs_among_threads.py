"""Programs among threads of Python, forks, interrupts and ends: nothing is torn, nobody waits."""

import _thread
import ctypes
import os
import platform
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.codegen.thread_pool import thread_pool_text
from odyssey.compiler.machine.jit import load
from odyssey.compiler.runtime import thread_pool
from odyssey.optim import SGD
from support.forks import forks, in_a_child
from support.threads import run_in_threads

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

LONG = 500_000


@pytest.fixture(autouse=True)
def nothing_is_said():
    yield
    od.set_threads(None)


def slowly(x):
    """Some tenths of a second for a million elements: nothing of it can be left out."""
    for k in range(12):
        x = ops.sin(x) * ops.exp(-x * x) + ops.tanh(x + k)
    return x


def made(fn, *args):
    """A compiled function that has a program for arguments like these."""
    compiled = od.compile(fn, check=True)
    for _ in range(3):
        compiled(*args)
    assert compiled.statistics().native
    return compiled


def module_of(compiled):
    return next(iter(compiled._known.values())).programs[0][1].executable.module


# ------------------------------------------------------------------ the interpreter's lock


def ticks_during(call):
    """How often another thread of Python ran in the middle half of a call."""
    ticks, over = [], threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    other = threading.Thread(target=tick)
    other.start()
    try:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
    finally:
        over.set()
        other.join()
    quarter = (end - start) / 4
    return sum(start + quarter < t < end - quarter for t in ticks)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_other_threads_of_python_run_during_a_long_call(threads):
    x = np.linspace(-1.0, 1.0, LONG)
    compiled = made(slowly, x)
    assert module_of(compiled).releases_gil
    od.set_threads(threads)
    assert max(ticks_during(lambda: compiled(x)) for _ in range(5)) > 3


@pytest.mark.slow
def test_other_threads_of_python_run_while_a_state_is_written():
    w = Variable(np.linspace(-1.0, 1.0, LONG), requires_grad=True)
    compiled = made(lambda: w.assign(slowly(w)))
    assert module_of(compiled).releases_gil
    assert max(ticks_during(compiled) for _ in range(5)) > 3


@pytest.mark.slow
def test_other_threads_of_python_run_where_a_size_that_varies_is_large():
    compiled = od.compile(slowly, dynamic={"x": {0: od.Dim("n", 1)}})
    for size in (3, 4, 5, LONG):
        compiled(np.linspace(-1.0, 1.0, size))
    x = np.linspace(-1.0, 1.0, LONG)
    assert max(ticks_during(lambda: compiled(x)) for _ in range(5)) > 3
    assert compiled.statistics().programs == 1


def test_a_short_program_keeps_the_interpreter():
    x = np.ones(100)
    assert not module_of(made(ops.exp, x)).releases_gil


@pytest.mark.slow
def test_an_argument_cannot_be_resized_while_a_program_reads_it():
    x = np.linspace(-1.0, 1.0, LONG)
    compiled = made(slowly, x)
    wanted = compiled(x)
    refused, begun = [], threading.Event()

    def resize():
        begun.wait()
        time.sleep(0.01)
        try:
            x.resize(10)
        except ValueError as error:
            refused.append(error)

    def call():
        begun.set()
        assert np.array_equal(compiled(x), wanted)

    run_in_threads(resize, call)
    assert refused


# ------------------------------------------------------------------ states


def step_of(seed=0, size=160):
    rng = np.random.default_rng(seed)
    p = [
        Variable(rng.standard_normal((size, size)) * 0.05, requires_grad=True),
        Variable(np.zeros(size), requires_grad=True),
    ]
    optimizer = SGD(p, 0.01, momentum=0.9)

    def step(x):
        with GradientTape() as tape:
            loss = ops.mean((ops.tanh(x @ p[0] + p[1]) - x) ** 2)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, p


@pytest.mark.slow
def test_steps_of_one_model_in_several_threads_are_as_many_steps_in_one():
    x = np.random.default_rng(1).standard_normal((300, 160))
    step, p = step_of()
    alone = od.compile(step)
    for _ in range(33):
        alone(x)
    assert module_of(alone).releases_gil
    wanted = [v.numpy().copy() for v in p]
    step, p = step_of()
    shared = made(step, x)

    def work():
        for _ in range(10):
            shared(x)

    run_in_threads(work, work, work)
    assert shared.statistics().native + shared.statistics().written == 33
    assert all(np.array_equal(v.numpy(), a) for v, a in zip(p, wanted, strict=True))


@pytest.mark.slow
def test_models_trained_in_two_threads_are_what_they_are_one_after_another():
    x = np.random.default_rng(1).standard_normal((300, 160))
    found = []
    for together in (False, True):
        steps = [step_of(seed) for seed in (1, 2)]
        compiled = [made(step, x) for step, _ in steps]
        works = [lambda fn=fn: [fn(x) for _ in range(12)] for fn in compiled]
        if together:
            run_in_threads(*works)
        else:
            for work in works:
                work()
        found.append([v.numpy().copy() for _, p in steps for v in p])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.slow
def test_a_program_reads_a_leaf_as_it_was_before_a_write_of_another_thread_or_after():
    w = Variable(np.zeros(LONG), requires_grad=True)
    program = made(lambda: (ops.min(slowly(w) * 0.0 + w), ops.max(slowly(w) * 0.0 + w)))
    assert module_of(program).releases_gil
    over = threading.Event()
    seen = set()

    def write():
        try:
            for k in range(1, 9):
                w.assign(np.full(LONG, float(k)))
        finally:
            over.set()

    def read():
        while not over.is_set():
            low, high = program()
            assert low == high
            seen.add(float(low))

    run_in_threads(write, read, read)
    assert seen <= set(map(float, range(9)))


@pytest.mark.slow
def test_a_program_reads_a_leaf_as_it_is_before_another_program_writes_it_or_after():
    w = Variable(np.zeros(LONG), requires_grad=True)
    writer = made(lambda: w.assign(slowly(w) * 0.0 + w + 1.0))
    assert module_of(writer).releases_gil
    # A short one reads the first and the last element, which are written at other times.
    readers = [made(lambda: (w[0] * 2.0, w[-1] * 2.0)), made(lambda: (ops.min(w), ops.max(w)))]
    first = w.numpy()[0]
    over = threading.Event()

    def write():
        try:
            for _ in range(12):
                writer()
        finally:
            over.set()

    def read(program):
        while not over.is_set():
            low, high = program()
            assert float(low) == float(high)

    run_in_threads(write, *[lambda fn=fn: read(fn) for fn in readers])
    assert np.array_equal(w.numpy(), np.full(LONG, first + 12))


@pytest.mark.slow
def test_one_program_in_several_threads_gives_each_its_own_result():
    arrays = [np.linspace(-1.0, k, LONG) for k in range(1, 4)]
    compiled = made(slowly, arrays[0])
    wanted = [compiled(x) for x in arrays]

    def work(x, result):
        for _ in range(5):
            assert np.array_equal(compiled(x), result)

    pairs = zip(arrays, wanted, strict=True)
    od.set_threads(2)
    run_in_threads(*[lambda x=x, result=result: work(x, result) for x, result in pairs])


@pytest.mark.slow
@pytest.mark.parametrize("sizes_vary", [False, True])
def test_threads_that_call_first_together_make_one_program(sizes_vary):
    settings = SimpleNamespace(factor=2.0)
    x = np.linspace(-1.0, 1.0, 50)
    dynamic = {"x": {0: od.Dim("n", 1)}} if sizes_vary else None
    compiled = od.compile(lambda x: slowly(x) * settings.factor, dynamic=dynamic)
    wanted = slowly(x)
    begin = threading.Barrier(12)

    def work():
        begin.wait(60)
        for _ in range(4):
            np.testing.assert_allclose(compiled(x), wanted * 2.0, rtol=1e-12)

    run_in_threads(*[work] * 12)
    compiled(x), compiled(x)
    found = compiled.statistics()
    assert (found.programs, found.native + found.written) == (1, 50)
    settings.factor = 3.0  # there is room for programs of other surroundings
    for _ in range(4):
        np.testing.assert_allclose(compiled(x), wanted * 3.0, rtol=1e-12)
    assert compiled.statistics().programs == 2
    assert compiled.statistics().native >= found.native + 2


# ------------------------------------------------------------------ interrupts


@pytest.fixture
def interruptible():
    """Interrupts raise, also where tests are run by a process that ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_an_interrupt_comes_when_a_step_is_done_as_a_whole(interruptible):
    w = Variable(np.zeros(LONG), requires_grad=True)
    compiled = made(lambda: w.assign(slowly(w) * 0.0 + w + 1.0))
    od.set_threads(2)
    before, interrupted = w.numpy()[0], 0
    for wait in (0.003, 0.01, 0.05):
        done = 0
        timer = threading.Timer(wait, _thread.interrupt_main)
        try:
            timer.start()
            while True:
                compiled()
                done += 1
                assert done < 1000, "no interrupt came"
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        values = w.numpy()
        assert values.min() == values.max()
        assert values[0] - before in (done, done + 1)
        before = values[0]
    assert interrupted == 3
    compiled()
    assert w.numpy()[0] == before + 1


# ------------------------------------------------------------------ forks and ends


@pytest.mark.slow
@forks
def test_a_child_has_a_pool_of_its_own_and_so_has_its_child():
    x = np.linspace(-1.0, 1.0, 400_000)
    a = np.ones((300, 300))
    od.set_threads(3)
    loop, product = made(slowly, x), made(ops.matmul, a, a)
    wanted = loop(x)

    def works():
        assert np.array_equal(loop(x), wanted)
        assert np.array_equal(product(a, a), np.full((300, 300), 300.0))

    def check():
        works()
        assert in_a_child(works)
        works()

    for _ in range(3):
        assert in_a_child(check)
        works()


@pytest.mark.slow
@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("state", [False, True])
def test_a_child_of_a_process_that_runs_programs_in_other_threads_runs_them_too(state):
    x = np.linspace(-1.0, 1.0, 100_000)
    w = Variable(np.zeros(100_000), requires_grad=True)
    od.set_threads(2)
    if state:
        call = compiled = made(lambda: w.assign(slowly(w) * 0.0 + w + 1.0))
    else:
        compiled = made(slowly, x)
        call = partial(compiled, x)
    over = threading.Event()

    def work():
        while not over.is_set():
            call()

    def check():
        values = w.numpy().copy()
        assert values.min() == values.max()
        native = compiled.statistics().native
        call()
        call()
        assert compiled.statistics().native == native + 2
        assert not state or np.array_equal(w.numpy(), values + 2)

    others = [threading.Thread(target=work) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(4):
            assert in_a_child(check)
            time.sleep(0.01)
    finally:
        over.set()
        for other in others:
            other.join()


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_makes_the_program_that_another_thread_of_its_parent_was_making():
    x = np.ones(5)
    compiled = od.compile(slowly)
    compiled(x)
    (case,) = compiled._known.values()
    has_it, let_go = threading.Event(), threading.Event()

    def making():
        has_it.set()
        let_go.wait(60)

    other = threading.Thread(target=case.compile_lock.call_if_free, args=(making,))
    other.start()
    has_it.wait(60)

    def check():
        compiled(x), compiled(x)
        assert compiled.statistics().native == 2

    try:
        compiled(x)
        assert compiled.statistics() == (0, 0, 2)
        assert in_a_child(check)
    finally:
        let_go.set()
        other.join()
    check()


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("which", ["binding", "dispatch"])
def test_a_child_runs_a_program_that_another_thread_of_its_parent_was_binding(which):
    w = Variable(np.zeros(5), requires_grad=True)
    compiled = made(lambda: w.assign(w + 1.0))
    program = next(iter(compiled._known.values())).programs[0][1]
    if program.native is None:
        pytest.skip("Python dispatches every call here")
    lock = program.executable._binding if which == "binding" else program.native._lock
    acquired, release = threading.Event(), threading.Event()

    def bind():
        with lock:
            acquired.set()
            release.wait(0.1)
            time.sleep(0.05)

    def check():
        w._array = w._array.copy()  # which is bound anew
        compiled()
        compiled()
        assert w.numpy().min() == 5.0

    other = threading.Thread(target=bind)
    other.start()
    acquired.wait(60)
    try:
        assert in_a_child(check)
    finally:
        release.set()
        other.join()
    check()


def finished(text):
    """What a Python says on its way to the end, with its code."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


_BEGIN = """
    import threading, time
    import numpy as np, odyssey as od
    od.set_threads(3)
    x = np.linspace(-1.0, 1.0, 1_000_000)
    fn = od.compile(lambda x: od.ops.exp(od.ops.sin(x)))
    for _ in range(3):
        fn(x)
"""


@pytest.mark.share(6, rest="slow")
@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "del od, fn; import gc; gc.collect()",
        "import atexit; atexit.register(fn, x)",
        """
    def work():
        while True:
            fn(x)
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    time.sleep(0.2)
""",
    ],
    ids=["plainly", "by an exit", "at once", "after all is let go", "after a last call", "midway"],
)
def test_a_python_with_a_pool_comes_to_its_end(end):
    assert finished(_BEGIN + "    " + end.lstrip("\n ") if "\n" not in end else _BEGIN + end) == (
        0,
        "",
        "",
    )


def test_the_pool_ends_for_a_fork_and_begins_again():
    if thread_pool.why_single_threaded() is not None or not hasattr(os, "fork"):
        pytest.skip("there is no pool here, or no fork")
    x = np.linspace(-1.0, 1.0, 400_000)
    od.set_threads(3)
    compiled = made(slowly, x)
    compiled(x)
    thread_pool._c_function(thread_pool._Pool.loaded, "ody_hold")()
    try:
        assert started() == 0
        compiled(x)  # alone
        assert started() == 0
    finally:
        thread_pool._c_function(thread_pool._Pool.loaded, "ody_open")()
    compiled(x)
    assert started() == 2


# ------------------------------------------------------------------ where there are no threads

COUNTED = """
declare void @ody_parallel(ptr, ptr, i64, i64)
define internal void @work(ptr %counts, i64 %first, i64 %end) {
entry:
  br label %head
head:
  %k = phi i64 [%first, %entry], [%after, %body]
  %more = icmp slt i64 %k, %end
  br i1 %more, label %body, label %done
body:
  %at = getelementptr i64, ptr %counts, i64 %k
  %old = atomicrmw add ptr %at, i64 1 seq_cst
  %after = add i64 %k, 1
  br label %head
done:
  ret void
}
define void @count(ptr %counts, i64 %n, i64 %threads) {
  call void @ody_parallel(ptr @work, ptr %counts, i64 %n, i64 %threads)
  ret void
}
define i32 @fail(ptr %id, ptr %attributes, ptr %work, ptr %given) {
  ret i32 11
}
"""


def counts_by(parallel, blocks, threads, times=3):
    """How often each block is done by a pool."""
    program = load(COUNTED, {"ody_parallel": parallel})
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        program.address("count")
    )
    counts = np.zeros(blocks, np.int64)
    for _ in range(times):
        call(counts.ctypes.data, blocks, threads)
    return counts


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 64])
@pytest.mark.parametrize("blocks", [1, 2, 7, 1000])
def test_each_block_is_done_once(blocks, threads):
    counts = counts_by(thread_pool.thread_pool_symbols()["ody_parallel"], blocks, threads, times=50)
    assert np.array_equal(counts, np.full(blocks, 50))


def test_a_pool_whose_threads_cannot_begin_does_all_in_one():
    if thread_pool.why_single_threaded() is not None:
        pytest.skip("there is no pool here")
    failing = load(COUNTED, thread_pool.thread_pool_symbols())
    text = thread_pool_text(platform.machine(), int(signal.SIG_SETMASK))
    lone = load(text, {"pthread_create": failing.address("fail")})
    ctypes.CFUNCTYPE(None)(lone.address("ody_prepare"))()
    assert np.array_equal(counts_by(lone.address("ody_parallel"), 9, 4), np.full(9, 3))


@pytest.mark.slow
def test_where_there_is_no_pool_programs_run_in_one_thread(monkeypatch):
    monkeypatch.setattr(thread_pool, "why_single_threaded", lambda: "there is none")
    monkeypatch.setattr(thread_pool._Pool, "loaded", None)
    monkeypatch.setattr(thread_pool._Pool, "symbols", {})
    monkeypatch.setattr(thread_pool.atexit, "register", lambda what: None)
    od.set_threads(3)
    x, a = np.linspace(-1.0, 1.0, LONG), np.ones((300, 300))
    assert np.allclose(made(slowly, x)(x), slowly(x), rtol=1e-12, atol=1e-12)
    assert np.array_equal(made(ops.matmul, a, a)(a, a), np.full((300, 300), 300.0))
    assert np.array_equal(
        counts_by(thread_pool.thread_pool_symbols()["ody_parallel"], 9, 4), np.full(9, 3)
    )


def started():
    """How many threads the pool has."""
    return ctypes.c_int64.from_address(thread_pool._Pool.loaded.address("ody_started")).value
