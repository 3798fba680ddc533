"""Kernels compiled from Python functions: CPU loops by numba, GPU kernels by numba.cuda.

| Name | Meaning |
|---|---|
| `cpu_loop`, `cuda_loop` | apply one scalar function to every element |
| `cpu_softmax`, `cuda_softmax` | softmax of every row of a matrix |
| `T`, `select` | the dtype of a scalar function, and a branch-free choice between two numbers |
| `bind` | rebuild a plain function for one dtype |

numba takes most of a second to import, and a program that compiles nothing does not need it: the
functions that build kernels import it, by `numba_module`. Without numba everything but kernels
works.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from importlib import import_module
from typing import Any

from odyssey.errors import DeviceError
from odyssey.kernels import llvm_locks as llvm_locks  # forks wait for numba from here on
from odyssey.kernels.scalars import T, select

__all__ = [
    "T",
    "bind",
    "cpu_loop",
    "cpu_softmax",
    "cuda_loop",
    "cuda_softmax",
    "has_numba",
    "numba_module",
    "select",
]

_MODULES = {
    "bind": "elementwise",
    "cpu_loop": "elementwise",
    "cuda_loop": "elementwise",
    "cpu_softmax": "softmax",
    "cuda_softmax": "softmax",
}


def __getattr__(name: str) -> Any:
    """Import the module of a kernel at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"odyssey.kernels has no {name!r}")
    return getattr(import_module(f"odyssey.kernels.{_MODULES[name]}"), name)


def numba_module(name: str = "") -> Any:
    """Import numba, or a module of it.

    Raises:
        DeviceError: if that fails, for instance because numba has no release for this Python,
            or because Ctrl-C interrupted its first import.
    """
    # Not an import statement: numba declares itself typed, but some of its modules are not.
    try:
        module = import_module(f"numba.{name}" if name else "numba")
        _check_complete_import()
        _register_fmod()
    except Exception as error:
        hint = "`pip install numba`, on a version of Python that it supports"
        if not isinstance(error, ModuleNotFoundError):
            hint += "; or restart Python if a first import was interrupted"
        raise DeviceError(
            f"kernels: numba cannot be imported ({error}), and compiles them; everything else "
            f"works without it; {hint}"
        ) from error
    return module


@cache
def _register_fmod() -> None:
    """Let numba compile ``math.fmod``, which it lacks, as NumPy's function."""
    import numpy as np

    # A lambda, since numba compares the annotations of the two functions.
    import_module("numba.extending").overload(math.fmod)(lambda x, y: lambda x, y: np.fmod(x, y))


@cache
def _check_complete_import() -> None:
    """Raise ImportError if a first import of numba was interrupted.

    Submodules imported by then stay loaded, but are not attributes of the numba of a later import:
    that import, or a compilation, then fails with AttributeError every time.
    """
    numba = sys.modules["numba"]
    for name, module in list(sys.modules.items()):
        package, _, last = name.rpartition(".")
        if package != "numba" or hasattr(numba, last):
            continue
        if not getattr(module.__spec__, "_initializing", False):  # being imported by another thread
            raise ImportError(f"an import of it was interrupted, it lacks {name}")


@cache
def has_numba() -> bool:
    """Return whether numba is installed; its import may still fail."""
    from importlib.util import find_spec  # not needed elsewhere at import

    return find_spec("numba") is not None


def __dir__() -> list[str]:
    return sorted(__all__)
