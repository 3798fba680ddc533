"""Locks of LLVM, which numba and the compiler share: a fork waits for other threads within it."""

from __future__ import annotations

import sys

# Also in ``threading``, whose import takes longer than that of this package.
from _thread import RLock
from typing import Any

from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks

__all__ = ["COMPILER_LOCK", "FORK_FAILURES", "mark_fork_failure"]

# LLVM's objects may be used by one thread at a time.
COMPILER_LOCK = RLock()

# In a child process: why its copy of LLVM cannot be used.
FORK_FAILURES: list[str] = []

# Seconds that a fork waits for another thread to finish compiling; most programs take less than 1.
_FORK_WAITS = 10.0


def mark_fork_failure() -> None:
    """Note in a child process that LLVM is as another thread of the parent left it."""
    FORK_FAILURES.append(
        "this process was forked while another thread of its parent was within LLVM"
    )


def _llvm_locks() -> list[RLock]:
    """Return the compiler's lock, and that of all users of llvmlite."""
    ffi: Any = sys.modules.get("llvmlite.binding.ffi")
    inner: Any = getattr(getattr(getattr(ffi, "lib", None), "_lock", None), "_lock", None)
    return [lock for lock in (COMPILER_LOCK, inner) if hasattr(lock, "_at_fork_reinit")]


def _numba_locks() -> list[RLock]:
    """Return the lock of numba's compiler, within which it takes that of llvmlite."""
    numba: Any = sys.modules.get("numba.core.compiler_lock")
    outer: Any = getattr(getattr(numba, "global_compiler_lock", None), "_lock", None)
    return [outer] if hasattr(outer, "_at_fork_reinit") else []


hold_during_forks(_llvm_locks, _FORK_WAITS, mark_fork_failure)
# A fork takes the locks that are registered last first. A thread that compiles one function after
# another may keep numba's lock from the fork; LLVM is then at rest all the same.
hold_during_forks(_numba_locks, FORK_WAITS)
