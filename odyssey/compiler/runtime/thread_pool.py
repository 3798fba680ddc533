"""Thread pool of compiled programs: its start, its end at a fork, and its symbols.

Called by ``executable`` for a program whose kernels are shared among threads. The pool is native:
its threads never call Python, so they share loops without the interpreter's lock. It starts with
the first program that needs it. A fork ends it; parent and child start it again when they need it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from operator import call
from types import MappingProxyType
from typing import Any

from odyssey.compiler.codegen.thread_pool import SINGLE_THREADED, thread_pool_text
from odyssey.compiler.machine.addresses import write_words
from odyssey.compiler.machine.blas import thread_setters
from odyssey.compiler.machine.jit import Loaded, load
from odyssey.compiler.machine.thread_count import subscribe
from odyssey.devices.commit import commit
from odyssey.devices.write_guard import hold_during_forks

__all__ = ["thread_pool_symbols", "why_single_threaded"]

_LOCK = threading.RLock()


class _Pool:
    """Process-wide state of the native pool."""

    loaded: Loaded | None = None
    symbols: Mapping[str, int] = MappingProxyType({})


def why_single_threaded() -> str | None:
    """Return why programs cannot run in several threads on this platform, or None."""
    if os.name != "posix":
        return f"there is no pool of threads for {sys.platform}"
    return None


def thread_pool_symbols() -> Mapping[str, int]:
    """Return addresses of the pool's functions that programs call; start the pool if needed."""
    with _LOCK:
        if _Pool.loaded is None:
            _start_pool()
        return _Pool.symbols


def _start_pool() -> None:
    """Compile the pool, register its fork handlers, and publish its symbols."""
    lone = why_single_threaded() is not None
    text = (
        SINGLE_THREADED if lone else thread_pool_text(platform.machine(), int(signal.SIG_SETMASK))
    )
    loaded = load(text)
    names = ("ody_parallel", "ody_enter", "ody_leave")
    _Pool.symbols = MappingProxyType({name: loaded.address(name) for name in names})
    if not lone:
        _c_function(loaded, "ody_prepare")()
        _keep_forever(loaded)
        _register_at_fork(loaded)
    get, put = thread_setters()
    write_words(loaded.address("ody_get"), [get])
    write_words(loaded.address("ody_set"), [put])
    subscribe(lambda number: write_words(loaded.address("ody_said"), [number]))
    _Pool.loaded = loaded
    if not lone:
        atexit.register(_c_function(loaded, "ody_hold"))  # never reopened


def _c_function(loaded: Loaded, name: str, kind: Any = ctypes.CFUNCTYPE) -> Callable[[], int]:
    """Return a C function without arguments; its result is not used."""
    made: Callable[[], int] = kind(ctypes.c_int)(loaded.address(name))
    return made


def _keep_forever(loaded: Loaded) -> None:
    """Leak a reference: worker threads may outlive the modules of a closing interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))


# ------------------------------------------------------------------ forks and ends

# Functions that a fork calls: before it, after it in the parent, and in the child. Before a fork
# all worker threads finish their blocks and end; programs run in one thread meanwhile.
_BEFORE: list[Callable[[], int]] = []
_AFTER: list[Callable[[], int]] = []
_IN_CHILD: list[Callable[[], int]] = []


def _register_at_fork(loaded: Loaded) -> None:
    """Register what a fork must call, all at once."""
    commit(
        [
            (_BEFORE.append, _c_function(loaded, "ody_hold")),
            # PYFUNCTYPE keeps the interpreter's lock: one thread at a time.
            (_AFTER.append, _c_function(loaded, "ody_open", ctypes.PYFUNCTYPE)),
            (_IN_CHILD.append, _c_function(loaded, "ody_forked")),
            (_IN_CHILD.append, _c_function(loaded, "ody_reopen")),
        ]
    )


def _call_each(functions: list[Callable[[], int]]) -> Callable[[], object]:
    """Return a callable that calls every function of a list in a single C call.

    An interrupt during the system call would end a Python function at its first line, and the pool
    would stay closed.
    """
    return partial(min, functions, key=call, default=None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_call_each(_BEFORE),
        after_in_parent=_call_each(_AFTER),
        after_in_child=_call_each(_IN_CHILD),
    )

# The lock is taken before the pool is held, and released once it is open again.
hold_during_forks(lambda: (_LOCK,), -1.0)
