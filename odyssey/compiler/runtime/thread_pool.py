"""Threads of programs, and the pool that they come from.

The pool is native: threads of the system that never call Python, so programs share their loops out
without its lock. It begins with the first program that wants it. A fork ends it, and it begins
again where it is wanted, in the parent and in the child.
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
from odyssey.compiler.machine.blas import thread_setters
from odyssey.compiler.machine.jit import Loaded, load
from odyssey.compiler.machine.thread_count import tell
from odyssey.compiler.runtime.binding import write_words
from odyssey.devices.commit import commit
from odyssey.devices.write_guard import hold_during_forks

__all__ = ["thread_pool_symbols", "why_single_threaded"]

_LOCK = threading.RLock()


class _Pool:
    """The native pool, once there is one."""

    loaded: Loaded | None = None
    symbols: Mapping[str, int] = MappingProxyType({})


def why_single_threaded() -> str | None:
    """What keeps programs from running in several threads here; None if nothing does."""
    if os.name != "posix":
        return f"there is no pool of threads for {sys.platform}"
    return None


def thread_pool_symbols() -> Mapping[str, int]:
    """Addresses of what programs call to share work out."""
    with _LOCK:
        if _Pool.loaded is None:
            _start_pool()
        return _Pool.symbols


def _start_pool() -> None:
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
    tell(lambda number: write_words(loaded.address("ody_said"), [number]))
    _Pool.loaded = loaded
    if not lone:
        atexit.register(_c_function(loaded, "ody_hold"))  # for good


def _c_function(loaded: Loaded, name: str, kind: Any = ctypes.CFUNCTYPE) -> Callable[[], int]:
    """A function in C that takes nothing; nobody asks for what it returns."""
    made: Callable[[], int] = kind(ctypes.c_int)(loaded.address(name))
    return made


def _keep_forever(loaded: Loaded) -> None:
    """Threads that look for work may outlive the modules of a Python that ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))


# ------------------------------------------------------------------ forks and ends

# What a fork calls: before it, after it in the parent, and in the child. It ends all threads, when
# what they do is done; programs do without them meanwhile.
_BEFORE: list[Callable[[], int]] = []
_AFTER: list[Callable[[], int]] = []
_IN_CHILD: list[Callable[[], int]] = []


def _register_at_fork(loaded: Loaded) -> None:
    commit(
        [
            (_BEFORE.append, _c_function(loaded, "ody_hold")),
            # With Python's lock: one at a time.
            (_AFTER.append, _c_function(loaded, "ody_open", ctypes.PYFUNCTYPE)),
            (_IN_CHILD.append, _c_function(loaded, "ody_forked")),
            (_IN_CHILD.append, _c_function(loaded, "ody_reopen")),
        ]
    )


def _call_each(functions: list[Callable[[], int]]) -> Callable[[], object]:
    """What calls all of ``functions`` that there are by then, in one call of C.

    An interrupt during the call of the system would end a function of Python's at its first line,
    and the pool would stay closed.
    """
    return partial(min, functions, key=call, default=None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_call_each(_BEFORE),
        after_in_parent=_call_each(_AFTER),
        after_in_child=_call_each(_IN_CHILD),
    )

# Before the pool is held, until it is open again.
hold_during_forks(lambda: (_LOCK,), -1.0)
