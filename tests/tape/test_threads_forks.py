"""Forks beside working threads: each child finishes, and holds nothing for threads it has not."""

import itertools
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices import write_guard
from odyssey.devices.array_locks import locked_bytes
from odyssey.errors import TapeConsumedError
from support.faults import in_its_thread, interrupt

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def child(work, seconds=60):
    """Run ``work`` in a fork; return 0, what it returned, 99 for an error, or minus a signal."""
    with warnings.catch_warnings():
        # From Python 3.12 on, a fork beside threads warns of just what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        return os.waitstatus_to_exitcode(status)
    code = 99
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # whose signal ends a child that hangs
        code = work() or 0
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


class Busy:
    """Threads that train, assign and lock the arrays that they share, until the block ends."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.shared = [rng.normal(size=(64, 64)) for _ in range(2)]
        self.leaf = Variable(np.zeros(50_000), requires_grad=True)
        self.over = threading.Event()
        self.errors = []

    def train(self):
        w = Variable(np.ones((64, 64)), requires_grad=True)
        optimizer = od.optim.Adam([w, self.leaf], learning_rate=1e-3)
        while not self.over.is_set():
            with GradientTape() as tape:
                loss = ((w @ self.shared[0]) * self.shared[1]).sum()
            tape.backward(loss)
            optimizer.step(allow_missing=True)
            optimizer.zero_grad()

    def assign(self):
        value = 0.0
        while not self.over.is_set():
            self.leaf.assign(np.full(50_000, value := value + 1.0))

    def run(self, job):
        try:
            job()
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self):
        jobs = [self.train, self.train, self.train, self.assign]
        self.threads = [threading.Thread(target=self.run, args=(job,)) for job in jobs]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        for thread in self.threads:
            thread.join()


def forks_beside_busy_threads(count):
    w = Variable(np.ones(3000), requires_grad=True)
    optimizer = od.optim.Adam([w], learning_rate=0.1)

    with Busy() as busy:

        def work():
            if locked_bytes() or not all(array.flags.writeable for array in busy.shared):
                return 1
            values = np.unique(busy.leaf.numpy())
            if len(values) != 1:
                return 2  # an assignment was half done
            for _ in range(2):
                with GradientTape() as tape:
                    loss = (w * w * 2.0).sum() + (w[:64] @ busy.shared[0]).sum()
                tape.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            w.assign(w.numpy() * 2.0)
            busy.leaf.assign(np.zeros(50_000))
            busy.shared[0] += 1.0
            return 0

        codes = [child(work) for _ in range(count)]
    assert busy.errors == []
    assert codes == [0] * count
    assert (w.numpy() == 1.0).all()


@pytest.mark.slow
def test_forks_beside_busy_threads_leave_children_that_train():
    forks_beside_busy_threads(20)


@pytest.mark.soak
def test_a_thousand_forks_beside_busy_threads_leave_children_that_train():
    forks_beside_busy_threads(1000)


def test_a_fork_waits_for_a_thread_that_writes_and_no_longer(monkeypatch):
    monkeypatch.setattr(write_guard, "FORK_WAITS", 0.2)
    has_it, let_go = threading.Event(), threading.Event()

    def keep():
        with write_guard.GUARD:
            has_it.set()
            let_go.wait(60)

    thread = threading.Thread(target=keep)
    thread.start()
    has_it.wait(60)
    began = time.monotonic()
    w = Variable([1.0], requires_grad=True)
    assert child(lambda: (w.assign([2.0]), 0)[1]) == 0
    assert time.monotonic() - began >= 0.2
    let_go.set()
    thread.join()
    w.assign([3.0])
    assert child(lambda: (w.assign([4.0]), 0)[1]) == 0
    assert float(w.item()) == 3.0


@pytest.mark.soak
@in_its_thread
def test_an_interrupt_at_any_place_of_what_runs_before_a_fork_leaves_no_lock_held(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)
    locks = [threading.RLock() for _ in range(3)]
    mine = write_guard.hold_during_forks.__code__.co_filename
    write_guard.hold_during_forks(lambda: locks, 1.0)
    for n in itertools.count(1):
        with locks[1], interrupt(n, "opcode", within=mine) as fired:
            assert child(lambda: 0) == 0
        for lock in (write_guard.GUARD, *locks):
            assert not lock._is_owned(), fired
        if not fired:
            break
    assert n > 100


@pytest.mark.slow
def test_threads_that_fork_at_once_release_each_its_own():
    def fork(codes):
        for _ in range(20):
            codes.append(child(lambda: 0))

    found = [[] for _ in range(3)]
    threads = [threading.Thread(target=fork, args=(codes,)) for codes in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[0] * 20] * 3
    assert write_guard.GUARD.acquire(blocking=False)
    write_guard.GUARD.release()


def test_a_thread_that_forks_while_it_writes_goes_on_in_both_processes():
    w = Variable(np.ones(4), requires_grad=True)
    codes = []

    def step():
        with write_guard.GUARD:
            codes.append(child(lambda: (w.assign(np.zeros(4)), 0)[1]))
            w.assign(np.full(4, 5.0))

    step()
    step()
    assert codes == [0, 0]
    assert write_guard.GUARD.acquire(blocking=False)
    write_guard.GUARD.release()


def test_the_child_keeps_the_locks_of_its_own_tapes_and_of_those_it_was_handed():
    x = np.random.default_rng(1).normal(size=(40, 40))
    y = x.copy()
    w = Variable(np.ones((40, 40)), requires_grad=True)
    made = []

    def record():
        with GradientTape() as tape:
            made.extend([tape, ops.sum(w * y)])

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    with GradientTape() as tape:
        z = ops.sum(w * x)

        def work():
            if x.flags.writeable or y.flags.writeable or locked_bytes() != x.nbytes + y.nbytes:
                return 1
            right = (tape.gradient(z, w) == x).all() and (made[0].gradient(made[1], w) == y).all()
            return 0 if right and x.flags.writeable and y.flags.writeable else 2

        assert child(work) == 0
    assert not x.flags.writeable
    assert (tape.gradient(z, w) == x).all()
    assert x.flags.writeable
    assert (made[0].gradient(made[1], w) == y).all()


def test_a_tape_that_its_thread_still_records_on_is_refused_by_name_in_the_child():
    x = np.random.default_rng(1).normal(size=(40, 40))
    w = Variable(np.ones((40, 40)), requires_grad=True)
    made, ready, go_on = [], threading.Event(), threading.Event()

    def record():
        with GradientTape() as tape:
            made.extend([tape, ops.sum(w * x)])
            ready.set()
            go_on.wait(60)

    thread = threading.Thread(target=record)
    thread.start()
    ready.wait(60)

    def work():
        x[0] = 7.0
        try:
            made[0].gradient(made[1], w)
        except TapeConsumedError as error:
            return 0 if "forked" in str(error) else 2
        return 3

    assert child(work) == 0
    assert not x.flags.writeable
    go_on.set()
    thread.join()
    assert (made[0].gradient(made[1], w) == x).all()
    assert x.flags.writeable


def test_scopes_of_the_thread_that_forks_go_on_in_the_child():
    x = Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        y = x * x

        def work():
            z = y * x
            return 0 if float(tape.gradient(z, x)) == 27.0 else 1

        assert child(work) == 0
    assert float(tape.gradient(y, x)) == 6.0


@pytest.mark.skipif(sys.platform != "linux", reason="fork is not the way here")
def test_processes_of_multiprocessing_are_forked_beside_threads():
    import multiprocessing

    with Busy(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(slope_of_square, range(20)) == [2.0 * k for k in range(20)]


def slope_of_square(k):
    x = Variable(float(k), requires_grad=True)
    with GradientTape() as tape:
        y = x * x
    return float(tape.gradient(y, x))
