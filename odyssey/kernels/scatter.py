"""Gather and scatter-add at integer indices.

On the CPU one pass over the elements. On the GPU positions are sorted by their index, and one
thread adds each element of the result: no atomics, so equal inputs give equal bits. Repeated
indices accumulate in order on both: on the CPU float32 elements in double precision, as in NumPy's
``bincount``, whole rows in their own dtype; on the GPU in their own dtype, but half precision in
single.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels import cuda as device
from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = [
    "cuda_scatter_add",
    "scatter_add_lines",
    "scatter_add_elements",
    "scatter_add_slices",
    "has_float_dtype",
    "gather_lines",
]


def has_float_dtype(x: Spec, *rest: Any) -> bool:
    """Return whether a gather or scatter has a compiled loop: for float32 and float64."""
    return x.dtype.char in "fd" and x.ndim > 0


# Free names of the GPU kernels, to which ``bind_kernel`` gives their values.
cuda: Any = None
T: Any = None
C: Any = None

# ------------------------------------------------------------------ loops


@loop
def _add_elements_loop(x: Any, indices: Any, out: Any) -> Any:
    """Add elements at indices; return 0, or 1 + the position of an index out of range."""
    length = out.size
    for k in range(x.size):
        index = indices[k]
        if index < 0:
            index += length
        if index < 0 or index >= length:
            return k + 1
        out[index] += x[k]
    return 0


@loop
def _add_slices_loop(x: Any, indices: Any, out: Any) -> Any:
    heads, length, tail = out.shape
    for h in range(heads):
        for k in range(indices.size):
            index = indices[k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return k + 1
            for t in range(tail):
                out[h, index, t] += x[h, k, t]
    return 0


@loop
def _add_lines_loop(x: Any, indices: Any, out: Any) -> Any:
    lines, length = out.shape
    for i in range(lines):
        for k in range(indices.shape[1]):
            index = indices[i, k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return i * indices.shape[1] + k + 1
            out[i, index] += x[i, k]
    return 0


@loop
def _gather_lines_loop(x: Any, indices: Any, out: Any) -> Any:
    lines, length = x.shape
    for i in range(lines):
        for k in range(indices.shape[1]):
            index = indices[i, k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return i * indices.shape[1] + k + 1
            out[i, k] = x[i, index]
    return 0


# ------------------------------------------------------------------ GPU kernels


def _normalize_keys(indices: Any, keys: Any, order: Any, size: Any, length: Any) -> None:
    for k in range(cuda.grid(1), size, cuda.gridsize(1)):
        index = indices[k]
        if index < 0:
            index += length
        keys[k] = index
        order[k] = k


def _merge_runs(
    keys: Any, order: Any, out_keys: Any, out_order: Any, size: Any, width: Any
) -> None:
    """Merge pairs of sorted runs of ``width`` keys; equal keys stay in order.

    Each key finds its place by a binary search in the other run of its pair.
    """
    for k in range(cuda.grid(1), size, cuda.gridsize(1)):
        run = k // width
        key = keys[k]
        later = run % 2
        low = (run + 1 - 2 * later) * width
        first = low
        high = min(low + width, size)
        while low < high:
            middle = (low + high) // 2
            other = keys[middle]
            if other < key or (later == 1 and other == key):
                low = middle + 1
            else:
                high = middle
        # The start of the pair, the place in the own run, and the smaller keys of the other one.
        place = (run - later) * width + (k - run * width) + max(low - first, 0)
        out_keys[place] = key
        out_order[place] = order[k]


def _fold_segments(
    x: Any,
    keys: Any,
    order: Any,
    out: Any,
    heads: Any,
    length: Any,
    tail: Any,
    count: Any,
    skipped: Any,
) -> None:
    """Add for each element of ``out`` those of ``x`` at its index, in the order of ``x``."""
    for i in range(cuda.grid(1), heads * length * tail, cuda.gridsize(1)):
        t = i % tail
        index = (i // tail) % length
        h = i // (tail * length)
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < index:
                low = middle + 1
            else:
                high = middle
        total = C(0)
        if index != skipped:
            while low < count and keys[low] == index:
                total += C(x[(h * count + order[low]) * tail + t])
                low += 1
        out[i] = T(total)


@lru_cache(maxsize=8)
def _cuda_kernels(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    kernels = (_normalize_keys, _merge_runs, _fold_segments)
    normalize, merge, fold = [device.build(device.bind_kernel(k, dtype)) for k in kernels]
    return normalize, merge, fold


def _sorted_positions(dtype: np.dtype[Any], indices: Any, length: int) -> tuple[Any, Any]:
    """Return the sorted indices, and the position of each: a merge sort, a launch for each pass."""
    normalize, merge, _ = _cuda_kernels(dtype)
    size = indices.size
    blocks = -(-size // device.threads_per_block())
    keys, order, *spare = [device.new_array(indices, size, np.int64) for _ in range(4)]
    device.launch(normalize, blocks, [indices], (keys, order), (size, length))
    width = 1
    while width < size:
        device.launch(merge, blocks, [keys, order], tuple(spare), (size, width))
        keys, order, spare = *spare, [keys, order]
        width *= 2
    return keys, order


def cuda_scatter_add(
    x: Any, indices: Any, shape: tuple[int, int, int], skipped: int = -1, lowest: int | None = None
) -> Any:
    """Return matrices with rows of zeros, to which the rows of ``x`` are added, on the GPU.

    The host waits for the smallest and the largest index, which it checks.

    Args:
        x: (heads, indices, tail), floating.
        indices: Integers of any shape.
        shape: (heads, length, tail) of the result.
        skipped: The number of a row to which nothing is added.
        lowest: The smallest index that is valid; ``-length`` by default.

    Raises:
        IndexError: An index is out of range.
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    heads, length, tail = shape
    count = indices.size
    dtype = x.dtype
    out = device.new_array(x, shape, dtype)
    if not out.size or not count:
        out[...] = 0
        return out
    places = device.contiguous(indices)
    if places.dtype != np.int64:
        places = places.astype(np.int64)
    lowest = -length if lowest is None else lowest
    low, high = int(places.min()), int(places.max())
    if low < lowest or high >= length:
        raise IndexError(f"index {low if low < lowest else high} is out of bounds for {length}")
    keys, order = _sorted_positions(dtype, places, length)
    fold = _cuda_kernels(dtype)[2]
    blocks = -(-out.size // device.threads_per_block())
    arrays = [device.contiguous(x), keys, order]
    sizes = (heads, length, tail, count, skipped)
    device.launch(fold, blocks, arrays, out.reshape(out.size), sizes)
    return out


# ------------------------------------------------------------------ entry points


def _raise_out_of_range(position: int, indices: Array, length: int) -> None:
    if position:
        raise IndexError(f"index {indices.reshape(-1)[position - 1]} is out of bounds for {length}")


def _as_indices(indices: Array) -> Array:
    return indices if indices.dtype == np.intp else indices.astype(np.intp)


def scatter_add_elements(x: Array, indices: Array, length: int) -> Array:
    """Return ``length`` zeros with the elements of ``x`` added at indices of any shape."""
    indices = _as_indices(indices)
    out = np.zeros(length)
    _raise_out_of_range(
        _add_elements_loop(x.reshape(-1), indices.reshape(-1), out), indices, length
    )
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def scatter_add_slices(x: Array, indices: Array, heads: int, length: int, tail: int) -> Array:
    """Return matrices with ``length`` rows of zeros, to which the rows of ``x`` are added."""
    indices = _as_indices(indices)
    out = np.zeros((heads, length, tail), x.dtype)
    rows = x.reshape(heads, indices.size, tail)
    _raise_out_of_range(_add_slices_loop(rows, indices.reshape(-1), out), indices, length)
    return out


def scatter_add_lines(x: Array, indices: Array, shape: Shape) -> Array:
    """Return zeros with the elements of ``x`` added, in each line at its own indices."""
    indices = _as_indices(indices)
    out, length = np.zeros(shape), shape[-1]
    lines = (math.prod(shape[:-1]), indices.shape[-1])
    arrays = x.reshape(lines), indices.reshape(lines), out.reshape(lines[0], length)
    _raise_out_of_range(_add_lines_loop(*arrays), indices, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def gather_lines(x: Array, indices: Array) -> Array:
    """Return the elements of each line at its own indices."""
    indices = _as_indices(indices)
    out = np.empty(indices.shape, x.dtype)
    length = x.shape[-1]
    lines = (math.prod(x.shape[:-1]), indices.shape[-1])
    arrays = x.reshape(lines[0], length), indices.reshape(lines), out.reshape(lines)
    _raise_out_of_range(_gather_lines_loop(*arrays), indices, length)
    return out
