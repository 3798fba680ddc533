"""Loops compiled from plain functions: for the CPU with numba, for the GPU with numba.cuda.

| Name | Meaning |
|---|---|
| `cpu_loop`, `cuda_loop` | apply one scalar function to every element |
| `cpu_softmax`, `cuda_softmax` | softmax of every row of a matrix |
| `T`, `select` | the dtype of such a scalar function, and a choice between two numbers |
| `bind` | rebuild a plain function for one dtype |

numba takes most of a second to import and is of no use to a program that compiles nothing, so
these modules import it inside the functions that build kernels, by way of `numba_module`.
Without numba everything but kernels works.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

from odyssey.errors import DeviceError
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

_HOMES = {
    "bind": "elementwise",
    "cpu_loop": "elementwise",
    "cuda_loop": "elementwise",
    "cpu_softmax": "softmax",
    "cuda_softmax": "softmax",
}


def __getattr__(name: str) -> Any:
    """Import the module of a kernel when the kernel is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"odyssey.kernels has no {name!r}")
    return getattr(import_module(f"odyssey.kernels.{_HOMES[name]}"), name)


def numba_module(name: str = "") -> Any:
    """Import numba, or a module of it.

    Raises:
        DeviceError: where that cannot be, for instance because it has no release for this Python,
            or because Ctrl-C came in the midst of its first import.
    """
    # Not an import statement: numba declares itself typed, but some of its modules are not.
    try:
        module = import_module(f"numba.{name}" if name else "numba")
        _check_whole()
    except Exception as error:
        hint = "`pip install numba`, on a version of Python that it supports"
        if not isinstance(error, ModuleNotFoundError):
            hint += "; or begin Python anew if a first import was interrupted"
        raise DeviceError(
            f"kernels: numba cannot be imported ({error}), and compiles them; everything else "
            f"works without it; {hint}"
        ) from error
    return module


@cache
def _check_whole() -> None:
    """Refuse numba after an interrupt of its first import.

    What was imported by then stays loaded, and is not bound in the numba of a later import: that
    fails, or numba does when it compiles, each time and by an AttributeError.
    """
    numba = sys.modules["numba"]
    for name, module in list(sys.modules.items()):
        package, _, last = name.rpartition(".")
        if package != "numba" or hasattr(numba, last):
            continue
        if not getattr(module.__spec__, "_initializing", False):  # as in another thread
            raise ImportError(f"an import of it was interrupted, it lacks {name}")


@cache
def has_numba() -> bool:
    """Whether there is a numba to import; it may still fail to."""
    from importlib.util import find_spec  # which the package does without otherwise

    return find_spec("numba") is not None
