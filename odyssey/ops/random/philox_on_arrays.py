"""Philox-4x64-10 by operations on whole arrays, for a device, where NumPy's generator is not."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["philox_bits"]

# The multipliers of a round, and the numbers that are added to the key after it (Salmon et al.,
# "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
_FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def philox_bits(xp: Any, state: Any, count: int, purpose: int = 0, trial: int = 0) -> Any:
    """Return ``count`` numbers of 64 bits, those of ``random_bits``; the state stays on its device.

    Args:
        xp: What stands for NumPy there.
        state: The words of a generator, (3,): two of the key, and the number of the first block.
        count: How many numbers.
        purpose: The last word of the counter.
        trial: The word before it.

    >>> from odyssey.ops.random.generator import random_bits
    >>> state = np.array([7, 0, 3], np.uint64)
    >>> bool((philox_bits(np, state, 10) == random_bits(state, 10)).all())
    True
    """
    blocks = -(-count // 4)
    start = state[2:3]
    c0 = xp.arange(blocks, dtype=np.uint64) + start
    c1 = (c0 < start).astype(np.uint64)  # the carry of the first word
    c2 = xp.full(blocks, trial, np.uint64)
    c3 = xp.full(blocks, purpose, np.uint64)
    k0, k1 = state[0:1], state[1:2]
    for _ in range(_ROUNDS):
        high0, low0 = _wide_product(c0, _FACTORS[0])
        high1, low1 = _wide_product(c2, _FACTORS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + np.uint64(_KEY_STEPS[0]), k1 + np.uint64(_KEY_STEPS[1])
    return xp.stack([c0, c1, c2, c3], -1).reshape(-1)[:count]


def _wide_product(x: Any, factor: int) -> tuple[Any, Any]:
    """Return the high and the low words of the products of 64-bit numbers with one such number."""
    x0, x1 = x & _LOW, x >> _HALF
    y0, y1 = np.uint64(factor & 0xFFFFFFFF), np.uint64(factor >> 32)
    across, other = x0 * y1, x1 * y0
    middle = ((x0 * y0) >> _HALF) + (across & _LOW) + (other & _LOW)
    return x1 * y1 + (across >> _HALF) + (other >> _HALF) + (middle >> _HALF), x * np.uint64(factor)
