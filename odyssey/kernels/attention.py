"""Attention in tiles, on the CPU and on the GPU.

On the CPU these are the passes over the tiles: exponentials of scores, and the softmax VJP. Queries
are contiguous, so that every inner loop vectorizes over them, in the order of the keys: no sum is
reordered. The exponential, of numbers that are not positive, has the range reduction of W. J. Cody
and W. Waite, Software Manual for the Elementary Functions, 1980, and a Taylor series.

On the GPU a kernel computes whole tiles. The forward pass keeps for each query the running maximum
and sum of the softmax (T. Dao et al., FlashAttention, 2022), so scores are never in memory; it
leaves the logarithm of the sum, from which the backward pass computes the weights again, in tiles
of queries and in tiles of keys (T. Dao, FlashAttention-2, 2023). Sums over keys and over queries
are taken in their order by one block: no atomics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.kernels import cuda as device
from odyssey.kernels.loops import Loop, loop
from odyssey.spec import Shape

__all__ = [
    "cuda_attention",
    "cuda_attention_pullback",
    "cuda_attention_with_logs",
    "exponentiate_scores",
    "fits_cuda_attention",
    "softmax_vjp_scores",
]

# Placeholders of constants that depend on the dtype; ``LONG``: double precision.
BOTTOM: Any = -math.inf
ZERO: Any = 0.0
HALF: Any = 0.5
ONE: Any = 1.0
LOG2E: Any = 1 / math.log(2)
HIGH: Any = None
LOW: Any = None
LEAST: Any = None
F: Any = None
I: Any = None  # noqa: E741
BITS: Any = None
BIAS: Any = None
SINGLE: Any = None
LONG = False
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12 = [1 / math.factorial(k) for k in range(2, 13)]


def _exponentiate(out: Any, out_top: Any, out_inverse: Any) -> None:
    for b in range(out.shape[0]):
        for i in range(out.shape[2]):
            out_top[i] = BOTTOM
            out_inverse[b, i] = ZERO
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                x = out[b, j, i]
                out_top[i] = out_top[i] if out_top[i] >= x else x
        for i in range(out.shape[2]):
            out_top[i] = ZERO if out_top[i] == BOTTOM else out_top[i]
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                x = out[b, j, i] - out_top[i]
                c = LEAST if x < LEAST else x
                n = I(c * LOG2E - HALF)
                f = F(n)
                r = (c - f * HIGH) - f * LOW
                y = C7
                if LONG:
                    y = C10 + r * (C11 + r * C12)
                    y = C7 + r * (C8 + r * (C9 + r * y))
                y = C5 + r * (C6 + r * y)
                y = C2 + r * (C3 + r * (C4 + r * y))
                y = ONE + (r + (r * r) * y)
                half = I(n >> SINGLE)  # 2**n in two factors, since it may be subnormal
                y = y * I(I(half + BIAS) << BITS).view(F)
                y = y * I(I(I(n - half) + BIAS) << BITS).view(F)
                y = ZERO if x < LEAST else y
                out[b, j, i] = y
                out_inverse[b, i] += y
        for i in range(out.shape[2]):
            out_inverse[b, i] = ONE / (ONE if out_inverse[b, i] == ZERO else out_inverse[b, i])


def _for_dtype(dtype: Any, integer: Any, bits: int, bias: int, **ends: float) -> Loop:
    """Return the loop above for a dtype, and integers of the same size."""
    names = globals() | ends
    numbers = {k: dtype(v) for k, v in names.items() if type(v) is float and k.isupper()}
    types = {
        "F": dtype,
        "I": integer,
        "BITS": integer(bits),
        "BIAS": integer(bias),
        "SINGLE": integer(1),
    }
    scope = names | numbers | types | {"LONG": dtype is np.float64}
    function = FunctionType(_exponentiate.__code__, scope, _exponentiate.__name__)
    function.__qualname__, function.__module__ = f"_weigh_{dtype.__name__}", __name__
    return Loop(function, contract=True)


# HIGH has so few digits of ln 2 that its integer multiples are exact.
_LN2 = {"HIGH": 0.693359375, "LOW": -2.12194440e-4}
_LN2_LONG = {"HIGH": 6.93145751953125e-1, "LOW": 1.42860682030941723212e-6}
_EXPONENTIATE = {
    "f": _for_dtype(np.float32, np.int32, 23, 127, LEAST=-104.0, **_LN2),
    "d": _for_dtype(np.float64, np.int64, 52, 1023, LEAST=-746.0, **_LN2_LONG),
}


@loop
def _softmax_vjp(powers: Any, inverse: Any, out: Any, out_total: Any) -> None:
    for b in range(out.shape[0]):
        for i in range(out.shape[2]):
            out_total[i] = out.dtype.type(0)
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                out_total[i] += powers[b, j, i] * out[b, j, i]
        for i in range(out.shape[2]):
            out_total[i] *= inverse[b, i]
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                out[b, j, i] = powers[b, j, i] * (out[b, j, i] - out_total[i])


def exponentiate_scores(scores: Any) -> Any:
    """Replace each column of a stack of matrices by its exponentials over that of its maximum.

    Returns:
        (..., 1, columns), one over their sums; 1 for a column of -inf, whose exponentials are 0.
    """
    *stack, keys, queries = scores.shape
    assert scores.flags.c_contiguous  # otherwise reshape would copy
    inverse = np.empty((math.prod(stack), queries), scores.dtype)
    top = np.empty(queries, scores.dtype)
    _EXPONENTIATE[scores.dtype.char](scores.reshape(-1, keys, queries), top, inverse)
    return inverse.reshape(*stack, 1, queries)


def softmax_vjp_scores(powers: Any, inverse: Any, cotangents: Any) -> None:
    """Replace the cotangents of weights by those of scores, without the factor ``inverse``."""
    *stack, keys, queries = cotangents.shape
    assert cotangents.flags.c_contiguous
    if powers.shape != cotangents.shape:
        powers = np.broadcast_to(powers, cotangents.shape)
        inverse = np.broadcast_to(inverse, (*stack, 1, queries))
    _softmax_vjp(
        powers.reshape(-1, keys, queries),
        inverse.reshape(-1, queries),
        cotangents.reshape(-1, keys, queries),
        np.empty(queries, cotangents.dtype),
    )


# ------------------------------------------------------------------ GPU kernels

# Free names of the GPU kernels, to which ``bind_kernel`` gives their values: a tile has TILE
# queries, TILE keys and a thread for each score. MASK: 0 for none, 1 for truth values, 2 for
# numbers that are added. ``sizes``: matrices of queries, their rows, those of keys, and how many
# matrices of queries share one of keys. ``strides``: distances in the mask of matrices, rows and
# columns.
cuda: Any = None
load_rows: Any = None
load_tiles: Any = None
clear_row: Any = None
store_rows: Any = None
add_products: Any = None
score: Any = None
weigh: Any = None
T: Any = None
C: Any = None
TILE = AREA = DIM = VALUES = Q_SIZE = V_SIZE = K_SUMS = V_SUMS = MASK = 0
CAUSAL = OF_KEYS = OF_VALUES = False


def _load_rows(
    tile: Any, x: Any, which: Any, length: Any, first: Any, width: Any, lane: Any
) -> None:
    """Copy the rows of a matrix from ``first`` on; zeros behind its last row."""
    for i in range(lane, TILE * width, AREA):
        row = first + i // width
        tile[i] = C(x[(which * length + row) * width + i % width]) if row < length else C(0)


def _load_tiles(
    tile: Any, x: Any, other: Any, y: Any, which: Any, length: Any, first: Any, lane: Any
) -> None:
    """Copy rows of two matrices of one length, which have DIM and VALUES columns."""
    load_rows(tile, x, which, length, first, DIM, lane)
    load_rows(other, y, which, length, first, VALUES, lane)


def _clear_row(sums: Any, width: Any, a: Any, b: Any) -> None:
    """Write zeros to row ``a`` of sums, from column ``b`` on, which one thread alone uses."""
    for d in range(b, width, TILE):
        sums[a * width + d] = C(0)


def _store_rows(
    out: Any, sums: Any, which: Any, length: Any, row: Any, width: Any, factor: Any, a: Any, b: Any
) -> None:
    """Write row ``a`` of a tile times a factor, from column ``b`` on; none behind the last row."""
    if row < length:
        for d in range(b, width, TILE):
            out[(which * length + row) * width + d] = T(sums[a * width + d] * factor)


def _add_products(
    sums: Any,
    shrink: Any,
    weights: Any,
    first: Any,
    step: Any,
    tile: Any,
    width: Any,
    a: Any,
    b: Any,
) -> None:
    """Shrink row ``a`` of sums, and add the rows of a tile, each times a weight, in their order."""
    for d in range(b, width, TILE):
        value = sums[a * width + d] * shrink
        for c in range(TILE):
            value += weights[first + c * step] * tile[c * width + d]
        sums[a * width + d] = value


def _score(q: Any, k: Any, mask: Any, place: Any, scale: Any, sizes: Any, strides: Any) -> Any:
    """Return a score from tiles in shared memory; -inf where the query may not attend.

    ``place``: the matrix of queries, the query and the key in it, and their rows in the tiles.
    """
    which, query, key, a, b = place
    if query >= sizes[1] or key >= sizes[2] or (CAUSAL and key > query):
        return C(-math.inf)
    total = C(0)
    for d in range(DIM):
        total += q[a * DIM + d] * k[b * DIM + d]
    total *= scale
    at = which * strides[0] + query * strides[1] + key * strides[2]
    if MASK == 1 and not mask[at]:
        return C(-math.inf)
    if MASK == 2:
        total += C(mask[at])
    return total


def _weigh(
    q: Any,
    k: Any,
    g: Any,
    v: Any,
    mask: Any,
    logs: Any,
    dots: Any,
    place: Any,
    scale: Any,
    sizes: Any,
    strides: Any,
) -> Any:
    """Return the weight of a key for a query, and the cotangent of their score."""
    which, query, key, a, b = place
    if query >= sizes[1] or key >= sizes[2]:
        return C(0), C(0)
    x = score(q, k, mask, place, scale, sizes, strides)
    weight = C(math.exp(x - logs[which * sizes[1] + query]))
    moved = C(0)
    for d in range(VALUES):
        moved += g[a * VALUES + d] * v[b * VALUES + d]
    return weight, weight * (moved - dots[which * sizes[1] + query])


def _attention_forward(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    out: Any,
    out_log: Any,
    sizes: Any,
    strides: Any,
    scale: Any,
) -> None:
    q_tile = cuda.shared.array(Q_SIZE, C)
    k_tile = cuda.shared.array(Q_SIZE, C)
    v_tile = cuda.shared.array(V_SIZE, C)
    sums = cuda.shared.array(V_SIZE, C)
    scores = cuda.shared.array(AREA, C)
    lane = cuda.threadIdx.x
    a, b = lane // TILE, lane % TILE
    factor = C(scale)
    batch, queries, keys, group = sizes
    down = (queries + TILE - 1) // TILE
    # Bounds of all loops with barriers are the same for all threads of a block.
    for tile in range(cuda.blockIdx.x, batch * down, cuda.gridDim.x):
        which = tile // down
        shared_head = which // group
        first = tile % down * TILE
        query = first + a
        load_rows(q_tile, q, which, queries, first, DIM, lane)
        clear_row(sums, VALUES, a, b)
        largest = C(-math.inf)
        total = C(0)
        end = first + TILE if CAUSAL and first + TILE < keys else keys
        for start in range(0, end, TILE):
            load_tiles(k_tile, k, v_tile, v, shared_head, keys, start, lane)
            cuda.syncthreads()
            place = which, query, start + b, a, b
            scores[lane] = score(q_tile, k_tile, mask, place, factor, sizes, strides)
            cuda.syncthreads()
            # Each thread of a row computes the same maximum and sum, in the order of the keys.
            before = largest
            for c in range(TILE):
                if scores[a * TILE + c] > largest:
                    largest = scores[a * TILE + c]
            shift = C(0) if largest == C(-math.inf) else largest
            shrink = C(math.exp(before - shift))
            cuda.syncthreads()  # all have read the scores before these become weights
            scores[lane] = C(math.exp(scores[lane] - shift))
            cuda.syncthreads()
            total *= shrink
            for c in range(TILE):
                total += scores[a * TILE + c]
            add_products(sums, shrink, scores, a * TILE, 1, v_tile, VALUES, a, b)
            cuda.syncthreads()  # all have read the tiles before they are written again
        if query < queries:
            divisor = C(1) if total == C(0) else total
            for d in range(b, VALUES, TILE):
                out[(which * queries + query) * VALUES + d] = T(sums[a * VALUES + d] / divisor)
            if b == 0:
                # A query without keys gets weights of exp(-inf - inf) = 0 in the backward pass.
                if total == C(0):
                    out_log[which * queries + query] = C(math.inf)
                else:
                    out_log[which * queries + query] = largest + C(math.log(total))
        cuda.syncthreads()


def _attention_dots(g: Any, out: Any, dots: Any) -> None:
    """Write the product of each row of a result with its cotangent."""
    for i in range(cuda.grid(1), dots.size, cuda.gridsize(1)):
        total = C(0)
        for d in range(VALUES):
            total += C(g[i * VALUES + d]) * C(out[i * VALUES + d])
        dots[i] = total


def _attention_q(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    logs: Any,
    dots: Any,
    out: Any,
    sizes: Any,
    strides: Any,
    scale: Any,
) -> None:
    q_tile = cuda.shared.array(Q_SIZE, C)
    k_tile = cuda.shared.array(Q_SIZE, C)
    g_tile = cuda.shared.array(V_SIZE, C)
    v_tile = cuda.shared.array(V_SIZE, C)
    sums = cuda.shared.array(Q_SIZE, C)
    slopes = cuda.shared.array(AREA, C)
    lane = cuda.threadIdx.x
    a, b = lane // TILE, lane % TILE
    factor = C(scale)
    batch, queries, keys, group = sizes
    down = (queries + TILE - 1) // TILE
    for tile in range(cuda.blockIdx.x, batch * down, cuda.gridDim.x):
        which = tile // down
        shared_head = which // group
        first = tile % down * TILE
        query = first + a
        load_tiles(q_tile, q, g_tile, g, which, queries, first, lane)
        clear_row(sums, DIM, a, b)
        end = first + TILE if CAUSAL and first + TILE < keys else keys
        for start in range(0, end, TILE):
            load_tiles(k_tile, k, v_tile, v, shared_head, keys, start, lane)
            cuda.syncthreads()
            tiles = q_tile, k_tile, g_tile, v_tile
            place = which, query, start + b, a, b
            _, slope = weigh(*tiles, mask, logs, dots, place, factor, sizes, strides)
            slopes[lane] = slope
            cuda.syncthreads()
            add_products(sums, C(1), slopes, a * TILE, 1, k_tile, DIM, a, b)
            cuda.syncthreads()
        store_rows(out, sums, which, queries, query, DIM, factor, a, b)
        cuda.syncthreads()


def _attention_kv(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    logs: Any,
    dots: Any,
    out_k: Any,
    out_v: Any,
    sizes: Any,
    strides: Any,
    scale: Any,
) -> None:
    """Write the cotangents of keys if OF_KEYS, and of values if OF_VALUES, which need no dots."""
    q_tile = cuda.shared.array(Q_SIZE, C)
    k_tile = cuda.shared.array(Q_SIZE, C)
    g_tile = cuda.shared.array(V_SIZE, C)
    v_tile = cuda.shared.array(V_SIZE, C)
    k_sums = cuda.shared.array(K_SUMS, C)
    v_sums = cuda.shared.array(V_SUMS, C)
    shares = cuda.shared.array(AREA, C)
    lane = cuda.threadIdx.x
    a, b = lane // TILE, lane % TILE
    factor = C(scale)
    batch, queries, keys, group = sizes
    across = (keys + TILE - 1) // TILE
    # A block has a tile of keys, and goes through the queries of all heads that share them.
    for tile in range(cuda.blockIdx.x, batch // group * across, cuda.gridDim.x):
        shared_head = tile // across
        start = tile % across * TILE
        load_tiles(k_tile, k, v_tile, v, shared_head, keys, start, lane)
        if OF_KEYS:
            clear_row(k_sums, DIM, a, b)
        if OF_VALUES:
            clear_row(v_sums, VALUES, a, b)
        for which in range(shared_head * group, (shared_head + 1) * group):
            for first in range(start if CAUSAL else 0, queries, TILE):
                load_tiles(q_tile, q, g_tile, g, which, queries, first, lane)
                cuda.syncthreads()
                tiles = q_tile, k_tile, g_tile, v_tile
                place = which, first + a, start + b, a, b
                weight, slope = weigh(*tiles, mask, logs, dots, place, factor, sizes, strides)
                # Of sums a thread has a key, number a, and columns from b on.
                if OF_VALUES:
                    shares[lane] = weight
                    cuda.syncthreads()
                    add_products(v_sums, C(1), shares, a, TILE, g_tile, VALUES, a, b)
                    cuda.syncthreads()
                if OF_KEYS:
                    shares[lane] = slope
                    cuda.syncthreads()
                    add_products(k_sums, C(1), shares, a, TILE, q_tile, DIM, a, b)
                    cuda.syncthreads()
        if OF_KEYS:
            store_rows(out_k, k_sums, shared_head, keys, start + a, DIM, factor, a, b)
        if OF_VALUES:
            store_rows(out_v, v_sums, shared_head, keys, start + a, VALUES, C(1), a, b)
        cuda.syncthreads()


@lru_cache(maxsize=64)
def _cuda_attention_kernel(kernel: Any, dtype: Any, *options: Any) -> Any:
    return device.build(bind_attention_kernel(kernel, dtype, *options))


def bind_attention_kernel(
    kernel: Any,
    dtype: Any,
    tile: int,
    dim: int,
    values: int,
    mask: int,
    causal: bool,
    of_keys: bool = False,
    of_values: bool = False,
) -> Any:
    """Return a kernel for the sizes and options of a call, as a plain function."""
    names = {
        "TILE": tile,
        "AREA": tile * tile,
        "DIM": dim,
        "VALUES": values,
        "Q_SIZE": tile * dim,
        "V_SIZE": tile * values,
        "K_SUMS": tile * dim if of_keys else 1,
        "V_SUMS": tile * values if of_values else 1,
        "MASK": mask,
        "CAUSAL": causal,
        "OF_KEYS": of_keys,
        "OF_VALUES": of_values,
    }
    steps = (_load_rows, _load_tiles, _clear_row, _store_rows, _add_products, _score, _weigh)
    return device.bind_kernel(kernel, dtype, steps, **names)


def _tile_for(dtype: Any, dim: int, values: int, sums: int) -> int:
    """Return the width of tiles that fit: of operands, of sums of so many columns, of scores."""
    size = device.computing_dtype(dtype).itemsize
    return device.tile_width(size * (2 * (dim + values) + sums + 16))


def _shared_heads(q: Any, k: Any) -> int | None:
    """Return how many heads of queries share one of keys; None if leading axes broadcast."""
    if q.ndim != k.ndim:
        return None
    if q.ndim == 2 or q.shape[:-2] == k.shape[:-2]:
        return 1
    heads, own = q.shape[-3], k.shape[-3]
    if q.shape[:-3] != k.shape[:-3] or not own or heads % own:
        return None
    return int(heads // own)


def fits_cuda_attention(q: Any, k: Any, v: Any, mask: Any, *options: Any) -> bool:
    """Return whether the GPU kernels take a call: of one floating dtype, and not empty.

    Leading axes of queries, keys and values are equal, but for heads that share keys and values.
    """
    operands = [q, k, v]
    if mask is not None and getattr(mask, "dtype", None) != np.bool_:
        operands.append(mask)
    if any(getattr(x, "dtype", None) != operands[0].dtype for x in operands):
        return False
    if q.dtype.char not in "efd" or q.ndim < 2 or not all(math.prod(x.shape) for x in (q, k, v)):
        return False
    group = _shared_heads(q, k)
    lead = (*q.shape[:-2], q.shape[-2], k.shape[-2])
    if mask is not None and np.broadcast_shapes(mask.shape, lead) != lead:
        return False
    same = k.shape[:-1] == v.shape[:-1]
    sizes = q.shape[-1], v.shape[-1]
    return group is not None and same and _tile_for(q.dtype, *sizes, max(sizes)) > 0


class _Call:
    """The arrays, sizes and options of one call of attention."""

    def __init__(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> None:
        self.operands = [device.contiguous(x) for x in (q, k, v)]
        self.shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
        self.dim, self.values = q.shape[-1], v.shape[-1]
        self.queries, self.keys = q.shape[-2], k.shape[-2]
        self.batch = math.prod(q.shape[:-2])
        self.group = _shared_heads(q, k) or 1
        self.dtype, self.like = q.dtype, q
        sizes = self.dim, self.values
        self.tile = _tile_for(q.dtype, *sizes, max(sizes))
        # Sums of keys and of values may fit into narrower tiles only: then each has its launch.
        self.joins_kv = _tile_for(q.dtype, *sizes, sum(sizes)) == self.tile
        kind, strides = 0, (0, 0, 0)
        flat = device.copy_beside(q, np.zeros(1, np.bool_))
        if mask is not None:
            kind = 1 if mask.dtype == np.bool_ else 2
            flat, strides = _mask_elements(mask, q.shape[:-2])
        self.operands.append(flat)
        self.options = (self.tile, self.dim, self.values, kind, bool(causal))
        self.sizes = (self.batch, self.queries, self.keys, self.group), strides, float(scale)

    def run_tiles(self, kernel: Any, blocks: int, inputs: Any, outs: Any, *written: bool) -> None:
        built = _cuda_attention_kernel(kernel, self.dtype, *self.options, *written)
        device.launch(built, blocks, inputs, outs, self.sizes, self.tile * self.tile)

    def forward(self) -> tuple[Any, Any]:
        """Return the result, and the logarithm of the sum for each query."""
        rows = self.batch * self.queries
        shape = (*self.like.shape[:-1], self.values)
        out = device.new_array(self.like, shape, self.dtype)
        logs = device.new_array(self.like, rows, device.computing_dtype(self.dtype))
        blocks = self.batch * -(-self.queries // self.tile)
        self.run_tiles(_attention_forward, blocks, self.operands, (out.reshape(out.size), logs))
        return out, logs

    def backward(self, g: Any, out: Any, logs: Any, operands: Sequence[str]) -> dict[str, Any]:
        """Return the cotangents of some operands, by name."""
        g, dots = device.contiguous(g), logs
        if "q" in operands or "k" in operands:
            dots = device.new_array(self.like, logs.size, logs.dtype)
            kernel = _cuda_attention_kernel(_attention_dots, self.dtype, *self.options)
            blocks = -(-logs.size // device.threads_per_block())
            device.launch(kernel, blocks, [g, device.contiguous(out)], dots)
        inputs = [g, *self.operands, logs, dots]
        found = {n: device.new_array(self.like, self.shapes[n], self.dtype) for n in operands}
        flat = {name: array.reshape(array.size) for name, array in found.items()}
        if "q" in flat:
            blocks = self.batch * -(-self.queries // self.tile)
            self.run_tiles(_attention_q, blocks, inputs, flat["q"])
        blocks = self.batch // self.group * -(-self.keys // self.tile)
        for names in ["kv"] if self.joins_kv else ["k", "v"]:
            written = [name in names and name in flat for name in "kv"]
            if any(written):
                unused = device.new_array(self.like, 1, self.dtype)
                outs = [flat[n] if w else unused for n, w in zip("kv", written, strict=True)]
                self.run_tiles(_attention_kv, blocks, inputs, tuple(outs), *written)
        return found


def _mask_elements(mask: Any, lead: Shape) -> tuple[Any, tuple[int, int, int]]:
    """Return a mask on one axis, and the distances of its matrices, rows and columns."""
    shape = (1,) * (2 - mask.ndim) + tuple(mask.shape)
    mask = mask.reshape(shape)
    rows, columns = shape[-2:]
    batch = 0
    if math.prod(shape[:-2]) != 1:
        mask = device.array_namespace(mask).broadcast_to(mask, (*lead, rows, columns))
        batch = rows * columns
    return device.contiguous(mask), (batch, columns if rows > 1 else 0, 1 if columns > 1 else 0)


def cuda_attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> Any:
    """Return scaled dot-product attention, on the GPU.

    Args:
        q: Queries, (..., heads, length, dim); see ``fits_cuda_attention``.
        k: Keys.
        v: Values.
        mask: Truth values, numbers that are added to the scores, or None.
        causal: Whether later keys are left out.
        scale: A number that multiplies the scores.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    return cuda_attention_with_logs(q, k, v, mask, causal, scale)[0]


def cuda_attention_with_logs(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float
) -> tuple[Any, Any]:
    """Return attention as above, and for each query the logarithm of the sum of exponentials.

    The logarithm is infinity for a query that may attend to no key. Both are for
    ``cuda_attention_pullback``.
    """
    return _Call(q, k, v, mask, causal, scale).forward()


def cuda_attention_pullback(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float,
    operands: Sequence[str],
    results: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Return the cotangents of some of ``"q"``, ``"k"`` and ``"v"``, by name, on the GPU.

    Args:
        g: The cotangent of the result.
        q: See ``cuda_attention``, as for the others.
        k: Keys.
        v: Values.
        mask: A mask, or None.
        causal: Whether later keys are left out.
        scale: A number that multiplies the scores.
        operands: The names of operands.
        results: What ``cuda_attention_with_logs`` returned; None to compute it again.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    call = _Call(q, k, v, mask, causal, scale)
    return call.backward(g, *(results or call.forward()), operands)
