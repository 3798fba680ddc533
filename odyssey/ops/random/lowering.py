"""Lowering of Philox4x64-10 to the compiler's IR.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3. A block is
four words of 64 bits; ten times, two of them are multiplied, and the halves of the products, of 128
bits, are mixed with the others and with the key.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo
from odyssey.kernels import T
from odyssey.ops.random.generator import DRAWS
from odyssey.spec import Shape

__all__ = ["lower_integers", "lower_uniform"]

_ROUNDS = 10
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def _multiply_high(x: Any, y: Any) -> Any:
    """Return the high 64 bits of a 64 by 64 bit product, from the halves of the factors."""
    x0, x1 = x & T(0xFFFFFFFF), x // T(0x100000000)
    y0, y1 = y & T(0xFFFFFFFF), y // T(0x100000000)
    lower, across, other = x0 * y0, x0 * y1, x1 * y0
    middle = lower // T(0x100000000) + (across & T(0xFFFFFFFF)) + (other & T(0xFFFFFFFF))
    carried = across // T(0x100000000) + other // T(0x100000000) + middle // T(0x100000000)
    return x1 * y1 + carried


def _philox_words(build: Any, state: Any, blocks: int) -> list[Any]:
    """Return the four words of each block, starting at a state."""
    word = np.uint64

    def binary_op(scalar: Any, *values: Any) -> Any:
        return build.elementwise(scalar, *values, dtype=word)

    # Of several generators the words are columns, beside the numbers of the blocks.
    own = [n if state.ndim == 1 else (..., slice(n, n + 1)) for n in range(3)]
    key = [build.slice(state, own[0]), build.slice(state, own[1])]
    number = build.cast(build.index((blocks,), 0), word)
    counter = binary_op(lambda x, y: x + y, number, build.slice(state, own[2]))
    carried = binary_op(lambda sum, x: T(sum < x), counter, number)
    c: list[Any] = [counter, carried, word(0), word(DRAWS)]
    for _ in range(_ROUNDS):
        products = [
            (binary_op(_multiply_high, x, word(m)), binary_op(lambda x, y: x * y, x, word(m)))
            for x, m in zip(c[::2], _FACTORS, strict=True)
        ]
        (high0, low0), (high1, low1) = products
        mixed = [
            binary_op(lambda x, y, z: (x ^ y) ^ z, high, other, k)
            for high, other, k in zip((high1, high0), c[1::2], key, strict=True)
        ]
        c = [mixed[0], low1, mixed[1], low0]
        key = [binary_op(lambda x, y: x + y, k, word(w)) for k, w in zip(key, _STEPS, strict=True)]
    return c


def _random_bits(build: Any, state: Any, shape: Shape) -> Any:
    """Return 64 random bits for each element of a shape, of each generator."""
    count = math.prod(shape)
    blocks = -(-count // 4)
    several = state.shape[:-1]
    words = [build.broadcast(w, (*several, blocks)) for w in _philox_words(build, state, blocks)]
    whole = (slice(None),) * (len(several) + 1)
    parts = [(w, (*whole, k)) for k, w in enumerate(words)]
    lines = build.join(parts, (*several, blocks, 4), np.uint64)
    lines = build.reshape(lines, (*several, 4 * blocks))
    used = build.slice(lines, (*whole[1:], slice(0, count)))
    return build.reshape(used, (*several, *shape))


def lower_integers(
    build: Any, state: Any, shape: Shape, low: int, high: int, dtype: np.dtype[Any]
) -> Any:
    """Lower ``philox_integers``, for a state that is known at run time."""
    bits = _random_bits(build, state, shape)
    if high - low < 1 << 64:
        width = np.uint64(high - low)
        bits = build.elementwise(_multiply_high, bits, width, dtype=np.uint64)
    first = np.uint64(low % (1 << 64))
    return build.cast(build.elementwise(lambda x, y: x + y, bits, first, dtype=np.uint64), dtype)


def lower_uniform(build: Any, state: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Lower ``philox_uniform``, for a state that is known at run time."""
    bits = _random_bits(build, state, shape)
    digits = finfo(dtype).nmant + 1
    # They fit signed integers, which one instruction converts.
    cut = build.elementwise(lambda x, y: x // y, bits, np.uint64(1 << 64 - digits), dtype=np.uint64)
    found = build.cast(build.cast(cut, np.int64), dtype)
    return build.elementwise(lambda x, y: x * y, found, dtype.type(2.0**-digits))
