"""ELF loader: link simple object files into memory without LLVM.

Called by ``jit`` for every program. The import of llvmlite takes 20 ms of the 70 ms of a first
compiled step whose code is on disk. Our code for Linux on x86-64 has only relocations that store a
64-bit absolute address. An object file with anything else is linked by LLVM.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

__all__ = ["LinkedCode", "is_supported", "link_object"]

_HEADER = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_ADDRESS64 = struct.Struct("<Q")

_CONTENTS, _SYMBOLS, _RELOCATIONS, _ZEROS, _UNWINDING = 1, 2, 4, 8, 0x70000001
_IN_MEMORY, _EXECUTABLE, _THREAD_LOCAL = 0x2, 0x4, 0x400
_RESERVED = 0xFF00
_ABSOLUTE64 = 1  # relocation type R_X86_64_64

_READ, _EXECUTE = 1, 4


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class LinkedCode:
    """Machine code in memory.

    Attributes:
        addresses: Addresses of the functions and globals that it defines, by name.
    """

    def __init__(self, memory: Any, addresses: Mapping[str, int]) -> None:
        self._memory = memory
        self.addresses = addresses


@cache
def is_supported() -> bool:
    """Return whether object files of this platform can be linked here."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def link_object(code: bytes, symbols: Mapping[str, int]) -> LinkedCode | None:
    """Link an object file into memory; None if only LLVM can.

    Args:
        code: Contents of the file.
        symbols: Addresses of functions that it refers to; others are looked up in the process.
    """
    if not is_supported():
        return None
    try:
        return _ObjectLoader(code, symbols).link()
    except (_UnsupportedError, OSError, IndexError, struct.error, UnicodeDecodeError):
        return None


class _UnsupportedError(Exception):
    """The file has a feature that is not supported here."""


def _require(truth: bool) -> None:
    if not truth:
        raise _UnsupportedError


class _ObjectLoader:
    """Loader of one object file."""

    def __init__(self, code: bytes, symbols: Mapping[str, int]) -> None:
        self._code, self._symbols = code, symbols
        _require(code.startswith(_HEADER))
        _require(struct.unpack_from("<HH", code, 16) == (_RELOCATABLE, _X86_64))
        (start,) = struct.unpack_from("<Q", code, 0x28)
        size, count = struct.unpack_from("<HH", code, 0x3A)
        _require(size == _SECTION.size)
        offsets = range(start, start + size * count, size)
        self._sections = [_Section(*_SECTION.unpack_from(code, offset)) for offset in offsets]

    def link(self) -> LinkedCode:
        """Copy the sections into memory and apply the relocations."""
        import mmap

        offsets, executable, size = self._assign_offsets(mmap.PAGESIZE)
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for k, offset in offsets.items():
            section = self._sections[k]
            if section.kind != _ZEROS:
                contents = self._code[section.offset : section.offset + section.size]
                _require(len(contents) == section.size)
                memory[offset : offset + section.size] = contents
        addresses = {k: start + offset for k, offset in offsets.items()}
        symbols, names = self._read_symbols(addresses)
        for section in self._sections:
            if section.kind == _RELOCATIONS and section.info in offsets:
                self._relocate(section, memory, offsets[section.info], symbols)
            # Other forms of relocations, and extended section tables, are not supported.
            _require(section.kind in _SECTION_KINDS)
        if executable:
            protect = _process().mprotect
            protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
            if protect(start, executable, _READ | _EXECUTE):
                raise OSError("memory cannot be made executable")
        return LinkedCode(memory, names)

    def _assign_offsets(self, page: int) -> tuple[dict[int, int], int, int]:
        """Return the offset of each section, the size of the code, and the total size."""
        offsets: dict[int, int] = {}
        size = executable = 0
        for flag in (_EXECUTABLE, 0):  # code first, on pages of its own
            for k, section in enumerate(self._sections):
                in_memory = section.flags & _IN_MEMORY and section.kind != _UNWINDING
                if not in_memory or section.flags & _EXECUTABLE != flag:
                    continue
                _require(not section.flags & _THREAD_LOCAL and section.align <= page)
                size += -size % max(section.align, 1)
                offsets[k] = size
                size += section.size
            size += -size % page
            if flag:
                executable = size
        return offsets, executable, max(size, page)

    def _read_symbols(
        self, sections: Mapping[int, int]
    ) -> tuple[dict[int, list[int | None]], dict[str, int]]:
        """Return addresses by symbol index and section, and those of defined symbols by name."""
        symbols: dict[int, list[int | None]] = {}
        names: dict[str, int] = {}
        for k, section in enumerate(self._sections):
            if section.kind != _SYMBOLS:
                continue
            own = symbols[k] = []
            strings = self._sections[section.link]
            for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                name, _, _, home, value, _ = _SYMBOL.unpack_from(self._code, at)
                begin = strings.offset + name
                text = self._code[begin : self._code.find(b"\0", begin)].decode()
                address = sections[home] + value if home in sections else None
                if not home and text:
                    address = self._find(text)
                    _require(address is not None)
                own.append(address)
                if home and address is not None and text:
                    names[text] = address
        return symbols, names

    def _find(self, name: str) -> int | None:
        address = self._symbols.get(name)
        return _process_symbol(name) if address is None else address

    def _relocate(
        self, section: _Section, memory: Any, base: int, symbols: Mapping[int, list[int | None]]
    ) -> None:
        """Store the addresses that a relocation section asks for."""
        addresses, size = symbols[section.link], self._sections[section.info].size
        for at in range(section.offset, section.offset + section.size, _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(self._code, at)
            address = addresses[info >> 32]
            _require(info & 0xFFFFFFFF == _ABSOLUTE64 and address is not None)
            _require(offset + _ADDRESS64.size <= size)
            _ADDRESS64.pack_into(memory, base + offset, ((address or 0) + addend) % (1 << 64))


# Supported kinds: null, contents, symbols, strings, relocations, zeros, notes, address-significance
# tables and unwinding.
_SECTION_KINDS = {0, _CONTENTS, _SYMBOLS, 3, _RELOCATIONS, 7, _ZEROS, 0x6FFF4C03, _UNWINDING}


@cache
def _process() -> Any:
    return ctypes.CDLL(None)


@cache
def _process_symbol(name: str) -> int | None:
    """Return the address of a C function in this process."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        return None
