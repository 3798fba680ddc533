"""Scatter-add at integer indices on the GPU.

Positions are sorted by their index, and one thread adds each element of the result: no atomics, so
equal inputs give equal bits. Repeated indices accumulate in order, in the dtype of the elements,
but half precision in single.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels import cuda as device

__all__ = ["cuda_scatter_add"]

# Free names of the GPU kernels, to which ``bind_kernel`` gives their values.
cuda: Any = None
count_below: Any = None
T: Any = None
C: Any = None


def _normalize_keys(indices: Any, keys: Any, order: Any, size: Any, length: Any) -> None:
    for k in range(cuda.grid(1), size, cuda.gridsize(1)):
        index = indices[k]
        if index < 0:
            index += length
        keys[k] = index
        order[k] = k


def _count_below(keys: Any, key: Any, low: Any, high: Any, equal: Any) -> Any:
    """Return the end of the keys below ``key``, and of equal ones if so, among sorted keys."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (equal and keys[middle] == key):
            low = middle + 1
        else:
            high = middle
    return low


def _merge_runs(
    keys: Any, order: Any, out_keys: Any, out_order: Any, size: Any, width: Any
) -> None:
    """Merge pairs of sorted runs of ``width`` keys; equal keys stay in order.

    Each key finds its place by a binary search in the other run of its pair.
    """
    for k in range(cuda.grid(1), size, cuda.gridsize(1)):
        run = k // width
        later = run % 2
        first = (run + 1 - 2 * later) * width
        end = first + width if first + width < size else size
        other = count_below(keys, keys[k], first, end, later == 1)
        # The start of the pair, the place in the own run, and the smaller keys of the other one.
        place = (run - later) * width + (k - run * width) + (other - first)
        out_keys[place] = keys[k]
        out_order[place] = order[k]


def _fold_segments(x: Any, keys: Any, order: Any, out: Any, sizes: Any, skipped: Any) -> None:
    """Add for each element of ``out`` those of ``x`` at its index, in the order of ``x``."""
    heads, length, tail, count = sizes
    for i in range(cuda.grid(1), heads * length * tail, cuda.gridsize(1)):
        t = i % tail
        index = (i // tail) % length
        h = i // (tail * length)
        total = C(0)
        if index != skipped:
            k = count_below(keys, index, 0, count, False)
            while k < count and keys[k] == index:
                total += C(x[(h * count + order[k]) * tail + t])
                k += 1
        out[i] = T(total)


def bind_scatter_kernels(dtype: np.dtype[Any]) -> list[Any]:
    """Return the kernels of a scatter-add of a dtype, as plain functions, in their order."""
    kernels = (_normalize_keys, _merge_runs, _fold_segments)
    return [device.bind_kernel(kernel, dtype, [_count_below]) for kernel in kernels]


@lru_cache(maxsize=8)
def _cuda_kernels(dtype: np.dtype[Any]) -> list[Any]:
    return [device.build(kernel) for kernel in bind_scatter_kernels(dtype)]


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
    sizes = (heads, length, tail, count), skipped
    device.launch(fold, blocks, arrays, out.reshape(out.size), sizes)
    return out
