"""Machine code put into memory without LLVM, where it is of the plainest kind.

To import llvmlite takes 20 ms of the 70 that a first compiled step takes whose code lies on disk.
What is made here for Linux on x86-64 refers to other things by whole addresses alone, which are
filled in. Whatever else an object file has, it is LLVM's to link.
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

_HEADER = b"\x7fELF\x02\x01\x01"  # 64 bits, the least byte first
_RELOCATABLE, _X86_64 = 1, 62
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REFERENCE = struct.Struct("<QQq")
_ADDRESS64 = struct.Struct("<Q")

_CONTENTS, _SYMBOLS, _REFERENCES, _ZEROS, _UNWINDING = 1, 2, 4, 8, 0x70000001
_IN_MEMORY, _EXECUTABLE, _OF_THREADS = 0x2, 0x4, 0x400
_RESERVED = 0xFF00
_ABSOLUTE64 = 1  # the kind of a reference that is a whole address

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
        places: Addresses of what it defines, by name.
    """

    def __init__(self, memory: Any, places: Mapping[str, int]) -> None:
        self._memory = memory
        self.places = places


@cache
def is_supported() -> bool:
    """Whether there is a chance that code is linked here."""
    return sys.platform == "linux" and platform.machine() == "x86_64"


def link_object(code: bytes, symbols: Mapping[str, int]) -> LinkedCode | None:
    """Put an object file into memory; None where that is for LLVM to do.

    Args:
        code: The file.
        symbols: Addresses of what it refers to; what is not here is looked for in the process.
    """
    if not is_supported():
        return None
    try:
        return _ObjectLoader(code, symbols).linked()
    except (_UnsupportedError, OSError, IndexError, struct.error, UnicodeDecodeError):
        return None


class _UnsupportedError(Exception):
    """The file has what is not known here."""


def _require(truth: bool) -> None:
    if not truth:
        raise _UnsupportedError


class _ObjectLoader:
    """One object file on its way into memory."""

    def __init__(self, code: bytes, symbols: Mapping[str, int]) -> None:
        self._code, self._symbols = code, symbols
        _require(code.startswith(_HEADER))
        _require(struct.unpack_from("<HH", code, 16) == (_RELOCATABLE, _X86_64))
        (start,) = struct.unpack_from("<Q", code, 0x28)
        size, count = struct.unpack_from("<HH", code, 0x3A)
        _require(size == _SECTION.size)
        places = range(start, start + size * count, size)
        self._sections = [_Section(*_SECTION.unpack_from(code, place)) for place in places]

    def linked(self) -> LinkedCode:
        """All of it."""
        import mmap

        offsets, executable, size = self._arranged(mmap.PAGESIZE)
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for k, offset in offsets.items():
            section = self._sections[k]
            if section.kind != _ZEROS:
                part = self._code[section.offset : section.offset + section.size]
                _require(len(part) == section.size)
                memory[offset : offset + section.size] = part
        places = {k: start + offset for k, offset in offsets.items()}
        symbols, names = self._read_symbols(places)
        for section in self._sections:
            if section.kind == _REFERENCES and section.info in offsets:
                self._refer(section, memory, offsets[section.info], symbols)
            # References of another form, and tables of more sections than fit.
            _require(section.kind in _SECTION_KINDS)
        if executable:
            protect = _process().mprotect
            protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
            if protect(start, executable, _READ | _EXECUTE):
                raise OSError("memory cannot be made executable")
        return LinkedCode(memory, names)

    def _arranged(self, page: int) -> tuple[dict[int, int], int, int]:
        """Return the offset of each section, the size of the code, and the total size."""
        offsets: dict[int, int] = {}
        size = executable = 0
        for wanted in (_EXECUTABLE, 0):  # code first, on pages of its own
            for k, section in enumerate(self._sections):
                in_memory = section.flags & _IN_MEMORY and section.kind != _UNWINDING
                if not in_memory or section.flags & _EXECUTABLE != wanted:
                    continue
                _require(not section.flags & _OF_THREADS and section.align <= page)
                size += -size % max(section.align, 1)
                offsets[k] = size
                size += section.size
            size += -size % page
            if wanted:
                executable = size
        return offsets, executable, max(size, page)

    def _read_symbols(
        self, places: Mapping[int, int]
    ) -> tuple[dict[int, list[int | None]], dict[str, int]]:
        """Return addresses by symbol index and section, and those of defined symbols by name."""
        found: dict[int, list[int | None]] = {}
        names: dict[str, int] = {}
        for k, section in enumerate(self._sections):
            if section.kind != _SYMBOLS:
                continue
            own = found[k] = []
            words = self._sections[section.link]
            for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                name, _, _, home, value, _ = _SYMBOL.unpack_from(self._code, at)
                begin = words.offset + name
                text = self._code[begin : self._code.find(b"\0", begin)].decode()
                address = places[home] + value if home in places else None
                if not home and text:
                    address = self._find(text)
                    _require(address is not None)
                own.append(address)
                if home and address is not None and text:
                    names[text] = address
        return found, names

    def _find(self, name: str) -> int | None:
        found = self._symbols.get(name)
        return _process_symbol(name) if found is None else found

    def _refer(
        self, section: _Section, memory: Any, to: int, symbols: Mapping[int, list[int | None]]
    ) -> None:
        """Fill in the addresses that a section refers to."""
        known, size = symbols[section.link], self._sections[section.info].size
        for at in range(section.offset, section.offset + section.size, _REFERENCE.size):
            offset, info, more = _REFERENCE.unpack_from(self._code, at)
            address = known[info >> 32]
            _require(info & 0xFFFFFFFF == _ABSOLUTE64 and address is not None)
            _require(offset + _ADDRESS64.size <= size)
            _ADDRESS64.pack_into(memory, to + offset, ((address or 0) + more) % (1 << 64))


# What sections may be: nothing, contents, symbols, names, references, zeros, notes, groups'
# marks and unwinding.
_SECTION_KINDS = {0, _CONTENTS, _SYMBOLS, 3, _REFERENCES, 7, _ZEROS, 0x6FFF4C03, _UNWINDING}


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
