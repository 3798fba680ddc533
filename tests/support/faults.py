"""Faults for fault loops: one exception a run, at the n-th place of a kind; for every n."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from linecache import getline
from pathlib import Path

import numpy as np

import odyssey as od
from odyssey.compiler.machine.state_locks import PROGRAM_LOCKS
from odyssey.compiler.tracing.attempt import _TRACE_LOCK
from odyssey.devices.write_guard import _all_locks
from odyssey.table.declare import OPS

PACKAGE = str(Path(od.__file__).parent)


class FaultError(Exception):
    """What a kernel or an allocation raises."""


@contextmanager
def interrupt(n, event="line", within=PACKAGE):
    """Raise KeyboardInterrupt at the ``n``-th line or opcode of the package that a block runs.

    Or of those of a folder in it. The block sees whether it came to that.
    """
    places, fired, lines = itertools.count(1), [], []

    def here(frame, what, arg):
        if what == event and next(places) == n:
            fired.append((frame.f_code.co_qualname, frame.f_lineno))
            lines.append(getline(frame.f_code.co_filename, frame.f_lineno or 0).strip())
            raise KeyboardInterrupt
        return here

    def enter(frame, what, arg):
        if not frame.f_code.co_filename.startswith(within):
            return None
        if event == "opcode":
            frame.f_trace = here  # first: CPython 3.13 overlooks the flag of a frame without one
            frame.f_trace_opcodes = True
        return here

    before = sys.gettrace()
    if event == "opcode":
        sys._getframe().f_trace_opcodes = True  # CPython 3.12 asks whether any frame has it
    sys.settrace(enter)
    try:
        yield fired
    finally:
        sys.settrace(before)
        # A tracer can raise between the body of a ``with`` and the call of ``__exit__``, where no
        # handler of a signal runs: there, and nowhere else, the lock is left held.
        known = "with write_lock():", "with GUARD:", "with lock:", "try:"
        known += "with self._binding:", "with self._lock:"
        for lock in [*_all_locks(), *PROGRAM_LOCKS.living()]:
            while lock._is_owned():
                lock.release()
                assert lines[0] in known, (fired, lines)
        while _TRACE_LOCK._is_owned():
            _TRACE_LOCK.release()
            assert lines[0] == "locks.release()", (fired, lines)


@contextmanager
def between(n, act, event="line", within=PACKAGE):
    """Call ``act`` at the ``n``-th line or opcode of the package that a block runs.

    As the handler of a signal and a finalizer are called there. The block sees where that was.
    """
    places, fired = itertools.count(1), []

    def here(frame, what, arg):
        if what == event and not fired and next(places) == n:
            fired.append((frame.f_code.co_qualname, frame.f_lineno))
            sys.settrace(before)
            act()
        return here

    def enter(frame, what, arg):
        if fired or not frame.f_code.co_filename.startswith(within):
            return None
        if event == "opcode":
            frame.f_trace = here
            frame.f_trace_opcodes = True
        return here

    before = sys.gettrace()
    if event == "opcode":
        sys._getframe().f_trace_opcodes = True
    sys.settrace(enter)
    try:
        yield fired
    finally:
        sys.settrace(before)
        act = None  # ``here`` refers to itself, and would keep it until the collector comes


def in_its_thread(test):
    """Run a test in a thread of its own.

    A tracer can raise between a handler of exceptions and its end, where no handler of a signal
    runs: then CPython takes the exception for one that is being handled until the thread ends.
    """

    @wraps(test)
    def run(*args, **named):
        with ThreadPoolExecutor(1) as thread:
            thread.submit(test, *args, **named).result()

    return run


@contextmanager
def failing_kernel(n, error=FaultError):
    """Let the ``n``-th kernel call of a block raise."""
    kernels = {row: row.kernel for row in OPS.values()}
    calls, fired = itertools.count(1), []

    def failing(kernel):
        def call(*args):
            if next(calls) == n:
                fired.append(kernel)
                raise error
            return kernel(*args)

        return call

    try:
        for row, kernel in kernels.items():
            row.use(failing(kernel))
        yield fired
    finally:
        for row, kernel in kernels.items():
            row.use(kernel)


ALLOCATORS = ("array", "asarray", "empty", "zeros", "ones", "full", "zeros_like", "ones_like")


@contextmanager
def failing_allocation(n, error=MemoryError):
    """Let the ``n``-th call of a block that makes an array raise."""
    real = {name: getattr(np, name) for name in ALLOCATORS}
    calls, fired = itertools.count(1), []

    def failing(function):
        def call(*args, **named):
            if next(calls) == n:
                fired.append(function)
                raise error
            return function(*args, **named)

        return call

    try:
        for name, function in real.items():
            setattr(np, name, failing(function))
        yield fired
    finally:
        for name, function in real.items():
            setattr(np, name, function)


FAULTS = {
    "line": lambda n: interrupt(n, "line"),
    "opcode": lambda n: interrupt(n, "opcode"),
    "kernel": failing_kernel,
    "allocation": failing_allocation,
}
RAISED = (KeyboardInterrupt, FaultError, MemoryError)
