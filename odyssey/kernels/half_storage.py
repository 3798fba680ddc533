"""Storage of float32 numbers in 16 bits, as bfloat16 or float16, and back.

Numbers are rounded to nearest, ties to even, with one exception: a number that would become 0
becomes the smallest number of its sign instead, so that zeros stay zeros and no other number turns
into one. Rules that choose by the sign of what they read choose as they would without rounding.
Neither numba nor ml_dtypes is needed; with numba, arrays from 64 kB on are rounded by a loop, to
the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import has_numba
from odyssey.kernels.half_casts import LEAST_SIZE, widen
from odyssey.kernels.loops import loop
from odyssey.kernels.scalars import select

__all__ = ["STORAGE_DTYPES", "round_to_halves", "widen_halves"]

STORAGE_DTYPES = ("bfloat16", "float16")
"""The dtypes that numbers are stored in."""

# NumPy makes several passes over a block, which stays in the cache.
_BLOCK = 8192

# The magnitudes from which rounding would give infinity, as bits of float32.
_OVERFLOW = {"bfloat16": 0x7F7F8000, "float16": 0x477FF000}
_INFINITY = 0x7F800000


@loop
def _round_to_bfloat16(bits, out):  # type: ignore[no-untyped-def]
    """Round bits of float32 to bfloat16; return the largest magnitude. Wrong for NaN."""
    largest = np.uint32(0)
    for i in range(bits.size):
        u = bits[i]
        m = np.uint32(u & np.uint32(0x7FFFFFFF))
        largest = max(largest, m)
        odd = np.uint32(np.uint32(m >> np.uint32(16)) & np.uint32(1))
        r = np.uint32(np.uint32(np.uint32(m + np.uint32(0x7FFF)) + odd) >> np.uint32(16))
        r = max(r, min(m, np.uint32(1)))
        out[i] = np.uint16(r | np.uint32(np.uint32(u >> np.uint32(16)) & np.uint32(0x8000)))
    return largest


@loop
def _round_to_float16(bits, numbers, out):  # type: ignore[no-untyped-def]
    """Round float32, given as bits and as numbers, to float16; return the largest magnitude."""
    largest = np.uint32(0)
    for i in range(bits.size):
        u = bits[i]
        m = np.uint32(u & np.uint32(0x7FFFFFFF))
        largest = max(largest, m)
        odd = np.uint32(np.uint32(m >> np.uint32(13)) & np.uint32(1))
        r = np.uint32(np.uint32(np.uint32(m - np.uint32(0x37FFF001)) + odd) >> np.uint32(13))
        # Subnormal numbers are multiples of 2**-24; adding 2**23 rounds to an integer.
        t = min(abs(numbers[i]), np.float32(1)) * np.float32(16777216)
        t = (t + np.float32(8388608)) - np.float32(8388608)
        small = np.uint32(np.int32(t))
        r = select(m < np.uint32(0x38800000), small, r)
        r = max(r, min(m, np.uint32(1)))
        out[i] = np.uint16(r | np.uint32(np.uint32(u >> np.uint32(16)) & np.uint32(0x8000)))
    return largest


@loop
def _widen_bits(bits, out):  # type: ignore[no-untyped-def]
    """Widen bfloat16 to float32, both given as bits."""
    for i in range(bits.size):
        out[i] = np.uint32(np.uint32(bits[i]) << np.uint32(16))


@ignore_fp_errors()
def _round_by_numpy(bits: Any, numbers: Any, out: Any, name: str, xp: Any) -> int:
    """Round as the loops do; return the largest magnitude."""
    largest = 0
    size = _BLOCK if xp is np else max(bits.size, 1)
    for start in range(0, bits.size, size):
        block = slice(start, start + size)
        m = bits[block] & np.uint32(0x7FFFFFFF)
        largest = max(largest, int(m.max()))
        if name == "float16":
            r = numbers[block].astype(np.float16).view(np.uint16) & np.uint16(0x7FFF)
        else:
            r = (m + np.uint32(0x7FFF) + ((m >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        signs = (bits[block] >> np.uint32(16)) & np.uint32(0x8000)
        out[block] = xp.maximum(r, xp.minimum(m, np.uint32(1))) | signs
    return largest


def round_to_halves(numbers: Any, name: str, with_loops: bool = True, xp: Any = np) -> Any:
    """Return float32 numbers in 16 bits, as uint16; None if a finite one would become infinite.

    Args:
        numbers: A contiguous array of float32 with one axis.
        name: ``"bfloat16"`` or ``"float16"``. The latter has neither NaN nor infinities here: for
            an array with one it is None too.
        with_loops: Whether loops of numba may be used.
        xp: What stands for NumPy on the device of the array, for which there are no loops.

    >>> [hex(b) for b in round_to_halves(np.array([1.0, -2.5, 1e-45], np.float32), "bfloat16")]
    ['0x3f80', '0xc020', '0x1']
    """
    bits, out = numbers.view(np.uint32), xp.empty(numbers.size, np.uint16)
    if not (with_loops and xp is np and numbers.size >= LEAST_SIZE and has_numba()):
        largest = _round_by_numpy(bits, numbers, out, name, xp)
    elif name == "bfloat16":
        largest = int(_round_to_bfloat16(bits, out))
    else:
        largest = int(_round_to_float16(bits, numbers, out))
    if largest < _OVERFLOW[name]:
        return out
    magnitudes = bits & np.uint32(0x7FFFFFFF)
    is_finite = magnitudes < np.uint32(_INFINITY)
    if name == "float16" or bool((is_finite & (magnitudes >= _OVERFLOW[name])).any()):
        return None
    # NaN keeps its sign and the first bits of its payload, and is quiet.
    is_nan = magnitudes > np.uint32(_INFINITY)
    out[is_nan] = (bits[is_nan] >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40)
    return out


def widen_halves(halves: Any, name: str, with_loops: bool = True, xp: Any = np) -> Any:
    """Return the float32 numbers that ``round_to_halves`` stored, which float32 holds exactly.

    >>> widen_halves(np.array([0x3F80, 0xC020], np.uint16), "bfloat16")
    array([ 1. , -2.5], dtype=float32)
    """
    if xp is not np:
        if name == "float16":
            return halves.view(np.float16).astype(np.float32)
        return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name == "float16":
        return widen(halves.view(np.float16), with_loops)
    out = np.empty(halves.size, np.uint32)
    if with_loops and halves.size >= LEAST_SIZE and has_numba():
        _widen_bits(halves, out)
    else:
        np.left_shift(halves, np.uint32(16), out=out)
    return out.view(np.float32)
