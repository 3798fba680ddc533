"""Machine code is made in threads, children and through interrupts as without them."""

import gc
import importlib
import itertools
import sys
import threading
import time
from functools import partial

import pytest

from odyssey.compiler.machine.jit import load
from odyssey.devices.write_guard import hold_during_forks
from odyssey.kernels.llvm_locks import COMPILER_LOCK
from support.faults import in_its_thread, interrupt
from support.forks import forks, in_a_child
from support.native_text import SCALED, check_scaled
from support.threads import run_in_threads

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    # Also what is made once, with the first code that is compiled and not loaded from disk.
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path / "first"))
    load("define void @first() {\n  ret void\n}\n")
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    return tmp_path / "native"


@pytest.mark.slow
@in_its_thread
def test_an_interrupt_at_any_line_leaves_all_as_it_was(cache, monkeypatch):
    # A tracer can raise before a file is closed, where no signal is handled.
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)
    text, points = SCALED.format(name="", factor=7), 0
    check_scaled(load(text), 7)
    for warm in (True, False):
        for n in itertools.count(1):
            if not warm:
                next(cache.iterdir()).unlink()
            try:
                with interrupt(n) as fired:
                    load(text)
            except KeyboardInterrupt:
                points += 1
            while COMPILER_LOCK._is_owned():  # between a block and the end of its ``with``
                COMPILER_LOCK.release()
            check_scaled(load(text), 7)
            assert [path.suffix for path in cache.iterdir()] in (
                [".code"],
                [".code", ".tmp"],
                [".tmp", ".code"],
            )
            for path in cache.glob(".*"):
                path.unlink()
            if not fired:
                break
    assert points > 100


def test_threads_that_load_at_once_get_each_their_own():
    def work(number):
        for k in range(4):
            name, factor = f"of_{number % 4}", number % 4 + k + 2
            check_scaled(load(SCALED.format(name=name, factor=factor)), factor, name)

    run_in_threads(*[partial(work, number) for number in range(8)])


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_runs_what_was_loaded_and_loads_more():
    loaded = load(SCALED.format(name="", factor=7))
    loaded.address("scaled")
    late = load(SCALED.format(name="_late", factor=9))

    def check():
        check_scaled(loaded, 7)
        check_scaled(late, 9, "_late")
        check_scaled(load(SCALED.format(name="", factor=8)), 8)

    assert in_a_child(check)
    check()


@pytest.mark.slow
@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_in_the_middle_of_compiling_gives_a_child_that_compiles(monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    text = "".join(SCALED.format(name=k, factor=k + 2) for k in range(20))
    stop = threading.Event()

    def compile_on():
        while not stop.is_set():
            load(text)
            time.sleep(0.002)  # as those do who make the next text

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        for _ in range(3):
            assert in_a_child(lambda: check_scaled(load(SCALED.format(name="", factor=8)), 8))
    finally:
        stop.set()
        thread.join()


@forks
@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forks_beside_threads_that_compile_here_and_in_numba_leave_children_that_compile(
    monkeypatch,
):
    numba = pytest.importorskip("numba")
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    text = "".join(SCALED.format(name=k, factor=k + 2) for k in range(5))
    stop = threading.Event()

    def compile_here():
        while not stop.is_set():
            load(text)
            time.sleep(0.003)

    def compile_there():
        while not stop.is_set():
            numba.njit(lambda x: x + 1)(3)

    def collect():
        while not stop.is_set():
            gc.collect()
            time.sleep(0.01)

    works = (compile_here, compile_here, compile_there, collect)
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            assert in_a_child(lambda: check_scaled(load(SCALED.format(name="", factor=8)), 8))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("user", ["llvmlite", "numba"])
def test_a_fork_waits_for_others_that_use_llvmlite(user):
    if user == "numba":
        lock = pytest.importorskip("numba.core.compiler_lock").global_compiler_lock
    else:
        lock = importlib.import_module("llvmlite.binding.ffi").lib._lock
    held, stop = threading.Event(), threading.Event()

    def check():
        with lock:
            check_scaled(load(SCALED.format(name="", factor=8)), 8)

    def hold():
        with lock:
            held.set()
            stop.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_a_child(check)
    stop.set()
    thread.join()


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_lock_that_a_fork_could_not_wait_for_is_open_in_the_child_which_is_told():
    lock, told, held, stop = threading.RLock(), [], threading.Event(), threading.Event()
    hold_during_forks(lambda: [lock], 0.05, lambda: told.append(True))

    def hold():
        with lock:
            held.set()
            stop.wait()

    def check():
        assert told
        assert lock.acquire(timeout=0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_a_child(check)
    finally:
        stop.set()
        thread.join()
    assert not told
    assert lock.acquire(timeout=0)
    lock.release()
