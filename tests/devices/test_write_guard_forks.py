"""A fork leaves no lock of the package closed, whatever other threads do at that moment."""

import ast
import threading
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.machine import state_locks
from odyssey.compiler.runtime import thread_pool
from odyssey.compiler.tracing import attempt
from odyssey.devices import write_guard
from odyssey.distributed import group
from odyssey.kernels import llvm_locks
from odyssey.table import kernel_overrides
from odyssey.tape import recording
from support.forks import forks, in_a_child

# Locks that outlive a call, by the file and the statement that makes them, and how to get at one.
HELD_DURING_FORKS = {
    "devices/write_guard.py: GUARD = RLock()": lambda: write_guard.GUARD,
    "devices/write_guard.py: STATE_LOCKS_LOCK = RLock()": lambda: write_guard.STATE_LOCKS_LOCK,
    "devices/write_guard.py: lock = RLock()": write_guard.STATES.new,
    "table/kernel_overrides.py: _LOCK = RLock()": lambda: kernel_overrides._LOCK,
    "tape/recording.py: _PRUNING = allocate_lock()": lambda: recording._PRUNING,
    "kernels/llvm_locks.py: COMPILER_LOCK = RLock()": lambda: llvm_locks.COMPILER_LOCK,
    "compiler/runtime/thread_pool.py: _LOCK = threading.RLock()": lambda: thread_pool._LOCK,
    "compiler/tracing/attempt.py: _TRACE_LOCK = RLock()": lambda: attempt._TRACE_LOCK,
    "distributed/group.py: _WORLD_LOCK = RLock()": lambda: group._WORLD_LOCK,
}
# Registries of locks, of which each lock of ``LockRegistry.new`` is in one.
REGISTRIES = {
    "states": write_guard.STATES.new,
    "bindings": write_guard.BINDINGS.new,
    "programs": state_locks.PROGRAM_LOCKS.new,
}
# Locks that a fork need not hold, and why.
NOT_HELD = {
    "compiler/cuda/host_execution.py: self._turns = [threading.Lock() for _ in range(width)]": (
        "locks of one run, which only its threads use"
    ),
    "compiler/cuda/driver.py: _DEVICE_LOCK = threading.RLock()": (
        "a child is refused by the driver before it acquires the lock"
    ),
    "devices/write_guard.py: return RLock() if _RUNNING and is_inside_program() else GUARD": (
        "only the thread that makes it uses it"
    ),
    "compiler/native_dispatch/cpython_layout.py: lock, me = (RLock(), get_ident())": (
        "a probe of a lock's layout"
    ),
    "compiler/dispatch/cache.py: self._lock, self._process = (RLock(), getpid())": (
        "made anew in a child"
    ),
    "compiler/ways/store.py: self._lock = RLock()": "a child makes a store of its own",
    "table/device_rows.py: self._lock = RLock()": "CUDA cannot be used in a forked child",
    "table/profiling.py: self.lock = threading.RLock()": (
        "nobody acquires it without ODYSSEY_PROFILE, and with it forks hold it"
    ),
    "compiler/tracing/snapshot.py: _LOCK_TYPES = (type(Lock()), type(RLock()), Condition)": (
        "only their types are kept"
    ),
    "distributed/transport.py: self._lock = threading.RLock()": (
        "a child is refused before it acquires the lock"
    ),
    "tape/liveness.py: done = _thread.allocate_lock()": "a new thread gives its result by it",
}
MAKERS = {"Lock", "RLock", "allocate_lock", "Condition", "Semaphore", "Event", "Barrier", "Queue"}
# They have a lock of their own in Python 3.11, which all objects of a class share.
MAKERS |= {cached_property.__name__, "ThreadPoolExecutor", "BoundedSemaphore", "SimpleQueue"}


def locks_made():
    """Yield the file and the statement of each place in the package that makes a lock."""
    root = Path(od.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text()
        if not any(maker in text for maker in MAKERS):
            continue
        for statement in ast.walk(ast.parse(text)):
            decorators = getattr(statement, "decorator_list", [])
            simple = isinstance(statement, ast.stmt) and not hasattr(statement, "body")
            for node in ast.walk(statement) if simple else decorators:
                called = node.func if isinstance(node, ast.Call) else node
                name = getattr(called, "attr", getattr(called, "id", None))
                if name in MAKERS and (isinstance(node, ast.Call) or node in decorators):
                    shown = ast.unparse(statement if simple else node)
                    yield f"{path.relative_to(root).as_posix()}: {shown}"


def test_each_lock_of_the_package_is_held_during_forks_or_need_not_be():
    assert {*locks_made()} == HELD_DURING_FORKS.keys() | NOT_HELD.keys()


@forks
@pytest.mark.share(1)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("which", [*HELD_DURING_FORKS, *REGISTRIES])
def test_a_lock_that_another_thread_has_at_a_fork_is_open_in_the_child(which):
    lock = {**HELD_DURING_FORKS, **REGISTRIES}[which]()
    acquired = threading.Event()

    def hold():
        with lock:
            acquired.set()
            time.sleep(0.05)

    def check():
        assert lock.acquire(timeout=0)
        lock.release()

    other = threading.Thread(target=hold)
    other.start()
    acquired.wait(60)
    assert in_a_child(check)
    other.join()
    check()


@forks
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_sees_nothing_of_a_trace_in_another_thread():
    began, w = threading.Event(), od.Variable(np.zeros(3), requires_grad=True)

    def slow():
        w.assign(w + 1.0)
        began.set()
        time.sleep(0.1)

    other = threading.Thread(target=od.compile(slow).lower)
    other.start()
    began.wait(60)
    assert in_a_child(lambda: np.testing.assert_array_equal(w.numpy(), 0.0))
    other.join()
