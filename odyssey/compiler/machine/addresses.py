"""Raw memory: 64-bit words at an address.

Called by ``native_dispatch``, ``runtime`` and ``symbolic_shapes``, which fill tables of addresses
for machine code.
"""

from __future__ import annotations

import ctypes

__all__ = ["read_word", "write_words"]


def read_word(address: int) -> int:
    """Read the 64-bit word at an address."""
    return int(ctypes.c_int64.from_address(address).value)


def write_words(address: int, words: list[int]) -> None:
    """Write 64-bit words to memory from an address on."""
    for k, word in enumerate(words):
        ctypes.c_int64.from_address(address + 8 * k).value = word
