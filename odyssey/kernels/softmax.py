"""Softmax of every row of a matrix: exp(x - max) / sum(exp(x - max)).

The largest element of a row is subtracted first, so that exp cannot overflow. What is left is
NumPy's formula, special values included: a row with a NaN or +inf, or of -inf alone, becomes NaN;
-inf among finite numbers becomes 0. Nothing is raised for values.

Floating-point policy: IEEE, no fast-math. Sums are taken in a fixed order, so that equal inputs
give equal bits: in blocks of 128 columns on the CPU, by a tree over the threads on the GPU. Both
keep the error of a sum over n columns to about 128 + n/128, or n/256 + 8, roundings.

On the GPU a block has a row, of more than 32,768 columns a part of one: it writes exponentials over
that of the largest element of the part, and a second launch scales them by the maxima and sums of
all parts of the row, in their order. Parts depend on the number of columns alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import cuda as device
from odyssey.kernels import numba_module
from odyssey.kernels.elementwise import T, bind, compile_scalar, cuda_scalar, kernel_dtype

__all__ = ["cpu_softmax", "cuda_ptx", "cuda_softmax"]

# Free names of the GPU kernel, to which `bind` gives their values; declared here for checkers.
cuda: Any = None
threads: int = 0

# A thread adds so many elements of a part, or more in rows of more parts than a block has threads.
_PART_ROUNDS = 128


def cpu_softmax(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """Write the softmax of each row of x into out, on the CPU.

    Args:
        x: (rows, columns), float32 or float64; copied first where it is not C-contiguous.
        out: of the same shape and dtype, C-contiguous; may be x itself.

    Raises:
        ShapeError: x is not a matrix, or out has another shape, or is not C-contiguous.
        DTypeError: see `bind`; or out has another dtype.

    >>> out = np.empty((1, 2))
    >>> cpu_softmax(np.array([[0.0, np.log(3.0)]]), out)
    >>> out.round(12)
    array([[0.25, 0.75]])
    """
    _check_shapes("cpu_softmax", x, out)
    if x.size:
        _cpu_rows(x.dtype)(np.ascontiguousarray(x), out)


def cuda_softmax(x: Any, out: Any) -> None:
    """Write the softmax of each row of x into out, on the GPU or in its simulator.

    Args:
        x: (rows, columns), float32 or float64, on the host or on the device.
        out: of the same shape and dtype, C-contiguous, on the host or on the device. With a
            device `out` the call does not wait.

    Raises:
        ShapeError: x is not a matrix, or out has another shape, or is not C-contiguous.
        DTypeError: see `bind`; or out has another dtype.
        DeviceError: there is neither a usable GPU nor the simulator.
    """
    _check_shapes("cuda_softmax", x, out)
    of_parts, scale = _cuda_kernels(x.dtype)
    rows, columns = x.shape
    if not out.size:  # a grid of no blocks cannot be launched
        return
    flat = x.reshape(out.size), out.reshape(out.size)
    in_block = device.threads_per_block()
    width = max(_PART_ROUNDS * in_block, -(-columns // in_block))
    parts = rows * -(-columns // width)
    shared = parts if parts > rows else 1  # whole rows leave nothing there
    peaks = device.scratch_array(x, shared, x.dtype)
    totals = device.scratch_array(x, shared, x.dtype)
    sizes = rows, columns, width
    device.launch(of_parts, parts, flat[:1], (flat[1], peaks, totals), sizes)
    if parts > rows:
        device.launch(scale, parts, [peaks, totals], flat[1], sizes)


def cuda_ptx(dtype: DTypeLike) -> list[str]:
    """PTX of the kernels that `cuda_softmax` launches; no GPU is needed.

    Raises:
        DTypeError: see `bind`.
        DeviceError: see `odyssey.kernels.cuda.ptx`.
    """
    dtype, numba = kernel_dtype(dtype), numba_module()
    array, size = numba.types.Array(numba.from_dtype(dtype), 1, "C"), numba.types.int64
    of_parts, scale = _bound_kernels(dtype)
    return [
        device.ptx(of_parts, (*[array] * 4, size, size, size)),
        device.ptx(scale, (*[array] * 3, size, size, size)),
    ]


def _check_shapes(who: str, x: Any, out: Any) -> None:
    kernel_dtype(x.dtype)
    if out.dtype != x.dtype:
        raise DTypeError(f"{who}: x is {x.dtype} and out {out.dtype}; they must be the same")
    if len(x.shape) != 2 or tuple(out.shape) != tuple(x.shape):
        raise ShapeError(
            f"{who}: x {tuple(x.shape)}, out {tuple(out.shape)}; "
            "both must be (rows, columns); reshape to a matrix whose rows are the axis"
        )
    if not out.flags["C_CONTIGUOUS"]:
        raise ShapeError(f"{who}: out is not C-contiguous; write into a fresh array")


def exp_below(x: Any, largest: Any) -> Any:
    """The weight of an element before its row is normalised; `bind` compiles it into a kernel."""
    return math.exp(x - largest)


def _cpu_kernel(x: Any, out: Any) -> None:
    # A NaN that the comparison below passes over still reaches the sum, and with it the row.
    for row in range(x.shape[0]):
        largest = x[row, 0]
        for j in range(1, x.shape[1]):
            if x[row, j] > largest:
                largest = x[row, j]
        total = T(0)
        for start in range(0, x.shape[1], 128):
            partial = T(0)
            for j in range(start, min(start + 128, x.shape[1])):
                out[row, j] = exp_below(x[row, j], largest)
                partial += out[row, j]
            total += partial
        for j in range(x.shape[1]):
            out[row, j] /= total


def _cuda_rows_kernel(
    x: Any, out: Any, peaks: Any, totals: Any, rows: Any, columns: Any, width: Any
) -> None:
    """Write whole rows; of rows of several parts, their maxima, sums and exponentials."""
    # Trees in shared memory and not warp shuffles, which the simulator lacks. The loop over parts
    # is the same for all threads of a block, so that every thread reaches every barrier.
    scratch = cuda.shared.array(threads, T)
    lane = cuda.threadIdx.x
    parts = (columns + width - 1) // width
    for part in range(cuda.blockIdx.x, rows * parts, cuda.gridDim.x):
        start = part // parts * columns + part % parts * width
        end = (part // parts + 1) * columns
        end = start + width if start + width < end else end
        largest = T(-math.inf)
        for j in range(start + lane, end, threads):
            if x[j] > largest:
                largest = x[j]
        scratch[lane] = largest
        cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if lane < half and scratch[lane + half] > scratch[lane]:
                scratch[lane] = scratch[lane + half]
            cuda.syncthreads()
            half //= 2
        largest = scratch[0]
        cuda.syncthreads()  # all have read the maximum before its place is used again
        # A part of -inf has the sum 0: a row of it becomes 0 / 0, one with other parts does not.
        shift = T(0) if largest == T(-math.inf) else largest
        partial = T(0)
        for j in range(start + lane, end, threads):
            value = T(exp_below(x[j], shift))
            out[j] = value
            partial += value
        scratch[lane] = partial
        cuda.syncthreads()
        half = threads // 2
        while half > 0:
            if lane < half:
                scratch[lane] += scratch[lane + half]
            cuda.syncthreads()
            half //= 2
        total = scratch[0]
        cuda.syncthreads()
        if parts == 1:
            for j in range(start + lane, end, threads):
                out[j] /= total
        elif lane == 0:
            peaks[part] = largest
            totals[part] = total


def _cuda_scale_kernel(
    peaks: Any, totals: Any, out: Any, rows: Any, columns: Any, width: Any
) -> None:
    """Scale the exponentials of each part of a row by the maxima and sums of all its parts."""
    parts = (columns + width - 1) // width
    for part in range(cuda.blockIdx.x, rows * parts, cuda.gridDim.x):
        first = part // parts * parts
        largest = T(-math.inf)
        for k in range(first, first + parts):
            if peaks[k] > largest:
                largest = peaks[k]
        total = T(0)
        for k in range(first, first + parts):
            total += totals[k] * T(exp_below(peaks[k], largest))
        factor = T(exp_below(peaks[part], largest)) / total
        start = part // parts * columns + part % parts * width
        end = (part // parts + 1) * columns
        end = start + width if start + width < end else end
        for j in range(start + cuda.threadIdx.x, end, threads):
            out[j] *= factor


@lru_cache(maxsize=2)
def _cpu_rows(dtype: np.dtype[Any]) -> Any:
    numba = numba_module()
    element, types = numba.from_dtype(dtype), numba.types
    readable = types.Array(element, 2, "C", readonly=True)
    writable = types.Array(element, 2, "C")
    kernel = bind(_cpu_kernel, dtype, exp_below=compile_scalar(exp_below, dtype))
    return numba.njit([types.void(readable, writable)], error_model="numpy", nogil=True)(kernel)


@lru_cache(maxsize=2)
def _cuda_kernels(dtype: np.dtype[Any]) -> list[Any]:
    return [device.build(kernel) for kernel in _bound_kernels(dtype)]


def _bound_kernels(dtype: np.dtype[Any]) -> list[Any]:
    names = {"exp_below": cuda_scalar(exp_below, dtype), "threads": device.threads_per_block()}
    names |= device.kernel_globals()
    return [bind(kernel, dtype, **names) for kernel in (_cuda_rows_kernel, _cuda_scale_kernel)]
