"""Matrix product in tiles, on the GPU.

A block computes a square tile of the result from tiles of both operands in shared memory, so that
each element is read from memory once for a row or column of tiles. Sums are taken in the order of
the inner axis. The CPU's products are those of NumPy's BLAS.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.kernels import cuda as device
from odyssey.spec import Shape, Spec

__all__ = ["cuda_matmul", "fits_cuda_matmul"]

# Free names of the kernel, to which ``bind_kernel`` gives their values.
cuda: Any = None
T: Any = None
C: Any = None
TILE: int = 0
AREA: int = 0


def fits_cuda_matmul(x: Spec, y: Spec) -> bool:
    """Return whether the kernel computes a product: of floating matrices of one dtype."""
    return x.dtype == y.dtype and x.dtype.char in "efd" and x.ndim > 1 and y.ndim > 1


def _matmul_tiles(x: Any, y: Any, out: Any, sizes: Any, x_strides: Any, y_strides: Any) -> None:
    # Loops over tiles are the same for all threads of a block, so that all reach every barrier.
    left = cuda.shared.array(AREA, C)
    right = cuda.shared.array(AREA, C)
    lane = cuda.threadIdx.x
    a, b = lane // TILE, lane % TILE
    batch, m, n, inner = sizes
    across = (n + TILE - 1) // TILE
    down = (m + TILE - 1) // TILE
    for tile in range(cuda.blockIdx.x, batch * down * across, cuda.gridDim.x):
        which = tile // (down * across)
        row = (tile // across) % down * TILE + a
        column = tile % across * TILE + b
        total = C(0)
        for start in range(0, inner, TILE):
            k = start + b
            value = C(0)
            if row < m and k < inner:
                value = C(x[which * x_strides[0] + row * x_strides[1] + k * x_strides[2]])
            left[lane] = value
            k = start + a
            value = C(0)
            if column < n and k < inner:
                value = C(y[which * y_strides[0] + k * y_strides[1] + column * y_strides[2]])
            right[lane] = value
            cuda.syncthreads()
            for c in range(TILE):  # behind the inner axis both are zeros
                total += left[a * TILE + c] * right[c * TILE + b]
            cuda.syncthreads()  # all have read the tiles before they are written again
        if row < m and column < n:
            out[(which * m + row) * n + column] = T(total)


@lru_cache(maxsize=8)
def _cuda_matmul(dtype: np.dtype[Any], tile: int) -> Any:
    return device.build(device.bind_kernel(_matmul_tiles, dtype, TILE=tile, AREA=tile * tile))


def _matrices(x: Any, lead: Shape) -> tuple[Any, tuple[int, int, int]]:
    """Return elements on one axis, and the distances of matrices, rows and columns in them."""
    rows, columns = x.shape[-2:]
    if math.prod(x.shape[:-2]) == 1:
        x = x.reshape(rows, columns)
        distance = 0
    else:
        if x.shape[:-2] != lead:
            x = device.array_namespace(x).broadcast_to(x, (*lead, rows, columns))
        distance = rows * columns
    if not x.flags["C_CONTIGUOUS"] and x.swapaxes(-1, -2).flags["C_CONTIGUOUS"]:
        return device.contiguous(x.swapaxes(-1, -2)), (distance, 1, rows)
    return device.contiguous(x), (distance, columns, 1)


def cuda_matmul(x: Any, y: Any) -> Any:
    """Return the products of matrices, whose leading axes broadcast, on the GPU.

    Args:
        x: (..., m, k), on the host or on the device.
        y: (..., k, n), of the same dtype, beside x.

    Raises:
        ValueError: Shapes do not fit.
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(f"inner sizes differ: {x.shape} @ {y.shape}")
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    (m, inner), n, batch = x.shape[-2:], y.shape[-1], math.prod(lead)
    out = device.new_array(x, (*lead, m, n), x.dtype)
    if not out.size:
        return out
    if not inner:
        out[...] = 0
        return out
    left, left_strides = _matrices(x, lead)
    right, right_strides = _matrices(y, lead)
    tile = device.tile_width(0)
    blocks = batch * -(-m // tile) * -(-n // tile)
    sizes = (batch, m, n, inner), left_strides, right_strides
    kernel = _cuda_matmul(x.dtype, tile)
    device.launch(kernel, blocks, [left, right], out.reshape(out.size), sizes, tile * tile)
    return out
