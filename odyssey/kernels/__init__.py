"""Loops compiled from plain functions: for the CPU with numba, for the GPU with numba.cuda.

| Name | Meaning |
|---|---|
| `cpu_loop`, `cuda_loop` | apply one scalar function to every element |
| `cpu_softmax`, `cuda_softmax` | softmax of every row of a matrix |
| `T` | a typed constant in such a scalar function |
| `bind` | rebuild a plain function for one dtype |

numba takes most of a second to import and is of no use to a program that compiles nothing, so
these modules import it inside the functions that build kernels.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["T", "bind", "cpu_loop", "cpu_softmax", "cuda_loop", "cuda_softmax"]

T: Any = float
"""Stand-in for the dtype in scalar sources: kernels bind it to float32 or float64."""

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
