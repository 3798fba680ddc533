"""Casts between half precision and float32: compiled loops for large arrays, NumPy's for small.

NumPy converts float16 element by element, which takes 3 ns to float32 and 6 ns back; these loops
vectorize, so they take 0.2 to 0.4 ns. They round to nearest, ties to even, and give the bits that
NumPy and ml_dtypes give, but for NaN of float16: a processor with instructions for it makes
signaling NaN quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from odyssey.kernels import has_numba
from odyssey.kernels.loops import Loop, bits_of_half, loop, value_of_half
from odyssey.kernels.scalars import select
from odyssey.spec import Array

__all__ = [
    "LEAST_SIZE",
    "cast_call",
    "narrow",
    "narrow_into",
    "narrower",
    "reports_underflow",
    "take_assigned_call",
    "widen",
    "widen_into",
    "widener",
]

LEAST_SIZE = 1 << 14
"""From so many elements on, casts run compiled loops: below, the import of numba costs more."""

_FLOAT32 = np.dtype(np.float32)


def widen(x: Any, loops: bool = True) -> Any:
    """Return an array or scalar of half precision as float32, which is exact.

    Args:
        x: Float16 or bfloat16.
        loops: Whether compiled loops may be used.
    """
    if not (loops and _has_loop(x)):
        return x.astype(_FLOAT32)
    out = np.empty_like(x, _FLOAT32)
    widen_into(_flat(x), _flat(out))
    return out


def narrow(x: Any, dtype: np.dtype[Any], loops: bool = True) -> Any:
    """Return an array or scalar of float32 rounded to half precision.

    Args:
        x: Float32.
        dtype: Float16 or bfloat16.
        loops: Whether compiled loops may be used.
    """
    if not (loops and _has_loop(x)) or reports_underflow(dtype):
        return x.astype(dtype)
    out = np.empty_like(x, dtype)
    narrow_into(_flat(x), _flat(out))
    return out


def widen_into(x: Array, out: Array) -> None:
    """Write half precision numbers to float32; both contiguous of one axis."""
    bits, wide, loop = _widening(x, out)
    loop(bits, wide)


def narrow_into(x: Array, out: Array) -> None:
    """Write float32 numbers to half precision, rounded; both contiguous of one axis."""
    wide, bits, loop = _narrowing(x, out)
    if loop(wide, bits):
        _report_overflow()


def widener(x: Array, buffer: Array) -> Callable[[int, int], Array]:
    """Return a function that writes a block of halves to a buffer of float32, and returns it."""
    bits, wide, loop = _widening(x, buffer)
    entry = loop.entry(bits, wide)  # without its checks, which take as long as a short block

    def read(start: int, stop: int) -> Array:
        entry(bits[start:stop], wide[: stop - start])
        return buffer[: stop - start]

    return read


def narrower(out: Array) -> Callable[[Array, int, int], None]:
    """Return a function that rounds a block of float32 into an array of halves."""
    wide, bits, loop = _narrowing(np.empty(0, _FLOAT32), out)
    dtype, entry = wide.dtype, loop.entry(wide, bits)

    def round_block(block: Array, start: int, stop: int) -> None:
        if entry(block.view(dtype), bits[start:stop]):
            _report_overflow()

    return round_block


def _widening(x: Array, out: Array) -> tuple[Array, Array, Loop]:
    """Return the bits of both arrays as a loop takes them, and the loop."""
    bits = x.view(np.uint16)
    if x.dtype.char != "e":
        return bits, out.view(np.uint32), _widen_bfloat16
    if _has_instructions():
        return bits, out, _convert_from_float16
    return bits, out.view(np.uint32), _widen_float16


def _narrowing(x: Array, out: Array) -> tuple[Array, Array, Loop]:
    """Return the bits of both arrays as a loop takes them, and the loop, true of an overflow."""
    bits = out.view(np.uint16)
    if out.dtype.char != "e":
        return x.view(np.uint32), bits, _narrow_bfloat16
    if _has_instructions():
        return x, bits, _convert_to_float16
    return x.view(np.uint32), bits, _narrow_float16


def _report_overflow() -> None:
    """Let NumPy report, as its state of errors says, that a finite number became infinite."""
    np.float32(3e38).astype(np.float16)


def cast_call(x: Array, out: Array) -> tuple[Any, ...] | None:
    """Return the call that casts between half precision and float32, as for ``commit``.

    It is one call in C, which reports no overflow. It is None for small arrays, without numba, and
    where underflow is to be reported.

    Args:
        x: Float32 or half precision; contiguous, of one axis.
        out: The other of the two, as large.
    """
    narrows = x.dtype == _FLOAT32
    if x.size < LEAST_SIZE or not has_numba() or (narrows and reports_underflow(out.dtype)):
        return None
    *pair, found = (_narrowing if narrows else _widening)(x, out)
    return found.entry(*pair), *pair


def take_assigned_call(rounded: Array, assigned: Array, out: Array) -> tuple[Any, ...] | None:
    """Return the call that writes ``assigned`` to ``out`` where it is not equal to ``rounded``.

    It is None as for ``cast_call``. NumPy's ufuncs with a mask take ten times as long.
    """
    if out.size < LEAST_SIZE or not has_numba():
        return None
    return _take_assigned.entry(rounded, assigned, out), rounded, assigned, out


def _has_loop(x: Any) -> bool:
    return (
        type(x) is np.ndarray
        and x.size >= LEAST_SIZE
        and (x.flags.c_contiguous or x.flags.f_contiguous)
        and x.flags.aligned
        and has_numba()
    )


def reports_underflow(dtype: np.dtype[Any]) -> bool:
    """Return whether NumPy reports results that are too small, which the loops do not notice."""
    return dtype.char == "e" and np.geterr()["under"] != "ignore"


def _flat(x: Array) -> Array:
    """Return the elements of a contiguous array in the order of memory, as a view."""
    return x.reshape(-1, order="C" if x.flags.c_contiguous else "F")


@cache
def _has_instructions() -> bool:
    """Return whether the processor converts float16: eight numbers by one instruction."""
    from llvmlite.binding import get_host_cpu_features

    return bool(get_host_cpu_features().get("f16c"))


@loop
def _take_assigned(rounded, assigned, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = select(rounded[i] == assigned[i], out[i], assigned[i])


@loop
def _convert_from_float16(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = value_of_half(x[i])


@loop
def _convert_to_float16(x, out):  # type: ignore[no-untyped-def]
    over = np.uint32(0)
    for i in range(x.size):
        value = x[i]
        size = abs(value)
        # For results below 2**-14 the instruction takes 100 times as long: see _narrow_float16.
        is_small = size < np.float32(2.0**-14)
        usual = bits_of_half(select(is_small, np.float32(0), size))
        digits = np.float32(size + np.float32(0.5)).view(np.uint32)
        small = np.uint16(np.uint32(digits - np.uint32(126 << 23)))
        sign = np.uint32(np.float32(value).view(np.uint32) >> np.uint32(16)) & np.uint32(0x8000)
        out[i] = np.uint16(select(is_small, small, usual) | np.uint16(sign))
        found = (size >= np.float32(65520.0)) & (size < np.float32(np.inf))
        over = np.uint32(over | select(found, np.uint32(1), np.uint32(0)))
    return over


# numba computes integers in 64 bits, unless each result is cast back: then half as many fit into a
# vector register.
U, F = np.uint32, np.float32

_EXPONENT, _INFINITY = U(0x7C00), U(0x7F800000)
_REBIAS = U(112 << 23)
_SMALLEST = F(2.0**-24)


@loop
def _widen_bfloat16(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        out[i] = U(U(x[i]) << U(16))


@loop
def _narrow_bfloat16(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        bits = x[i]
        high = U(bits >> U(16))
        rounded = U(U(bits + U(0x7FFF) + U(high & U(1))) >> U(16))
        # A carry from the payload of NaN would give infinity; ml_dtypes drops the payload.
        nan = U(U(high & U(0x8000)) | U(0x7FC0))
        out[i] = np.uint16(select(U(bits & U(0x7FFFFFFF)) > _INFINITY, nan, rounded))


@loop
def _widen_float16(x, out):  # type: ignore[no-untyped-def]
    for i in range(x.size):
        bits = U(x[i])
        size = U(bits & U(0x7FFF))
        # Rebias the exponent: by 112, and by 224 for infinity and NaN.
        usual = U(U(size << U(13)) + _REBIAS)
        usual = U(usual + select(size >= _EXPONENT, _REBIAS, U(0)))
        # A subnormal number is its digits times 2**-24.
        small = F(F(np.int32(size)) * _SMALLEST).view(np.uint32)
        found = select(size < U(0x400), small, usual)
        out[i] = U(found | U(U(bits & U(0x8000)) << U(16)))


@loop
def _narrow_float16(x, out):  # type: ignore[no-untyped-def]
    over = U(0)
    for i in range(x.size):
        bits = x[i]
        size = U(bits & U(0x7FFFFFFF))
        odd = U(U(size >> U(13)) & U(1))
        usual = U(U(U(size + U(0xFFF)) + U(odd - _REBIAS)) >> U(13))
        # Below 2**-14: 0.5 more, the last digits of the sum count units of 2**-24.
        small = U(F(F(size.view(np.float32)) + F(0.5)).view(np.uint32) - U(126 << 23))
        # From 65520 on, the nearest is infinity.
        payload = U(U(size >> U(13)) & U(0x3FF))
        payload = select(payload == U(0), U(1), payload)
        large = select(size > _INFINITY, U(_EXPONENT | payload), _EXPONENT)
        is_large = size >= U(0x477FF000)
        found = select(size < U(113 << 23), small, select(is_large, large, usual))
        over = U(over | select(is_large & (size < _INFINITY), U(1), U(0)))
        out[i] = np.uint16(U(found | U(U(bits >> U(16)) & U(0x8000))))
    return over
