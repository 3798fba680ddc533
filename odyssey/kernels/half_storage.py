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

from odyssey.errors import DeviceError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.loops import loop
from odyssey.kernels.scalars import select

__all__ = ["STORAGE_DTYPES", "round_to_halves", "widen_halves"]

STORAGE_DTYPES = ("bfloat16", "float16")
"""The dtypes that numbers are stored in."""

# NumPy makes six passes over a block, which stays in the cache.
_BLOCK = 8192
# A call of a loop takes some microseconds more than NumPy's first pass.
_LOOP_SIZE = 1 << 14

# The magnitudes from which rounding would give infinity, as bits of float32.
_OVERFLOW = {"bfloat16": 0x7F7F8000, "float16": 0x477FF000}
_INFINITY = 0x7F800000
# The smallest normal number of float16, and the distance of its exponents from those of float32,
# as bits of float32.
_SMALLEST_NORMAL, _EXPONENTS = 0x38800000, 112 << 23


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
def _widen_float16(halves, out_bits, out_numbers):  # type: ignore[no-untyped-def]
    """Widen float16; both outputs are one memory, written as bits and scaled as numbers."""
    for start in range(0, halves.size, 4096):
        end = min(start + 4096, halves.size)
        block, bits, numbers = halves[start:end], out_bits[start:end], out_numbers[start:end]
        for i in range(block.size):
            h = np.uint32(block[i])
            sign = np.uint32(np.uint32(h & np.uint32(0x8000)) << np.uint32(16))
            bits[i] = sign | np.uint32(np.uint32(h & np.uint32(0x7FFF)) << np.uint32(13))
        for i in range(numbers.size):
            numbers[i] = numbers[i] * np.float32(5192296858534827628530496329220096.0)


def _round_block(m: Any, numbers: Any, name: str) -> Any:
    """Return the rounded magnitudes of a block, as NumPy computes them; ``m`` are its bits."""
    shift, offset = (16, 0) if name == "bfloat16" else (13, _EXPONENTS)
    shift_by = np.uint32(shift)
    odd = (m >> shift_by) & np.uint32(1)
    r = (m + np.uint32((1 << (shift - 1)) - 1) - np.uint32(offset) + odd) >> shift_by
    if name == "float16":
        small = np.rint(np.minimum(np.abs(numbers), np.float32(1)) * np.float32(1 << 24))
        r = np.where(m < np.uint32(_SMALLEST_NORMAL), small.astype(np.uint32), r)
    return np.maximum(r, np.minimum(m, np.uint32(1)))


@ignore_fp_errors()
def _round_by_numpy(bits: Any, numbers: Any, out: Any, name: str) -> int:
    """Round as the loops do; return the largest magnitude."""
    largest = 0
    for start in range(0, bits.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        u = bits[block]
        m = u & np.uint32(0x7FFFFFFF)
        largest = max(largest, int(m.max()))
        r = _round_block(m, numbers[block], name)
        out[block] = r | ((u >> np.uint32(16)) & np.uint32(0x8000))
    return largest


def round_to_halves(numbers: Any, name: str, with_loops: bool = True) -> Any:
    """Return float32 numbers in 16 bits, as uint16; None if a finite one would become infinite.

    Args:
        numbers: A contiguous array of float32 with one axis.
        name: ``"bfloat16"`` or ``"float16"``. The latter has neither NaN nor infinities here: for
            an array with one it is None too.
        with_loops: Whether loops of numba may be used.

    >>> [hex(b) for b in round_to_halves(np.array([1.0, -2.5, 1e-45], np.float32), "bfloat16")]
    ['0x3f80', '0xc020', '0x1']
    """
    bits, out = numbers.view(np.uint32), np.empty(numbers.size, np.uint16)
    largest = None
    if with_loops and numbers.size >= _LOOP_SIZE:
        try:
            if name == "bfloat16":
                largest = int(_round_to_bfloat16(bits, out))
            else:
                largest = int(_round_to_float16(bits, numbers, out))
        except DeviceError:  # numba is missing
            pass
    if largest is None:
        largest = _round_by_numpy(bits, numbers, out, name)
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


def widen_halves(halves: Any, name: str, with_loops: bool = True) -> Any:
    """Return the float32 numbers that ``round_to_halves`` stored, which float32 holds exactly.

    >>> widen_halves(np.array([0x3F80, 0xC020], np.uint16), "bfloat16")
    array([ 1. , -2.5], dtype=float32)
    """
    out = np.empty(halves.size, np.uint32)
    numbers = out.view(np.float32)
    if name == "bfloat16":
        np.left_shift(halves, np.uint32(16), out=out)
        return numbers
    if with_loops and halves.size >= _LOOP_SIZE:
        try:
            _widen_float16(halves, out, numbers)
            return numbers
        except DeviceError:  # numba is missing
            pass
    for start in range(0, out.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        wide = halves[block].astype(np.int16).astype(np.int32)  # the sign fills the upper bits
        wide <<= 13
        out[block] = wide.view(np.uint32) & np.uint32(0x8FFFE000)
        numbers[block] *= np.float32(2.0**112)  # from the exponents of float16, subnormal ones too
    return numbers
