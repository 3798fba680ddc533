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

from odyssey.kernels.elementwise import T, bind, cpu_loop, cuda_loop
from odyssey.kernels.softmax import cpu_softmax, cuda_softmax

__all__ = ["T", "bind", "cpu_loop", "cpu_softmax", "cuda_loop", "cuda_softmax"]
