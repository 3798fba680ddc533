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
from collections.abc import Mapping
from types import MappingProxyType

from odyssey.compiler.calls.binding import write
from odyssey.compiler.code.pool_text import ALONE, pool_text
from odyssey.compiler.machine.blas import thread_setters
from odyssey.compiler.machine.native import Loaded, load
from odyssey.compiler.machine.threads import tell

__all__ = ["symbols", "why_one"]

_LOCK = threading.RLock()


class _Pool:
    """The native pool, once there is one."""

    loaded: Loaded | None = None
    symbols: Mapping[str, int] = MappingProxyType({})
    held = False


def why_one() -> str | None:
    """What keeps programs from running in several threads here; None if nothing does."""
    if os.name != "posix":
        return f"there is no pool of threads for {sys.platform}"
    return None


def symbols() -> Mapping[str, int]:
    """Addresses of what programs call to share work out."""
    with _LOCK:
        if _Pool.loaded is None:
            _begin()
        return _Pool.symbols


def _begin() -> None:
    lone = why_one() is not None
    text = ALONE if lone else pool_text(platform.machine(), int(signal.SIG_SETMASK))
    loaded = load(text)
    names = ("ody_parallel", "ody_enter", "ody_leave")
    _Pool.symbols = MappingProxyType({name: loaded.address(name) for name in names})
    if not lone:
        _call(loaded, "ody_prepare")
        _keep_for_ever(loaded)
    get, put = thread_setters()
    write(loaded.address("ody_get"), [get])
    write(loaded.address("ody_set"), [put])
    tell(lambda number: write(loaded.address("ody_said"), [number]))
    _Pool.loaded = loaded
    atexit.register(_hold)


def _call(loaded: Loaded, name: str) -> None:
    ctypes.CFUNCTYPE(None)(loaded.address(name))()


def _keep_for_ever(loaded: Loaded) -> None:
    """Threads that look for work may outlive the modules of a Python that ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded))


# ------------------------------------------------------------------ forks and ends


def _hold() -> None:
    """End all threads, when what they do is done; programs do without them until ``_open``."""
    if _Pool.loaded is not None and why_one() is None and not _Pool.held:
        _Pool.held = True
        _call(_Pool.loaded, "ody_hold")


def _before_a_fork() -> None:
    _LOCK.acquire()
    _hold()


def _after_a_fork() -> None:
    if _Pool.held and _Pool.loaded is not None:
        _Pool.held = False
        _call(_Pool.loaded, "ody_open")
    _LOCK.release()


def _in_a_child() -> None:
    if _Pool.loaded is not None and why_one() is None:
        _call(_Pool.loaded, "ody_forked")
    _after_a_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_a_fork, after_in_parent=_after_a_fork, after_in_child=_in_a_child
    )
