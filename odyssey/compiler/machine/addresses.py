"""Raw memory: addresses of arrays, and 64-bit words at an address.

Called by ``native_dispatch``, ``runtime`` and ``symbolic_shapes``, which fill tables of addresses
for machine code.
"""

from __future__ import annotations

import ctypes

from odyssey.spec import Array

__all__ = ["address_of", "memory_span", "read_word", "write_words"]


def address_of(array: Array) -> int:
    """Return the address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def memory_span(array: Array) -> tuple[int, int]:
    """Return the first address of an array's memory and the address behind its last byte."""
    start = end = address_of(array)
    if not array.size:
        return start, start
    for n, s in zip(array.shape, array.strides, strict=True):
        if s > 0:
            end += (n - 1) * s
        else:
            start += (n - 1) * s
    return start, end + array.itemsize


def read_word(address: int) -> int:
    """Read the 64-bit word at an address."""
    return int(ctypes.c_int64.from_address(address).value)


def write_words(address: int, words: list[int]) -> None:
    """Write 64-bit words to memory from an address on."""
    for k, word in enumerate(words):
        ctypes.c_int64.from_address(address + 8 * k).value = word
